//! The decoded, owned event: what `ingest` makes, a recording replays and [`crate::model::Model`] eats.
//!
//! Everything the model knows reaches it through [`Event`]; it never reads the kernel itself.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uio_trace_common::uio as raw;

/// CLOCK_MONOTONIC, nanoseconds: the clock of `bpf_ktime_get_ns`.
pub type MonotonicNs = u64;

/// A kernel address. Never an identity by itself: the kernel reuses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KernelPtr(pub u64);

/// A task at the moment of an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Task {
    /// Process id.
    pub tgid: u32,
    /// Thread id.
    pub tid: u32,
    /// Thread name, printable (control characters replaced).
    pub comm: String,
}

/// Operations that take info_lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UioOp {
    /// `uio_write`
    Write,
    /// `uio_read`
    Read,
    /// `uio_poll`
    Poll,
    /// `uio_mmap`
    Mmap,
    /// `uio_vma_fault`
    Fault,
    /// `uio_open`
    Open,
    /// `uio_release`
    Release,
    /// `name_show`
    NameShow,
    /// `version_show`
    VersionShow,
    /// `uio_unregister_device`
    Unregister,
}

impl UioOp {
    /// All operations, in display order.
    pub const ALL: [UioOp; raw::OPS as usize] = [
        UioOp::Write,
        UioOp::Read,
        UioOp::Poll,
        UioOp::Mmap,
        UioOp::Fault,
        UioOp::Open,
        UioOp::Release,
        UioOp::NameShow,
        UioOp::VersionShow,
        UioOp::Unregister,
    ];

    /// From the number used at the kernel boundary (`uio_trace_common::uio::OP_*`).
    pub fn from_raw(op: u32) -> Option<UioOp> {
        Self::ALL.get(op as usize).copied()
    }

    /// Name in JSON and on the screen.
    pub fn name(self) -> &'static str {
        match self {
            UioOp::Write => "write",
            UioOp::Read => "read",
            UioOp::Poll => "poll",
            UioOp::Mmap => "mmap",
            UioOp::Fault => "fault",
            UioOp::Open => "open",
            UioOp::Release => "release",
            UioOp::NameShow => "name_show",
            UioOp::VersionShow => "version_show",
            UioOp::Unregister => "unregister",
        }
    }
}

/// One event: when, by whom, what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub ts_ns: MonotonicNs,
    /// What.
    pub kind: EventKind,
}

