//! What looks, and where: the probes and the head of every output.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
