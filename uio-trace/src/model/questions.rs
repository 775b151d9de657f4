//! What the model would like to know: it cannot look for itself, but asks whoever feeds it, and the answers are events.

use super::limits::{MAX_STACKS, STACK_AFTER_NS};
use super::running::in_uio;
use super::snapshot::InProgress;
use super::{Model, waits};
use crate::event::{Event, EventKind, KernelPtr, MonotonicNs, Task, TaskStack};
use std::collections::BTreeMap;

/// Answered by `RefLooked` and `Stacks`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Questions {
    /// percpu_refs whose memory should be looked at.
    pub refs: Vec<KernelPtr>,
    /// Tasks whose kernel stacks should be read.
    pub tasks: Vec<Task>,
}

impl Model {
    /// To be asked now and then, a few times a second. `now_ns`: time has passed until then, also without events.
    pub fn questions(&mut self, now_ns: MonotonicNs) -> Questions {
        self.apply(Event {
            ts_ns: now_ns,
            kind: EventKind::Tick,
        });
        let mut tasks: Vec<Task> = self.before.tasks().cloned().collect();
        // Longest first.
        for row in self.in_progress() {
            let waits_long = row.age_ns.is_some_and(|age| age >= STACK_AFTER_NS);
            if tasks.len() >= MAX_STACKS {
                break;
            }
            if waits_long && row.tid != 0 && tasks.iter().all(|t| t.tid != row.tid) {
                tasks.push(Task {
                    tgid: row.tgid,
                    tid: row.tid,
                    comm: row.comm,
                });
            }
        }
        Questions {
            refs: self.refs.to_look_at(self.now_ns),
            tasks,
        }
    }
}

/// The latest stacks, by thread.
#[derive(Debug, Clone, Default)]
pub struct Stacks(BTreeMap<u32, TaskStack>);

impl Stacks {
    /// All that were asked for in one round, instead of those before.
    pub fn set(&mut self, stacks: Vec<TaskStack>) {
        self.0 = stacks
            .into_iter()
            .filter(|s| waits::classify(&s.frames).is_some() || in_uio(&s.frames))
            .map(|s| (s.task.tid, s))
            .collect();
    }

    /// Gives rows that are old enough the stack of their thread. A thread that killed a ref and went on waits for
    /// something else, if at all: only stacks that wait for something of ours are kept.
    pub fn put_into(&self, rows: &mut [InProgress]) {
        for row in rows {
            if row.stack.is_none() && row.age_ns.is_some_and(|age| age >= STACK_AFTER_NS) {
                let fits = |stack: &&TaskStack| match row.uio {
                    Some(_) => in_uio(&stack.frames),
                    None => waits::classify(&stack.frames).is_some(),
                };
                let Some(stack) = self.0.get(&row.tid).filter(fits) else {
                    continue;
                };
                row.stack = Some(stack.frames.clone());
                if row.subject == "aio_drain" {
                    row.set_direct_files(stack.direct_files.as_deref());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::{Probe, ProbeState};
    use crate::model::{Config, percpu_ref};

    #[test]
    fn a_silent_host_is_asked_about_all_the_same() {
        let mut model = Model::new(Config {
            start_ns: Some(0),
            ..Config::default()
        });
        let probe = |hook: &str| Probe {
            subject: "percpu_ref".into(),
            hook: hook.into(),
            state: ProbeState::Attached,
            method: None,
            reason: None,
            gives: String::new(),
            required: false,
            cost: None,
            late_cpus: Vec::new(),
        };
        let probes = [percpu_ref::SWITCH_HOOK, percpu_ref::LOOK_HOOK].map(probe);
        let by = Task {
            tgid: 5,
            tid: 6,
            comm: "a".into(),
        };
        let kill = EventKind::RefKill {
            by: by.clone(),
            reference: KernelPtr(1),
            release: KernelPtr(2),
            confirm: None,
            already_atomic: false,
            already_dead: false,
            references: None,
            stack: None,
        };
        for kind in [EventKind::Probes(probes.to_vec()), kill] {
            model.apply(Event { ts_ns: 10, kind });
        }
        assert_eq!(model.questions(20), Questions::default());
        let asked = Questions {
            refs: vec![KernelPtr(1)],
            tasks: vec![by],
        };
        assert_eq!(model.questions(2_000_000_000), asked);
    }
}
