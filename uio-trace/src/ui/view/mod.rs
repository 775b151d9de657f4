//! One file for each screen. Everything here reads the state and writes to a canvas.

pub mod aio;
pub mod aio_detail;
pub mod detail;
pub mod findings;
pub mod header;
pub mod help;
pub mod overview;
pub mod pages;
pub mod probes;
pub mod refs;
pub mod timeline;
pub mod uio;
pub mod uio_detail;
pub mod uio_tables;

use super::arrange::{self, Tabular};
use super::canvas::{Canvas, split_top, window};
use super::layout::Layout;
use super::state::{Detail, HEADER_ROWS, MINIMUM_SIZE, RowId, Screen, State};
use super::text;
use super::theme::{Role, Theme};
use super::widgets::table::{Clicks, Table};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// With so many rows left below a list, there is room for the detail of a row.
const PREVIEW_ROWS: u16 = 13;

/// Draws the whole screen.
pub fn draw(state: &State, buffer: &mut Buffer) {
    draw_all(&mut Canvas::new(buffer, Theme::new(&state.facts)), state);
}

/// What stands where on the screen that [`draw`] draws.
pub fn layout(state: &State) -> Layout {
    let mut buffer = Buffer::empty(Rect::new(0, 0, state.size.0, state.size.1));
    let mut canvas = Canvas::recording(&mut buffer, Theme::new(&state.facts));
    draw_all(&mut canvas, state);
    canvas.into_layout()
}

fn draw_all(canvas: &mut Canvas<'_>, state: &State) {
    let area = canvas.area();
    if area.width < MINIMUM_SIZE.0 || area.height < MINIMUM_SIZE.1 {
        too_small(canvas, area);
        return;
    }
    let (head, rest) = split_top(area, HEADER_ROWS);
    let (body, foot) = split_top(rest, rest.height.saturating_sub(state.footer_rows()));
    header::draw(canvas, head, state);
    draw_body(canvas, body, state);
    let (above, foot) = split_top(foot, foot.height.saturating_sub(1));
    if let Some(timeline) = &state.timeline {
        timeline::draw(canvas, above, timeline, state);
    }
    header::draw_footer(canvas, foot, state);
}

/// One line: what is needed, as much of it as there is room for.
fn too_small(canvas: &mut Canvas<'_>, area: Rect) {
    let (columns, rows) = MINIMUM_SIZE;
    let long = format!(
        "uio-trace needs a terminal of {columns}x{rows}; this one is {}x{}",
        area.width, area.height
    );
    let medium = format!("too small: {columns}x{rows} needed");
    let short = format!("needs {columns}x{rows}");
    let fits = |line: &&String| text::width(line) <= usize::from(area.width);
    let line = [&long, &medium, &short].into_iter().find(fits).unwrap_or(&short);
    canvas.text(area.x, area.y, area.width, line, Role::Plain);
}

fn draw_body(canvas: &mut Canvas<'_>, area: Rect, state: &State) {
    if state.help.is_some() {
        help::draw(canvas, area, state);
        return;
    }
    if state.shown().is_none() {
        canvas.text(
            area.x + 1,
            area.y + 1,
            area.width - 1,
            "Waiting for the first figures.",
            Role::Dim,
        );
        return;
    }
    if let Some(detail) = &state.view().detail {
        pages::draw(canvas, area, detail, |canvas, area| {
            draw_detail(canvas, area, state, detail, true);
        });
        return;
    }
    match state.screen {
        Screen::Overview => overview::draw(canvas, area, state),
        Screen::Uio => uio::draw(canvas, area, state),
        Screen::Refs => refs::draw(canvas, area, state),
        Screen::Aio => aio::draw(canvas, area, state),
        Screen::Probes => probes::draw(canvas, area, state),
    }
}

/// A row's detail; its cursor is shown when it is `active`, that is, when the keys move it.
fn draw_detail(canvas: &mut Canvas<'_>, area: Rect, state: &State, detail: &Detail, active: bool) {
    match &detail.id {
        RowId::Device(minor, generation) => {
            uio_detail::draw(canvas, area, detail, (*minor, *generation), active);
        }
        RowId::Drain(number) => aio_detail::draw(canvas, area, detail, *number, active),
        RowId::Owner(release) => refs::draw_detail(canvas, area, state, detail, release),
        _ => detail::draw(canvas, area, state, detail),
    }
}

