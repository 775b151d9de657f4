//! What would be gained without info_lock: a range of the throughput's factor, or why there is none.
//!
//! Operational laws of a closed system: N threads, each in turn outside of operations (Z), waiting for the lock (W) and in
//! the rest of its operation (R - W). Interactive response time law: N = X (Z + R); Little's law: X R threads are inside of
//! operations and w = X W of them wait. Without the waits the throughput is N / (Z + R - W), so the gain is N / (N - w). What an
//! operation spends on waking the next waiter when it gives the lock back goes with the waits, and is counted among them.
//! docs/uio-verdict.md derives the bounds and says when they are refused. Plain functions over figures: no clock, no state.

use super::snapshot::{UioLock, UioOpFigures, WhatIf, WhatIfVerdict};
use super::threads::{CpuUse, ThreadId};
use crate::format::{duration, percent, plural};

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
/// From this share on some of the threads share CPUs, however many there are.
const SHARED_CPUS_SHARE: f64 = 0.25;
/// Time waiting for the driver's locks per time in operations outside of info_lock's wait from which they are the next limit.
pub const DRIVER_LOCK_SHARE: f64 = 0.1;
/// Share of the waiting that one kind of operation must have, and share of its waits that must be behind its own kind.
const MAIN_OP_SHARE: f64 = 0.8;
/// Share of the time waited whose holder must be known, to count threads.
const KNOWN_HOLDERS_SHARE: f64 = 0.5;
/// Share of a kind's holds that are four times shorter or longer than the median from which its calls are not alike.
const UNLIKE_SHARE: f64 = 0.2;
/// Difference that makes no other call, ns: an uncontended hold is counted from the entry.
const SAME_NS: u64 = 10_000;
/// A thread with a smaller part of the waits behind it is a guest: it takes no CPU from the others.
pub const GUEST_SHARE: f64 = 0.01;
/// So many times as many threads over the whole time as at once come and go.
const TURNOVER: f64 = 1.25;
/// Share of the CPUs below which none is idle, and from which other work has a part of them.
const SOME_CPUS: f64 = 0.1;
/// What is taken off and put on the calculated gain for what the model leaves out.
const LOW_MARGIN: f64 = 0.82;
const HIGH_MARGIN: f64 = 1.22;
/// The same for a gain without any time outside of operations, which can hardly be exceeded.
const CEILING_MARGIN: f64 = 1.1;
/// The same where the CPU time that threads use is known: the bounds already leave out what is not.
const CPU_LOW_MARGIN: f64 = 0.9;
const CPU_HIGH_MARGIN: f64 = 1.1;
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

impl Behind {
    /// Waits behind the same kind of operation.
    fn own(&self) -> u64 {
        self.threads.iter().map(|(_, waits)| waits).sum()
    }

    /// Threads at once, when new ones take the place of others: over the whole time each has but a small part of the waits.
    fn turnover(&self) -> Option<f64> {
        let at_once = self.at_once?.max(1) as f64;
        let (mut main, mut of_main) = (0, 0);
        let own = self.own();
        for (_, waits) in self
            .threads
            .iter()
            .filter(|(_, waits)| share(*waits, own) >= GUEST_SHARE)
        {
            main += 1;
            of_main += waits;
        }
        (f64::from(main) > TURNOVER * at_once || share(of_main, own) < 1.0 / TURNOVER).then_some(at_once)
    }

    /// Threads that take part: the others come by now and then.
    pub fn main_threads(&self) -> impl Iterator<Item = ThreadId> + '_ {
        let own = self.own();
        self.threads
            .iter()
            .filter(move |(_, waits)| share(*waits, own) >= GUEST_SHARE)
            .map(|(id, _)| *id)
    }
}

/// Waits of one kind of operation by holder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Behind {
    /// Behind each thread that held the lock in the same kind of operation.
    pub threads: Vec<(ThreadId, u64)>,
    /// How many of them there were at once: the median over the readings; `None`: not known.
    pub at_once: Option<usize>,
    /// Time waited behind them, ns.
    pub own_wait_ns: u64,
    /// Time waited behind all holders that are known, ns. A wait whose holder is not known mostly found the lock free: the
    /// kernel counts a thread as contended when it finds others waiting, too.
    pub wait_ns: u64,
    /// Behind all holders.
    pub all: u64,
    /// Of `all`: begun on the CPU the holder was on.
    pub same_cpu: u64,
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
    match refuse(figures) {
        Some(outcome) => outcome,
        None => bounds(figures),
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
        assumptions: Vec::new(),
    }
}

