//! How drains end, what is kept of them, and what becomes of those whose end was lost.

use super::context::Context;
use super::drain::FinishedDrain;
use super::{Aio, At, Thread};
use crate::event::{KernelPtr, MonotonicNs};
use crate::model::limits::{
    EXIT_END_GRACE_NS, MAX_FINISHED_CONTEXTS, MAX_FINISHED_DRAINS, RING_DELAY_NS, UNCERTAIN_LIFETIME_NS,
};
use crate::model::snapshot::{AioDrain, DrainCause};
use std::collections::VecDeque;

/// Ended drains, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Finished {
    kept: VecDeque<FinishedDrain>,
    kept_contexts: usize,
    /// Drains ended so far; also the id of the last one.
    ended: u64,
    /// `ended` when the interval began.
    ended_before: u64,
}

impl Finished {
    fn push(&mut self, make: impl FnOnce(u64) -> FinishedDrain) {
        self.ended += 1;
        let drain = make(self.ended);
        self.kept_contexts += drain.kept();
        self.kept.push_back(drain);
        while self.kept.len() > MAX_FINISHED_DRAINS || self.kept_contexts > MAX_FINISHED_CONTEXTS {
            let Some(oldest) = self.kept.pop_front() else {
                break;
            };
            self.kept_contexts -= oldest.kept();
        }
    }
}

impl Aio {
    /// Drains that ended in the scope, oldest first, and the number of those no longer kept.
    pub fn finished(&self, interval: bool) -> (Vec<AioDrain>, u64) {
        let ended = self.finished.ended - if interval { self.finished.ended_before } else { 0 };
        let kept = self.finished.kept.len() as u64;
        let skip = kept.saturating_sub(ended) as usize;
        let rows: Vec<AioDrain> = self
            .finished
            .kept
            .iter()
            .skip(skip)
            .map(FinishedDrain::record)
            .collect();
        let omitted = ended - rows.len() as u64;
        (rows, omitted)
    }

    /// A new interval begins.
    pub fn begin_interval(&mut self) {
        self.finished.ended_before = self.finished.ended;
    }

    /// Open drains whose end may be lost.
    pub fn uncertain(&self) -> u64 {
        self.open.values().filter(|d| d.uncertain_since.is_some()).count() as u64
    }

    /// Ends a drain. Contexts still open are drained by now, since the waiter has returned: their release was lost.
    pub(super) fn close(&mut self, id: u64, end_ns: MonotonicNs) {
        let Some(mut drain) = self.open.remove(&id) else {
            return;
        };
        self.loops -= usize::from(drain.cause == DrainCause::IoDestroy);
        self.open_contexts -= drain.contexts.len();
        if let Some(thread) = self.threads.get_mut(&drain.by.tid) {
            unlink(thread, id);
        }
        for (index, context) in drain.contexts.iter_mut().enumerate() {
            self.unmap(context, At { drain: id, index });
            if !context.reqs_released.seen() {
                context.reqs_released.set(end_ns);
                context.uncertain = true;
                self.gone_refs.extend([context.users, context.reqs]);
            }
        }
        if !drain.contexts.is_empty() {
            self.finished.push(|id| FinishedDrain::new(id, drain, end_ns));
        }
    }

    /// Ends a drain whose end was not seen: it lasted to the last thing that was.
    pub(super) fn close_unended(&mut self, id: u64) {
        let Some(drain) = self.open.get(&id) else { return };
        let end_ns = match drain.cause {
            DrainCause::ExitAio => drain.last_release_ns,
            DrainCause::IoDestroy if drain.in_call => drain.last_return_ns.max(drain.last_release_ns),
            DrainCause::IoDestroy => drain.last_return_ns,
        };
        let last_kill = drain.contexts.last().map_or(0, |c| c.killed_ns);
        self.close(id, end_ns.max(last_kill));
    }

