//! percpu_refs by owner: kills, switches, grace periods, and those that never finish.

use super::super::widgets::facts::{self, Fact};
use crate::model::findings::not_traced;
use crate::model::history::RefSample;
use crate::model::snapshot::{Histogram, InProgress, KillStack, RefOwner, Snapshot};
use crate::ui::arrange::Tabular;
use crate::ui::canvas::{Canvas, halves, split_top};
use crate::ui::column::{Cell, Column, counts, names, times, unsorted};
use crate::ui::format;
use crate::ui::state::{Detail, RowId, Screen, State};
use crate::ui::theme::Role;
use crate::ui::widgets::histogram;
use crate::ui::widgets::sparkline::{self, Plot};
use crate::ui::widgets::table::{Clicks, Table};
use ratatui::layout::Rect;

/// A figure of a histogram, unless that is empty.
fn known(histogram: &Histogram, ns: u64) -> Option<u64> {
    (histogram.count > 0).then_some(ns)
}

impl Tabular for RefOwner {
    const DEFAULT_SORT: usize = 1;
    const COLUMNS: &'static [Column<RefOwner>] = &[
        names!("owner", (16, 32), 0, |o: RefOwner| &o.owner),
        counts!("kills", 6, 0, |o: RefOwner| o.kills),
        counts!("switches", 9, 4, |o: RefOwner| o.switches),
        Column::figures(
            "released",
            9,
            5,
            |o, _| o.released.map_or_else(Cell::none, Cell::count),
            |a, b| a.released.cmp(&b.released),
        ),
        Column::figures(
            "dying",
            6,
            0,
            |o, _| Cell::bad_count(o.dying),
            |a, b| a.dying.cmp(&b.dying),
        ),
        Column::figures(
            "oldest",
            8,
            1,
            |o, t| {
                o.oldest_dying_ns.map_or_else(Cell::none, |ns| {
                    Cell::Text(format::duration(ns, t.unicode), Role::Warning)
                })
            },
            |a, b| a.oldest_dying_ns.cmp(&b.oldest_dying_ns),
        ),
        times!("GP p50", 8, 3, |o: RefOwner| known(
            &o.grace_period_ns,
            o.grace_period_ns.p50
        )),
        times!("GP p99", 8, 1, |o: RefOwner| known(
            &o.grace_period_ns,
            o.grace_period_ns.p99
        )),
        times!("GP max", 8, 6, |o: RefOwner| known(
            &o.grace_period_ns,
            o.grace_period_ns.max
        )),
        times!("drain p50", 10, 6, |o: RefOwner| known(
            &o.drain_ns,
            o.drain_ns.p50
        )),
        times!("drain p99", 10, 2, |o: RefOwner| known(
            &o.drain_ns,
            o.drain_ns.p99
        )),
        names!("release", (12, 40), 7, |o: RefOwner| &o.release),
        Column::names(
            "last killer",
            (12, 28),
            8,
            |o, _| o.last_killer.as_ref().map_or_else(Cell::none, Cell::plain),
            |a, b| a.last_killer.cmp(&b.last_killer),
        ),
    ];

    fn id(&self, _now_ns: u64) -> RowId {
        RowId::Owner(self.release.clone())
    }

    fn texts(&self) -> Vec<&str> {
        let mut texts = vec![self.owner.as_str(), self.release.as_str()];
        texts.extend(self.last_killer.as_deref());
        texts
    }
}

/// Draws the screen.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, state: &State) {
    let Some(snapshot) = state.shown() else { return };
    let row = |position: usize| snapshot.ref_owners.get(position);
    let title = if state.show_own {
        "percpu_refs, with the tool's own"
    } else {
        "percpu_refs"
    };
    let empty = match not_traced(snapshot, "percpu_ref") {
        Some(why) => format!("percpu_refs are not traced: {why}"),
        None => "Nothing here: no percpu_ref was killed or switched.".to_owned(),
    };
    let used = super::draw_list(canvas, area, state, Screen::Refs, title, row, &empty);
    super::draw_preview(canvas, split_top(area, used).1, state, Screen::Refs);
}

