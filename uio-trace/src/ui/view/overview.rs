//! First screen: what was found, what is in progress, and a line for each subject.

use crate::model::snapshot::{Finding, InProgress, ProbeState, Snapshot};
use crate::ui::arrange::{Align, Cell, Column, Tabular};
use crate::ui::canvas::{Canvas, split_top};
use crate::ui::format;
use crate::ui::state::{RowId, Screen, State};
use crate::ui::text;
use crate::ui::theme::{self, Role};
use crate::ui::widgets::table::Table;
use ratatui::layout::Rect;

/// From this many rows of the body on, the subjects have their lines.
const ROWS_WITH_SUBJECTS: u16 = 20;
/// Columns before a finding's text.
const INDENT: u16 = 7;

/// Age from which something in progress is a warning, and from which it is critical.
const OLD_NS: u64 = 1_000_000_000;
const VERY_OLD_NS: u64 = 10_000_000_000;

impl Tabular for InProgress {
    const DEFAULT_SORT: usize = 0;
    const COLUMNS: &'static [Column<InProgress>] = &[
        Column {
            title: "age",
            align: Align::Right,
            width: (9, 9),
            priority: 0,
            descending: true,
            cell: |p, theme| match p.age_ns {
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
            },
            // What began before the trace is the oldest.
            compare: |a, b| a.age_ns.unwrap_or(u64::MAX).cmp(&b.age_ns.unwrap_or(u64::MAX)),
        },
        Column {
            title: "waits for",
            align: Align::Left,
            width: (12, 20),
            priority: 0,
            descending: false,
            cell: |p, _| Cell::plain(&p.phase),
            compare: |a, b| a.phase.cmp(&b.phase),
        },
        Column {
            title: "process",
            align: Align::Left,
            width: (14, 32),
            priority: 1,
            descending: false,
            cell: |p, _| match p.tgid {
                0 => Cell::none(),
                _ => Cell::plain(super::process(&p.comm, p.tgid, p.tid)),
            },
            compare: |a, b| a.comm.cmp(&b.comm).then(a.tgid.cmp(&b.tgid)),
        },
        Column {
            title: "owner",
            align: Align::Left,
            width: (12, 32),
            priority: 1,
            descending: false,
            cell: |p, _| Cell::plain(&p.owner),
            compare: |a, b| a.owner.cmp(&b.owner),
        },
        Column {
            title: "detail",
            align: Align::Left,
            width: (10, 60),
            priority: 2,
            descending: false,
            cell: |p, _| Cell::plain(&p.detail),
            compare: |a, b| a.detail.cmp(&b.detail),
        },
        Column {
            title: "subject",
            align: Align::Left,
            width: (10, 16),
            priority: 3,
            descending: false,
            cell: |p, _| Cell::plain(&p.subject),
            compare: |a, b| a.subject.cmp(&b.subject),
        },
    ];

    fn id(&self) -> RowId {
        RowId::InProgress(self.subject.clone(), self.owner.clone(), self.tgid, self.tid)
    }

    fn texts(&self) -> Vec<&str> {
        vec![&self.subject, &self.owner, &self.comm, &self.phase, &self.detail]
    }
}

/// Draws the screen.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, state: &State) {
    let Some(snapshot) = state.shown() else { return };
    let mut rest = area;
    if area.height >= ROWS_WITH_SUBJECTS {
        rest = draw_subjects(canvas, area, snapshot);
    }
    let view = state.view();
    let findings: Vec<&Finding> = state
        .findings
        .iter()
        .filter_map(|position| snapshot.findings.get(*position))
        .collect();
    let selected = view.selection.as_ref().map(|s| s.position);

    // Findings take what they need; what is in progress keeps a third at least, if it has that many rows.
    let in_progress_rows = u16::try_from(view.order.len().max(1))
        .unwrap_or(u16::MAX)
        .saturating_add(2);
    let reserved = in_progress_rows.min((rest.height / 3).max(4));
    let room = rest.height.saturating_sub(reserved);
    let lines = finding_lines(canvas, &findings, rest.width, room.saturating_sub(1));
    let wanted = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(1);
    let (upper, lower) = split_top(rest, wanted.clamp(2, room.max(2)));

    draw_findings(canvas, upper, state, &lines, selected);
    let rows: Vec<&InProgress> = view
        .order
        .iter()
        .filter_map(|position| snapshot.in_progress.get(*position))
        .collect();
    let body = canvas.heading(
        lower,
        "In progress",
        &super::list_note::<InProgress>(state, Screen::Overview),
    );
    if rows.is_empty() {
        let text = if view.total > 0 {
            "No row contains the filter's text."
        } else {
            "Nothing is waiting on UIO, AIO or a percpu_ref."
        };
        canvas.text(body.x + 2, body.y, body.width.saturating_sub(2), text, Role::Dim);
        return;
    }
    let table = Table {
        columns: InProgress::COLUMNS,
        sort: Some((view.sort_column, view.descending)),
        rows: &rows,
        selected: selected.and_then(|s| s.checked_sub(findings.len())),
    };
    table.draw(canvas, body);
}

