//! Reads of kernel memory at offsets user space found.

use aya_ebpf::helpers::{bpf_probe_read_kernel, bpf_probe_read_kernel_str_bytes};

/// Why a probe gave up: `bpf_probe_read_kernel` refused.
pub struct ReadFault;

/// A `T` at `base + offset`. Faults (also on a null base) are errors, never crashes.
#[inline(always)]
pub fn read_at<T>(base: u64, offset: u32) -> Result<T, ReadFault> {
    let address = base.wrapping_add(u64::from(offset)) as *const T;
    // SAFETY: the helper checks the address; T is a plain integer or an array of them at every call.
    unsafe { bpf_probe_read_kernel(address) }.map_err(|_| ReadFault)
}

/// A text at `address` into `to`, which stays NUL-terminated: cut to its length.
#[inline(always)]
pub fn read_text(address: u64, to: &mut [u8]) -> Result<(), ReadFault> {
    // SAFETY: the helper checks the address and writes no more than `to` holds.
    unsafe { bpf_probe_read_kernel_str_bytes(address as *const u8, to) }
        .map(drop)
        .map_err(|_| ReadFault)
}
