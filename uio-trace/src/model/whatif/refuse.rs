//! What forbids a projection.

use super::gain::{at_most, most, other_work, with_margin};
use super::words::Wide;
use super::{Figures, HIGH_MARGIN, WORTHLESS, main_op, nothing, outcome, share};
use crate::format::{duration, percent, plural};
use crate::model::snapshot::{UioLock, UioOpFigures, WhatIf, WhatIfVerdict};

/// Operations below which nothing is projected.
pub const MIN_OPS: u64 = 100;
/// Waits below which no gain is projected.
pub const MIN_WAITS: u64 = 30;
/// Shortest stretch of time, ns, and how many mean latencies it must hold: a wait counts where it ends.
pub const MIN_TIME_NS: u64 = 100_000_000;
const MIN_LATENCIES: f64 = 10.0;
/// Share of lost operations that makes sums untrustworthy.
pub const MAX_LOST_SHARE: f64 = 0.01;
/// Share of waits that began on the holder's CPU from which the threads are taken to share one CPU.
pub const ONE_CPU_SHARE: f64 = 0.8;
/// Threads that use so much of one CPU (and no more than its inverse) fill it.
pub const ONE_CPU_BUSY: f64 = 0.8;
/// Time waiting for the driver's locks per time in operations outside of info_lock's wait from which they are the next limit.
pub const DRIVER_LOCK_SHARE: f64 = 0.1;
/// Share of the waiting that one kind of operation must have, and share of its waits that must be behind its own kind.
const MAIN_OP_SHARE: f64 = 0.8;
/// Share of a kind's holds that are four times shorter or longer than the median from which its calls are not alike.
const UNLIKE_SHARE: f64 = 0.2;
/// Difference that makes no other call, ns: an uncontended hold is counted from the entry.
const SAME_NS: u64 = 10_000;

