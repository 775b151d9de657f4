//! CPU time of the threads that hold info_lock: how much of the load computes, and how much waits for a CPU.
//!
//! The scheduler's own sums (`/proc/PID/task/TID/schedstat`: time on a CPU, time runnable but waiting for one) are read with
//! the figures. Only stretches in which a thread ran count: a load that pauses as a whole has no share of them.

use super::limits::MAX_THREADS;
use crate::event::{MonotonicNs, ThreadTime};
use std::collections::HashMap;

/// Shorter stretches together say nothing, ns.
const LEAST_NS: u64 = 300_000_000;

/// Process and thread.
pub type ThreadId = (u32, u32);

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

/// CPUs that threads use on average.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuUse {
    /// Threads on a CPU.
    pub busy: f64,
    /// Threads that could run and wait for a CPU.
    pub runqueue: f64,
}

/// All threads that are known to hold info_lock.
#[derive(Debug, Clone, Default)]
pub struct Threads {
    by_id: HashMap<ThreadId, Thread>,
}

impl Threads {
    /// New readings.
    pub fn readings(&mut self, ts_ns: MonotonicNs, readings: Vec<ThreadTime>) {
        for reading in readings {
            let id = (reading.tgid, reading.tid);
            let Some(thread) = self.by_id.get_mut(&id) else {
                if self.by_id.len() < MAX_THREADS {
                    let thread = Thread {
                        at_ns: ts_ns,
                        last: reading,
                        sums: Sums::default(),
                        base: Sums::default(),
                    };
                    self.by_id.insert(id, thread);
                }
                continue;
            };
            let cpu_ns = reading.cpu_ns.saturating_sub(thread.last.cpu_ns);
            if cpu_ns > 0 {
                let sums = &mut thread.sums;
                sums.time_ns = sums.time_ns.saturating_add(ts_ns.saturating_sub(thread.at_ns));
                sums.cpu_ns = sums.cpu_ns.saturating_add(cpu_ns);
                sums.runqueue_ns = sums
                    .runqueue_ns
                    .saturating_add(reading.runqueue_ns.saturating_sub(thread.last.runqueue_ns));
            }
            thread.at_ns = ts_ns;
            thread.last = reading;
        }
    }

    /// A new interval begins.
    pub fn begin_interval(&mut self) {
        for thread in self.by_id.values_mut() {
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
        };
        assert_eq!(threads.of(false, both.into_iter()), Some(expected));
        assert_eq!(threads.of(false, [(1, 1), (1, 3)].into_iter()), None);
        assert_eq!(threads.of(false, std::iter::empty()), None);
        threads.begin_interval();
        // Nothing in the interval yet.
        assert_eq!(threads.of(true, both.into_iter()), None);
        assert_eq!(threads.of(false, both.into_iter()), Some(expected));
    }
}