/// Below a short list: the detail of the selected row, or of the first. Says whether there was room.
fn draw_preview(canvas: &mut Canvas<'_>, area: Rect, state: &State, screen: Screen) -> bool {
    let position = state.selected().unwrap_or(0);
    let (Some(id), Some(snapshot)) = (arrange::row_id(state, screen, position), state.shown()) else {
        return false;
    };
    if area.height < PREVIEW_ROWS {
        return false;
    }
    let detail = Detail::new(id, snapshot.clone());
    draw_detail(canvas, area, state, &detail, false);
    true
}

/// The last value that the current detail's cursor may take.
pub fn last_cursor(state: &State) -> usize {
    let Some(detail) = &state.view().detail else {
        return 0;
    };
    let rows = match &detail.id {
        RowId::Device(minor, generation) => {
            uio_detail::device(&detail.snapshot, *minor, *generation).map_or(1, |d| d.ops.len() + 1)
        }
        RowId::Drain(number) => aio_detail::drain(&detail.snapshot, *number).map_or(0, |d| d.detail.len()),
        RowId::Owner(_) => 0,
        _ => return detail::last_first_line(state, detail),
    };
    rows.saturating_sub(1)
}

/// Right side of a detail's heading.
pub fn detail_note(detail: &Detail) -> &'static str {
    if detail.left {
        "no longer listed: last figures"
    } else {
        ""
    }
}

/// Right side of a list's heading: how many rows, which of them are in view when not all are (of a table whose heading
/// and rows take `height` lines, and whose rows begin after `before` others of the list), which filter, which order.
pub fn list_note<R: Tabular>(state: &State, screen: Screen, before: usize, height: u16) -> String {
    let view = &state.views[screen.index()];
    let symbols = Theme::new(&state.facts).symbols();
    let (rows, height) = (view.order.len(), usize::from(height.saturating_sub(1)));
    let mut note = String::new();
    if rows > height && height > 0 {
        let selected = state.selected().and_then(|s| s.checked_sub(before));
        let first = window(view.top, selected, rows, height);
        note = format!("{}{}{} of ", first + 1, symbols.to, first + height);
    }
    note += &if view.filter.is_empty() {
        format!("{}", view.total)
    } else {
        format!("{rows} of {} with \"{}\"", view.total, view.filter)
    };
    if let Some(column) = R::COLUMNS.get(view.sort_column) {
        let direction = if view.descending {
            symbols.descending
        } else {
            symbols.ascending
        };
        note += &format!(", by {} {direction}", column.title);
    }
    note
}

/// A screen's list: heading and table, or `empty` when there is no row. Returns the rows used.
fn draw_list<'a, R: Tabular>(
    canvas: &mut Canvas<'_>,
    area: Rect,
    state: &State,
    screen: Screen,
    title: &str,
    row: impl Fn(usize) -> Option<&'a R>,
    empty: &str,
) -> u16 {
    let view = &state.views[screen.index()];
    let note = list_note::<R>(state, screen, 0, area.height.saturating_sub(1));
    let body = canvas.heading(area, title, &note);
    let rows: Vec<&R> = view.order.iter().filter_map(|position| row(*position)).collect();
    if rows.is_empty() {
        let empty = if view.total > 0 {
            "No row contains the filter's text."
        } else {
            empty
        };
        let lines = text::wrap(empty, usize::from(body.width.saturating_sub(4)));
        for (y, line) in (body.y..body.bottom()).zip(&lines) {
            canvas.text(body.x + 2, y, body.width.saturating_sub(2), line, Role::Dim);
        }
        return 1 + u16::try_from(lines.len()).unwrap_or(0).min(body.height);
    }
    let table = Table {
        columns: R::COLUMNS,
        sort: Some((view.sort_column, view.descending)),
        rows: &rows,
        selected: state.selected(),
        top: view.top,
        clicks: Clicks::List(0),
        filter: &view.filter,
    };
    1 + table.draw(canvas, body)
}

/// `comm (tgid)`, with the thread when it is not the process's first.
pub fn process(comm: &str, tgid: u32, tid: u32) -> String {
    if tid == tgid || tid == 0 {
        format!("{comm} ({tgid})")
    } else {
        format!("{comm} ({tgid}/{tid})")
    }
}
