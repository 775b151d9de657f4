//! Contexts of a drain over time, a bar for each with its phases: drained one after another they make a staircase,
//! together a block.

use crate::model::snapshot::{AioContext, AioDrain};
use crate::ui::canvas::{Canvas, split_top, window};
use crate::ui::format;
use crate::ui::layout::Target;
use crate::ui::phases::{self, Phase};
use crate::ui::state::Zoom;
use crate::ui::theme::Role;
use ratatui::layout::Rect;

/// Columns of a context's name with the cursor before it, and of its total.
const NAME: u16 = 17;
const TOTAL: u16 = 9;

/// The time that the whole drain stands for, ns, at least 1.
pub fn span(drain: &AioDrain) -> u64 {
    let ends = drain
        .detail
        .iter()
        .map(|c| c.start_offset_ns.saturating_add(c.total_ns));
    ends.max().unwrap_or(0).max(drain.wall_ns).max(1)
}

/// Shortest part of a drain that can be looked at, ns.
const LEAST_PART_NS: u64 = 10_000;

impl Zoom {
    /// Begin and length of the part of `drain` that is shown, ns.
    pub fn part(self, drain: &AioDrain) -> (u64, u64) {
        let span = span(drain);
        let length = span.checked_shr(u32::from(self.power)).unwrap_or(0).max(1);
        (self.from_ns.min(span - length), length)
    }

    fn around(self, drain: &AioDrain, power: u8, middle: u64) -> Zoom {
        let (_, length) = Zoom { power, ..self }.part(drain);
        let from_ns = middle.saturating_sub(length / 2);
        let from_ns = Zoom { power, from_ns }.part(drain).0;
        Zoom { power, from_ns }
    }

    /// Half as much, around the context at `cursor`.
    pub fn closer(self, drain: &AioDrain, cursor: usize) -> Zoom {
        let (from, length) = self.part(drain);
        if length / 2 < LEAST_PART_NS {
            return self;
        }
        let middle = drain
            .detail
            .get(cursor)
            .map_or(from + length / 2, |c| c.start_offset_ns + c.total_ns / 2);
        self.around(drain, self.power + 1, middle)
    }

    /// Twice as much, around the same middle.
    pub fn farther(self, drain: &AioDrain) -> Zoom {
        let (from, length) = self.part(drain);
        self.around(drain, self.power.saturating_sub(1), from + length / 2)
    }

    /// A quarter of what is shown earlier (-1) or later (1).
    pub fn moved(self, drain: &AioDrain, direction: i64) -> Zoom {
        let (from, length) = self.part(drain);
        let by = (length / 4).max(1).cast_signed().saturating_mul(direction);
        let from_ns = from.saturating_add_signed(by);
        let from_ns = Zoom { from_ns, ..self }.part(drain).0;
        Zoom { from_ns, ..self }
    }

    /// Moved so that the context at `cursor` is in view, if it is not.
    pub fn following(self, drain: &AioDrain, cursor: usize) -> Zoom {
        let (from, length) = self.part(drain);
        let Some(c) = drain.detail.get(cursor) else {
            return self;
        };
        let end = c.start_offset_ns.saturating_add(c.total_ns);
        if end > from && c.start_offset_ns < from + length {
            return self;
        }
        self.around(drain, self.power, c.start_offset_ns + c.total_ns / 2)
    }
}

/// How the contexts are shown.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// The selected context.
    pub cursor: usize,
    /// It is marked, and clicks select: the keys move it.
    pub active: bool,
    /// First context in view, if the selected one is then in view.
    pub top: usize,
    /// The part of the time.
    pub zoom: Zoom,
}

