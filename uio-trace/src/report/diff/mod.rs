//! Two traces compared: what got better, what worse, and whether that is more than noise.
//!
//! A [`Side`] is made of a model's snapshot, or of a dump that `hist --json` wrote ([`dump`]). [`compare`] puts the two
//! beside each other, row by row; [`statistics`] says of each row what may be said. [`text`] and [`write_json`] show it.

pub mod dump;
pub mod statistics;
pub mod text;

use crate::format::printable;
use crate::model::histogram::{self, Recorder};
use crate::model::snapshot::{Bucket, DrainCause, Histogram, Meta, Snapshot, UioDevice};
use serde::Serialize;
use statistics::{Difference, Verdict};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Devices, owners and process names kept of a side, each.
const MAX_NAMES: usize = 4096;

/// One of the two traces: everything that is compared, summed over its intervals.
#[derive(Debug, Clone, Default)]
pub struct Side {
    /// Host, kernel, begin; `None`: not known.
    pub meta: Option<Meta>,
    /// Time it is about, ns.
    pub duration_ns: u64,
    /// Operations and events seen.
    pub seen: u64,
    /// Of them lost.
    pub lost: u64,
    /// What to know of the source, in sentences.
    pub remarks: Vec<String>,
    devices: BTreeMap<String, Device>,
    owners: BTreeMap<String, Owner>,
    drains: BTreeMap<(String, &'static str), Drains>,
    /// Names that found no place.
    refused: u64,
    /// Drains that are not among the rows.
    omitted: u64,
}

#[derive(Debug, Clone, Default)]
struct Device {
    name: Option<String>,
    /// Utilization is known for all of the intervals.
    held_ns: Option<u64>,
    waited_ns: u64,
    ops: BTreeMap<String, Operation>,
}

#[derive(Debug, Clone, Default)]
struct Operation {
    count: u64,
    latency: Histogram,
    /// Of all operations, 0 for those that did not wait.
    wait: Histogram,
    wait_known: bool,
    hold: Histogram,
}

#[derive(Debug, Clone, Default)]
struct Owner {
    grace_period: Histogram,
    drain: Histogram,
}

#[derive(Debug, Clone, Default)]
struct Drains {
    wall: Recorder,
    context: Recorder,
}

impl Side {
    /// A side without any interval yet.
    pub fn new(meta: Meta, remarks: Vec<String>) -> Side {
        Side {
            meta: Some(meta),
            remarks,
            ..Side::default()
        }
    }

    /// Adds an interval that follows what there is.
    pub fn add(&mut self, snapshot: &Snapshot) {
        self.duration_ns = self.duration_ns.saturating_add(snapshot.interval.duration_ns);
        self.seen = self.seen.saturating_add(snapshot.loss.seen);
        let lost = snapshot.loss.dropped.values();
        self.lost = lost.fold(self.lost, |sum, n| sum.saturating_add(*n));
        self.omitted = self.omitted.saturating_add(snapshot.aio_drains_omitted);
        for device in &snapshot.uio_devices {
            self.device(device);
        }
        for row in snapshot.ref_owners.iter().filter(|row| !row.own) {
            if let Some(owner) = place(&mut self.owners, row.owner.clone(), &mut self.refused) {
                join(&mut owner.grace_period, &row.grace_period_ns);
                join(&mut owner.drain, &row.drain_ns);
            }
        }
        for row in &snapshot.aio_drains {
            let cause = match row.cause {
                DrainCause::ExitAio => "exit",
                DrainCause::IoDestroy => "destroy",
            };
            let key = (row.comm.clone(), cause);
            if let Some(drains) = place(&mut self.drains, key, &mut self.refused) {
                drains.wall.record(row.wall_ns);
                for context in &row.detail {
                    drains.context.record(context.total_ns);
                }
            }
        }
    }

    fn device(&mut self, row: &UioDevice) {
        let Some(device) = place(&mut self.devices, row.sysfs_name.clone(), &mut self.refused) else {
            return;
        };
        device.name = row.name.clone().or(device.name.take());
        for op in &row.ops {
            let Some(ours) = place(&mut device.ops, op.op.clone(), &mut self.refused) else {
                continue;
            };
            ours.count = ours.count.saturating_add(op.count);
            join(&mut ours.latency, &op.latency_ns);
            if let Some(wait) = &op.wait_ns {
                ours.wait_known = true;
                join(&mut ours.wait, &with_zeros(wait, op.count));
                device.waited_ns = device.waited_ns.saturating_add(wait.sum);
            }
            if let Some(hold) = &op.hold_ns {
                join(&mut ours.hold, hold);
                if row.utilization.is_some() {
                    let held = device.held_ns.get_or_insert(0);
                    *held = held.saturating_add(hold.sum);
                }
            }
        }
    }

    /// Sentences about the source, with what found no place.
    pub fn all_remarks(&self) -> Vec<String> {
        let mut remarks = self.remarks.clone();
        if self.omitted > 0 {
            remarks.push(format!(
                "{} no longer kept one by one: the comparison of drains is of the others",
                crate::format::plural(self.omitted, "AIO drain")
            ));
        }
        if self.refused > 0 {
            remarks.push(format!(
                "{} beyond the {MAX_NAMES} names that are compared",
                crate::format::plural(self.refused, "row")
            ));
        }
        remarks
    }

    fn shares(&self, device: Option<&Device>) -> Option<Shares> {
        let device = device?;
        let per_time = |ns: u64| ns as f64 / self.duration_ns.max(1) as f64;
        Some(Shares {
            held: device.held_ns.map(|ns| per_time(ns).min(1.0)),
            waiting: per_time(device.waited_ns),
        })
    }
}

/// The place of a name; `None` and counted when there are too many.
fn place<'a, K: Ord, V: Default>(
    map: &'a mut BTreeMap<K, V>,
    key: K,
    refused: &mut u64,
) -> Option<&'a mut V> {
    if map.len() >= MAX_NAMES && !map.contains_key(&key) {
        *refused += 1;
        return None;
    }
    Some(map.entry(key).or_default())
}

fn join(ours: &mut Histogram, theirs: &Histogram) {
    *ours = histogram::merge([&*ours, theirs].into_iter());
}

/// Waits of all `count` operations: those that did not wait waited for 0 ns. So fewer waits show, not only shorter ones.
fn with_zeros(wait: &Histogram, count: u64) -> Histogram {
    let zeros = Histogram {
        count: count.saturating_sub(wait.count),
        buckets: vec![Bucket {
            lo: 0,
            hi: 1,
            count: count.saturating_sub(wait.count),
        }],
        ..Histogram::default()
    };
    histogram::merge([wait, &zeros].into_iter())
}

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

/// Share of the time that a device's lock was held, and threads waiting for it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Shares {
    /// 0 to 1; `None`: not measured.
    pub held: Option<f64>,
    /// Mean number of threads.
    pub waiting: f64,
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
