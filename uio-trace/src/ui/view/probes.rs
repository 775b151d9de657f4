//! Probes: what works here and what not, and what was lost on the way.

use crate::model::costs;
use crate::model::snapshot::{Loss, Probe, ProbeState, Snapshot};
use crate::ui::arrange::Tabular;
use crate::ui::canvas::{Canvas, halves, split_top};
use crate::ui::column::{Cell, Column, names, times};
use crate::ui::format;
use crate::ui::state::{RowId, Screen, State};
use crate::ui::theme::{self, Role};
use crate::ui::widgets::facts::{self, Fact};
use ratatui::layout::Rect;
use std::cmp::Ordering;

/// From this width on what the tool costs stands beside the losses.
const COLUMNS_WITH_COST: u16 = 140;

/// What needs attention first.
fn rank(probe: &Probe) -> u8 {
    match (probe.state, probe.required) {
        (ProbeState::Failed, true) => 0,
        (ProbeState::Failed, false) => 1,
        (ProbeState::Waiting, _) => 2,
        (ProbeState::Attached, _) => 3,
        (ProbeState::NotNeeded, _) => 4,
    }
}

/// Why it is not attached, or what it gives.
fn note(probe: &Probe) -> String {
    match (&probe.reason, probe.state) {
        (Some(reason), ProbeState::Failed) => format!("{reason}; without it: {}", probe.gives),
        (Some(reason), _) => reason.clone(),
        (None, _) => probe.gives.clone(),
    }
}

impl Tabular for Probe {
    const DEFAULT_SORT: usize = 0;
    const COLUMNS: &'static [Column<Probe>] = &[
        Column::names(
            "state",
            (10, 10),
            0,
            |p, _| {
                let (word, role) = theme::probe_state(p.state, p.required);
                Cell::Text(word.into(), role)
            },
            |a, b| rank(a).cmp(&rank(b)),
        ),
        names!("subject", (10, 10), 2, |p: Probe| &p.subject),
        names!("hook", (20, 40), 0, |p: Probe| &p.hook),
        Column::names(
            "method",
            (10, 10),
            1,
            |p, _| p.method.as_ref().map_or_else(Cell::none, Cell::plain),
            |a, b| a.method.cmp(&b.method),
        ),
        times!("each", 9, 5, |p: Probe| p.cost.and_then(|cost| cost.each_ns())),
        Column::figures(
            "hits",
            9,
            6,
            |p, _| p.cost.map_or_else(Cell::none, |cost| Cell::count(cost.hits)),
            |a, b| a.cost.map(|cost| cost.hits).cmp(&b.cost.map(|cost| cost.hits)),
        ),
        Column::figures(
            "missed",
            7,
            8,
            |p, _| p.cost.map_or_else(Cell::none, |cost| Cell::count(cost.missed)),
            |a, b| {
                a.cost
                    .map(|cost| cost.missed)
                    .cmp(&b.cost.map(|cost| cost.missed))
            },
        ),
        Column::names(
            "required",
            (9, 9),
            4,
            |p, _| Cell::plain(if p.required { "yes" } else { "no" }),
            |a, b| a.required.cmp(&b.required),
        ),
        Column::names(
            "note",
            (16, 120),
            3,
            |p, _| Cell::plain(note(p)),
            |a, b| note(a).cmp(&note(b)),
        ),
    ];

    fn id(&self, _now_ns: u64) -> RowId {
        RowId::Probe(self.subject.clone(), self.hook.clone())
    }

    fn texts(&self) -> Vec<&str> {
        let mut texts = vec![
            self.subject.as_str(),
            self.hook.as_str(),
            theme::probe_state(self.state, self.required).0,
        ];
        texts.extend(self.method.as_deref());
        texts.extend(self.reason.as_deref());
        texts
    }
}

