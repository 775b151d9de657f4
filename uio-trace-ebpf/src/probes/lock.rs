//! Waits for locks, only of threads inside a UIO operation: everyone else leaves after one array lookup.
//!
//! A slow acquire fires `contention_begin` several times (spinning, then sleeping, again after a wake-up) and
//! `contention_end` once (kernel/locking/mutex.c, 5.19 to 7.2): the first begin counts.

use crate::{
    inflight::{current_tid, innermost, operation_of},
    kernel_read::read_at,
    settings::setting,
};
use aya_ebpf::{
    helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns},
    macros::{btf_tracepoint, kprobe, kretprobe},
    programs::{BtfTracePointContext, ProbeContext, RetProbeContext},
};
use uio_trace_common::uio::InFlight;

/// LCB_F_SPIN | LCB_F_READ | LCB_F_WRITE, include/trace/events/lock.h: a spinning lock has no other bit. Such a contention may
/// belong to an interrupt that came in between, so it is not taken for a wait of the operation.
const LCB_F_SPIN: u32 = 1;
/// LCB_F_MUTEX | LCB_F_RT | LCB_F_PERCPU
const LCB_F_SLEEPING: u32 = 0x20 | 0x8 | 0x10;
/// LCB_F_READ | LCB_F_WRITE (a rw_semaphore when LCB_F_SPIN is not set).
const LCB_F_RW: u32 = 2 | 4;

/// `TRACE_EVENT(contention_begin, void *lock, unsigned int flags)`
#[btf_tracepoint(function = "contention_begin")]
pub fn lock_contention_begin(ctx: BtfTracePointContext) -> i32 {
    let tid = current_tid();
    if let Some(slot) = innermost(tid) {
        let flags: u32 = ctx.arg(1);
        let sleeping = flags & LCB_F_SLEEPING != 0 || (flags & LCB_F_RW != 0 && flags & LCB_F_SPIN == 0);
        if sleeping {
            begin(slot, ctx.arg(0), flags & LCB_F_SPIN != 0);
        }
    }
    0
}

/// `TRACE_EVENT(contention_end, void *lock, int ret)`
#[btf_tracepoint(function = "contention_end")]
pub fn lock_contention_end(ctx: BtfTracePointContext) -> i32 {
    let tid = current_tid();
    if let Some(slot) = innermost(tid) {
        let lock: u64 = ctx.arg(0);
        if slot.waited() && slot.awaited == lock {
            let ret: i32 = ctx.arg(1);
            end(slot, ret == 0);
        }
    }
    0
}

/// `static noinline void __sched __mutex_lock_slowpath(struct mutex *lock)`, for kernels before 5.19.
#[kprobe]
pub fn lock_slowpath_entry(ctx: ProbeContext) -> u32 {
    if let (Some(slot), Some(lock)) = (innermost(current_tid()), ctx.arg::<u64>(0)) {
        begin(slot, lock, false);
    }
    0
}

/// Return of `__mutex_lock_slowpath`: acquired, it cannot be interrupted.
#[kretprobe]
pub fn lock_slowpath_exit(_ctx: RetProbeContext) -> u32 {
    if let Some(slot) = innermost(current_tid())
        && slot.waited()
        && slot.awaited != 0
    {
        end(slot, true);
    }
    0
}

/// `static noinline void __sched __mutex_unlock_slowpath(struct mutex *lock, unsigned long ip)`: an unlock with waiters. What
/// follows, waking them, is not part of the hold.
#[kprobe]
pub fn lock_unlock_slowpath(ctx: ProbeContext) -> u32 {
    if let Some(lock) = ctx.arg(0) {
        released(lock);
    }
    0
}

/// `TRACE_EVENT(contended_release, void *lock)`, 7.x
#[btf_tracepoint(function = "contended_release")]
pub fn lock_contended_release(ctx: BtfTracePointContext) -> i32 {
    released(ctx.arg(0));
    0
}

#[inline(always)]
fn released(lock: u64) {
    if let Some(slot) = innermost(current_tid())
        && lock >= slot.lock_from
        && lock < slot.lock_to
    {
        if !slot.waited() {
            slot.first_wait();
        }
        // SAFETY: no arguments, no preconditions.
        slot.released_ns = unsafe { bpf_ktime_get_ns() };
    }
}

/// Thread and process id of a task; 0: not to be read.
#[inline(always)]
fn ids(task: u64) -> (u32, u32) {
    let (pid, tgid) = (setting!(task_pid), setting!(task_tgid));
    if tgid == pid.wrapping_add(4) {
        // They stand side by side in every kernel so far: one read, and the verifier drops the other way.
        let both = read_at::<[u32; 2]>(task, pid).unwrap_or([0; 2]);
        return (both[0], both[1]);
    }
    (read_at(task, pid).unwrap_or(0), read_at(task, tgid).unwrap_or(0))
}

#[inline(always)]
fn begin(slot: &mut InFlight, lock: u64, spins: bool) {
    if !slot.waited() {
        slot.first_wait();
    }
    if slot.awaited != 0 {
        if slot.awaited == lock {
            // The wait goes on in another way.
            // SAFETY: no arguments, no preconditions.
            let now = unsafe { bpf_ktime_get_ns() };
            spun(slot, now);
            slot.spin_from = if spins { now } else { 0 };
        }
        return;
    }
    if lock >= slot.lock_from
        && lock < slot.lock_to
        && setting!(mutex_owner_word) != 0
        && slot.holder_tid == 0
    {
        // mutex.owner: the task's address and three flag bits (kernel/locking/mutex.c, MUTEX_FLAGS).
        if let Ok(word) = read_at::<u64>(lock, 0) {
            let task = word & !7;
            if task != 0 {
                (slot.holder_tid, slot.holder_tgid) = ids(task);
                slot.holder_comm = read_at(task, setting!(task_comm)).unwrap_or([0; 16]);
                slot.holder_op = operation_of(slot.holder_tid);
                let holder_cpu = read_at::<u32>(task, setting!(task_cpu)).unwrap_or(u32::MAX);
                // SAFETY: no arguments, no preconditions.
                slot.same_cpu = u32::from(holder_cpu == unsafe { bpf_get_smp_processor_id() });
            }
        }
    }
    slot.awaited = lock;
    // SAFETY: no arguments, no preconditions. Last, so that our own work is not counted as waiting.
    slot.await_ns = unsafe { bpf_ktime_get_ns() };
    slot.spin_from = if spins { slot.await_ns } else { 0 };
}

/// Ends a stretch of spinning.
#[inline(always)]
fn spun(slot: &mut InFlight, now: u64) {
    if slot.spin_from != 0 && slot.awaited >= slot.lock_from && slot.awaited < slot.lock_to {
        slot.spin_ns += now.wrapping_sub(slot.spin_from);
    }
}

#[inline(always)]
fn end(slot: &mut InFlight, acquired: bool) {
    // SAFETY: no arguments, no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    let waited = now.wrapping_sub(slot.await_ns);
    let lock = slot.awaited;
    spun(slot, now);
    slot.awaited = 0;
    if lock >= slot.lock_from && lock < slot.lock_to {
        slot.wait_ns += waited;
        if acquired {
            slot.acquired_ns = now;
        }
    } else {
        slot.driver_wait_ns += waited;
        slot.driver_waits += 1;
        slot.other_lock = lock;
        slot.other_wait_ns = waited;
        slot.other_acquired_ns = now;
    }
}
