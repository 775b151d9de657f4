//! The plain figures every reader shows: TUI, text, JSON and exporter take a [`Snapshot`] and nothing else.
//!
//! The names are those of the JSON records (docs/json.md); each struct serialises to one record. Durations are
//! nanoseconds and end in `_ns`.

use super::history::History;
use crate::event::{RequestFile, Task};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything shown for one stretch of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The stretch.
    pub interval: Interval,
    /// UIO driver: present or not.
    pub uio_present: bool,
    /// UIO devices that exist, or had operations in the interval; by minor, then generation.
    pub uio_devices: Vec<UioDevice>,
    /// percpu_ref owners with activity in the interval, or dying refs; by number of kills, descending.
    pub ref_owners: Vec<RefOwner>,
    /// Grace periods of all percpu_refs but the tool's own: how long RCU takes here.
    pub grace_period_ns: Histogram,
    /// AIO drains that ended in the interval, oldest first (bounded: see `aio_drains_omitted`).
    pub aio_drains: Vec<AioDrain>,
    /// Drains that ended in the interval and are no longer kept one by one.
    pub aio_drains_omitted: u64,
    /// Begun and not ended, longest first.
    pub in_progress: Vec<InProgress>,
    /// Named diagnoses, most costly first. Never empty: "nothing here" is one.
    pub findings: Vec<Finding>,
    /// Slow UIO operations of the interval, longest first (bounded).
    pub slow_ops: Vec<SlowOp>,
    /// What was lost.
    pub loss: Loss,
    /// Probes.
    pub probes: Vec<Probe>,
    /// Figures over time, for plots; no record of the JSON output.
    #[serde(skip)]
    pub history: Arc<History>,
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Begin, CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// End, CLOCK_MONOTONIC.
    pub end_ns: u64,
    /// end - start.
    pub duration_ns: u64,
}

/// A distribution. Percentiles are midpoints of log-linear buckets (at most 6.25 % off), clamped to min and max.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Number of values.
    pub count: u64,
    /// Their sum (exact), ns.
    pub sum: u64,
    /// Smallest, ns (exact since the start; a bucket bound for a later interval); 0 when empty.
    pub min: u64,
    /// Largest, ns (likewise).
    pub max: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Non-empty buckets, ascending.
    pub buckets: Vec<Bucket>,
}

/// Values in [lo, hi), ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Lowest value.
    pub lo: u64,
    /// First value above.
    pub hi: u64,
    /// How many.
    pub count: u64,
}

/// What serialises a UIO device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UioLock {
    /// `info_lock`, a mutex: every stock kernel since 4.19.
    Mutex,
    /// A percpu_ref (`info_ref`): the 2022 proposal.
    PercpuRef,
    /// Not known.
    Unknown,
}

/// Record `uio_device`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UioDevice {
    /// Minor number.
    pub minor: u32,
    /// Re-registrations of this minor seen before, from 0.
    pub generation: u32,
    /// `uioN`.
    pub sysfs_name: String,
    /// What the driver calls it; `None`: not known (gone before it could be read).
    pub name: Option<String>,
    /// The driver's version text.
    pub version: Option<String>,
    /// Driver of the device it belongs to (sysfs); `None`: it has none, or not known.
    #[serde(default)]
    pub driver: Option<String>,
    /// The device it belongs to: a PCI address, `tcm_user`, ...; `None`: not known.
    #[serde(default)]
    pub parent: Option<String>,
    /// TCMU's backstore, from the name; `None`: not TCMU's.
    #[serde(default)]
    pub backstore: Option<Backstore>,
    /// Who has it open, as last looked up; `None`: not known.
    #[serde(default)]
    pub open: Option<OpenDevice>,
    /// Unregistered since (CLOCK_MONOTONIC); `None`: there.
    pub gone_ns: Option<u64>,
    /// How its unregistration went; `None`: there was none, or its end was not seen.
    #[serde(default)]
    pub unregister: Option<Unregister>,
    /// What serialises it.
    pub lock: UioLock,
    /// Time info_lock was held (sum of hold of all operations but read) per time of the interval, 0..1; `None`: not known.
    pub utilization: Option<f64>,
    /// Mean number of threads waiting for info_lock (sum of waits per time of the interval).
    pub mean_waiters: f64,
    /// Operations, only those with a count, in `UioOp::ALL` order.
    pub ops: Vec<UioOpFigures>,
    /// Waits for other locks inside operations, sum.
    pub driver_wait_ns: u64,
    /// Number of them.
    pub driver_waits: u64,
    /// Who held info_lock when operations began to wait for it, by their wait, descending (bounded).
    pub blockers: Vec<Blocker>,
    /// What waited behind what, by the time waited, descending.
    pub waits_by_op: Vec<OpPair>,
    /// What would be gained without info_lock.
    #[serde(default)]
    pub what_if: WhatIf,
}

