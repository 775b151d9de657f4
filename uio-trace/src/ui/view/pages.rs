//! The long form of a detail that does not fit: drawn on a sheet with room for all of it, and shown page by page.
//!
//! Without it a small terminal has the short form only: what is most important, in one page.

use super::refs;
use crate::ui::canvas::Canvas;
use crate::ui::state::{Detail, RowId};
use crate::ui::theme::Role;
use ratatui::layout::Rect;

/// Rows in which everything about a device has its place, at 60 columns: facts, findings, histograms, history, operations, who
/// waited behind whom, slow operations.
const DEVICE_ROWS: u16 = 60;
/// Of an owner, without the stacks of its killers: facts, histograms, history, dying refs, settings.
const OWNER_ROWS: u16 = 34;
/// Of a drain: the shape beside the one of draining together, and some rows of the waterfall.
const DRAIN_ROWS: u16 = 26;

/// Rows of a detail's long form in `width` columns; `None`: it is text, which scrolls.
fn rows(detail: &Detail, width: u16, unicode: bool) -> Option<u16> {
    match &detail.id {
        RowId::Device(..) => Some(DEVICE_ROWS),
        RowId::Owner(release) => {
            Some(OWNER_ROWS.saturating_add(refs::killer_rows(&detail.snapshot, release, width, unicode)))
        }
        RowId::Drain(_) => Some(DRAIN_ROWS),
        RowId::Finding(..) | RowId::InProgress(..) | RowId::Probe(..) => None,
    }
}

/// Pages of the long form in a body of this size; 0: all of it is in view without.
pub fn count(detail: &Detail, (width, height): (u16, u16), unicode: bool) -> usize {
    match rows(detail, width, unicode) {
        // The heading stays, so a page has one row less.
        Some(rows) if rows > height && height > 1 => usize::from((rows - 1).div_ceil(height - 1)),
        _ => 0,
    }
}

/// Draws the page that is chosen, or the short form.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, detail: &Detail, draw: impl FnOnce(&mut Canvas<'_>, Rect)) {
    let unicode = canvas.theme.unicode;
    let pages = count(detail, (area.width, area.height), unicode);
    // A terminal that has become larger has fewer pages.
    let page = detail.page.min(pages);
    let (Some(rows), 1..) = (rows(detail, area.width, unicode), page) else {
        draw(canvas, area);
        return;
    };
    let room = area.height - 1;
    let first = 1 + u16::try_from(page - 1).unwrap_or(0) * room;
    canvas.scrolled(area, rows, first.min(rows - room), draw);
    let note = format!(" page {page} of {pages} ");
    canvas.text_right(area.x, area.y, area.width.saturating_sub(1), &note, Role::Dim);
}