fn facts_of(owner: &RefOwner, unicode: bool) -> Vec<Fact> {
    let n = format::count;
    let mut kills = format!(
        "{}, of them {} without a grace period",
        n(owner.kills),
        n(owner.kills_already_atomic)
    );
    if owner.kills_already_dead > 0 {
        kills += &format!(", {} of a dead ref (a kernel bug)", n(owner.kills_already_dead));
    }
    let released = owner.released.map_or_else(|| "not traced".to_owned(), n);
    let mut facts = vec![
        Fact::new("release", owner.release.clone()),
        Fact::new("kills", kills),
        Fact::new("switched, released", format!("{}, {released}", n(owner.switches))),
    ];
    if owner.released_early > 0 {
        let text = format!("{} (a kernel bug)", n(owner.released_early));
        facts.push(Fact::with("released early", text, Role::Critical));
    }
    if owner.ends_unseen + owner.revived > 0 {
        let text = format!("{}, {}", n(owner.ends_unseen), n(owner.revived));
        facts.push(Fact::new("end unseen, revived", text));
    }
    let left = owner.dying_references.map_or_else(String::new, |left| {
        format!(", {} left", crate::format::plural(left, "reference"))
    });
    let dying = match owner.oldest_dying_ns {
        Some(ns) => format!(
            "{}, oldest {}{left}",
            n(owner.dying),
            format::duration_inline(ns, unicode)
        ),
        None => n(owner.dying),
    };
    let role = if owner.dying > 0 {
        Role::Warning
    } else {
        Role::Plain
    };
    facts.push(Fact::with("dying", dying, role));
    facts.push(Fact::new(
        "last killer",
        owner.last_killer.clone().unwrap_or_else(|| "-".into()),
    ));
    facts
}

/// Rows of the plots over time with their heading.
const HISTORY_ROWS: u16 = 4;
/// Rows left for the histograms before other panels get any.
const HISTOGRAM_ROWS: u16 = 7;

/// Draws an owner: what happened, grace period beside drain, switches over time, refs that are dying now, and the
/// settings that explain grace periods.
pub fn draw_detail(canvas: &mut Canvas<'_>, area: Rect, state: &State, detail: &Detail, release: &str) {
    let Some(owner) = detail.snapshot.ref_owners.iter().find(|o| o.release == release) else {
        return;
    };
    let body = canvas.heading(area, &owner.owner, super::detail_note(detail));
    let used = facts::draw(canvas, body, &facts_of(owner, canvas.theme.unicode), 0);
    let (_, rest) = split_top(body, used);
    let settings: Vec<Fact> = state
        .meta
        .rcu
        .iter()
        .map(|(name, value)| crate::format::kernel_setting(name, value))
        .map(|(label, text)| Fact::new(label, text))
        .collect();
    let dying: Vec<&InProgress> = detail
        .snapshot
        .in_progress
        .iter()
        .filter(|p| p.subject == "percpu_ref" && p.detail == release)
        .collect();
    let history = detail.snapshot.history.owner(release).len() > 0;

    let panel = |rows: usize| u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(1);
    let mut spare = rest.height.saturating_sub(HISTOGRAM_ROWS);
    let mut share = |wanted: bool, rows: u16, least: u16| {
        let granted = if wanted && spare >= least {
            rows.min(spare)
        } else {
            0
        };
        spare -= granted;
        granted
    };
    let dying_rows = share(!dying.is_empty(), panel(dying.len() + 1).min(8), 3);
    let history_rows = share(history, HISTORY_ROWS, HISTORY_ROWS);
    let rcu_rows = share(!settings.is_empty(), panel(settings.len()), panel(settings.len()));
    let killers = killer_facts(owner);
    let killer_lines = facts::lines(&killers, rest.width, canvas.theme.unicode).len();
    let killer_rows = share(!killers.is_empty(), panel(killer_lines), 3);
    let below = dying_rows + history_rows + rcu_rows + killer_rows;
    let (histograms, rest) = split_top(rest, rest.height - below);
    let (history_area, rest) = split_top(rest, history_rows);
    let (dying_area, rest) = split_top(rest, dying_rows);
    let (killer_area, rcu) = split_top(rest, killer_rows);

    draw_histograms(canvas, histograms, owner);
    if history_rows > 0 {
        draw_history(canvas, history_area, detail, release);
    }
    if dying_rows > 0 {
        let note = format!("{}, oldest first", dying.len());
        let inner = canvas.heading(dying_area, "Dying", &note);
        Table {
            columns: DYING,
            sort: None,
            rows: &dying,
            selected: None,
            top: 0,
            clicks: Clicks::None,
            filter: "",
        }
        .draw(canvas, inner);
    }
    if killer_rows > 0 {
        let inner = canvas.heading(killer_area, "Killed through", "most kills first");
        facts::draw(canvas, inner, &killers, 0);
    }
    if rcu_rows > 0 {
        let inner = canvas.heading(rcu, "Settings of this kernel", "");
        facts::draw(canvas, inner, &settings, 0);
    }
}

