//! What would be gained without info_lock: a range of the throughput's factor, or why there is none.
//!
//! Operational laws of a closed system: N threads, each in turn outside of operations (Z), waiting for the lock (W) and in
//! the rest of its operation (R - W). Interactive response time law: N = X (Z + R); Little's law: X R threads are inside of
//! operations and w = X W of them wait. Without the waits the throughput is N / (Z + R - W), so the gain is N / (N - w). What an
//! operation spends on waking the next waiter when it gives the lock back goes with the waits, and is counted among them.
//! docs/uio-verdict.md derives the bounds and says when they are refused. Plain functions over figures: no clock, no state.

mod behind;
mod bounds;
mod gain;
mod refuse;
mod words;

pub use behind::{Behind, GUEST_SHARE};

use super::snapshot::{UioLock, UioOpFigures, WhatIf, WhatIfVerdict};
use super::threads::CpuUse;

/// What is put on the calculated gain for what the model leaves out.
const HIGH_MARGIN: f64 = 1.22;
/// A wider range than this is not called a projection.
pub const MAX_WIDTH: f64 = 1.5;
/// A gain below this is none.
pub const WORTHLESS: f64 = 1.05;

/// What the projection is made of.
#[derive(Debug, Clone)]
pub struct Figures<'a> {
    /// Length of the stretch, ns.
    pub duration_ns: u64,
    /// Share of it in which the device was busy; `None`: not known whether the load paused.
    pub busy_share: Option<f64>,
    /// CPUs online; `None`: not known.
    pub cpus: Option<u32>,
    /// What serialises the device.
    pub lock: UioLock,
    /// Waits are measured.
    pub wait_measured: bool,
    /// Its operations.
    pub ops: &'a [UioOpFigures],
    /// Waits for other locks inside operations, sum, ns.
    pub driver_wait_ns: u64,
    /// CPUs that the threads of [`Behind::main_threads`] use; `None`: not known.
    pub cpu_use: Option<CpuUse>,
    /// Waits of the kind of operation that waits most, by what held the lock when they began.
    pub behind: Behind,
    /// Share of the operations that is not in the sums, 0..1.
    pub lost_share: f64,
}

/// The kind of operation with the largest sum of waits, reads left out: they sleep for the interrupt.
pub fn main_op(ops: &[UioOpFigures]) -> Option<&UioOpFigures> {
    let waits = |op: &UioOpFigures| op.wait_ns.as_ref().map_or(0, |h| h.sum);
    // The first of equals: the order of the kinds is fixed.
    ops.iter()
        .filter(|o| o.op != "read")
        .rev()
        .max_by_key(|o| (waits(o), o.count))
}

/// Projects the gain.
pub fn project(figures: &Figures<'_>) -> WhatIf {
    match refuse::refuse(figures) {
        Some(outcome) => outcome,
        None => bounds::bounds(figures),
    }
}

fn outcome(figures: &Figures<'_>, verdict: WhatIfVerdict, reason: &str, text: String) -> WhatIf {
    WhatIf {
        verdict,
        reason: Some(reason.to_owned()),
        text,
        low: None,
        high: None,
        op: main_op(figures.ops).map(|op| op.op.clone()),
        threads: None,
        cpus: figures.cpus,
        cpu_use: figures.cpu_use,
        assumptions: Vec::new(),
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

fn nothing(f: &Figures<'_>, because: &str) -> WhatIf {
    let text = format!("nothing to gain without info_lock: {because}");
    WhatIf {
        low: Some(1.0),
        high: Some(WORTHLESS),
        ..outcome(f, WhatIfVerdict::NothingToGain, "no_waits", text)
    }
}
