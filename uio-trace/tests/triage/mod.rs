//! Twenty seconds of a host in trouble, as events: a TCMU device whose lock becomes the bottleneck after eight seconds,
//! a loop of `io_destroy`, an exit with I/O in flight, cgroups that come and go, one ref that stays, and losses.

// Each test uses a part of it; a mistake in it ends the test.
#![allow(dead_code, clippy::expect_used, clippy::unwrap_used)]

#[path = "../scenario/script.rs"]
pub mod script;

use std::collections::BTreeMap;
use std::path::PathBuf;
use uio_trace::event::*;
use uio_trace::model::snapshot::Meta;
use uio_trace::report::json;
use uio_trace::report::story::{Story, StoryBuilder};
use uio_trace_common::histogram::bucket_index;

/// Length of the trace, ns.
pub const END_NS: u64 = 20_000_000_000;

pub fn meta() -> Meta {
    Meta {
        schema_version: json::SCHEMA_VERSION,
        tool: "uio-trace 0.1.0".to_string(),
        host: "storage-17".to_string(),
        kernel: "6.12.117-amd64".to_string(),
        boot_id: "6ad4b8a8-5f0e-4d8a-9f6d-0d8d4ff5c0de".to_string(),
        started: "2026-11-30T12:00:00.000Z".to_string(),
        started_ns: 0,
        probes: Vec::new(),
        rcu: BTreeMap::from([
            ("CONFIG_RCU_LAZY".to_string(), "y".to_string()),
            ("rcupdate.rcu_expedited".to_string(), "0".to_string()),
        ]),
    }
}

/// The same numbers on every run.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Around `middle`, with a tail to the right: a product of four uniform numbers.
    pub fn around(&mut self, middle: u64) -> u64 {
        let factor: f64 = (0..4)
            .map(|_| 0.7 + (self.next() % 1000) as f64 / 1400.0)
            .product();
        (middle as f64 * factor) as u64
    }
}

/// A distribution that grows.
#[derive(Default, Clone)]
pub struct Growing {
    sum: u64,
    min: u64,
    max: u64,
    counts: BTreeMap<u16, u64>,
}

impl Growing {
    pub fn add(&mut self, ns: u64, times: u64) {
        self.min = if self.counts.is_empty() {
            ns
        } else {
            self.min.min(ns)
        };
        self.max = self.max.max(ns);
        self.sum += ns * times;
        *self.counts.entry(bucket_index(ns) as u16).or_default() += times;
    }

    pub fn reading(&self) -> HistogramReading {
        HistogramReading {
            sum: self.sum,
            min: self.min,
            max: self.max,
            buckets: self.counts.iter().map(|(i, n)| (*i, *n)).collect(),
        }
    }
}

/// A writer's device: its readings every 250 ms. `slow_from`: since then four threads write instead of one.
fn writes(minor: u32, hold_ns: u64, slow_from: u64, numbers: &mut Numbers) -> Vec<Event> {
    let (mut latency, mut wait, mut hold) = (Growing::default(), Growing::default(), Growing::default());
    let (mut count, mut contended) = (0, 0);
    let mut events = Vec::new();
    let step = 250_000_000;
    for ts_ns in (step..=END_NS).step_by(step as usize) {
        let busy = ts_ns > slow_from;
        let share = if busy { 0.97 } else { 0.3 };
        let writes = (step as f64 * share / hold_ns as f64) as u64;
        // Ten values stand for all the writes of the stretch.
        for _ in 0..10 {
            let held = numbers.around(hold_ns);
            let waited = if busy { numbers.around(3 * hold_ns) } else { 0 };
            hold.add(held, writes / 10);
            latency.add(held + waited, writes / 10);
            if busy {
                wait.add(waited, writes / 10);
                contended += writes / 10;
            }
            count += writes / 10;
        }
        let reading = UioSeriesReading {
            device: DeviceKey { minor, generation: 0 },
            idev: KernelPtr(0xffff_8881_0000_0000),
            op: UioOp::Write,
            first_ns: 1,
            count,
            contended,
            driver_waits: 0,
            driver_wait_ns: 0,
            spin_ns: 0,
            wake_ns: 0,
            refused: 0,
            errors: BTreeMap::new(),
            latency: latency.reading(),
            wait: wait.reading(),
            hold: hold.reading(),
        };
        events.push(Event {
            ts_ns,
            kind: EventKind::UioReading(vec![reading]),
        });
        let lost = if ts_ns > 15_000_000_000 && minor == 0 {
            3
        } else {
            0
        };
        events.push(Event {
            ts_ns,
            kind: EventKind::Counters(BTreeMap::from([
                ("uio_seen".to_string(), count),
                ("uio_aggregated".to_string(), count),
                ("lifecycle_seen".to_string(), 100 + lost),
                ("lifecycle_submitted".to_string(), 100),
                ("decoded".to_string(), 100),
                ("lifecycle_ring".to_string(), lost),
            ])),
        });
    }
    events
}

