//! UIO operations: an entry program each (they find the device in different ways), and exits.
//!
//! uio is a module on most systems. Two ways lead to a module's functions: kprobe and kretprobe, and, asked for only since it
//! holds the module, fentry and fexit (probes/module_btf.rs of the tool). Each program but the attributes' has a twin for the other way; both call
//! one function that does the work. The device is cached in the thread's slot: looking it up again for every write would cost
//! three reads of kernel memory.
//!
//! Per-CPU data is changed without locks: kprobe programs are not preempted, and the tool uses the others only on kernels that
//! do not preempt.

mod entry;
mod leave;
mod series;

use crate::maps::{UIO_STATE, UioState};
use crate::settings::setting;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};

/// Low bits of a kernel `dev_t` that are the minor (include/linux/kdev_t.h, MINORBITS). `uio_device.minor` has no others set.
const MINOR_MASK: u32 = (1 << 20) - 1;

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

/// The tool itself reads names and versions of new devices: no operation of the load, and it may be the only one.
#[inline(always)]
fn own_process() -> bool {
    (bpf_get_current_pid_tgid() >> 32) as u32 == setting!(own_tgid)
}
