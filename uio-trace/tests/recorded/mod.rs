//! Small recordings for tests: every kind of event, in several frames.

use std::collections::BTreeMap;
use std::path::PathBuf;
use uio_trace::event::*;
use uio_trace::model::snapshot::{Meta, Probe, ProbeState, UioLock};
use uio_trace::recording::Writer;

/// Of a host that is not there.
pub fn meta() -> Meta {
    Meta {
        schema_version: 1,
        tool: "uio-trace".into(),
        host: "made-up-host".into(),
        kernel: "6.1".into(),
        boot_id: String::new(),
        started: "2026-01-01T00:00:00Z".into(),
        started_ns: 0,
        probes: Vec::new(),
        rcu: BTreeMap::from([("rcu_expedited".into(), "0".into())]),
    }
}

/// A folder of this test's own.
#[allow(dead_code, reason = "not every test has files")]
pub fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("uio-trace-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).expect("a folder");
    folder
}

/// A recording of these, with a frame for every few of them.
#[allow(dead_code, reason = "not every test wants one as bytes")]
pub fn recording(events: &[Event]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &meta()).expect("a writer");
    for few in events.chunks(4) {
        few.iter()
            .for_each(|event| writer.event(event).expect("an event"));
        writer.flush().expect("a frame");
    }
    writer.end().expect("an end")
}

/// One of each kind, a second apart.
pub fn events() -> Vec<Event> {
    let by = || Task {
        tgid: 10,
        tid: 11,
        comm: "fio \u{78c1}".into(),
    };
    let device = DeviceKey {
        minor: 1,
        generation: 2,
    };
    let pointer = |n: u64| KernelPtr(0xffff_8880_0000_0000 + n);
    let stack = || TaskStack {
        task: by(),
        frames: vec!["schedule".into(), "exit_aio".into()],
        direct_files: Some(vec!["/dev/sda".into()]),
    };
    let histogram = || HistogramReading {
        sum: 1 << 60,
        min: 1,
        max: 1 << 50,
        buckets: vec![(3, 1), (303, 1 << 40)],
    };
    let probe = Probe {
        subject: "aio".into(),
        hook: "exit_aio".into(),
        state: ProbeState::Attached,
        method: Some("fexit".into()),
        reason: None,
        gives: "drains".into(),
        required: true,
        cost: None,
        late_cpus: Vec::new(),
    };
    let kinds = vec![
        EventKind::Probes(vec![probe]),
        EventKind::UioLockKind(UioLock::Mutex),
        EventKind::UioPresence(UioPresence::Present),
        EventKind::UioDevices(vec![UioDeviceInfo {
            minor: 1,
            name: Some("a\u{1b}[2J\"b\n".into()),
            version: None,
            ..UioDeviceInfo::default()
        }]),
        EventKind::UioOpen(UioOpen {
            openers: vec![UioOpener {
                minor: 1,
                deleted: true,
                tgid: 7,
                comm: "a\u{1b}[2J\"b\n".into(),
                descriptors: 1 << 60,
            }],
            complete: false,
        }),
        EventKind::Symbol {
            addr: pointer(1),
            name: "blk_queue_usage_counter_release".into(),
            module: Some("m".into()),
        },
        EventKind::ProbeCosts(Some(vec![ProbeCost {
            subject: "uio".into(),
            hook: "uio_write".into(),
            hits: 3,
            run_ns: 900,
            missed: 1,
        }])),
        EventKind::ProbeCosts(None),
        EventKind::KillStack {
            id: 7,
            frames: vec![
                "percpu_ref_kill_and_confirm".into(),
                "blk_freeze_queue_start".into(),
            ],
        },
        EventKind::RefKill {
            by: by(),
            reference: pointer(2),
            release: pointer(1),
            confirm: Some(pointer(3)),
            already_atomic: false,
            already_dead: true,
            references: Some(3),
            stack: Some(7),
        },
        EventKind::RefSwitched {
            reference: pointer(2),
            release: pointer(1),
            references: Some(2),
        },
        EventKind::RefLooked {
            reference: pointer(2),
            release: pointer(1),
            state: RefState::Held(1),
        },
        EventKind::RefReleased {
            reference: pointer(2),
            release: pointer(1),
            early: true,
        },
        EventKind::Waiting(vec![stack()]),
        EventKind::Stacks(vec![stack(), stack()]),
        EventKind::ExitAioBegin {
            by: by(),
            mm: pointer(4),
        },
        EventKind::IoDestroyBegin {
            by: by(),
            user_id: u64::MAX,
        },
        EventKind::AioKill {
            by: by(),
            mm: pointer(4),
            ctx: pointer(5),
            wait: None,
            users: pointer(5),
            reqs: pointer(6),
            user_id: 7,
        },
        EventKind::AioUsersReleased { ctx: pointer(5) },
        EventKind::AioLastRequest {
            ctx: pointer(5),
            file: RequestFile {
                name: "data \u{78c1}".into(),
                inode: u64::MAX,
                device: "259:3".into(),
                disk: Some("nvme0n1p2".into()),
                is_device: false,
            },
        },
        EventKind::AioReqsReleased { ctx: pointer(5) },
        EventKind::IoDestroyEnd { by: by(), ret: -22 },
        EventKind::ExitAioEnd {
            by: by(),
            mm: pointer(4),
        },
        EventKind::UioSlow(UioSlow {
            by: by(),
            cpu: 3,
            device,
            op: UioOp::Fault,
            ret: -5,
            latency_ns: 5,
            wait_ns: 3,
            hold_ns: 2,
            driver_wait_ns: 1,
            holder: Some(by()),
            holder_op: Some(UioOp::Mmap),
        }),
        EventKind::UioRegistered {
            by: by(),
            device,
            latency_ns: 1,
        },
        EventKind::UioReading(vec![UioSeriesReading {
            device,
            idev: pointer(8),
            op: UioOp::Write,
            first_ns: 1,
            count: 2,
            contended: 1,
            driver_waits: 1,
            driver_wait_ns: 9,
            spin_ns: 0,
            wake_ns: 0,
            refused: 0,
            errors: BTreeMap::from([(5, 1), (1 << 16, 2)]),
            latency: histogram(),
            wait: histogram(),
            hold: HistogramReading::default(),
        }]),
        EventKind::ThreadTimes(vec![ThreadTime {
            tgid: 20,
            tid: 21,
            cpu_ns: 5_000_000,
            runqueue_ns: 1_000_000,
        }]),
        EventKind::UioBlockers(vec![UioBlockerReading {
            device,
            waiter_op: UioOp::Write,
            holder_op: Some(UioOp::Poll),
            holder: by(),
            count: 3,
            wait_ns: 1 << 50,
            same_cpu: 2,
        }]),
        EventKind::UioRunning(vec![UioRunning {
            by: by(),
            device,
            idev: pointer(8),
            op: UioOp::Write,
            since_ns: 1,
            waits: Some(LockWait {
                info_lock: true,
                since_ns: 2,
                holder: Some(by()),
                holder_op: Some(UioOp::Poll),
            }),
        }]),
        EventKind::UioRunning(Vec::new()),
        EventKind::UioUnregistered {
            by: by(),
            device,
            latency_ns: 1,
            wait_ns: 1,
        },
        EventKind::Counters(BTreeMap::from([("uio_seen".into(), 1 << 60)])),
        EventKind::Tick,
    ];
    let at = |(n, kind)| Event {
        ts_ns: (n as u64 + 1) * 1_000_000_000,
        kind,
    };
    kinds.into_iter().enumerate().map(at).collect()
}
