//! A UIO device: wait beside hold, its operations, and the slowest of them with who held the lock.

use super::uio::{label, lock_name};
use super::uio_tables::{BLOCKERS, OPS, OpRow, PAIRS, SLOW};
use crate::model::snapshot::{Blocker, Finding, OpPair, SlowOp, Snapshot, UioDevice, WhatIfVerdict};
use crate::ui::canvas::{Canvas, halves, split_top};
use crate::ui::column::Column;
use crate::ui::format;
use crate::ui::state::Detail;
use crate::ui::text;
use crate::ui::theme::{self, Role};
use crate::ui::widgets::histogram;
use crate::ui::widgets::sparkline::{self, Plot};
use crate::ui::widgets::table::{Clicks, Table};
use ratatui::layout::Rect;

/// Rows for the histograms with their heading: at least, and before other panels get any.
const LEAST_HISTOGRAM_ROWS: u16 = 5;
const HISTOGRAM_ROWS: u16 = 6;
/// A panel smaller than this says too little.
const LEAST_PANEL_ROWS: u16 = 3;

/// Rows of the plots over time, with their heading, where there is little and where there is enough room.
const PLOT_ROWS: (u16, u16) = (3, 6);
/// Rows below the facts that are enough.
const MANY_ROWS: u16 = 40;
/// A histogram narrower than this has a short heading.
const NARROW: u16 = 36;
/// Columns from which tables of waits stand beside each other.
const WIDE: u16 = 110;
/// Rows of the body from which the findings about the device are shown in it.
const ROWS_WITH_FINDINGS: u16 = 16;

/// The device in a snapshot.
pub fn device(snapshot: &Snapshot, minor: u32, generation: u32) -> Option<&UioDevice> {
    snapshot
        .uio_devices
        .iter()
        .find(|d| d.minor == minor && d.generation == generation)
}

/// Draws the detail of the device with this minor and generation.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, detail: &Detail, key: (u32, u32), active: bool) {
    let Some(device) = device(&detail.snapshot, key.0, key.1) else {
        return;
    };
    let body = draw_facts(canvas, area, detail, device, active);

    let mut rows = vec![OpRow::all(&device.ops)];
    rows.extend(device.ops.iter().map(OpRow::one));
    let cursor = detail.cursor.min(rows.len() - 1);

    let slow: Vec<&SlowOp> = detail
        .snapshot
        .slow_ops
        .iter()
        .filter(|s| s.sysfs_name == device.sysfs_name)
        .collect();
    let blockers: Vec<&Blocker> = device.blockers.iter().collect();
    let pairs: Vec<&OpPair> = device.waits_by_op.iter().collect();

    // Operations want all their rows, histograms enough for a shape; the others share the rest.
    let panel = |rows: usize| u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(2);
    let operations = panel(rows.len()).min(body.height.saturating_sub(LEAST_HISTOGRAM_ROWS).max(4));
    let mut spare = body.height.saturating_sub(operations + HISTOGRAM_ROWS);
    let mut share = |rows: usize, most: u16| {
        let wanted = panel(rows).min(most).min(spare);
        let granted = if rows == 0 || wanted < LEAST_PANEL_ROWS {
            0
        } else {
            wanted
        };
        spare -= granted;
        granted
    };
    let samples = detail.snapshot.history.device(key.0, key.1).len();
    let history_rows = match body.height {
        MANY_ROWS.. => share(samples.min(4), PLOT_ROWS.1),
        _ => share(samples.min(1), PLOT_ROWS.0),
    };
    // Beside each other where both fit whole, else one below the other.
    let beside = body.width >= WIDE;
    let blocker_rows = share(blockers.len().max(if beside { pairs.len() } else { 0 }), 7);
    let pair_rows = if beside { 0 } else { share(pairs.len(), 5) };
    let slow_rows = share(slow.len(), 14);
    let below = operations + history_rows + blocker_rows + pair_rows + slow_rows;
    let (histograms, rest) = split_top(body, body.height.saturating_sub(below));
    let (history, rest) = split_top(rest, history_rows);
    let (operations, rest) = split_top(rest, operations);
    let (blocker_area, rest) = split_top(rest, blocker_rows);
    let (pair_area, slow_area) = split_top(rest, pair_rows);
    let (blocker_area, pair_area) = match beside {
        true => halves(blocker_area, 1),
        false => (blocker_area, pair_area),
    };

    draw_histograms(canvas, histograms, &rows[cursor]);
    if history_rows > 0 {
        draw_history(canvas, history, detail, key);
    }
    let inner = canvas.heading(
        operations,
        "Operations",
        if active { "up, down: histograms of one" } else { "" },
    );
    let refs: Vec<&OpRow> = rows.iter().collect();
    Table {
        columns: OPS,
        sort: None,
        rows: &refs,
        selected: active.then_some(cursor),
        top: detail.top,
        clicks: if active { Clicks::Lines } else { Clicks::None },
        filter: "",
    }
    .draw(canvas, inner);
    if blocker_rows > 0 {
        draw_table(
            canvas,
            blocker_area,
            "Waited behind",
            "by thread",
            BLOCKERS,
            &blockers,
        );
    }
    if blocker_rows > 0 && beside || pair_rows > 0 {
        draw_table(canvas, pair_area, "Waits by operation", "", PAIRS, &pairs);
    }
    if slow_rows > 0 {
        let note = format!("{} longest", slow.len());
        draw_table(canvas, slow_area, "Slow operations", &note, SLOW, &slow);
    }
}

