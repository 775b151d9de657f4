//! The what-if against a small simulation: a closed loop of threads on a few CPUs, with the lock and without it.
//!
//! The figures of the run with the lock go through the model as a trace's would; the gain of the other run must lie in the
//! range the model projects.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test")]

#[path = "whatif/simulation.rs"]
mod simulation;
#[path = "whatif/told.rs"]
mod told;

use simulation::Work;
use told::{SAMPLES, SLOWER, Told, histogram, what_if};
use uio_trace::event::{ThreadTime, UioOp};
use uio_trace::model::snapshot::{UioLock, WhatIfVerdict};

/// Four threads, each on a CPU of its own, that hold the lock for 200 us, most of it asleep, and do little else.
fn four_threads() -> Work {
    Work {
        threads: 4,
        cpus: 4,
        think_ns: 2_000,
        entry_ns: 1_000,
        hold_ns: 200_000,
        sleeps: true,
    }
}

/// The gain lies in the bounds, whatever the verdict; a range is narrow; with a CPU for each thread there always is one.
#[test]
fn the_simulated_gain_lies_in_the_projected_range() {
    let mut table = String::from("threads CPUs hold      think   gain  low..high verdict reason\n");
    let (mut failures, mut ranges) = (0, 0);
    for (hold_ns, sleeps) in [
        (300, false),
        (20_000, true),
        (20_000, false),
        (200_000, true),
        (200_000, false),
    ] {
        for think_ns in [2_000, 50_000, 400_000] {
            for (threads, cpus) in [
                (1, 2),
                (2, 2),
                (2, 4),
                (4, 2),
                (4, 4),
                (8, 1),
                (8, 2),
                (8, 4),
                (8, 8),
                (3, 4),
            ] {
                let work = Work {
                    threads,
                    cpus,
                    think_ns,
                    entry_ns: 1_000,
                    hold_ns,
                    sleeps,
                };
                let with = simulation::run(&work, true);
                let gain = simulation::run(&work, false).latency.len() as f64 / with.latency.len() as f64;
                let said = what_if(&with, cpus as u32);
                // So short a run is 1 % off.
                let inside = said.low.is_none_or(|low| low <= gain * 1.01)
                    && said.high.is_none_or(|high| gain <= high);
                let range = said.verdict == WhatIfVerdict::Range;
                let narrow = !range || said.high.unwrap() / said.low.unwrap() <= 1.5;
                let useful = range || gain < 1.1 || threads > cpus;
                let right = inside && narrow && useful;
                ranges += u32::from(range);
                failures += u32::from(!right);
                table.push_str(&format!(
                    "{threads:7} {cpus:4} {:>6} {} {:>6}  {gain:5.2}  {:5.2}..{:5.2} {:?} {}{}\n",
                    hold_ns as f64 / 1000.0,
                    if sleeps { "sl" } else { "sp" },
                    think_ns / 1000,
                    said.low.unwrap_or(f64::NAN),
                    said.high.unwrap_or(f64::NAN),
                    said.verdict,
                    said.reason.as_deref().unwrap_or(""),
                    if right { "" } else { "  <== WRONG" },
                ));
            }
        }
    }
    println!("{table}{ranges} ranges");
    assert_eq!(failures, 0, "{table}");
}

/// Every thread on the one CPU the holder is on: nothing is promised.
#[test]
fn one_cpu_promises_nothing() {
    let work = Work {
        threads: 8,
        cpus: 1,
        sleeps: false,
        ..four_threads()
    };
    // Of a host with more CPUs, too: the threads are pinned.
    for cpus in [1, 4] {
        let said = what_if(&simulation::run(&work, true), cpus);
        assert_eq!(said.low.filter(|low| *low > 1.0), None, "{said:?}");
    }
}

