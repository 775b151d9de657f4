//! What is known about the traced kernel, built from [`crate::event::Event`]s alone.
//!
//! Events go in by [`Model::apply`], plain figures come out by [`Model::snapshot`]; every reader (screen, text, JSON,
//! exporter, replay) shows those. The same events give the same snapshots: the model has no clock of its own, its now
//! is the time of the latest event. It is bounded ([`limits`]); what does not fit is counted and shown.
//!
//! Subjects: [`uio`] (with [`slow`]), [`percpu_ref`] (with [`owners`]), [`aio`], and [`waits`] that began before the trace. The refs of AIO contexts belong to the
//! last two: a switch ends a grace period of a ref and a phase of a context.

pub mod aio;
pub mod blockers;
pub mod costs;
pub mod errno;
pub mod findings;
pub mod histogram;
pub mod history;
pub mod limits;
pub mod loss;
pub mod owners;
pub mod percpu_ref;
pub mod questions;
pub mod running;
pub mod slow;
pub mod snapshot;
pub mod threads;
pub mod uio;
pub mod unregister;
pub mod waits;
pub mod whatif;

use crate::event::{Event, EventKind, KernelPtr, MonotonicNs, RefState, Task};
use crate::format::printable;
use snapshot::{InProgress, Interval, Loss, Probe, ProbeState, Snapshot};
use std::collections::HashSet;
use uio_trace_common::loss as reasons;

/// What a model is told at its begin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Begin of the trace, CLOCK_MONOTONIC; `None`: the first event's time.
    pub start_ns: Option<MonotonicNs>,
    /// CPUs online; `None`: not known.
    pub cpus: Option<u32>,
}

impl Config {
    /// As a trace's head says; a recording's says the same.
    pub fn of(meta: &snapshot::Meta) -> Config {
        Config {
            start_ns: Some(meta.started_ns),
            cpus: meta.cpus(),
        }
    }
}

/// Which stretch of time a snapshot is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// From the begin of the trace.
    SinceStart,
    /// From the last [`Model::begin_interval`] (or the begin of the trace).
    Interval,
}

/// All that is known.
#[derive(Debug, Clone, Default)]
pub struct Model {
    start_ns: Option<MonotonicNs>,
    cpus: Option<u32>,
    interval_ns: Option<MonotonicNs>,
    now_ns: MonotonicNs,
    next_sweep_ns: MonotonicNs,
    uio: uio::Uio,
    slow: slow::SlowOps,
    blockers: blockers::Blockers,
    threads: threads::Threads,
    refs: percpu_ref::Refs,
    courses: unregister::Courses,
    aio: aio::Aio,
    before: waits::BegunBefore,
    running: running::Running,
    stacks: questions::Stacks,
    counters: loss::Counters,
    history: history::Recorder,
    costs: costs::Costs,
    probes: Vec<Probe>,
    /// What the model itself could not keep, when the interval began.
    own_losses_before: [u64; OWN_LOSSES.len()],
}

/// Losses that leave operations out of the sums; a full ring does not.
const OPERATIONS_LOST: [u32; 6] = [
    reasons::DROP_INFLIGHT_COLLISION,
    reasons::DROP_EXIT_WITHOUT_ENTRY,
    reasons::DROP_EXIT_MISSED,
    reasons::DROP_SERIES_FULL,
    reasons::DROP_MINOR_RANGE,
    reasons::DROP_READ_FAULT,
];

/// Reasons of the model's own losses.
const OWN_LOSSES: [&str; 8] = [
    "model_uio_full",
    "model_blockers_full",
    "model_owners_full",
    "model_refs_full",
    "model_refs_expired",
    "model_contexts_full",
    "model_drains_expired",
    "model_waiters_full",
];

impl Model {
    /// An empty model.
    pub fn new(config: Config) -> Model {
        Model {
            start_ns: config.start_ns,
            cpus: config.cpus,
            interval_ns: config.start_ns,
            ..Model::default()
        }
    }