/// How `uio_unregister_device` went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unregister {
    /// Its return (CLOCK_MONOTONIC).
    pub at_ns: u64,
    /// Name of the task.
    pub comm: String,
    /// Its process.
    pub tgid: u32,
    /// The task.
    pub tid: u32,
    /// Entry to return.
    pub latency_ns: u64,
    /// Wait for info_lock.
    pub wait_ns: u64,
    /// Course of the device's percpu_ref; `None`: it has none, or its kill was not seen.
    pub course: Option<RefCourse>,
}

/// The parts of an unregistration that kills a percpu_ref. What was not seen is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefCourse {
    /// Entry to the kill.
    pub before_ns: u64,
    /// Kill to its confirmation.
    pub grace_period_ns: Option<u64>,
    /// References that operations still held then.
    pub references: Option<u64>,
    /// Operations that had begun before the kill and were seen under way after it: who held them. Only those that lasted until
    /// somebody looked.
    #[serde(default)]
    pub holders: Vec<RefHolder>,
    /// Confirmation to the last put.
    pub drain_ns: Option<u64>,
    /// Last put to the return.
    pub rest_ns: Option<u64>,
}

/// An operation on a device that held a reference while its unregistration waited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefHolder {
    /// Name of the task.
    pub comm: String,
    /// Its process.
    pub tgid: u32,
    /// The task.
    pub tid: u32,
    /// What it did.
    pub op: String,
    /// For how long it had been doing that at the kill.
    pub before_ns: u64,
}

/// What kind of answer a [`WhatIf`] is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhatIfVerdict {
    /// A range narrow enough to be useful.
    Range,
    /// The lock costs next to nothing.
    NothingToGain,
    /// Bounds are known, but too far apart.
    TooWide,
    /// Nothing can be said.
    #[default]
    Refused,
}

/// The throughput without info_lock as a multiple of the present one (docs/uio-verdict.md).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WhatIf {
    /// What kind of answer it is.
    pub verdict: WhatIfVerdict,
    /// Name of what forbids a range or makes it wide; `None`: it is a range.
    pub reason: Option<String>,
    /// The answer in one sentence.
    pub text: String,
    /// At least so many times as many operations; `None`: refused.
    pub low: Option<f64>,
    /// At most; `None`: refused.
    pub high: Option<f64>,
    /// The kind of operation it is about: the one that waits most.
    pub op: Option<String>,
    /// Threads that take part; `None`: not known.
    pub threads: Option<u64>,
    /// CPUs online; `None`: not known.
    pub cpus: Option<u32>,
    /// What the bounds rest on, a sentence each.
    pub assumptions: Vec<String>,
}

/// A TCMU device as its name says: `tcm-user/HBA/NAME/CONFIG`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backstore {
    /// Host bus adapter's number.
    pub hba: String,
    /// The backstore's name.
    pub name: String,
    /// Its configuration, as the handler reads it (`rbd/pool/image`, a path, ...); may be empty.
    pub config: String,
}

impl Backstore {
    /// Of a device's name (drivers/target/target_core_user.c, tcmu_update_uio_info).
    pub fn of(name: &str) -> Option<Backstore> {
        let mut parts = name.strip_prefix("tcm-user/")?.splitn(3, '/');
        let (hba, name) = (parts.next()?, parts.next()?);
        (!hba.is_empty() && !name.is_empty()).then(|| Backstore {
            hba: hba.to_owned(),
            name: name.to_owned(),
            config: parts.next().unwrap_or_default().to_owned(),
        })
    }
}

/// Descriptors of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDevice {
    /// All that were found.
    pub descriptors: u64,
    /// By process, most first (bounded).
    pub processes: Vec<OpenProcess>,
    /// All processes were looked at; else there may be more.
    pub complete: bool,
}

/// A process that has a device open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenProcess {
    /// Its comm.
    pub comm: String,
    /// Process.
    pub tgid: u32,
    /// Its descriptors.
    pub descriptors: u64,
}

