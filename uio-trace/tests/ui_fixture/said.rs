//! What is under way, found, and probed.
#![allow(dead_code, reason = "each user of this module takes a part of it")]

use super::*;
use serde_json::json;

/// Three things that have not ended.
pub fn in_progress() -> Vec<InProgress> {
    let item =
        |subject: &str, owner: &str, comm: &str, tgid: u32, phase: &str, age_ns, detail: &str| InProgress {
            subject: subject.into(),
            owner: owner.into(),
            tgid,
            tid: tgid,
            comm: comm.into(),
            phase: phase.into(),
            age_ns,
            seen_ns: age_ns.unwrap_or(0),
            references: None,
            detail: detail.into(),
            stack: None,
            direct_files: None,
            uncertain: false,
            uio: None,
        };
    let mut uncertain = item(
        "percpu_ref",
        "cgroup",
        "systemd",
        1,
        "grace period",
        Some(340 * MS),
        "css_release",
    );
    uncertain.uncertain = true;
    vec![
        item(
            "aio_drain",
            "exit_aio",
            "mysqld",
            3307,
            "requests in flight",
            None,
            "3 of 64 contexts left",
        ),
        item(
            "percpu_ref",
            "block queue usage",
            "multipathd",
            771,
            "references",
            Some(12_345 * MS),
            "blk_queue_usage_counter_release",
        ),
        uncertain,
    ]
}

pub fn finding(id: &str, severity: Severity, subject: &str, text: &str, cost: f64) -> Finding {
    Finding {
        id: id.into(),
        severity,
        subject: subject.into(),
        text: text.into(),
        cost,
        evidence: BTreeMap::from([
            ("wait_p99_ns".to_owned(), json!(1_503_456)),
            ("utilization".to_owned(), json!(0.971_234_567_8)),
            ("mean_waiters".to_owned(), json!(2.941_234_567)),
            ("ops".to_owned(), json!(123_456_789)),
        ]),
    }
}

/// Three findings, most time lost first.
pub fn findings() -> Vec<Finding> {
    vec![
        finding(
            "uio_serialised",
            Severity::Critical,
            "uio0 (tcm-user/0/disk0)",
            "uio0 (tcm-user/0/disk0) is serialised: callers wait for info_lock 74 % of their time (mean 605 us, p99 1.50 ms), it is held 97 % of the time; without info_lock 2.8 to 3.8 times as many write operations (4 threads, 8 CPUs)",
            2.94,
        ),
        finding(
            "ref_stuck",
            Severity::Critical,
            "block queue usage",
            "block queue usage: 2 percpu_refs killed and not gone, the oldest for 12.3 s in phase \"references\", killed by multipathd (771)",
            0.08,
        ),
        finding(
            "aio_serial_destroy",
            Severity::Warning,
            "postgres (4242)",
            "postgres (4242) destroyed 4 AIO contexts one after another: 404 ms; together it would take about 120 ms",
            0.001,
        ),
    ]
}

fn probe(subject: &str, hook: &str, state: ProbeState, method: Option<&str>, reason: Option<&str>) -> Probe {
    Probe {
        subject: subject.into(),
        hook: hook.into(),
        state,
        method: method.map(str::to_owned),
        reason: reason.map(str::to_owned),
        gives: format!("{subject} figures"),
        required: subject != "lock",
        cost: None,
        late_cpus: Vec::new(),
    }
}

/// Attached, waiting, failed and not needed ones.
pub fn probes() -> Vec<Probe> {
    use ProbeState::{Attached, Failed, NotNeeded, Waiting};
    vec![
        probe("uio", "uio_write", Attached, Some("fentry"), None),
        probe("uio", "uio_read", Attached, Some("fentry"), None),
        probe(
            "uio",
            "uio_poll",
            Attached,
            Some("kprobe"),
            Some("fentry: not in the module's BTF"),
        ),
        probe(
            "uio",
            "uio_vma_fault",
            Waiting,
            None,
            Some("module uio is not loaded"),
        ),
        probe(
            "lock",
            "contention_begin",
            Failed,
            None,
            Some("no such tracepoint before Linux 5.19"),
        ),
        probe("lock", "mutex_lock slow path", Attached, Some("kretprobe"), None),
        probe(
            "percpu_ref",
            "percpu_ref_kill_and_confirm",
            Attached,
            Some("fentry"),
            None,
        ),
        probe(
            "percpu_ref",
            "percpu_ref_switch_to_atomic_rcu",
            Attached,
            Some("breakpoint"),
            None,
        ),
        probe(
            "percpu_ref",
            "percpu_ref_call_confirm_rcu",
            NotNeeded,
            None,
            Some("inlined on this kernel"),
        ),
        probe("aio", "exit_aio", Attached, Some("fentry"), None),
        probe(
            "aio",
            "kill_ioctx",
            Failed,
            None,
            Some("inlined: no symbol, no BTF"),
        ),
        probe("aio", "free_ioctx_users", Attached, Some("kprobe"), None),
    ]
}
