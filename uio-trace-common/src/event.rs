//! Events in the two rings: a header, then one payload struct per kind.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `percpu_ref_kill_and_confirm` was called. Payload [`RefKill`].
pub const KIND_REF_KILL: u32 = 1;
/// `percpu_ref_switch_to_atomic_rcu` began: the grace period of a switch is over. Payload [`RefSwitched`].
pub const KIND_REF_SWITCHED: u32 = 2;
/// A release function was called: the last reference is gone. Payload [`RefReleased`].
pub const KIND_REF_RELEASED: u32 = 3;
/// `exit_aio` returned in a thread that had killed contexts in it. Payload [`ExitAio`].
pub const KIND_EXIT_AIO_END: u32 = 4;
/// `io_destroy(2)` was entered. Payload [`IoDestroy`].
pub const KIND_IO_DESTROY_BEGIN: u32 = 5;
/// `io_destroy(2)` returned. Payload [`IoDestroy`].
pub const KIND_IO_DESTROY_END: u32 = 6;
/// `kill_ioctx` was called for a context. Payload [`AioKill`].
pub const KIND_AIO_KILL: u32 = 7;
/// `free_ioctx_users`: the last user of a context is gone. Payload [`AioRelease`].
pub const KIND_AIO_USERS_RELEASED: u32 = 8;
/// `free_ioctx_reqs`: the last request of a context is done. Payload [`AioRelease`].
pub const KIND_AIO_REQS_RELEASED: u32 = 9;
/// A UIO operation took at least the slow threshold. Payload [`UioSlow`].
pub const KIND_UIO_SLOW: u32 = 10;
/// `uio_unregister_device` returned. Payload [`UioUnregistered`].
pub const KIND_UIO_UNREGISTERED: u32 = 11;
/// `exit_aio` was entered by an mm that has contexts. Payload [`ExitAio`].
pub const KIND_EXIT_AIO_BEGIN: u32 = 12;
/// `__uio_register_device` succeeded. Payload [`UioUnregistered`] (without a wait).
pub const KIND_UIO_REGISTERED: u32 = 13;

/// The file of a context's last request. Payload [`AioLastRequest`].
pub const KIND_AIO_LAST_REQUEST: u32 = 15;
/// A ref was looked at, because user space asked. Payload [`RefLook`]. The header's task is the tool itself.
pub const KIND_REF_LOOK: u32 = 14;

/// In [`EventHeader::kind`]: `current` is outside of the cgroup that was asked for. Sent all the same: a context's second ref is
/// killed by whoever RCU's callback has interrupted.
pub const OUTSIDE: u32 = 1 << 31;

/// First in every event.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct EventHeader {
    /// `KIND_*`, and [`OUTSIDE`].
    pub kind: u32,
    /// CPU it happened on.
    pub cpu: u32,
    /// CLOCK_MONOTONIC.
    pub ts_ns: u64,
    /// Process of `current`. In RCU and IRQ context that is whoever was interrupted: see the kind.
    pub tgid: u32,
    /// Thread of `current`.
    pub tid: u32,
    /// comm of `current`, NUL-padded.
    pub comm: [u8; 16],
}

/// `void percpu_ref_kill_and_confirm(struct percpu_ref *ref, percpu_ref_func_t *confirm_kill)`, lib/percpu-refcount.c.
/// The header's task is the killer.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct RefKill {
    /// The `struct percpu_ref`.
    pub reference: u64,
    /// Its `percpu_ref_data`.
    pub data: u64,
    /// Its release function.
    pub release: u64,
    /// The confirm callback, 0 if none.
    pub confirm: u64,
    /// `percpu_count_ptr` before the kill: bit 0 = already atomic (no grace period follows), bit 1 = already dead.
    pub count_ptr: u64,
    /// `percpu_ref_data.count` before the kill; of a ref in atomic mode all references, the one that the kill drops included.
    pub count: u64,
    /// Id of the killer's kernel stack in the map of stacks; negative: not taken ([`STACK_NOT_WANTED`]), or the kernel's reason.
    pub stack: i64,
}

/// In [`RefKill::stack`]: this owner's kills are many, and only some of them get their stack taken.
pub const STACK_NOT_WANTED: i64 = -1 << 32;

/// `static void percpu_ref_switch_to_atomic_rcu(struct rcu_head *rcu)`, lib/percpu-refcount.c. RCU callback context: the
/// header's task is whoever was interrupted.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct RefSwitched {
    /// The `struct percpu_ref`.
    pub reference: u64,
    /// Its `percpu_ref_data`.
    pub data: u64,
    /// Its release function.
    pub release: u64,
    /// The confirm callback to be called (`percpu_ref_noop_confirm_switch` if none was given).
    pub confirm: u64,
    /// `percpu_count_ptr`: bit 1 = dead (killed, not merely switched).
    pub count_ptr: u64,
    /// What `percpu_ref_data.count` is about to be: the counters of all CPUs, which no one changes any more, added to the
    /// atomic count, less PERCPU_COUNT_BIAS. The switch's own reference, dropped at its end, is in it.
    pub count: u64,
    /// 1: `count` is known. 0: this kernel's per-CPU areas cannot be read, or it has too many CPUs.
    pub counted: u64,
}

