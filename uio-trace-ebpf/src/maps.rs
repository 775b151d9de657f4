//! Every map, with the reason for its type and size.

use aya_ebpf::{
    macros::map,
    maps::{Array, CgroupArray, HashMap, LruPerCpuHashMap, PerCpuArray, PerCpuHashMap, RingBuf, StackTrace},
};
use uio_trace_common::{
    loss::COUNTERS as COUNTER_COUNT,
    uio::{BlockerKey, BlockerValue, INFLIGHT_BITS, InFlight, MAX_BLOCKERS, MAX_MINORS, OP_SLOTS, UioSeries},
};

/// Rare and precious: lives of refs, contexts and devices. 1 MiB holds about 11,000 events, several seconds of the
/// worst storm seen (a cgroup removed every 100 us).
#[map]
pub static LIFECYCLE: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// Slow operations, in a ring of their own so that a flood of them cannot drown the lifecycle.
#[map]
pub static SLOW: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// Counters of `uio_trace_common::loss`. Per CPU: no shared cache line on the hot path.
#[map]
pub static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(COUNTER_COUNT, 0);

/// One slot per thread inside an operation, found by the thread id's low bits, not by a hash: an array lookup is a few
/// instructions where a hash map's costs hundreds for lookup, insert and delete. Two threads that share low bits and are inside
/// an operation at the same moment collide; the second is not traced and counted. The second half is for page faults, which
/// can happen inside another operation. Mapped by user space, which looks for operations that do not end.
#[map]
pub static INFLIGHT: Array<InFlight> = Array::with_max_entries(2 << INFLIGHT_BITS, BPF_F_MMAPABLE);

/// include/uapi/linux/bpf.h, since 5.5.
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// What user space knows about the uio module, and what invalidates the device cached in a slot.
#[repr(C)]
pub struct UioState {
    /// Offsets, set when the module appears.
    pub offsets: uio_trace_common::offsets::UioOffsets,
    /// Changes whenever a `struct file` or a device may be reused: release, unregister.
    pub epoch: u64,
}

/// One entry; an array so that user space can write it while the programs run.
#[map]
pub static UIO_STATE: Array<UioState> = Array::with_max_entries(1, 0);

/// Generation the next device of a minor will get: counts unregistrations.
#[map]
pub static GENERATIONS: Array<u32> = Array::with_max_entries(MAX_MINORS, 0);

/// Generation of a device by its address, set when it is registered or first seen. Only read when a slot's cached device is
/// stale, so a hash map is cheap enough; the address alone is no identity, the slab gives it out again.
#[map]
pub static DEVICE_GENERATION: HashMap<u64, u32> = HashMap::with_max_entries(4 * MAX_MINORS, 0);

/// When the unregistration of a device began (CLOCK_MONOTONIC). Only looked at when an operation fails.
#[map]
pub static UNREGISTERING: HashMap<u64, u64> = HashMap::with_max_entries(4 * MAX_MINORS, 0);

/// Address of the device of a minor, for `uio_open`, which has no `private_data` at entry.
#[map]
pub static MINOR_DEVICE: Array<u64> = Array::with_max_entries(MAX_MINORS, 0);

/// This CPU's series of one device.
#[repr(C)]
pub struct DeviceSeries {
    /// `struct uio_device`.
    pub idev: u64,
    /// Generation it belongs to.
    pub generation: u32,
    /// Explicit padding.
    pub reserved: u32,
    /// Series index + 1 by operation; 0: none yet.
    pub series: [u32; OP_SLOTS],
}

/// By minor. Per CPU, so that series are handed out without atomics (5.10 has none for this).
#[map]
pub static DEVICE_SERIES: PerCpuArray<DeviceSeries> = PerCpuArray::with_max_entries(MAX_MINORS, 0);

/// How many series this CPU has handed out.
#[map]
pub static SERIES_USED: PerCpuArray<u32> = PerCpuArray::with_max_entries(1, 0);

/// The series. User space sets the size from the number of CPUs before loading.
#[map]
pub static SERIES: PerCpuArray<UioSeries> = PerCpuArray::with_max_entries(256, 0);

/// Kernel stacks of killers, by a hash that the kernel makes of them. Two different ones with one hash: the second is not
/// kept, and its kill has none.
#[map]
pub static KILL_STACKS: StackTrace = StackTrace::with_max_entries(1024, 0);

/// Kills by release function on this CPU. Least recently used, so that owners cannot run out.
#[map]
pub static KILLS: LruPerCpuHashMap<u64, u64> = LruPerCpuHashMap::with_max_entries(512, 0);

/// Waits by holder. A hash map, since threads are what is told apart; only contended operations come here, at their exit. Per
/// CPU, so that no two writers share an entry; full is counted.
#[map]
pub static BLOCKERS: PerCpuHashMap<BlockerKey, BlockerValue> =
    PerCpuHashMap::with_max_entries(MAX_BLOCKERS, 0);

/// A thread inside `exit_aio` or `io_destroy(2)`.
#[repr(C)]
pub struct AioWaiter {
    /// Its id; 0: free.
    pub tid: u32,
    /// Explicit padding.
    pub reserved: u32,
    /// The mm being torn down; 0 for io_destroy.
    pub mm: u64,
}

/// By the thread id's low bits, as INFLIGHT: the exit of `exit_aio`, which every process runs, must cost next to nothing.
#[map]
pub static AIO_WAITERS: Array<AioWaiter> = Array::with_max_entries(1 << INFLIGHT_BITS, 0);

/// The cgroup of `--cgroup`; empty without it. It holds the kernel's object, not the cgroup, which can be removed all the same.
#[map]
pub static CGROUP: CgroupArray = CgroupArray::with_max_entries(1, 0);

/// Adds one to a counter of `uio_trace_common::loss`.
#[inline(always)]
pub fn count(index: u32) {
    if let Some(counter) = COUNTERS.get_ptr_mut(index) {
        // SAFETY: a per-CPU value; programs of one CPU that nest can lose an increment, never corrupt it.
        unsafe { *counter += 1 };
    }
}
