//! `io_destroy(2)`: a call kills one context and waits for it. Calls that follow each other closely are one drain.

use super::{Aio, At, Call};
use crate::event::{MonotonicNs, Task};
use crate::model::snapshot::DrainCause;

impl Aio {
    /// `io_destroy(2)` entered.
    pub fn destroy_begin(&mut self, ts_ns: MonotonicNs, by: &Task) {
        let Some(thread) = self.thread(by.tid) else { return };
        // A thread is in one call at a time: the return of an open one was lost, and it happened before now.
        let (call, exit, looped) = (thread.call.take(), thread.exit.take(), thread.looped);
        if let Some(call) = call {
            self.destroy_return(ts_ns, call, false);
        }
        if let Some(id) = exit {
            self.close_unended(id);
        }
        if let Some(id) = looped {
            let joins = self.open.get_mut(&id).is_some_and(|d| {
                let gap = ts_ns.saturating_sub(d.last_return_ns);
                let joins = d.by.tgid == by.tgid && gap <= d.allowed_gap_ns();
                d.in_call |= joins;
                joins
            });
            if !joins {
                self.close_unended(id);
            }
        }
        if let Some(thread) = self.thread(by.tid) {
            thread.call = Some(Call {
                begin_ns: ts_ns,
                at: None,
            });
        }
    }

    /// `io_destroy(2)` returned.
    pub fn destroy_end(&mut self, ts_ns: MonotonicNs, by: &Task, ret: i64) {
        let Some(thread) = self.threads.get_mut(&by.tid) else {
            return;
        };
        match thread.call.take() {
            Some(call) if ret < 0 => self.destroy_failed(call, by.tid),
            Some(call) => self.destroy_return(ts_ns, call, true),
            None if ret == 0 => self.destroy_unentered(ts_ns, by.tid),
            None => {}
        }
        self.forget_idle(by.tid);
    }

    /// A successful call is over: its context is drained.
    pub(super) fn destroy_return(&mut self, ts_ns: MonotonicNs, call: Call, return_seen: bool) {
        let Some(at) = call.at else { return };
        let Some(drain) = self.open.get_mut(&at.drain) else {
            return;
        };
        drain.in_call = false;
        let Some(context) = drain.contexts.get_mut(at.index) else {
            return;
        };
        if !context.reqs_released.seen() {
            context.reqs_released.set(ts_ns);
            context.uncertain = true;
            drain.left = drain.left.saturating_sub(1);
            self.gone_refs.extend([context.users, context.reqs]);
        }
        let end = if return_seen { ts_ns } else { context.end_ns() };
        if return_seen {
            context.call_end.set(ts_ns);
        }
        drain.last_return_ns = drain.last_return_ns.max(end);
    }

    /// The call found no context, or `kill_ioctx` found it dead already: nothing of this call drains.
    fn destroy_failed(&mut self, call: Call, tid: u32) {
        let Some(at) = call.at else {
            let looped = self.threads.get(&tid).and_then(|t| t.looped);
            if let Some(drain) = looped.and_then(|id| self.open.get_mut(&id)) {
                drain.in_call = false;
            }
            return;
        };
        let Some(drain) = self.open.get_mut(&at.drain) else {
            return;
        };
        drain.in_call = false;
        if at.index + 1 == drain.contexts.len()
            && let Some(context) = drain.contexts.pop()
        {
            if !context.reqs_released.seen() {
                drain.left = drain.left.saturating_sub(1);
            }
            self.open_contexts -= 1;
            let empty = drain.contexts.is_empty();
            self.unmap(&context, at);
            if empty {
                self.close_unended(at.drain);
            }
        }
    }

    /// A return without an entry: what looked like `exit_aio` without its entry was this call.
    fn destroy_unentered(&mut self, ts_ns: MonotonicNs, tid: u32) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let Some(id) = thread.exit else { return };
        let Some(drain) = self.open.get_mut(&id).filter(|d| !d.begin_seen) else {
            return;
        };
        thread.exit = None;
        let before = thread.looped.replace(id);
        if drain.cause == DrainCause::ExitAio {
            drain.cause = DrainCause::IoDestroy;
            self.loops += 1;
        }
        let index = drain.contexts.len().saturating_sub(1);
        self.destroy_return(
            ts_ns,
            Call {
                begin_ns: ts_ns,
                at: Some(At { drain: id, index }),
            },
            true,
        );
        if let Some(before) = before {
            self.close_unended(before);
        }
    }
}