const SCRIPT: &str = "
0ms     probes uio:uio_write uio:uio_read aio:kill_ioctx aio:free_ioctx_users aio:free_ioctx_reqs percpu_ref:percpu_ref_switch_to_atomic_rcu percpu_ref:percpu_ref_kill_and_confirm percpu_ref:css_release lock:contention_begin/end uio:name_show!
0ms     presence present
0ms     devices 0:tcm-user/0/disk0 1:igb_uio
3000ms  destroy_begin postgres/4242/4250 ctx=1
3000ms  drains postgres/4242/4250 mm=5 ctx=1 gp1=27ms refs=1ms gp2=30ms io=24ms wait=1
3083ms  destroy_end postgres/4242/4250
3090ms  destroy_begin postgres/4242/4250 ctx=2
3090ms  drains postgres/4242/4250 mm=5 ctx=2 gp1=31ms refs=1ms gp2=25ms io=37ms wait=1
3185ms  destroy_end postgres/4242/4250
3190ms  destroy_begin postgres/4242/4250 ctx=3
3190ms  drains postgres/4242/4250 mm=5 ctx=3 gp1=29ms refs=6ms gp2=24ms io=48ms wait=1
3298ms  destroy_end postgres/4242/4250
3300ms  destroy_begin postgres/4242/4250 ctx=4
3300ms  drains postgres/4242/4250 mm=5 ctx=4 gp1=33ms refs=5ms gp2=32ms io=50ms wait=1
3421ms  destroy_end postgres/4242/4250
9000ms  exit_begin fio/1234 mm=6
9001ms  drains fio/1234 mm=6 ctx=11..74 step=40us gp1=22ms refs=2ms gp2=19ms io=610ms wait=9
9660ms  exit_end fio/1234 mm=6
12000ms exit_begin mysqld/3307 mm=7
12001ms drains mysqld/3307 mm=7 ctx=81..84 step=300us gp1=61ms refs=0ms gp2=58ms io=3ms wait=8
12125ms exit_end mysqld/3307 mm=7
13000ms ref_kill rmdir/5 ref=1 release=css_release
13015ms ref_switched ref=1 release=css_release
8500ms  slow tcmu/50/51 minor=0 op=write latency=2000us wait=1800us hold=200us holder=tcmu:50:52
8501ms  slow tcmu/50/52 minor=0 op=write latency=1900us wait=1700us hold=200us holder=tcmu:50:51
9000ms  slow monitor/60 minor=0 op=mmap latency=1500us wait=1400us hold=100us holder=tcmu:50:52
9000ms  slow tcmu/50/53 minor=0 op=write latency=1400us wait=1200us hold=200us holder=tcmu:50:51
20s     tick
";

/// Cgroups, one every 400 ms; their grace periods get longer.
fn cgroups() -> String {
    let mut text = String::new();
    for i in 0..45u64 {
        let (kill, gp) = (500 + i * 400, 8 + i / 2);
        text.push_str(&format!(
            "{kill}ms ref_kill systemd/1 ref={} release=css_release\n",
            100 + i
        ));
        text.push_str(&format!(
            "{}ms ref_switched ref={} release=css_release\n",
            kill + gp,
            100 + i
        ));
        text.push_str(&format!(
            "{}ms ref_released ref={} release=css_release\n",
            kill + gp + 3,
            100 + i
        ));
    }
    text
}

/// The events, by time.
pub fn events() -> Vec<Event> {
    with(SCRIPT)
}