/// Draws the screen.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, state: &State) {
    let Some(snapshot) = state.shown() else { return };
    let mut losses = loss_lines(&snapshot.loss);
    if area.width < COLUMNS_WITH_COST {
        let cost = format!("{}; {}", cpu(state), memory(state));
        losses.push(Fact::new("own cost", cost));
        losses.push(Fact::new("programs", programs(state, snapshot)));
    }
    let lines = facts::lines(&losses, area.width, canvas.theme.unicode);
    let wanted = u16::try_from(lines.len())
        .unwrap_or(u16::MAX)
        .saturating_add(1)
        .min(area.height / 2);
    let (upper, lower) = split_top(area, area.height - wanted);
    let row = |position: usize| snapshot.probes.get(position);
    super::draw_list(
        canvas,
        upper,
        state,
        Screen::Probes,
        "Probes",
        row,
        "Nothing here: no probe was planned.",
    );
    let (lower, cost) = if lower.width >= COLUMNS_WITH_COST {
        halves(lower, 1)
    } else {
        (lower, Rect { width: 0, ..lower })
    };
    draw_cost(canvas, cost, state, snapshot);
    let body = canvas.heading(lower, "Losses", "");
    facts::draw(canvas, body, &losses, 0);
}

fn unknown() -> String {
    "not known".into()
}

/// CPU time of the tool; that of its programs in the kernel is not part of it.
fn cpu(state: &State) -> String {
    state.own_cost.map_or_else(unknown, |share| {
        format!("{} % of one CPU, without the programs", format::percent(share))
    })
}

/// What its programs in the kernel take.
fn programs(state: &State, snapshot: &Snapshot) -> String {
    match costs::share(&snapshot.probes) {
        Some(share) => format!("{} % of one CPU, counted", format::percent(share)),
        None if state.timeline.is_some() => "not counted at this time".into(),
        None => "not counted; c counts, for some tens of ns per run of any BPF program".into(),
    }
}

/// Memory of the tool that is in RAM.
fn memory(state: &State) -> String {
    state
        .own_memory
        .map_or_else(unknown, |bytes| format!("{:.1} MiB", bytes as f64 / 1_048_576.0))
}

/// What the tool itself takes.
fn draw_cost(canvas: &mut Canvas<'_>, area: Rect, state: &State, snapshot: &Snapshot) {
    if area.width == 0 {
        return;
    }
    let rate = state
        .rate
        .map_or_else(unknown, |rate| format!("{} per second", format::rate(rate)));
    let body = canvas.heading(area, "Cost of this tool", "");
    let facts = [
        Fact::new("CPU", cpu(state)),
        Fact::new("programs", programs(state, snapshot)),
        Fact::new("memory", memory(state)),
        Fact::new("events", rate),
    ];
    facts::draw(canvas, body, &facts, 0);
}

/// The counts and how they reconcile.
fn loss_lines(loss: &Loss) -> Vec<Fact> {
    let n = format::count;
    let accounted = loss
        .aggregated
        .saturating_add(loss.submitted)
        .saturating_add(loss.ignored)
        .saturating_add(loss.total());
    let known = loss.seen_known();
    let mut seen = format!(
        "{} = {} aggregated + {} submitted",
        n(loss.seen),
        n(loss.aggregated),
        n(loss.submitted)
    );
    if loss.ignored > 0 {
        seen += &format!(" + {} ignored", n(loss.ignored));
    }
    seen += &format!(" + {} lost", n(loss.total()));
    if !known {
        seen = format!("not known, {} lost", n(loss.total()));
    }
    match loss.seen.cmp(&accounted) {
        _ if !known => {}
        Ordering::Greater => seen += &format!(" + {} in flight", n(loss.seen - accounted)),
        Ordering::Less => seen += &format!(" - {} counted later", n(accounted - loss.seen)),
        Ordering::Equal => {}
    }
    let queued = loss.submitted.saturating_sub(loss.decoded);
    let mut lines = vec![
        Fact::new("seen", seen),
        Fact::new(
            "submitted",
            format!(
                "{} = {} decoded + {} waiting in the rings",
                n(loss.submitted),
                n(loss.decoded),
                n(queued)
            ),
        ),
    ];
    if loss.dropped.is_empty() {
        lines.push(Fact::with("lost", "0", Role::Good));
    }
    for (i, (reason, count)) in loss.dropped.iter().enumerate() {
        let label = if i == 0 { "lost" } else { "" };
        lines.push(Fact::with(
            label,
            format!("{} {reason}", n(*count)),
            Role::Critical,
        ));
    }
    if loss.uncertain > 0 {
        let text = format!("{} open intervals may have lost their end", n(loss.uncertain));
        lines.push(Fact::with("uncertain", text, Role::Warning));
    }
    lines
}