/// What forbids a projection, most basic first.
pub(super) fn refuse(f: &Figures<'_>) -> Option<WhatIf> {
    let refused = |reason: &str, text: String| Some(outcome(f, WhatIfVerdict::Refused, reason, text));
    let ops = sum(f.ops, |o| o.count);
    let contended = sum(f.ops, |o| o.contended);
    let latency = sum(f.ops, |o| o.latency_ns.sum);
    let wait = sum(f.ops, |o| o.wait_ns.as_ref().map_or(0, |h| h.sum));
    let lock_ns = wait.saturating_add(sum(f.ops, |o| o.wake_ns));
    let main = main_op(f.ops);
    match (f.lock, main) {
        (UioLock::PercpuRef, _) => {
            return refused(
                "no_lock",
                "a percpu_ref protects the device: there is no info_lock to remove".into(),
            );
        }
        _ if !f.wait_measured => {
            return refused(
                "not_measured",
                "waits for info_lock are not measured on this kernel".into(),
            );
        }
        (_, None) => return refused("few_ops", "no operation but reads was seen".into()),
        _ => {}
    }
    let main = main?;
    if ops < MIN_OPS {
        let text = format!("no projection: only {}", plural(ops, "operation"));
        return refused("few_ops", text);
    }
    if f.lost_share > MAX_LOST_SHARE {
        let text = format!(
            "no projection: {} of the operations were lost",
            percent(f.lost_share)
        );
        return refused("losses", text);
    }
    let long = latency as f64 / ops as f64 * MIN_LATENCIES;
    if f.duration_ns < MIN_TIME_NS || (f.duration_ns as f64) < long {
        let text = format!(
            "no projection: {} are too short a time for operations of {} on average",
            duration(f.duration_ns),
            duration(latency / ops),
        );
        return refused("short_time", text);
    }
    if contended == 0 {
        return Some(nothing(f, "nobody waited for info_lock"));
    }
    // What all waits together can be worth, whoever waited.
    let most = most(latency, lock_ns);
    if most < WORTHLESS {
        let text = format!(
            "all waits together are {} of the callers' time",
            percent(share(wait, latency))
        );
        return Some(nothing(f, &text));
    }
    if let Some(waiting) = f
        .busy_share
        .map(|busy| lock_ns as f64 / (f.duration_ns.max(1) as f64 * busy))
        && f.lock == UioLock::Mutex
        && with_margin(at_most(&f.behind, waiting), HIGH_MARGIN) < WORTHLESS
    {
        let text = format!("on average {waiting:.2} threads wait or wake others");
        return Some(nothing(f, &text));
    }
    if f.lock == UioLock::Unknown {
        return refused(
            "unknown_lock",
            "no projection: what serialises the device is not known".into(),
        );
    }
    if contended < MIN_WAITS {
        let text = format!("no projection: only {} for info_lock", plural(contended, "wait"));
        return refused("few_waits", text);
    }
    let rest = latency.saturating_sub(wait).max(1);
    if f.driver_wait_ns as f64 >= DRIVER_LOCK_SHARE * rest as f64 {
        let text = "no projection: a lock of the driver would serialise instead";
        return refused("driver_lock", text.into());
    }
    if f.cpus == Some(1) && f.cpu_use.is_none() {
        let text = "there is one CPU: without info_lock the threads would still share it, and whether holders sleep is \
                    not known";
        return refused("one_cpu", text.into());
    }
    let same = share(f.behind.same_cpu, f.behind.all);
    // Where their CPU time is known, it says whether they fill that CPU.
    if same >= ONE_CPU_SHARE
        && f.cpu_use
            .is_none_or(|used| (ONE_CPU_BUSY..=1.0 / ONE_CPU_BUSY).contains(&used.busy))
    {
        let text = format!(
            "{} of the waits began on the CPU the holder was on: without info_lock the threads would still share that CPU",
            percent(same),
        );
        return refused("one_cpu", text);
    }
    // What would decide is said first, where no single factor describes the load.
    let mixed = |reason: &str, text: String| match f.cpu_use.and_then(|cpu_use| other_work(f.cpus, cpu_use)) {
        Some(others) => {
            let wide = Wide::Others {
                cpus: f.cpus.map_or(0.0, f64::from),
                others,
            };
            let (reason, why) = wide.words(0);
            refused(reason, format!("no projection: {why}"))
        }
        None => refused(reason, text),
    };
    if share(main.wait_ns.as_ref().map_or(0, |h| h.sum), wait) < MAIN_OP_SHARE {
        return mixed(
            "mixed_ops",
            "no projection: several kinds of operations wait, no single factor describes them".into(),
        );
    }
    let own = share(f.behind.own_wait_ns, f.behind.wait_ns);
    if f.behind.wait_ns > 0 && own < MAIN_OP_SHARE {
        let text = format!(
            "no projection: {} of the waiting of {} is behind other kinds of operations",
            percent(1.0 - own),
            main.op,
        );
        return mixed("other_ops", text);
    }
    unlike(main).then(|| {
        let text = format!(
            "no projection: holds of {} differ too much for one factor",
            main.op
        );
        outcome(f, WhatIfVerdict::Refused, "unlike_calls", text)
    })
}

/// A fifth of the holds is four times as short or as long as the median.
fn unlike(op: &UioOpFigures) -> bool {
    let Some(hold) = op.hold_ns.as_ref().filter(|h| h.count > 0 && h.p50 > 0) else {
        return false;
    };
    let far = hold
        .buckets
        .iter()
        .filter(|b| b.hi.saturating_add(SAME_NS) <= hold.p50 || b.lo >= hold.p50.saturating_add(SAME_NS))
        .filter(|b| b.hi <= hold.p50 / 4 || b.lo >= hold.p50.saturating_mul(4))
        .fold(0u64, |sum, b| sum.saturating_add(b.count));
    share(far, hold.count) >= UNLIKE_SHARE
}

fn sum(ops: &[UioOpFigures], pick: impl Fn(&UioOpFigures) -> u64) -> u64 {
    ops.iter()
        .filter(|o| o.op != "read")
        .fold(0, |sum, op| sum.saturating_add(pick(op)))
}
