//! Figures over time, for plots: a bounded number of samples, the newest last.
//!
//! [`Recorder`] is fed at each tick with sums since the begin of the trace and keeps the differences. All series share
//! one time line ([`History::spans`]) and end at its newest sample; a device that came later has fewer.

use super::limits::MAX_HISTORY_SAMPLES;
use crate::event::{DeviceKey, MonotonicNs};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// Ticks closer together than this, ns, make no sample of their own.
pub const SAMPLE_MIN_NS: u64 = 500_000_000;

/// Samples that show whether a load was steady.
const LEAST_SAMPLES: usize = 4;

/// The stretch of time a sample is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Its end, CLOCK_MONOTONIC, ns.
    pub end_ns: u64,
    /// Its length, ns; at least 1.
    pub duration_ns: u64,
}

/// A UIO device's lock in a span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LockSample {
    /// Share of the span in which info_lock was held, 0..1: sum of holds (reads left out) per time.
    pub held: f32,
    /// Threads waiting on average: sum of waits per time. A wait counts where it ends, so a long one makes a peak.
    pub waiting: f32,
}

/// Refs of an owner in a span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefSample {
    /// Kills.
    pub kills: u32,
    /// Switches to atomic mode completed.
    pub switches: u32,
}

/// What readers get. Series are right-aligned: their last sample belongs to the last span.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The common time line, oldest first.
    pub spans: VecDeque<Span>,
    devices: BTreeMap<DeviceKey, VecDeque<LockSample>>,
    owners: HashMap<String, VecDeque<RefSample>>,
}

impl History {
    /// A device's samples, oldest first; empty when its lock was never used.
    pub fn device(
        &self,
        minor: u32,
        generation: u32,
    ) -> impl ExactSizeIterator<Item = LockSample> + DoubleEndedIterator + '_ {
        const NONE: &VecDeque<LockSample> = &VecDeque::new();
        let key = DeviceKey { minor, generation };
        self.devices.get(&key).unwrap_or(NONE).iter().copied()
    }

    /// Share of the time since `start_ns` that a device's load would have taken as busy throughout (held and waited for) as
    /// it was on average in the spans at least half as busy as the busiest: what was done in a span that is mostly a pause
    /// takes its part of time, too, else more threads would seem to be in operations than there are. `None`: too few samples
    /// to tell.
    pub fn busy_share(&self, device: DeviceKey, start_ns: MonotonicNs) -> Option<f64> {
        // A device whose series began later had nothing to show before.
        let samples = self.device(device.minor, device.generation).rev();
        let samples = samples.chain(std::iter::repeat(LockSample::default()));
        let spans = self.spans.iter().rev();
        let since: Vec<(f64, f64)> = spans
            .take_while(|span| span.end_ns.saturating_sub(span.duration_ns) >= start_ns)
            .zip(samples)
            .map(|(span, sample)| (span.duration_ns as f64, f64::from(sample.held + sample.waiting)))
            .collect();
        let busiest = since.iter().map(|s| s.1).fold(0.0, f64::max);
        if since.len() < LEAST_SAMPLES || busiest <= 0.0 {
            return None;
        }
        let sums = |least: f64| {
            since
                .iter()
                .filter(|(_, busy)| *busy >= least)
                .fold((0.0, 0.0), |(time, load), (span, busy)| {
                    (time + span, load + span * busy)
                })
        };
        let ((all, load), (busy, busy_load)) = (sums(0.0), sums(busiest / 2.0));
        Some(load * busy / (busy_load * all))
    }

    /// Samples of the owner with this release function, oldest first.
    pub fn owner(&self, release: &str) -> impl ExactSizeIterator<Item = RefSample> + '_ {
        const NONE: &VecDeque<RefSample> = &VecDeque::new();
        self.owners.get(release).unwrap_or(NONE).iter().copied()
    }

    /// Time from the begin of the `samples` newest spans to now, ns.
    pub fn reach_ns(&self, samples: usize) -> u64 {
        let newest = self.spans.iter().rev().take(samples);
        newest.fold(0, |sum, span| sum.saturating_add(span.duration_ns))
    }

    fn drop_oldest(&mut self) {
        while self.spans.len() > MAX_HISTORY_SAMPLES {
            self.spans.pop_front();
        }
        let most = self.spans.len();
        fn trim<T>(series: &mut VecDeque<T>, most: usize) {
            while series.len() > most {
                series.pop_front();
            }
        }
        self.devices.values_mut().for_each(|series| trim(series, most));
        self.owners.values_mut().for_each(|series| trim(series, most));
    }
}

/// Sums of a device since the begin of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockTotals {
    /// Which.
    pub device: DeviceKey,
    /// Holds of info_lock, reads left out, ns.
    pub hold_ns: u64,
    /// Waits for it, ns.
    pub wait_ns: u64,
}

