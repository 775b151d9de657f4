//! A snapshot with something of everything, the same at each call: for the views' tests and the demonstration.
#![allow(
    dead_code,
    unused_imports,
    reason = "each user of this module takes a part of it"
)]

mod aio;
mod refs;
mod said;
mod uio;

pub use aio::{context, drain, drains};
pub use refs::owners;
use said::finding;
pub use said::{findings, in_progress, probes};
pub use uio::{devices, histogram};

use std::collections::BTreeMap;
use std::sync::Arc;
use uio_trace::event::DeviceKey;
use uio_trace::model::history::{History, LockTotals, Recorder};
use uio_trace::model::snapshot::*;

/// CLOCK_MONOTONIC when the trace began.
pub const STARTED_NS: u64 = 4_200_000_000_000;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// The stretch of a snapshot that ends `elapsed_ns` after the begin of the trace.
pub fn interval(elapsed_ns: u64) -> Interval {
    Interval {
        start_ns: STARTED_NS,
        end_ns: STARTED_NS + elapsed_ns,
        duration_ns: elapsed_ns,
    }
}

/// The host of the examples.
pub fn meta() -> Meta {
    Meta {
        schema_version: 1,
        tool: "uio-trace 0.1.0".into(),
        host: "db-host-17".into(),
        kernel: "6.1.0-22-amd64".into(),
        boot_id: "0d9a3c1e-0000-4000-8000-000000000000".into(),
        started: "2026-03-14T12:30:00.250Z".into(),
        started_ns: STARTED_NS,
        probes: Vec::new(),
        rcu: BTreeMap::from([
            ("rcu_expedited".to_owned(), "0".to_owned()),
            ("rcu_normal".to_owned(), "0".to_owned()),
            ("nohz_full".to_owned(), "none".to_owned()),
            ("preempt".to_owned(), "voluntary".to_owned()),
        ]),
    }
}

/// Nothing happened.
pub fn empty() -> Snapshot {
    Snapshot {
        interval: interval(S),
        uio_present: Some(false),
        uio_devices: Vec::new(),
        ref_owners: Vec::new(),
        grace_period_ns: Histogram::default(),
        aio_drains: Vec::new(),
        aio_drains_omitted: 0,
        in_progress: Vec::new(),
        findings: vec![finding(
            "nothing_here",
            Severity::Info,
            "host",
            "nothing here is waiting on UIO, AIO or a percpu_ref; checked: uio is not loaded, 0 AIO drains, 0 kills and 0 switches of percpu_refs",
            0.0,
        )],
        slow_ops: Vec::new(),
        loss: Loss::default(),
        probes: Vec::new(),
        history: Arc::default(),
    }
}

/// Everything at once, `elapsed_ns` after the begin.
pub fn rich_at(elapsed_ns: u64) -> Snapshot {
    let slow = |tid: u32, latency: u64, holder: Option<&str>| SlowOp {
        sysfs_name: "uio0".into(),
        op: "write".into(),
        tgid: 2201,
        tid,
        comm: "tcmu-runner".into(),
        latency_ns: latency,
        wait_ns: latency - 200 * US,
        hold_ns: 200 * US,
        driver_wait_ns: 0,
        holder: holder.map(str::to_owned),
        holder_op: holder.map(|_| "write".into()),
    };
    Snapshot {
        interval: interval(elapsed_ns),
        uio_present: Some(true),
        uio_devices: devices(),
        ref_owners: owners(),
        grace_period_ns: Histogram::default(),
        aio_drains: drains(),
        aio_drains_omitted: 0,
        in_progress: in_progress(),
        findings: findings(),
        slow_ops: vec![
            slow(2210, 2_412 * US, Some("tcmu-runner (2201/2211)")),
            slow(2211, 2_105 * US, Some("tcmu-runner (2201/2210)")),
            slow(2212, 1_300 * US, None),
        ],
        loss: Loss {
            seen: 4_800 * (elapsed_ns / S) + 41,
            aggregated: 4_800 * (elapsed_ns / S) - 210,
            submitted: 210,
            decoded: 208,
            ignored: 2,
            dropped: BTreeMap::from([("ring_full".to_owned(), 37), ("map_full".to_owned(), 2)]),
            uncertain: 1,
        },
        probes: probes(),
        history: history(elapsed_ns, &[(0, 0), (1, 2)]),
    }
}

