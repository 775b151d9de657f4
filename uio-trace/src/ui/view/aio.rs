//! AIO drains: how many contexts, one after another or together, and what together would take.

use crate::model::snapshot::{AioDrain, DrainCause, DrainVerdict};
use crate::ui::arrange::Tabular;
use crate::ui::canvas::{Canvas, split_top};
use crate::ui::column::{Cell, Column, counts, times};
use crate::ui::format;
use crate::ui::phases::{self, Phase};
use crate::ui::state::{RowId, Screen, State};
use crate::ui::theme::{self, Role};
use ratatui::layout::Rect;

/// The system call or kernel function behind a drain.
pub fn cause(cause: DrainCause) -> &'static str {
    match cause {
        DrainCause::ExitAio => "exit_aio",
        DrainCause::IoDestroy => "io_destroy",
    }
}

/// Grace periods of the critical context, as far as they are known.
fn grace_periods(drain: &AioDrain) -> u64 {
    let phases = &drain.phases_ns;
    phases
        .users_gp
        .unwrap_or(0)
        .saturating_add(phases.reqs_gp.unwrap_or(0))
}

impl Tabular for AioDrain {
    const DEFAULT_SORT: usize = 5;
    const COLUMNS: &'static [Column<AioDrain>] = &[
        Column::figures(
            "drain",
            6,
            1,
            |d, _| Cell::plain(d.id.to_string()),
            |a, b| a.id.cmp(&b.id),
        ),
        Column::names(
            "process",
            (12, 32),
            0,
            |d, _| Cell::plain(super::process(&d.comm, d.tgid, d.tid)),
            |a, b| a.comm.cmp(&b.comm).then(a.tgid.cmp(&b.tgid)),
        ),
        Column::names(
            "cause",
            (10, 10),
            3,
            |d, _| Cell::plain(cause(d.cause)),
            |a, b| cause(a.cause).cmp(cause(b.cause)),
        ),
        counts!("contexts", 9, 0, |d: AioDrain| d.contexts),
        Column::names(
            "verdict",
            (9, 9),
            0,
            |d, _| {
                let (word, role) = theme::verdict(d.verdict);
                Cell::Text(
                    if d.uncertain {
                        format!("{word}?")
                    } else {
                        word.into()
                    },
                    role,
                )
            },
            |a, b| theme::verdict(a.verdict).0.cmp(theme::verdict(b.verdict).0),
        ),
        times!("wall", 8, 0, |d: AioDrain| Some(d.wall_ns)),
        Column::figures(
            "together",
            9,
            1,
            |d, t| match d.verdict {
                DrainVerdict::Serial => Cell::time(d.projected_parallel_ns, t),
                _ => Cell::none(),
            },
            |a, b| a.projected_parallel_ns.cmp(&b.projected_parallel_ns),
        ),
        times!("sum", 8, 5, |d: AioDrain| Some(d.sum_ns)),
        Column::figures(
            "overlap %",
            10,
            6,
            |d, _| match d.verdict {
                DrainVerdict::Single => Cell::none(),
                _ => Cell::plain(format::percent(d.overlap)),
            },
            |a, b| a.overlap.total_cmp(&b.overlap),
        ),
        Column::names(
            "phases",
            (10, 24),
            2,
            |d, _| Cell::Shares(phases::of_drain(d)),
            // By what the bar is looked at for: how much of it is grace periods.
            |a, b| grace_periods(a).cmp(&grace_periods(b)),
        )
        .largest_first(),
        times!("users GP", 9, 7, |d: AioDrain| d.phases_ns.users_gp),
        times!("refs", 8, 7, |d: AioDrain| d.phases_ns.users_refs),
        times!("reqs GP", 8, 7, |d: AioDrain| d.phases_ns.reqs_gp),
        times!("in flight", 10, 7, |d: AioDrain| d.phases_ns.reqs_io),
    ];

    fn id(&self, _now_ns: u64) -> RowId {
        RowId::Drain(self.id)
    }

    fn texts(&self) -> Vec<&str> {
        vec![&self.comm, cause(self.cause), theme::verdict(self.verdict).0]
    }
}

/// Draws the screen.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, state: &State) {
    let Some(snapshot) = state.shown() else { return };
    let row = |position: usize| snapshot.aio_drains.get(position);
    let title = match snapshot.aio_drains_omitted {
        0 => "AIO drains".to_owned(),
        n => format!("AIO drains, {} earlier ones no longer kept", format::count(n)),
    };
    let empty = "Nothing here: no AIO context was drained.";
    let (list, legend) = split_top(area, area.height.saturating_sub(1));
    let used = super::draw_list(canvas, list, state, Screen::Aio, &title, row, empty);
    let below = split_top(area, used).1;
    if !super::draw_preview(canvas, below, state, Screen::Aio) && !state.view().order.is_empty() {
        let bars = snapshot.aio_drains.iter().map(phases::of_drain);
        draw_legend(canvas, legend, &occurring(bars));
    }
}

/// One line that says which fill is which phase: all of them, in the widest form for which there is room.
pub fn draw_legend(canvas: &mut Canvas<'_>, area: Rect, phases: &[Phase]) {
    const ABBREVIATION: &str = "GP: grace period";
    let words: usize = phases.iter().map(|p| p.short_name().len()).sum();
    // Columns of a fill, gap after it, gap after a word.
    let forms = [(2, 1, 2), (1, 1, 2), (1, 0, 1)];
    let needed =
        |(fill, inner, outer): &(u16, u16, u16)| words + phases.len() * usize::from(fill + inner + outer);
    let room = usize::from(area.width.saturating_sub(1));
    let form = forms
        .iter()
        .find(|form| needed(form) <= room + usize::from(form.2));
    let (fill, inner, outer) = *form.unwrap_or(&forms[2]);
    let mut x = area.x + 1;
    for phase in phases {
        canvas.repeat(x, area.y, fill, canvas.theme.fill(*phase), Role::Phase(*phase));
        x += fill + inner;
        let word = phase.short_name();
        x += canvas.text(x, area.y, area.right().saturating_sub(x), word, Role::Dim) + outer;
    }
    if usize::from(area.right().saturating_sub(x)) >= ABBREVIATION.len() {
        canvas.text(x, area.y, area.right() - x, ABBREVIATION, Role::Dim);
    }
}

/// The phases that occur, in the order of legends.
pub fn occurring(bars: impl Iterator<Item = Vec<(Phase, u64)>>) -> Vec<Phase> {
    let mut seen = Vec::new();
    for (phase, _) in bars.flatten() {
        if !seen.contains(&phase) {
            seen.push(phase);
        }
    }
    Phase::ALL
        .into_iter()
        .filter(|phase| seen.contains(phase))
        .collect()
}
