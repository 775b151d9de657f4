//! Tables of a UIO device's detail: its operations, who was waited for, and slow operations one by one.

use crate::model::snapshot::{Blocker, Histogram, OpPair, SlowOp, UioOpFigures};
use crate::ui::column::{Cell, Column, counts, names, times, unsorted};
use crate::ui::format;
use crate::ui::theme::Role;
use crate::ui::widgets::histogram;

/// A row of the operations: one of them, or all together.
pub struct OpRow {
    /// Its name, or `all`.
    pub op: String,
    /// How many.
    pub count: u64,
    /// Failures in words.
    pub errors: String,
    /// Those that waited for info_lock.
    pub contended: u64,
    /// Entry to exit.
    pub latency: Option<Histogram>,
    /// Waits for info_lock; `None`: not measured.
    pub wait: Option<Histogram>,
    /// Holds of it; `None`: not defined for a read, or not measured.
    pub hold: Option<Histogram>,
}

impl OpRow {
    /// All together.
    pub fn all(ops: &[UioOpFigures]) -> OpRow {
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

    /// One of them.
    pub fn one(op: &UioOpFigures) -> OpRow {
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

/// A figure of a histogram, unless that is empty or absent.
fn known(histogram: Option<&Histogram>, get: fn(&Histogram) -> u64) -> Option<u64> {
    histogram.filter(|h| h.count > 0).map(get)
}

/// Operations of a device.
pub const OPS: &[Column<OpRow>] = &[
    Column::names(
        "operation",
        (12, 12),
        0,
        |o: &OpRow, _| Cell::plain(&o.op),
        unsorted,
    ),
    counts!("ops", 6, 0, |o: OpRow| o.count),
    counts!("contd", 6, 1, |o: OpRow| o.contended),
    times!("lat p50", 8, 5, |o: OpRow| known(o.latency.as_ref(), |h| h.p50)),
    times!("lat p99", 8, 2, |o: OpRow| known(o.latency.as_ref(), |h| h.p99)),
    times!("wait p50", 8, 4, |o: OpRow| known(o.wait.as_ref(), |h| h.p50)),
    times!("wait p99", 8, 1, |o: OpRow| known(o.wait.as_ref(), |h| h.p99)),
    times!("wait max", 8, 6, |o: OpRow| known(o.wait.as_ref(), |h| h.max)),
    times!("hold p50", 8, 4, |o: OpRow| known(o.hold.as_ref(), |h| h.p50)),
    times!("hold p99", 8, 1, |o: OpRow| known(o.hold.as_ref(), |h| h.p99)),
    times!("hold max", 8, 6, |o: OpRow| known(o.hold.as_ref(), |h| h.max)),
    Column::names(
        "errors",
        (6, 40),
        3,
        |o, _| match o.errors.as_str() {
            "0" => Cell::plain("0"),
            errors => Cell::Text(errors.to_owned(), Role::Warning),
        },
        unsorted,
    ),
];

/// Its slow operations one by one.
pub const SLOW: &[Column<SlowOp>] = &[
    times!("latency", 8, 0, |s: SlowOp| Some(s.latency_ns)),
    times!("wait", 8, 0, |s: SlowOp| Some(s.wait_ns)),
    times!("hold", 8, 1, |s: SlowOp| Some(s.hold_ns)),
    times!("drv wait", 8, 3, |s: SlowOp| Some(s.driver_wait_ns)),
    names!("operation", (10, 12), 2, |s: SlowOp| &s.op),
    Column::names(
        "process",
        (12, 32),
        0,
        |s, _| Cell::plain(super::process(&s.comm, s.tgid, s.tid)),
        unsorted,
    ),
    Column::names(
        "behind (holder)",
        (15, 40),
        1,
        |s, _| s.holder.as_ref().map_or_else(Cell::none, Cell::plain),
        unsorted,
    ),
];

/// Who was waited for, and in what.
pub const BLOCKERS: &[Column<Blocker>] = &[
    times!("wait sum", 8, 0, |b: Blocker| Some(b.wait_ns)),
    counts!("waits", 6, 0, |b: Blocker| b.count),
    Column::names(
        "behind (holder)",
        (16, 40),
        0,
        |b, _| Cell::plain(super::process(&b.comm, b.tgid, b.tid)),
        unsorted,
    ),
    Column::names(
        "holder in",
        (10, 12),
        1,
        |b, _| b.op.as_ref().map_or_else(Cell::none, Cell::plain),
        unsorted,
    ),
];

/// What waited behind what.
pub const PAIRS: &[Column<OpPair>] = &[
    times!("wait sum", 8, 0, |p: OpPair| Some(p.wait_ns)),
    counts!("waits", 6, 0, |p: OpPair| p.count),
    names!("waiter in", (10, 12), 0, |p: OpPair| &p.waiter),
    Column::names(
        "holder in",
        (10, 12),
        0,
        |p, _| p.holder.as_ref().map_or_else(Cell::none, Cell::plain),
        unsorted,
    ),
];
