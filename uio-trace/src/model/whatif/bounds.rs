//! The range: which laws hold of a load, what is known of it, and what is said of it then.

use super::gain::{Loop, most, on_cpus, other_work, spread_over, weighed, with_margin, work};
use super::words::{Wide, assumptions};
use super::{Figures, GUEST_SHARE, HIGH_MARGIN, MAX_WIDTH, WORTHLESS, main_op, nothing, outcome, share};
use crate::format::plural;
use crate::model::snapshot::{UioOpFigures, WhatIf, WhatIfVerdict};
use crate::model::threads::CpuUse;

/// From this share on some of the threads share CPUs, however many there are.
const SHARED_CPUS_SHARE: f64 = 0.25;
/// Share of the time waited whose holder must be known, to count threads.
const KNOWN_HOLDERS_SHARE: f64 = 0.5;
/// What is taken off the calculated gain for what the model leaves out; [`HIGH_MARGIN`] is put on.
const LOW_MARGIN: f64 = 0.82;
/// The same for a gain without any time outside of operations, which can hardly be exceeded.
const CEILING_MARGIN: f64 = 1.1;
/// The same where the CPU time that threads use is known: the bounds already leave out what is not.
const CPU_LOW_MARGIN: f64 = 0.9;
const CPU_HIGH_MARGIN: f64 = 1.1;

/// The load as a closed loop.
struct Load {
    closed: Loop,
    /// Gain of threads that do nothing but operations, with its margin.
    ceiling: f64,
    /// The threads are known of enough waits.
    counted: bool,
    /// Threads come and go.
    turnover: bool,
    /// Share of the waits that began on the holder's CPU.
    same_cpu: f64,
    /// CPUs that spin for the lock or wake who waits for it; `None`: not known.
    spinning: Option<f64>,
}

impl Load {
    fn of(f: &Figures<'_>, op: &UioOpFigures) -> Load {
        let wait = op.wait_ns.as_ref().map_or(0, |h| h.sum);
        // Pauses of the load as a whole are no time between a thread's operations.
        let time_ns = f.duration_ns.max(1) as f64 * f.busy_share.unwrap_or(1.0);
        let per_time = |ns: u64| ns as f64 / time_ns;
        let in_ops = per_time(op.latency_ns.sum);
        let lock_ns = wait.saturating_add(op.wake_ns);
        let waiting = per_time(lock_ns);

        let own = f.behind.own();
        let parts: Vec<f64> = f.behind.threads.iter().map(|(_, n)| share(*n, own)).collect();
        let turnover = f.behind.turnover();
        let main = parts.iter().filter(|part| **part >= GUEST_SHARE).count() as f64;
        // At least as many as were inside at a time; the ends of the time are not exact.
        let threads = turnover.unwrap_or(main).max((in_ops * 0.95).ceil());
        let gain = match turnover {
            // Whoever takes part: so many at a time, and alike.
            Some(_) => threads / (threads - waiting).max(f64::MIN_POSITIVE),
            None => weighed(&parts, in_ops, waiting),
        };
        Load {
            closed: Loop {
                threads,
                waiting,
                gain,
            },
            ceiling: with_margin(most(op.latency_ns.sum, lock_ns), CEILING_MARGIN),
            counted: own > 0 && share(f.behind.wait_ns, wait) >= KNOWN_HOLDERS_SHARE,
            turnover: turnover.is_some(),
            same_cpu: share(f.behind.same_cpu, f.behind.all),
            spinning: op.spin_ns.map(|ns| per_time(ns) + per_time(op.wake_ns)),
        }
    }

    /// Some threads share CPUs.
    fn shared(&self) -> bool {
        self.same_cpu >= SHARED_CPUS_SHARE
    }

    /// CPUs that do the threads' work, least and most.
    fn work(&self, cpu_use: CpuUse, cpus: f64) -> (f64, f64) {
        work(
            cpu_use,
            self.closed.threads,
            self.closed.waiting,
            self.spinning,
            cpus,
        )
    }

    /// Gain when all that does not wait wants a CPU.
    fn all_compute(&self, cpus: f64) -> f64 {
        let burning = (self.closed.threads - self.closed.waiting).max(f64::MIN_POSITIVE);
        self.closed.gain.min(cpus / burning)
    }

