//! A snapshot with something of everything, the same at each call: for the views' tests and the demonstration.
#![allow(dead_code, reason = "each user of this module takes a part of it")]

use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use uio_trace::event::DeviceKey;
use uio_trace::model::history::{History, LockTotals, Recorder};
use uio_trace::model::snapshot::*;
use uio_trace::model::threads::CpuUse;
use uio_trace_common::histogram::{bucket_high, bucket_index, bucket_low};

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
        uio_present: false,
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

/// `count` values around `middle` with a tail, from a fixed sequence.
pub fn histogram(count: u64, middle: u64) -> Histogram {
    const SAMPLES: u64 = 400;
    let mut buckets: BTreeMap<u64, Bucket> = BTreeMap::new();
    let mut values = Vec::new();
    let mut x: u64 = middle | 1;
    for _ in 0..SAMPLES.min(count) {
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let r = x >> 33;
        let spread = middle / 12 + 1;
        let tail = if r.is_multiple_of(50) {
            middle * (r / 50 % 6) / 2
        } else {
            0
        };
        values.push(middle - spread / 2 + (r % 1000) * spread / 1000 + tail);
    }
    values.sort_unstable();
    let weight = (count / SAMPLES.min(count).max(1)).max(1);
    for value in &values {
        let index = bucket_index(*value);
        let bucket = Bucket {
            lo: bucket_low(index),
            hi: bucket_high(index),
            count: 0,
        };
        buckets.entry(bucket.lo).or_insert(bucket).count += weight;
    }
    let at = |share: f64| {
        let index = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len().max(1)) - 1;
        values.get(index).copied().unwrap_or(0)
    };
    Histogram {
        count: values.len() as u64 * weight,
        sum: values.iter().sum::<u64>() * weight,
        min: values.first().copied().unwrap_or(0),
        max: values.last().copied().unwrap_or(0),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        buckets: buckets.into_values().collect(),
    }
}

fn op(op: &str, count: u64, contended: u64, latency: u64, wait: u64, hold: Option<u64>) -> UioOpFigures {
    UioOpFigures {
        op: op.into(),
        count,
        errors: BTreeMap::new(),
        contended,
        latency_ns: histogram(count, latency),
        wait_ns: Some(if contended == 0 {
            Histogram::default()
        } else {
            histogram(contended, wait)
        }),
        hold_ns: hold.map(|hold| histogram(count, hold)),
        spin_ns: None,
        wake_ns: 0,
        refused: 0,
    }
}

