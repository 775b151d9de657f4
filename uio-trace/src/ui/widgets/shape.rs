//! A drain as a picture: all its contexts in a few rows, on one time axis. One after another makes a staircase,
//! together a block, whatever their number.

use super::waterfall::phase_at;
use crate::model::snapshot::{AioContext, AioDrain};
use crate::ui::canvas::Canvas;
use crate::ui::phases::{self, Phase};
use crate::ui::theme::Role;
use ratatui::layout::Rect;

/// When a context begins in the picture, ns.
pub type Begin = fn(&AioContext) -> u64;

/// As it was.
pub fn as_it_was(context: &AioContext) -> u64 {
    context.start_offset_ns
}

/// All at once: what draining together would look like (each context takes as long as it took).
pub fn together(_: &AioContext) -> u64 {
    0
}

/// Draws the contexts into `area`, whose width stands for `span` ns. With more contexts than rows, a row stands for
/// several neighbours and shows what most of them are in.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, drain: &AioDrain, span: u64, begin: Begin) {
    let rows = usize::from(area.height).min(drain.detail.len());
    let (width, span) = (u128::from(area.width), u128::from(span.max(1)));
    for row in 0..rows {
        let from = drain.detail.len() * row / rows;
        let to = drain.detail.len() * (row + 1) / rows;
        let group: Vec<_> = drain.detail[from..to]
            .iter()
            .map(|context| (begin(context), context.total_ns, phases::of_context(context)))
            .collect();
        for column in 0..area.width {
            let at = |offset: u128| (span * (u128::from(column) * 2 + offset) / (width * 2)) as u64;
            let (left, middle, right) = (at(0), at(1), at(2));
            let mut votes: Vec<(Phase, usize)> = Vec::new();
            for (start, total, parts) in &group {
                // A context shorter than a column shows in the one it begins in.
                let there = middle >= *start && middle < start.saturating_add(*total);
                if !there && !(left..right).contains(start) {
                    continue;
                }
                let phase = phase_at(parts, middle.saturating_sub(*start));
                match votes.iter_mut().find(|(voted, _)| *voted == phase) {
                    Some((_, count)) => *count += 1,
                    None => votes.push((phase, 1)),
                }
            }
            if let Some((phase, _)) = votes.into_iter().max_by_key(|(_, count)| *count) {
                let fill = canvas.theme.fill(phase);
                canvas.repeat(area.x + column, area.y + row as u16, 1, fill, Role::Phase(phase));
            }
        }
    }
}
