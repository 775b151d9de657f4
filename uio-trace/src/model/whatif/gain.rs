//! The laws: plain functions over how many threads there are, wait and compute.

use super::behind::Behind;
use super::share;
use crate::model::threads::CpuUse;

/// Share of the CPUs below which none is idle, and from which other work has a part of them.
const SOME_CPUS: f64 = 0.1;

/// Gain when threads do nothing but operations (Z = 0): R / (R - W), with what goes with the waits.
pub(super) fn most(latency: u64, lock: u64) -> f64 {
    latency as f64 / latency.saturating_sub(lock).max(1) as f64
}

/// The largest gain that so many waiting threads are worth, whatever the kinds of operations: by [`weighed`], with all whose
/// holds are not those of the main kind, or not known, taken for one thread.
pub(super) fn at_most(behind: &Behind, waiting: f64) -> f64 {
    if behind.turnover().is_some() {
        return 1.0 / (1.0 - waiting).max(f64::MIN_POSITIVE);
    }
    let mut parts: Vec<f64> = behind
        .threads
        .iter()
        .map(|(_, n)| share(*n, behind.all))
        .collect();
    parts.push((1.0 - parts.iter().sum::<f64>()).max(0.0));
    weighed(&parts, waiting, waiting)
}

/// With threads weighed by their part in the operations: each with its own time outside of them. A part is taken from how
/// often others began to wait behind the thread; no thread can be in operations more than all the time, and what that
/// cuts off gains nothing.
pub(super) fn weighed(parts: &[f64], in_ops: f64, waiting: f64) -> f64 {
    let capped = || {
        parts
            .iter()
            .map(|part| part.min(1.0 / in_ops.max(f64::MIN_POSITIVE)))
    };
    let gained: f64 = capped()
        .map(|part| part / (1.0 - part * waiting).max(f64::MIN_POSITIVE))
        .sum();
    gained + (1.0 - capped().sum::<f64>()).max(0.0)
}

/// CPUs that do the threads' work, least and most: what they use less what spins for the lock or wakes who waits for it.
///
/// Where spinning is not measured: waiters spin while the lock's holder is on a CPU, at most one on each other CPU; so of the
/// CPUs in use U at least U / M work, and at least what is left when all that wait spin.
pub(super) fn work(
    cpu_use: CpuUse,
    threads: f64,
    waiting: f64,
    spinning: Option<f64>,
    cpus: f64,
) -> (f64, f64) {
    let most = cpu_use.busy.min(threads - waiting).max(f64::MIN_POSITIVE);
    let least = (cpu_use.busy - spinning.unwrap_or(waiting)).max(cpu_use.busy / cpus);
    match spinning {
        Some(_) => (least.min(most), least.min(most)),
        None => (least.min(most), most),
    }
}

/// Bounds of the gain when threads share CPUs (at least `few`, at most `many`), from the CPU time they use.
///
/// Without the lock at most CPUs / work times as much is done (utilization law). What of a thread's time is neither waiting
/// for the lock nor work is a delay that no CPU shortens, or waiting for a CPU. Low: threads queue for the few CPUs as in a
/// closed network with random service times (mean value analysis; several CPUs as a fast one and a delay, after Seidmann).
/// High: nobody queues.
pub(super) fn on_cpus(
    loop_: &Loop,
    (few, many): (f64, f64),
    (least, most): (f64, f64),
    runqueue: f64,
) -> (f64, f64) {
    let outside = (loop_.threads - loop_.waiting).max(f64::MIN_POSITIVE);
    let queued = runqueue.min(outside - most);
    let free = loop_.gain * outside / (outside - queued).max(f64::MIN_POSITIVE);
    let high = free.min(many / least);
    let (station, delay) = (most / few, outside - most + most * (few - 1.0) / few);
    let (mut in_queue, mut low) = (0.0, 1.0);
    for n in 1..=loop_.threads.round().clamp(1.0, 4096.0) as u32 {
        let there = station * (1.0 + in_queue);
        low = f64::from(n) / (there + delay);
        in_queue = low * there;
    }
    (low.min(high), high)
}

/// CPUs that the threads are at least spread over, from the share of waits that began on the holder's CPU. On k CPUs evenly, and
/// without regard for where the holder is, it would be 1 / k; whoever computes while holding the lock is met on its own CPU less
/// often than that, but then the share says nothing ([`SHARED_CPUS_SHARE`]).
pub(super) fn spread_over(same_cpu: f64, cpus: f64) -> f64 {
    (1.0 / same_cpu).clamp(1.0, cpus)
}

/// Threads of a closed loop, how many of them wait for the lock or hand it on, and the gain without that when nothing else is
/// short.
pub(super) struct Loop {
    pub threads: f64,
    pub waiting: f64,
    pub gain: f64,
}

pub(super) fn with_margin(gain: f64, margin: f64) -> f64 {
    1.0 + (gain - 1.0).max(0.0) * margin
}

/// CPUs that work for others than these threads, where that is a part and no CPU is idle: then a lock less gives the threads no CPU
/// more, and what they wait for each other they may wait for a CPU instead.
pub(super) fn other_work(cpus: Option<u32>, cpu_use: CpuUse) -> Option<f64> {
    let cpus = f64::from(cpus?);
    let idle = cpu_use.idle?;
    let others = cpus - idle - cpu_use.busy;
    (idle < SOME_CPUS * cpus && others >= SOME_CPUS * cpus).then_some(others)
}
