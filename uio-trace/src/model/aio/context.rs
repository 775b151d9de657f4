//! One AIO context on its way down: its moments and the phases between them.
//!
//! `kill_ioctx` kills `users`; after a grace period and the last reference `free_ioctx_users` kills `reqs`; after
//! another grace period and the last request `free_ioctx_reqs` wakes the waiter (fs/aio.c). With requests in flight the
//! second grace period overlaps them: what remains of the wait after it is I/O.

use crate::event::{KernelPtr, MonotonicNs, RequestFile};
use crate::model::snapshot::{AioContext, Phases};

/// A moment that may not have been seen. 0 (boot) stands for that, so that thousands of them stay small.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment(u64);

impl Moment {
    /// Sets it; the first time counts.
    pub fn set(&mut self, ns: MonotonicNs) {
        if self.0 == 0 {
            self.0 = ns.max(1);
        }
    }

    /// When, if it was seen.
    pub fn get(self) -> Option<MonotonicNs> {
        (self.0 != 0).then_some(self.0)
    }

    /// Seen?
    pub fn seen(self) -> bool {
        self.0 != 0
    }
}

/// Where a context is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Killed, `users` in its grace period.
    UsersGracePeriod,
    /// `users` switched: system calls hold references.
    UsersReferences,
    /// Users released, `reqs` in its grace period.
    ReqsGracePeriod,
    /// `reqs` switched: requests in flight.
    Requests,
    /// Drained.
    Drained,
}

/// A number of requests that is not known.
const UNKNOWN_COUNT: u32 = u32::MAX;

/// A context.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// The kioctx.
    pub ptr: KernelPtr,
    /// `&ctx->users`
    pub users: KernelPtr,
    /// `&ctx->reqs`
    pub reqs: KernelPtr,
    /// `aio_context_t`
    pub user_id: u64,
    /// `kill_ioctx`
    pub killed_ns: MonotonicNs,
    /// Grace period of `users` over.
    pub users_switched: Moment,
    /// `free_ioctx_users`
    pub users_released: Moment,
    /// Grace period of `reqs` over.
    pub reqs_switched: Moment,
    /// `free_ioctx_reqs`, or the waiter's return when that was lost.
    pub reqs_released: Moment,
    /// `io_destroy(2)` entered.
    pub call_begin: Moment,
    /// `io_destroy(2)` returned.
    pub call_end: Moment,
    /// `users` or `reqs` (the latest killed) was found switched, though not when.
    pub found_switched: bool,
    /// Requests in flight when the grace period of `reqs` ended; [`UNKNOWN_COUNT`]: not counted.
    in_flight: u32,
    /// References to `users` when its grace period ended: 0: not counted, 1: none, 2: some.
    users_held: u8,
    /// Its last request's file: place in the drain's list, from 1; 0: not known, or there was no request.
    pub file: u8,
    /// One of its events was lost.
    pub uncertain: bool,
}

impl Context {
    /// Killed at `killed_ns`, nothing else seen.
    pub fn new(ptr: KernelPtr, users: KernelPtr, reqs: KernelPtr, user_id: u64, killed_ns: u64) -> Context {
        let none = Moment::default();
        Context {
            ptr,
            users,
            reqs,
            user_id,
            killed_ns,
            users_switched: none,
            users_released: none,
            reqs_switched: none,
            reqs_released: none,
            call_begin: none,
            call_end: none,
            found_switched: false,
            in_flight: UNKNOWN_COUNT,
            users_held: 0,
            file: 0,
            uncertain: false,
        }
    }

    /// The grace period of `users` or `reqs` is over.
    pub fn switched(&mut self, is_reqs: bool, ts_ns: MonotonicNs) {
        if is_reqs {
            self.reqs_switched.set(ts_ns);
        } else {
            self.users_switched.set(ts_ns);
        }
    }

    /// How many references the end of the grace period of `users` has found.
    pub fn set_users_held(&mut self, references: Option<u64>) {
        self.users_held = match references {
            None => 0,
            Some(0) => 1,
            Some(_) => 2,
        };
    }

    /// Whether system calls held references when the grace period of `users` ended, where they were counted.
    pub fn users_held(&self) -> Option<bool> {
        (self.users_held != 0).then_some(self.users_held == 2)
    }

