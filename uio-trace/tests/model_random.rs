//! Random event streams: the model never panics, stays within its bounds, and its sums agree with a plain count.
//!
//! The generator knows few threads, contexts and refs, so that everything collides: kills of what is open, ends without
//! a begin, switches of unknown refs, times that jump back, losses in between.

// A broken invariant ends the test: that is what panics are for here.
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::collections::BTreeMap;
use uio_trace::event::*;
use uio_trace::model::snapshot::{DrainVerdict, Histogram, Snapshot};
use uio_trace::model::{Config, Model, Scope, limits};
use uio_trace::report::text::{self, Options};
use uio_trace_common::histogram::bucket_index;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// Makes events, and counts the plain way what the model should say.
struct Stream {
    random: Random,
    now_ns: u64,
    kills: BTreeMap<u64, u64>,
    switches: BTreeMap<u64, u64>,
    /// Absolute readings by device and operation.
    series: BTreeMap<(DeviceKey, UioOp), UioSeriesReading>,
    lost: u64,
}

impl Stream {
    fn new(seed: u64) -> Stream {
        Stream {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            now_ns: 1_000_000_000,
            kills: BTreeMap::new(),
            switches: BTreeMap::new(),
            series: BTreeMap::new(),
            lost: 0,
        }
    }

    fn task(&mut self) -> Task {
        let tid = 100 + self.random.below(6);
        Task {
            tgid: 100 + (tid as u32 - 100) / 2,
            tid: tid as u32,
            comm: format!("t{tid}\u{1b}["),
        }
    }

    fn next(&mut self) -> Event {
        let step = [0, 1_000, 100_000, 5_000_000, 300_000_000][self.random.below(5) as usize];
        self.now_ns += self.random.below(step + 1);
        // Events of two CPUs, and user space's own, are not in order.
        let back = if self.random.below(10) == 0 {
            50_000_000
        } else {
            3_000
        };
        let ts_ns = self.now_ns - self.random.below(back);
        let (by, ctx) = (self.task(), 1 + self.random.below(5));
        let (mm, wait) = (KernelPtr(self.random.below(3)), KernelPtr(self.random.below(2)));
        let (users, reqs) = (KernelPtr(ctx * 0x1000), KernelPtr(ctx * 0x1000 + 24));
        let release = KernelPtr(0xff00 + self.random.below(4));
        // Sometimes a ref of a context.
        let reference = [users, reqs, KernelPtr(0x99_0000 + ctx * 64)][self.random.below(3) as usize];
        let kind = match self.random.below(22) {
            0 => EventKind::ExitAioBegin { by, mm },
            1 => EventKind::ExitAioEnd { by, mm },
            2 | 3 => EventKind::IoDestroyBegin { by, user_id: ctx },
            4 | 5 => EventKind::IoDestroyEnd {
                by,
                ret: if self.random.below(4) == 0 { -22 } else { 0 },
            },
            6..=8 => EventKind::AioKill {
                by,
                mm,
                ctx: KernelPtr(ctx * 0x1000),
                wait: (self.random.below(8) > 0).then_some(wait),
                users,
                reqs,
                user_id: ctx,
            },
            9 | 10 => EventKind::AioUsersReleased {
                ctx: KernelPtr(ctx * 0x1000),
            },
            11 if ctx % 2 == 0 => EventKind::AioLastRequest {
                ctx: KernelPtr(ctx * 0x1000),
                file: RequestFile {
                    inode: reference.0,
                    ..RequestFile::default()
                },
            },
            11 | 12 => EventKind::AioReqsReleased {
                ctx: KernelPtr(ctx * 0x1000),
            },
            13 | 14 => {
                // A ref keeps its release function: the model counts an open one under it.
                let release = KernelPtr(0xff00 + reference.0 % 7);
                *self.kills.entry(release.0).or_default() += 1;
                EventKind::RefKill {
                    by,
                    reference,
                    release,
                    confirm: None,
                    already_atomic: self.random.below(4) == 0,
                    already_dead: self.random.below(8) == 0,
                    references: [None, Some(self.random.below(3))][self.random.below(2) as usize],
                    stack: None,
                }
            }
            15 | 16 => {
                let release = KernelPtr(0xff00 + reference.0 % 7);
                *self.switches.entry(release.0).or_default() += 1;
                EventKind::RefSwitched {
                    reference,
                    release,
                    references: [None, Some(self.random.below(3))][self.random.below(2) as usize],
                }
            }
            17 => EventKind::RefReleased {
                reference,
                release: KernelPtr(0xff00 + reference.0 % 7),
                early: self.random.below(8) == 0,
            },
            18 => self.reading(),
            19 => {
                self.lost += self.random.below(3);
                EventKind::Counters(BTreeMap::from([("lifecycle_ring".to_string(), self.lost)]))
            }
            20 => EventKind::UioDevices(
                (0..self.random.below(3) as u32)
                    .map(|minor| UioDeviceInfo {
                        minor,
                        name: Some(format!("d\r{minor}")),
                        version: Some(String::new()),
                        ..UioDeviceInfo::default()
                    })
                    .collect(),
            ),
            _ if self.random.below(3) == 0 => {
                let device = DeviceKey {
                    minor: 0,
                    generation: self.random.below(3) as u32,
                };
                EventKind::UioUnregistered {
                    by,
                    device,
                    latency_ns: 1,
                    wait_ns: 0,
                }
            }
            _ => EventKind::UioSlow(UioSlow {
                holder: release.0.is_multiple_of(2).then(|| by.clone()),
                by,
                cpu: 0,
                device: DeviceKey {
                    minor: 0,
                    generation: 0,
                },
                op: UioOp::Write,
                ret: 0,
                latency_ns: self.random.below(1 << 50),
                wait_ns: self.random.below(1 << 50),
                hold_ns: u64::MAX,
                driver_wait_ns: 0,
                holder_op: None,
            }),
        };
        Event { ts_ns, kind }
    }

