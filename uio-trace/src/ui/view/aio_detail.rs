//! A drain: the verdict in a sentence, its shape beside that of draining together, and the waterfall.

use super::aio::{cause, draw_legend, occurring};
use crate::model::snapshot::{AioContext, AioDrain, DrainVerdict, Snapshot};
use crate::ui::canvas::{Canvas, halves, split_top};
use crate::ui::format;
use crate::ui::phases;
use crate::ui::state::Detail;
use crate::ui::text;
use crate::ui::theme::{self, Role};
use crate::ui::widgets::table::draw_shares;
use crate::ui::widgets::{shape, waterfall};
use ratatui::layout::Rect;

/// From this many rows on there is room for the shape beside the waterfall.
const ROWS_WITH_SHAPE: u16 = 16;
/// With fewer rows the contexts need them all.
const ROWS_WITH_PHASES: u16 = 11;
/// Rows of the shape, at most.
const SHAPE_ROWS: u16 = 8;

/// The drain in a snapshot.
pub fn drain(snapshot: &Snapshot, number: u64) -> Option<&AioDrain> {
    snapshot.aio_drains.iter().find(|d| d.id == number)
}

/// Draws the detail.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, detail: &Detail, number: u64, active: bool) {
    let Some(drain) = drain(&detail.snapshot, number) else {
        return;
    };
    let process = super::process(&drain.comm, drain.tgid, drain.tid);
    let title = format!("Drain {number}: {process}, {}", cause(drain.cause));
    let body = canvas.heading(area, &title, super::detail_note(detail));
    let body = draw_verdict(canvas, body, drain);
    let body = draw_phases(canvas, body, drain);
    let body = draw_shape(canvas, body, drain);

    let cursor = detail.cursor.min(drain.detail.len().saturating_sub(1));
    let inner = canvas.heading(body, "Waterfall", &waterfall_note(canvas, drain, detail));
    let unicode = canvas.theme.unicode;
    let figures = drain.detail.get(cursor).map(|c| figures(c, inner.width, unicode));
    let mut lines = figures.unwrap_or_default();
    // Two lines if there are contexts in view even so.
    lines.truncate(if inner.height > 6 { 2 } else { 1 });
    let last = u16::try_from(lines.len()).unwrap_or(1).max(1);
    let (upper, last_rows) = split_top(inner, inner.height.saturating_sub(1 + last));
    let view = waterfall::View {
        cursor,
        active,
        top: detail.top,
        zoom: detail.zoom,
    };
    waterfall::draw(canvas, upper, drain, view);
    let (legend, selected) = split_top(last_rows, 1);
    let bars = drain.detail.iter().map(phases::of_context);
    draw_legend(canvas, legend, &occurring(bars));
    for (y, line) in (selected.y..selected.bottom()).zip(&lines) {
        canvas.pieces(selected.x + 1, y, selected.width.saturating_sub(1), line);
    }
}

fn waterfall_note(canvas: &Canvas<'_>, drain: &AioDrain, detail: &Detail) -> String {
    let time = |ns| format::duration_inline(ns, canvas.theme.unicode);
    let mut note = String::new();
    if detail.zoom.power > 0 {
        let (from, length) = detail.zoom.part(drain);
        note = format!("{} to {}, ", time(from), time(from + length));
    }
    note += "* critical";
    match drain.contexts.saturating_sub(drain.detail.len() as u64) {
        0 => note,
        n => format!("{note}, {} more contexts not kept", format::count(n)),
    }
}

fn sentence(drain: &AioDrain, unicode: bool) -> String {
    let time = |ns| format::duration_inline(ns, unicode);
    let wall = time(drain.wall_ns);
    let n = format::count(drain.contexts);
    let uncertain = if drain.uncertain {
        " An end may have been lost: at least that."
    } else {
        ""
    };
    let text = match drain.verdict {
        DrainVerdict::Serial => format!(
            "{n} contexts one after another took {wall}; together they would take {}, {} less.",
            time(drain.projected_parallel_ns),
            time(drain.wall_ns.saturating_sub(drain.projected_parallel_ns)),
        ),
        DrainVerdict::Parallel => format!(
            "{n} contexts together took {wall}; one after another they would take {}.",
            time(drain.sum_ns),
        ),
        DrainVerdict::Single => format!("One context took {wall}."),
    };
    text + uncertain
}