/// A history of the last two minutes: a sample each second for these devices (minor, generation), busy in waves, and
/// two owners of refs that are killed in bursts.
pub fn history(elapsed_ns: u64, devices: &[(u32, u32)]) -> Arc<History> {
    const SAMPLES: u64 = 120;
    let mut recorder = Recorder::default();
    let end = STARTED_NS + elapsed_ns;
    let mut sums = vec![(0, 0); devices.len()];
    let (mut kills, mut switches) = (0, 0);
    for sample in 0..SAMPLES.min(elapsed_ns / S) {
        // Seconds since the begin, so that a later snapshot continues an earlier one.
        let second = elapsed_ns / S - SAMPLES.min(elapsed_ns / S) + sample;
        let wave = ((second as f64 / 9.0).sin() + 1.0) / 2.0;
        for (i, (hold, wait)) in sums.iter_mut().enumerate() {
            let busy = if i == 0 { 0.6 + 0.4 * wave } else { 0.0004 };
            *hold += (busy * S as f64) as u64;
            *wait += ((busy * 4.0 - 1.0).max(0.0) * S as f64) as u64;
        }
        kills += if second % 20 < 3 { 7 } else { 0 };
        switches += if (second + 19) % 20 < 3 { 7 } else { 0 };
        let locks = devices
            .iter()
            .zip(&sums)
            .map(|(&(minor, generation), &(hold_ns, wait_ns))| LockTotals {
                device: DeviceKey { minor, generation },
                hold_ns,
                wait_ns,
            });
        let refs = [
            ("free_ioctx_users", kills, switches),
            ("blk_queue_usage_counter_release", kills / 5, switches / 5),
        ];
        let at = end - (SAMPLES.min(elapsed_ns / S) - 1 - sample) * S;
        recorder.sample(at, at.saturating_sub(S), locks, refs.into_iter());
    }
    recorder.history()
}

/// Everything at once, at the time of the checked-in screens.
pub fn rich() -> Snapshot {
    rich_at(296_500 * MS)
}

/// Names nobody sane would choose.
pub fn hostile() -> Snapshot {
    let mut snapshot = rich();
    let names = [
        "\x1b[2J\x1b[31mred",
        "磁盤零號設備測試名稱很長很長很長很長",
        "👩\u{200d}👧🔥 e\u{301}",
        "\u{202e}txt.exe\r\n\ttab",
    ];
    for (device, name) in snapshot.uio_devices.iter_mut().zip(names) {
        device.name = Some(name.into());
        device.version = Some(name.into());
    }
    for (drain, name) in snapshot.aio_drains.iter_mut().zip(names) {
        drain.comm = name.into();
    }
    for (item, name) in snapshot.in_progress.iter_mut().zip(names) {
        item.comm = name.into();
        item.owner = name.into();
        item.detail = name.into();
    }
    for (finding, name) in snapshot.findings.iter_mut().zip(names) {
        finding.subject = name.into();
        finding.text = format!("{name} {name} {name} {name} {name} {name}");
    }
    for (owner, name) in snapshot.ref_owners.iter_mut().zip(names) {
        owner.owner = name.into();
        owner.last_killer = Some(name.into());
    }
    for (probe, name) in snapshot.probes.iter_mut().zip(names) {
        probe.reason = Some(name.into());
    }
    snapshot
}

/// `devices` devices and `drains` drains.
pub fn large(device_count: u32, drain_count: u64) -> Snapshot {
    let mut snapshot = rich();
    let template = snapshot.uio_devices.remove(0);
    snapshot.uio_devices = (0..device_count)
        .map(|minor| {
            let mut device = template.clone();
            device.minor = minor;
            device.sysfs_name = format!("uio{minor}");
            device.mean_waiters = f64::from(minor * 7919 % 1000) / 100.0;
            device
        })
        .collect();
    let keys: Vec<(u32, u32)> = (0..device_count).map(|minor| (minor, 0)).collect();
    snapshot.history = history(snapshot.interval.duration_ns, &keys);
    let template = snapshot.in_progress.remove(0);
    snapshot.in_progress = (1..=drain_count)
        .map(|pid| {
            let mut item = template.clone();
            item.tgid = u32::try_from(pid).unwrap_or(u32::MAX);
            item.tid = item.tgid;
            item.age_ns = Some(pid * 6_007 % 100_000 * US);
            item
        })
        .collect();
    let template = snapshot.aio_drains.remove(0);
    snapshot.aio_drains = (1..=drain_count)
        .map(|id| {
            let mut drain = template.clone();
            drain.id = id;
            drain.wall_ns = id * 7_919 % 100_000 * US;
            drain
        })
        .collect();
    snapshot
}
