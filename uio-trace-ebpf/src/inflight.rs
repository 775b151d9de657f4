//! The in-flight slots of threads inside UIO operations: begun at entry, added to by lock waits, closed at exit.

use crate::maps::{INFLIGHT, count};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use uio_trace_common::{
    loss::{DROP_EXIT_MISSED, DROP_INFLIGHT_COLLISION},
    uio::{EARLY, INFLIGHT_BITS, InFlight, OP_FAULT, OP_UNKNOWN, WAITED},
};

/// Page faults have slots of their own: a fault on mapped device memory can happen inside another operation.
#[inline(always)]
fn index(tid: u32, fault: bool) -> u32 {
    let set = tid & ((1 << INFLIGHT_BITS) - 1);
    if fault { set | 1 << INFLIGHT_BITS } else { set }
}

/// Thread id of `current`.
#[inline(always)]
pub fn current_tid() -> u32 {
    bpf_get_current_pid_tgid() as u32
}

/// The slot for an operation that begins now, owned by `tid` but not yet started. `None` (and counted) when another thread
/// is in it.
#[inline(always)]
pub fn claim(tid: u32, op: u32) -> Option<&'static mut InFlight> {
    let slot = INFLIGHT.get_ptr_mut(index(tid, op & (WAITED - 1) == OP_FAULT))?;
    // SAFETY: a live map value; only the thread that owns the slot changes it. Two threads claiming a free slot at once
    // see the loser's exit find another tid: counted as an exit without entry.
    let slot = unsafe { &mut *slot };
    if slot.start_ns != 0 {
        if slot.tid != tid {
            if op & EARLY == 0 {
                count(DROP_INFLIGHT_COLLISION);
            }
            return None;
        }
        if !slot.early() {
            count(DROP_EXIT_MISSED);
        }
    }
    if slot.tid != tid {
        slot.tid = tid;
        slot.file = 0;
    }
    slot.op = op;
    Some(slot)
}

/// The running operation of this thread (a fault, or another one), if any.
#[inline(always)]
pub fn running(tid: u32, fault: bool) -> Option<&'static mut InFlight> {
    let slot = INFLIGHT.get_ptr_mut(index(tid, fault))?;
    // SAFETY: as in `claim`.
    let slot = unsafe { &mut *slot };
    (slot.tid == tid && slot.start_ns != 0).then_some(slot)
}

/// The operation of another thread, as far as it is traced. It may end meanwhile: the answer is of this moment.
#[inline(always)]
pub fn operation_of(tid: u32) -> u32 {
    for fault in [true, false] {
        if let Some(slot) = running(tid, fault) {
            return slot.operation();
        }
    }
    OP_UNKNOWN
}

/// The innermost running operation of this thread.
#[inline(always)]
pub fn innermost(tid: u32) -> Option<&'static mut InFlight> {
    match running(tid, false) {
        None => running(tid, true),
        Some(outer) => match running(tid, true) {
            Some(fault) => Some(fault),
            None => Some(outer),
        },
    }
}