/// A line of the findings' panel: of which finding, its pieces, and what stands at the right end.
struct FindingLine {
    finding: usize,
    indent: u16,
    text: String,
    role: Role,
    mark: Option<(&'static str, Role)>,
    cost: String,
}

/// The findings' lines: in full when `room` lines are enough, otherwise with shortened texts.
fn finding_lines(canvas: &Canvas<'_>, findings: &[&Finding], width: u16, room: u16) -> Vec<FindingLine> {
    let mut lines = Vec::new();
    for most in [usize::MAX, 2, 1] {
        lines = lines_of_at_most(canvas, findings, width, most);
        if lines.len() <= usize::from(room) {
            break;
        }
    }
    lines
}

/// Empty when there is none.
fn cost_text(cost: f64) -> String {
    if !cost.is_finite() || cost <= 0.0 {
        String::new()
    } else if cost < 0.01 {
        "<0.01".into()
    } else {
        format!("{cost:.2}")
    }
}

fn lines_of_at_most(canvas: &Canvas<'_>, findings: &[&Finding], width: u16, most: usize) -> Vec<FindingLine> {
    let unicode = canvas.theme.unicode;
    let room = usize::from(width.saturating_sub(INDENT + 1));
    let mut lines = Vec::new();
    for (index, finding) in findings.iter().enumerate() {
        let (word, role) = theme::severity(finding.severity);
        let cost = cost_text(finding.cost);
        lines.push(FindingLine {
            finding: index,
            indent: INDENT,
            text: finding.subject.clone(),
            role: Role::Strong,
            mark: Some((word, role)),
            cost,
        });
        let mut texts = text::wrap(&text::clean(&finding.text, unicode), room);
        if texts.len() > most {
            // The rest in one line, which the canvas cuts with an ellipsis.
            let rest = texts.split_off(most - 1).join(" ");
            texts.push(rest);
        }
        lines.extend(texts.into_iter().map(|text| FindingLine {
            finding: index,
            indent: INDENT,
            text,
            role: Role::Plain,
            mark: None,
            cost: String::new(),
        }));
    }
    lines
}

fn draw_findings(
    canvas: &mut Canvas<'_>,
    area: Rect,
    state: &State,
    lines: &[FindingLine],
    selected: Option<usize>,
) {
    let costs = lines.iter().any(|l| !l.cost.is_empty());
    let note = if costs {
        "cost: seconds lost per second"
    } else {
        ""
    };
    let body = canvas.heading(area, "Findings", note);
    if lines.is_empty() {
        let text = if state.view().filter.is_empty() {
            "None."
        } else {
            "No finding contains the filter's text."
        };
        canvas.text(body.x + 2, body.y, body.width.saturating_sub(2), text, Role::Dim);
        return;
    }
    let height = usize::from(body.height);
    // By lines, so that the selected finding's first line is in view, and as much as possible around it.
    let first_of = |finding: usize| lines.iter().position(|l| l.finding == finding);
    let first = selected.and_then(first_of).map_or(0, |line| {
        crate::ui::canvas::first_visible(line, lines.len(), height)
    });
    for (y, line) in (body.y..body.bottom()).zip(lines.iter().skip(first)) {
        if let Some((word, role)) = line.mark {
            canvas.text(body.x + 2, y, 5, word, role);
        }
        let cost = text::width(&line.cost) as u16;
        let cost_columns = if cost > 0 { cost + 2 } else { 1 };
        let room = body.width.saturating_sub(line.indent + cost_columns);
        canvas.text(body.x + line.indent, y, room, &line.text, line.role);
        canvas.text_right(
            body.right().saturating_sub(cost + 1),
            y,
            cost,
            &line.cost,
            Role::Strong,
        );
        if selected == Some(line.finding) {
            if line.mark.is_some() {
                let cursor = canvas.theme.symbols().cursor;
                canvas.text(body.x, y, 1, cursor, Role::Strong);
            }
            canvas.overlay(Rect { y, height: 1, ..body }, Role::Selected);
        }
    }
}

/// A line for each subject: how much there is, and the worst of it. Returns what is left of `area`.
fn draw_subjects(canvas: &mut Canvas<'_>, area: Rect, snapshot: &Snapshot) -> Rect {
    let (upper, rest) = split_top(area, 4);
    let unicode = canvas.theme.unicode;
    let time = |ns| format::duration_inline(ns, unicode);
    let lines = [
        ("UIO", uio_line(snapshot)),
        ("Refs", refs_line(snapshot, &time)),
        ("AIO", aio_line(snapshot, &time)),
        ("Probes", probes_line(snapshot)),
    ];
    for (y, (subject, (count, worst))) in (upper.y..upper.bottom()).zip(&lines) {
        canvas.text(upper.x + 1, y, 7, subject, Role::Dim);
        canvas.text(upper.x + 9, y, 18, count, Role::Plain);
        canvas.text(
            upper.x + 28,
            y,
            upper.width.saturating_sub(28),
            worst,
            Role::Plain,
        );
    }
    rest
}

fn plural(n: usize, one: &str, many: &str) -> String {
    format!("{} {}", format::count(n as u64), if n == 1 { one } else { many })
}

fn uio_line(snapshot: &Snapshot) -> (String, String) {
    if !snapshot.uio_present {
        return ("not loaded".into(), "attaches when the uio driver appears".into());
    }
    let busiest = snapshot
        .uio_devices
        .iter()
        .max_by(|a, b| a.mean_waiters.total_cmp(&b.mean_waiters));
    let worst = busiest.map_or_else(String::new, |d| {
        let held = d.utilization.map_or_else(|| "-".into(), format::percent);
        format!(
            "{} held {held} % of the time, {:.2} waiting",
            d.sysfs_name, d.mean_waiters
        )
    });
    (plural(snapshot.uio_devices.len(), "device", "devices"), worst)
}

fn refs_line(snapshot: &Snapshot, time: &impl Fn(u64) -> String) -> (String, String) {
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