/// A holder of info_lock others waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// What it did while it held the lock; `None`: no operation that is traced (a driver can take the lock, too).
    pub op: Option<String>,
    /// Its comm.
    pub comm: String,
    /// Its process.
    pub tgid: u32,
    /// Its thread.
    pub tid: u32,
    /// Operations that began to wait while it held the lock.
    pub count: u64,
    /// Sum of their waits.
    pub wait_ns: u64,
    /// Those that began to wait on the CPU the holder was on: both wanted one CPU, not only one lock.
    pub same_cpu: u64,
}

/// Waits of one kind of operation behind another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpPair {
    /// What waited.
    pub waiter: String,
    /// What the holder did; `None`: no operation that is traced.
    pub holder: Option<String>,
    /// Waits.
    pub count: u64,
    /// Their sum.
    pub wait_ns: u64,
}

/// Figures of one operation of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UioOpFigures {
    /// `write`, `read`, ...
    pub op: String,
    /// Operations.
    pub count: u64,
    /// Failures by errno name (EIO, ...; SIGBUS for a fault; "unknown").
    pub errors: BTreeMap<String, u64>,
    /// Operations that waited for info_lock.
    pub contended: u64,
    /// Entry to exit.
    pub latency_ns: Histogram,
    /// Wait for info_lock, contended operations only; `None`: no probe measures it on this kernel.
    pub wait_ns: Option<Histogram>,
    /// info_lock held; `None` for read (it sleeps outside the lock).
    pub hold_ns: Option<Histogram>,
    /// Of the waits for info_lock, time spent spinning on a CPU; `None`: not known on this kernel.
    #[serde(default)]
    pub spin_ns: Option<u64>,
    /// From giving info_lock back, with others waiting, to the return: waking one of them; 0 as well where no probe sees the
    /// release.
    #[serde(default)]
    pub wake_ns: u64,
    /// Of the failures, those of operations that began after the device's unregistration had begun.
    #[serde(default)]
    pub refused: u64,
}

/// Record `ref_owner`: all percpu_refs with one release function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefOwner {
    /// Who uses it, in words ("block queue usage", "AIO context users", or the symbol when not known).
    pub owner: String,
    /// Release symbol, with ` [module]` when it is in one.
    pub release: String,
    /// Kills.
    pub kills: u64,
    /// Kills that found the ref in atomic mode already: no grace period.
    pub kills_already_atomic: u64,
    /// Kills of a ref that was dead already: a kernel bug.
    pub kills_already_dead: u64,
    /// Switches to atomic mode completed (killed or not).
    pub switches: u64,
    /// Last references gone; `None`: that is not seen for this owner.
    pub released: Option<u64>,
    /// Of them, those before the switch to atomic mode had finished: a kernel bug.
    pub released_early: u64,
    /// Killed refs whose end was not seen: before their release function was traced, or lost.
    pub ends_unseen: u64,
    /// Killed refs found alive again: reinitialised or resurrected. Only looked for in refs that die for long.
    pub revived: u64,
    /// Kill to switched: one RCU grace period and its callback's queueing.
    pub grace_period_ns: Histogram,
    /// Kill to release; empty when the release is not traced.
    pub drain_ns: Histogram,
    /// Killed, end not seen yet.
    pub dying: u64,
    /// Age of the oldest of them.
    pub oldest_dying_ns: Option<u64>,
    /// References left of those past their grace period, as last heard; `None`: not known, or there are none.
    pub dying_references: Option<u64>,
    /// Last killer: comm (tgid).
    pub last_killer: Option<String>,
    /// Kernel stacks of killers, most kills first. Of an owner with many kills only some have their stack taken.
    #[serde(default)]
    pub kill_stacks: Vec<KillStack>,
    /// The tool's own doing (BPF trampolines): hidden unless asked for.
    pub own: bool,
}

/// Kills that came the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillStack {
    /// Kills whose stack this was.
    pub count: u64,
    /// The last of them by: comm (tgid).
    pub last_killer: String,
    /// Functions, from the innermost outwards.
    pub frames: Vec<String>,
}

/// Why contexts drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainCause {
    /// The process exited (or exec'ed): `exit_aio`.
    ExitAio,
    /// `io_destroy(2)`, one or a loop of them by one thread.
    IoDestroy,
}