/// The same figures with something that forbids a projection.
#[test]
fn what_forbids_a_projection_is_named() {
    let work = four_threads();
    let run = simulation::run(&work, true);
    assert_eq!(what_if(&run, 4).verdict, WhatIfVerdict::Range);
    let told = |change: &dyn Fn(&mut Told)| {
        let mut told = Told::of(&run, 4);
        change(&mut told);
        told.what_if()
    };
    let reason = |change: &dyn Fn(&mut Told)| {
        let said = told(change);
        assert_ne!(said.verdict, WhatIfVerdict::Range, "{said:?}");
        said.reason.unwrap()
    };
    assert_eq!(reason(&|t| t.lock = UioLock::PercpuRef), "no_lock");
    assert_eq!(reason(&|t| t.reading.count = 99), "few_ops");
    assert_eq!(reason(&|t| t.duration_ns = 1_000_000), "short_time");
    assert_eq!(reason(&|t| t.lost = 1_000_000), "losses");
    assert_eq!(
        reason(&|t| t.reading.driver_wait_ns = 1_000_000_000),
        "driver_lock"
    );
    assert_eq!(reason(&|t| t.reading.contended = 12), "few_waits");
    let one_cpu = |t: &mut Told| {
        t.cpus = Some(1);
        t.times.clear();
    };
    assert_eq!(reason(&one_cpu), "one_cpu");
    assert_eq!(reason(&|t| t.cpus = None), "cpus_unknown");
    let unknown_cpu_time = |t: &mut Told| {
        t.cpus = Some(2);
        t.times.clear();
    };
    assert_eq!(reason(&unknown_cpu_time), "on_cpu_unknown");
    let same = |t: &mut Told, tenths: u64| {
        t.blockers
            .iter_mut()
            .for_each(|b| b.same_cpu = b.count * tenths / 10)
    };
    let unknown_and_same = |t: &mut Told, tenths: u64| {
        t.times.clear();
        same(t, tenths);
    };
    assert_eq!(reason(&|t| unknown_and_same(t, 9)), "one_cpu");
    assert_eq!(reason(&|t| unknown_and_same(t, 4)), "shared_cpus");
    // Holders that sleep leave the one CPU to the others.
    assert_eq!(told(&|t| same(t, 9)).verdict, WhatIfVerdict::Range);
    assert_eq!(reason(&|t| t.blockers.clear()), "threads_unknown");
    let other = |t: &mut Told| {
        t.blockers
            .iter_mut()
            .for_each(|b| b.holder_op = Some(UioOp::Poll))
    };
    assert_eq!(reason(&other), "other_ops");
    let unlike = |t: &mut Told| t.reading.hold = histogram(&[vec![1_000; 400], vec![400_000; 600]].concat());
    assert_eq!(reason(&unlike), "unlike_calls");
    // The load paused for as long again: its gain while it runs stays.
    let paused = told(&|t| t.paused = true);
    let steady = told(&|_| {});
    assert_eq!(paused.verdict, WhatIfVerdict::Range);
    assert!(
        (paused.low.unwrap() - steady.low.unwrap()).abs() < 0.1 * steady.low.unwrap(),
        "{paused:?}"
    );
    // Little of each is no reason.
    assert_eq!(told(&|t| t.lost = 1).verdict, WhatIfVerdict::Range);
    // Samples that found no room are no operations.
    assert_eq!(told(&|t| t.ring_lost = 1_000_000).verdict, WhatIfVerdict::Range);
    assert_eq!(
        told(&|t| t.reading.driver_wait_ns = 1_000_000).verdict,
        WhatIfVerdict::Range
    );
    assert_eq!(told(&|t| same(t, 1)).verdict, WhatIfVerdict::Range);
}