/// Makes samples of sums.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    last_ns: Option<MonotonicNs>,
    locks: HashMap<DeviceKey, (u64, u64)>,
    refs: HashMap<String, (u64, u64)>,
    history: Arc<History>,
}

impl Recorder {
    /// Whether a tick at `now_ns` makes a sample; the first one only says where to begin.
    pub fn due(&self, now_ns: MonotonicNs) -> bool {
        self.last_ns
            .is_none_or(|last| now_ns.saturating_sub(last) >= SAMPLE_MIN_NS)
    }

    /// Takes the sums as of `now_ns`: those of the devices, and of each release function its kills and switches.
    pub fn sample<'a>(
        &mut self,
        now_ns: MonotonicNs,
        start_ns: MonotonicNs,
        locks: impl Iterator<Item = LockTotals>,
        refs: impl Iterator<Item = (&'a str, u64, u64)>,
    ) {
        let last = self.last_ns.replace(now_ns).unwrap_or(start_ns);
        let duration_ns = now_ns.saturating_sub(last);
        if duration_ns < SAMPLE_MIN_NS {
            return;
        }
        let history = Arc::make_mut(&mut self.history);
        history.spans.push_back(Span {
            end_ns: now_ns,
            duration_ns,
        });
        let per_time = |ns: u64| (ns as f64 / duration_ns as f64) as f32;
        for LockTotals {
            device,
            hold_ns,
            wait_ns,
        } in locks
        {
            let (hold_before, wait_before) =
                self.locks.insert(device, (hold_ns, wait_ns)).unwrap_or_default();
            let sample = LockSample {
                held: per_time(hold_ns.saturating_sub(hold_before)).min(1.0),
                waiting: per_time(wait_ns.saturating_sub(wait_before)),
            };
            // A lock that nobody ever took has no series: a thousand idle devices cost nothing.
            match history.devices.get_mut(&device) {
                Some(series) => series.push_back(sample),
                None if sample == LockSample::default() => {}
                None => drop(history.devices.insert(device, VecDeque::from([sample]))),
            }
        }
        for (release, kills, switches) in refs {
            let before = match self.refs.get_mut(release) {
                Some(before) => std::mem::replace(before, (kills, switches)),
                None => {
                    self.refs.insert(release.to_owned(), (kills, switches));
                    (0, 0)
                }
            };
            let grown = |now: u64, before: u64| u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX);
            let sample = RefSample {
                kills: grown(kills, before.0),
                switches: grown(switches, before.1),
            };
            match history.owners.get_mut(release) {
                Some(series) => series.push_back(sample),
                None if sample == RefSample::default() => {}
                None => drop(
                    history
                        .owners
                        .insert(release.to_owned(), VecDeque::from([sample])),
                ),
            }
        }
        history.drop_oldest();
    }

    /// What was recorded so far; shared, not copied.
    pub fn history(&self) -> Arc<History> {
        self.history.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const DEVICE: DeviceKey = DeviceKey {
        minor: 3,
        generation: 1,
    };

    fn totals(hold_ns: u64, wait_ns: u64) -> LockTotals {
        LockTotals {
            device: DEVICE,
            hold_ns,
            wait_ns,
        }
    }

    #[test]
    fn samples_are_what_came_since_the_one_before() {
        let mut recorder = Recorder::default();
        recorder.sample(S, 0, [totals(0, 0)].into_iter(), [].into_iter());
        recorder.sample(
            2 * S,
            0,
            [totals(S / 2, 3 * S)].into_iter(),
            [("f", 4, 5)].into_iter(),
        );
        recorder.sample(
            4 * S,
            0,
            [totals(S, 4 * S)].into_iter(),
            [("f", 4, 9)].into_iter(),
        );
        let history = recorder.history();
        let device: Vec<(f32, f32)> = history.device(3, 1).map(|s| (s.held, s.waiting)).collect();
        assert_eq!(device, [(0.5, 3.0), (0.25, 0.5)]);
        let owner: Vec<(u32, u32)> = history.owner("f").map(|s| (s.kills, s.switches)).collect();
        assert_eq!(owner, [(4, 5), (0, 4)]);
        assert_eq!(history.spans.len(), 3);
        assert_eq!(history.reach_ns(2), 3 * S);
        assert_eq!(history.device(3, 0).len(), 0);
        assert_eq!(history.owner("g").len(), 0);
    }

    #[test]
    fn pauses_of_a_load_are_no_busy_time() {
        let mut recorder = Recorder::default();
        let tick = |recorder: &mut Recorder, second: u64, hold: u64| {
            recorder.sample(second * S, 0, [totals(hold, 0)].into_iter(), [].into_iter());
        };
        tick(&mut recorder, 1, 0);
        for (second, hold) in [(2, 8), (3, 16), (4, 22)] {
            tick(&mut recorder, second, hold * S / 10);
            assert_eq!(recorder.history().busy_share(DEVICE, 0).is_some(), second == 4);
        }
        // Of four seconds the first was idle; of eight the last four, too.
        assert_eq!(recorder.history().busy_share(DEVICE, 0), Some(0.75));
        for second in 5..=8 {
            tick(&mut recorder, second, 22 * S / 10);
        }
        assert_eq!(recorder.history().busy_share(DEVICE, 0), Some(0.375));
        assert_eq!(
            recorder.history().busy_share(DEVICE, 4 * S),
            None,
            "idle throughout"
        );
    }

    #[test]
    fn a_span_that_is_mostly_a_pause_has_its_part_of_busy_time() {
        let mut recorder = Recorder::default();
        // Four threads in operations after a first idle second; in the fourth they are replaced, and the new ones come late.
        let mut waited = 0;
        for (second, tenths) in [(1, 0), (2, 40), (3, 40), (4, 16), (5, 40)] {
            waited += tenths * S / 10;
            recorder.sample(second * S, 0, [totals(0, waited)].into_iter(), [].into_iter());
        }
        let share = recorder.history().busy_share(DEVICE, 0).unwrap();
        assert!((share - 0.68).abs() < 1e-3, "{share}");
        let in_ops = waited as f64 / (5 * S) as f64 / share;
        assert!((in_ops - 4.0).abs() < 1e-3, "{in_ops} threads in operations");
    }

    #[test]
    fn ticks_in_quick_succession_make_one_sample() {
        let mut recorder = Recorder::default();
        recorder.sample(S, 0, [].into_iter(), [].into_iter());
        assert!(!recorder.due(S + 1));
        assert!(recorder.due(S + SAMPLE_MIN_NS));
    }

    #[test]
    fn the_oldest_goes_and_the_series_stay_aligned_at_their_end() {
        let mut recorder = Recorder::default();
        let ticks = MAX_HISTORY_SAMPLES as u64 + 10;
        for tick in 1..=ticks {
            recorder.sample(tick * S, 0, [totals(tick * S / 2, 0)].into_iter(), [].into_iter());
        }
        let history = recorder.history();
        assert_eq!(history.spans.len(), MAX_HISTORY_SAMPLES);
        assert_eq!(history.device(3, 1).len(), MAX_HISTORY_SAMPLES);
        assert_eq!(history.spans.back().map(|s| s.end_ns), Some(ticks * S));
        assert_eq!(history.device(3, 1).last().map(|s| s.held), Some(0.5));
    }

    #[test]
    fn the_model_feeds_it_at_each_tick() {
        use crate::event::{Event, EventKind, HistogramReading, KernelPtr, UioOp, UioSeriesReading};
        use crate::model::{Config, Model, Scope};
        let mut model = Model::new(Config {
            start_ns: Some(0),
            ..Config::default()
        });
        let times = |sum| HistogramReading {
            sum,
            min: 1,
            max: 1,
            buckets: vec![(1, 1)],
        };
        for second in 1..=3 {
            let reading = |op, hold| UioSeriesReading {
                device: DEVICE,
                idev: KernelPtr(1),
                op,
                first_ns: 1,
                count: 1,
                contended: 1,
                driver_waits: 0,
                driver_wait_ns: 0,
                spin_ns: 0,
                wake_ns: 0,
                refused: 0,
                errors: BTreeMap::new(),
                latency: times(S),
                wait: times(second * S / 4),
                hold: times(hold),
            };
            // What a read sleeps is no hold.
            let readings = vec![
                reading(UioOp::Write, second * S / 2),
                reading(UioOp::Read, second * S),
            ];
            for kind in [EventKind::UioReading(readings), EventKind::Tick] {
                model.apply(Event {
                    ts_ns: second * S,
                    kind,
                });
            }
        }
        let snapshot = model.snapshot(Scope::SinceStart);
        let samples: Vec<(f32, f32)> = snapshot
            .history
            .device(DEVICE.minor, DEVICE.generation)
            .map(|s| (s.held, s.waiting))
            .collect();
        assert_eq!(samples, [(0.5, 0.5); 3]);
        // A replay's clock goes on until the next reading; what is known of the lock is as it was.
        let known = |model: &Model| {
            let snapshot = model.snapshot(Scope::SinceStart);
            (
                snapshot.uio_devices[0].utilization,
                snapshot.uio_devices[0].mean_waiters,
            )
        };
        let before = known(&model);
        model.apply(Event {
            ts_ns: 4 * S - 1,
            kind: EventKind::Tick,
        });
        assert_eq!(known(&model), before);
    }
}
