//! Reads of kernel memory at offsets user space found.

use aya_ebpf::helpers::bpf_probe_read_kernel;

/// Why a probe gave up: `bpf_probe_read_kernel` refused.
pub struct ReadFault;

/// A `T` at `base + offset`. Faults (also on a null base) are errors, never crashes.
#[inline(always)]
pub fn read_at<T>(base: u64, offset: u32) -> Result<T, ReadFault> {
    let address = base.wrapping_add(u64::from(offset)) as *const T;
    // SAFETY: the helper checks the address; T is a plain integer or an array of them at every call.
    unsafe { bpf_probe_read_kernel(address) }.map_err(|_| ReadFault)
}