    /// The mm exits: no more `io_destroy` for it.
    pub(super) fn end_of_mm(&mut self, mm: KernelPtr) {
        if self.loops == 0 {
            return;
        }
        let is_loop = |d: &super::OpenDrain| d.mm == mm && d.cause == DrainCause::IoDestroy;
        let mut ids: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, d)| is_loop(d))
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        ids.into_iter().for_each(|id| self.close_unended(id));
    }

    /// Whatever the thread was in is over.
    pub(super) fn end_of_thread(&mut self, ts_ns: MonotonicNs, tid: u32) {
        let Some(Thread { call, looped, exit }) = self.threads.remove(&tid) else {
            return;
        };
        if let Some(call) = call {
            self.destroy_return(ts_ns, call, false);
        }
        for id in [looped, exit].into_iter().flatten() {
            self.close_unended(id);
        }
    }

    pub(super) fn unmap(&mut self, context: &Context, at: At) {
        // Nearly always they are this context's: take them out, and put back what belongs to a later one.
        if let Some(other) = self.by_ctx.remove(&context.ptr).filter(|other| *other != at) {
            self.by_ctx.insert(context.ptr, other);
        }
        for reference in [context.users, context.reqs] {
            if let Some(other) = self.by_ref.remove(&reference).filter(|other| other.0 != at) {
                self.by_ref.insert(reference, other);
            }
        }
    }

    /// Lifecycle events were lost before `ts_ns`.
    pub fn mark_uncertain(&mut self, ts_ns: MonotonicNs) {
        for drain in self.open.values_mut().filter(|d| d.begin_ns <= ts_ns) {
            drain.touched_by_loss = true;
            drain.uncertain_since.get_or_insert(ts_ns);
        }
    }

    /// Ends what silence says is over, gives up what has been uncertain for too long.
    pub fn sweep(&mut self, now_ns: MonotonicNs) {
        let passed = |since: MonotonicNs, ns: u64| now_ns > since.saturating_add(ns);
        let mut over = Vec::new();
        let mut given_up = Vec::new();
        for (id, d) in &self.open {
            let drained = d.left == 0 && !d.contexts.is_empty();
            let unanswered = passed(d.last_release_ns.max(d.last_return_ns), EXIT_END_GRACE_NS);
            let closed = match d.cause {
                DrainCause::IoDestroy if !d.in_call => {
                    passed(d.last_return_ns, d.allowed_gap_ns().saturating_add(RING_DELAY_NS))
                }
                DrainCause::IoDestroy | DrainCause::ExitAio => drained && unanswered,
            };
            if closed {
                over.push(*id);
            } else if d
                .uncertain_since
                .is_some_and(|since| passed(since, UNCERTAIN_LIFETIME_NS))
                || (d.contexts.is_empty() && passed(d.begin_ns, UNCERTAIN_LIFETIME_NS))
            {
                given_up.push(*id);
            }
        }
        // By id, not in the table's order: which drain gets which number must not depend on it.
        over.sort_unstable();
        over.into_iter().for_each(|id| self.close_unended(id));
        given_up.into_iter().for_each(|id| self.give_up(id));
        let open = &self.open;
        self.threads.retain(|_, t| {
            let orphan = |c: &super::Call| c.at.is_none_or(|at| !open.contains_key(&at.drain));
            let lost = t
                .call
                .is_some_and(|c| orphan(&c) && passed(c.begin_ns, UNCERTAIN_LIFETIME_NS));
            t.call = t.call.filter(|_| !lost);
            t.call.is_some() || t.looped.is_some() || t.exit.is_some()
        });
    }

    /// Forgets a drain of which nothing was heard since a loss.
    fn give_up(&mut self, id: u64) {
        let Some(drain) = self.open.remove(&id) else {
            return;
        };
        self.loops -= usize::from(drain.cause == DrainCause::IoDestroy);
        self.open_contexts -= drain.contexts.len();
        self.expired += u64::from(!drain.contexts.is_empty());
        if let Some(thread) = self.threads.get_mut(&drain.by.tid) {
            unlink(thread, id);
            thread.call = thread.call.filter(|c| c.at.is_none_or(|at| at.drain != id));
        }
        for (index, context) in drain.contexts.iter().enumerate() {
            self.unmap(context, At { drain: id, index });
            if !context.reqs_released.seen() {
                self.gone_refs.extend([context.users, context.reqs]);
            }
        }
    }

    /// The trace is over: ends the drains that wait for nothing but silence.
    pub fn finish(&mut self) {
        let waiting = |d: &super::OpenDrain| d.left == 0 && !d.in_call && !d.contexts.is_empty();
        let mut ids: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, d)| waiting(d))
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        ids.into_iter().for_each(|id| self.close_unended(id));
    }
}

fn unlink(thread: &mut Thread, id: u64) {
    thread.looped = thread.looped.filter(|open| *open != id);
    thread.exit = thread.exit.filter(|open| *open != id);
}