/// How the contexts of a drain overlapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainVerdict {
    /// One after another.
    Serial,
    /// Together.
    Parallel,
    /// One context only.
    Single,
}

/// Record `aio_drain`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AioDrain {
    /// Number of the drain since the trace began, from 1.
    pub id: u64,
    /// Why.
    pub cause: DrainCause,
    /// Process (as of the kill).
    pub tgid: u32,
    /// Thread that waits.
    pub tid: u32,
    /// Its comm at the kill.
    pub comm: String,
    /// Contexts drained.
    pub contexts: u64,
    /// Begin (exit_aio or first io_destroy entered), CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Begin to end (exit_aio returned, last io_destroy returned).
    pub wall_ns: u64,
    /// Sum over contexts of kill to requests released.
    pub sum_ns: u64,
    /// How much of the contexts' time overlapped: 0 = one after another, 1 = all at once. (sum - union) / (sum - longest); 0 for one context.
    pub overlap: f64,
    /// Serial, parallel or single.
    pub verdict: DrainVerdict,
    /// What draining together would take. Serial: one typical pair of grace periods, and what single contexts have besides of
    /// references and requests in flight (`model::aio::together`); else, and where phases are not known, the longest context.
    pub projected_parallel_ns: u64,
    /// Index in `detail` of the critical context: the last to be drained (parallel) or the longest (serial).
    pub critical: usize,
    /// Phases of the critical context.
    pub phases_ns: Phases,
    /// Requests in flight when the grace periods of `reqs` ended, of all contexts; `None`: not counted for each of them.
    #[serde(default)]
    pub in_flight: Option<u64>,
    /// File of the critical context's last request; `None`: not known, or no request was in flight when its references were down
    /// to the switch's own.
    #[serde(default)]
    pub last_request: Option<RequestFile>,
    /// Contexts, in order of their kill (bounded; `contexts` counts all).
    pub detail: Vec<AioContext>,
    /// An end may have been lost: figures are lower bounds.
    pub uncertain: bool,
}

/// Where a context's drain spent its time, ns. The four phases follow each other and sum to the context's total;
/// so do `users` and `reqs`. `None`: not known, because the event that ends the phase is not traced on this kernel
/// or was lost (then `users` and `reqs` may still be known).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases {
    /// Kill to users switched: a grace period.
    pub users_gp: Option<u64>,
    /// Users switched to `free_ioctx_users`: references held by system calls.
    pub users_refs: Option<u64>,
    /// `free_ioctx_users` to reqs switched: a grace period.
    pub reqs_gp: Option<u64>,
    /// reqs switched to `free_ioctx_reqs`: requests in flight.
    pub reqs_io: Option<u64>,
    /// `users_gp` and `users_refs` together: kill to `free_ioctx_users`.
    pub users: Option<u64>,
    /// `reqs_gp` and `reqs_io` together: `free_ioctx_users` to `free_ioctx_reqs`.
    pub reqs: Option<u64>,
}

/// One context of a drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AioContext {
    /// `aio_context_t`, in hex.
    pub ctx: String,
    /// Kill, relative to the drain's begin.
    pub start_offset_ns: u64,
    /// Kill to users switched; `None`: the switch is not traced on this kernel.
    pub users_gp_ns: Option<u64>,
    /// Users switched to users released.
    pub users_refs_ns: Option<u64>,
    /// Users released to reqs switched.
    pub reqs_gp_ns: Option<u64>,
    /// reqs switched to reqs released.
    pub reqs_io_ns: Option<u64>,
    /// Kill to users released: the first two phases together.
    pub users_ns: Option<u64>,
    /// Users released to reqs released: the last two phases together.
    pub reqs_ns: Option<u64>,
    /// Kill to reqs released.
    pub total_ns: u64,
    /// `io_destroy(2)` entered to returned; `None` for `exit_aio`, or when one of the two was not seen.
    pub call_ns: Option<u64>,
    /// Requests in flight when the grace period of `reqs` ended; `None`: not counted.
    #[serde(default)]
    pub in_flight: Option<u64>,
    /// File of its last request; `None` as of the drain.
    #[serde(default)]
    pub last_request: Option<RequestFile>,
    /// An event of this context was lost.
    pub uncertain: bool,
}

