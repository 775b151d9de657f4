//! What a recording that begins in the middle of a trace must be told first, and from what its absolute figures count.
//!
//! Symbols, devices, probes and the like are told once in a trace; histograms and losses count from its begin. So that
//! each file is whole by itself, [`Known`] gathers them, tells them anew ([`Known::tell`]), and takes from later readings
//! what was counted before ([`Known::since`]).

use crate::{
    event::{
        DeviceKey, Event, EventKind, HistogramReading, KernelPtr, MonotonicNs, UioBlockerReading,
        UioDeviceInfo, UioOp, UioOpen, UioPresence, UioSeriesReading,
    },
    model::{
        histogram::from_reading,
        limits::{MAX_BLOCKERS, MAX_KILL_STACKS, MAX_SYMBOLS, MAX_UIO_SERIES},
        snapshot::{Probe, UioLock},
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// Waiter's operation, holder's operation, holder's process and thread, of a device.
type BlockerKey = (DeviceKey, UioOp, Option<UioOp>, u32, u32);

fn key_of(reading: &UioBlockerReading) -> BlockerKey {
    let UioBlockerReading {
        device,
        waiter_op,
        holder_op,
        holder,
        ..
    } = reading;
    (*device, *waiter_op, *holder_op, holder.tgid, holder.tid)
}

/// The state of a trace at a moment, as far as events tell it only once or absolutely.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known {
    symbols: BTreeMap<KernelPtr, (String, Option<String>)>,
    stacks: BTreeMap<u32, Vec<String>>,
    readings: BTreeMap<(DeviceKey, UioOp), UioSeriesReading>,
    blockers: BTreeMap<BlockerKey, UioBlockerReading>,
    gone: BTreeSet<DeviceKey>,
    devices: Option<Vec<UioDeviceInfo>>,
    open: Option<UioOpen>,
    presence: Option<UioPresence>,
    lock: Option<UioLock>,
    counters: BTreeMap<String, u64>,
    probes: Option<Vec<Probe>>,
}

impl Known {
    /// Takes an event in.
    pub fn learn(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Symbol { addr, name, module } if self.symbols.len() < MAX_SYMBOLS => {
                self.symbols.insert(*addr, (name.clone(), module.clone()));
            }
            EventKind::KillStack { id, frames } if self.stacks.len() < MAX_KILL_STACKS => {
                self.stacks.insert(*id, frames.clone());
            }
            EventKind::UioReading(readings) => {
                for reading in readings {
                    let key = (reading.device, reading.op);
                    if self.readings.len() < MAX_UIO_SERIES || self.readings.contains_key(&key) {
                        self.readings.insert(key, reading.clone());
                    }
                }
            }
            EventKind::UioBlockers(readings) => {
                for reading in readings {
                    let key = key_of(reading);
                    if self.blockers.len() < MAX_BLOCKERS || self.blockers.contains_key(&key) {
                        self.blockers.insert(key, reading.clone());
                    }
                }
            }
            EventKind::UioUnregistered { device, .. } if self.gone.len() < MAX_UIO_SERIES => {
                self.gone.insert(*device);
            }
            EventKind::UioDevices(devices) => self.devices = Some(devices.clone()),
            EventKind::UioOpen(open) => self.open = Some(open.clone()),
            EventKind::UioPresence(presence) => self.presence = Some(*presence),
            EventKind::UioLockKind(lock) => self.lock = Some(*lock),
            EventKind::Counters(counters) => self.counters.extend(counters.clone()),
            EventKind::Probes(probes) => self.probes = Some(probes.clone()),
            _ => {}
        }
    }

    /// Takes an event in and gives it back without series that did not change: readers keep what they were told.
    pub fn news(&mut self, mut event: Event) -> Event {
        match &mut event.kind {
            EventKind::UioReading(readings) => {
                readings.retain(|reading| self.readings.get(&(reading.device, reading.op)) != Some(reading));
            }
            EventKind::UioBlockers(readings) => {
                readings.retain(|reading| self.blockers.get(&key_of(reading)) != Some(reading));
            }
            _ => {}
        }
        self.learn(&event);
        event
    }

    /// Probes now.
    pub fn probes(&self) -> Option<&Vec<Probe>> {
        self.probes.as_ref()
    }

    /// All of it as events of this time, for a model that knows nothing. Figures are 0: they count from here on.
    pub fn tell(&self, ts_ns: MonotonicNs) -> Vec<Event> {
        let mut kinds = Vec::new();
        kinds.extend(self.probes.clone().map(EventKind::Probes));
        kinds.extend(self.lock.map(EventKind::UioLockKind));
        kinds.extend(self.presence.map(EventKind::UioPresence));
        // Before the devices: which generation of a minor they are is told by the series alone.
        let there = |(device, _): &&(DeviceKey, UioOp)| !self.is_gone(*device);
        let series = self.readings.keys().filter(there);
        let zero =
            |key: &(DeviceKey, UioOp)| difference(&self.readings[key], Some(&self.readings[key]), ts_ns);
        let series: Vec<UioSeriesReading> = series.map(zero).collect();
        if !series.is_empty() {
            kinds.push(EventKind::UioReading(series));
        }
        kinds.extend(self.devices.clone().map(EventKind::UioDevices));
        kinds.extend(self.open.clone().map(EventKind::UioOpen));
        for (id, frames) in &self.stacks {
            kinds.push(EventKind::KillStack {
                id: *id,
                frames: frames.clone(),
            });
        }
        for (addr, (name, module)) in &self.symbols {
            kinds.push(EventKind::Symbol {
                addr: *addr,
                name: name.clone(),
                module: module.clone(),
            });
        }
        kinds.into_iter().map(|kind| Event { ts_ns, kind }).collect()
    }

    /// Unregistered, or another generation of the minor came after it.
    fn is_gone(&self, device: DeviceKey) -> bool {
        let younger = DeviceKey {
            generation: device.generation.saturating_add(1),
            ..device
        };
        let end = DeviceKey {
            generation: u32::MAX,
            ..device
        };
        let later = self
            .readings
            .range((younger, UioOp::Write)..=(end, UioOp::Unregister));
        self.gone.contains(&device) || (younger.generation > device.generation && later.count() > 0)
    }

    /// The event with its absolute figures counted from this state, which is that of `start_ns`.
    pub fn since(&self, mut event: Event, start_ns: MonotonicNs) -> Event {
        match &mut event.kind {
            EventKind::UioReading(readings) => {
                for reading in readings.iter_mut() {
                    let before = self.readings.get(&(reading.device, reading.op));
                    *reading = difference(reading, before, start_ns);
                }
                readings.retain(|reading| reading.count > 0);
            }
            EventKind::UioBlockers(readings) => {
                for reading in readings.iter_mut() {
                    if let Some(before) = self.blockers.get(&key_of(reading)) {
                        reading.count = reading.count.saturating_sub(before.count);
                        reading.wait_ns = reading.wait_ns.saturating_sub(before.wait_ns);
                        reading.same_cpu = reading.same_cpu.saturating_sub(before.same_cpu);
                    }
                }
                readings.retain(|reading| reading.count > 0);
            }
            EventKind::Counters(counters) => {
                for (name, count) in counters {
                    *count = count.saturating_sub(self.counters.get(name).copied().unwrap_or(0));
                }
            }
            _ => {}
        }
        event
    }
}