    fn reading(&mut self) -> EventKind {
        let device = DeviceKey {
            minor: self.random.below(2) as u32,
            generation: self.random.below(2) as u32,
        };
        let op = [UioOp::Write, UioOp::Read][self.random.below(2) as usize];
        let bits = self.random.below(42);
        let value = self.random.below(1 << bits);
        let empty = || UioSeriesReading {
            device,
            idev: KernelPtr(1),
            op,
            first_ns: self.now_ns,
            count: 0,
            contended: 0,
            driver_waits: 0,
            driver_wait_ns: 0,
            spin_ns: 0,
            wake_ns: 0,
            refused: 0,
            errors: BTreeMap::new(),
            latency: HistogramReading::default(),
            wait: HistogramReading::default(),
            hold: HistogramReading::default(),
        };
        let series = self.series.entry((device, op)).or_insert_with(empty);
        series.count += 1;
        *series.errors.entry((value % 40) as u32).or_default() += value & 1;
        let add = |h: &mut HistogramReading| {
            h.min = if h.buckets.is_empty() {
                value
            } else {
                h.min.min(value)
            };
            h.max = h.max.max(value);
            h.sum += value;
            let index = bucket_index(value) as u16;
            match h.buckets.binary_search_by_key(&index, |b| b.0) {
                Ok(i) => h.buckets[i].1 += 1,
                Err(i) => h.buckets.insert(i, (index, 1)),
            }
        };
        add(&mut series.latency);
        add(&mut series.hold);
        if value.is_multiple_of(3) {
            series.contended += 1;
            add(&mut series.wait);
        }
        EventKind::UioReading(vec![series.clone()])
    }
}

fn check_histogram(h: &Histogram) {
    assert_eq!(h.count, h.buckets.iter().map(|b| b.count).sum::<u64>());
    assert!(
        h.min <= h.p50 && h.p50 <= h.p90 && h.p90 <= h.p99 && h.p99 <= h.p999 && h.p999 <= h.max,
        "{h:?}"
    );
    assert!(h.buckets.iter().all(|b| b.lo < b.hi && b.count > 0));
    assert!(h.buckets.windows(2).all(|w| w[0].hi <= w[1].lo));
}

fn check(s: &Snapshot) {
    for d in &s.aio_drains {
        assert!((0.0..=1.0).contains(&d.overlap), "{d:?}");
        assert_eq!(d.contexts, d.detail.len() as u64);
        assert_eq!(d.sum_ns, d.detail.iter().map(|c| c.total_ns).sum::<u64>());
        assert_eq!(
            d.projected_parallel_ns,
            d.detail.iter().map(|c| c.total_ns).max().unwrap()
        );
        assert_eq!(d.verdict == DrainVerdict::Single, d.contexts == 1);
        for c in &d.detail {
            let halves = c.users_ns.zip(c.reqs_ns).map(|(a, b)| a + b);
            assert!(halves.is_none_or(|sum| sum == c.total_ns), "{c:?}");
            let quarters: Option<u64> = [c.users_gp_ns, c.users_refs_ns, c.reqs_gp_ns, c.reqs_io_ns]
                .into_iter()
                .sum();
            assert!(quarters.is_none_or(|sum| sum == c.total_ns), "{c:?}");
        }
    }
    for o in &s.ref_owners {
        check_histogram(&o.grace_period_ns);
        check_histogram(&o.drain_ns);
        assert!(o.grace_period_ns.count <= o.switches);
        assert!(o.drain_ns.count <= o.released.unwrap_or(0));
        assert_eq!(o.dying > 0, o.oldest_dying_ns.is_some());
    }
    for device in &s.uio_devices {
        assert!(device.utilization.is_some_and(|u| (0.0..=1.0).contains(&u)));
        device.ops.iter().for_each(|op| check_histogram(&op.latency_ns));
    }
    assert!(s.in_progress.windows(2).all(|w| w[0].age_ns >= w[1].age_ns));
    assert!(!s.findings.is_empty() && s.findings.windows(2).all(|w| w[0].cost >= w[1].cost));
    assert!(s.slow_ops.len() <= limits::MAX_SLOW_OPS);
}

