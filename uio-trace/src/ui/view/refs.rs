//! percpu_refs by owner: kills, switches, grace periods, and those that never finish.

use super::super::widgets::facts::{self, Fact};
use crate::model::snapshot::{Histogram, RefOwner};
use crate::ui::arrange::{Align, Cell, Column, Tabular};
use crate::ui::canvas::{Canvas, halves, split_top};
use crate::ui::format;
use crate::ui::state::{Detail, RowId, Screen, State};
use crate::ui::theme::{Role, Theme};
use crate::ui::widgets::histogram;
use ratatui::layout::Rect;
use std::cmp::Ordering;

fn figure(histogram: &Histogram, ns: u64, theme: &Theme) -> Cell {
    match histogram.count {
        0 => Cell::none(),
        _ => Cell::plain(format::duration(ns, theme.unicode)),
    }
}

const fn figures(
    title: &'static str,
    width: u16,
    priority: u8,
    cell: fn(&RefOwner, &Theme) -> Cell,
    compare: fn(&RefOwner, &RefOwner) -> Ordering,
) -> Column<RefOwner> {
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
    cell: fn(&RefOwner, &Theme) -> Cell,
    compare: fn(&RefOwner, &RefOwner) -> Ordering,
) -> Column<RefOwner> {
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

impl Tabular for RefOwner {
    const DEFAULT_SORT: usize = 1;
    const COLUMNS: &'static [Column<RefOwner>] = &[
        names(
            "owner",
            (16, 32),
            0,
            |o, _| Cell::plain(&o.owner),
            |a, b| a.owner.cmp(&b.owner),
        ),
        figures(
            "kills",
            6,
            0,
            |o, _| Cell::plain(format::count(o.kills)),
            |a, b| a.kills.cmp(&b.kills),
        ),
        figures(
            "switches",
            9,
            4,
            |o, _| Cell::plain(format::count(o.switches)),
            |a, b| a.switches.cmp(&b.switches),
        ),
        figures(
            "released",
            9,
            5,
            |o, _| {
                o.released
                    .map_or_else(Cell::none, |n| Cell::plain(format::count(n)))
            },
            |a, b| a.released.cmp(&b.released),
        ),
        figures(
            "dying",
            6,
            0,
            |o, _| match o.dying {
                0 => Cell::plain("0"),
                n => Cell::Text(format::count(n), Role::Warning),
            },
            |a, b| a.dying.cmp(&b.dying),
        ),
        figures(
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
        figures(
            "GP p50",
            8,
            3,
            |o, t| figure(&o.grace_period_ns, o.grace_period_ns.p50, t),
            |a, b| a.grace_period_ns.p50.cmp(&b.grace_period_ns.p50),
        ),
        figures(
            "GP p99",
            8,
            1,
            |o, t| figure(&o.grace_period_ns, o.grace_period_ns.p99, t),
            |a, b| a.grace_period_ns.p99.cmp(&b.grace_period_ns.p99),
        ),
        figures(
            "GP max",
            8,
            6,
            |o, t| figure(&o.grace_period_ns, o.grace_period_ns.max, t),
            |a, b| a.grace_period_ns.max.cmp(&b.grace_period_ns.max),
        ),
        figures(
            "drain p50",
            10,
            6,
            |o, t| figure(&o.drain_ns, o.drain_ns.p50, t),
            |a, b| a.drain_ns.p50.cmp(&b.drain_ns.p50),
        ),
        figures(
            "drain p99",
            10,
            2,
            |o, t| figure(&o.drain_ns, o.drain_ns.p99, t),
            |a, b| a.drain_ns.p99.cmp(&b.drain_ns.p99),
        ),
        names(
            "release",
            (12, 40),
            7,
            |o, _| Cell::plain(&o.release),
            |a, b| a.release.cmp(&b.release),
        ),
        names(
            "last killer",
            (12, 28),
            8,
            |o, _| o.last_killer.as_ref().map_or_else(Cell::none, Cell::plain),
            |a, b| a.last_killer.cmp(&b.last_killer),
        ),
    ];

    fn id(&self) -> RowId {
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
    let empty = "Nothing here: no percpu_ref was killed or switched.";
    let used = super::draw_list(canvas, area, state, Screen::Refs, title, row, empty);
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

/// Draws an owner: what happened, grace period beside drain, and the settings that explain them.
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
        .map(|(name, value)| Fact::new(name.clone(), value.clone()))
        .collect();
    let wanted = u16::try_from(settings.len())
        .unwrap_or(u16::MAX)
        .saturating_add(1);
    let rcu_rows = if settings.is_empty() || rest.height < wanted.saturating_add(8) {
        0
    } else {
        wanted
    };
    let (histograms, rcu) = split_top(rest, rest.height - rcu_rows);
    let (left, right) = halves(histograms, 1);
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
    if rcu_rows > 0 {
        let inner = canvas.heading(rcu, "RCU on this kernel", "");
        facts::draw(canvas, inner, &settings, 0);
    }
}
