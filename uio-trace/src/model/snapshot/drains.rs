//! percpu_refs by owner, and drains of AIO contexts.

use super::Histogram;
use crate::event::RequestFile;
use serde::{Deserialize, Serialize};

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
