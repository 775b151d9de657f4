//! AIO drains: which contexts a thread waits for, one by one or together.
//!
//! - `exit_aio` kills all contexts of an mm with one wait: the contexts killed by its thread between its entry and its
//!   return are one drain. Without the entry the first kill begins it, without the return the last release ends it.
//! - `io_destroy(2)` kills one context and waits. Calls of one thread that follow each other within
//!   [`drain::OpenDrain::allowed_gap_ns`] are one drain: that is how user space drains contexts one after another.
//!   It ends when the gap has passed, when the mm exits, or when the trace is over.
//!
//! `free_ioctx_users` and `free_ioctx_reqs` run in RCU or interrupt context, so everything is found by the addresses
//! remembered at `kill_ioctx`. The slab hands a freed kioctx out again at once: a kill makes a new context of it.

pub mod context;
mod destroy;
pub mod drain;
mod finish;
mod together;

use super::limits::{MAX_OPEN_CONTEXTS, MAX_OPEN_THREADS};
use super::snapshot::{DrainCause, InProgress};
use crate::event::{KernelPtr, MonotonicNs, RequestFile, Task};
use crate::fast_map::{IdMap, PtrMap};
use context::Context;
use drain::OpenDrain;
use finish::Finished;

/// Place of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct At {
    drain: u64,
    index: usize,
}

/// An `io_destroy` under way.
#[derive(Debug, Clone, Copy)]
struct Call {
    begin_ns: MonotonicNs,
    at: Option<At>,
}

/// What a thread is in.
#[derive(Debug, Clone, Default)]
struct Thread {
    call: Option<Call>,
    /// Drain of its loop of `io_destroy`.
    looped: Option<u64>,
    /// Drain of its `exit_aio`.
    exit: Option<u64>,
}

/// A kill, as its event says it; `wait` is the waiter's, since without one there is no drain.
#[derive(Debug, Clone, Copy)]
pub struct Kill {
    /// When.
    pub ts_ns: MonotonicNs,
    /// The mm.
    pub mm: KernelPtr,
    /// The kioctx.
    pub ctx: KernelPtr,
    /// `struct ctx_rq_wait`
    pub wait: KernelPtr,
    /// `&ctx->users`
    pub users: KernelPtr,
    /// `&ctx->reqs`
    pub reqs: KernelPtr,
    /// `aio_context_t`
    pub user_id: u64,
}

/// All drains.
#[derive(Debug, Clone, Default)]
pub struct Aio {
    threads: IdMap<u32, Thread>,
    open: IdMap<u64, OpenDrain>,
    next_open: u64,
    /// Open drains of `io_destroy`.
    loops: usize,
    by_ctx: PtrMap<At>,
    /// `true`: the context's `reqs`.
    by_ref: PtrMap<(At, bool)>,
    open_contexts: usize,
    finished: Finished,
    /// Refs of contexts that are gone without their release having been seen.
    pub gone_refs: Vec<KernelPtr>,
    /// Contexts and threads that found no place.
    pub refused: u64,
    /// Drains given up as uncertain for too long.
    pub expired: u64,
}

impl Aio {
    fn thread(&mut self, tid: u32) -> Option<&mut Thread> {
        if self.threads.len() >= MAX_OPEN_THREADS && !self.threads.contains_key(&tid) {
            self.refused += 1;
            return None;
        }
        Some(self.threads.entry(tid).or_default())
    }

    fn forget_idle(&mut self, tid: u32) {
        let idle = |t: &Thread| t.call.is_none() && t.looped.is_none() && t.exit.is_none();
        if self.threads.get(&tid).is_some_and(idle) {
            self.threads.remove(&tid);
        }
    }