/// uio0 with four writers at 200 us hold; uio1 at ease; uio2 gone.
pub fn devices() -> Vec<UioDevice> {
    let mut write = op("write", 1_412_000, 1_398_000, 805 * US, 604 * US, Some(200 * US));
    write.errors = BTreeMap::from([("EIO".to_owned(), 12), ("EINVAL".to_owned(), 3)]);
    let pair = |waiter: &str, holder: Option<&str>, count: u64, wait_ns: u64| OpPair {
        waiter: waiter.into(),
        holder: holder.map(str::to_owned),
        count,
        wait_ns,
    };
    let blocker = |op: Option<&str>, tid: u32, count: u64, wait_ns: u64| Blocker {
        op: op.map(str::to_owned),
        comm: "tcmu-runner".into(),
        tgid: 2201,
        tid,
        count,
        wait_ns,
        same_cpu: 0,
    };
    vec![
        UioDevice {
            minor: 0,
            generation: 0,
            sysfs_name: "uio0".into(),
            name: Some("tcm-user/0/disk0".into()),
            version: Some("tcmu-runner 1.5".into()),
            driver: None,
            parent: Some("tcm_user".into()),
            backstore: Backstore::of("tcm-user/0/disk0"),
            open: Some(OpenDevice {
                descriptors: 2,
                processes: vec![OpenProcess {
                    comm: "tcmu-runner".into(),
                    tgid: 2201,
                    descriptors: 2,
                }],
                complete: true,
            }),
            gone_ns: None,
            unregister: None,
            lock: UioLock::Mutex,
            utilization: Some(0.972),
            mean_waiters: 2.94,
            ops: vec![
                write,
                op("poll", 9_120, 8_800, 640 * US, 590 * US, Some(2 * US)),
                op("open", 4, 1, 210 * US, 190 * US, Some(9 * US)),
                op("release", 3, 0, 11 * US, 0, Some(10 * US)),
            ],
            driver_wait_ns: 34 * MS,
            driver_waits: 212,
            blockers: vec![
                blocker(Some("write"), 2210, 812, 1_640 * MS),
                blocker(Some("write"), 2211, 790, 1_590 * MS),
                blocker(None, 2212, 44, 91 * MS),
            ],
            waits_by_op: vec![
                pair("write", Some("write"), 1_560, 3_100 * MS),
                pair("poll", Some("write"), 42, 130 * MS),
                pair("write", None, 44, 91 * MS),
            ],
            what_if: WhatIf {
                verdict: WhatIfVerdict::Range,
                reason: None,
                text: "without info_lock 2.8 to 3.8 times as many write operations (4 threads, 8 CPUs)"
                    .into(),
                low: Some(2.8),
                high: Some(3.8),
                op: Some("write".into()),
                threads: Some(4),
                cpus: Some(8),
                cpu_use: Some(CpuUse {
                    busy: 1.24,
                    runqueue: 0.08,
                    idle: Some(6.51),
                }),
                assumptions: vec![
                    "the threads go on as before".into(),
                    "the rest of an operation takes as long".into(),
                    "waits for the driver's locks do not grow".into(),
                    "the CPUs are free".into(),
                ],
            },
        },
        UioDevice {
            minor: 1,
            generation: 2,
            sysfs_name: "uio1".into(),
            name: Some("igb_uio".into()),
            version: None,
            driver: None,
            parent: None,
            backstore: None,
            open: None,
            gone_ns: None,
            unregister: None,
            lock: UioLock::Mutex,
            utilization: Some(0.0004),
            mean_waiters: 0.0,
            ops: vec![
                op("write", 812, 0, 3 * US, 0, Some(1_200)),
                op("read", 811, 2, 352 * MS, 2 * US, None),
                op("mmap", 2, 0, 18 * US, 0, Some(16 * US)),
            ],
            driver_wait_ns: 0,
            driver_waits: 0,
            blockers: Vec::new(),
            waits_by_op: Vec::new(),
            what_if: WhatIf::default(),
        },
        UioDevice {
            minor: 2,
            generation: 0,
            sysfs_name: "uio2".into(),
            name: None,
            version: None,
            driver: None,
            parent: None,
            backstore: None,
            open: None,
            gone_ns: Some(STARTED_NS + S),
            unregister: None,
            lock: UioLock::Unknown,
            utilization: None,
            mean_waiters: 0.0,
            ops: Vec::new(),
            driver_wait_ns: 0,
            driver_waits: 0,
            blockers: Vec::new(),
            waits_by_op: Vec::new(),
            what_if: WhatIf::default(),
        },
    ]
}

/// A context that begins at `start` and has these phases.
pub fn context(number: u64, start: u64, parts: [u64; 4], call: bool) -> AioContext {
    let total = parts.iter().sum();
    AioContext {
        ctx: format!("0x7f3a{:08x}", 0x1000_0000 + number * 0x9000),
        start_offset_ns: start,
        users_gp_ns: Some(parts[0]),
        users_refs_ns: Some(parts[1]),
        reqs_gp_ns: Some(parts[2]),
        reqs_io_ns: Some(parts[3]),
        users_ns: Some(parts[0] + parts[1]),
        reqs_ns: Some(parts[2] + parts[3]),
        total_ns: total,
        in_flight: None,
        last_request: None,
        call_ns: call.then_some(total + 120 * US),
        uncertain: false,
    }
}

/// A drain of contexts; the verdict is given.
pub fn drain(id: u64, comm: &str, tgid: u32, verdict: DrainVerdict, detail: Vec<AioContext>) -> AioDrain {
    let wall_ns = detail
        .iter()
        .map(|c| c.start_offset_ns + c.total_ns)
        .max()
        .unwrap_or(0);
    let sum_ns = detail.iter().map(|c| c.total_ns).sum();
    let longest = detail.iter().map(|c| c.total_ns).max().unwrap_or(0);
    let critical = match verdict {
        DrainVerdict::Parallel => {
            (0..detail.len()).max_by_key(|i| detail[*i].start_offset_ns + detail[*i].total_ns)
        }
        _ => (0..detail.len()).max_by_key(|i| detail[*i].total_ns),
    }
    .unwrap_or(0);
    let c = detail
        .get(critical)
        .cloned()
        .unwrap_or_else(|| context(0, 0, [0; 4], false));
    AioDrain {
        id,
        cause: if verdict == DrainVerdict::Serial {
            DrainCause::IoDestroy
        } else {
            DrainCause::ExitAio
        },
        tgid,
        tid: if verdict == DrainVerdict::Serial {
            tgid + 8
        } else {
            tgid
        },
        comm: comm.into(),
        contexts: detail.len() as u64,
        start_ns: STARTED_NS + id * S,
        wall_ns,
        sum_ns,
        overlap: if verdict == DrainVerdict::Parallel {
            0.993
        } else {
            0.0
        },
        verdict,
        projected_parallel_ns: longest,
        critical,
        in_flight: None,
        last_request: None,
        phases_ns: Phases {
            users_gp: c.users_gp_ns,
            users_refs: c.users_refs_ns,
            reqs_gp: c.reqs_gp_ns,
            reqs_io: c.reqs_io_ns,
            users: c.users_ns,
            reqs: c.reqs_ns,
        },
        detail,
        uncertain: false,
    }
}