#[test]
fn random_streams_keep_the_sums() {
    for seed in 1..=12 {
        let mut stream = Stream::new(seed);
        let mut model = Model::new(Config {
            start_ns: Some(0),
            ..Config::default()
        });
        let mut twin = Model::new(Config {
            start_ns: Some(0),
            ..Config::default()
        });
        let (mut kills_by_interval, mut ops_by_interval) = (0, 0);
        for i in 1..=4_000 {
            let event = stream.next();
            twin.apply(event.clone());
            model.apply(event);
            if i % 500 == 0 {
                let interval = model.snapshot(Scope::Interval);
                check(&interval);
                check(&model.snapshot(Scope::SinceStart));
                kills_by_interval += interval.ref_owners.iter().map(|o| o.kills).sum::<u64>();
                ops_by_interval += interval
                    .uio_devices
                    .iter()
                    .flat_map(|d| &d.ops)
                    .map(|o| o.count)
                    .sum::<u64>();
                model.begin_interval(stream.now_ns);
                twin.begin_interval(stream.now_ns);
            }
        }
        let all = model.snapshot(Scope::SinceStart);
        assert_eq!(
            all,
            twin.snapshot(Scope::SinceStart),
            "seed {seed}: the same events, another snapshot"
        );
        let kills: u64 = all.ref_owners.iter().map(|o| o.kills).sum();
        assert_eq!(kills, stream.kills.values().sum::<u64>());
        assert_eq!(kills, kills_by_interval);
        for o in &all.ref_owners {
            let release = u64::from_str_radix(o.release.trim_start_matches("0x"), 16).expect("an address");
            assert_eq!(
                o.kills,
                stream.kills.get(&release).copied().unwrap_or(0),
                "{}",
                o.release
            );
            assert_eq!(
                o.switches,
                stream.switches.get(&release).copied().unwrap_or(0),
                "{}",
                o.release
            );
        }
        let ops: u64 = all.uio_devices.iter().flat_map(|d| &d.ops).map(|o| o.count).sum();
        assert_eq!(ops, stream.series.values().map(|s| s.count).sum::<u64>());
        assert_eq!(ops, ops_by_interval);
        assert_eq!(
            all.loss.dropped.get("lifecycle_ring").copied().unwrap_or(0),
            stream.lost
        );
        // An hour later nothing uncertain is left, and every drain that could end has ended.
        for hour in 1..=3 {
            model.apply(Event {
                ts_ns: stream.now_ns + hour * 3_600_000_000_000,
                kind: EventKind::Tick,
            });
        }
        model.finish(stream.now_ns + 4 * 3_600_000_000_000);
        let end = model.snapshot(Scope::SinceStart);
        check(&end);
        assert_eq!(end.loss.uncertain, 0, "seed {seed}");
        assert!(!end.aio_drains.is_empty(), "seed {seed}: the stream does nothing");
        let text = serde_json::to_string(&end).expect("JSON");
        assert!(
            !text.contains("\\u001b") && !text.contains("\\r"),
            "an unclean name"
        );
        assert!(end.in_progress.iter().all(|p| !p.uncertain));
        let meta = serde_json::from_value(serde_json::json!({
            "schema_version": 1, "tool": "t", "host": "h", "kernel": "k", "boot_id": "b",
            "started": "2026-11-30T12:00:00.000Z", "started_ns": 0, "probes": [], "rcu": {}
        }))
        .expect("meta");
        text::render(
            &meta,
            &end,
            &Options {
                all: true,
                ..Options::default()
            },
        );
    }
}

#[test]
fn memory_is_bounded_by_counts_not_by_the_host() {
    let mut model = Model::new(Config {
        start_ns: Some(0),
        ..Config::default()
    });
    let task = |n: u64| Task {
        tgid: n as u32,
        tid: n as u32,
        comm: "x".to_string(),
    };
    let more = limits::MAX_OPEN_CONTEXTS as u64 + 1000;
    for n in 1..=more {
        let (ctx, reqs) = (KernelPtr(n * 0x1000), KernelPtr(n * 0x1000 + 24));
        let kill = EventKind::AioKill {
            by: task(n % 100),
            mm: KernelPtr(n % 100),
            ctx,
            wait: Some(KernelPtr(1)),
            users: ctx,
            reqs,
            user_id: n,
        };
        model.apply(Event { ts_ns: n, kind: kill });
        let release = KernelPtr(0xff00 + n % 1000);
        let kill = EventKind::RefKill {
            by: task(1),
            reference: KernelPtr(n << 32),
            release,
            confirm: None,
            already_atomic: false,
            already_dead: false,
            references: None,
            stack: None,
        };
        model.apply(Event { ts_ns: n, kind: kill });
    }
    let s = model.snapshot(Scope::SinceStart);
    assert_eq!(s.ref_owners.len(), limits::MAX_REF_OWNERS);
    assert_eq!(s.loss.dropped["model_contexts_full"], 1000);
    assert!(s.loss.dropped["model_owners_full"] > 0);
    assert!(s.in_progress.len() <= limits::MAX_IN_PROGRESS);
}