    /// Takes an event in.
    pub fn apply(&mut self, event: Event) {
        let Event { ts_ns, kind } = event;
        self.start_ns.get_or_insert(ts_ns);
        self.interval_ns.get_or_insert(ts_ns);
        self.now_ns = self.now_ns.max(ts_ns);
        if from_ring(&kind) {
            self.counters.applied += 1;
        }
        self.dispatch(ts_ns, kind);
        if self.now_ns >= self.next_sweep_ns {
            self.sweep();
        }
        while let Some(reference) = self.aio.gone_refs.pop() {
            self.refs.forget(reference);
        }
    }

    fn dispatch(&mut self, ts_ns: MonotonicNs, kind: EventKind) {
        if let Some(tid) = acting(&kind) {
            self.before.moved(tid);
        }
        match kind {
            EventKind::RefKill {
                by,
                reference,
                release,
                already_atomic,
                already_dead,
                references,
                stack,
                confirm: _,
            } => {
                let mut by = clean(by);
                if !already_dead && self.refs.is_of_uio(release) {
                    self.courses.killed(ts_ns, reference, &by);
                }
                let aio = self.aio.ref_killed(ts_ns, reference, already_atomic, &mut by);
                let kill = percpu_ref::Kill {
                    ts_ns,
                    reference,
                    release,
                    already_atomic,
                    already_dead,
                    references,
                    stack,
                    aio,
                };
                self.refs.kill(kill, by);
            }
            EventKind::RefSwitched {
                reference,
                release,
                references,
            } => {
                self.aio.ref_switched(ts_ns, reference, references);
                self.courses.switched(ts_ns, reference, references);
                self.refs.switched(ts_ns, reference, release, references);
            }
            EventKind::RefReleased {
                reference,
                release,
                early,
            } => {
                self.courses.released(ts_ns, reference);
                self.refs.released(percpu_ref::Release {
                    ts_ns,
                    reference,
                    release: Some(release),
                    early,
                });
            }
            EventKind::RefLooked {
                reference,
                release,
                state,
            } => {
                if matches!(state, RefState::Held(1..)) {
                    // Its switch may have been missed.
                    self.aio.ref_found_switched(reference);
                }
                self.refs.looked(ts_ns, reference, release, state);
            }
            EventKind::ExitAioBegin { by, mm } => self.aio.exit_begin(ts_ns, clean(by), mm),
            EventKind::ExitAioEnd { by, mm } => self.aio.exit_end(ts_ns, &by, mm),
            EventKind::IoDestroyBegin { by, user_id: _ } => self.aio.destroy_begin(ts_ns, &by),
            EventKind::IoDestroyEnd { by, ret } => self.aio.destroy_end(ts_ns, &by, ret),
            EventKind::AioKill {
                by,
                mm,
                ctx,
                wait: Some(wait),
                users,
                reqs,
                user_id,
            } => {
                self.aio.kill(
                    aio::Kill {
                        ts_ns,
                        mm,
                        ctx,
                        wait,
                        users,
                        reqs,
                        user_id,
                    },
                    clean(by),
                );
            }
            // io_setup(2) failed after it had made the context: nobody waits for it.
            EventKind::AioKill { wait: None, .. } => {}
            EventKind::AioUsersReleased { ctx } => {
                let users = self.aio.users_released(ts_ns, ctx);
                self.context_ref_released(ts_ns, users);
            }
            EventKind::AioLastRequest { ctx, file } => self.aio.last_request(ctx, file),
            EventKind::AioReqsReleased { ctx } => {
                let reqs = self.aio.reqs_released(ts_ns, ctx);
                self.context_ref_released(ts_ns, reqs);
            }
            EventKind::UioSlow(mut slow) => {
                slow.by = clean(slow.by);
                slow.holder = slow.holder.map(clean);
                self.slow.apply(slow);
            }
            EventKind::UioRegistered {
                device,
                by: _,
                latency_ns: _,
            } => {
                self.uio.registered(ts_ns, device);
            }
            EventKind::UioUnregistered {
                device,
                by,
                latency_ns,
                wait_ns,
            } => {
                let how = self.courses.unregistered(ts_ns, clean(by), latency_ns, wait_ns);
                self.uio.unregistered(ts_ns, device, how);
            }
            EventKind::Symbol { addr, name, module } => {
                if name == owners::UIO_INFO && module.as_deref() == Some("uio") {
                    self.uio.lock_kind(snapshot::UioLock::PercpuRef);
                }
                let (name, module) = (printable(name), module.map(printable));
                self.refs.symbol(addr, &name, module.as_deref());
            }
            EventKind::KillStack { id, frames } => self.refs.kill_stack(id, frames),
            EventKind::UioReading(readings) => self.uio.readings(ts_ns, readings),
            EventKind::UioBlockers(readings) => self.blockers.readings(readings),
            EventKind::ThreadTimes(times) => self.threads.readings(ts_ns, times),
            EventKind::UioRunning(rows) => {
                // Its row has its age; one found by its stack has none.
                for row in &rows {
                    self.before.moved(row.by.tid);
                }
                self.running.set(rows);
                self.courses.running(self.running.rows());
            }
            EventKind::UioDevices(list) => self.uio.devices(ts_ns, list),
            EventKind::UioOpen(open) => self.uio.open(ts_ns, open),
            EventKind::UioPresence(presence) => self.uio.presence(ts_ns, presence),
            EventKind::UioLockKind(lock) => self.uio.lock_kind(lock),
            EventKind::Counters(counters) => {
                if self.counters.apply(counters) {
                    self.aio.mark_uncertain(ts_ns);
                    self.refs.mark_uncertain(ts_ns);
                }
            }
            EventKind::Probes(probes) => {
                let attached = probes.iter().filter(|p| p.state == ProbeState::Attached);
                self.refs
                    .traced_hooks(attached.map(|p| p.hook.clone()).collect::<HashSet<_>>());
                self.probes = probes;
            }
            EventKind::ProbeCosts(rows) => self.costs.readings(ts_ns, rows),
            EventKind::Waiting(found) => {
                for mut stack in found {
                    stack.task = clean(stack.task);
                    // What the trace has seen begin has its own row.
                    let tid = stack.task.tid;
                    if !self.aio.waits(tid) && !self.refs.killed_by(tid) && !self.running.has(tid) {
                        self.before.found(ts_ns, stack);
                    }
                }
            }
            EventKind::Stacks(stacks) => {
                for stack in &stacks {
                    self.before.stack(stack);
                }
                self.running.stacks(&stacks);
                self.stacks.set(stacks);
            }
            EventKind::Tick => {
                self.blockers.end_round();
                self.remember(ts_ns);
            }
        }
    }

