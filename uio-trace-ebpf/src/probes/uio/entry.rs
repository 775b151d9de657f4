//! How operations begin.

use super::{MINOR_MASK, now, own_process, state};
use crate::{
    inflight::{claim, current_tid},
    kernel_read::{ReadFault, read_at},
    maps::{DEVICE_GENERATION, GENERATIONS, MINOR_DEVICE, UNREGISTERING, UioState, count},
    settings::setting,
    wanted::unwanted,
};
use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::{fentry, kprobe},
    programs::{FEntryContext, ProbeContext},
};
use uio_trace_common::{
    loss::{DROP_READ_FAULT, UIO_SEEN},
    uio::{
        EARLY, InFlight, OP_FAULT, OP_MMAP, OP_NAME_SHOW, OP_OPEN, OP_POLL, OP_READ, OP_RELEASE,
        OP_UNREGISTER, OP_VERSION_SHOW, OP_WRITE, OPS,
    },
};

/// Where an operation finds its device.
enum Source {
    /// `file->private_data->dev`
    File(u64),
    /// The `struct uio_device` itself.
    Device(u64),
    /// Only the minor: `uio_open` at its entry.
    Inode(u64, u64),
}

/// Begins an operation. The time is taken last, so that our own work is not part of the latency.
#[inline(always)]
fn enter(op: u32, source: Source) {
    let pid_tgid = bpf_get_current_pid_tgid();
    if unwanted(pid_tgid) {
        return;
    }
    let Some(state) = state() else { return };
    let op = if state.offsets.armed != 0 {
        count(UIO_SEEN);
        op
    } else {
        op | EARLY
    };
    let Some(slot) = claim(pid_tgid as u32, op) else {
        return;
    };
    let found = match source {
        Source::File(file) => {
            if slot.file == file && slot.epoch == state.epoch {
                slot.start_ns = now();
                return;
            }
            slot.file = file;
            slot.epoch = state.epoch;
            read_at::<u64>(file, setting!(file_private_data))
                .and_then(|listener| read_at::<u64>(listener, state.offsets.listener_dev))
                .and_then(|idev| set_device(slot, state, idev))
        }
        Source::Device(idev) => {
            slot.file = 0;
            set_device(slot, state, idev)
        }
        Source::Inode(inode, file) => {
            slot.epoch = state.epoch.wrapping_sub(1);
            slot.file = file;
            set_minor(slot, state, inode)
        }
    };
    if found.is_err() {
        count(DROP_READ_FAULT);
        slot.file = 0;
        slot.start_ns = 0;
        return;
    }
    slot.start_ns = now();
}

/// Fills in device, minor, generation and lock range.
#[inline(always)]
pub(super) fn set_device(slot: &mut InFlight, state: &UioState, idev: u64) -> Result<(), ReadFault> {
    if idev == 0 {
        return Err(ReadFault);
    }
    let minor = read_at::<u32>(idev, state.offsets.minor_at)? & MINOR_MASK;
    slot.idev = idev;
    slot.minor = minor;
    slot.generation = generation(idev, minor);
    slot.lock_from = idev + u64::from(state.offsets.lock_from);
    slot.lock_to = idev + u64::from(state.offsets.lock_to);
    if let Some(device) = MINOR_DEVICE.get_ptr_mut(minor) {
        // SAFETY: a live map value; writers race only to store the same address.
        unsafe { *device = idev };
    }
    Ok(())
}

/// Generation of a device: the one it was registered with, or the minor's current one when first seen now.
#[inline(always)]
fn generation(idev: u64, minor: u32) -> u32 {
    // SAFETY: entries are never removed by the BPF side; a value replaced meanwhile is a whole u32 either way.
    if let Some(known) = unsafe { DEVICE_GENERATION.get(&idev) } {
        return *known;
    }
    let current = GENERATIONS.get(minor).copied().unwrap_or(0);
    let _ = DEVICE_GENERATION.insert(&idev, &current, 0);
    current
}

#[inline(always)]
fn set_minor(slot: &mut InFlight, state: &UioState, inode: u64) -> Result<(), ReadFault> {
    let minor = read_at::<u32>(inode, setting!(inode_i_rdev))? & MINOR_MASK;
    slot.minor = minor;
    slot.idev = MINOR_DEVICE.get(minor).copied().unwrap_or(0);
    if slot.idev != 0 {
        slot.lock_from = slot.idev + u64::from(state.offsets.lock_from);
        slot.lock_to = slot.idev + u64::from(state.offsets.lock_to);
        slot.generation = generation(slot.idev, minor);
    } else {
        slot.lock_from = 0;
        slot.lock_to = 0;
    }
    Ok(())
}

