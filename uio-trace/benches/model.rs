//! How fast events go from the bytes of a ring into the model, and how much memory the model keeps. `cargo xtask bench --host`, or
//! `cargo bench -p uio-trace --bench model`.
//!
//! No statistics: a few rounds, the best of them. The target is two million lifecycle events per second on one core.

// A benchmark that cannot run has nothing to say.
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use uio_trace::event::*;
use uio_trace::ingest::ring::{Batch, BatchBuilder};
use uio_trace::model::{Config, Model, Scope};
use uio_trace::recording::{Reader, Record, Writer};
use uio_trace_common::event as raw;
use zerocopy::{Immutable, IntoBytes};

/// Counts the bytes in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps alloc's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps dealloc's contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn task(n: u64) -> Task {
    Task {
        tgid: n as u32,
        tid: n as u32,
        comm: format!("worker/{}", n % 10_000),
    }
}

/// The whole life of a process's contexts at exit, `per_process` of them, 31 events for 4.
fn exit(process: u64, per_process: u64, begin_ns: u64, out: &mut Vec<Event>) {
    let (by, mm) = (task(process), KernelPtr(0xffff_8880_0000_0000 + process * 0x800));
    let mut push = |ns: u64, kind| {
        out.push(Event {
            ts_ns: begin_ns + ns,
            kind,
        })
    };
    push(0, EventKind::ExitAioBegin { by: by.clone(), mm });
    for n in 0..per_process {
        let ctx = KernelPtr(0xffff_8881_0000_0000 + (process * per_process + n) * 0x240);
        let (users, reqs) = (ctx, KernelPtr(ctx.0 + 24));
        let kill = |reference, release| EventKind::RefKill {
            by: by.clone(),
            reference,
            release: KernelPtr(release),
            confirm: None,
            already_atomic: false,
            already_dead: false,
            references: None,
            stack: None,
        };
        let switched = |reference, release| EventKind::RefSwitched {
            reference,
            release: KernelPtr(release),
            references: None,
        };
        let wait = Some(KernelPtr(0xffff_c900_0000_0000));
        push(
            n * 10,
            EventKind::AioKill {
                by: by.clone(),
                mm,
                ctx,
                wait,
                users,
                reqs,
                user_id: n << 12,
            },
        );
        push(n * 10 + 1, kill(users, 0x100));
        push(15_000_000 + n, switched(users, 0x100));
        push(15_000_100 + n, EventKind::AioUsersReleased { ctx });
        push(15_000_200 + n, kill(reqs, 0x200));
        push(30_000_000 + n, switched(reqs, 0x200));
        push(30_000_100 + n, EventKind::AioReqsReleased { ctx });
    }
    push(30_100_000, EventKind::ExitAioEnd { by, mm });
}

fn lifecycle(processes: u64, per_process: u64) -> Vec<Event> {
    let mut events = Vec::new();
    // 100 us apart: a few hundred drains are open at any time.
    (0..processes).for_each(|p| exit(p + 1, per_process, 1_000_000_000 + p * 100_000, &mut events));
    events.sort_by_key(|e| e.ts_ns);
    events
}

fn other_refs(count: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for n in 0..count {
        let (reference, release) = (
            KernelPtr(0xffff_8882_0000_0000 + (n % 5000) * 0x40),
            KernelPtr(0x300 + n % 20),
        );
        let kill = EventKind::RefKill {
            by: task(n),
            reference,
            release,
            confirm: None,
            already_atomic: false,
            already_dead: false,
            references: None,
            stack: None,
        };
        events.push(Event {
            ts_ns: n * 1000,
            kind: kill,
        });
        events.push(Event {
            ts_ns: n * 1000 + 500,
            kind: EventKind::RefSwitched {
                reference,
                release,
                references: None,
            },
        });
    }
    events
}

