//! Who held info_lock when others began to wait for it: which threads take part, and how many at once.

use super::share;
use crate::model::threads::ThreadId;

/// A thread with a smaller part of the waits behind it is a guest: it takes no CPU from the others.
pub const GUEST_SHARE: f64 = 0.01;
/// So many times as many threads over the whole time as at once come and go.
const TURNOVER: f64 = 1.25;

impl Behind {
    /// Waits behind the same kind of operation.
    pub(super) fn own(&self) -> u64 {
        self.threads.iter().map(|(_, waits)| waits).sum()
    }

    /// Threads at once, when new ones take the place of others: over the whole time each has but a small part of the waits.
    pub(super) fn turnover(&self) -> Option<f64> {
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