/// A table in which nothing is chosen.
fn draw_table<T>(
    canvas: &mut Canvas<'_>,
    area: Rect,
    title: &str,
    note: &str,
    columns: &'static [Column<T>],
    rows: &[&T],
) {
    let inner = canvas.heading(area, title, note);
    Table {
        columns,
        sort: None,
        rows,
        selected: None,
        top: 0,
        clicks: Clicks::None,
        filter: "",
    }
    .draw(canvas, inner);
}

/// What is known of the device as a whole; returns what is left of `area`.
fn draw_facts(
    canvas: &mut Canvas<'_>,
    area: Rect,
    detail: &Detail,
    device: &UioDevice,
    active: bool,
) -> Rect {
    let name = device.name.as_deref().unwrap_or("name not known");
    let body = canvas.heading(
        area,
        &format!("{}  {name}", label(device)),
        super::detail_note(detail),
    );
    let held = device
        .utilization
        .map_or_else(|| "-".into(), |share| format!("{} %", format::percent(share)));
    let driver = format!(
        "{} in {} waits",
        format::duration_inline(device.driver_wait_ns, canvas.theme.unicode),
        format::count(device.driver_waits)
    );
    let waiting = format!("{:.2}", device.mean_waiters);
    let version = device.version.as_deref().unwrap_or("-");
    let open = opened(device);
    let owner = match (&device.driver, &device.parent) {
        (Some(driver), Some(parent)) => format!("{driver} {parent}"),
        (driver, parent) => driver
            .as_ref()
            .or(parent.as_ref())
            .map_or("-", |t| t.as_str())
            .to_owned(),
    };
    let mut facts = vec![
        ("lock", lock_name(device.lock)),
        ("held", held.as_str()),
        ("waiting", waiting.as_str()),
        ("other locks", driver.as_str()),
        ("open", open.as_str()),
        ("version", version),
        ("of", owner.as_str()),
    ];
    let gain = what_if_factor(device);
    if let Some(gain) = &gain {
        facts.insert(3, ("gain", gain.as_str()));
    }
    if device.gone_ns.is_some() {
        facts.insert(0, ("state", "unregistered"));
    }
    let (line, rest) = split_top(body, 1);
    let mut x = line.x + 1;
    for (label, value) in facts {
        let needed = (label.len() + 1 + crate::ui::text::width(value)) as u16;
        if x + needed > line.right() {
            break;
        }
        x += canvas.pieces(
            x,
            line.y,
            needed,
            &[(label, Role::Dim), (" ", Role::Plain), (value, Role::Strong)],
        );
        x += 3;
    }
    if area.height < ROWS_WITH_FINDINGS {
        return rest;
    }
    let rest = draw_findings(canvas, rest, &detail.snapshot, device);
    // Below a list there is little room.
    match active {
        true => draw_what_if(canvas, rest, &detail.snapshot, device),
        false => rest,
    }
}

/// `2 by tcmu-runner (2201)`; `?` when it is not known.
fn opened(device: &UioDevice) -> String {
    let Some(open) = &device.open else {
        return "?".to_owned();
    };
    let least = if open.complete { "" } else { ">=" };
    let whose = open.processes.first().map_or_else(String::new, |p| {
        let more = if open.processes.len() > 1 { ", ..." } else { "" };
        format!(" by {} ({}){more}", p.comm, p.tgid)
    });
    format!("{least}{}{whose}", open.descriptors)
}

/// `2.8-3.8x`, unless nothing is known.
fn what_if_factor(device: &UioDevice) -> Option<String> {
    let said = &device.what_if;
    match (said.verdict, said.low, said.high) {
        (WhatIfVerdict::Range | WhatIfVerdict::TooWide, Some(low), Some(high)) => {
            Some(format!("{low:.1}-{high:.1}x"))
        }
        _ => None,
    }
}