/// Record `in_progress`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InProgress {
    /// What: `aio_drain`, `percpu_ref`, ...
    pub subject: String,
    /// Owner in words.
    pub owner: String,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// Its comm.
    pub comm: String,
    /// What it waits for: `grace period`, `references`, `requests in flight`, ...
    pub phase: String,
    /// Age; `None`: began before the trace.
    pub age_ns: Option<u64>,
    /// For how long the trace has seen it: the age, or where that is not known its lower bound.
    pub seen_ns: u64,
    /// References (of an AIO context: requests) left that it waits for, as last heard; `None`: not known, or not what it
    /// waits for.
    pub references: Option<u64>,
    /// More ("3 of 64 contexts left").
    pub detail: String,
    /// Kernel stack of the thread, innermost first, when it is waiting for this; `None`: not known, or it waits elsewhere.
    pub stack: Option<Vec<String>>,
    /// Of an AIO drain: files the process has open for direct I/O, which its requests are on; `None`: not known, or not asked yet.
    #[serde(default)]
    pub direct_files: Option<Vec<String>>,
    /// Its end may have been lost.
    pub uncertain: bool,
    /// Of a UIO operation: which, and behind whom.
    #[serde(default)]
    pub uio: Option<InUio>,
}

/// A UIO operation under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InUio {
    /// Minor number of the device.
    pub minor: u32,
    /// Its generation.
    pub generation: u32,
    /// Operation.
    pub op: String,
    /// For how long it has waited for the lock it waits for now, ns; `None`: it does not wait for one.
    pub wait_ns: Option<u64>,
    /// Who held info_lock when it began to wait; `None`: it does not wait for it, or that is not known.
    pub holder: Option<Task>,
    /// What the holder did then; `None`: nothing that is traced, or not known.
    pub holder_op: Option<String>,
}

impl InProgress {
    /// What a look at the process found, also into the detail.
    pub fn set_direct_files(&mut self, files: Option<&[String]>) {
        self.direct_files = files.map(<[String]>::to_vec);
        if let Some(files) = files.filter(|files| !files.is_empty()) {
            self.detail.push_str("; direct I/O on ");
            self.detail.push_str(&files.join(", "));
        }
    }
}

/// How bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// For information, also "nothing here".
    Info,
    /// Costs time.
    Warning,
    /// Stuck, or most of the time lost.
    Critical,
}

/// Record `finding`: a named diagnosis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable name: `uio_serialised`, `aio_serial_destroy`, `nothing_here`, ...
    pub id: String,
    /// How bad.
    pub severity: Severity,
    /// On what: `uio0 (name)`, `fio (1234)`.
    pub subject: String,
    /// One sentence with numbers and units.
    pub text: String,
    /// Time lost per second of wall time, for ranking.
    pub cost: f64,
    /// The numbers of the sentence.
    pub evidence: BTreeMap<String, serde_json::Value>,
}

/// A slow UIO operation, one by one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowOp {
    /// Device.
    pub sysfs_name: String,
    /// Operation.
    pub op: String,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// comm.
    pub comm: String,
    /// Entry to exit.
    pub latency_ns: u64,
    /// Wait for info_lock.
    pub wait_ns: u64,
    /// Hold.
    pub hold_ns: u64,
    /// Waits for other locks.
    pub driver_wait_ns: u64,
    /// Who held info_lock when the wait began: `comm (tgid/tid)`.
    pub holder: Option<String>,
    /// What the holder did then; `None`: no operation that is traced.
    pub holder_op: Option<String>,
}

/// Record `loss`. Reconciles: seen = aggregated + submitted + ignored + dropped + in flight; submitted = decoded + queued.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Operations and events seen in the kernel.
    pub seen: u64,
    /// Counted into histograms there.
    pub aggregated: u64,
    /// Put into a ring.
    pub submitted: u64,
    /// Taken out and understood here.
    pub decoded: u64,
    /// Operations seen and rightly not counted: they left before the lock, or had no device.
    pub ignored: u64,
    /// Lost, by reason; only reasons that occurred.
    pub dropped: BTreeMap<String, u64>,
    /// Open intervals whose end may be among the lost.
    pub uncertain: u64,
}

impl Loss {
    /// All that was lost.
    pub fn total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// What was lost for these reasons (`uio_trace_common::loss`).
    pub fn of(&self, reasons: &[u32]) -> u64 {
        let lost = |reason: &u32| self.dropped.get(uio_trace_common::loss::name(*reason));
        reasons
            .iter()
            .filter_map(lost)
            .fold(0, |sum, n| sum.saturating_add(*n))
    }
}

