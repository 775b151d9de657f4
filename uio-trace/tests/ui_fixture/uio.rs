//! UIO devices.
#![allow(dead_code, reason = "each user of this module takes a part of it")]

use super::*;
use uio_trace::model::threads::CpuUse;
use uio_trace_common::histogram::{bucket_high, bucket_index, bucket_low};

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
