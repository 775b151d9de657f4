//! Is a UIO device serialised by its info_lock, and is that worth anything?

use super::{finding, uio_behind, wall_ns, with};
use crate::format::{count, duration, fit, percent, plural};
use crate::model::snapshot::{
    Finding, ProbeState, Severity, Snapshot, UioDevice, UioLock, WhatIfVerdict, sees_waits,
};

/// Share of their time in UIO operations (reads, which sleep, left out) that threads must wait for info_lock for the
/// device to be called serialised.
pub const SERIALISED_WAIT_SHARE: f64 = 0.25;
/// From this share on it is critical.
pub const CRITICAL_WAIT_SHARE: f64 = 0.5;
/// Contended operations per operation from which contention is worth a line.
pub const CONTENDED_SHARE: f64 = 0.01;
/// Utilization from which one more thread would wait.
pub const SATURATED_UTILIZATION: f64 = 0.7;
/// Share of the operations' time spent waiting for other locks that names a driver's own lock.
pub const DRIVER_LOCK_SHARE: f64 = 0.1;
/// Columns of a device's name in a sentence; TCMU's are paths.
const NAME_COLUMNS: usize = 32;
/// Operations below which shares say nothing.
pub const MIN_OPS: u64 = 10;
/// Threads waiting on average below which a lock is cheap, whatever the share of the few callers' time.
pub const SERIALISED_COST: f64 = 0.01;
/// From here on a high share is critical.
pub const CRITICAL_COST: f64 = 0.1;
/// Utilization of a lock nobody waits for from which its users must be taking turns: independent ones would meet.
pub const ONE_THREAD_UTILIZATION: f64 = 0.2;
/// Operations that makes certain.
const ONE_THREAD_OPS: u64 = 100;

/// Sums over a device's operations, reads left out: they sleep for the interrupt.
#[derive(Default)]
struct Sums {
    ops: u64,
    contended: u64,
    latency_ns: u64,
    wait_ns: u64,
    /// Largest 99th percentile of the waits.
    wait_p99_ns: u64,
}

pub(super) fn diagnose(snapshot: &Snapshot, findings: &mut Vec<Finding>) {
    uio_behind::stuck_unregister(snapshot, findings);
    super::uio_stuck::diagnose(snapshot, findings);
    for device in &snapshot.uio_devices {
        findings.extend(uio_behind::slow_unregister(snapshot, device));
        findings.extend(uio_behind::gone_open(device));
        findings.extend(uio_behind::refused(device));
        let sums = sums(device);
        if sums.ops == 0 {
            continue;
        }
        let subject = subject(device);
        if device.lock == UioLock::PercpuRef {
            let text = format!(
                "{subject} has no info_lock: a percpu_ref protects it, {} did not wait for each other",
                plural(sums.ops, "operation"),
            );
            findings.push(finding("uio_not_contended", Severity::Info, subject, text, 0.0));
            continue;
        }
        let Some(utilization) = device.utilization else {
            let reason = snapshot
                .probes
                .iter()
                .filter(|p| sees_waits(p) && p.state == ProbeState::Failed)
                .find_map(|p| p.reason.clone());
            let text = format!(
                "waits for info_lock of {subject} are not measured{}",
                reason.map_or_else(String::new, |r| format!(": {r}"))
            );
            findings.push(finding("uio_wait_unknown", Severity::Warning, subject, text, 0.0));
            continue;
        };
        findings.push(lock(device, &sums, utilization, subject.clone()));
        findings.extend(driver_lock(snapshot, device, &sums, subject));
    }
}

pub(super) fn subject(device: &UioDevice) -> String {
    match &device.name {
        Some(name) => format!("{} ({})", device.sysfs_name, fit(name, NAME_COLUMNS)),
        None => device.sysfs_name.clone(),
    }
}