/// What came into a series since `before`.
fn difference(
    now: &UioSeriesReading,
    before: Option<&UioSeriesReading>,
    start_ns: MonotonicNs,
) -> UioSeriesReading {
    let Some(before) = before else {
        return now.clone();
    };
    let errors = now.errors.iter().map(|(&code, &count)| {
        let earlier = before.errors.get(&code).copied().unwrap_or(0);
        (code, count.saturating_sub(earlier))
    });
    UioSeriesReading {
        device: now.device,
        idev: now.idev,
        op: now.op,
        first_ns: now.first_ns.max(start_ns),
        count: now.count.saturating_sub(before.count),
        contended: now.contended.saturating_sub(before.contended),
        driver_waits: now.driver_waits.saturating_sub(before.driver_waits),
        driver_wait_ns: now.driver_wait_ns.saturating_sub(before.driver_wait_ns),
        spin_ns: now.spin_ns.saturating_sub(before.spin_ns),
        wake_ns: now.wake_ns.saturating_sub(before.wake_ns),
        refused: now.refused.saturating_sub(before.refused),
        errors: errors.filter(|(_, count)| *count > 0).collect(),
        latency: histogram(&now.latency, &before.latency),
        wait: histogram(&now.wait, &before.wait),
        hold: histogram(&now.hold, &before.hold),
    }
}