/// Rows of all stacks of an owner's killers, with their heading.
pub(super) fn killer_rows(snapshot: &Snapshot, release: &str, width: u16, unicode: bool) -> u16 {
    let owner = snapshot.ref_owners.iter().find(|o| o.release == release);
    let killers = owner.map(killer_facts).unwrap_or_default();
    let lines = facts::lines(&killers, width, unicode).len();
    u16::try_from(lines + 1).unwrap_or(u16::MAX)
}

/// Ways the kills came: how many, by whom last, and the functions from the innermost outwards.
fn killer_facts(owner: &RefOwner) -> Vec<Fact> {
    let row = |stack: &KillStack| {
        let text = format!("{}: {}", stack.last_killer, stack.frames.join(" < "));
        Fact::new(format::count(stack.count), text)
    };
    owner.kill_stacks.iter().map(row).collect()
}

const DYING: &[Column<InProgress>] = &[
    Column::figures(
        "age",
        9,
        0,
        |p: &InProgress, t| Cell::time_if(p.age_ns, t),
        unsorted,
    ),
    names!("waits for", (12, 20), 0, |p: InProgress| &p.phase),
    Column::names(
        "killed by",
        (14, 32),
        0,
        |p, _| Cell::plain(super::process(&p.comm, p.tgid, p.tid)),
        unsorted,
    ),
];

fn draw_histograms(canvas: &mut Canvas<'_>, area: Rect, owner: &RefOwner) {
    let (left, right) = halves(area, 1);
    let count = |h: &Histogram| format::count(h.count);
    let inner = canvas.heading(left, "Kill to switched", &count(&owner.grace_period_ns));
    histogram::draw(canvas, inner, Some(&owner.grace_period_ns), "none", Role::Bar);
    let inner = canvas.heading(right, "Kill to release", &count(&owner.drain_ns));
    let absent = if owner.released.is_some() {
        "none"
    } else {
        "release not traced"
    };
    histogram::draw(canvas, inner, Some(&owner.drain_ns), absent, Role::WaitBar);
}

/// Kills and switches per second.
fn draw_history(canvas: &mut Canvas<'_>, area: Rect, detail: &Detail, release: &str) {
    let history = &detail.snapshot.history;
    let samples = history.owner(release).len();
    let newest = history
        .spans
        .iter()
        .skip(history.spans.len().saturating_sub(samples));
    let seconds: Vec<f64> = newest.map(|span| span.duration_ns as f64 / 1e9).collect();
    let per_second = |pick: fn(RefSample) -> u32| -> Vec<f64> {
        let rates = history.owner(release).zip(&seconds);
        rates.map(|(sample, s)| f64::from(pick(sample)) / s).collect()
    };
    let (left, right) = halves(area, 1);
    let plots = [
        (left, "Killed per second", per_second(|s| s.kills), Role::WaitBar),
        (
            right,
            "Switched per second",
            per_second(|s| s.switches),
            Role::Bar,
        ),
    ];
    for (area, title, samples, role) in plots {
        let most = samples.iter().copied().fold(0.0, f64::max);
        let plot = Plot {
            title,
            now: format!("now {}", format::rate(samples.last().copied().unwrap_or(0.0))),
            samples: &samples,
            ceiling: most,
            ceiling_text: format::rate(most),
            role,
        };
        sparkline::panel(canvas, area, &plot, |n| history.reach_ns(n));
    }
}
