//! What a model is told of a simulated run, as a trace would tell it, and what it says of it.

use crate::simulation::Run;
use std::collections::BTreeMap;
use uio_trace::event::*;
use uio_trace::model::snapshot::{CONTENTION_HOOK, Probe, ProbeState, UioLock, WhatIf};
use uio_trace::model::{Config, Model, Scope};
use uio_trace_common::histogram::bucket_index;

/// Simulated time is told ten times as long, so that there are samples over time.
pub const SLOWER: u64 = 10;
/// Samples of a run.
pub const SAMPLES: u64 = 6;

/// Of these durations, told as the others.
pub fn histogram(values: &[u64]) -> HistogramReading {
    let values: Vec<u64> = values.iter().map(|v| v * SLOWER).collect();
    let mut buckets = BTreeMap::new();
    for v in &values {
        *buckets.entry(bucket_index(*v) as u16).or_insert(0) += 1;
    }
    HistogramReading {
        sum: values.iter().sum(),
        min: values.iter().min().copied().unwrap_or(0),
        max: values.iter().max().copied().unwrap_or(0),
        buckets: buckets.into_iter().collect(),
    }
}

const DEVICE: DeviceKey = DeviceKey {
    minor: 0,
    generation: 0,
};

/// What a model is told.
#[derive(Clone)]
pub struct Told {
    pub lock: UioLock,
    pub reading: UioSeriesReading,
    pub blockers: Vec<UioBlockerReading>,
    pub times: Vec<ThreadTime>,
    /// A probe tells spinning from sleeping; nobody spins here.
    pub sees_spinning: bool,
    pub cpus: Option<u32>,
    pub lost: u64,
    pub ring_lost: u64,
    pub duration_ns: u64,
    /// Nothing happens for as long again.
    pub paused: bool,
    /// Readings over time, not only one at the end.
    pub samples: u64,
    /// So many generations of threads, one after the other, with equal parts of the waits.
    pub generations: Option<u64>,
}

impl Told {
    /// Of a run on so many CPUs.
    pub fn of(run: &Run, cpus: u32) -> Told {
        let reading = UioSeriesReading {
            device: DEVICE,
            idev: KernelPtr(1),
            op: UioOp::Write,
            first_ns: 0,
            count: run.latency.len() as u64,
            contended: run.wait.len() as u64,
            driver_waits: 0,
            driver_wait_ns: 0,
            spin_ns: 0,
            wake_ns: 0,
            refused: 0,
            errors: BTreeMap::new(),
            latency: histogram(&run.latency),
            wait: histogram(&run.wait),
            hold: histogram(&run.hold),
        };
        let blockers = run.behind.iter().map(|(thread, waits)| UioBlockerReading {
            device: DEVICE,
            waiter_op: UioOp::Write,
            holder_op: Some(UioOp::Write),
            holder: Task {
                tgid: 50,
                tid: *thread as u32 + 50,
                comm: "w".into(),
            },
            count: waits.count,
            wait_ns: waits.wait_ns * SLOWER,
            same_cpu: waits.same_cpu,
        });
        let times = run
            .cpu
            .iter()
            .enumerate()
            .map(|(thread, (cpu, runqueue))| ThreadTime {
                tgid: 50,
                tid: thread as u32 + 50,
                cpu_ns: cpu * SLOWER,
                runqueue_ns: runqueue * SLOWER,
            });
        Told {
            times: times.collect(),
            sees_spinning: true,
            lock: UioLock::Mutex,
            reading,
            blockers: blockers.collect(),
            cpus: Some(cpus),
            lost: 0,
            ring_lost: 0,
            paused: false,
            samples: SAMPLES,
            generations: None,
            duration_ns: run.duration_ns * SLOWER,
        }
    }

    /// What is read of the holders after so many samples.
    fn generations_until(&self, parts: u64) -> Vec<UioBlockerReading> {
        let generations = self.generations.unwrap_or(0);
        let until = generations * parts / SAMPLES;
        let of = |generation: u64| {
            self.blockers.iter().map(move |blocker| {
                let mut blocker = blocker.clone();
                blocker.holder.tid += 1_000 * generation as u32;
                blocker.count /= generations;
                blocker.wait_ns /= generations;
                blocker.same_cpu /= generations;
                blocker
            })
        };
        (0..until).flat_map(of).collect()
    }

    /// What the model says.
    pub fn what_if(&self) -> WhatIf {
        let mut model = Model::new(Config {
            start_ns: Some(0),
            cpus: self.cpus,
        });
        let contention = Probe {
            subject: "lock".into(),
            hook: CONTENTION_HOOK.into(),
            state: ProbeState::Attached,
            method: Some("tp_btf".into()),
            reason: None,
            gives: String::new(),
            required: false,
            cost: None,
            late_cpus: Vec::new(),
        };
        if self.sees_spinning {
            model.apply(Event {
                ts_ns: 0,
                kind: EventKind::Probes(vec![contention]),
            });
        }
        let counters = [
            ("uio_seen".to_owned(), self.reading.count),
            ("uio_aggregated".to_owned(), self.reading.count),
            ("exit_missed".to_owned(), self.lost),
            ("slow_ring".to_owned(), self.ring_lost),
        ];
        let part = |times: &HistogramReading, parts: u64| HistogramReading {
            sum: times.sum / SAMPLES * parts,
            ..times.clone()
        };
        // As a trace tells it: a sample now and then, and at the end all of it.
        for parts in 1..self.samples {
            let reading = UioSeriesReading {
                wait: part(&self.reading.wait, parts),
                hold: part(&self.reading.hold, parts),
                ..self.reading.clone()
            };
            let part = |ns: u64| ns / SAMPLES * parts;
            let times = self.times.iter().map(|time| ThreadTime {
                cpu_ns: part(time.cpu_ns),
                runqueue_ns: part(time.runqueue_ns),
                ..*time
            });
            for kind in [
                EventKind::UioReading(vec![reading]),
                EventKind::ThreadTimes(times.collect()),
                EventKind::UioBlockers(self.generations_until(parts)),
                EventKind::Tick,
            ] {
                let ts_ns = self.duration_ns / SAMPLES * parts;
                model.apply(Event { ts_ns, kind });
            }
        }
        for kind in [
            EventKind::UioLockKind(self.lock),
            EventKind::UioReading(vec![self.reading.clone()]),
            EventKind::UioBlockers(match self.generations {
                Some(_) => self.generations_until(SAMPLES),
                None => self.blockers.clone(),
            }),
            EventKind::ThreadTimes(self.times.clone()),
            EventKind::Counters(counters.into()),
            EventKind::Tick,
        ] {
            model.apply(Event {
                ts_ns: self.duration_ns,
                kind,
            });
        }
        if self.paused {
            for parts in 1..=SAMPLES {
                let ts_ns = self.duration_ns + self.duration_ns / SAMPLES * parts;
                for kind in [EventKind::UioReading(vec![self.reading.clone()]), EventKind::Tick] {
                    model.apply(Event { ts_ns, kind });
                }
            }
        }
        model.snapshot(Scope::SinceStart).uio_devices[0].what_if.clone()
    }
}

/// What the model says of a run.
pub fn what_if(run: &Run, cpus: u32) -> WhatIf {
    Told::of(run, cpus).what_if()
}