/// What happened. The first group comes from the rings, the second from user space's own looking around.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A percpu_ref was killed by `by`.
    RefKill {
        /// The killer.
        by: Task,
        /// The ref.
        reference: KernelPtr,
        /// Release function; its name came before in [`EventKind::Symbol`].
        release: KernelPtr,
        /// Confirm callback, if one was given.
        confirm: Option<KernelPtr>,
        /// Already in atomic mode: no grace period follows.
        already_atomic: bool,
        /// Already dead: killed twice.
        already_dead: bool,
        /// Of a ref in atomic mode: references left after the kill.
        references: Option<u64>,
        /// The killer's kernel stack, told before in [`EventKind::KillStack`]; `None`: not taken. Of an owner with many kills only
        /// some have one.
        #[serde(default)]
        stack: Option<u32>,
    },
    /// A switch to atomic mode finished its grace period (RCU callback context: no task).
    RefSwitched {
        /// The ref.
        reference: KernelPtr,
        /// Release function.
        release: KernelPtr,
        /// Of a killed ref: references left once the switch has dropped its own; 0: it is released right there. `None`: not
        /// killed, or not known.
        references: Option<u64>,
    },
    /// A traced release function ran: last reference gone.
    RefReleased {
        /// The ref.
        reference: KernelPtr,
        /// Release function.
        release: KernelPtr,
        /// The switch to atomic mode had not finished: a kernel bug.
        early: bool,
    },
    /// The memory of a ref, looked at because the model asked ([`crate::model::Model::questions`]).
    RefLooked {
        /// The ref.
        reference: KernelPtr,
        /// Its release function, as its memory says.
        release: KernelPtr,
        /// Its state.
        state: RefState,
    },
    /// `exit_aio` entered by an mm with contexts.
    ExitAioBegin {
        /// The exiting task.
        by: Task,
        /// The mm.
        mm: KernelPtr,
    },
    /// `exit_aio` returned.
    ExitAioEnd {
        /// The exiting task.
        by: Task,
        /// The mm.
        mm: KernelPtr,
    },
    /// `io_destroy(2)` entered.
    IoDestroyBegin {
        /// The caller.
        by: Task,
        /// `aio_context_t`.
        user_id: u64,
    },
    /// `io_destroy(2)` returned.
    IoDestroyEnd {
        /// The caller.
        by: Task,
        /// Return value: 0 or -errno.
        ret: i64,
    },
    /// `kill_ioctx`: a context begins to drain.
    AioKill {
        /// The task that will wait.
        by: Task,
        /// The mm.
        mm: KernelPtr,
        /// The kioctx.
        ctx: KernelPtr,
        /// The wait it belongs to (`struct ctx_rq_wait` on the waiter's stack); `None`: nobody waits.
        wait: Option<KernelPtr>,
        /// `&ctx->users`
        users: KernelPtr,
        /// `&ctx->reqs`
        reqs: KernelPtr,
        /// `aio_context_t`.
        user_id: u64,
    },
    /// `free_ioctx_users` ran for a context.
    AioUsersReleased {
        /// The kioctx.
        ctx: KernelPtr,
    },
    /// `free_ioctx_reqs` ran for a context: it is drained, the waiter is woken if it was the last.
    AioReqsReleased {
        /// The kioctx.
        ctx: KernelPtr,
    },
    /// The file of the request that gave back a context's last reference. Comes beside its `AioReqsReleased`.
    AioLastRequest {
        /// The kioctx.
        ctx: KernelPtr,
        /// The file.
        file: RequestFile,
    },
    /// A UIO operation at least as long as the slow threshold.
    UioSlow(UioSlow),
    /// `__uio_register_device` succeeded: this generation of the minor begins.
    UioRegistered {
        /// By whom.
        by: Task,
        /// Which.
        device: DeviceKey,
        /// Entry to exit, ns.
        latency_ns: u64,
    },
    /// `uio_unregister_device` returned: this generation of the minor is gone.
    UioUnregistered {
        /// By whom.
        by: Task,
        /// Which.
        device: DeviceKey,
        /// Entry to exit, ns.
        latency_ns: u64,
        /// Wait for info_lock, ns.
        wait_ns: u64,
    },

    /// CPU time of the threads that hold info_lock while others wait, absolute.
    ThreadTimes(Vec<ThreadTime>),

    /// A kernel stack that kills refer to.
    KillStack {
        /// Its number.
        id: u32,
        /// Functions, from the innermost outwards.
        frames: Vec<String>,
    },
    /// Name of an address used in events from now on.
    Symbol {
        /// The address.
        addr: KernelPtr,
        /// Function name.
        name: String,
        /// Module, if not in vmlinux.
        module: Option<String>,
    },
    /// New reading of the UIO series, summed over CPUs, absolute since the trace began (never wraps, never falls).
    UioReading(Vec<UioSeriesReading>),
    /// Who waited behind whom, absolute since the trace began.
    UioBlockers(Vec<UioBlockerReading>),
    /// UIO operations under way that have taken long; all of them, each time they are looked at and there are or were some.
    UioRunning(Vec<UioRunning>),
    /// What /sys/class/uio says now (all devices; one that is missing is gone).
    UioDevices(Vec<UioDeviceInfo>),
    /// Who has UIO devices open.
    UioOpen(UioOpen),
    /// The uio module (or built-in driver) came or went.
    UioPresence(UioPresence),
    /// What this kernel's uio driver serialises a device with (from its BTF or symbols).
    UioLockKind(crate::model::snapshot::UioLock),
    /// The loss counters, absolute since the trace began, by name (`uio_trace_common::loss::name`), and what user space counted.
    Counters(BTreeMap<String, u64>),
    /// State of the probes; the whole list each time it changed.
    Probes(Vec<crate::model::snapshot::Probe>),
    /// How often hooks were hit and what their programs took, absolute; the first ones are what is counted from. `None`: it is
    /// counted no longer.
    ProbeCosts(Option<Vec<ProbeCost>>),
    /// Tasks that were waiting when the trace began, found by their kernel stacks.
    Waiting(Vec<TaskStack>),
    /// Kernel stacks of the tasks the model asked for ([`crate::model::Model::questions`]).
    Stacks(Vec<TaskStack>),
    /// Nothing happened until now: time passes.
    Tick,
}

