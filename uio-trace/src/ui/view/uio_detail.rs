//! A UIO device: wait beside hold, its operations, and the slowest of them with who held the lock.

use super::uio::{label, lock_name};
use crate::model::snapshot::{Blocker, Histogram, SlowOp, Snapshot, UioDevice, UioOpFigures};
use crate::ui::arrange::{Align, Cell, Column};
use crate::ui::canvas::{Canvas, halves, split_top};
use crate::ui::format;
use crate::ui::state::Detail;
use crate::ui::theme::{Role, Theme};
use crate::ui::widgets::histogram;
use crate::ui::widgets::table::Table;
use ratatui::layout::Rect;
use std::cmp::Ordering;

/// Rows for the histograms with their heading: at least, and before other panels get any.
const LEAST_HISTOGRAM_ROWS: u16 = 5;
const HISTOGRAM_ROWS: u16 = 9;
/// A panel smaller than this says too little.
const LEAST_PANEL_ROWS: u16 = 3;

/// The device in a snapshot.
pub fn device(snapshot: &Snapshot, minor: u32, generation: u32) -> Option<&UioDevice> {
    snapshot
        .uio_devices
        .iter()
        .find(|d| d.minor == minor && d.generation == generation)
}

/// A row of the operations: one of them, or all together.
struct OpRow {
    op: String,
    count: u64,
    errors: String,
    contended: u64,
    latency: Option<Histogram>,
    wait: Option<Histogram>,
    hold: Option<Histogram>,
}

impl OpRow {
    fn all(ops: &[UioOpFigures]) -> OpRow {
        let any_wait = ops.iter().any(|o| o.wait_ns.is_some());
        OpRow {
            op: "all".into(),
            count: ops.iter().map(|o| o.count).sum(),
            errors: errors(ops.iter()),
            contended: ops.iter().map(|o| o.contended).sum(),
            latency: Some(histogram::sum(ops.iter().map(|o| &o.latency_ns))),
            wait: any_wait.then(|| histogram::sum(ops.iter().filter_map(|o| o.wait_ns.as_ref()))),
            hold: Some(histogram::sum(ops.iter().filter_map(|o| o.hold_ns.as_ref()))),
        }
    }

    fn one(op: &UioOpFigures) -> OpRow {
        OpRow {
            op: op.op.clone(),
            count: op.count,
            errors: errors(std::iter::once(op)),
            contended: op.contended,
            latency: Some(op.latency_ns.clone()),
            wait: op.wait_ns.clone(),
            hold: op.hold_ns.clone(),
        }
    }
}

/// `12 EIO, 3 EINVAL`, most frequent first; `0` when there is none.
fn errors<'a>(ops: impl Iterator<Item = &'a UioOpFigures>) -> String {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for (name, count) in ops.flat_map(|o| &o.errors) {
        match sums.iter_mut().find(|(n, _)| n == name) {
            Some((_, sum)) => *sum += count,
            None => sums.push((name.clone(), *count)),
        }
    }
    sums.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    if sums.is_empty() {
        return "0".into();
    }
    sums.iter()
        .map(|(name, n)| format!("{} {name}", format::count(*n)))
        .collect::<Vec<_>>()
        .join(", ")
}

fn figure(histogram: Option<&Histogram>, get: fn(&Histogram) -> u64, theme: &Theme) -> Cell {
    match histogram.filter(|h| h.count > 0) {
        Some(h) => Cell::plain(format::duration(get(h), theme.unicode)),
        None => Cell::none(),
    }
}

/// The operations stay in their order.
fn unsorted<R>(_: &R, _: &R) -> Ordering {
    Ordering::Equal
}

const fn column<R>(
    title: &'static str,
    align: Align,
    width: (u16, u16),
    priority: u8,
    cell: fn(&R, &Theme) -> Cell,
) -> Column<R> {
    Column {
        title,
        align,
        width,
        priority,
        descending: false,
        cell,
        compare: unsorted,
    }
}

const OPS: &[Column<OpRow>] = &[
    column("operation", Align::Left, (12, 12), 0, |o: &OpRow, _| {
        Cell::plain(&o.op)
    }),
    column("ops", Align::Right, (6, 6), 0, |o, _| {
        Cell::plain(format::count(o.count))
    }),
    column("contd", Align::Right, (6, 6), 1, |o, _| {
        Cell::plain(format::count(o.contended))
    }),
    column("lat p50", Align::Right, (8, 8), 5, |o, t| {
        figure(o.latency.as_ref(), |h| h.p50, t)
    }),
    column("lat p99", Align::Right, (8, 8), 2, |o, t| {
        figure(o.latency.as_ref(), |h| h.p99, t)
    }),
    column("wait p50", Align::Right, (8, 8), 4, |o, t| {
        figure(o.wait.as_ref(), |h| h.p50, t)
    }),
    column("wait p99", Align::Right, (8, 8), 1, |o, t| {
        figure(o.wait.as_ref(), |h| h.p99, t)
    }),
    column("wait max", Align::Right, (8, 8), 6, |o, t| {
        figure(o.wait.as_ref(), |h| h.max, t)
    }),
    column("hold p50", Align::Right, (8, 8), 4, |o, t| {
        figure(o.hold.as_ref(), |h| h.p50, t)
    }),
    column("hold p99", Align::Right, (8, 8), 1, |o, t| {
        figure(o.hold.as_ref(), |h| h.p99, t)
    }),
    column("hold max", Align::Right, (8, 8), 6, |o, t| {
        figure(o.hold.as_ref(), |h| h.max, t)
    }),
    column("errors", Align::Left, (6, 40), 3, |o, _| {
        match o.errors.as_str() {
            "0" => Cell::plain("0"),
            errors => Cell::Text(errors.to_owned(), Role::Warning),
        }
    }),
];

