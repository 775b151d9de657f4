//! How operations end.

use super::{
    MINOR_MASK,
    entry::set_device,
    new_epoch, now, own_process,
    series::{blocked, count_error, record, series},
    state,
};
use crate::{
    emit::{lifecycle_at, slow},
    inflight::{current_tid, running},
    kernel_read::read_at,
    maps::{DEVICE_GENERATION, GENERATIONS, MINOR_DEVICE, UNREGISTERING, count},
    settings::setting,
};
use aya_ebpf::{
    macros::{fexit, kretprobe},
    programs::{FExitContext, RetProbeContext},
};
use uio_trace_common::{
    event::{KIND_UIO_REGISTERED, KIND_UIO_SLOW, KIND_UIO_UNREGISTERED, UioSlow, UioUnregistered},
    histogram::bucket_index,
    loss::{DROP_EXIT_WITHOUT_ENTRY, DROP_READ_FAULT, UIO_NO_DEVICE},
    uio::{ERR_FAULT_SIGBUS, InFlight, OP_FAULT, OP_OPEN, OP_READ, OP_UNREGISTER, OPS},
};

/// Return of every operation but faults and registrations.
#[kretprobe]
pub fn uio_exit(ctx: RetProbeContext) -> u32 {
    exit(now(), |op| {
        // uio_unregister_device returns nothing: what is in the register is not its result.
        if op == OP_UNREGISTER { 0 } else { ctx.ret() }
    });
    0
}

/// Return of `uio_vma_fault`.
#[kretprobe]
pub fn uio_fault_exit(ctx: RetProbeContext) -> u32 {
    fault_exit(now(), ctx.ret());
    0
}

/// Return of `__uio_register_device`.
#[kretprobe]
pub fn uio_register_exit(ctx: RetProbeContext) -> u32 {
    registered(now(), ctx.ret());
    0
}

/// The fexit program of one function. The value it returns stands behind its arguments (`bpf_get_func_ret` needs 5.17).
macro_rules! fexit {
    ($(#[$doc:meta])* $name:ident, |$now:ident, $ret:ident @ $place:literal| $work:expr) => {
        $(#[$doc])*
        #[fexit]
        pub fn $name(ctx: FExitContext) -> i32 {
            let $now = now();
            let $ret: i64 = ctx.arg($place);
            $work;
            0
        }
    };
}

fexit!(
    /// Return of `uio_write`.
    uio_write_fexit, |now, ret @ 4| exit(now, |_| ret)
);
fexit!(
    /// Return of `uio_read`.
    uio_read_fexit, |now, ret @ 4| exit(now, |_| ret)
);
fexit!(
    /// Return of `uio_poll`, `uio_mmap`, `uio_open` and `uio_release`, which have two arguments each.
    uio_two_fexit, |now, ret @ 2| exit(now, |_| ret)
);
fexit!(
    /// Return of `uio_vma_fault`.
    uio_fault_fexit, |now, ret @ 1| fault_exit(now, ret)
);
fexit!(
    /// Return of `__uio_register_device`.
    uio_register_fexit, |now, ret @ 3| registered(now, ret as i32)
);

/// Return of `uio_unregister_device`, which has no value.
#[fexit]
pub fn uio_unregister_fexit(_ctx: FExitContext) -> i32 {
    exit(now(), |_| 0);
    0
}

/// Ends this thread's operation, which may have been any.
#[inline(always)]
fn exit(now: u64, ret: impl Fn(u32) -> i64) {
    let Some(slot) = running(current_tid(), false) else {
        return missing_entry();
    };
    let op = slot.operation();
    let ret = ret(op);
    if op == OP_OPEN {
        resolve_open(slot, ret as i32 == 0);
    }
    leave(slot, now, ret);
    if op == OP_UNREGISTER {
        unregistered(slot, now);
    }
    slot.start_ns = 0;
}

#[inline(always)]
fn fault_exit(now: u64, ret: i64) {
    match running(current_tid(), true) {
        Some(slot) => {
            leave(slot, now, ret);
            slot.start_ns = 0;
        }
        None => missing_entry(),
    }
}

/// A new device, whatever lived at its address before.
#[inline(always)]
fn registered(now: u64, ret: i32) {
    let (Some(slot), Some(state)) = (running(current_tid(), false), state()) else {
        return;
    };
    let info = slot.idev;
    let started = slot.start_ns;
    slot.start_ns = 0;
    if slot.operation() != OPS || ret != 0 {
        return;
    }
    new_epoch(state);
    let Ok(idev) = read_at::<u64>(info, state.offsets.info_uio_dev) else {
        return;
    };
    let Ok(minor) = read_at::<u32>(idev, state.offsets.minor_at) else {
        return;
    };
    let minor = minor & MINOR_MASK;
    let generation = GENERATIONS.get(minor).copied().unwrap_or(0);
    let _ = DEVICE_GENERATION.insert(&idev, &generation, 0);
    let _ = UNREGISTERING.remove(&idev);
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

#[inline(always)]
fn missing_entry() {
    // With a filter the entries of all others are left out on purpose.
    if setting!(filters) == 0 && !own_process() {
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
            series.wake_ns += now.wrapping_sub(slot.released_ns);
            slot.released_ns
        } else {
            now
        };
        hold = held_to
            .saturating_sub(held_from)
            .saturating_sub(slot.driver_wait_ns);
        if contended {
            series.contended += 1;
            series.spin_ns += slot.spin_ns;
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
        // SAFETY: entries are never removed by the BPF side but by a new registration; a value replaced meanwhile is whole.
        if unsafe { UNREGISTERING.get(&slot.idev) }.is_some_and(|began| slot.start_ns >= *began) {
            series.refused += 1;
        }
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
