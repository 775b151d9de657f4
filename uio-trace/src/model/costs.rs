//! What hooks cost: absolute counts in, figures of a stretch of time out.

use super::snapshot::{Cost, Probe};
use crate::event::{MonotonicNs, ProbeCost};
use std::collections::BTreeMap;

/// Hooks followed; there are some fifty.
const MAX_HOOKS: usize = 512;

/// Counts at a moment.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    at_ns: MonotonicNs,
    hits: u64,
    run_ns: u64,
    missed: u64,
}

impl Reading {
    /// What came after `base`.
    fn since(self, base: Reading) -> Cost {
        Cost {
            hits: self.hits.saturating_sub(base.hits),
            // A shared program's mean moves, and with it what was told before.
            run_ns: self.run_ns.saturating_sub(base.run_ns),
            missed: self.missed.saturating_sub(base.missed),
            counted_ns: self.at_ns.saturating_sub(base.at_ns),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Counted {
    now: Reading,
    /// When counting began.
    first: Reading,
    /// When the interval began.
    interval: Reading,
}

/// By subject and hook.
#[derive(Debug, Clone, Default)]
pub struct Costs {
    by_hook: BTreeMap<(String, String), Counted>,
    /// Of the reading before; `None`: nothing is counted.
    last_ns: Option<MonotonicNs>,
}

impl Costs {
    /// New counts, of `at_ns`; `None`: there will be no more, and what there was says nothing of now.
    pub fn readings(&mut self, at_ns: MonotonicNs, rows: Option<Vec<ProbeCost>>) {
        let Some(rows) = rows else {
            *self = Costs::default();
            return;
        };
        let last_ns = self.last_ns.replace(at_ns);
        for row in rows {
            let key = (row.subject, row.hook);
            if self.by_hook.len() >= MAX_HOOKS && !self.by_hook.contains_key(&key) {
                continue;
            }
            let now = Reading {
                at_ns,
                hits: row.hits,
                run_ns: row.run_ns,
                missed: row.missed,
            };
            // The first counts of all may hold what came before; a program that was loaded since then has counted from 0.
            let first = match last_ns {
                None => now,
                Some(last_ns) => Reading {
                    at_ns: last_ns,
                    ..Reading::default()
                },
            };
            let anew = Counted {
                now,
                first,
                interval: first,
            };
            let counted = self.by_hook.entry(key).or_insert(anew);
            if now.hits < counted.now.hits {
                *counted = anew;
            }
            counted.now = now;
        }
    }

    /// A new interval begins.
    pub fn begin_interval(&mut self) {
        for counted in self.by_hook.values_mut() {
            counted.interval = counted.now;
        }
    }

    /// Fills in what the probes cost.
    pub fn put_into(&self, probes: &mut [Probe], interval: bool) {
        if self.by_hook.is_empty() {
            return;
        }
        for probe in probes {
            let key = (probe.subject.clone(), probe.hook.clone());
            probe.cost = self.by_hook.get(&key).map(|counted| {
                counted.now.since(match interval {
                    true => counted.interval,
                    false => counted.first,
                })
            });
        }
    }
}

/// Of all hooks together: what they took as a share of one CPU; `None`: not counted.
pub fn share(probes: &[Probe]) -> Option<f64> {
    let mut known = probes.iter().filter_map(|probe| probe.cost).peekable();
    known.peek()?;
    Some(
        known
            .map(|cost| cost.run_ns as f64 / cost.counted_ns.max(1) as f64)
            .sum(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventKind};
    use crate::model::snapshot::ProbeState;
    use crate::model::{Config, Model, Scope};

    fn row(hook: &str, hits: u64, run_ns: u64) -> ProbeCost {
        ProbeCost {
            subject: "uio".into(),
            hook: hook.into(),
            hits,
            run_ns,
            missed: 0,
        }
    }

    fn model() -> Model {
        let mut model = Model::new(Config {
            start_ns: Some(0),
            ..Config::default()
        });
        let probe = |hook: &str| Probe {
            subject: "uio".into(),
            hook: hook.into(),
            state: ProbeState::Attached,
            method: None,
            reason: None,
            gives: String::new(),
            required: true,
            cost: None,
            late_cpus: Vec::new(),
        };
        let kind = EventKind::Probes(vec![probe("uio_write"), probe("uio_read")]);
        model.apply(Event { ts_ns: 0, kind });
        model
    }

    fn read(model: &mut Model, ts_ns: u64, rows: Vec<ProbeCost>) {
        model.apply(Event {
            ts_ns,
            kind: EventKind::ProbeCosts(Some(rows)),
        });
    }

    fn seen(model: &Model, scope: Scope) -> [Option<Cost>; 2] {
        let probes = model.snapshot(scope).probes;
        [probes[0].cost, probes[1].cost]
    }

    #[test]
    fn it_is_counted_from_the_first_reading_and_from_the_begin_of_an_interval() {
        let mut model = model();
        assert_eq!(seen(&model, Scope::SinceStart), [None, None]);
        assert_eq!(share(&model.snapshot(Scope::SinceStart).probes), None);
        // Another tool had the kernel count before.
        read(&mut model, 1_000, vec![row("uio_write", 10, 5_000)]);
        read(&mut model, 11_000, vec![row("uio_write", 14, 7_000)]);
        model.begin_interval(12_000);
        read(&mut model, 31_000, vec![row("uio_write", 20, 13_000)]);
        let cost = |hits, run_ns, counted_ns| Cost {
            hits,
            run_ns,
            missed: 0,
            counted_ns,
        };
        let all = cost(10, 8_000, 30_000);
        assert_eq!(seen(&model, Scope::SinceStart)[0], Some(all));
        assert_eq!(all.each_ns(), Some(800));
        assert_eq!(seen(&model, Scope::Interval)[0], Some(cost(6, 6_000, 20_000)));
        let total = share(&model.snapshot(Scope::Interval).probes).unwrap();
        assert!((total - 0.3).abs() < 1e-9, "{total}");
    }

    #[test]
    fn what_was_attached_later_counts_from_zero() {
        let mut model = model();
        read(&mut model, 1_000, vec![row("uio_write", 10, 5_000)]);
        read(
            &mut model,
            2_000,
            vec![row("uio_write", 10, 5_000), row("uio_read", 3, 900)],
        );
        let hits =
            |model: &Model| seen(model, Scope::SinceStart).map(|cost| cost.map(|c| (c.hits, c.counted_ns)));
        assert_eq!(hits(&model), [Some((0, 1_000)), Some((3, 1_000))]);
        // The module came back, and its programs begin anew.
        read(&mut model, 3_000, vec![row("uio_write", 4, 800)]);
        assert_eq!(hits(&model)[0], Some((4, 1_000)));
        // Nothing is left of what is counted no longer, and the next counts begin by themselves.
        model.apply(Event {
            ts_ns: 4_000,
            kind: EventKind::ProbeCosts(None),
        });
        assert_eq!(hits(&model), [None, None]);
        read(&mut model, 5_000, vec![row("uio_write", 9, 800)]);
        assert_eq!(hits(&model), [Some((0, 0)), None]);
    }
}
