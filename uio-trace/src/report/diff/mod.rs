//! Two traces compared: what got better, what worse, and whether that is more than noise.
//!
//! A [`Side`] is made of a model's snapshot, or of a dump that `hist --json` wrote ([`dump`]). [`compare`] puts the two
//! beside each other, row by row; [`statistics`] says of each row what may be said. [`text`] and [`write_json`] show it.

pub mod dump;
mod side;
pub mod statistics;
pub mod text;

use crate::format::printable;
use crate::model::histogram::Recorder;
use crate::model::snapshot::Histogram;
use serde::Serialize;
pub use side::Side;
use side::{Device, Drains, Operation, Owner};
use statistics::{Difference, Verdict};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// How a row is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Wait for info_lock, of all operations.
    Wait,
    /// info_lock held.
    Hold,
    /// Entry to exit.
    Latency,
    /// Operations per second.
    Throughput,
    /// Kill to switched.
    GracePeriod,
    /// Kill to released.
    Drain,
    /// What a thread waits for: all contexts of a process or of a loop.
    DrainWall,
    /// Kill to drained, of a context.
    Context,
    /// What a drain of several contexts is projected to take when they drain together.
    ProjectedParallel,
}

/// A record `diff_row`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// `uio`, `percpu_ref`, `aio`.
    pub subject: &'static str,
    /// Device, owner, or process name.
    pub name: String,
    /// Operation, or how a drain was caused; `None`: there is only one.
    pub op: Option<String>,
    /// What is measured.
    pub metric: Metric,
    /// Before.
    pub before: Measured,
    /// After.
    pub after: Measured,
    /// What may be said of the two.
    #[serde(flatten)]
    pub difference: Difference,
}

/// One side of a row: durations in nanoseconds, throughput in operations per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// Size of the sample: values, or operations counted.
    pub n: u64,
    /// Mean; `None`: no values.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
}

/// Share of the time that a device's lock was held, threads waiting for it, and what is projected without it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shares {
    /// 0 to 1; `None`: not measured.
    pub held: Option<f64>,
    /// Mean number of threads.
    pub waiting: f64,
    /// Throughput without info_lock; `None`: not projected.
    pub gain: Option<Gain>,
}

/// The projected throughput without info_lock, as a multiple of the present one. Of a dump with several intervals from the
/// lowest to the highest bound of those that have a projection.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gain {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
    /// The kind of operation that waits most; `None`: not the same in all intervals.
    pub op: Option<String>,
    /// Intervals with a projection.
    pub intervals: u64,
}

/// A record `diff_device`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceRow {
    /// `uioN`.
    pub name: String,
    /// What the driver called it before.
    pub driver_name_before: Option<String>,
    /// And after: when it differs, it is not the same device.
    pub driver_name_after: Option<String>,
    /// Before; `None`: it was not there.
    pub before: Option<Shares>,
    /// After.
    pub after: Option<Shares>,
}

/// All of it.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Devices.
    pub devices: Vec<DeviceRow>,
    /// Rows, by subject and name.
    pub rows: Vec<Row>,
}

/// Puts two sides beside each other.
pub fn compare(before: &Side, after: &Side) -> Comparison {
    let mut rows = Vec::new();
    let names = union(&before.devices, &after.devices);
    let devices = names
        .iter()
        .map(|name| {
            let (a, b) = (before.devices.get(*name), after.devices.get(*name));
            operations(&mut rows, name, (before, a), (after, b));
            DeviceRow {
                name: (*name).clone(),
                driver_name_before: a.and_then(|d| d.name.clone()),
                driver_name_after: b.and_then(|d| d.name.clone()),
                before: before.shares(a),
                after: after.shares(b),
            }
        })
        .collect();
    for name in union(&before.owners, &after.owners) {
        let (a, b) = (before.owners.get(name), after.owners.get(name));
        let of = |pick: fn(&Owner) -> &Histogram| (a.map(pick), b.map(pick));
        times(
            &mut rows,
            "percpu_ref",
            name,
            None,
            Metric::GracePeriod,
            of(|o| &o.grace_period),
        );
        times(
            &mut rows,
            "percpu_ref",
            name,
            None,
            Metric::Drain,
            of(|o| &o.drain),
        );
    }
    for key in union(&before.drains, &after.drains) {
        let (a, b) = (before.drains.get(key), after.drains.get(key));
        for (metric, pick) in [
            (Metric::DrainWall, (|d| &d.wall) as fn(&Drains) -> &Recorder),
            (Metric::Context, |d| &d.context),
        ] {
            let (a, b) = (a.map(|d| pick(d).histogram()), b.map(|d| pick(d).histogram()));
            times(
                &mut rows,
                "aio",
                &key.0,
                Some(key.1),
                metric,
                (a.as_ref(), b.as_ref()),
            );
        }
        // A projection of one side alone has nothing to be compared with: its drains are in the rows above.
        if let (Some(a), Some(b)) = (a.and_then(Drains::projected), b.and_then(Drains::projected)) {
            let both = (Some(&a), Some(&b));
            times(
                &mut rows,
                "aio",
                &key.0,
                Some(key.1),
                Metric::ProjectedParallel,
                both,
            );
        }
    }
    Comparison { devices, rows }
}