/// Draws an axis and the contexts around the selected one.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, drain: &AioDrain, view: View) {
    let (axis, body) = split_top(area, 1);
    let bars = Bars {
        x: area.x + NAME + 1,
        width: area.width.saturating_sub(NAME + TOTAL + 2),
        part: view.zoom.part(drain),
    };
    if bars.width == 0 || axis.height == 0 {
        return;
    }
    draw_axis(canvas, axis, &bars);
    let height = usize::from(body.height);
    let first = window(view.top, Some(view.cursor), drain.detail.len(), height);
    if view.active {
        canvas.list_begins(first);
    }
    for (y, (index, context)) in (body.y..body.bottom()).zip(drain.detail.iter().enumerate().skip(first)) {
        let mark = if index == drain.critical { "*" } else { " " };
        canvas.text(area.x + 1, y, 1, mark, Role::Strong);
        canvas.text(area.x + 2, y, NAME - 2, &context.ctx, Role::Plain);
        bars.draw(canvas, y, context);
        let mut total = format::duration(context.total_ns, canvas.theme.unicode);
        if context.uncertain {
            total = format!("?{total}");
        }
        canvas.text_right(area.right().saturating_sub(TOTAL), y, TOTAL, &total, Role::Plain);
        if !view.active {
            continue;
        }
        canvas.target(Rect { y, height: 1, ..area }, Target::Line(index));
        if index == view.cursor {
            let cursor = canvas.theme.symbols().cursor;
            canvas.text(area.x, y, 1, cursor, Role::Strong);
            let name = Rect::new(area.x, y, NAME, 1);
            canvas.overlay(name, Role::Selected);
        }
    }
}

fn draw_axis(canvas: &mut Canvas<'_>, axis: Rect, bars: &Bars) {
    canvas.text(axis.x + 2, axis.y, NAME - 2, "context", Role::Heading);
    canvas.text_right(
        axis.right().saturating_sub(TOTAL),
        axis.y,
        TOTAL,
        "total",
        Role::Heading,
    );
    let (x, width, (from, length)) = (bars.x, bars.width, bars.part);
    canvas.repeat(x, axis.y, width, canvas.theme.symbols().rule, Role::Rule);
    // A label takes up to ten columns with its tick.
    let ticks = (width / 14).clamp(1, 8);
    for tick in 0..ticks {
        let column = width * tick / ticks;
        let ns = from + (u128::from(length) * u128::from(tick) / u128::from(ticks)) as u64;
        let label = if ns == 0 {
            "0".to_owned()
        } else {
            format::duration_inline(ns, canvas.theme.unicode)
        };
        let sign = canvas.theme.symbols().tick;
        canvas.pieces(
            x + column,
            axis.y,
            width - column,
            &[(sign, Role::Rule), (&label, Role::Dim)],
        );
    }
}

/// Where bars stand, and the time they show.
struct Bars {
    x: u16,
    width: u16,
    /// Begin and length, ns.
    part: (u64, u64),
}

impl Bars {
    /// Each column shows the phase at its middle; a context too short for a column still gets one.
    fn draw(&self, canvas: &mut Canvas<'_>, y: u16, context: &AioContext) {
        let (begin, length) = self.part;
        let (start, total) = (context.start_offset_ns, context.total_ns);
        let end = start.saturating_add(total);
        if end < begin || start >= begin.saturating_add(length) {
            return;
        }
        let phases = phases::of_context(context);
        let (width, length) = (u128::from(self.width), u128::from(length));
        let at = |ns: u64| (u128::from(ns.saturating_sub(begin)) * width / length).min(width) as u16;
        let from = at(start).min(self.width - 1);
        let to = at(end).max(from + 1);
        for column in from..to {
            let middle = begin + (length * (u128::from(column) * 2 + 1) / (width * 2)) as u64;
            let phase = phase_at(&phases, middle.saturating_sub(start));
            canvas.repeat(
                self.x + column,
                y,
                1,
                canvas.theme.fill(phase),
                Role::Phase(phase),
            );
        }
    }
}

/// The phase `into` ns after the begin.
fn phase_at(phases: &[(Phase, u64)], into: u64) -> Phase {
    let mut end = 0_u64;
    for (phase, ns) in phases {
        end = end.saturating_add(*ns);
        if into < end {
            return *phase;
        }
    }
    // Past the end by rounding: the last phase that took time.
    phases
        .iter()
        .rev()
        .find(|(_, ns)| *ns > 0)
        .map_or(Phase::Unknown, |(phase, _)| *phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phase_at_a_moment() {
        let parts = [
            (Phase::UsersGracePeriod, 10),
            (Phase::UsersRefs, 0),
            (Phase::ReqsIo, 10),
            (Phase::Unknown, 0),
        ];
        assert_eq!(phase_at(&parts, 0), Phase::UsersGracePeriod);
        assert_eq!(phase_at(&parts, 10), Phase::ReqsIo);
        assert_eq!(phase_at(&parts, 99), Phase::ReqsIo);
    }
}
