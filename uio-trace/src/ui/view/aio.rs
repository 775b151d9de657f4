//! AIO drains: how many contexts, one after another or together, and what together would take.

use crate::model::snapshot::{AioDrain, DrainCause, DrainVerdict};
use crate::ui::arrange::{Align, Cell, Column, Tabular};
use crate::ui::canvas::{Canvas, split_top};
use crate::ui::format;
use crate::ui::phases::{self, Phase};
use crate::ui::state::{RowId, Screen, State};
use crate::ui::theme::{self, Role, Theme};
use ratatui::layout::Rect;
use std::cmp::Ordering;

/// The system call or kernel function behind a drain.
pub fn cause(cause: DrainCause) -> &'static str {
    match cause {
        DrainCause::ExitAio => "exit_aio",
        DrainCause::IoDestroy => "io_destroy",
    }
}

fn time(ns: u64, theme: &Theme) -> Cell {
    Cell::plain(format::duration(ns, theme.unicode))
}

fn phase(ns: Option<u64>, theme: &Theme) -> Cell {
    ns.map_or_else(Cell::none, |ns| time(ns, theme))
}

/// Grace periods of the critical context, as far as they are known.
fn grace_periods(drain: &AioDrain) -> u64 {
    let phases = &drain.phases_ns;
    phases
        .users_gp
        .unwrap_or(0)
        .saturating_add(phases.reqs_gp.unwrap_or(0))
}

const fn figures(
    title: &'static str,
    width: u16,
    priority: u8,
    cell: fn(&AioDrain, &Theme) -> Cell,
    compare: fn(&AioDrain, &AioDrain) -> Ordering,
) -> Column<AioDrain> {
    Column {
        title,
        align: Align::Right,
        width: (width, width),
        priority,
        descending: true,
        cell,
        compare,
    }
}

const fn names(
    title: &'static str,
    width: (u16, u16),
    priority: u8,
    cell: fn(&AioDrain, &Theme) -> Cell,
    compare: fn(&AioDrain, &AioDrain) -> Ordering,
) -> Column<AioDrain> {
    Column {
        title,
        align: Align::Left,
        width,
        priority,
        descending: false,
        cell,
        compare,
    }
}

impl Tabular for AioDrain {
    const DEFAULT_SORT: usize = 5;
    const COLUMNS: &'static [Column<AioDrain>] = &[
        figures(
            "drain",
            6,
            1,
            |d, _| Cell::plain(d.id.to_string()),
            |a, b| a.id.cmp(&b.id),
        ),
        names(
            "process",
            (12, 32),
            0,
            |d, _| Cell::plain(super::process(&d.comm, d.tgid, d.tid)),
            |a, b| a.comm.cmp(&b.comm).then(a.tgid.cmp(&b.tgid)),
        ),
        names(
            "cause",
            (10, 10),
            3,
            |d, _| Cell::plain(cause(d.cause)),
            |a, b| cause(a.cause).cmp(cause(b.cause)),
        ),
        figures(
            "contexts",
            9,
            0,
            |d, _| Cell::plain(format::count(d.contexts)),
            |a, b| a.contexts.cmp(&b.contexts),
        ),
        names(
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
        figures(
            "wall",
            8,
            0,
            |d, t| time(d.wall_ns, t),
            |a, b| a.wall_ns.cmp(&b.wall_ns),
        ),
        figures(
            "together",
            9,
            1,
            |d, t| match d.verdict {
                DrainVerdict::Serial => time(d.projected_parallel_ns, t),
                _ => Cell::none(),
            },
            |a, b| a.projected_parallel_ns.cmp(&b.projected_parallel_ns),
        ),
        figures(
            "sum",
            8,
            5,
            |d, t| time(d.sum_ns, t),
            |a, b| a.sum_ns.cmp(&b.sum_ns),
        ),
        figures(
            "overlap %",
            10,
            6,
            |d, _| match d.verdict {
                DrainVerdict::Single => Cell::none(),
                _ => Cell::plain(format::percent(d.overlap)),
            },
            |a, b| a.overlap.total_cmp(&b.overlap),
        ),
        Column {
            title: "phases",
            align: Align::Left,
            width: (10, 24),
            priority: 2,
            descending: true,
            cell: |d, _| Cell::Shares(phases::of_drain(d)),
            // By what the bar is looked at for: how much of it is grace periods.
            compare: |a, b| grace_periods(a).cmp(&grace_periods(b)),
        },
        figures(
            "users GP",
            9,
            7,
            |d, t| phase(d.phases_ns.users_gp, t),
            |a, b| a.phases_ns.users_gp.cmp(&b.phases_ns.users_gp),
        ),
        figures(
            "refs",
            8,
            7,
            |d, t| phase(d.phases_ns.users_refs, t),
            |a, b| a.phases_ns.users_refs.cmp(&b.phases_ns.users_refs),
        ),
        figures(
            "reqs GP",
            8,
            7,
            |d, t| phase(d.phases_ns.reqs_gp, t),
            |a, b| a.phases_ns.reqs_gp.cmp(&b.phases_ns.reqs_gp),
        ),
        figures(
            "in flight",
            10,
            7,
            |d, t| phase(d.phases_ns.reqs_io, t),
            |a, b| a.phases_ns.reqs_io.cmp(&b.phases_ns.reqs_io),
        ),
    ];

    fn id(&self) -> RowId {
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

/// One line that says which fill is which phase.
pub fn draw_legend(canvas: &mut Canvas<'_>, area: Rect, phases: &[Phase]) {
    let mut x = area.x + 1;
    for phase in phases {
        let word = phase.short_name();
        if usize::from(area.right().saturating_sub(x)) < word.len() + 3 {
            return;
        }
        canvas.repeat(x, area.y, 2, canvas.theme.fill(*phase), Role::Phase(*phase));
        x += 3;
        x += canvas.text(x, area.y, area.right().saturating_sub(x), word, Role::Dim) + 2;
    }
    let abbreviation = "GP: grace period";
    if usize::from(area.right().saturating_sub(x)) >= abbreviation.len() {
        canvas.text(x, area.y, area.right() - x, abbreviation, Role::Dim);
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
