//! First screen: what was found, what is in progress, and a line for each subject.

use super::findings;
use crate::model::findings::not_traced;
use crate::model::snapshot::{Finding, InProgress, ProbeState, Snapshot, UioDevice};
use crate::ui::arrange::Tabular;
use crate::ui::canvas::{Canvas, split_top};
use crate::ui::column::{Cell, Column, names};
use crate::ui::format;
use crate::ui::state::{RowId, Screen, State};
use crate::ui::theme::{self, Role};
use crate::ui::widgets::sparkline;
use crate::ui::widgets::table::{Clicks, Table};
use ratatui::layout::Rect;

/// From this many rows of the body on, the subjects have their lines.
const ROWS_WITH_SUBJECTS: u16 = 20;
/// From this width on the UIO line ends with a plot, so wide.
const COLUMNS_WITH_TREND: u16 = 118;
const TREND: u16 = 30;
/// Their rows, with the heading.
const SUBJECT_ROWS: u16 = 5;

/// Age from which something in progress is a warning, and from which it is critical.
const OLD_NS: u64 = 1_000_000_000;
const VERY_OLD_NS: u64 = 10_000_000_000;

impl Tabular for InProgress {
    const DEFAULT_SORT: usize = 0;
    const COLUMNS: &'static [Column<InProgress>] = &[
        Column::figures(
            "age",
            9,
            0,
            |p, theme| match p.age_ns {
                None => Cell::Text("pre-trace".into(), Role::Warning),
                Some(ns) => {
                    let role = match ns {
                        VERY_OLD_NS.. => Role::Critical,
                        OLD_NS.. => Role::Warning,
                        _ => Role::Plain,
                    };
                    let mark = if p.uncertain { "?" } else { "" };
                    Cell::Text(format!("{mark}{}", format::duration(ns, theme.unicode)), role)
                }
            }, // What began before the trace is the oldest.
            |a, b| a.age_ns.unwrap_or(u64::MAX).cmp(&b.age_ns.unwrap_or(u64::MAX)),
        ),
        names!("waits for", (12, 20), 0, |p: InProgress| &p.phase),
        Column::names(
            "process",
            (14, 32),
            1,
            |p, _| match p.tgid {
                0 => Cell::none(),
                _ => Cell::plain(super::process(&p.comm, p.tgid, p.tid)),
            },
            |a, b| a.comm.cmp(&b.comm).then(a.tgid.cmp(&b.tgid)),
        ),
        names!("owner", (12, 32), 1, |p: InProgress| &p.owner),
        names!("detail", (10, 60), 2, |p: InProgress| &p.detail),
        names!("subject", (10, 16), 3, |p: InProgress| &p.subject),
    ];

    fn id(&self, now_ns: u64) -> RowId {
        let began = self.age_ns.map(|age| now_ns.saturating_sub(age));
        RowId::InProgress(
            self.subject.clone(),
            self.owner.clone(),
            self.tgid,
            self.tid,
            began,
        )
    }

    fn texts(&self) -> Vec<&str> {
        vec![&self.subject, &self.owner, &self.comm, &self.phase, &self.detail]
    }
}

/// Draws the screen: what was found, what is under way, and what there was to look at.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, state: &State) {
    let Some(snapshot) = state.shown() else { return };
    let mut rest = area;
    if area.height >= ROWS_WITH_SUBJECTS {
        let (upper, seen) = split_top(area, area.height - SUBJECT_ROWS);
        draw_subjects(canvas, seen, snapshot);
        rest = upper;
    }
    let view = state.view();
    let found: Vec<&Finding> = state
        .findings
        .iter()
        .filter_map(|position| snapshot.findings.get(*position))
        .collect();

    // Findings take what they need; what is in progress keeps a third at least, if it has that many rows.
    let in_progress_rows = u16::try_from(view.order.len().max(1))
        .unwrap_or(u16::MAX)
        .saturating_add(2);
    let reserved = in_progress_rows.min((rest.height / 3).max(4));
    let room = rest.height.saturating_sub(reserved);
    let lines = findings::lines(&found, rest.width, canvas.theme.unicode);
    let wanted = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(1);
    let (upper, lower) = split_top(rest, wanted.clamp(2, room.max(2)));
    findings::draw(canvas, upper, state, &lines, state.selected());
    draw_in_progress(canvas, lower, state, snapshot, found.len());
}

fn draw_in_progress(canvas: &mut Canvas<'_>, area: Rect, state: &State, snapshot: &Snapshot, before: usize) {
    let view = state.view();
    let rows: Vec<&InProgress> = view
        .order
        .iter()
        .filter_map(|position| snapshot.in_progress.get(*position))
        .collect();
    let note = super::list_note::<InProgress>(state, Screen::Overview, before, area.height.saturating_sub(1));
    let body = canvas.heading(area, "In progress", &note);
    if rows.is_empty() {
        let text = if view.total > 0 {
            "No row contains the filter's text."
        } else {
            "Nothing has begun and not ended."
        };
        canvas.text(body.x + 2, body.y, body.width.saturating_sub(2), text, Role::Dim);
        return;
    }
    let table = Table {
        columns: InProgress::COLUMNS,
        sort: Some((view.sort_column, view.descending)),
        rows: &rows,
        selected: state.selected().and_then(|s| s.checked_sub(before)),
        top: view.top,
        clicks: Clicks::List(before),
        filter: &view.filter,
    };
    table.draw(canvas, body);
}

