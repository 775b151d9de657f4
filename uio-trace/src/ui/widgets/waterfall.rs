//! Contexts of a drain over time, a bar for each with its phases: drained one after another they make a staircase,
//! together a block.

use crate::model::snapshot::{AioContext, AioDrain};
use crate::ui::canvas::{Canvas, first_visible, split_top};
use crate::ui::format;
use crate::ui::phases::{self, Phase};
use crate::ui::theme::Role;
use ratatui::layout::Rect;

/// Columns of a context's name with the cursor before it, and of its total.
const NAME: u16 = 17;
const TOTAL: u16 = 9;

/// The time that the whole width stands for.
fn span(drain: &AioDrain) -> u64 {
    let ends = drain
        .detail
        .iter()
        .map(|c| c.start_offset_ns.saturating_add(c.total_ns));
    ends.max().unwrap_or(0).max(drain.wall_ns).max(1)
}

/// Draws an axis and the contexts around `selected`, which is marked when `active`.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, drain: &AioDrain, selected: usize, active: bool) {
    let (axis, body) = split_top(area, 1);
    let bar_x = area.x + NAME + 1;
    let bar_width = area.width.saturating_sub(NAME + TOTAL + 2);
    if bar_width == 0 || axis.height == 0 {
        return;
    }
    let span = span(drain);
    draw_axis(canvas, axis, bar_x, bar_width, span);
    let height = usize::from(body.height);
    let first = first_visible(selected, drain.detail.len(), height);
    for (y, (index, context)) in (body.y..body.bottom()).zip(drain.detail.iter().enumerate().skip(first)) {
        let mark = if index == drain.critical { "*" } else { " " };
        canvas.text(area.x + 1, y, 1, mark, Role::Strong);
        canvas.text(area.x + 2, y, NAME - 2, &context.ctx, Role::Plain);
        draw_bar(canvas, bar_x, y, bar_width, span, context);
        let mut total = format::duration(context.total_ns, canvas.theme.unicode);
        if context.uncertain {
            total = format!("?{total}");
        }
        canvas.text_right(area.right().saturating_sub(TOTAL), y, TOTAL, &total, Role::Plain);
        if active && index == selected {
            let cursor = canvas.theme.symbols().cursor;
            canvas.text(area.x, y, 1, cursor, Role::Strong);
            canvas.overlay(
                Rect {
                    x: area.x,
                    y,
                    width: NAME,
                    height: 1,
                },
                Role::Selected,
            );
        }
    }
}

fn draw_axis(canvas: &mut Canvas<'_>, axis: Rect, x: u16, width: u16, span: u64) {
    canvas.text(axis.x + 2, axis.y, NAME - 2, "context", Role::Heading);
    canvas.text_right(
        axis.right().saturating_sub(TOTAL),
        axis.y,
        TOTAL,
        "total",
        Role::Heading,
    );
    canvas.repeat(x, axis.y, width, canvas.theme.symbols().rule, Role::Rule);
    // A label takes up to ten columns with its tick.
    let ticks = (width / 14).clamp(1, 8);
    for tick in 0..ticks {
        let column = width * tick / ticks;
        let ns = (u128::from(span) * u128::from(tick) / u128::from(ticks)) as u64;
        let label = if tick == 0 {
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

/// Each column shows the phase at its middle; a context too short for a column still gets one.
fn draw_bar(canvas: &mut Canvas<'_>, x: u16, y: u16, width: u16, span: u64, context: &AioContext) {
    let phases = phases::of_context(context);
    let at = |ns: u64| (u128::from(ns) * u128::from(width) / u128::from(span)) as u16;
    let end_ns = context.start_offset_ns.saturating_add(context.total_ns);
    let from = at(context.start_offset_ns).min(width - 1);
    let to = at(end_ns).clamp(from + 1, width);
    for column in from..to {
        let middle = (u128::from(span) * (u128::from(column) * 2 + 1) / (u128::from(width) * 2)) as u64;
        let into = middle.saturating_sub(context.start_offset_ns);
        let phase = phase_at(&phases, into);
        canvas.repeat(x + column, y, 1, canvas.theme.fill(phase), Role::Phase(phase));
    }
}

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
