//! The in-flight slot of a thread inside a UIO operation: begun at entry, added to by lock waits, closed at exit.

use crate::maps::{INFLIGHT, INFLIGHT_BITS, OP_SLOTS, count};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use uio_trace_common::{
    loss::{DROP_EXIT_MISSED, DROP_INFLIGHT_COLLISION},
    uio::{OP_FAULT, OP_UNKNOWN},
};

/// State of one operation. Free when `start_ns` is 0; `tid`, `file`, `epoch`, `idev`, `minor` and `generation` outlive the
/// operation as a cache for the thread's next one.
#[repr(C)]
pub struct InFlight {
    /// Entry, CLOCK_MONOTONIC; 0: free.
    pub start_ns: u64,
    /// Owner of the slot.
    pub tid: u32,
    /// `OP_*`, EARLY, and WAITED once the operation has waited for a lock: only then do the members from `awaited` on mean anything.
    pub op: u32,
    /// `struct file` the cached device belongs to; 0: none.
    pub file: u64,
    /// `UioState.epoch` at caching.
    pub epoch: u64,
    /// `struct uio_device`; 0: not known yet.
    pub idev: u64,
    /// Its minor.
    pub minor: u32,
    /// Its generation.
    pub generation: u32,
    /// info_lock may lie in [lock_from, lock_to).
    pub lock_from: u64,
    /// End of that range.
    pub lock_to: u64,
    /// Lock being waited for; 0: none.
    pub awaited: u64,
    /// First contention_begin of that wait.
    pub await_ns: u64,
    /// When info_lock was acquired after a wait; 0: not contended.
    pub acquired_ns: u64,
    /// When info_lock was released with others waiting for it; 0: nobody was, or not known.
    pub released_ns: u64,
    /// Waits for info_lock.
    pub wait_ns: u64,
    /// Of those, spinning.
    pub spin_ns: u64,
    /// Since when the wait spins; 0: it sleeps.
    pub spin_from: u64,
    /// Waits for other locks.
    pub driver_wait_ns: u64,
    /// Their number.
    pub driver_waits: u32,
    /// Thread that held info_lock when the wait began.
    pub holder_tid: u32,
    /// Last other lock waited for, and how long: `uio_open` learns only at its end whether that was its device's.
    pub other_lock: u64,
    /// See `other_lock`.
    pub other_wait_ns: u64,
    /// When that wait ended.
    pub other_acquired_ns: u64,
    /// Process of the holder.
    pub holder_tgid: u32,
    /// What the holder did: `OP_*`, or `OP_UNKNOWN`.
    pub holder_op: u32,
    /// 1: the wait began on the CPU the holder was on.
    pub same_cpu: u32,
    /// Explicit padding.
    pub reserved: u32,
    /// comm of the holder.
    pub holder_comm: [u8; 16],
}

/// In [`InFlight::op`]: the operation has waited for a lock.
pub const WAITED: u32 = 1 << 8;
/// In [`InFlight::op`]: begun while hooks were still being attached, so it is not counted.
pub const EARLY: u32 = 1 << 9;

impl InFlight {
    /// The operation.
    #[inline(always)]
    pub fn operation(&self) -> u32 {
        self.op & (OP_SLOTS as u32 - 1)
    }

    /// Whether it began too early to be counted.
    #[inline(always)]
    pub fn early(&self) -> bool {
        self.op & EARLY != 0
    }

    /// Whether it has waited for a lock. Nearly none has, and those pay nothing for what the others need.
    #[inline(always)]
    pub fn waited(&self) -> bool {
        self.op & WAITED != 0
    }

    /// At the first wait: gives the members that count waits their zeros.
    #[inline(always)]
    pub fn first_wait(&mut self) {
        self.op |= WAITED;
        self.awaited = 0;
        self.acquired_ns = 0;
        self.released_ns = 0;
        self.wait_ns = 0;
        self.spin_ns = 0;
        self.spin_from = 0;
        self.driver_wait_ns = 0;
        self.driver_waits = 0;
        self.holder_tid = 0;
        self.other_lock = 0;
    }
}

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