fn union<'a, K: Ord, V>(a: &'a BTreeMap<K, V>, b: &'a BTreeMap<K, V>) -> Vec<&'a K> {
    let mut keys: Vec<&K> = a.keys().chain(b.keys()).collect();
    keys.sort();
    keys.dedup();
    keys
}

fn operations(
    rows: &mut Vec<Row>,
    name: &str,
    (before, a): (&Side, Option<&Device>),
    (after, b): (&Side, Option<&Device>),
) {
    let none = BTreeMap::new();
    let (a, b) = (a.map_or(&none, |d| &d.ops), b.map_or(&none, |d| &d.ops));
    for op in union(a, b) {
        let (x, y) = (a.get(op), b.get(op));
        let of = |pick: fn(&Operation) -> Option<&Histogram>| (x.and_then(pick), y.and_then(pick));
        let both = Some(op.as_str());
        times(
            rows,
            "uio",
            name,
            both,
            Metric::Wait,
            of(|o| o.wait_known.then_some(&o.wait)),
        );
        times(rows, "uio", name, both, Metric::Hold, of(|o| Some(&o.hold)));
        times(rows, "uio", name, both, Metric::Latency, of(|o| Some(&o.latency)));
        let counts = [x, y].map(|o| o.map_or(0, |o| o.count));
        let seconds = [before, after].map(|side| side.duration_ns as f64 / 1e9);
        let rate = |i: usize| Measured {
            n: counts[i],
            mean: (seconds[i] > 0.0).then(|| counts[i] as f64 / seconds[i]),
            p50: None,
            p99: None,
        };
        rows.push(Row {
            subject: "uio",
            name: name.to_owned(),
            op: Some(op.clone()),
            metric: Metric::Throughput,
            before: rate(0),
            after: rate(1),
            difference: statistics::rates((counts[0], seconds[0]), (counts[1], seconds[1])),
        });
    }
}

/// A row of durations; none when neither side has any.
fn times(
    rows: &mut Vec<Row>,
    subject: &'static str,
    name: &str,
    op: Option<&str>,
    metric: Metric,
    (before, after): (Option<&Histogram>, Option<&Histogram>),
) {
    let empty = Histogram::default();
    let (before, after) = (before.unwrap_or(&empty), after.unwrap_or(&empty));
    if before.count == 0 && after.count == 0 {
        return;
    }
    let measured = |h: &Histogram| {
        let known = |value: f64| (h.count > 0).then_some(value);
        Measured {
            n: h.count,
            mean: known(h.sum as f64 / h.count.max(1) as f64),
            p50: known(h.p50 as f64),
            p99: known(h.p99 as f64),
        }
    };
    rows.push(Row {
        subject,
        name: name.to_owned(),
        op: op.map(str::to_owned),
        metric,
        before: measured(before),
        after: measured(after),
        difference: statistics::times(before, after),
    });
}

/// How many rows of each verdict: a record `diff_summary`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Better after.
    pub better: u64,
    /// Worse after.
    pub worse: u64,
    /// Better in one respect, worse in another.
    pub mixed: u64,
    /// Too small a difference to matter.
    pub alike: u64,
    /// Chance can explain it.
    pub noise: u64,
    /// Too few values.
    pub too_few: u64,
    /// Only on one side.
    pub one_sided: u64,
}

impl Comparison {
    /// Counts verdicts.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for row in &self.rows {
            *match row.difference.verdict {
                Verdict::Better => &mut summary.better,
                Verdict::Worse => &mut summary.worse,
                Verdict::Mixed => &mut summary.mixed,
                Verdict::Alike => &mut summary.alike,
                Verdict::Noise => &mut summary.noise,
                Verdict::TooFew => &mut summary.too_few,
                Verdict::OnlyBefore | Verdict::OnlyAfter => &mut summary.one_sided,
            } += 1;
        }
        summary
    }
}

/// A record `diff_side`.
#[derive(Serialize)]
struct SideRecord<'a> {
    side: &'static str,
    file: String,
    host: Option<&'a str>,
    kernel: Option<&'a str>,
    started: Option<&'a str>,
    duration_ns: u64,
    seen: u64,
    lost: u64,
    remarks: Vec<String>,
}

/// Writes NDJSON: two `diff_side`, a `diff_device` for each device, the `diff_row`s, and a `diff_summary` last.
///
/// # Errors
/// Those of `out`.
pub fn write_json(
    out: &mut impl Write,
    sides: [(&str, &Side); 2],
    comparison: &Comparison,
) -> io::Result<()> {
    for (which, (file, side)) in ["before", "after"].into_iter().zip(sides) {
        let meta = side.meta.as_ref();
        let record_of = SideRecord {
            side: which,
            file: printable(file.to_owned()),
            host: meta.map(|m| m.host.as_str()),
            kernel: meta.map(|m| m.kernel.as_str()),
            started: meta.map(|m| m.started.as_str()),
            duration_ns: side.duration_ns,
            seen: side.seen,
            lost: side.lost,
            remarks: side.all_remarks(),
        };
        super::json::record(out, "diff_side", &record_of)?;
    }
    super::json::records(out, "diff_device", &comparison.devices)?;
    super::json::records(out, "diff_row", &comparison.rows)?;
    super::json::record(out, "diff_summary", &comparison.summary())
}
