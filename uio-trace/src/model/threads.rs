//! CPU time of the threads that hold info_lock: how much of the load computes, and how much waits for a CPU.
//!
//! The scheduler's own sums (`/proc/PID/task/TID/schedstat`: time on a CPU, time runnable but waiting for one) are read with
//! the figures. Only stretches in which a thread ran count: a load that pauses as a whole has no share of them. Likewise the idle
//! time of the CPUs, of stretches in which any of the threads ran.

use super::limits::MAX_THREADS;
use crate::event::{MonotonicNs, ThreadTime};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Shorter stretches together say nothing, ns.
const LEAST_NS: u64 = 300_000_000;

/// Process and thread.
pub type ThreadId = (u32, u32);

/// The idle tasks of all CPUs, among the readings.
pub const IDLE: ThreadId = (0, 0);

/// Time of a thread, summed over stretches in which it ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sums {
    time_ns: u64,
    cpu_ns: u64,
    runqueue_ns: u64,
}

impl Sums {
    fn since(self, base: Sums) -> Sums {
        Sums {
            time_ns: self.time_ns.saturating_sub(base.time_ns),
            cpu_ns: self.cpu_ns.saturating_sub(base.cpu_ns),
            runqueue_ns: self.runqueue_ns.saturating_sub(base.runqueue_ns),
        }
    }
}

#[derive(Debug, Clone)]
struct Thread {
    at_ns: MonotonicNs,
    last: ThreadTime,
    sums: Sums,
    /// As they were when the interval began.
    base: Sums,
}

impl Thread {
    fn new(at_ns: MonotonicNs, first: ThreadTime) -> Thread {
        Thread {
            at_ns,
            last: first,
            sums: Sums::default(),
            base: Sums::default(),
        }
    }

    /// The stretch since the last reading counts, or it does not.
    fn reading(&mut self, ts_ns: MonotonicNs, now: ThreadTime, counts: bool) {
        if counts {
            let sums = &mut self.sums;
            let since = |now: u64, last: u64| now.saturating_sub(last);
            sums.time_ns = sums.time_ns.saturating_add(since(ts_ns, self.at_ns));
            sums.cpu_ns = sums.cpu_ns.saturating_add(since(now.cpu_ns, self.last.cpu_ns));
            sums.runqueue_ns = sums
                .runqueue_ns
                .saturating_add(since(now.runqueue_ns, self.last.runqueue_ns));
        }
        self.at_ns = ts_ns;
        self.last = now;
    }
}

/// CPUs that threads use on average.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// Threads on a CPU.
    pub busy: f64,
    /// Threads that could run and wait for a CPU.
    pub runqueue: f64,
    /// CPUs that were idle meanwhile; `None`: not known.
    pub idle: Option<f64>,
}

/// All threads that are known to hold info_lock.
#[derive(Debug, Clone, Default)]
pub struct Threads {
    by_id: HashMap<ThreadId, Thread>,
    idle: Option<Thread>,
}

impl Threads {
    /// New readings.
    pub fn readings(&mut self, ts_ns: MonotonicNs, readings: Vec<ThreadTime>) {
        let (idle, readings): (Vec<_>, Vec<_>) = readings
            .into_iter()
            .partition(|reading| (reading.tgid, reading.tid) == IDLE);
        let mut ran = false;
        for reading in readings {
            let id = (reading.tgid, reading.tid);
            let Some(thread) = self.by_id.get_mut(&id) else {
                if self.by_id.len() < MAX_THREADS {
                    self.by_id.insert(id, Thread::new(ts_ns, reading));
                }
                continue;
            };
            let runs = reading.cpu_ns > thread.last.cpu_ns;
            ran |= runs;
            thread.reading(ts_ns, reading, runs);
        }
        for reading in idle {
            match &mut self.idle {
                Some(thread) => thread.reading(ts_ns, reading, ran),
                None => self.idle = Some(Thread::new(ts_ns, reading)),
            }
        }
    }

    /// A new interval begins.
    pub fn begin_interval(&mut self) {
        for thread in self.by_id.values_mut().chain(&mut self.idle) {
            thread.base = thread.sums;
        }
    }

    /// What these threads use together. `None`: not known of one of them.
    pub fn of(&self, interval: bool, ids: impl Iterator<Item = ThreadId>) -> Option<CpuUse> {
        let mut all = CpuUse::default();
        let mut any = false;
        for id in ids {
            let thread = self.by_id.get(&id)?;
            let base = if interval { thread.base } else { Sums::default() };
            let sums = thread.sums.since(base);
            if sums.time_ns < LEAST_NS {
                return None;
            }
            let share = |ns: u64| ns as f64 / sums.time_ns as f64;
            all.busy += share(sums.cpu_ns).min(1.0);
            all.runqueue += share(sums.runqueue_ns).min(1.0);
            any = true;
        }
        all.idle = self.idle.as_ref().and_then(|thread| {
            let base = if interval { thread.base } else { Sums::default() };
            let sums = thread.sums.since(base);
            (sums.time_ns >= LEAST_NS).then(|| sums.cpu_ns as f64 / sums.time_ns as f64)
        });
        any.then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::{CpuUse, Threads};
    use crate::event::ThreadTime;

    const MS: u64 = 1_000_000;

    fn time(tid: u32, cpu_ms: u64, runqueue_ms: u64) -> ThreadTime {
        ThreadTime {
            tgid: 1,
            tid,
            cpu_ns: cpu_ms * MS,
            runqueue_ns: runqueue_ms * MS,
        }
    }

    #[test]
    fn shares_add_up_and_pauses_do_not_count() {
        let mut threads = Threads::default();
        threads.readings(0, vec![time(1, 100, 0), time(2, 5, 0)]);
        threads.readings(1000 * MS, vec![time(1, 600, 100), time(2, 255, 0)]);
        // A pause of both.
        threads.readings(9000 * MS, vec![time(1, 600, 100), time(2, 255, 0)]);
        let both = [(1, 1), (1, 2)];
        let expected = CpuUse {
            busy: 0.75,
            runqueue: 0.1,
            idle: None,
        };
        assert_eq!(threads.of(false, both.into_iter()), Some(expected));
        assert_eq!(threads.of(false, [(1, 1), (1, 3)].into_iter()), None);
        assert_eq!(threads.of(false, std::iter::empty()), None);
        threads.begin_interval();
        // Nothing in the interval yet.
        assert_eq!(threads.of(true, both.into_iter()), None);
        assert_eq!(threads.of(false, both.into_iter()), Some(expected));
    }

    #[test]
    fn idle_time_counts_while_the_threads_run() {
        let mut threads = Threads::default();
        let idle = |ms: u64| ThreadTime {
            tgid: 0,
            tid: 0,
            cpu_ns: ms * MS,
            runqueue_ns: 0,
        };
        threads.readings(0, vec![time(1, 100, 0), idle(50_000)]);
        threads.readings(1000 * MS, vec![time(1, 600, 0), idle(51_200)]);
        // A pause, in which all CPUs are idle; then no CPU is.
        threads.readings(9000 * MS, vec![time(1, 600, 0), idle(83_200)]);
        threads.readings(10_000 * MS, vec![time(1, 1600, 0), idle(83_200)]);
        let of = threads.of(false, [(1, 1)].into_iter()).unwrap();
        assert_eq!((of.busy, of.idle), (0.75, Some(0.6)));
    }
}
