//! From BTF to the settings and offsets the BPF side gets.

use super::btf::Btf;
use uio_trace_common::offsets::{ABSENT, Settings, UioOffsets};

/// Offset of `uio_device.dev` without module BTF: after `struct module *owner` (drivers/uio/uio.c, 5.10 to 7.2).
const DEV_IN_UIO_DEVICE: u32 = 8;
/// Largest kmalloc cache a `struct uio_device` is in without module BTF; the lock lies before it ends.
pub const UIO_DEVICE_MAX: u32 = 2048;

/// Settings with everything this kernel's BTF tells; members it lacks are [`ABSENT`].
pub fn settings(btf: Option<&Btf>, preempt_rt: bool) -> Settings {
    let offset = |name: &str, path: &str| btf.and_then(|btf| btf.offset_of(name, path)).unwrap_or(ABSENT);
    Settings {
        slow_ns: u64::MAX,
        target_comm_low: 0,
        target_comm_high: 0,
        per_cpu_offset: 0,
        file_private_data: offset("file", "private_data"),
        file_f_inode: offset("file", "f_inode"),
        inode_i_rdev: offset("inode", "i_rdev"),
        task_pid: offset("task_struct", "pid"),
        task_tgid: offset("task_struct", "tgid"),
        task_comm: offset("task_struct", "comm"),
        task_cpu: btf
            .and_then(|btf| {
                btf.offset_of("task_struct", "thread_info.cpu")
                    .or_else(|| btf.offset_of("task_struct", "cpu"))
            })
            .unwrap_or(ABSENT),
        device_driver_data: offset("device", "driver_data"),
        vm_fault_vma: offset("vm_fault", "vma"),
        vma_private_data: offset("vm_area_struct", "vm_private_data"),
        mm_ioctx_table: offset("mm_struct", "ioctx_table"),
        ref_count_ptr: offset("percpu_ref", "percpu_count_ptr"),
        ref_data: offset("percpu_ref", "data"),
        data_count: offset("percpu_ref_data", "count"),
        data_release: offset("percpu_ref_data", "release"),
        data_confirm: offset("percpu_ref_data", "confirm_switch"),
        data_rcu: offset("percpu_ref_data", "rcu"),
        data_ref: offset("percpu_ref_data", "ref"),
        kioctx_users: offset("kioctx", "users"),
        kioctx_reqs: offset("kioctx", "reqs"),
        kioctx_user_id: offset("kioctx", "user_id"),
        kiocb_ctx: offset("aio_kiocb", "ki_ctx"),
        kiocb_file: offset("aio_kiocb", "ki_filp"),
        file_dentry: offset("file", "f_path.dentry"),
        dentry_name: offset("dentry", "d_name.name"),
        inode_i_mode: offset("inode", "i_mode"),
        inode_i_ino: offset("inode", "i_ino"),
        inode_i_sb: offset("inode", "i_sb"),
        super_s_dev: offset("super_block", "s_dev"),
        device_size: btf.and_then(|btf| btf.size_of("device")).unwrap_or(ABSENT),
        filters: 0,
        target_tgid: 0,
        own_tgid: 0,
        // A PREEMPT_RT mutex is an rt_mutex; its owner word is elsewhere and flagged otherwise.
        mutex_owner_word: u32::from(!preempt_rt && offset("mutex", "owner") == 0),
        possible_cpus: 0,
        reserved: 0,
    }
}

/// Where things are in the uio module, and whether its lock is known exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UioLayout {
    /// For the BPF side.
    pub offsets: UioOffsets,
    /// What the lock member is.
    pub lock: LockKind,
    /// Offsets between which a percpu_ref in place of info_lock may lie; empty: there is none.
    pub reference: (u32, u32),
}

/// What `struct uio_device` has for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// A mutex `info_lock`.
    Mutex,
    /// A percpu_ref `info_ref`.
    PercpuRef,
    /// No module BTF: any mutex in the device after its `struct device` is taken for it.
    AssumedMutex,
}

/// From module BTF when there is one; else from vmlinux's `struct device` and the layout all known versions share.
///
/// `None`: not even that (no vmlinux BTF).
pub fn uio_layout(vmlinux: Option<&Btf>, module: Option<&Btf>) -> Option<UioLayout> {
    if let Some(module) = module
        && let Some(layout) = from_module(module)
    {
        return Some(layout);
    }
    let vmlinux = vmlinux?;
    let device_size = vmlinux.size_of("device")?;
    Some(UioLayout {
        offsets: UioOffsets {
            listener_dev: 0,
            minor_at: DEV_IN_UIO_DEVICE + vmlinux.offset_of("device", "devt")?,
            // Not before: `struct device` has a mutex of its own.
            lock_from: DEV_IN_UIO_DEVICE + device_size,
            lock_to: (DEV_IN_UIO_DEVICE + device_size)
                .next_power_of_two()
                .min(UIO_DEVICE_MAX),
            info_uio_dev: 0,
            armed: 0,
        },
        lock: LockKind::AssumedMutex,
        reference: (DEV_IN_UIO_DEVICE + device_size, UIO_DEVICE_MAX),
    })
}

fn from_module(module: &Btf) -> Option<UioLayout> {
    let lock = module.offset_of("uio_device", "info_lock");
    let (from, to, kind, reference) = match lock {
        Some(at) => (
            at,
            at + module.member_size("uio_device", "info_lock")?.max(1),
            LockKind::Mutex,
            (0, 0),
        ),
        None => {
            let at = module.offset_of("uio_device", "info_ref")?;
            (0, 0, LockKind::PercpuRef, (at, at + 8))
        }
    };
    Some(UioLayout {
        offsets: UioOffsets {
            listener_dev: module.offset_of("uio_listener", "dev")?,
            minor_at: module.offset_of("uio_device", "minor")?,
            lock_from: from,
            lock_to: to,
            info_uio_dev: module.offset_of("uio_info", "uio_dev")?,
            armed: 0,
        },
        lock: kind,
        reference,
    })
}
