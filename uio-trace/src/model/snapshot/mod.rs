//! The plain figures every reader shows: TUI, text, JSON and exporter take a [`Snapshot`] and nothing else.
//!
//! The names are those of the JSON records (docs/json.md); each struct serialises to one record. Durations are
//! nanoseconds and end in `_ns`.

mod drains;
mod probes;
mod uio;
mod waiting;

pub use drains::{AioContext, AioDrain, DrainCause, DrainVerdict, KillStack, Phases, RefOwner};
pub use probes::{CONTENTION_HOOK, Cost, LOCK_RELEASE_HOOK, Meta, Probe, ProbeState, sees_waits};
pub use uio::{
    Backstore, Blocker, OpPair, OpenDevice, OpenProcess, RefCourse, RefHolder, SlowOp, UioDevice, UioLock,
    UioOpFigures, Unregister, WhatIf, WhatIfVerdict,
};
pub use waiting::{InProgress, InUio};

use super::history::History;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything shown for one stretch of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The stretch.
    pub interval: Interval,
    /// UIO driver: present or not; `None`: not known, since nothing has told of it.
    pub uio_present: Option<bool>,
    /// UIO devices that exist, or had operations in the interval; by minor, then generation.
    pub uio_devices: Vec<UioDevice>,
    /// percpu_ref owners with activity in the interval, or dying refs; by number of kills, descending.
    pub ref_owners: Vec<RefOwner>,
    /// Grace periods of all percpu_refs but the tool's own: how long RCU takes here.
    pub grace_period_ns: Histogram,
    /// AIO drains that ended in the interval, oldest first (bounded: see `aio_drains_omitted`).
    pub aio_drains: Vec<AioDrain>,
    /// Drains that ended in the interval and are no longer kept one by one.
    pub aio_drains_omitted: u64,
    /// Begun and not ended, longest first.
    pub in_progress: Vec<InProgress>,
    /// Named diagnoses, most time lost first. Never empty: "nothing here" is one.
    pub findings: Vec<Finding>,
    /// Slow UIO operations of the interval, longest first (bounded).
    pub slow_ops: Vec<SlowOp>,
    /// What was lost.
    pub loss: Loss,
    /// Probes.
    pub probes: Vec<Probe>,
    /// Figures over time, for plots; no record of the JSON output.
    #[serde(skip)]
    pub history: Arc<History>,
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Begin, CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// End, CLOCK_MONOTONIC.
    pub end_ns: u64,
    /// end - start.
    pub duration_ns: u64,
}

/// A distribution. Percentiles are midpoints of log-linear buckets (at most 6.25 % off), clamped to min and max.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Number of values.
    pub count: u64,
    /// Their sum (exact), ns.
    pub sum: u64,
    /// Smallest, ns (exact since the start; a bucket bound for a later interval); 0 when empty.
    pub min: u64,
    /// Largest, ns (likewise).
    pub max: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Non-empty buckets, ascending.
    pub buckets: Vec<Bucket>,
}

/// Values in [lo, hi), ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Lowest value.
    pub lo: u64,
    /// First value above.
    pub hi: u64,
    /// How many.
    pub count: u64,
}

/// How bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// For information, also "nothing here".
    Info,
    /// Costs time.
    Warning,
    /// Stuck, or most of the time lost.
    Critical,
}

/// Record `finding`: a named diagnosis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable name: `uio_serialised`, `aio_serial_destroy`, `nothing_here`, ...
    pub id: String,
    /// How bad.
    pub severity: Severity,
    /// On what: `uio0 (name)`, `fio (1234)`.
    pub subject: String,
    /// One sentence with numbers and units.
    pub text: String,
    /// Time lost per second of wall time, for ranking.
    pub cost: f64,
    /// The numbers of the sentence.
    pub evidence: BTreeMap<String, serde_json::Value>,
}

/// Record `loss`. Reconciles: seen = aggregated + submitted + ignored + dropped + in flight; submitted = decoded + queued.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Operations and events seen in the kernel.
    pub seen: u64,
    /// Counted into histograms there.
    pub aggregated: u64,
    /// Put into a ring.
    pub submitted: u64,
    /// Taken out and understood here.
    pub decoded: u64,
    /// Operations seen and rightly not counted: they left before the lock, or had no device.
    pub ignored: u64,
    /// Lost, by reason; only reasons that occurred.
    pub dropped: BTreeMap<String, u64>,
    /// Open intervals whose end may be among the lost.
    pub uncertain: u64,
}

impl Loss {
    /// All that was lost.
    pub fn total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Whether the kernel's count of what was seen has been read: where more was lost than seen it cannot be all.
    pub fn seen_known(&self) -> bool {
        self.total() <= self.seen
    }

    /// What was lost for these reasons (`uio_trace_common::loss`).
    pub fn of(&self, reasons: &[u32]) -> u64 {
        let lost = |reason: &u32| self.dropped.get(uio_trace_common::loss::name(*reason));
        reasons
            .iter()
            .filter_map(lost)
            .fold(0, |sum, n| sum.saturating_add(*n))
    }
}