/// What the kernel has counted of a hook's programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeCost {
    /// Subject of the hook.
    pub subject: String,
    /// The hook.
    pub hook: String,
    /// Runs of its first program.
    pub hits: u64,
    /// Time its programs took for them, ns.
    pub run_ns: u64,
    /// Runs that the kernel left out, since a program was running on that CPU already.
    pub missed: u64,
}

/// What a look at a percpu_ref found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefState {
    /// This memory is no percpu_ref any more.
    Gone,
    /// Not dead: reinitialised or resurrected.
    Alive,
    /// Killed, in its grace period.
    GracePeriod,
    /// Killed and switched: so many references are left.
    Held(u64),
}

/// What the scheduler has counted of a thread since it began. Process 0, thread 0: the idle tasks of all CPUs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadTime {
    /// Its process.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// Time on a CPU, ns.
    pub cpu_ns: u64,
    /// Time it could run and waited for a CPU, ns.
    pub runqueue_ns: u64,
}

/// A task and where it stands in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStack {
    /// The task.
    pub task: Task,
    /// Functions from the innermost outwards, without offsets; empty: it runs, is gone, or may not be read.
    pub frames: Vec<String>,
    /// Files its process has open for direct I/O, each once (bounded); `None`: not asked for, or not to be seen.
    #[serde(default)]
    pub direct_files: Option<Vec<String>>,
}

/// A file that a request is on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFile {
    /// Its last path component, perhaps cut.
    pub name: String,
    /// Inode number.
    pub inode: u64,
    /// The device the file is, or its file system is on: `major:minor`.
    pub device: String,
    /// That device's name in sysfs; `None`: it has none (a network or memory file system), or it is gone.
    pub disk: Option<String>,
    /// The file is the block device itself.
    pub is_device: bool,
}

impl std::fmt::Display for RequestFile {
    /// `nullb0`, `data.ibd on dm-3`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.disk, self.is_device) {
            (Some(disk), true) => f.write_str(disk),
            (Some(disk), false) => write!(f, "{} on {disk}", self.name),
            (None, _) => write!(f, "{} on device {}", self.name, self.device),
        }
    }
}

/// State of the uio driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UioPresence {
    /// Not loaded.
    Absent,
    /// Loaded and traced since the event's time.
    Present,
}

/// Which UIO device: a minor is reused, so with its generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceKey {
    /// Minor number: the N of uioN.
    pub minor: u32,
    /// Counts re-registrations of the minor seen by the trace, from 0.
    pub generation: u32,
}

/// One slow UIO operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UioSlow {
    /// Who did it.
    pub by: Task,
    /// CPU at its end.
    pub cpu: u32,
    /// Device.
    pub device: DeviceKey,
    /// Operation.
    pub op: UioOp,
    /// Return value (0 or more: success; negative: -errno).
    pub ret: i64,
    /// Entry to exit.
    pub latency_ns: u64,
    /// Wait for info_lock.
    pub wait_ns: u64,
    /// Hold.
    pub hold_ns: u64,
    /// Waits for other locks.
    pub driver_wait_ns: u64,
    /// Who held info_lock when the wait began.
    pub holder: Option<Task>,
    /// What the holder did then; `None`: nothing that is traced, or there was none.
    pub holder_op: Option<UioOp>,
}

/// A UIO operation under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UioRunning {
    /// Whose.
    pub by: Task,
    /// Device.
    pub device: DeviceKey,
    /// Address of its `struct uio_device`; 0: not known.
    pub idev: KernelPtr,
    /// Operation.
    pub op: UioOp,
    /// Entry.
    pub since_ns: MonotonicNs,
    /// The lock it waits for now, if it does.
    pub waits: Option<LockWait>,
}

