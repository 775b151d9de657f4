//! How fast the model takes events in, and how much memory it keeps. `cargo bench --bench model`.
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
use uio_trace::model::{Config, Model, Scope};

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
        };
        let switched = |reference, release| EventKind::RefSwitched {
            reference,
            release: KernelPtr(release),
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
        };
        events.push(Event {
            ts_ns: n * 1000,
            kind: kill,
        });
        events.push(Event {
            ts_ns: n * 1000 + 500,
            kind: EventKind::RefSwitched { reference, release },
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

/// Best of a few rounds, events per second.
fn rate(name: &str, events: &[Event]) {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let round = events.to_vec();
        let mut model = Model::new(Config { start_ns: Some(0) });
        let begin = cpu_time();
        round.into_iter().for_each(|e| model.apply(e));
        best = best.min((cpu_time() - begin).as_secs_f64());
        black_box(&model);
    }
    let per_second = events.len() as f64 / best;
    println!(
        "apply {name:<28} {:>7.2} M events/s {:>7.0} ns/event",
        per_second / 1e6,
        1e9 / per_second
    );
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
    let mut model = Model::new(Config { start_ns: Some(0) });
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

fn main() {
    rate("exits, 4 contexts each", &lifecycle(20_000, 4));
    rate("exits, 64 contexts each", &lifecycle(1_500, 64));
    rate("refs of 20 owners", &other_refs(300_000));
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
