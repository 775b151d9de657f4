//! Is a UIO device serialised by its info_lock, and is that worth anything?

use super::{finding, wall_ns, with};
use crate::format::{count, duration, fit, percent, plural};
use crate::model::snapshot::{Finding, ProbeState, Severity, Snapshot, UioDevice, UioLock, sees_waits};

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
    for device in &snapshot.uio_devices {
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

fn subject(device: &UioDevice) -> String {
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
    let f = if enough && wait_share >= SERIALISED_WAIT_SHARE {
        let severity = if wait_share >= CRITICAL_WAIT_SHARE {
            Severity::Critical
        } else {
            Severity::Warning
        };
        // All waiting gone is the most that removing the lock can gain; the driver may not allow it.
        let gain = share(
            sums.latency_ns,
            sums.latency_ns.saturating_sub(sums.wait_ns).max(1),
        );
        let text = format!(
            "{subject} is serialised: callers wait for info_lock {} of their time (mean {}, p99 {}), it is held \
             {} of the time; without it calls could be up to {gain:.1} times as fast",
            percent(wait_share),
            duration(mean_wait),
            duration(sums.wait_p99_ns),
            percent(utilization),
        );
        let f = finding("uio_serialised", severity, subject, text, cost);
        with(
            f,
            [
                ("speedup_bound", gain.into()),
                ("wait_p99_ns", sums.wait_p99_ns.into()),
            ],
        )
    } else if enough && contended_share >= CONTENDED_SHARE {
        let text = format!(
            "{subject} is contended but cheap: {} of {} waited for info_lock, mean {}, {} of the callers' time",
            count(sums.contended),
            plural(sums.ops, "operation"),
            duration(mean_wait),
            percent(wait_share),
        );
        finding("uio_contended_cheap", Severity::Info, subject, text, cost)
    } else if enough && utilization >= SATURATED_UTILIZATION {
        let text = format!(
            "{subject}: nobody waits for info_lock, but it is held {} of the time: another thread would wait",
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
    with(
        f,
        [
            ("ops", sums.ops.into()),
            ("contended", sums.contended.into()),
            ("wait_ns", sums.wait_ns.into()),
            ("latency_ns", sums.latency_ns.into()),
            ("utilization", utilization.into()),
            ("mean_waiters", device.mean_waiters.into()),
        ],
    )
}

fn driver_lock(snapshot: &Snapshot, device: &UioDevice, sums: &Sums, subject: String) -> Option<Finding> {
    let part = share(device.driver_wait_ns, sums.latency_ns);
    if part < DRIVER_LOCK_SHARE || sums.ops < MIN_OPS {
        return None;
    }
    let text = format!(
        "{subject}: {} of the callers' time is waiting for a lock of the driver, not for info_lock: {}, mean {}",
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