/// A wait for a lock that lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockWait {
    /// It is info_lock; else another one.
    pub info_lock: bool,
    /// When it began.
    pub since_ns: MonotonicNs,
    /// Who held info_lock then.
    pub holder: Option<Task>,
    /// What the holder did then; `None`: nothing that is traced, or not known.
    pub holder_op: Option<UioOp>,
}

/// Waits for a device's info_lock behind one thread, both in one kind of operation; absolute since the trace began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UioBlockerReading {
    /// Device.
    pub device: DeviceKey,
    /// What the waiters did.
    pub waiter_op: UioOp,
    /// What the holder did; `None`: nothing that is traced.
    pub holder_op: Option<UioOp>,
    /// The holder.
    pub holder: Task,
    /// Waits.
    pub count: u64,
    /// Their sum, ns.
    pub wait_ns: u64,
    /// Those that began on the CPU the holder was on.
    pub same_cpu: u64,
}

/// A series of the kernel side, summed over CPUs; all figures absolute since the trace began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UioSeriesReading {
    /// Device.
    pub device: DeviceKey,
    /// Address of its `struct uio_device`.
    pub idev: KernelPtr,
    /// Operation.
    pub op: UioOp,
    /// First operation counted.
    pub first_ns: MonotonicNs,
    /// Operations.
    pub count: u64,
    /// Operations that waited for info_lock.
    pub contended: u64,
    /// Waits for other locks.
    pub driver_waits: u64,
    /// Their sum.
    pub driver_wait_ns: u64,
    /// Of the waits for info_lock, spinning, ns.
    #[serde(default)]
    pub spin_ns: u64,
    /// From giving info_lock back, with others waiting, to the exit, ns.
    #[serde(default)]
    pub wake_ns: u64,
    /// Of the failures, operations that began after the device's unregistration had begun.
    #[serde(default)]
    pub refused: u64,
    /// Failures by code (positive errno or `ERR_FAULT_SIGBUS`); code 0: errno unknown (more distinct ones than the kernel side tells apart).
    pub errors: BTreeMap<u32, u64>,
    /// Entry to exit.
    pub latency: HistogramReading,
    /// Wait for info_lock, contended operations only.
    pub wait: HistogramReading,
    /// Hold.
    pub hold: HistogramReading,
}

/// A histogram of the kernel side; buckets are sparse, by `uio_trace_common::histogram::bucket_index`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistogramReading {
    /// Sum of the values, ns.
    pub sum: u64,
    /// Smallest value, ns (0 when empty).
    pub min: u64,
    /// Largest value, ns.
    pub max: u64,
    /// (bucket index, count), ascending, no zero counts.
    pub buckets: Vec<(u16, u64)>,
}

/// A device as sysfs shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UioDeviceInfo {
    /// Minor number.
    pub minor: u32,
    /// `name` attribute (may be any text the driver chose); `None`: not read yet, or its info_lock is never released.
    pub name: Option<String>,
    /// `version` attribute.
    pub version: Option<String>,
    /// Driver of the device it belongs to (`device/driver` of its folder in sysfs); `None`: it has none, or not read yet.
    #[serde(default)]
    pub driver: Option<String>,
    /// The device it belongs to (`device`): a PCI address, `tcm_user`, ...
    #[serde(default)]
    pub parent: Option<String>,
}

/// Descriptors of UIO devices, found by looking through /proc/PID/fd.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UioOpen {
    /// One for each process and device.
    pub openers: Vec<UioOpener>,
    /// All processes were looked at; else there may be more.
    pub complete: bool,
}

/// A process that has a UIO device open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UioOpener {
    /// Minor number.
    pub minor: u32,
    /// The device's node is gone: it was unregistered.
    pub deleted: bool,
    /// Process.
    pub tgid: u32,
    /// Its comm.
    pub comm: String,
    /// Its descriptors of the device.
    pub descriptors: u64,
}