    /// A sample of the history, if it is time for one.
    fn remember(&mut self, ts_ns: MonotonicNs) {
        if self.history.due(ts_ns) {
            let start_ns = self.start_ns.unwrap_or(ts_ns);
            self.history
                .sample(ts_ns, start_ns, self.uio.totals(), self.refs.totals());
        }
    }

    fn context_ref_released(&mut self, ts_ns: MonotonicNs, reference: Option<KernelPtr>) {
        if let Some(reference) = reference {
            self.refs.released(percpu_ref::Release {
                ts_ns,
                reference,
                release: None,
                early: false,
            });
        }
    }

    fn sweep(&mut self) {
        self.aio.sweep(self.now_ns);
        self.refs.sweep(self.now_ns);
        self.next_sweep_ns = self.now_ns.saturating_add(limits::SWEEP_INTERVAL_NS);
    }

    /// The running interval ends and another begins: [`Scope::Interval`] is about the time from now on.
    pub fn begin_interval(&mut self, now_ns: MonotonicNs) {
        self.apply(Event {
            ts_ns: now_ns,
            kind: EventKind::Tick,
        });
        self.interval_ns = Some(self.now_ns);
        self.own_losses_before = self.own_losses();
        self.uio.begin_interval();
        self.slow.begin_interval();
        self.blockers.begin_interval();
        self.threads.begin_interval();
        self.refs.begin_interval();
        self.aio.begin_interval();
        self.counters.begin_interval();
        self.costs.begin_interval();
    }

