//! The series operations are counted into.

use crate::maps::{BLOCKERS, DEVICE_SERIES, DeviceSeries, SERIES, SERIES_USED, count};
use uio_trace_common::{
    histogram::BUCKETS,
    loss::{DROP_BLOCKERS_FULL, DROP_MINOR_RANGE, DROP_SERIES_FULL},
    uio::{
        BlockerKey, BlockerValue, ERRNOS, InFlight, MAX_MINORS, OP_SLOTS, OPS, SeriesHistogram, UioSeries,
    },
};

/// Counts a wait for info_lock to the holder's account.
#[inline(always)]
pub(super) fn blocked(slot: &InFlight, op: u32) {
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
pub(super) fn count_error(series: &mut UioSeries, error: u32) {
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
pub(super) fn record(histogram: &mut SeriesHistogram, value: u64, bucket: usize) {
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
pub(super) fn series(slot: &InFlight, op: u32) -> Option<&'static mut UioSeries> {
    if op >= OPS {
        return None;
    }
    if slot.minor >= MAX_MINORS {
        count(DROP_MINOR_RANGE);
        return None;
    }
    // SAFETY: a per-CPU value; not preempted on its CPU (see the head of mod.rs).
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
    // SAFETY: a per-CPU value; not preempted on its CPU (see the head of mod.rs).
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
