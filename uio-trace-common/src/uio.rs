//! UIO operations and the per-CPU series they are counted into.

use crate::histogram::BUCKETS;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `uio_write`: runs the driver's irqcontrol under info_lock.
pub const OP_WRITE: u32 = 0;
/// `uio_read`: sleeps for an interrupt outside the lock.
pub const OP_READ: u32 = 1;
/// `uio_poll`
pub const OP_POLL: u32 = 2;
/// `uio_mmap`
pub const OP_MMAP: u32 = 3;
/// `uio_vma_fault`
pub const OP_FAULT: u32 = 4;
/// `uio_open`
pub const OP_OPEN: u32 = 5;
/// `uio_release`
pub const OP_RELEASE: u32 = 6;
/// `name_show`: read of /sys/class/uio/uioN/name
pub const OP_NAME_SHOW: u32 = 7;
/// `version_show`: read of /sys/class/uio/uioN/version
pub const OP_VERSION_SHOW: u32 = 8;
/// `uio_unregister_device`
pub const OP_UNREGISTER: u32 = 9;
/// Number of operations.
pub const OPS: u32 = 10;
/// For the operation of a holder that was in none that is traced.
pub const OP_UNKNOWN: u32 = OPS;

/// log2 of the number of in-flight slots for threads; page faults have as many of their own.
pub const INFLIGHT_BITS: u32 = 13;

/// Room for every value [`InFlight::operation`] can have: a mask is a bound that every verifier remembers.
pub const OP_SLOTS: usize = 16;
const _: () = assert!((OPS as usize) < OP_SLOTS);

/// State of one operation. Free when `start_ns` is 0; `tid`, `file`, `epoch`, `idev`, `minor` and `generation` outlive the
/// operation as a cache for the thread's next one.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
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

/// Holders of info_lock that others waited for that are told apart; waits behind further ones are counted as lost.
pub const MAX_BLOCKERS: u32 = 2048;

/// Who waited behind whom: one entry for each holder thread and pair of operations of a device.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct BlockerKey {
    /// Minor number of the device.
    pub minor: u32,
    /// Generation of the minor.
    pub generation: u32,
    /// What the waiter did: `OP_*`
    pub waiter_op: u32,
    /// What the holder did: `OP_*` or [`OP_UNKNOWN`].
    pub holder_op: u32,
    /// Process of the holder.
    pub holder_tgid: u32,
    /// Thread that held info_lock when the wait began.
    pub holder_tid: u32,
}

/// The waits behind one [`BlockerKey`], on one CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct BlockerValue {
    /// Waits.
    pub count: u64,
    /// Their sum, ns.
    pub wait_ns: u64,
    /// Those whose waiter began to wait on the holder's CPU: no other CPU would have helped.
    pub same_cpu: u64,
    /// comm of the holder.
    pub comm: [u8; 16],
}

/// Steps of 8 bytes in which a `struct uio_device` is searched for a percpu_ref.
pub const REF_STEPS: u64 = 256;

/// Minor numbers the device table holds; the kernel hands out the lowest free one.
pub const MAX_MINORS: u32 = 1024;

/// Distinct errno values a series tells apart.
pub const ERRNOS: usize = 6;

/// Code in [`ErrnoCount`] for a page fault answered with an error (VM_FAULT_ERROR: SIGBUS to the process).
pub const ERR_FAULT_SIGBUS: u32 = 1 << 16;

/// Failures with one errno.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct ErrnoCount {
    /// The positive errno (or [`ERR_FAULT_SIGBUS`]); 0: unused.
    pub errno: u32,
    /// How often; wraps.
    pub count: u32,
}

/// One histogram of a series, in ns. Bucket counts wrap: the reader keeps the last reading and adds the difference.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SeriesHistogram {
    /// Sum of the values.
    pub sum: u64,
    /// 2^64 - 1 - smallest value, so that zeroed memory means "none yet".
    pub inverted_min: u64,
    /// Largest value.
    pub max: u64,
    /// Values by `histogram::bucket_index`.
    pub buckets: [u32; BUCKETS],
}

/// Everything counted for one operation of one device on one CPU. Self-describing, so that a CPU can hand out
/// its series without asking another one.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct UioSeries {
    /// Address of the `struct uio_device`; 0: series not handed out.
    pub idev: u64,
    /// When the first operation was counted (CLOCK_MONOTONIC).
    pub first_ns: u64,
    /// Minor number.
    pub minor: u32,
    /// Generation of that minor: a re-registered minor is another device.
    pub generation: u32,
    /// `OP_*`
    pub op: u32,
    /// Failures with an errno beyond the first [`ERRNOS`] distinct ones.
    pub errors_other: u32,
    /// Operations counted.
    pub count: u64,
    /// Operations that waited for info_lock.
    pub contended: u64,
    /// Waits for other locks inside the operation.
    pub driver_waits: u64,
    /// Their sum, ns.
    pub driver_wait_ns: u64,
    /// Of the waits for info_lock, time spent spinning, ns; where contention tracepoints tell it.
    pub spin_ns: u64,
    /// From giving info_lock back, with others waiting, to the exit: waking one of them, ns; where a probe sees the release.
    pub wake_ns: u64,
    /// Failures of operations that began after the device's unregistration had begun.
    pub refused: u64,
    /// Failures by errno.
    pub errnos: [ErrnoCount; ERRNOS],
    /// Entry to exit.
    pub latency: SeriesHistogram,
    /// Wait for info_lock, contended operations only.
    pub wait: SeriesHistogram,
    /// From holding info_lock (from entry when uncontended) to exit, less driver lock waits. Not for read.
    pub hold: SeriesHistogram,
}