    /// The trace is over: ends what only waits for time to pass. For the last dump.
    pub fn finish(&mut self, now_ns: MonotonicNs) {
        self.apply(Event {
            ts_ns: now_ns,
            kind: EventKind::Tick,
        });
        self.aio.finish();
    }

    /// Time of the latest event.
    pub fn now_ns(&self) -> MonotonicNs {
        self.now_ns
    }

    /// The figures of a stretch of time, as of the latest event.
    pub fn snapshot(&self, scope: Scope) -> Snapshot {
        let in_interval = scope == Scope::Interval;
        let start = if in_interval {
            self.interval_ns
        } else {
            self.start_ns
        };
        let start_ns = start.unwrap_or(self.now_ns).min(self.now_ns);
        let duration_ns = self.now_ns - start_ns;
        let loss = self.loss(in_interval);
        let view = uio::View {
            cpus: self.cpus,
            lost_share: loss.of(&OPERATIONS_LOST) as f64 / loss.seen.max(1) as f64,
            interval: in_interval,
            start_ns,
            // Up to the last reading: between two, a replay's clock goes on and the counts stand still.
            duration_ns: match self.uio.read_ns() {
                Some(read_ns) if read_ns > start_ns => read_ns.min(self.now_ns) - start_ns,
                _ => duration_ns.max(1),
            },
            wait_measured: self.wait_measured(),
            spin_measured: self.attached(snapshot::CONTENTION_HOOK),
        };
        let (aio_drains, aio_drains_omitted) = self.aio.finished(in_interval);
        let mut in_progress = self.in_progress();
        self.stacks.put_into(&mut in_progress);
        let mut probes = self.probes.clone();
        self.costs.put_into(&mut probes, in_interval);
        let mut snapshot = Snapshot {
            interval: Interval {
                start_ns,
                end_ns: self.now_ns,
                duration_ns,
            },
            uio_present: self.uio.present(),
            uio_devices: self
                .uio
                .snapshot(view, &self.blockers, &self.threads, &self.history.history()),
            ref_owners: self.refs.snapshot(in_interval, self.now_ns),
            grace_period_ns: self.refs.grace_periods(in_interval),
            aio_drains,
            aio_drains_omitted,
            in_progress,
            findings: Vec::new(),
            slow_ops: self.slow.ops(in_interval),
            loss,
            probes,
            history: self.history.history(),
        };
        snapshot.findings = findings::diagnose(&snapshot);
        snapshot
    }

    /// Begun and not ended: longest first; what began before the trace is older than any.
    fn in_progress(&self) -> Vec<InProgress> {
        let switches = self.probes.is_empty() || self.attached(percpu_ref::SWITCH_HOOK);
        let mut rows = self
            .refs
            .in_progress(self.now_ns, |reference| self.aio.owns(reference));
        let references = |reference| self.refs.references(reference);
        rows.extend(self.aio.in_progress(self.now_ns, switches, &references));
        rows.extend(self.before.in_progress(self.now_ns));
        let missed = self.counters.missed_returns();
        let name = |device| self.uio.name(device);
        rows.extend(self.running.in_progress(self.now_ns, missed, name));
        rows.sort_by(|a, b| {
            let age = |p: &InProgress| p.age_ns.unwrap_or(u64::MAX);
            let rest = |p: &InProgress| (p.tgid, p.tid);
            age(b)
                .cmp(&age(a))
                .then(rest(a).cmp(&rest(b)))
                .then_with(|| a.detail.cmp(&b.detail))
        });
        rows.truncate(limits::MAX_IN_PROGRESS);
        rows
    }