fn draw_verdict(canvas: &mut Canvas<'_>, area: Rect, drain: &AioDrain) -> Rect {
    let (word, role) = theme::verdict(drain.verdict);
    let indent = 10;
    canvas.text(area.x + 1, area.y, indent, word, role);
    let room = area.width.saturating_sub(indent + 2);
    let lines = text::wrap(&sentence(drain, canvas.theme.unicode), usize::from(room));
    let (upper, rest) = split_top(area, u16::try_from(lines.len()).unwrap_or(1).min(3));
    for (y, line) in (upper.y..upper.bottom()).zip(&lines) {
        canvas.text(area.x + 1 + indent, y, room, line, Role::Plain);
    }
    rest
}

/// The critical context's phases as a bar.
fn draw_phases(canvas: &mut Canvas<'_>, area: Rect, drain: &AioDrain) -> Rect {
    if area.height < ROWS_WITH_PHASES {
        return area;
    }
    let bar = phases::of_drain(drain);
    let (line, rest) = split_top(area, 1);
    let label = if drain.verdict == DrainVerdict::Serial {
        "longest"
    } else {
        "last"
    };
    canvas.text(line.x + 1, line.y, 10, label, Role::Dim);
    draw_shares(canvas, line.x + 11, line.y, line.width.saturating_sub(12), &bar);
    rest
}

/// All contexts at a glance: as they drained, and beside it, on the same scale, as they would together. Returns what
/// is left of `area`.
fn draw_shape(canvas: &mut Canvas<'_>, area: Rect, drain: &AioDrain) -> Rect {
    let contexts = u16::try_from(drain.detail.len()).unwrap_or(u16::MAX);
    // One context has no shape; a block whose rows are all in the waterfall is seen there.
    let seen_below = drain.verdict == DrainVerdict::Parallel && contexts <= area.height.saturating_sub(5);
    if contexts < 2 || area.height < ROWS_WITH_SHAPE || seen_below {
        return area;
    }
    let rows = contexts.min(area.height / 3).min(SHAPE_ROWS);
    let (upper, rest) = split_top(area, rows + 1);
    let time = |ns| format::duration_inline(ns, canvas.theme.unicode);
    let span = waterfall::span(drain);
    let inside = |body: Rect| Rect {
        x: body.x + 1,
        width: body.width.saturating_sub(2),
        ..body
    };
    let as_it_was = format!("{} contexts", format::count(drain.contexts));
    let took = time(drain.wall_ns);
    if drain.verdict != DrainVerdict::Serial {
        let body = canvas.heading(upper, "As it was", &format!("{as_it_was}, {took}"));
        shape::draw(canvas, inside(body), drain, span, shape::as_it_was);
        return rest;
    }
    let (left, right) = halves(upper, 1);
    let together = time(drain.projected_parallel_ns);
    let body = canvas.heading(left, "As it was", &took);
    shape::draw(canvas, inside(body), drain, span, shape::as_it_was);
    let body = canvas.heading(right, "Together, projected", &together);
    shape::draw(canvas, inside(body), drain, span, shape::together);
    rest
}

/// The selected context's figures, phase by phase, in lines of at most `width` columns.
fn figures(context: &AioContext, width: u16, unicode: bool) -> Vec<Vec<(String, Role)>> {
    let time = |ns| format::duration_inline(ns, unicode);
    let mut figures: Vec<(&str, String)> = Vec::new();
    if context.uncertain {
        figures.push(("uncertain:", "an event was lost".into()));
    }
    figures.extend(
        phases::of_context(context)
            .into_iter()
            .map(|(phase, ns)| (phase.short_name(), time(ns))),
    );
    figures.push(("from", time(context.start_offset_ns)));
    figures.extend(context.call_ns.map(|ns| ("call", time(ns))));
    let requests = context.in_flight.filter(|n| *n > 0);
    figures.extend(requests.map(|n| ("requests", format::count(n))));
    let file = context.last_request.as_ref();
    figures.extend(file.map(|file| ("last request on", file.to_string())));
    let room = usize::from(width.saturating_sub(1));
    let mut lines: Vec<Vec<(String, Role)>> = Vec::new();
    let mut used = room;
    for (label, figure) in figures {
        let needed = text::width(label) + 1 + text::width(&figure);
        if used + 2 + needed > room {
            lines.push(Vec::new());
            used = 0;
        } else {
            used += 2;
        }
        if let Some(line) = lines.last_mut() {
            let gap = if line.is_empty() { "" } else { "  " };
            line.push((format!("{gap}{label} "), Role::Dim));
            line.push((figure, Role::Plain));
        }
        used += needed;
    }
    lines
}