/// What would be gained without the lock where no finding has said it, and what that rests on. Returns what is left.
fn draw_what_if(canvas: &mut Canvas<'_>, area: Rect, snapshot: &Snapshot, device: &UioDevice) -> Rect {
    let said = &device.what_if;
    let told = snapshot.findings.iter().any(|f| f.text.ends_with(&said.text));
    let mut lines = Vec::new();
    if !told && device.ops.iter().any(|op| op.contended > 0) {
        lines.push(said.text.clone());
    }
    if !said.assumptions.is_empty() {
        lines.push(format!("assumes: {}", said.assumptions.join("; ")));
    }
    let mut rest = area;
    let room = usize::from(rest.width.saturating_sub(8));
    for said in lines {
        for content in text::wrap(&text::clean(&said, canvas.theme.unicode), room) {
            let width = rest.width.saturating_sub(7);
            canvas.text(rest.x + 7, rest.y, width, &content, Role::Dim);
            rest = split_top(rest, 1).1;
        }
    }
    rest
}

/// What the findings say of the device's lock: whether it is the problem, and what would be gained without it. Returns
/// what is left of `area`.
fn draw_findings(canvas: &mut Canvas<'_>, area: Rect, snapshot: &Snapshot, device: &UioDevice) -> Rect {
    let about = |f: &&Finding| {
        let rest = f.subject.strip_prefix(device.sysfs_name.as_str());
        f.id.starts_with("uio_") && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" ("))
    };
    let mut rest = area;
    for finding in snapshot.findings.iter().filter(about).take(2) {
        let (word, role) = theme::severity(finding);
        // The device is in the heading.
        let said = finding.text.strip_prefix(finding.subject.as_str());
        let said = said.map_or(finding.text.as_str(), |rest| rest.trim_start_matches([':', ' ']));
        let said = format::micro(said, canvas.theme.unicode);
        let clean = text::clean(&said, canvas.theme.unicode);
        let room = usize::from(rest.width.saturating_sub(8));
        for (line, content) in text::wrap(&clean, room).iter().enumerate() {
            if line == 0 {
                canvas.text(rest.x + 1, rest.y, 5, word, role);
            }
            canvas.text(
                rest.x + 7,
                rest.y,
                rest.width.saturating_sub(7),
                content,
                Role::Plain,
            );
            rest = split_top(rest, 1).1;
        }
    }
    rest
}

/// Utilization and waiters over time.
fn draw_history(canvas: &mut Canvas<'_>, area: Rect, detail: &Detail, key: (u32, u32)) {
    let history = &detail.snapshot.history;
    let held: Vec<f64> = history.device(key.0, key.1).map(|s| s.held.into()).collect();
    let waiting: Vec<f64> = history.device(key.0, key.1).map(|s| s.waiting.into()).collect();
    let newest = |samples: &[f64]| samples.last().copied().unwrap_or(0.0);
    // At least one thread: what is next to nothing must not fill the plot.
    let most = waiting.iter().copied().fold(1.0, f64::max);
    let (left, right) = halves(area, 1);
    let plot = Plot {
        title: "Held",
        now: format!("now {} %", format::percent(newest(&held))),
        samples: &held,
        ceiling: 1.0,
        ceiling_text: "100 %".into(),
        role: Role::Bar,
    };
    sparkline::panel(canvas, left, &plot, |n| history.reach_ns(n));
    let plot = Plot {
        title: "Threads waiting",
        now: format!("now {:.2}", newest(&waiting)),
        samples: &waiting,
        ceiling: most,
        ceiling_text: format!("{most:.2}"),
        role: Role::WaitBar,
    };
    sparkline::panel(canvas, right, &plot, |n| history.reach_ns(n));
}

fn draw_histograms(canvas: &mut Canvas<'_>, area: Rect, row: &OpRow) {
    let (left, right) = halves(area, 1);
    let inner = canvas.heading(
        left,
        &match left.width {
            ..NARROW => format!("Wait: {}", row.op),
            _ => format!("Wait for info_lock: {}", row.op),
        },
        &format::count(row.wait.as_ref().map_or(0, |h| h.count)),
    );
    let absent = if row.wait.is_some() {
        "none waited"
    } else {
        "not measured on this kernel"
    };
    histogram::draw(canvas, inner, row.wait.as_ref(), absent, Role::WaitBar);
    let inner = canvas.heading(
        right,
        &match right.width {
            ..NARROW => format!("Hold: {}", row.op),
            _ => format!("Hold of it: {}", row.op),
        },
        &format::count(row.hold.as_ref().map_or(0, |h| h.count)),
    );
    let absent = if row.hold.is_some() {
        "none"
    } else {
        "read sleeps outside the lock"
    };
    histogram::draw(canvas, inner, row.hold.as_ref(), absent, Role::Bar);
}