/// CPU time of this thread: other work on the machine does not count.
fn cpu_time() -> Duration {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a timespec of this frame, which clock_gettime fills in.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// An entry as the BPF side puts it into a ring.
fn entry(ts_ns: u64, kind: u32, by: Option<&Task>, payload: &(impl IntoBytes + Immutable)) -> Vec<u8> {
    let mut comm = [0; 16];
    for (to, from) in comm.iter_mut().zip(by.map_or("swapper/0", |by| &by.comm).bytes()) {
        *to = from;
    }
    let header = raw::EventHeader {
        kind,
        cpu: 0,
        ts_ns,
        tgid: by.map_or(0, |by| by.tgid),
        tid: by.map_or(0, |by| by.tid),
        comm,
    };
    [header.as_bytes(), payload.as_bytes()].concat()
}

/// The kinds that [`exit`] and [`other_refs`] make.
fn encode(event: &Event) -> Vec<u8> {
    let ts = event.ts_ns;
    match &event.kind {
        EventKind::RefKill {
            by,
            reference,
            release,
            ..
        } => {
            let kill = raw::RefKill {
                reference: reference.0,
                data: 0,
                release: release.0,
                confirm: 0,
                count_ptr: 0,
                count: 0,
                stack: -1,
            };
            entry(ts, raw::KIND_REF_KILL, Some(by), &kill)
        }
        EventKind::RefSwitched {
            reference, release, ..
        } => {
            let switched = raw::RefSwitched {
                reference: reference.0,
                data: 0,
                release: release.0,
                confirm: 0,
                count_ptr: 0,
                count: 0,
                counted: 0,
            };
            entry(ts, raw::KIND_REF_SWITCHED, None, &switched)
        }
        EventKind::ExitAioBegin { by, mm } => {
            entry(ts, raw::KIND_EXIT_AIO_BEGIN, Some(by), &raw::ExitAio { mm: mm.0 })
        }
        EventKind::ExitAioEnd { by, mm } => {
            entry(ts, raw::KIND_EXIT_AIO_END, Some(by), &raw::ExitAio { mm: mm.0 })
        }
        EventKind::AioKill {
            by,
            mm,
            ctx,
            wait,
            users,
            reqs,
            user_id,
        } => {
            let kill = raw::AioKill {
                mm: mm.0,
                ctx: ctx.0,
                wait: wait.map_or(0, |wait| wait.0),
                users: users.0,
                reqs: reqs.0,
                user_id: *user_id,
            };
            entry(ts, raw::KIND_AIO_KILL, Some(by), &kill)
        }
        EventKind::AioUsersReleased { ctx } => entry(ts, raw::KIND_AIO_USERS_RELEASED, None, &release(ctx)),
        EventKind::AioReqsReleased { ctx } => entry(ts, raw::KIND_AIO_REQS_RELEASED, None, &release(ctx)),
        other => panic!("not made here: {other:?}"),
    }
}

fn release(ctx: &KernelPtr) -> raw::AioRelease {
    raw::AioRelease {
        ctx: ctx.0,
        reference: 0,
    }
}

/// As many entries as the ring's reader takes out in one go.
fn batches(events: &[Event]) -> Vec<Batch> {
    let mut builder = BatchBuilder::default();
    events
        .chunks(4096)
        .map(|chunk| {
            chunk.iter().for_each(|event| builder.push(&encode(event)));
            builder.take()
        })
        .collect()
}

/// Best of a few rounds of a stage over `count` events, in CPU time.
fn best(stage: &str, name: &str, count: usize, mut round: impl FnMut() -> Duration) {
    let best = (0..5)
        .map(|_| round().as_secs_f64())
        .fold(f64::INFINITY, f64::min);
    let per_second = count as f64 / best;
    println!(
        "{stage:<14} {name:<28} {:>7.2} M events/s {:>7.0} ns/event",
        per_second / 1e6,
        1e9 / per_second
    );
}

/// Each stage alone, and the way of an event through both.
fn rates(name: &str, events: &[Event]) {
    let encoded = batches(events);
    let timed = |work: &mut dyn FnMut()| {
        let begin = cpu_time();
        work();
        cpu_time() - begin
    };
    best("decode", name, events.len(), || {
        timed(&mut || {
            for batch in &encoded {
                let counts = batch.clone().decode(|event, _| {
                    black_box(event);
                });
                assert_eq!(counts.rejected, 0);
            }
        })
    });
    best("apply", name, events.len(), || {
        let mut round = events.to_vec();
        let mut model = Model::new(Config {
            start_ns: Some(0),
            ..Config::default()
        });
        let took = timed(&mut || round.drain(..).for_each(|event| model.apply(event)));
        black_box(&model);
        took
    });
    best("decode + apply", name, events.len(), || {
        let mut model = Model::new(Config {
            start_ns: Some(0),
            ..Config::default()
        });
        let took = timed(&mut || {
            for batch in &encoded {
                batch.clone().decode(|event, _| model.apply(event));
            }
        });
        black_box(&model);
        took
    });
}

fn reading(minor: u32, op: UioOp) -> UioSeriesReading {
    let histogram = || HistogramReading {
        sum: 1 << 30,
        min: 100,
        max: 1 << 24,
        buckets: (40..120).map(|i| (i, 1000)).collect(),
    };
    UioSeriesReading {
        device: DeviceKey { minor, generation: 0 },
        idev: KernelPtr(u64::from(minor) + 1),
        op,
        first_ns: 1,
        count: 80_000,
        contended: 80_000,
        driver_waits: 0,
        driver_wait_ns: 0,
        spin_ns: 0,
        wake_ns: 0,
        refused: 0,
        errors: BTreeMap::from([(5, 10)]),
        latency: histogram(),
        wait: histogram(),
        hold: histogram(),
    }
}

fn devices(count: u32) -> Vec<UioSeriesReading> {
    (0..count)
        .flat_map(|minor| [reading(minor, UioOp::Write), reading(minor, UioOp::Poll)])
        .collect()
}

fn memory(name: &str, fill: impl FnOnce(&mut Model)) {
    let before = IN_USE.load(Ordering::Relaxed);
    let mut model = Model::new(Config {
        start_ns: Some(0),
        ..Config::default()
    });
    fill(&mut model);
    let used = IN_USE.load(Ordering::Relaxed) - before;
    let begin = Instant::now();
    let snapshot = model.snapshot(Scope::SinceStart);
    let took = begin.elapsed();
    println!(
        "memory {name:<39} {:>7.2} MiB, snapshot {took:>9.2?}",
        used as f64 / f64::from(1 << 20)
    );
    black_box(snapshot);
}

/// Writing events to a recording and reading them again, in memory.
fn recording(what: &str, events: &[Event]) {
    let meta = serde_json::from_value(serde_json::json!({
        "schema_version": 1, "tool": "t", "host": "h", "kernel": "k", "boot_id": "b",
        "started": "2026-11-30T12:00:00.000Z", "started_ns": 0, "probes": [], "rcu": {}
    }))
    .expect("meta");
    let (mut writing, mut reading, mut bytes) = (Duration::MAX, Duration::MAX, Vec::new());
    for _ in 0..3 {
        let begin = Instant::now();
        let mut writer = Writer::new(Vec::new(), &meta).expect("a writer");
        events
            .iter()
            .for_each(|event| writer.event(event).expect("an event"));
        bytes = writer.end().expect("an end");
        writing = writing.min(begin.elapsed());
        let begin = Instant::now();
        let reader = Reader::new(bytes.as_slice()).expect("a recording");
        let read = reader
            .filter(|record| matches!(record, Ok(Record::Event(_))))
            .count();
        assert_eq!(read, events.len());
        reading = reading.min(begin.elapsed());
    }
    let each = |time: Duration| time.as_nanos() as f64 / events.len() as f64;
    println!(
        "recording, {what}: {:.0} ns to write, {:.0} ns to read, {:.1} bytes per event",
        each(writing),
        each(reading),
        bytes.len() as f64 / events.len() as f64
    );
}

fn main() {
    rates("exits, 4 contexts each", &lifecycle(20_000, 4));
    rates("exits, 64 contexts each", &lifecycle(1_500, 64));
    rates("refs of 20 owners", &other_refs(300_000));
    recording("exits, 4 contexts each", &lifecycle(5_000, 4));
    recording("refs of 20 owners", &other_refs(100_000));
    let reading = |n: u64| Event {
        ts_ns: n,
        kind: EventKind::UioReading(devices(1000)),
    };
    recording("1,000 devices, a reading", &[reading(1)]);
    let events = lifecycle(10_000, 4);
    memory("10,000 processes drained", |m| {
        events.iter().cloned().for_each(|e| m.apply(e))
    });
    drop(events);
    let mut open: Vec<Event> = Vec::new();
    (0..10_000).for_each(|p| exit(p + 1, 1, 1_000_000_000, &mut open));
    open.retain(|e| e.ts_ns < 1_010_000_000);
    memory("10,000 processes draining", |m| {
        open.iter().cloned().for_each(|e| m.apply(e))
    });
    memory("1,000 devices, two intervals", |m| {
        m.apply(Event {
            ts_ns: 1,
            kind: EventKind::UioReading(devices(1000)),
        });
        m.begin_interval(2);
        m.apply(Event {
            ts_ns: 3,
            kind: EventKind::UioReading(devices(1000)),
        });
    });
}