/// A loop of io_destroy, an exit with 64 contexts, and one context whose switches were not seen.
pub fn drains() -> Vec<AioDrain> {
    let mut start = 0;
    let serial = (0..4)
        .map(|i| {
            let parts = [
                (24 + i * 2) * MS,
                300 * US + i * 2_000 * US,
                26 * MS,
                (31 + i * 9) * MS,
            ];
            let c = context(i, start, parts, true);
            start += c.total_ns + 150 * US;
            c
        })
        .collect();
    let parallel = (0..64)
        .map(|i| {
            let io = 4 * MS + (i * 37 % 64) * 500 * US;
            context(
                i,
                i * 9 * US,
                [27 * MS, 200 * US + (i % 5) * 300 * US, 24 * MS, io],
                false,
            )
        })
        .collect();
    let mut lone = context(9, 0, [18 * MS, 0, 22 * MS, 0], false);
    lone.users_gp_ns = None;
    lone.users_refs_ns = None;
    lone.reqs_gp_ns = None;
    lone.reqs_io_ns = None;
    vec![
        drain(1, "postgres", 4242, DrainVerdict::Serial, serial),
        drain(2, "fio", 5120, DrainVerdict::Parallel, parallel),
        drain(3, "qemu-img", 6001, DrainVerdict::Single, vec![lone]),
    ]
}

fn owner(owner: &str, release: &str, kills: u64, gp: u64, drain: Option<u64>) -> RefOwner {
    RefOwner {
        owner: owner.into(),
        release: release.into(),
        kills,
        kills_already_atomic: kills / 10,
        kills_already_dead: 0,
        switches: kills,
        released: drain.map(|_| kills),
        released_early: 0,
        ends_unseen: 0,
        revived: 0,
        grace_period_ns: histogram(kills, gp),
        drain_ns: drain.map_or_else(Histogram::default, |ns| histogram(kills, ns)),
        dying: 0,
        oldest_dying_ns: None,
        dying_references: None,
        last_killer: Some(format!(
            "{} (4242)",
            owner.split(' ').next().unwrap_or("x").to_lowercase()
        )),
        kill_stacks: vec![KillStack {
            count: kills.min(17),
            last_killer: "systemd (1)".into(),
            frames: [
                "percpu_ref_kill_and_confirm",
                "css_killed_work_fn",
                "process_one_work",
                "worker_thread",
            ]
            .map(str::to_owned)
            .to_vec(),
        }],
        own: false,
    }
}

/// Owners, one with refs that do not finish, one that is the tool itself.
pub fn owners() -> Vec<RefOwner> {
    let mut queue = owner(
        "block queue usage",
        "blk_queue_usage_counter_release",
        12,
        31 * MS,
        Some(44 * MS),
    );
    queue.dying = 2;
    queue.oldest_dying_ns = Some(12_345 * MS);
    queue.released = Some(10);
    let mut own = owner("BPF trampoline", "__bpf_tramp_image_release", 30, 22 * MS, None);
    own.own = true;
    vec![
        owner(
            "AIO context users",
            "free_ioctx_users",
            69,
            25 * MS,
            Some(26 * MS),
        ),
        owner(
            "AIO context requests",
            "free_ioctx_reqs",
            69,
            24 * MS,
            Some(52 * MS),
        ),
        own,
        queue,
        owner("cgroup", "css_release", 7, 28 * MS, None),
    ]
}

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

fn finding(id: &str, severity: Severity, subject: &str, text: &str, cost: f64) -> Finding {
    Finding {
        id: id.into(),
        severity,
        subject: subject.into(),
        text: text.into(),
        cost,
        evidence: BTreeMap::from([
            ("wait_p50_ns".to_owned(), json!(604 * US)),
            ("contended_share".to_owned(), json!(0.99)),
            ("lock".to_owned(), json!("mutex")),
        ]),
    }
}

/// Three findings, most costly first.
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
        uio_present: true,
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