/// A line for each subject: how much there is, and the worst of it.
fn draw_subjects(canvas: &mut Canvas<'_>, area: Rect, snapshot: &Snapshot) {
    let unicode = canvas.theme.unicode;
    let time = |ns| format::duration_inline(ns, unicode);
    let stretch = format!("in {}", format::stretch(snapshot.interval.duration_ns, unicode));
    let body = canvas.heading(area, "Seen", &stretch);
    let lines = [
        ("UIO", uio_line(snapshot)),
        ("Refs", refs_line(snapshot, &time)),
        ("AIO", aio_line(snapshot, &time)),
        ("Probes", probes_line(snapshot)),
    ];
    for (y, (subject, (count, worst))) in (body.y..body.bottom()).zip(&lines) {
        canvas.text(body.x + 2, y, 7, subject, Role::Dim);
        canvas.text(body.x + 10, y, 17, count, Role::Plain);
        canvas.text(body.x + 28, y, body.width.saturating_sub(28), worst, Role::Plain);
    }
    draw_trend(canvas, body, snapshot);
}

/// At the right end of the UIO line: how the waiters of the device in it came about.
fn draw_trend(canvas: &mut Canvas<'_>, area: Rect, snapshot: &Snapshot) {
    let Some(device) = busiest(snapshot).filter(|_| area.width >= COLUMNS_WITH_TREND) else {
        return;
    };
    let history = snapshot.history.device(device.minor, device.generation);
    let samples: Vec<f64> = history.map(|s| s.waiting.into()).collect();
    // As in the device's own plot, a full column is one thread at least.
    let most = samples.iter().copied().fold(1.0, f64::max);
    let Some(now) = samples.last() else {
        return;
    };
    let bars = Rect {
        x: area.right().saturating_sub(TREND + 1),
        width: TREND,
        height: 1,
        ..area
    };
    sparkline::draw(canvas, bars, &samples, most, Role::WaitBar);
    let left = area.x + 74;
    let text = format!("now {now:.2}");
    canvas.text_right(left, area.y, bars.x.saturating_sub(left + 1), &text, Role::Dim);
}

/// The device most waited for.
fn busiest(snapshot: &Snapshot) -> Option<&UioDevice> {
    snapshot
        .uio_devices
        .iter()
        .max_by(|a, b| a.mean_waiters.total_cmp(&b.mean_waiters))
}

fn plural(n: usize, one: &str, many: &str) -> String {
    format!("{} {}", format::count(n as u64), if n == 1 { one } else { many })
}

fn uio_line(snapshot: &Snapshot) -> (String, String) {
    if let Some(why) = not_traced(snapshot, "uio")
        && snapshot.uio_devices.is_empty()
    {
        return ("not traced".into(), why);
    }
    match snapshot.uio_present {
        Some(true) => {}
        Some(false) => return ("not loaded".into(), "attaches when the uio driver appears".into()),
        None => {
            return (
                "not known".into(),
                "nothing has told whether uio is loaded".into(),
            );
        }
    }
    let worst = busiest(snapshot).map_or_else(String::new, |d| {
        let held = d.utilization.map_or_else(|| "-".into(), format::percent);
        format!(
            "{} held {held} % of the time, {:.2} waiting",
            d.sysfs_name, d.mean_waiters
        )
    });
    (plural(snapshot.uio_devices.len(), "device", "devices"), worst)
}

fn refs_line(snapshot: &Snapshot, time: &impl Fn(u64) -> String) -> (String, String) {
    if let Some(why) = not_traced(snapshot, "percpu_ref")
        && snapshot.ref_owners.is_empty()
    {
        return ("not traced".into(), why);
    }
    let owners = || snapshot.ref_owners.iter().filter(|o| !o.own);
    let kills: u64 = owners().map(|o| o.kills).sum();
    let dying: u64 = owners().map(|o| o.dying).sum();
    let oldest = owners().filter_map(|o| o.oldest_dying_ns).max();
    let worst = match (dying, oldest) {
        (0, _) => "none dying".to_owned(),
        (n, Some(ns)) => format!("{} dying, oldest {}", format::count(n), time(ns)),
        (n, None) => format!("{} dying", format::count(n)),
    };
    (format!("{} killed", format::count(kills)), worst)
}

fn aio_line(snapshot: &Snapshot, time: &impl Fn(u64) -> String) -> (String, String) {
    if let Some(why) = not_traced(snapshot, "aio")
        && snapshot.aio_drains.is_empty()
    {
        return ("not traced".into(), why);
    }
    let drains = snapshot.aio_drains.len() + usize::try_from(snapshot.aio_drains_omitted).unwrap_or(0);
    let slowest = snapshot.aio_drains.iter().max_by_key(|d| d.wall_ns);
    let worst = slowest.map_or_else(String::new, |d| {
        let process = super::process(&d.comm, d.tgid, d.tgid);
        format!(
            "slowest {}, {}: {process}",
            time(d.wall_ns),
            theme::verdict(d.verdict).0
        )
    });
    (plural(drains, "drain", "drains"), worst)
}

fn probes_line(snapshot: &Snapshot) -> (String, String) {
    let in_state = |state| snapshot.probes.iter().filter(|p| p.state == state).count();
    let mut worst = Vec::new();
    match in_state(ProbeState::Failed) {
        0 => {}
        n => worst.push(format!("{n} failed")),
    }
    match in_state(ProbeState::Waiting) {
        0 => {}
        n => worst.push(format!("{n} waiting for their module")),
    }
    (
        format!("{} attached", in_state(ProbeState::Attached)),
        worst.join(", "),
    )
}