    /// Some probe sees waits for info_lock; without news of the probes that is assumed.
    fn wait_measured(&self) -> bool {
        let mut waits = self.probes.iter().filter(|p| snapshot::sees_waits(p)).peekable();
        waits.peek().is_none() || waits.any(|p| p.state == ProbeState::Attached)
    }

    fn attached(&self, hook: &str) -> bool {
        self.probes
            .iter()
            .any(|p| p.hook == hook && p.state == ProbeState::Attached)
    }

    fn loss(&self, interval: bool) -> Loss {
        let mut loss = self.counters.loss(interval);
        let before = if interval {
            self.own_losses_before
        } else {
            [0; OWN_LOSSES.len()]
        };
        for ((name, now), before) in OWN_LOSSES.iter().zip(self.own_losses()).zip(before) {
            if now > before {
                loss.dropped.insert((*name).to_string(), now - before);
            }
        }
        loss.uncertain = self.refs.uncertain() + self.aio.uncertain();
        loss
    }

    /// In the order of [`OWN_LOSSES`].
    fn own_losses(&self) -> [u64; OWN_LOSSES.len()] {
        [
            self.uio.refused,
            self.blockers.lost,
            self.refs.owners_lost,
            self.refs.open_lost,
            self.refs.expired,
            self.aio.refused,
            self.aio.expired,
            self.before.refused,
        ]
    }
}

/// The thread that did this itself; `None`: nobody did, or `current` was whoever was interrupted.
fn acting(kind: &EventKind) -> Option<u32> {
    match kind {
        EventKind::ExitAioBegin { by, .. }
        | EventKind::ExitAioEnd { by, .. }
        | EventKind::IoDestroyBegin { by, .. }
        | EventKind::IoDestroyEnd { by, .. }
        | EventKind::AioKill { by, .. }
        | EventKind::RefKill { by, .. } => Some(by.tid),
        EventKind::UioSlow(slow) => Some(slow.by.tid),
        _ => None,
    }
}

/// Names come from the traced processes: nothing of them may reach a terminal as control characters.
fn clean(task: Task) -> Task {
    Task {
        comm: printable(task.comm),
        ..task
    }
}

fn from_ring(kind: &EventKind) -> bool {
    match kind {
        EventKind::RefKill { .. }
        | EventKind::RefSwitched { .. }
        | EventKind::RefReleased { .. }
        | EventKind::RefLooked { .. }
        | EventKind::ExitAioBegin { .. }
        | EventKind::ExitAioEnd { .. }
        | EventKind::IoDestroyBegin { .. }
        | EventKind::IoDestroyEnd { .. }
        | EventKind::AioKill { .. }
        | EventKind::AioUsersReleased { .. }
        | EventKind::AioReqsReleased { .. }
        | EventKind::AioLastRequest { .. }
        | EventKind::UioSlow(_)
        | EventKind::UioRegistered { .. }
        | EventKind::UioUnregistered { .. } => true,
        EventKind::Symbol { .. }
        | EventKind::KillStack { .. }
        | EventKind::ThreadTimes(_)
        | EventKind::UioReading(_)
        | EventKind::UioBlockers(_)
        | EventKind::UioRunning(_)
        | EventKind::UioDevices(_)
        | EventKind::UioOpen(_)
        | EventKind::UioPresence(_)
        | EventKind::UioLockKind(_)
        | EventKind::Counters(_)
        | EventKind::Probes(_)
        | EventKind::ProbeCosts(_)
        | EventKind::Waiting(_)
        | EventKind::Stacks(_)
        | EventKind::Tick => false,
    }
}
