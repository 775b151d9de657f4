//! Indices of the per-CPU counters: what was seen, and why something was not delivered.
//!
//! They reconcile: operations seen = aggregated + dropped by reason + still in flight; events offered to a
//! ring = submitted + dropped by reason.

/// UIO operations whose entry was seen.
pub const UIO_SEEN: u32 = 0;
/// UIO operations whose exit was counted into a series.
pub const UIO_AGGREGATED: u32 = 1;
/// Entry dropped: the thread's in-flight slot is held by another thread (two tids in one slot).
pub const DROP_INFLIGHT_COLLISION: u32 = 2;
/// Exit seen without an entry: begun before the trace, or the entry was missed.
pub const DROP_EXIT_WITHOUT_ENTRY: u32 = 3;
/// An entry found the thread's previous operation still open: that one's exit was missed.
pub const DROP_EXIT_MISSED: u32 = 4;
/// No free series left for another (device, operation) on this CPU.
pub const DROP_SERIES_FULL: u32 = 5;
/// Minor number above what the device table holds.
pub const DROP_MINOR_RANGE: u32 = 6;
/// A read of kernel memory failed; the operation or event is lost.
pub const DROP_READ_FAULT: u32 = 7;
/// Lifecycle events offered to their ring.
pub const LIFECYCLE_SEEN: u32 = 8;
/// Lifecycle events in the ring.
pub const LIFECYCLE_SUBMITTED: u32 = 9;
/// Lifecycle events lost: ring full, or its lock taken in NMI context.
pub const DROP_LIFECYCLE_RING: u32 = 10;
/// Slow samples offered to their ring.
pub const SLOW_SEEN: u32 = 11;
/// Slow samples in the ring.
pub const SLOW_SUBMITTED: u32 = 12;
/// Slow samples lost: ring full.
pub const DROP_SLOW_RING: u32 = 13;
/// Operations that left before the lock (uio_write with a wrong size, ...) or that had no device.
pub const UIO_NO_DEVICE: u32 = 14;
/// Runs of the program on kills of percpu_refs by breakpoint. Its perf events count more hits than that when the kernel left
/// some out ([`DROP_BREAKPOINT_MISSED`]).
pub const REF_KILL_RUNS: u32 = 15;
/// Runs of the program on switches of percpu_refs by breakpoint.
pub const REF_SWITCH_RUNS: u32 = 16;
/// Waits whose holder found no place in the table of blockers.
pub const DROP_BLOCKERS_FULL: u32 = 17;
/// Hits of a breakpoint whose program the kernel did not run: another BPF program was running on that CPU
/// (kernel/events/core.c, bpf_overflow_handler: bpf_prog_active), or the event was throttled. Known from the perf events' own
/// counts; the BPF side cannot count what it does not see.
pub const DROP_BREAKPOINT_MISSED: u32 = 18;
/// Entries of UIO operations whose program the kernel did not run: another BPF program was running on that CPU, or somebody's
/// system call on a BPF map was under way there (kernel/trace/bpf_trace.c, trace_call_bpf: bpf_prog_active). Known from the
/// programs' own counts (`recursion_misses`, since 5.12). A return that is seen nevertheless counts as
/// [`DROP_EXIT_WITHOUT_ENTRY`], too.
pub const DROP_ENTRY_MISSED: u32 = 19;
/// The same of kprobes and fentry programs elsewhere: kills, contexts, exits.
pub const DROP_PROGRAM_MISSED: u32 = 20;
/// Number of counters.
pub const COUNTERS: u32 = 32;

/// The counter's name in JSON and on the screen.
pub const fn name(index: u32) -> &'static str {
    match index {
        UIO_SEEN => "uio_seen",
        UIO_AGGREGATED => "uio_aggregated",
        DROP_INFLIGHT_COLLISION => "inflight_collision",
        DROP_EXIT_WITHOUT_ENTRY => "exit_without_entry",
        DROP_EXIT_MISSED => "exit_missed",
        DROP_SERIES_FULL => "series_full",
        DROP_MINOR_RANGE => "minor_range",
        DROP_READ_FAULT => "read_fault",
        LIFECYCLE_SEEN => "lifecycle_seen",
        LIFECYCLE_SUBMITTED => "lifecycle_submitted",
        DROP_LIFECYCLE_RING => "lifecycle_ring",
        SLOW_SEEN => "slow_seen",
        SLOW_SUBMITTED => "slow_submitted",
        DROP_SLOW_RING => "slow_ring",
        UIO_NO_DEVICE => "uio_no_device",
        REF_KILL_RUNS => "ref_kill_runs",
        REF_SWITCH_RUNS => "ref_switch_runs",
        DROP_BLOCKERS_FULL => "blockers_full",
        DROP_BREAKPOINT_MISSED => "breakpoint_missed",
        DROP_ENTRY_MISSED => "entry_missed",
        DROP_PROGRAM_MISSED => "program_missed",
        _ => "reserved",
    }
}

/// The counters that mean a loss, in display order.
pub const DROPS: [u32; 12] = [
    DROP_LIFECYCLE_RING,
    DROP_BREAKPOINT_MISSED,
    DROP_PROGRAM_MISSED,
    DROP_SLOW_RING,
    DROP_ENTRY_MISSED,
    DROP_INFLIGHT_COLLISION,
    DROP_EXIT_MISSED,
    DROP_EXIT_WITHOUT_ENTRY,
    DROP_SERIES_FULL,
    DROP_MINOR_RANGE,
    DROP_READ_FAULT,
    DROP_BLOCKERS_FULL,
];
