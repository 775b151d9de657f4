//! A drain as a picture: all its contexts in a few rows, on one time axis. One after another makes a staircase,
//! together a block, whatever their number.

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

/// A context in the picture: begin, end, and the phases it goes through.
struct Bar {
    begin: u64,
    end: u64,
    phases: Vec<(Phase, u64)>,
}

impl Bar {
    fn new(context: &AioContext, begin: u64) -> Bar {
        Bar {
            begin,
            end: begin.saturating_add(context.total_ns),
            phases: phases::of_context(context),
        }
    }

    /// Whether a column from `left` to `right` shows it: its middle does, or it is shorter than the column.
    fn fills(&self, left: u64, right: u64) -> bool {
        let middle = left + (right - left) / 2;
        (self.begin <= middle && middle < self.end) || (left <= self.begin && self.end <= right)
    }

    /// Adds the time of each phase between `left` and `right`.
    fn add_to(&self, spent: &mut Vec<(Phase, u64)>, left: u64, right: u64) {
        let mut from = self.begin;
        for (phase, ns) in &self.phases {
            let to = from.saturating_add(*ns);
            let inside = to.min(right).saturating_sub(from.max(left));
            match spent.iter_mut().find(|(known, _)| known == phase) {
                Some((_, sum)) => *sum += inside,
                None => spent.push((*phase, inside)),
            }
            from = to;
        }
    }
}

/// Draws the contexts into `area`, whose width stands for `span` ns. With more contexts than rows, a row stands for
/// several neighbours. A column shows the phase in which these spent most of its time.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, drain: &AioDrain, span: u64, begin: Begin) {
    let rows = usize::from(area.height).min(drain.detail.len());
    let (width, span) = (u128::from(area.width), u128::from(span.max(1)));
    let at = |column: u16| (span * u128::from(column) / width.max(1)) as u64;
    for row in 0..rows {
        let from = drain.detail.len() * row / rows;
        let to = drain.detail.len() * (row + 1) / rows;
        let bars: Vec<Bar> = drain.detail[from..to]
            .iter()
            .map(|context| Bar::new(context, begin(context)))
            .collect();
        for column in 0..area.width {
            let (left, right) = (at(column), at(column + 1));
            if !bars.iter().any(|bar| bar.fills(left, right)) {
                continue;
            }
            let mut spent = Vec::new();
            bars.iter().for_each(|bar| bar.add_to(&mut spent, left, right));
            // Of equals the first: a context without time is in its first phase.
            let most = spent
                .iter()
                .rev()
                .max_by_key(|(_, ns)| *ns)
                .map_or(Phase::Unknown, |(phase, _)| *phase);
            let fill = canvas.theme.fill(most);
            canvas.repeat(area.x + column, area.y + row as u16, 1, fill, Role::Phase(most));
        }
    }
}