    /// Bounds of the gain, and what makes them as wide as they are, other work left out.
    fn range(&self, f: &Figures<'_>) -> (f64, f64, Wide) {
        let Loop { threads, gain, .. } = self.closed;
        if !self.counted {
            return (1.0, self.ceiling, Wide::Threads);
        }
        let Some(cpus) = f.cpus.map(f64::from) else {
            return (1.0, self.ceiling, Wide::Cpus);
        };
        if self.turnover {
            // At least as few as are in operations on average, at most as many as were seen from one reading to the next.
            let low = if self.shared() {
                1.0
            } else {
                self.all_compute(cpus)
            };
            return (with_margin(low, LOW_MARGIN), self.ceiling, Wide::Turnover);
        }
        match f.cpu_use {
            Some(cpu_use) if self.shared() || threads > cpus => self.on_cpus(cpu_use, cpus),
            _ if self.shared() => (1.0, self.ceiling, Wide::SharedCpus),
            // Every thread can have a CPU of its own.
            _ if threads <= cpus => {
                let high = match f.busy_share {
                    Some(_) => with_margin(gain, HIGH_MARGIN).min(self.ceiling),
                    None => self.ceiling,
                };
                (with_margin(gain, LOW_MARGIN), high, Wide::Pauses)
            }
            // All that does not wait may want a CPU; time outside of operations may be waiting for one, and shrink.
            _ => {
                let low = with_margin(self.all_compute(cpus), LOW_MARGIN);
                (low, self.ceiling, Wide::OnCpu { cpus })
            }
        }
    }

    /// The same where threads share CPUs, and how much they use of them is known.
    fn on_cpus(&self, cpu_use: CpuUse, cpus: f64) -> (f64, f64, Wide) {
        let few = match self.shared() {
            true => spread_over(self.same_cpu, cpus),
            false => cpus,
        };
        let work = self.work(cpu_use, cpus);
        let (low, high) = on_cpus(&self.closed, (few, cpus), work, cpu_use.runqueue);
        let wide = match self.spinning {
            _ if self.shared() => Wide::SharedCpus,
            Some(_) => Wide::Queueing,
            None => Wide::Spinning,
        };
        let high = with_margin(high, CPU_HIGH_MARGIN).min(self.ceiling);
        (with_margin(low, CPU_LOW_MARGIN), high, wide)
    }
}

/// The range, or that it is too wide, or that there is nothing to gain.
pub(super) fn bounds(f: &Figures<'_>) -> WhatIf {
    let Some(op) = main_op(f.ops) else {
        let text = "no operation was seen".to_owned();
        return outcome(f, WhatIfVerdict::Refused, "few_ops", text);
    };
    let load = Load::of(f, op);
    let (mut low, mut high, mut wide) = load.range(f);
    let others = f.cpu_use.and_then(|cpu_use| other_work(f.cpus, cpu_use));
    if let (Some(cpu_use), Some(others)) = (f.cpu_use, others)
        && load.counted
    {
        let cpus = cpu_use.busy + cpu_use.idle.unwrap_or(0.0) + others;
        let (least, _) = load.work(cpu_use, cpus);
        low = 1.0;
        high = high.min(with_margin((cpus - others) / least, CPU_HIGH_MARGIN));
        wide = Wide::Others { cpus, others };
    }
    // Two digits behind the point, outwards.
    let (low, high) = (low.min(high).max(1.0), high.max(1.0));
    let (low, high) = ((low * 100.0).floor() / 100.0, (high * 100.0).ceil() / 100.0);
    let what_if = WhatIf {
        low: Some(low),
        high: Some(high),
        threads: load.counted.then_some(load.closed.threads as u64),
        assumptions: assumptions(f, others),
        ..outcome(f, WhatIfVerdict::Range, "", String::new())
    };
    said(f, what_if, (low, high), load.closed.threads as u64, &wide)
}

/// Puts a range into words.
fn said(f: &Figures<'_>, what_if: WhatIf, (low, high): (f64, f64), threads: u64, wide: &Wide) -> WhatIf {
    let (reason, why) = wide.words(threads);
    let times = format!(
        "without info_lock {low:.1} to {high:.1} times as many {} operations",
        what_if.op.as_deref().unwrap_or_default()
    );
    let busy = matches!(wide, Wide::Others { .. });
    match (high < WORTHLESS, high / low > MAX_WIDTH) {
        (true, _) if busy => WhatIf {
            reason: Some(reason.to_owned()),
            ..nothing(f, &why)
        },
        (true, _) => nothing(f, "the waits are a small part of the callers' time"),
        (_, true) => WhatIf {
            verdict: WhatIfVerdict::TooWide,
            reason: Some(reason.to_owned()),
            text: format!("{times}, too wide a range to rely on: {why}"),
            ..what_if
        },
        _ => {
            let on = f
                .cpus
                .map_or_else(String::new, |cpus| format!(", {}", plural(cpus.into(), "CPU")));
            let text = format!("{times} ({}{on})", plural(threads, "thread"));
            WhatIf {
                reason: busy.then(|| reason.to_owned()),
                text: if busy { format!("{text}: {why}") } else { text },
                ..what_if
            }
        }
    }
}
