//! One of two traces that are compared, made of snapshots: everything that is compared, by name.

use super::{Gain, Shares};
use crate::model::histogram::{self, Recorder};
use crate::model::snapshot::{
    Bucket, DrainCause, Histogram, Meta, Snapshot, UioDevice, WhatIf, WhatIfVerdict,
};
use std::collections::BTreeMap;

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
    pub(super) devices: BTreeMap<String, Device>,
    pub(super) owners: BTreeMap<String, Owner>,
    pub(super) drains: BTreeMap<(String, &'static str), Drains>,
    /// Names that found no place.
    refused: u64,
    /// Drains that are not among the rows.
    omitted: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Device {
    pub(super) name: Option<String>,
    /// Utilization is known for all of the intervals.
    pub(super) held_ns: Option<u64>,
    pub(super) waited_ns: u64,
    pub(super) ops: BTreeMap<String, Operation>,
    /// Without info_lock, of all intervals that say something.
    pub(super) gain: Option<Gain>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Operation {
    pub(super) count: u64,
    pub(super) latency: Histogram,
    /// Of all operations, 0 for those that did not wait.
    pub(super) wait: Histogram,
    pub(super) wait_known: bool,
    pub(super) hold: Histogram,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Owner {
    pub(super) grace_period: Histogram,
    pub(super) drain: Histogram,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Drains {
    pub(super) wall: Recorder,
    pub(super) context: Recorder,
    /// Of drains of several contexts: draining together.
    projected: Recorder,
}

impl Drains {
    /// Projections; `None`: no drain had several contexts.
    pub(super) fn projected(&self) -> Option<Histogram> {
        let projected = self.projected.histogram();
        (projected.count > 0).then_some(projected)
    }
}

/// A further interval's projection.
fn widen(gain: &mut Option<Gain>, said: &WhatIf) {
    let (Some(low), Some(high)) = (said.low, said.high) else {
        return;
    };
    if said.verdict == WhatIfVerdict::Refused || !low.is_finite() || !high.is_finite() {
        return;
    }
    match gain {
        None => {
            *gain = Some(Gain {
                low,
                high,
                op: said.op.clone(),
                intervals: 1,
            });
        }
        Some(gain) => {
            gain.low = gain.low.min(low);
            gain.high = gain.high.max(high);
            gain.op.take_if(|op| Some(&*op) != said.op.as_ref());
            gain.intervals += 1;
        }
    }
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
                if row.contexts > 1 {
                    drains.projected.record(row.projected_parallel_ns);
                }
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
        widen(&mut device.gain, &row.what_if);
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

    /// A device's lock in the time of the side.
    pub(super) fn shares(&self, device: Option<&Device>) -> Option<Shares> {
        let device = device?;
        let per_time = |ns: u64| ns as f64 / self.duration_ns.max(1) as f64;
        Some(Shares {
            held: device.held_ns.map(|ns| per_time(ns).min(1.0)),
            waiting: per_time(device.waited_ns),
            gain: device.gain.clone(),
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
