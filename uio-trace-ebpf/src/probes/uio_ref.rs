//! A percpu_ref in a `struct uio_device`: kernels whose uio has one in place of info_lock.

use super::percpu_ref::send_look;
use crate::{kernel_read::read_at, settings::setting};
use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use uio_trace_common::uio::REF_STEPS;

/// Attached to nothing: user space runs it (BPF_PROG_TEST_RUN) with a device and the range of offsets to search. The first
/// percpu_ref is sent as a look at it: its data leads back to it (`percpu_ref_data.ref`), which nothing else in the struct does.
#[raw_tracepoint]
pub fn uio_find_ref(ctx: RawTracePointContext) -> i32 {
    let idev: u64 = ctx.arg(0);
    let from: u64 = ctx.arg(1);
    let to: u64 = ctx.arg(2);
    for step in 0..REF_STEPS {
        let at = from + 8 * step;
        if at >= to {
            break;
        }
        let reference = idev.wrapping_add(at);
        let data: u64 = read_at(reference, setting!(ref_data)).unwrap_or(0);
        // A kernel address; without this half of the struct's words would be tried as one.
        if data >> 63 == 0 {
            continue;
        }
        if read_at(data, setting!(data_ref)).unwrap_or(0u64) == reference {
            send_look(reference);
            break;
        }
    }
    0
}