const SLOW: &[Column<SlowOp>] = &[
    column("latency", Align::Right, (8, 8), 0, |s: &SlowOp, t| {
        time(s.latency_ns, t)
    }),
    column("wait", Align::Right, (8, 8), 0, |s, t| time(s.wait_ns, t)),
    column("hold", Align::Right, (8, 8), 1, |s, t| time(s.hold_ns, t)),
    column("drv wait", Align::Right, (8, 8), 3, |s, t| {
        time(s.driver_wait_ns, t)
    }),
    column("operation", Align::Left, (10, 12), 2, |s, _| Cell::plain(&s.op)),
    column("process", Align::Left, (12, 32), 0, |s, _| {
        Cell::plain(super::process(&s.comm, s.tgid, s.tid))
    }),
    column("behind (holder)", Align::Left, (15, 40), 1, |s, _| {
        s.holder.as_ref().map_or_else(Cell::none, Cell::plain)
    }),
];

const BLOCKERS: &[Column<Blocker>] = &[
    column("wait sum", Align::Right, (8, 8), 0, |b: &Blocker, t| {
        time(b.wait_ns, t)
    }),
    column("waits", Align::Right, (6, 6), 0, |b, _| {
        Cell::plain(format::count(b.count))
    }),
    column("holder", Align::Left, (16, 40), 0, |b, _| {
        Cell::plain(super::process(&b.comm, b.tgid, b.tid))
    }),
    column("in", Align::Left, (12, 12), 1, |b, _| {
        b.op.as_ref().map_or_else(Cell::none, Cell::plain)
    }),
];

fn time(ns: u64, theme: &Theme) -> Cell {
    Cell::plain(format::duration(ns, theme.unicode))
}

/// Draws the detail of the device with this minor and generation.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, detail: &Detail, key: (u32, u32), active: bool) {
    let Some(device) = device(&detail.snapshot, key.0, key.1) else {
        return;
    };
    let body = draw_facts(canvas, area, detail, device);

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

    // Operations want all their rows, histograms enough for a shape; holders and slow operations share the rest.
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
    let blocker_rows = share(blockers.len(), 7);
    let slow_rows = share(slow.len(), 14);
    let below = operations + blocker_rows + slow_rows;
    let (histograms, rest) = split_top(body, body.height.saturating_sub(below));
    let (operations, rest) = split_top(rest, operations);
    let (blocker_area, slow_area) = split_top(rest, blocker_rows);

    draw_histograms(canvas, histograms, &rows[cursor]);
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
    }
    .draw(canvas, inner);
    if blocker_rows > 0 {
        let inner = canvas.heading(blocker_area, "Waited behind", "from slow operations");
        Table {
            columns: BLOCKERS,
            sort: None,
            rows: &blockers,
            selected: None,
        }
        .draw(canvas, inner);
    }
    if slow_rows > 0 {
        let note = format!("{} longest", slow.len());
        let inner = canvas.heading(slow_area, "Slow operations", &note);
        Table {
            columns: SLOW,
            sort: None,
            rows: &slow,
            selected: None,
        }
        .draw(canvas, inner);
    }
}

/// What is known of the device as a whole; returns what is left of `area`.
fn draw_facts(canvas: &mut Canvas<'_>, area: Rect, detail: &Detail, device: &UioDevice) -> Rect {
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
    let mut facts = vec![
        ("lock", lock_name(device.lock)),
        ("held", held.as_str()),
        ("waiting", waiting.as_str()),
        ("other locks", driver.as_str()),
        ("version", version),
    ];
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
    rest
}

fn draw_histograms(canvas: &mut Canvas<'_>, area: Rect, row: &OpRow) {
    let (left, right) = halves(area, 1);
    let inner = canvas.heading(
        left,
        &format!("Wait for info_lock: {}", row.op),
        &format!("{}", row.wait.as_ref().map_or(0, |h| h.count)),
    );
    let absent = if row.wait.is_some() {
        "none waited"
    } else {
        "not measured on this kernel"
    };
    histogram::draw(canvas, inner, row.wait.as_ref(), absent, Role::WaitBar);
    let inner = canvas.heading(
        right,
        &format!("Hold of it: {}", row.op),
        &format!("{}", row.hold.as_ref().map_or(0, |h| h.count)),
    );
    let absent = if row.hold.is_some() {
        "none"
    } else {
        "read sleeps outside the lock"
    };
    histogram::draw(canvas, inner, row.hold.as_ref(), absent, Role::Bar);
}