/// The same without the device's trouble, and with `io_destroy` no longer one after another.
pub fn mended_events() -> Vec<Event> {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let keep = |line: &&str| !line.contains("postgres") && !line.contains(" slow ");
    let script: Vec<&str> = SCRIPT.lines().filter(keep).collect();
    collect(
        &script.join("\n"),
        writes(0, 200_000, u64::MAX, &mut numbers),
        &mut numbers,
    )
}

fn with(text: &str) -> Vec<Event> {
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    collect(
        text,
        writes(0, 200_000, 8_000_000_000, &mut numbers),
        &mut numbers,
    )
}

fn collect(text: &str, device: Vec<Event>, numbers: &mut Numbers) -> Vec<Event> {
    let mut events = script::Script::default().read(&format!("{text}\n{}", cgroups()), true);
    events.extend(device);
    // The readings of the second device only: counters are those of all.
    let other = writes(1, 40_000, u64::MAX, numbers);
    events.extend(
        other
            .into_iter()
            .filter(|e| matches!(e.kind, EventKind::UioReading(_))),
    );
    // The counters of a moment follow its readings.
    events.sort_by_key(|e| {
        (
            e.ts_ns,
            matches!(e.kind, EventKind::Counters(_) | EventKind::Tick),
        )
    });
    events
}

pub fn tell(meta: Meta, events: Vec<Event>, end_ns: u64) -> Story {
    let mut builder = StoryBuilder::new(meta);
    events.into_iter().for_each(|e| builder.apply(e));
    builder.finish(end_ns, Vec::new(), |_| {})
}

pub fn story() -> Story {
    tell(meta(), events(), END_NS)
}

/// A trace in which nothing happened.
pub fn idle() -> Story {
    let absent = Event {
        ts_ns: 0,
        kind: EventKind::UioPresence(UioPresence::Absent),
    };
    tell(meta(), vec![absent], 10_000_000_000)
}

/// What markup, terminals and formats could trip over.
pub const HOSTILE: &str = "</title><script>alert(1)</script>\"'&;\u{1b}[2J\u{202e}\n\u{0}<!--";

/// [`events`] with every name replaced by [`HOSTILE`].
pub fn hostile() -> Story {
    let mut story = tell(hostile_meta(), hostile_events(), END_NS);
    story.remarks.push(HOSTILE.to_string());
    story
}

/// The events of [`hostile`].
pub fn hostile_events() -> Vec<Event> {
    let mut all = events();
    let nasty = || HOSTILE.to_string();
    for event in &mut all {
        match &mut event.kind {
            EventKind::RefKill { by, .. }
            | EventKind::ExitAioBegin { by, .. }
            | EventKind::ExitAioEnd { by, .. }
            | EventKind::IoDestroyBegin { by, .. }
            | EventKind::IoDestroyEnd { by, .. }
            | EventKind::AioKill { by, .. } => by.comm = nasty(),
            EventKind::UioSlow(slow) => {
                slow.by.comm = nasty();
                if let Some(holder) = &mut slow.holder {
                    holder.comm = nasty();
                }
            }
            EventKind::Symbol { name, module, .. } => {
                *name = nasty();
                *module = Some(nasty());
            }
            EventKind::UioDevices(devices) => {
                for device in devices {
                    device.name = Some(nasty());
                    device.version = Some(nasty());
                    device.driver = Some(nasty());
                    device.parent = Some(nasty());
                }
            }
            EventKind::UioOpen(open) => open.openers.iter_mut().for_each(|o| o.comm = nasty()),
            EventKind::Probes(probes) => {
                for probe in probes {
                    probe.reason = Some(nasty());
                    probe.gives = nasty();
                }
            }
            _ => {}
        }
    }
    all
}

/// [`meta`] with every name replaced by [`HOSTILE`].
pub fn hostile_meta() -> Meta {
    let nasty = || HOSTILE.to_string();
    Meta {
        tool: nasty(),
        host: nasty(),
        kernel: nasty(),
        started: nasty(),
        rcu: BTreeMap::from([(nasty(), nasty())]),
        ..meta()
    }
}

/// Where a test leaves what a person may want to look at.
pub fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}