/// A release function was called with this ref.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct RefReleased {
    /// The `struct percpu_ref`.
    pub reference: u64,
    /// The release function.
    pub release: u64,
    /// `percpu_ref_data.confirm_switch`: 0 once the switch to atomic mode has finished.
    pub confirm: u64,
}

/// A ref as its memory says it is now. Whether that memory is still this ref: `back` leads back to it, and `release` is the one
/// it was killed with. What could not be read is 0.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct RefLook {
    /// The `struct percpu_ref` asked for.
    pub reference: u64,
    /// `percpu_ref_data.ref` of its data.
    pub back: u64,
    /// `percpu_ref_data.release`
    pub release: u64,
    /// `percpu_count_ptr`: bit 0 = atomic, bit 1 = dead.
    pub count_ptr: u64,
    /// `percpu_ref_data.count`: the references, once the switch is over; before, about PERCPU_COUNT_BIAS.
    pub count: u64,
}

/// `void exit_aio(struct mm_struct *mm)`, fs/aio.c.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct ExitAio {
    /// The `struct mm_struct`.
    pub mm: u64,
}

/// `SYSCALL_DEFINE1(io_destroy, aio_context_t, ctx)`, fs/aio.c.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct IoDestroy {
    /// The `aio_context_t` of user space (0 at the end event).
    pub user_id: u64,
    /// Return value (0 at the begin event).
    pub ret: i64,
}

/// `static int kill_ioctx(struct mm_struct *mm, struct kioctx *ctx, struct ctx_rq_wait *wait)`, fs/aio.c.
/// The header's task is the one that will wait.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct AioKill {
    /// The `struct mm_struct`.
    pub mm: u64,
    /// The `struct kioctx`.
    pub ctx: u64,
    /// The `struct ctx_rq_wait` on the waiter's stack: one for all contexts of one wait; 0: nobody waits.
    pub wait: u64,
    /// Address of `ctx->users`.
    pub users: u64,
    /// Address of `ctx->reqs`.
    pub reqs: u64,
    /// The `aio_context_t` of user space.
    pub user_id: u64,
}

/// `free_ioctx_users` or `free_ioctx_reqs` `(struct percpu_ref *ref)`, fs/aio.c. RCU, IRQ or syscall context.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct AioRelease {
    /// The `struct kioctx`.
    pub ctx: u64,
    /// The `struct percpu_ref`.
    pub reference: u64,
}

/// The file of the request that gave back a context's last reference. Sent beside `free_ioctx_reqs`, in its context.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct AioLastRequest {
    /// The `struct kioctx`.
    pub ctx: u64,
    /// Inode number.
    pub inode: u64,
    /// The kernel's `dev_t`: of a block device itself, of another file the one its file system is on.
    pub device: u32,
    /// `inode.i_mode`
    pub mode: u32,
    /// Its name, up to the first NUL, cut to this length.
    pub name: [u8; FILE_NAME],
}

/// Bytes kept of a file's name.
pub const FILE_NAME: usize = 64;

/// One slow UIO operation. The header's task did it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct UioSlow {
    /// Address of the `struct uio_device`.
    pub idev: u64,
    /// Minor number.
    pub minor: u32,
    /// Generation of the minor.
    pub generation: u32,
    /// `uio::OP_*`
    pub op: u32,
    /// Thread that held info_lock when the wait began; 0: none or unknown.
    pub holder_tid: u32,
    /// Its process.
    pub holder_tgid: u32,
    /// What the holder did: `uio::OP_*`, or `uio::OP_UNKNOWN`.
    pub holder_op: u32,
    /// Its comm.
    pub holder_comm: [u8; 16],
    /// Return value.
    pub ret: i64,
    /// Entry to exit, ns.
    pub latency_ns: u64,
    /// Wait for info_lock, ns.
    pub wait_ns: u64,
    /// Hold, ns.
    pub hold_ns: u64,
    /// Waits for other locks, ns.
    pub driver_wait_ns: u64,
}

/// `void uio_unregister_device(struct uio_info *info)`, drivers/uio/uio.c, returned.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct UioUnregistered {
    /// Address the `struct uio_device` had.
    pub idev: u64,
    /// Minor number.
    pub minor: u32,
    /// Generation that ended.
    pub generation: u32,
    /// Entry to exit, ns.
    pub latency_ns: u64,
    /// Wait for info_lock, ns.
    pub wait_ns: u64,
}

/// Size of the largest event, header included.
pub const MAX_EVENT: usize = core::mem::size_of::<EventHeader>() + core::mem::size_of::<UioSlow>();

const _: () = assert!(core::mem::size_of::<EventHeader>() == 40);
const _: () = assert!(core::mem::size_of::<RefKill>() == 56);
const _: () = assert!(core::mem::size_of::<RefSwitched>() == 56);
const _: () = assert!(core::mem::size_of::<AioKill>() == 48);
const _: () = assert!(core::mem::size_of::<UioSlow>() == 88);
