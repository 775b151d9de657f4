//! The counters that tell what was lost: kernel side, rings, decoder, and the model's own bounds.

use super::limits::MAX_COUNT;
use super::snapshot::Loss;
use std::collections::BTreeMap;
use uio_trace_common::loss as raw;

/// Name under which user space counts the events it decoded.
pub const DECODED: &str = "decoded";

/// Losses that only concern the aggregated UIO figures or the slow samples: no lifecycle event can be among them.
const NOT_LIFECYCLE: [u32; 8] = [
    raw::DROP_BLOCKERS_FULL,
    raw::DROP_INFLIGHT_COLLISION,
    raw::DROP_ENTRY_MISSED,
    raw::DROP_EXIT_WITHOUT_ENTRY,
    raw::DROP_EXIT_MISSED,
    raw::DROP_SERIES_FULL,
    raw::DROP_MINOR_RANGE,
    raw::DROP_SLOW_RING,
];

/// The counters: absolute, and as they were when the interval began.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    now: BTreeMap<String, u64>,
    base: BTreeMap<String, u64>,
    /// Ring events applied; used when nobody counts [`DECODED`].
    pub applied: u64,
    applied_base: u64,
}

impl Counters {
    /// New absolute figures. True when a lifecycle event may have been lost since the last ones.
    pub fn apply(&mut self, counters: BTreeMap<String, u64>) -> bool {
        let mut lifecycle_lost = false;
        for (name, value) in counters {
            let value = value.min(MAX_COUNT);
            let old = self.now.get(&name).copied().unwrap_or(0);
            lifecycle_lost |= value > old && concerns_lifecycle(&name);
            self.now.insert(name, value.max(old));
        }
        lifecycle_lost
    }

    /// Returns of UIO operations were missed: a slot may say that one is under way which is over.
    pub fn missed_returns(&self) -> bool {
        self.now
            .get(raw::name(raw::DROP_EXIT_MISSED))
            .is_some_and(|n| *n > 0)
    }

    /// A new interval begins.
    pub fn begin_interval(&mut self) {
        self.base.clone_from(&self.now);
        self.applied_base = self.applied;
    }

    /// The `loss` record, kernel and decoder part.
    pub fn loss(&self, interval: bool) -> Loss {
        let get = |name: &str| {
            let now = self.now.get(name).copied().unwrap_or(0);
            let base = if interval {
                self.base.get(name).copied().unwrap_or(0)
            } else {
                0
            };
            now.saturating_sub(base)
        };
        let of = |index: u32| get(raw::name(index));
        let decoded = match self.now.contains_key(DECODED) {
            true => get(DECODED),
            false => self.applied - if interval { self.applied_base } else { 0 },
        };
        let dropped = self
            .now
            .keys()
            .filter(|name| is_loss(name))
            .map(|name| (name.clone(), get(name)));
        Loss {
            seen: of(raw::UIO_SEEN)
                + of(raw::LIFECYCLE_SEEN)
                + of(raw::SLOW_SEEN)
                + of(raw::DROP_BREAKPOINT_MISSED)
                + of(raw::DROP_ENTRY_MISSED)
                + of(raw::DROP_PROGRAM_MISSED),
            aggregated: of(raw::UIO_AGGREGATED),
            submitted: of(raw::LIFECYCLE_SUBMITTED) + of(raw::SLOW_SUBMITTED),
            decoded,
            ignored: of(raw::UIO_NO_DEVICE),
            dropped: dropped.filter(|d| d.1 > 0).collect(),
            uncertain: 0,
        }
    }
}

/// Every counter that is not a plain figure is the reason of a loss, also those user space adds.
fn is_loss(name: &str) -> bool {
    let figures = [
        raw::UIO_SEEN,
        raw::UIO_AGGREGATED,
        raw::LIFECYCLE_SEEN,
        raw::LIFECYCLE_SUBMITTED,
        raw::SLOW_SEEN,
        raw::SLOW_SUBMITTED,
        raw::UIO_NO_DEVICE,
        raw::REF_KILL_RUNS,
        raw::REF_SWITCH_RUNS,
    ];
    name != DECODED && name != "reserved" && figures.iter().all(|i| raw::name(*i) != name)
}

fn concerns_lifecycle(name: &str) -> bool {
    is_loss(name) && NOT_LIFECYCLE.iter().all(|i| raw::name(*i) != name)
}
