//! How figures went over time: a sample for each interval, of bounded number whatever the length of the trace.
//!
//! Sums are kept, not shares, so that two samples make one by adding. When there are too many, neighbours are joined
//! and the interval doubles.

use crate::event::{DeviceKey, MonotonicNs};
use crate::model::histogram;
use crate::model::snapshot::{Histogram, Snapshot};

/// Samples kept, at most.
pub const MAX_SAMPLES: usize = 512;
/// Shortest interval, ns: figures counted in the kernel are not read more often than this.
const FIRST_INTERVAL_NS: u64 = 100_000_000;

/// One stretch of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Begin, CLOCK_MONOTONIC.
    pub start_ns: MonotonicNs,
    /// End, CLOCK_MONOTONIC.
    pub end_ns: MonotonicNs,
    /// Devices with operations in it, ascending.
    pub devices: Vec<DeviceSample>,
    /// Grace periods that ended in it, of all owners but the tool's own.
    pub grace_period: Histogram,
    /// Operations and events seen.
    pub seen: u64,
    /// Of them lost.
    pub lost: u64,
}

/// One device in one stretch of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceSample {
    /// Which.
    pub device: DeviceKey,
    /// Time info_lock was held, ns; `None`: not measured.
    pub held_ns: Option<u64>,
    /// Time threads waited for it, ns, summed over threads.
    pub waited_ns: u64,
    /// Operations.
    pub ops: u64,
}

impl Sample {
    /// Length, ns, at least 1.
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns).max(1)
    }

    /// What a device did in it.
    pub fn device(&self, device: DeviceKey) -> Option<&DeviceSample> {
        self.devices.iter().find(|d| d.device == device)
    }

    /// Share of the time info_lock was held, 0 to 1; without operations 0. `None`: not measured.
    pub fn utilization(&self, device: DeviceKey) -> Option<f64> {
        match self.device(device) {
            None => Some(0.0),
            Some(d) => d
                .held_ns
                .map(|held| (held as f64 / self.duration_ns() as f64).min(1.0)),
        }
    }

    /// Threads waiting for info_lock on average.
    pub fn mean_waiters(&self, device: DeviceKey) -> f64 {
        self.device(device)
            .map_or(0.0, |d| d.waited_ns as f64 / self.duration_ns() as f64)
    }

    fn of(interval: &Snapshot) -> Sample {
        let mut devices: Vec<DeviceSample> = interval
            .uio_devices
            .iter()
            .filter(|d| !d.ops.is_empty())
            .map(|d| DeviceSample {
                device: DeviceKey {
                    minor: d.minor,
                    generation: d.generation,
                },
                held_ns: d.utilization.map(|_| {
                    let holds = d.ops.iter().filter_map(|op| op.hold_ns.as_ref());
                    holds.fold(0u64, |sum, h| sum.saturating_add(h.sum))
                }),
                waited_ns: d
                    .ops
                    .iter()
                    .filter_map(|op| op.wait_ns.as_ref())
                    .fold(0u64, |sum, w| sum.saturating_add(w.sum)),
                ops: d.ops.iter().map(|op| op.count).sum(),
            })
            .collect();
        devices.sort_by_key(|d| d.device);
        let owners = interval.ref_owners.iter().filter(|o| !o.own);
        Sample {
            start_ns: interval.interval.start_ns,
            end_ns: interval.interval.end_ns,
            devices,
            grace_period: histogram::merge(owners.map(|o| &o.grace_period_ns)),
            seen: interval.loss.seen,
            lost: interval.loss.total(),
        }
    }

    /// Takes in the sample that follows.
    pub fn join(&mut self, next: Sample) {
        self.end_ns = next.end_ns;
        for theirs in next.devices {
            match self.devices.binary_search_by_key(&theirs.device, |d| d.device) {
                Ok(at) => {
                    let Some(ours) = self.devices.get_mut(at) else {
                        continue;
                    };
                    ours.held_ns = match (ours.held_ns, theirs.held_ns) {
                        (Some(a), Some(b)) => Some(a.saturating_add(b)),
                        _ => None,
                    };
                    ours.waited_ns = ours.waited_ns.saturating_add(theirs.waited_ns);
                    ours.ops += theirs.ops;
                }
                Err(at) => self.devices.insert(at, theirs),
            }
        }
        self.grace_period = histogram::merge([&self.grace_period, &next.grace_period].into_iter());
        self.seen = self.seen.saturating_add(next.seen);
        self.lost = self.lost.saturating_add(next.lost);
    }
}

/// Samples so far.
#[derive(Debug)]
pub(super) struct Timeline {
    samples: Vec<Sample>,
    interval_ns: u64,
    last_ns: MonotonicNs,
}

impl Timeline {
    pub(super) fn new(start_ns: MonotonicNs) -> Timeline {
        Timeline {
            samples: Vec::new(),
            interval_ns: FIRST_INTERVAL_NS,
            last_ns: start_ns,
        }
    }

    /// Has the running interval lasted long enough?
    pub(super) fn is_due(&self, now_ns: MonotonicNs) -> bool {
        now_ns.saturating_sub(self.last_ns) >= self.interval_ns
    }

    /// The figures of an interval that ends now.
    pub(super) fn push(&mut self, interval: &Snapshot) {
        self.last_ns = interval.interval.end_ns;
        self.samples.push(Sample::of(interval));
        if self.samples.len() >= MAX_SAMPLES {
            self.halve();
        }
    }

    fn halve(&mut self) {
        let mut joined: Vec<Sample> = Vec::with_capacity(self.samples.len() / 2 + 1);
        for (i, sample) in std::mem::take(&mut self.samples).into_iter().enumerate() {
            match joined.last_mut() {
                Some(last) if i % 2 == 1 => last.join(sample),
                _ => joined.push(sample),
            }
        }
        self.samples = joined;
        // As long as two samples really are: they may have come less often than asked for.
        self.interval_ns = self.interval_ns.saturating_mul(2);
    }

    pub(super) fn finish(self) -> Vec<Sample> {
        self.samples
    }
}