fn sum(ops: &[UioOpFigures], pick: impl Fn(&UioOpFigures) -> u64) -> u64 {
    ops.iter()
        .filter(|o| o.op != "read")
        .fold(0, |sum, op| sum.saturating_add(pick(op)))
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// What forbids a projection, most basic first.
fn refuse(f: &Figures<'_>) -> Option<WhatIf> {
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
    let mixed = |reason: &str, text: String| match f.cpu_use.and_then(|cpu_use| others(f.cpus, cpu_use)) {
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

fn nothing(f: &Figures<'_>, because: &str) -> WhatIf {
    let text = format!("nothing to gain without info_lock: {because}");
    WhatIf {
        low: Some(1.0),
        high: Some(WORTHLESS),
        ..outcome(f, WhatIfVerdict::NothingToGain, "no_waits", text)
    }
}

/// Gain when threads do nothing but operations (Z = 0): R / (R - W), with what goes with the waits.
fn most(latency: u64, lock: u64) -> f64 {
    latency as f64 / latency.saturating_sub(lock).max(1) as f64
}

/// The largest gain that so many waiting threads are worth, whatever the kinds of operations: by [`weighed`], with all whose
/// holds are not those of the main kind, or not known, taken for one thread.
fn at_most(behind: &Behind, waiting: f64) -> f64 {
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

/// With threads weighed by their part in the operations: each with its own time outside of them. A part is taken from how
/// often others began to wait behind the thread; no thread can be in operations more than all the time, and what that
/// cuts off gains nothing.
fn weighed(parts: &[f64], in_ops: f64, waiting: f64) -> f64 {
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
fn work(cpu_use: CpuUse, threads: f64, waiting: f64, spinning: Option<f64>, cpus: f64) -> (f64, f64) {
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
fn on_cpus(loop_: &Loop, (few, many): (f64, f64), (least, most): (f64, f64), runqueue: f64) -> (f64, f64) {
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
fn spread_over(same_cpu: f64, cpus: f64) -> f64 {
    (1.0 / same_cpu).clamp(1.0, cpus)
}

/// Threads of a closed loop, how many of them wait for the lock or hand it on, and the gain without that when nothing else is
/// short.
struct Loop {
    threads: f64,
    waiting: f64,
    gain: f64,
}

fn with_margin(gain: f64, margin: f64) -> f64 {
    1.0 + (gain - 1.0).max(0.0) * margin
}

fn bounds(f: &Figures<'_>) -> WhatIf {
    let Some(op) = main_op(f.ops) else {
        return outcome(
            f,
            WhatIfVerdict::Refused,
            "few_ops",
            "no operation was seen".into(),
        );
    };
    let wait = op.wait_ns.as_ref().map_or(0, |h| h.sum);
    // Pauses of the load as a whole are no time between a thread's operations.
    let time_ns = f.duration_ns.max(1) as f64 * f.busy_share.unwrap_or(1.0);
    let per_time = |ns: u64| ns as f64 / time_ns;
    let in_ops = per_time(op.latency_ns.sum);
    let lock_ns = wait.saturating_add(op.wake_ns);
    let (waiting, waking) = (per_time(lock_ns), per_time(op.wake_ns));
    let ceiling = with_margin(most(op.latency_ns.sum, lock_ns), CEILING_MARGIN);

    let own = f.behind.own();
    let counted = own > 0 && share(f.behind.wait_ns, wait) >= KNOWN_HOLDERS_SHARE;
    let parts: Vec<f64> = f.behind.threads.iter().map(|(_, n)| share(*n, own)).collect();
    // At least as many as were inside at a time; the ends of the time are not exact.
    let turnover = f.behind.turnover();
    let main = parts.iter().filter(|part| **part >= GUEST_SHARE).count() as f64;
    let threads = turnover.unwrap_or(main).max((in_ops * 0.95).ceil());
    let gain = match turnover {
        // Whoever takes part: so many at a time, and alike.
        Some(_) => threads / (threads - waiting).max(f64::MIN_POSITIVE),
        None => weighed(&parts, in_ops, waiting),
    };
    let shared = share(f.behind.same_cpu, f.behind.all) >= SHARED_CPUS_SHARE;
    let (low, high, wide) = match f.cpus.map(f64::from) {
        _ if !counted => (1.0, ceiling, Wide::Threads),
        Some(cpus) if turnover.is_some() => {
            // At least as few as are in operations on average, at most as many as were seen from one reading to the next.
            let burning = (threads - waiting).max(f64::MIN_POSITIVE);
            let low = if shared { 1.0 } else { gain.min(cpus / burning) };
            (with_margin(low, LOW_MARGIN), ceiling, Wide::Turnover)
        }
        None => (1.0, ceiling, Wide::Cpus),
        Some(cpus)
            if let Some(cpu_use) = f.cpu_use
                && (shared || threads > cpus) =>
        {
            let closed = Loop {
                threads,
                waiting,
                gain,
            };
            let spinning = op.spin_ns.map(|ns| per_time(ns) + waking);
            let work = work(cpu_use, threads, waiting, spinning, cpus);
            let few = if shared {
                spread_over(share(f.behind.same_cpu, f.behind.all), cpus)
            } else {
                cpus
            };
            let (low, high) = on_cpus(&closed, (few, cpus), work, cpu_use.runqueue);
            let wide = match op.spin_ns {
                _ if shared => Wide::SharedCpus,
                Some(_) => Wide::Queueing,
                None => Wide::Spinning,
            };
            let high = with_margin(high, CPU_HIGH_MARGIN).min(ceiling);
            (with_margin(low, CPU_LOW_MARGIN), high, wide)
        }
        _ if shared => (1.0, ceiling, Wide::SharedCpus),
        // Every thread can have a CPU of its own.
        Some(cpus) if threads <= cpus => {
            let high = match f.busy_share {
                Some(_) => with_margin(gain, HIGH_MARGIN).min(ceiling),
                None => ceiling,
            };
            (with_margin(gain, LOW_MARGIN), high, Wide::Pauses)
        }
        // All that does not wait may want a CPU; time outside of operations may be waiting for one, and shrink.
        Some(cpus) => {
            let burning = (threads - waiting).max(f64::MIN_POSITIVE);
            let low = with_margin(gain.min(cpus / burning), LOW_MARGIN);
            (low, ceiling, Wide::OnCpu { cpus })
        }
    };
    let others = f.cpu_use.and_then(|cpu_use| others(f.cpus, cpu_use));
    let (low, high, wide) = match (f.cpu_use, others) {
        (Some(cpu_use), Some(others)) if counted => {
            let spinning = op.spin_ns.map(|ns| per_time(ns) + waking);
            let cpus = cpu_use.busy + cpu_use.idle.unwrap_or(0.0) + others;
            let (least, _) = work(cpu_use, threads, waiting, spinning, cpus);
            let most = with_margin((cpus - others) / least, CPU_HIGH_MARGIN);
            (1.0, high.min(most), Wide::Others { cpus, others })
        }
        _ => (low, high, wide),
    };
    // Two digits behind the point, outwards.
    let (low, high) = (low.min(high).max(1.0), high.max(1.0));
    let (low, high) = ((low * 100.0).floor() / 100.0, (high * 100.0).ceil() / 100.0);
    let mut what_if = WhatIf {
        low: Some(low),
        high: Some(high),
        threads: counted.then_some(threads as u64),
        assumptions: assumptions(f, others),
        ..outcome(f, WhatIfVerdict::Range, "", String::new())
    };
    if high < WORTHLESS {
        return match wide {
            Wide::Others { .. } => {
                let (reason, why) = wide.words(threads as u64);
                WhatIf {
                    reason: Some(reason.to_owned()),
                    ..nothing(f, &why)
                }
            }
            _ => nothing(f, "the waits are a small part of the callers' time"),
        };
    }
    if high / low > MAX_WIDTH {
        let (reason, why) = wide.words(threads as u64);
        what_if.verdict = WhatIfVerdict::TooWide;
        what_if.reason = Some(reason.to_owned());
        what_if.text = format!(
            "without info_lock {low:.1} to {high:.1} times as many {} operations, too wide a range to rely on: {why}",
            op.op,
        );
    } else {
        what_if.reason = None;
        what_if.text = format!(
            "without info_lock {low:.1} to {high:.1} times as many {} operations ({}{})",
            op.op,
            plural(threads as u64, "thread"),
            f.cpus
                .map_or_else(String::new, |cpus| format!(", {}", plural(cpus.into(), "CPU"))),
        );
        if let Wide::Others { .. } = wide {
            let (reason, why) = wide.words(threads as u64);
            what_if.reason = Some(reason.to_owned());
            what_if.text = format!("{}: {why}", what_if.text);
        }
    }
    what_if
}

/// What makes a range wide.
enum Wide {
    /// How many threads take part.
    Threads,
    /// How many threads take part at a time, where they come and go.
    Turnover,
    /// Whether the load paused.
    Pauses,
    /// How many CPUs there are.
    Cpus,
    /// Threads that share CPUs.
    SharedCpus,
    /// How much of the CPU time is spinning for the lock.
    Spinning,
    /// How long threads would wait for the CPUs.
    Queueing,
    /// Whether the lock's holder uses its CPU, with fewer CPUs than threads.
    OnCpu { cpus: f64 },
    /// What other work does when there is more of this one: no CPU is idle.
    Others { cpus: f64, others: f64 },
}

impl Wide {
    fn words(&self, threads: u64) -> (&'static str, String) {
        match self {
            Wide::Spinning => (
                "spinning_unknown",
                "how much of the threads' CPU time is spinning for the lock, and how much is work, is not known".to_owned(),
            ),
            Wide::Queueing => (
                "queueing_unknown",
                "how long the threads would wait for each other's CPUs is not known".to_owned(),
            ),
            Wide::Threads => (
                "threads_unknown",
                "who held the lock is not known of enough waits to tell how many threads take part"
                    .to_owned(),
            ),
            Wide::Turnover => (
                "threads_unknown",
                "threads come and go, and how many take part at a time is not known".to_owned(),
            ),
            Wide::Pauses => (
                "pauses_unknown",
                "there are too few samples over time to tell pauses of the load from time between operations".to_owned(),
            ),
            Wide::Cpus => ("cpus_unknown", "the number of CPUs is not known".to_owned()),
            Wide::SharedCpus => (
                "shared_cpus",
                "many waits began on the CPU the holder was on: threads share CPUs, and it is not known whether holders \
                 of the lock use theirs or sleep"
                    .to_owned(),
            ),
            Wide::Others { cpus, others } => (
                "cpus_busy",
                format!(
                    "no CPU is idle, and other work than these threads' has {others:.1} of {}",
                    plural(cpus.round() as u64, "CPU"),
                ),
            ),
            Wide::OnCpu { cpus } => (
                "on_cpu_unknown",
                format!(
                    "{} share {}; nearer the lower end if holders of the lock compute, higher if they sleep, which is not known",
                    plural(threads, "thread"),
                    plural(*cpus as u64, "CPU"),
                ),
            ),
        }
    }
}

/// CPUs that work for others than these threads, where that is a part and no CPU is idle: then a lock less gives the threads no CPU
/// more, and what they wait for each other they may wait for a CPU instead.
fn others(cpus: Option<u32>, cpu_use: CpuUse) -> Option<f64> {
    let cpus = f64::from(cpus?);
    let idle = cpu_use.idle?;
    let others = cpus - idle - cpu_use.busy;
    (idle < SOME_CPUS * cpus && others >= SOME_CPUS * cpus).then_some(others)
}

fn assumptions(f: &Figures<'_>, others: Option<f64>) -> Vec<String> {
    let driver = if f.driver_wait_ns > 0 {
        "waits for the driver's locks do not grow"
    } else {
        "the driver has no lock of its own below"
    };
    [
        "the threads go on as before",
        "the rest of an operation takes as long",
        driver,
        match others {
            None => "the CPUs are free",
            Some(_) => "other work keeps its CPUs, or takes more",
        },
    ]
    .map(str::to_owned)
    .to_vec()
}