/// The kprobe and the fentry program of one function: what it takes of the arguments, by their places, and what it does.
macro_rules! entry {
    ($(#[$doc:meta])* $kprobe:ident, $fentry:ident, |$($arg:ident @ $place:literal),+| $work:expr) => {
        $(#[$doc])*
        #[kprobe]
        pub fn $kprobe(ctx: ProbeContext) -> u32 {
            if let ($(Some($arg),)+) = ($(ctx.arg::<u64>($place),)+) {
                $work;
            }
            0
        }

        $(#[$doc])*
        #[fentry]
        pub fn $fentry(ctx: FEntryContext) -> i32 {
            let ($($arg,)+) = ($(ctx.arg::<u64>($place),)+);
            $work;
            0
        }
    };
}

entry!(
    /// `static ssize_t uio_write(struct file *filep, const char __user *buf, size_t count, loff_t *ppos)`
    uio_write_entry, uio_write_fentry, |file @ 0| enter(OP_WRITE, Source::File(file))
);
entry!(
    /// `static ssize_t uio_read(struct file *filep, char __user *buf, size_t count, loff_t *ppos)`
    uio_read_entry, uio_read_fentry, |file @ 0| enter(OP_READ, Source::File(file))
);
entry!(
    /// `static __poll_t uio_poll(struct file *filep, poll_table *wait)`
    uio_poll_entry, uio_poll_fentry, |file @ 0| enter(OP_POLL, Source::File(file))
);
entry!(
    /// `static int uio_mmap(struct file *filep, struct vm_area_struct *vma)`
    uio_mmap_entry, uio_mmap_fentry, |file @ 0| enter(OP_MMAP, Source::File(file))
);
entry!(
    /// `static int uio_open(struct inode *inode, struct file *filep)`: `private_data` is not set yet.
    uio_open_entry, uio_open_fentry, |inode @ 0, file @ 1| enter(OP_OPEN, Source::Inode(inode, file))
);
entry!(
    /// `static int uio_release(struct inode *inode, struct file *filep)`: the last moment the file is this file.
    uio_release_entry, uio_release_fentry, |file @ 1| release(file)
);
entry!(
    /// `static vm_fault_t uio_vma_fault(struct vm_fault *vmf)`: `vmf->vma->vm_private_data` is the device.
    uio_fault_entry, uio_fault_fentry, |vmf @ 0| fault(vmf)
);
/// `static ssize_t name_show(struct device *dev, struct device_attribute *attr, char *buf)`
#[kprobe]
pub fn uio_name_show_entry(ctx: ProbeContext) -> u32 {
    if let Some(device) = ctx.arg(0) {
        attribute(OP_NAME_SHOW, device);
    }
    0
}

/// `static ssize_t version_show(struct device *dev, struct device_attribute *attr, char *buf)`
#[kprobe]
pub fn uio_version_show_entry(ctx: ProbeContext) -> u32 {
    if let Some(device) = ctx.arg(0) {
        attribute(OP_VERSION_SHOW, device);
    }
    0
}

entry!(
    /// `void uio_unregister_device(struct uio_info *info)`
    uio_unregister_entry, uio_unregister_fentry, |info @ 0| unregister(info)
);
entry!(
    /// `int __uio_register_device(struct module *owner, struct device *parent, struct uio_info *info)`: `info->uio_dev` is set
    /// on success; the slot remembers `info`.
    uio_register_entry, uio_register_fentry, |info @ 2| register(info)
);

#[inline(always)]
fn release(file: u64) {
    if let Some(state) = state() {
        super::new_epoch(state);
    }
    enter(OP_RELEASE, Source::File(file));
}

#[inline(always)]
fn fault(vmf: u64) {
    let idev = read_at::<u64>(vmf, setting!(vm_fault_vma))
        .and_then(|vma| read_at::<u64>(vma, setting!(vma_private_data)));
    match idev {
        Ok(idev) => enter(OP_FAULT, Source::Device(idev)),
        Err(_) => count(DROP_READ_FAULT),
    }
}

#[inline(always)]
fn attribute(op: u32, device: u64) {
    if own_process() {
        return;
    }
    // `dev_get_drvdata(dev)`
    match read_at::<u64>(device, setting!(device_driver_data)) {
        Ok(idev) => enter(op, Source::Device(idev)),
        Err(_) => count(DROP_READ_FAULT),
    }
}

#[inline(always)]
fn unregister(info: u64) {
    let Some(state) = state() else { return };
    match read_at::<u64>(info, state.offsets.info_uio_dev) {
        Ok(idev) => {
            let _ = UNREGISTERING.insert(&idev, &now(), 0);
            enter(OP_UNREGISTER, Source::Device(idev));
        }
        Err(_) => count(DROP_READ_FAULT),
    }
}

#[inline(always)]
fn register(info: u64) {
    if let Some(slot) = claim(current_tid(), OPS) {
        slot.file = 0;
        slot.idev = info;
        slot.lock_from = 0;
        slot.lock_to = 0;
        slot.start_ns = now();
    }
}