/// Threads that hand a lock on from sleeper to sleeper spend time on waking each other, which goes with the lock: by hand, two threads
/// that do nothing else, each with 100 us under the lock and 40 us of waking, take turns all 140 us. Without the lock both do
/// an operation in 100 us: 2.8 times as many.
#[test]
fn waking_the_next_waiter_goes_with_the_lock() {
    const OPS: u64 = 10_000;
    let (hold_us, wake_us) = (100, 40);
    let turn_us = hold_us + wake_us;
    let work = Work {
        threads: 2,
        cpus: 4,
        think_ns: 0,
        entry_ns: 0,
        hold_ns: 100_000,
        sleeps: true,
    };
    let mut told = Told::of(&simulation::run(&work, true), 4);
    told.duration_ns = OPS * turn_us * 1_000 * SLOWER;
    // From an operation's entry to its end: the other one's hold and waking, then its own.
    let values = |us: u64| histogram(&vec![us * 1_000; OPS as usize]);
    (told.reading.count, told.reading.contended) = (OPS, OPS);
    told.reading.latency = values(2 * turn_us);
    told.reading.wait = values(turn_us);
    told.reading.hold = values(hold_us);
    told.reading.wake_ns = OPS * wake_us * 1_000 * SLOWER;
    for blocker in &mut told.blockers {
        (blocker.count, blocker.same_cpu) = (OPS / 2, 0);
        blocker.wait_ns = OPS / 2 * turn_us * 1_000 * SLOWER;
    }
    told.times.clear();
    let said = told.what_if();
    let gain = 2.0 * turn_us as f64 / hold_us as f64;
    assert_eq!(said.verdict, WhatIfVerdict::Range, "{said:?}");
    assert!(
        said.low.unwrap() <= gain && gain <= said.high.unwrap(),
        "{said:?}"
    );
    // Were it not known, the same figures would promise less.
    told.reading.wake_ns = 0;
    let said = told.what_if();
    assert!(said.high.unwrap() < gain, "{said:?}");
}

/// The threads' CPUs are all there is, and others have them: a lock less gives nobody a CPU.
#[test]
fn busy_cpus_are_not_given_away() {
    let work = Work {
        sleeps: false,
        ..four_threads()
    };
    let mut told = Told::of(&simulation::run(&work, true), 4);
    let idle = |told: &mut Told, cpus: f64| {
        told.times.retain(|time| time.tgid != 0);
        told.times.push(ThreadTime {
            tgid: 0,
            tid: 0,
            cpu_ns: (told.duration_ns as f64 * cpus) as u64,
            runqueue_ns: 0,
        });
    };
    let used: u64 = told.times.iter().map(|time| time.cpu_ns).sum();
    let used = used as f64 / told.duration_ns as f64;
    let free = told.what_if();
    assert!(used < 3.5 && free.high.unwrap() > 3.0, "{used} {free:?}");
    // Nobody else uses a CPU: nothing changes.
    idle(&mut told, 4.0 - used);
    let alone = told.what_if();
    assert_eq!((alone.low, alone.high), (free.low, free.high));
    // Some others, but there are idle CPUs.
    idle(&mut told, 0.5);
    assert_eq!(told.what_if().low, free.low);
    // One thread's work is done at a time, and fills what CPU the threads have.
    idle(&mut told, 0.0);
    let said = told.what_if();
    assert_eq!(said.reason.as_deref(), Some("cpus_busy"), "{said:?}");
    assert_eq!(said.verdict, WhatIfVerdict::NothingToGain, "{said:?}");
    assert!(said.text.contains("no CPU is idle"), "{said:?}");
    // Behind which kind of operation they wait does not matter then.
    for blocker in told.blockers.iter_mut().take(2) {
        blocker.holder_op = Some(UioOp::Poll);
    }
    let said = told.what_if();
    assert_eq!(said.verdict, WhatIfVerdict::Refused);
    assert!(said.text.contains("no CPU is idle"), "{said:?}");
}

