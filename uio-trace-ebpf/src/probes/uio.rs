//! UIO operations: one entry program each (they find the device in different ways), three exits.
//!
//! uio is a module, so these are kprobe and kretprobe pairs. The device is cached in the thread's slot: looking it up again
//! for every write would cost three reads of kernel memory.

use crate::{
    emit::{lifecycle_at, slow},
    inflight::{EARLY, InFlight, claim, current_tid, running},
    kernel_read::{ReadFault, read_at},
    maps::{
        BLOCKERS, DEVICE_GENERATION, DEVICE_SERIES, DeviceSeries, GENERATIONS, MINOR_DEVICE, OP_SLOTS,
        SERIES, SERIES_USED, UIO_STATE, UioState, count,
    },
    settings::setting,
};
use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns},
    macros::{kprobe, kretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use uio_trace_common::{
    event::{KIND_UIO_REGISTERED, KIND_UIO_SLOW, KIND_UIO_UNREGISTERED, UioSlow, UioUnregistered},
    histogram::{BUCKETS, bucket_index},
    loss::{
        DROP_BLOCKERS_FULL, DROP_EXIT_WITHOUT_ENTRY, DROP_MINOR_RANGE, DROP_READ_FAULT, DROP_SERIES_FULL,
        UIO_NO_DEVICE, UIO_SEEN,
    },
    uio::{
        BlockerKey, BlockerValue, ERR_FAULT_SIGBUS, ERRNOS, MAX_MINORS, OP_FAULT, OP_MMAP, OP_NAME_SHOW,
        OP_OPEN, OP_POLL, OP_READ, OP_RELEASE, OP_UNREGISTER, OP_VERSION_SHOW, OP_WRITE, OPS,
        SeriesHistogram, UioSeries,
    },
};

/// Low bits of a kernel `dev_t` that are the minor (include/linux/kdev_t.h, MINORBITS). `uio_device.minor` has no others set.
const MINOR_MASK: u32 = (1 << 20) - 1;

/// Where an operation finds its device.
enum Source {
    /// `file->private_data->dev`
    File(u64),
    /// The `struct uio_device` itself.
    Device(u64),
    /// Only the minor: `uio_open` at its entry.
    Inode(u64, u64),
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: no arguments, no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

#[inline(always)]
fn state() -> Option<&'static mut UioState> {
    let state = UIO_STATE.get_ptr_mut(0)?;
    // SAFETY: a live map value of plain integers.
    Some(unsafe { &mut *state })
}

/// Cached devices may be stale from now on. Not atomic: of two changes at once one may be lost, the value still changes.
#[inline(always)]
fn new_epoch(state: &mut UioState) {
    state.epoch = state.epoch.wrapping_add(1);
}

/// Begins an operation. The time is taken last, so that our own work is not part of the latency.
#[inline(always)]
fn enter(op: u32, source: Source) {
    let pid_tgid = bpf_get_current_pid_tgid();
    if setting!(target_tgid) != 0 && (pid_tgid >> 32) as u32 != setting!(target_tgid) {
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
fn set_device(slot: &mut InFlight, state: &UioState, idev: u64) -> Result<(), ReadFault> {
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

macro_rules! file_entry {
    ($(#[$doc:meta])* $name:ident, $op:expr, $arg:expr) => {
        $(#[$doc])*
        #[kprobe]
        pub fn $name(ctx: ProbeContext) -> u32 {
            if let Some(file) = ctx.arg(($arg)) {
                enter($op, Source::File(file));
            }
            0
        }
    };
}

file_entry!(
    /// `static ssize_t uio_write(struct file *filep, const char __user *buf, size_t count, loff_t *ppos)`
    uio_write_entry, OP_WRITE, 0
);
file_entry!(
    /// `static ssize_t uio_read(struct file *filep, char __user *buf, size_t count, loff_t *ppos)`
    uio_read_entry, OP_READ, 0
);
file_entry!(
    /// `static __poll_t uio_poll(struct file *filep, poll_table *wait)`
    uio_poll_entry, OP_POLL, 0
);
file_entry!(
    /// `static int uio_mmap(struct file *filep, struct vm_area_struct *vma)`
    uio_mmap_entry, OP_MMAP, 0
);

/// `static int uio_open(struct inode *inode, struct file *filep)`: `private_data` is not set yet.
#[kprobe]
pub fn uio_open_entry(ctx: ProbeContext) -> u32 {
    if let (Some(inode), Some(file)) = (ctx.arg(0), ctx.arg(1)) {
        enter(OP_OPEN, Source::Inode(inode, file));
    }
    0
}

/// `static int uio_release(struct inode *inode, struct file *filep)`: the last moment the file is this file.
#[kprobe]
pub fn uio_release_entry(ctx: ProbeContext) -> u32 {
    if let Some(state) = state() {
        new_epoch(state);
    }
    if let Some(file) = ctx.arg(1) {
        enter(OP_RELEASE, Source::File(file));
    }
    0
}

/// `static vm_fault_t uio_vma_fault(struct vm_fault *vmf)`: `vmf->vma->vm_private_data` is the device.
#[kprobe]
pub fn uio_fault_entry(ctx: ProbeContext) -> u32 {
    if let Some(vmf) = ctx.arg::<u64>(0) {
        let idev = read_at::<u64>(vmf, setting!(vm_fault_vma))
            .and_then(|vma| read_at::<u64>(vma, setting!(vma_private_data)));
        match idev {
            Ok(idev) => enter(OP_FAULT, Source::Device(idev)),
            Err(_) => count(DROP_READ_FAULT),
        }
    }
    0
}

#[inline(always)]
fn sysfs_entry(op: u32, device: Option<u64>) {
    if own_process() {
        return;
    }
    // `dev_get_drvdata(dev)`
    match device.map(|device| read_at::<u64>(device, setting!(device_driver_data))) {
        Some(Ok(idev)) => enter(op, Source::Device(idev)),
        _ => count(DROP_READ_FAULT),
    }
}

/// `static ssize_t name_show(struct device *dev, struct device_attribute *attr, char *buf)`
#[kprobe]
pub fn uio_name_show_entry(ctx: ProbeContext) -> u32 {
    sysfs_entry(OP_NAME_SHOW, ctx.arg(0));
    0
}

/// `static ssize_t version_show(struct device *dev, struct device_attribute *attr, char *buf)`
#[kprobe]
pub fn uio_version_show_entry(ctx: ProbeContext) -> u32 {
    sysfs_entry(OP_VERSION_SHOW, ctx.arg(0));
    0
}

/// `void uio_unregister_device(struct uio_info *info)`
#[kprobe]
pub fn uio_unregister_entry(ctx: ProbeContext) -> u32 {
    let Some(state) = state() else { return 0 };
    match ctx
        .arg::<u64>(0)
        .map(|info| read_at::<u64>(info, state.offsets.info_uio_dev))
    {
        Some(Ok(idev)) => enter(OP_UNREGISTER, Source::Device(idev)),
        _ => count(DROP_READ_FAULT),
    }
    0
}

/// `int __uio_register_device(struct module *owner, struct device *parent, struct uio_info *info)`: `info->uio_dev` is set on
/// success; the slot remembers `info`.
#[kprobe]
pub fn uio_register_entry(ctx: ProbeContext) -> u32 {
    if let Some(info) = ctx.arg::<u64>(2)
        && let Some(slot) = claim(current_tid(), OPS)
    {
        slot.file = 0;
        slot.idev = info;
        slot.lock_from = 0;
        slot.lock_to = 0;
        slot.start_ns = now();
    }
    0
}

/// Return of `__uio_register_device`: a new device, whatever lived at its address before.
#[kretprobe]
pub fn uio_register_exit(ctx: RetProbeContext) -> u32 {
    let now = now();
    let (Some(slot), Some(state)) = (running(current_tid(), false), state()) else {
        return 0;
    };
    let info = slot.idev;
    let started = slot.start_ns;
    slot.start_ns = 0;
    if slot.operation() != OPS || ctx.ret::<i32>() != 0 {
        return 0;
    }
    new_epoch(state);
    let Ok(idev) = read_at::<u64>(info, state.offsets.info_uio_dev) else {
        return 0;
    };
    let Ok(minor) = read_at::<u32>(idev, state.offsets.minor_at) else {
        return 0;
    };
    let minor = minor & MINOR_MASK;
    let generation = GENERATIONS.get(minor).copied().unwrap_or(0);
    let _ = DEVICE_GENERATION.insert(&idev, &generation, 0);
    if let Some(device) = MINOR_DEVICE.get_ptr_mut(minor) {
        // SAFETY: a live map value; the minor is this device's now.
        unsafe { *device = idev };
    }
    lifecycle_at(
        KIND_UIO_REGISTERED,
        now,
        UioUnregistered {
            idev,
            minor,
            generation,
            latency_ns: now.wrapping_sub(started),
            wait_ns: 0,
        },
    );
    0
}

/// Return of every operation but faults.
#[kretprobe]
pub fn uio_exit(ctx: RetProbeContext) -> u32 {
    let now = now();
    match running(current_tid(), false) {
        Some(slot) => {
            if slot.operation() == OP_OPEN {
                resolve_open(slot, ctx.ret::<i32>() == 0);
            }
            let unregister = slot.operation() == OP_UNREGISTER;
            // uio_unregister_device returns nothing: what is in the register is not its result.
            leave(slot, now, if unregister { 0 } else { ctx.ret() });
            if unregister {
                unregistered(slot, now);
            }
            slot.start_ns = 0;
        }
        None => missing_entry(),
    }
    0
}

/// Return of `uio_vma_fault`.
#[kretprobe]
pub fn uio_fault_exit(ctx: RetProbeContext) -> u32 {
    let now = now();
    match running(current_tid(), true) {
        Some(slot) => {
            leave(slot, now, ctx.ret());
            slot.start_ns = 0;
        }
        None => missing_entry(),
    }
    0
}

/// `uio_unregister_device` returns: this generation of the minor is gone, and so is its address' meaning.
#[inline(always)]
fn unregistered(slot: &mut InFlight, now: u64) {
    let wait_ns = if slot.waited() { slot.wait_ns } else { 0 };
    let latency_ns = now.wrapping_sub(slot.start_ns);
    if let Some(next) = GENERATIONS.get_ptr_mut(slot.minor) {
        // SAFETY: a live map value; a minor has one device, and it is unregistered once.
        unsafe { *next += 1 };
    }
    if let Some(state) = state() {
        new_epoch(state);
    }
    lifecycle_at(
        KIND_UIO_UNREGISTERED,
        now,
        UioUnregistered {
            idev: slot.idev,
            minor: slot.minor,
            generation: slot.generation,
            latency_ns,
            wait_ns,
        },
    );
}

/// The tool itself reads names and versions of new devices: no operation of the load, and it may be the only one.
#[inline(always)]
fn own_process() -> bool {
    (bpf_get_current_pid_tgid() >> 32) as u32 == setting!(own_tgid)
}

#[inline(always)]
fn missing_entry() {
    // With a process filter the entries of all others are left out on purpose.
    if setting!(target_tgid) == 0 && !own_process() {
        count(DROP_EXIT_WITHOUT_ENTRY);
    }
}

/// What `uio_open` could not know at its entry: the device, and so whether a lock it waited for was info_lock.
#[inline(always)]
fn resolve_open(slot: &mut InFlight, opened: bool) {
    let Some(state) = state() else { return };
    let file = slot.file;
    slot.file = 0;
    if !opened {
        return;
    }
    let known = slot.idev;
    let found = read_at::<u64>(file, setting!(file_private_data))
        .and_then(|listener| read_at::<u64>(listener, state.offsets.listener_dev))
        .and_then(|idev| set_device(slot, state, idev));
    if found.is_err() {
        count(DROP_READ_FAULT);
        return;
    }
    if !slot.waited() {
        return;
    }
    let lock = slot.other_lock;
    if slot.idev != known && lock >= slot.lock_from && lock < slot.lock_to {
        slot.driver_waits -= 1;
        slot.driver_wait_ns -= slot.other_wait_ns;
        slot.wait_ns += slot.other_wait_ns;
        slot.acquired_ns = slot.other_acquired_ns;
    }
}

/// The errno (or fault code) of a return value; 0: success.
#[inline(always)]
fn error_code(op: u32, ret: i64) -> u32 {
    // Most return int: the upper half of the register is not part of the value.
    let value = ret as i32;
    if op == OP_FAULT {
        // VM_FAULT_ERROR, include/linux/mm_types.h: OOM | SIGBUS | SIGSEGV | HWPOISON | HWPOISON_LARGE | FALLBACK
        return if value & 0x873 != 0 { ERR_FAULT_SIGBUS } else { 0 };
    }
    if (-4095..0).contains(&value) {
        value.unsigned_abs()
    } else {
        0
    }
}

/// Counts a finished operation into this CPU's series.
#[inline(always)]
fn leave(slot: &mut InFlight, now: u64, ret: i64) {
    if slot.early() {
        return;
    }
    if slot.idev == 0 {
        count(UIO_NO_DEVICE);
        return;
    }
    let op = slot.operation();
    let latency = now.wrapping_sub(slot.start_ns);
    let latency_bucket = bucket_index(latency);
    let Some(series) = series(slot, op) else { return };
    series.count += 1;
    record(&mut series.latency, latency, latency_bucket);
    let mut hold = latency;
    if slot.waited() {
        let contended = slot.acquired_ns != 0;
        let held_from = if contended {
            slot.acquired_ns
        } else {
            slot.start_ns
        };
        let held_to = if slot.released_ns != 0 {
            slot.released_ns
        } else {
            now
        };
        hold = held_to
            .saturating_sub(held_from)
            .saturating_sub(slot.driver_wait_ns);
        if contended {
            series.contended += 1;
            record(&mut series.wait, slot.wait_ns, bucket_index(slot.wait_ns));
            if slot.holder_tid != 0 {
                blocked(slot, op);
            }
        }
        series.driver_waits += u64::from(slot.driver_waits);
        series.driver_wait_ns += slot.driver_wait_ns;
        if op != OP_READ {
            record(&mut series.hold, hold, bucket_index(hold));
        }
    } else if op != OP_READ {
        record(&mut series.hold, hold, latency_bucket);
    }
    let error = error_code(op, ret);
    if error != 0 {
        count_error(series, error);
    }
    // A read sleeps until the device's next interrupt: only what it waits for locks is slowness.
    if latency >= setting!(slow_ns) && (op != OP_READ || slot.waited()) {
        if !slot.waited() {
            slot.first_wait();
        }
        if op == OP_READ && slot.wait_ns + slot.driver_wait_ns < setting!(slow_ns) {
            return;
        }
        slow(
            KIND_UIO_SLOW,
            now,
            UioSlow {
                idev: slot.idev,
                minor: slot.minor,
                generation: slot.generation,
                op,
                holder_tid: slot.holder_tid,
                holder_tgid: slot.holder_tgid,
                holder_op: slot.holder_op,
                holder_comm: slot.holder_comm,
                ret,
                latency_ns: latency,
                wait_ns: slot.wait_ns,
                hold_ns: hold,
                driver_wait_ns: slot.driver_wait_ns,
            },
        );
    }
}

/// Counts a wait for info_lock to the holder's account.
#[inline(always)]
fn blocked(slot: &InFlight, op: u32) {
    let key = BlockerKey {
        minor: slot.minor,
        generation: slot.generation,
        waiter_op: op,
        holder_op: slot.holder_op,
        holder_tgid: slot.holder_tgid,
        holder_tid: slot.holder_tid,
    };
    if let Some(known) = BLOCKERS.get_ptr_mut(&key) {
        // SAFETY: a per-CPU value; entries are never removed.
        let known = unsafe { &mut *known };
        known.count += 1;
        known.wait_ns += slot.wait_ns;
        known.same_cpu += u64::from(slot.same_cpu);
        return;
    }
    let first = BlockerValue {
        count: 1,
        wait_ns: slot.wait_ns,
        same_cpu: u64::from(slot.same_cpu),
        comm: slot.holder_comm,
    };
    if BLOCKERS.insert(&key, &first, 0).is_err() {
        count(DROP_BLOCKERS_FULL);
    }
}

#[inline(always)]
fn count_error(series: &mut UioSeries, error: u32) {
    for i in 0..ERRNOS {
        let slot = &mut series.errnos[i];
        if slot.errno == 0 {
            slot.errno = error;
        }
        if slot.errno == error {
            slot.count = slot.count.wrapping_add(1);
            return;
        }
    }
    series.errors_other = series.errors_other.wrapping_add(1);
}

#[inline(always)]
fn record(histogram: &mut SeriesHistogram, value: u64, bucket: usize) {
    histogram.sum += value;
    if !value > histogram.inverted_min {
        histogram.inverted_min = !value;
    }
    if value > histogram.max {
        histogram.max = value;
    }
    // Hidden from the compiler, which knows the bound and would leave the check out; 5.10's verifier forgets it on the way.
    let bucket = core::hint::black_box(bucket);
    if bucket < BUCKETS {
        histogram.buckets[bucket] = histogram.buckets[bucket].wrapping_add(1);
    }
}

/// This CPU's series for the slot's device and operation; handed out when there is none.
#[inline(always)]
fn series(slot: &InFlight, op: u32) -> Option<&'static mut UioSeries> {
    if op >= OPS {
        return None;
    }
    if slot.minor >= MAX_MINORS {
        count(DROP_MINOR_RANGE);
        return None;
    }
    // SAFETY: a per-CPU value; kprobe programs are not preempted on their CPU.
    let device = unsafe { &mut *DEVICE_SERIES.get_ptr_mut(slot.minor)? };
    if device.idev != slot.idev || device.generation != slot.generation {
        device.idev = slot.idev;
        device.generation = slot.generation;
        device.series = [0; OP_SLOTS];
    }
    let known = device.series[op as usize];
    let index = if known != 0 {
        known - 1
    } else {
        hand_out(device, slot, op)?
    };
    // SAFETY: as above.
    Some(unsafe { &mut *SERIES.get_ptr_mut(index)? })
}

/// The next free series of this CPU, labelled.
#[inline(always)]
fn hand_out(device: &mut DeviceSeries, slot: &InFlight, op: u32) -> Option<u32> {
    // SAFETY: a per-CPU value; kprobe programs are not preempted on their CPU.
    let used = unsafe { &mut *SERIES_USED.get_ptr_mut(0)? };
    let index = *used;
    let Some(series) = SERIES.get_ptr_mut(index) else {
        count(DROP_SERIES_FULL);
        return None;
    };
    // SAFETY: as above; the series is nobody's yet.
    let series = unsafe { &mut *series };
    series.minor = slot.minor;
    series.generation = slot.generation;
    series.op = op;
    series.first_ns = slot.start_ns;
    series.idev = slot.idev;
    device.series[op as usize] = index + 1;
    *used = index + 1;
    Some(index)
}