/// Extremes of the difference are bounds, as those of the model's intervals are.
fn histogram(now: &HistogramReading, before: &HistogramReading) -> HistogramReading {
    let bounds = from_reading(now, Some(before));
    let earlier: BTreeMap<u16, u64> = before.buckets.iter().copied().collect();
    let buckets = now.buckets.iter().map(|&(index, count)| {
        let earlier = earlier.get(&index).copied().unwrap_or(0);
        (index, count.saturating_sub(earlier))
    });
    HistogramReading {
        sum: now.sum.saturating_sub(before.sum),
        min: bounds.min,
        max: bounds.max,
        buckets: buckets.filter(|(_, count)| *count > 0).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Config, Model, Scope};

    fn reading(count: u64, generation: u32) -> Event {
        let histogram = HistogramReading {
            sum: count * 1000,
            min: 1000,
            max: 1000,
            buckets: vec![(63, count)],
        };
        Event {
            ts_ns: count,
            kind: EventKind::UioReading(vec![UioSeriesReading {
                device: DeviceKey { minor: 0, generation },
                idev: KernelPtr(1),
                op: UioOp::Write,
                first_ns: 1,
                count,
                contended: count,
                driver_waits: 0,
                driver_wait_ns: 0,
                spin_ns: 0,
                wake_ns: 0,
                refused: 0,
                errors: BTreeMap::from([(5, count)]),
                latency: histogram.clone(),
                wait: histogram.clone(),
                hold: histogram,
            }]),
        }
    }

    fn blockers(count: u64) -> Event {
        event(EventKind::UioBlockers(vec![UioBlockerReading {
            device: DeviceKey {
                minor: 0,
                generation: 1,
            },
            waiter_op: UioOp::Write,
            holder_op: Some(UioOp::Poll),
            holder: crate::event::Task {
                tgid: 1,
                tid: 2,
                comm: "fio".into(),
            },
            count,
            wait_ns: count * 1000,
            same_cpu: count,
        }]))
    }

    fn event(kind: EventKind) -> Event {
        Event { ts_ns: 1, kind }
    }

    fn devices() -> Event {
        let info = UioDeviceInfo {
            minor: 0,
            name: Some("disk".into()),
            version: None,
            ..UioDeviceInfo::default()
        };
        event(EventKind::UioDevices(vec![info]))
    }

    #[test]
    fn what_comes_later_counts_from_there() {
        let mut known = Known::default();
        let counters = |n| event(EventKind::Counters(BTreeMap::from([("slow_ring".into(), n)])));
        for told in [reading(10, 0), reading(3, 1), blockers(3), devices(), counters(4)] {
            known.learn(&told);
        }
        let mut model = Model::new(Config {
            start_ns: Some(100),
            ..Config::default()
        });
        known.tell(100).into_iter().for_each(|event| model.apply(event));
        let begin = model.snapshot(Scope::SinceStart);
        assert_eq!(begin.uio_devices.len(), 1, "the gone generation is not told");
        assert_eq!(begin.uio_devices[0].name.as_deref(), Some("disk"));
        assert_eq!(begin.uio_devices[0].generation, 1);
        assert!(begin.uio_devices[0].ops.is_empty());
        for later in [reading(8, 1), blockers(8), counters(9)] {
            model.apply(known.since(later, 100));
        }
        let end = model.snapshot(Scope::SinceStart);
        let write = &end.uio_devices[0].ops[0];
        assert_eq!((write.count, write.latency_ns.sum), (5, 5000));
        assert_eq!(write.errors.values().sum::<u64>(), 5);
        assert_eq!(end.loss.dropped["slow_ring"], 5);
        let holder = &end.uio_devices[0].blockers[0];
        assert_eq!((holder.count, holder.wait_ns, holder.same_cpu), (5, 5000, 5));
    }

    #[test]
    fn series_that_did_not_change_are_no_news() {
        let mut known = Known::default();
        assert_eq!(known.news(reading(10, 0)), reading(10, 0));
        let EventKind::UioReading(left) = known.news(reading(10, 0)).kind else {
            panic!("another kind")
        };
        assert!(left.is_empty());
        assert_eq!(known.news(reading(11, 0)), reading(11, 0));
        assert_eq!(known.news(blockers(1)), blockers(1));
        assert_eq!(known.news(blockers(1)), event(EventKind::UioBlockers(Vec::new())));
    }
}