/// Processes that end and are replaced by others: never more than four threads at once. Over the whole time each has but a small
/// part of the waits, and what is gained is what four threads gain.
#[test]
fn threads_that_are_replaced_are_no_more_threads() {
    let work = four_threads();
    let run = simulation::run(&work, true);
    let told = Told::of(&run, 4);
    let gain = simulation::run(&work, false).latency.len() as f64 / run.latency.len() as f64;
    let steady = told.what_if();
    assert_eq!(steady.verdict, WhatIfVerdict::Range, "{steady:?}");
    // The same waits, behind as many generations of four as there are readings, or behind many more of them.
    for generations in [SAMPLES, 10 * SAMPLES] {
        let mut replaced = told.clone();
        replaced.generations = Some(generations);
        replaced.times.clear();
        let said = replaced.what_if();
        let (low, high) = (said.low.unwrap(), said.high.unwrap());
        assert!(low <= gain && gain <= high, "{generations}: {gain} {said:?}");
        // Told apart where a reading sees each generation by itself.
        let verdict = if generations == SAMPLES {
            WhatIfVerdict::Range
        } else {
            WhatIfVerdict::TooWide
        };
        assert_eq!(said.verdict, verdict, "{said:?}");
    }
}

/// Long waits, but so few that hardly a thread waits at a time, are worth little whoever waits behind whom; unless the load
/// paused, and all of them came in a short time.
#[test]
fn rare_waits_are_worth_nothing() {
    let work = Work {
        think_ns: 5_000_000,
        hold_ns: 20_000,
        ..four_threads()
    };
    let mut told = Told::of(&simulation::run(&work, true), 4);
    // 60 ms of each second somebody waits.
    const WAITS: u64 = 40;
    let long = told.duration_ns * 6 / 100 / WAITS / SLOWER;
    let short = vec![21_000; told.reading.count as usize];
    told.reading.count += WAITS;
    told.reading.contended = WAITS;
    told.reading.wait = histogram(&[long; WAITS as usize]);
    told.reading.latency = histogram(&[short, vec![21_000 + long; WAITS as usize]].concat());
    let mut blocker = told.blockers[0].clone();
    blocker.count = WAITS / 4;
    blocker.same_cpu = 0;
    blocker.wait_ns = WAITS / 4 * long * SLOWER;
    told.blockers = (0..4)
        .map(|holder| {
            let mut blocker = blocker.clone();
            blocker.holder.tid = holder;
            // Half of the waits are behind another kind of operation.
            if holder < 2 {
                blocker.holder_op = Some(UioOp::Poll);
            }
            blocker
        })
        .collect();
    let said = told.what_if();
    assert_eq!(said.verdict, WhatIfVerdict::NothingToGain, "{said:?}");
    assert!(said.text.contains("0.06 threads"), "{said:?}");
    // Waking the next one is part of what the lock costs.
    let mut waking = told.clone();
    waking.reading.wake_ns = told.duration_ns / 10;
    assert_eq!(waking.what_if().reason.as_deref(), Some("other_ops"));
    told.samples = 0;
    assert_eq!(told.what_if().reason.as_deref(), Some("other_ops"));
    // All behind one thread: without it, whoever waits may have the whole time to gain.
    told.samples = SAMPLES;
    told.blockers.truncate(1);
    assert_eq!(told.what_if().reason.as_deref(), Some("other_ops"));
}

/// Without samples over time a load that thinks may also be one that paused.
#[test]
fn samples_tell_thinking_from_pauses() {
    let work = Work {
        threads: 8,
        cpus: 8,
        think_ns: 50_000,
        hold_ns: 20_000,
        ..four_threads()
    };
    let mut told = Told::of(&simulation::run(&work, true), 8);
    assert_eq!(told.what_if().verdict, WhatIfVerdict::Range);
    told.samples = 0;
    let said = told.what_if();
    assert_eq!(said.verdict, WhatIfVerdict::TooWide, "{said:?}");
    assert_eq!(said.reason.as_deref(), Some("pauses_unknown"));
}

/// A thread that comes by now and then does not make four of them five.
#[test]
fn a_guest_is_no_thread() {
    let work = four_threads();
    let mut told = Told::of(&simulation::run(&work, true), 4);
    let before = told.what_if();
    let mut guest = told.blockers[0].clone();
    guest.holder.tid = 99;
    guest.count = 3;
    told.blockers.push(guest);
    let after = told.what_if();
    assert_eq!((before.threads, after.threads), (Some(4), Some(4)));
    assert!((before.low.unwrap() - after.low.unwrap()).abs() < 0.05);
}
