//! Sending events: header, payload, and a count of every failure.

use crate::{
    maps::{LIFECYCLE, SLOW, count},
    wanted::outside,
};
use aya_ebpf::{
    helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_smp_processor_id, bpf_ktime_get_ns},
    maps::ring_buf::{RingBuf, RingBufEntry},
};
use uio_trace_common::{
    event::{EventHeader, OUTSIDE},
    loss::{
        DROP_LIFECYCLE_RING, DROP_SLOW_RING, LIFECYCLE_SEEN, LIFECYCLE_SUBMITTED, SLOW_SEEN, SLOW_SUBMITTED,
    },
};

/// An event as it lies in a ring.
#[repr(C)]
struct Record<T> {
    header: EventHeader,
    payload: T,
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: no arguments, no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

/// How often a ring is asked. In NMI-like context, where breakpoint programs run, it refuses while another CPU is in it, which
/// takes that one a fraction of a microsecond.
const ASKED: u32 = 16;

#[inline(always)]
fn reserve<T: 'static>(ring: &RingBuf) -> Option<RingBufEntry<T>> {
    for _ in 0..ASKED {
        if let Some(entry) = ring.reserve::<T>(0) {
            return Some(entry);
        }
    }
    None
}

#[inline(always)]
fn emit<T: 'static>(ring: &RingBuf, kind: u32, ts_ns: u64, payload: T) -> bool {
    let Some(mut entry) = reserve::<Record<T>>(ring) else {
        return false;
    };
    let pid_tgid = bpf_get_current_pid_tgid();
    entry.write(Record {
        header: EventHeader {
            kind: if outside() { kind | OUTSIDE } else { kind },
            // SAFETY: no arguments, no preconditions.
            cpu: unsafe { bpf_get_smp_processor_id() },
            ts_ns,
            tgid: (pid_tgid >> 32) as u32,
            tid: pid_tgid as u32,
            comm: bpf_get_current_comm().unwrap_or([0; 16]),
        },
        payload,
    });
    entry.submit(0);
    true
}

/// To the lifecycle ring, stamped now.
#[inline(always)]
pub fn lifecycle<T: 'static>(kind: u32, payload: T) {
    lifecycle_at(kind, now(), payload);
}

/// To the lifecycle ring, with a time taken before.
#[inline(always)]
pub fn lifecycle_at<T: 'static>(kind: u32, ts_ns: u64, payload: T) {
    count(LIFECYCLE_SEEN);
    count(if emit(&LIFECYCLE, kind, ts_ns, payload) {
        LIFECYCLE_SUBMITTED
    } else {
        DROP_LIFECYCLE_RING
    });
}

/// To the ring of slow samples.
#[inline(always)]
pub fn slow<T: 'static>(kind: u32, ts_ns: u64, payload: T) {
    count(SLOW_SEEN);
    count(if emit(&SLOW, kind, ts_ns, payload) {
        SLOW_SUBMITTED
    } else {
        DROP_SLOW_RING
    });
}