/// State of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeState {
    /// Works.
    Attached,
    /// Its module is not loaded; it will be attached when it appears.
    Waiting,
    /// Does not work here; the reason says why.
    Failed,
    /// Another way of the same hook is in use.
    NotNeeded,
}

/// One hook and how it is attached: an item of `meta.probes`, a row of `check` and of the probes screen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// `uio`, `lock`, `percpu_ref` or `aio`.
    pub subject: String,
    /// Kernel function or tracepoint.
    pub hook: String,
    /// State.
    pub state: ProbeState,
    /// Way of attachment in use: `fentry`, `kprobe`, `kretprobe`, `tp_btf`, `breakpoint`.
    pub method: Option<String>,
    /// Why it is not attached, or why not by the preferred way.
    pub reason: Option<String>,
    /// What is missing on the screen without it.
    pub gives: String,
    /// Required for the subject to be shown at all.
    pub required: bool,
    /// Hits and cost, in the snapshot's stretch of time; `None`: not asked for (`--cost`), or not attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// CPUs that came online while it was attached: what happened on them before they were followed was not seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late_cpus: Vec<u32>,
}

/// What a hook cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// How often it was hit.
    pub hits: u64,
    /// Time its programs took, ns.
    pub run_ns: u64,
    /// Runs that the kernel left out, since a program was running on that CPU already.
    pub missed: u64,
    /// The stretch of time in which that was counted, ns.
    pub counted_ns: u64,
}

impl Cost {
    /// Time a hit took on average, ns; `None`: there was none.
    pub fn each_ns(&self) -> Option<u64> {
        self.run_ns.checked_div(self.hits)
    }
}

/// Where the end of a hold is seen; of the subject `lock` the only hook that sees no waits.
pub const LOCK_RELEASE_HOOK: &str = "mutex release";

/// The hook that sees waits for locks, and which of them spin.
pub const CONTENTION_HOOK: &str = "contention_begin/end";

/// Is this a probe for waits for a lock?
pub fn sees_waits(probe: &Probe) -> bool {
    probe.subject == "lock" && probe.hook != LOCK_RELEASE_HOOK
}

/// Record `meta`, once at the top of every output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Version of these records.
    pub schema_version: u32,
    /// Tool, version, git hash, BPF object hash.
    pub tool: String,
    /// Host name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// /proc/sys/kernel/random/boot_id
    pub boot_id: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// The same moment on CLOCK_MONOTONIC.
    pub started_ns: u64,
    /// Probes at the start.
    pub probes: Vec<Probe>,
    /// RCU and preemption settings that explain grace periods: name -> value.
    pub rcu: BTreeMap<String, String>,
}

impl Meta {
    /// CPUs online at the start, from the kernel's list (`0-3,8`); `None`: not known.
    pub fn cpus(&self) -> Option<u32> {
        let list = self.rcu.get("cpus_online")?;
        let mut cpus = 0u32;
        for range in list.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            cpus = cpus.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
        }
        Some(cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::Meta;

    #[test]
    fn a_backstore_is_in_the_name() {
        let of = |name| super::Backstore::of(name).map(|b| (b.hba, b.name, b.config));
        let parts = |hba: &str, name: &str, config: &str| Some((hba.into(), name.into(), config.into()));
        assert_eq!(
            of("tcm-user/0/disk0/rbd/pool/image"),
            parts("0", "disk0", "rbd/pool/image")
        );
        assert_eq!(of("tcm-user/1/disk1/"), parts("1", "disk1", ""));
        assert_eq!(of("tcm-user/1/disk1"), parts("1", "disk1", ""));
        for other in ["tcm-user/", "tcm-user/1", "tcm-user//x", "igb_uio", ""] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn cpus_are_counted_from_the_kernels_list() {
        let cpus = |list: &str| {
            let rcu = [("cpus_online".to_owned(), list.to_owned())].into();
            Meta {
                schema_version: 1,
                tool: String::new(),
                host: String::new(),
                kernel: String::new(),
                boot_id: String::new(),
                started: String::new(),
                started_ns: 0,
                probes: Vec::new(),
                rcu,
            }
            .cpus()
        };
        assert_eq!(cpus("0-3,8"), Some(5));
        assert_eq!(cpus("0"), Some(1));
        for bad in ["", "3-1", "x", "0-4294967295"] {
            assert_eq!(cpus(bad), None, "{bad}");
        }
    }
}