    /// How many requests the end of the grace period of `reqs` has found.
    pub fn set_in_flight(&mut self, requests: Option<u64>) {
        let count = requests.and_then(|n| u32::try_from(n).ok());
        self.in_flight = count.unwrap_or(UNKNOWN_COUNT);
    }

    /// Requests in flight when the grace period of `reqs` ended, where they were counted.
    pub fn in_flight(&self) -> Option<u64> {
        (self.in_flight != UNKNOWN_COUNT).then_some(u64::from(self.in_flight))
    }

    /// The grace period of `users` or `reqs` was found to be over; its end was missed, so its length stays unknown.
    pub fn found_switched(&mut self, is_reqs: bool) {
        if is_reqs == self.users_released.seen() {
            self.found_switched = true;
        }
    }

    /// `free_ioctx_users`
    pub fn users_gone(&mut self, ts_ns: MonotonicNs) {
        self.users_released.set(ts_ns);
        self.found_switched = false;
    }

    /// Where it is.
    pub fn stage(&self) -> Stage {
        if self.reqs_released.seen() {
            Stage::Drained
        } else if self.users_released.seen() {
            if self.reqs_switched.seen() || self.found_switched {
                Stage::Requests
            } else {
                Stage::ReqsGracePeriod
            }
        } else if self.users_switched.seen() || self.found_switched {
            Stage::UsersReferences
        } else {
            Stage::UsersGracePeriod
        }
    }

    /// When it was drained; the kill while it is not. Never before the kill: events of two CPUs may be microseconds
    /// out of order.
    pub fn end_ns(&self) -> MonotonicNs {
        self.reqs_released
            .get()
            .unwrap_or(self.killed_ns)
            .max(self.killed_ns)
    }

    /// Kill to drained, ns.
    pub fn total_ns(&self) -> u64 {
        self.end_ns() - self.killed_ns
    }

    /// Its phases; those that are known follow each other and, if all are, sum to the total.
    pub fn phases(&self) -> Phases {
        let (begin, end) = (self.killed_ns, self.end_ns());
        let Some(middle) = self.users_released.get().map(|ns| ns.clamp(begin, end)) else {
            // free_ioctx_users was lost: only the outer phases have both ends.
            let users_gp = self.users_switched.get().map(|ns| ns.clamp(begin, end) - begin);
            let after_users = begin + users_gp.unwrap_or(0);
            let reqs_io = self
                .reqs_switched
                .get()
                .map(|ns| end - ns.clamp(after_users, end));
            return Phases {
                users_gp,
                reqs_io,
                ..Phases::default()
            };
        };
        let users_switched = self.users_switched.get().map(|ns| ns.clamp(begin, middle));
        let reqs_switched = self.reqs_switched.get().map(|ns| ns.clamp(middle, end));
        Phases {
            users_gp: users_switched.map(|ns| ns - begin),
            users_refs: users_switched.map(|ns| middle - ns),
            reqs_gp: reqs_switched.map(|ns| ns - middle),
            reqs_io: reqs_switched.map(|ns| end - ns),
            users: Some(middle - begin),
            reqs: Some(end - middle),
        }
    }

    /// The file of its last request, from the list of its drain.
    pub fn file_in(&self, files: &[RequestFile]) -> Option<RequestFile> {
        files.get(usize::from(self.file).checked_sub(1)?).cloned()
    }

    /// For readers, relative to the drain's begin.
    pub fn detail(&self, drain_begin_ns: MonotonicNs, files: &[RequestFile]) -> AioContext {
        let p = self.phases();
        let call = self.call_begin.get().zip(self.call_end.get());
        AioContext {
            ctx: format!("{:#x}", self.user_id),
            start_offset_ns: self.killed_ns.saturating_sub(drain_begin_ns),
            users_gp_ns: p.users_gp,
            users_refs_ns: p.users_refs,
            reqs_gp_ns: p.reqs_gp,
            reqs_io_ns: p.reqs_io,
            users_ns: p.users,
            reqs_ns: p.reqs,
            total_ns: self.total_ns(),
            call_ns: call.map(|(begin, end)| end.saturating_sub(begin)),
            in_flight: self.in_flight(),
            last_request: self.file_in(files),
            uncertain: self.uncertain,
        }
    }
}
