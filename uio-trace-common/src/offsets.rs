//! Where members are in this kernel's structs, and the other settings the BPF side gets.
//!
//! Rust programs carry no CO-RE relocations, so user space reads the offsets from BTF and hands them over.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A member this kernel does not have. The plan drops what needs it.
pub const ABSENT: u32 = u32::MAX;

/// Settings fixed before the programs load: offsets in vmlinux's structs (bytes) and thresholds.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Settings {
    /// Operations at least this long (ns) are also sent as slow samples.
    pub slow_ns: u64,
    /// The name that `--comm` asks for, as the kernel has it (16 bytes, filled up with zeros): its first half.
    pub target_comm_low: u64,
    /// Its second half.
    pub target_comm_high: u64,
    /// Address of the kernel's `__per_cpu_offset` (include/asm-generic/percpu.h); 0: not known.
    pub per_cpu_offset: u64,
    /// `file.private_data`
    pub file_private_data: u32,
    /// `file.f_inode`
    pub file_f_inode: u32,
    /// `inode.i_rdev`
    pub inode_i_rdev: u32,
    /// `task_struct.pid` (the thread id)
    pub task_pid: u32,
    /// `task_struct.tgid`
    pub task_tgid: u32,
    /// `task_struct.comm`
    pub task_comm: u32,
    /// CPU a task runs on: `task_struct.thread_info.cpu`, before 5.16 `task_struct.cpu` (include/linux/sched.h, task_cpu()).
    pub task_cpu: u32,
    /// `device.driver_data`
    pub device_driver_data: u32,
    /// `vm_fault.vma`
    pub vm_fault_vma: u32,
    /// `vm_area_struct.vm_private_data`
    pub vma_private_data: u32,
    /// `mm_struct.ioctx_table`
    pub mm_ioctx_table: u32,
    /// `percpu_ref.percpu_count_ptr`
    pub ref_count_ptr: u32,
    /// `percpu_ref.data` (5.10+)
    pub ref_data: u32,
    /// `percpu_ref_data.count`
    pub data_count: u32,
    /// `percpu_ref_data.release`
    pub data_release: u32,
    /// `percpu_ref_data.confirm_switch`
    pub data_confirm: u32,
    /// `percpu_ref_data.rcu`
    pub data_rcu: u32,
    /// `percpu_ref_data.ref`
    pub data_ref: u32,
    /// `kioctx.users`
    pub kioctx_users: u32,
    /// `kioctx.reqs`
    pub kioctx_reqs: u32,
    /// `kioctx.user_id`
    pub kioctx_user_id: u32,
    /// `aio_kiocb.ki_ctx`
    pub kiocb_ctx: u32,
    /// `aio_kiocb.ki_filp`
    pub kiocb_file: u32,
    /// `file.f_path.dentry`
    pub file_dentry: u32,
    /// `dentry.d_name.name`
    pub dentry_name: u32,
    /// `inode.i_mode`
    pub inode_i_mode: u32,
    /// `inode.i_ino`
    pub inode_i_ino: u32,
    /// `inode.i_sb`
    pub inode_i_sb: u32,
    /// `super_block.s_dev`
    pub super_s_dev: u32,
    /// `sizeof(struct device)`
    pub device_size: u32,
    /// `FILTER_*`: whose doings are traced; 0: everybody's.
    pub filters: u32,
    /// Only this process is traced. The tool's `--pid`.
    pub target_tgid: u32,
    /// The tool's own process: it reads names and versions of devices, which are no operations of the load.
    pub own_tgid: u32,
    /// 1: `mutex` has an owner word at offset 0 whose low 3 bits are flags (not on PREEMPT_RT).
    pub mutex_owner_word: u32,
    /// CPUs that are possible, numbered without gaps; 0: not so, then per-CPU counters are not summed.
    pub possible_cpus: u32,
    /// Explicit padding: the number of u32s is even.
    pub reserved: u32,
}

/// In [`Settings::filters`]: only the process [`Settings::target_tgid`].
pub const FILTER_PID: u32 = 1;
/// In [`Settings::filters`]: only threads of the name [`Settings::target_comm_low`] and `target_comm_high`.
pub const FILTER_COMM: u32 = 2;
/// In [`Settings::filters`]: only processes in the cgroup that user space has put into the map CGROUP, and below it.
pub const FILTER_CGROUP: u32 = 4;

/// Offsets in the `uio` module's structs. Set when the module is there, since its BTF comes and goes with it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct UioOffsets {
    /// `uio_listener.dev`
    pub listener_dev: u32,
    /// A u32 in `uio_device` whose low 20 bits are the minor: `minor` itself, or without module BTF `dev.devt`.
    pub minor_at: u32,
    /// First byte of `uio_device` that can be its info_lock.
    pub lock_from: u32,
    /// First byte after the last that can be its info_lock. With BTF the range is the one mutex.
    pub lock_to: u32,
    /// `uio_info.uio_dev`
    pub info_uio_dev: u32,
    /// 0 while hooks are being attached: operations that begin then may miss their exit, so they are followed but not counted.
    pub armed: u32,
}

/// Most CPUs whose per-CPU counters the programs sum; with more the references at a switch are not known.
pub const MAX_SUMMED_CPUS: u32 = 256;