fn sums(device: &UioDevice) -> Sums {
    let mut sums = Sums::default();
    for op in device.ops.iter().filter(|o| o.op != "read") {
        sums.ops += op.count;
        sums.contended += op.contended;
        sums.latency_ns = sums.latency_ns.saturating_add(op.latency_ns.sum);
        if let Some(wait) = &op.wait_ns {
            sums.wait_ns = sums.wait_ns.saturating_add(wait.sum);
            sums.wait_p99_ns = sums.wait_p99_ns.max(wait.p99);
        }
    }
    sums
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// Exactly one finding per device with operations: what its lock costs.
fn lock(device: &UioDevice, sums: &Sums, utilization: f64, subject: String) -> Finding {
    let wait_share = share(sums.wait_ns, sums.latency_ns);
    let contended_share = share(sums.contended, sums.ops);
    let cost = device.mean_waiters;
    let enough = sums.ops >= MIN_OPS;
    let mean_wait = sums.wait_ns.checked_div(sums.contended).unwrap_or(0);
    let worthless = device.what_if.verdict == WhatIfVerdict::NothingToGain;
    let f = if enough && wait_share >= SERIALISED_WAIT_SHARE && cost >= SERIALISED_COST && !worthless {
        let severity = if wait_share >= CRITICAL_WAIT_SHARE && cost >= CRITICAL_COST {
            Severity::Critical
        } else {
            Severity::Warning
        };
        let waits = Waits {
            share: wait_share,
            mean_ns: mean_wait,
            p99_ns: sums.wait_p99_ns,
            utilization,
        };
        serialised(device, &waits, severity, subject, cost)
    } else if !enough && sums.contended > 0 && cost >= SERIALISED_COST {
        let severity = if wait_share >= SERIALISED_WAIT_SHARE && cost >= CRITICAL_COST {
            Severity::Warning
        } else {
            Severity::Info
        };
        let text = format!(
            "{subject}: {} of {} waited for info_lock, {} in all: too few to say what it costs",
            count(sums.contended),
            plural(sums.ops, "operation"),
            duration(sums.wait_ns),
        );
        finding("uio_few_waits", severity, subject, text, cost)
    } else if enough && contended_share >= CONTENDED_SHARE {
        let text = format!(
            "{subject} is contended but cheap: {} of {} waited for info_lock, mean {}, {} of the callers' time{}",
            count(sums.contended),
            plural(sums.ops, "operation"),
            duration(mean_wait),
            percent(wait_share),
            if worthless {
                format!("; {}", device.what_if.text)
            } else {
                String::new()
            },
        );
        finding("uio_contended_cheap", Severity::Info, subject, text, cost)
    } else if sums.ops >= ONE_THREAD_OPS && sums.contended == 0 && utilization >= ONE_THREAD_UTILIZATION {
        let text = format!(
            "{subject}: one at a time: none of {} waited for info_lock although it is held {} of the time, so there is \
             nothing to remove",
            plural(sums.ops, "operation"),
            percent(utilization),
        );
        finding("uio_one_thread", Severity::Info, subject, text, cost)
    } else if enough && utilization >= SATURATED_UTILIZATION {
        let text = format!(
            "{subject}: hardly anybody waits for info_lock, but it is held {} of the time: another thread would wait",
            percent(utilization),
        );
        finding("uio_saturated", Severity::Info, subject, text, cost)
    } else {
        let text = format!(
            "{subject}: the lock is not your problem: info_lock is held {} of the time, {} of {} waited",
            percent(utilization),
            count(sums.contended),
            plural(sums.ops, "operation"),
        );
        finding("uio_not_contended", Severity::Info, subject, text, cost)
    };
    let assumes = device.what_if.assumptions.join("; ");
    with(
        f,
        [
            ("assumes", Some(assumes).filter(|a| !a.is_empty()).into()),
            ("ops", sums.ops.into()),
            ("contended", sums.contended.into()),
            ("wait_ns", sums.wait_ns.into()),
            ("latency_ns", sums.latency_ns.into()),
            ("utilization", utilization.into()),
            ("mean_waiters", device.mean_waiters.into()),
            ("gain_low", device.what_if.low.into()),
            ("gain_high", device.what_if.high.into()),
        ],
    )
}

/// What is said of the waits.
struct Waits {
    share: f64,
    mean_ns: u64,
    p99_ns: u64,
    utilization: f64,
}

/// Waiting costs much: by which kind of cause.
fn serialised(device: &UioDevice, waits: &Waits, severity: Severity, subject: String, cost: f64) -> Finding {
    let what_if = &device.what_if;
    if what_if.reason.as_deref() == Some("one_cpu") {
        let text = format!(
            "{subject}: info_lock is not proven to be the limit: callers wait {} of their time (mean {}), but {}",
            percent(waits.share),
            duration(waits.mean_ns),
            what_if.text,
        );
        return finding("uio_one_cpu", Severity::Warning, subject, text, cost);
    }
    if what_if.reason.as_deref() == Some("cpus_busy") {
        let text = format!(
            "{subject}: info_lock is not proven to be the limit: callers wait {} of their time (mean {}), but it is held {} of the \
             time; {}",
            percent(waits.share),
            duration(waits.mean_ns),
            percent(waits.utilization),
            what_if.text,
        );
        return finding("uio_cpus_busy", Severity::Warning, subject, text, cost);
    }
    if let Some(other) = uio_behind::other_kind(device) {
        let text = format!(
            "{subject}: callers wait for info_lock {} of their time, {} of it behind another kind of operation: {}",
            percent(waits.share),
            percent(other.share),
            other.text,
        );
        let f = finding("uio_blocked_by_other", severity, subject, text, cost);
        return with(f, [("other_share", other.share.into())]);
    }
    let text = format!(
        "{subject} is serialised: callers wait for info_lock {} of their time (mean {}, p99 {}), it is held {} of the \
         time; {}",
        percent(waits.share),
        duration(waits.mean_ns),
        duration(waits.p99_ns),
        percent(waits.utilization),
        what_if.text,
    );
    let f = finding("uio_serialised", severity, subject, text, cost);
    with(f, [("wait_p99_ns", waits.p99_ns.into())])
}

fn driver_lock(snapshot: &Snapshot, device: &UioDevice, sums: &Sums, subject: String) -> Option<Finding> {
    let part = share(device.driver_wait_ns, sums.latency_ns);
    if part < DRIVER_LOCK_SHARE || sums.ops < MIN_OPS {
        return None;
    }
    let text = format!(
        "{subject}: {} of the callers' time is waiting for a lock of the driver, which would remain without info_lock: {}, \
         mean {}",
        percent(part),
        plural(device.driver_waits, "wait"),
        duration(
            device
                .driver_wait_ns
                .checked_div(device.driver_waits)
                .unwrap_or(0)
        ),
    );
    let cost = device.driver_wait_ns as f64 / wall_ns(snapshot);
    let f = finding("uio_driver_lock", Severity::Warning, subject, text, cost);
    let evidence = [
        ("driver_wait_ns", device.driver_wait_ns.into()),
        ("driver_waits", device.driver_waits.into()),
    ];
    Some(with(f, evidence))
}