    /// `exit_aio` entered.
    pub fn exit_begin(&mut self, ts_ns: MonotonicNs, by: Task, mm: KernelPtr) {
        self.end_of_mm(mm);
        self.end_of_thread(ts_ns, by.tid);
        let tid = by.tid;
        if self.thread(tid).is_none() {
            return;
        }
        let id = self.open_drain(OpenDrain::new(DrainCause::ExitAio, by, mm, ts_ns, true));
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.exit = Some(id);
        }
    }

    /// `exit_aio` returned.
    pub fn exit_end(&mut self, ts_ns: MonotonicNs, by: &Task, mm: KernelPtr) {
        let Some(thread) = self.threads.get_mut(&by.tid) else {
            return;
        };
        let Some(id) = thread.exit.take() else { return };
        if let Some(drain) = self.open.get_mut(&id).filter(|d| d.mm == mm) {
            if drain.cause == DrainCause::IoDestroy {
                drain.cause = DrainCause::ExitAio;
                self.loops -= 1;
            }
            self.close(id, ts_ns);
        } else if self.open.contains_key(&id) {
            self.close_unended(id);
        }
        self.forget_idle(by.tid);
    }

    /// `kill_ioctx` for a context somebody will wait for.
    pub fn kill(&mut self, kill: Kill, by: Task) {
        if let Some(at) = self.by_ctx.get(&kill.ctx).copied()
            && self.is_second_kill(at, &kill, by.tid)
        {
            return;
        }
        let tid = by.tid;
        if self.thread(tid).is_none() {
            return;
        }
        let in_call = self.threads.get(&tid).and_then(|t| t.call);
        let (id, index) = match in_call {
            Some(call) => self.killed_by_destroy(&kill, by, call),
            None => self.killed_by_exit(&kill, by),
        };
        if index.is_some()
            && let Some(call) = self.threads.get_mut(&tid).and_then(|t| t.call.as_mut())
        {
            call.at = index.map(|index| At { drain: id, index });
        }
    }

    /// Two threads destroying one context: the second `kill_ioctx` finds it dead and fails (`atomic_xchg(&ctx->dead)`).
    /// If instead the context is open because the end of its former life was lost, that life is ended here.
    fn is_second_kill(&mut self, at: At, kill: &Kill, tid: u32) -> bool {
        let Some(drain) = self.open.get_mut(&at.drain) else {
            return false;
        };
        let same = drain.mm == kill.mm && drain.by.tid != tid && drain.uncertain_since.is_none();
        let Some(context) = drain.contexts.get_mut(at.index) else {
            return false;
        };
        if context.reqs_released.seen() {
            return false;
        }
        if same && context.user_id == kill.user_id {
            return true;
        }
        context.reqs_released.set(kill.ts_ns);
        context.uncertain = true;
        drain.left = drain.left.saturating_sub(1);
        self.gone_refs.extend([context.users, context.reqs]);
        false
    }

    fn killed_by_destroy(&mut self, kill: &Kill, by: Task, call: Call) -> (u64, Option<usize>) {
        let tid = by.tid;
        let looped = self.threads.get(&tid).and_then(|t| t.looped);
        let joined = looped.filter(|id| self.open.get(id).is_some_and(|d| d.mm == kill.mm));
        let id = match joined {
            Some(id) => id,
            None => {
                if let Some(other) = looped {
                    self.close_unended(other);
                }
                let drain = OpenDrain::new(DrainCause::IoDestroy, by, kill.mm, call.begin_ns, true);
                let id = self.open_drain(drain);
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.looped = Some(id);
                }
                id
            }
        };
        if let Some(drain) = self.open.get_mut(&id) {
            drain.in_call = true;
        }
        (id, self.add_context(id, kill, Some(call.begin_ns)))
    }

    fn killed_by_exit(&mut self, kill: &Kill, by: Task) -> (u64, Option<usize>) {
        let tid = by.tid;
        let exit = self.threads.get(&tid).and_then(|t| t.exit);
        let joins = |d: &OpenDrain| d.mm == kill.mm && d.wait.is_none_or(|wait| wait == kill.wait);
        let joined = exit.filter(|id| self.open.get(id).is_some_and(joins));
        let id = match joined {
            Some(id) => id,
            None => {
                if let Some(other) = exit {
                    self.close_unended(other);
                }
                self.end_of_mm(kill.mm);
                let drain = OpenDrain::new(DrainCause::ExitAio, by, kill.mm, kill.ts_ns, false);
                let id = self.open_drain(drain);
                if let Some(thread) = self.thread(tid) {
                    thread.exit = Some(id);
                }
                id
            }
        };
        if let Some(drain) = self.open.get_mut(&id) {
            // exit_aio kills all contexts before it waits. Killing the next one only when the others are drained is a
            // loop of io_destroy whose entries and returns are not traced.
            let one_by_one = !drain.begin_seen && drain.left == 0 && !drain.contexts.is_empty();
            if one_by_one && drain.cause == DrainCause::ExitAio {
                drain.cause = DrainCause::IoDestroy;
                self.loops += 1;
            }
            drain.in_call |= one_by_one;
            drain.wait = Some(kill.wait);
        }
        (id, self.add_context(id, kill, None))
    }

    fn open_drain(&mut self, drain: OpenDrain) -> u64 {
        self.next_open += 1;
        self.loops += usize::from(drain.cause == DrainCause::IoDestroy);
        self.open.insert(self.next_open, drain);
        self.next_open
    }

    fn add_context(&mut self, id: u64, kill: &Kill, call_begin: Option<MonotonicNs>) -> Option<usize> {
        let drain = self.open.get_mut(&id)?;
        drain.alive();
        if self.open_contexts >= MAX_OPEN_CONTEXTS {
            drain.not_kept += 1;
            self.refused += 1;
            return None;
        }
        let mut context = Context::new(kill.ctx, kill.users, kill.reqs, kill.user_id, kill.ts_ns);
        if let Some(ns) = call_begin {
            context.call_begin.set(ns);
        }
        let at = At {
            drain: id,
            index: drain.contexts.len(),
        };
        drain.contexts.push(context);
        drain.left += 1;
        self.open_contexts += 1;
        self.by_ctx.insert(kill.ctx, at);
        self.by_ref.insert(kill.users, (at, false));
        self.by_ref.insert(kill.reqs, (at, true));
        Some(at.index)
    }

    fn context(&mut self, at: At) -> Option<(&mut OpenDrain, usize)> {
        let drain = self.open.get_mut(&at.drain)?;
        drain.alive();
        (at.index < drain.contexts.len()).then_some((drain, at.index))
    }

    /// A ref was killed. True if it is a context's. `by` becomes the task that waits for it where `current` was not it:
    /// `reqs` is killed in RCU context.
    pub fn ref_killed(
        &mut self,
        ts_ns: MonotonicNs,
        reference: KernelPtr,
        already_atomic: bool,
        by: &mut Task,
    ) -> bool {
        let Some((at, is_reqs)) = self.by_ref.get(&reference).copied() else {
            return false;
        };
        let Some((drain, index)) = self.context(at) else {
            return false;
        };
        if is_reqs {
            (by.tgid, by.tid) = (drain.by.tgid, drain.by.tid);
            by.comm.clone_from(&drain.by.comm);
        }
        if already_atomic && let Some(context) = drain.contexts.get_mut(index) {
            context.switched(is_reqs, ts_ns);
        }
        true
    }

    /// A ref's grace period is over.
    pub fn ref_switched(&mut self, ts_ns: MonotonicNs, reference: KernelPtr, references: Option<u64>) {
        let Some((at, is_reqs)) = self.by_ref.get(&reference).copied() else {
            return;
        };
        let Some((drain, index)) = self.context(at) else {
            return;
        };
        if let Some(context) = drain.contexts.get_mut(index) {
            context.switched(is_reqs, ts_ns);
            if is_reqs {
                context.set_in_flight(references);
            } else {
                context.set_users_held(references);
            }
        }
    }

    /// `free_ioctx_users`. Returns the context's `users`.
    pub fn users_released(&mut self, ts_ns: MonotonicNs, ctx: KernelPtr) -> Option<KernelPtr> {
        let at = *self.by_ctx.get(&ctx)?;
        let (drain, index) = self.context(at)?;
        let context = drain.contexts.get_mut(index)?;
        context.users_gone(ts_ns);
        Some(context.users)
    }

    /// `free_ioctx_reqs`. Returns the context's `reqs`.
    pub fn reqs_released(&mut self, ts_ns: MonotonicNs, ctx: KernelPtr) -> Option<KernelPtr> {
        let at = *self.by_ctx.get(&ctx)?;
        let (drain, index) = self.context(at)?;
        let context = drain.contexts.get_mut(index)?;
        if !context.reqs_released.seen() {
            context.reqs_released.set(ts_ns);
            context.uncertain |= !context.users_released.seen();
            drain.left = drain.left.saturating_sub(1);
            drain.last_release_ns = drain.last_release_ns.max(ts_ns);
            if drain.left == 0 && !drain.begin_seen {
                drain.in_call = false;
                drain.last_return_ns = drain.last_return_ns.max(ts_ns);
            }
        }
        Some(context.reqs)
    }

    /// The file of the request that gave back a context's last reference. Just before or just after its `reqs_released`.
    pub fn last_request(&mut self, ctx: KernelPtr, file: RequestFile) {
        let Some(at) = self.by_ctx.get(&ctx).copied() else {
            return;
        };
        if let Some((drain, index)) = self.context(at) {
            drain.set_last_request(index, file);
        }
    }

    /// Is this ref one of a context that has not drained?
    pub fn owns(&self, reference: KernelPtr) -> bool {
        let Some((at, _)) = self.by_ref.get(&reference) else {
            return false;
        };
        let context = self.open.get(&at.drain).and_then(|d| d.contexts.get(at.index));
        context.is_some_and(|c| !c.reqs_released.seen())
    }

    /// Records `in_progress`.
    pub fn in_progress(
        &self,
        now_ns: MonotonicNs,
        switches: bool,
        references: &dyn Fn(KernelPtr) -> Option<u64>,
    ) -> Vec<InProgress> {
        self.open
            .values()
            .filter_map(|d| d.in_progress(now_ns, switches, references))
            .collect()
    }

    /// A look found this ref of a context past its grace period.
    pub fn ref_found_switched(&mut self, reference: KernelPtr) {
        let Some((at, is_reqs)) = self.by_ref.get(&reference).copied() else {
            return;
        };
        if let Some((drain, index)) = self.context(at)
            && let Some(context) = drain.contexts.get_mut(index)
        {
            context.found_switched(is_reqs);
        }
    }

    /// Is the thread in a drain or call the trace has seen begin?
    pub fn waits(&self, tid: u32) -> bool {
        self.threads
            .get(&tid)
            .is_some_and(|t| t.call.is_some() || t.exit.is_some())
    }
}
