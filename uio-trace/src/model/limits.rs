//! Bounds of the model: with these it stays below a few tens of MiB whatever the host does. What does not fit is
//! counted by reason and shown with the losses.

/// Threads whose CPU time is followed.
pub const MAX_THREADS: usize = 1024;
/// UIO series (device, generation, operation) kept: 1024 minors with all their operations.
pub const MAX_UIO_SERIES: usize = 1024 * 10;
/// UIO devices (minor, generation) kept.
pub const MAX_UIO_DEVICES: usize = 2048;
/// UIO operations under way that are told of in one look.
pub const MAX_RUNNING: usize = 256;
/// An operation under way for this long (ns) is told of.
pub const RUNNING_AFTER_NS: u64 = 100_000_000;
/// Holders kept (by device, thread and pair of operations): as many as the kernel side tells apart.
pub const MAX_BLOCKERS: usize = uio_trace_common::uio::MAX_BLOCKERS as usize;
/// Processes shown that have a device open.
pub const SHOWN_OPENERS: usize = 10;
/// Holders shown per device.
pub const SHOWN_BLOCKERS: usize = 10;
/// Slow operations kept per scope, the longest.
pub const MAX_SLOW_OPS: usize = 64;
/// Killers' stacks kept, as many as the kernel side can tell apart.
pub const MAX_KILL_STACKS: usize = 1024;
/// Of one owner.
pub const MAX_OWNER_STACKS: usize = 32;
/// Of one owner shown, those with most kills.
pub const SHOWN_KILL_STACKS: usize = 5;
/// percpu_ref owners (release functions) kept.
pub const MAX_REF_OWNERS: usize = 256;
/// Killed percpu_refs whose end was not seen yet.
pub const MAX_OPEN_REFS: usize = 16 * 1024;
/// AIO contexts in open drains, drained ones included until their drain ends.
pub const MAX_OPEN_CONTEXTS: usize = 16 * 1024;
/// Threads with an open drain or call.
pub const MAX_OPEN_THREADS: usize = 16 * 1024;
/// Ended drains kept one by one.
pub const MAX_FINISHED_DRAINS: usize = 256;
/// Contexts kept of one ended drain.
pub const MAX_DRAIN_DETAIL: usize = 512;
/// Files of last requests kept of one drain.
pub const MAX_DRAIN_FILES: usize = 64;
/// Contexts kept of all ended drains together; beyond, the oldest drains go.
pub const MAX_FINISHED_CONTEXTS: usize = 32 * 1024;
/// Symbols kept (release and confirm functions: there are a few dozen in a kernel).
pub const MAX_SYMBOLS: usize = 4096;
/// Rows of `in_progress` in a snapshot, the longest.
pub const MAX_IN_PROGRESS: usize = 1024;

/// Samples of the history kept: at one a second, five minutes.
pub const MAX_HISTORY_SAMPLES: usize = 300;
/// Tasks kept that were waiting when the trace began.
pub const MAX_BEGUN_BEFORE: usize = 256;
/// Dying refs whose memory is looked at in one round, the oldest.
pub const MAX_LOOKS: usize = 64;
/// A ref dying for this long (ns) is looked at: grace periods take milliseconds.
pub const LOOK_AFTER_NS: u64 = 500_000_000;
/// Tasks whose kernel stacks are asked for in one round, those that wait longest.
pub const MAX_STACKS: usize = 64;
/// What is in progress for this long (ns) gets the waiter's kernel stack.
pub const STACK_AFTER_NS: u64 = 1_000_000_000;

/// An interval whose end may have been lost is given up after this long without a sign of life, ns.
pub const UNCERTAIN_LIFETIME_NS: u64 = 60_000_000_000;
/// A gap between two `io_destroy` of one thread up to this long (ns) never ends a drain.
pub const DESTROY_GAP_MIN_NS: u64 = 50_000_000;
/// A gap longer than this (ns) always ends a drain.
pub const DESTROY_GAP_MAX_NS: u64 = 1_000_000_000;
/// In between, the gap may be the drain's age so far divided by this.
pub const DESTROY_GAP_FRACTION: u64 = 10;
/// Events of a thread may reach the model this much later (ns) than user space's own with the same time, since they
/// wait in a ring: an open end is only concluded from silence after it.
pub const RING_DELAY_NS: u64 = 200_000_000;
/// `exit_aio` returns when its thread runs again after the last context: its end is given up after this, ns.
pub const EXIT_END_GRACE_NS: u64 = 1_000_000_000;
/// Time between two looks for what has to be closed, ns.
pub const SWEEP_INTERVAL_NS: u64 = 10_000_000;

/// Largest figure of a counter or series that is believed: a million operations a second for nine years. Larger ones come
/// from a damaged recording only; cut to this, no sum over all series and counters overflows.
pub const MAX_COUNT: u64 = 1 << 48;
