//! `--pid`, `--comm`, `--cgroup`, `--device`: events of others never reach the model. `--owner` is applied to what is shown.
//!
//! UIO operations of others are left out by the programs already. Who is in a cgroup only they can tell, since a process may be
//! gone when its event is read: their events say so.

use crate::{
    config::TraceConfig,
    event::{Event, EventKind, KernelPtr, Task, UioDeviceInfo},
    format::printable,
    ingest::decode,
    model::snapshot::{Finding, Severity, Snapshot},
    probes::session::COMM,
};
use std::collections::{BTreeSet, HashSet};

/// Refs of wanted killers remembered until they are released, or their address is killed for somebody else.
const REFS_MAX: usize = 65_536;

/// Decides event by event.
#[derive(Debug, Default)]
pub struct Filter {
    pid: Option<u32>,
    comm: Option<String>,
    by_cgroup: bool,
    device: Option<String>,
    owner: Option<String>,
    all: bool,
    /// The options that leave something out, as they were given; empty: nothing is.
    words: String,
    refs: HashSet<KernelPtr>,
    /// Those of wanted AIO contexts: `reqs` is killed in RCU context, by whoever was interrupted.
    of_contexts: HashSet<KernelPtr>,
    minors: BTreeSet<u32>,
}

impl Filter {
    /// From the command line.
    pub fn new(config: &TraceConfig) -> Filter {
        Filter {
            pid: config.pid,
            comm: config.comm.as_deref().map(as_shown),
            by_cgroup: config.cgroup.is_some(),
            device: config.device.clone(),
            owner: config.owner.clone(),
            all: config.all,
            words: words(config),
            ..Filter::default()
        }
    }

    fn wanted_task(&self, task: &Task) -> bool {
        self.pid.is_none_or(|pid| pid == task.tgid)
            && self.comm.as_ref().is_none_or(|comm| *comm == task.comm)
    }

    /// The device that was asked for.
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Whether a device is meant: by `uioN` or by its name.
    pub fn wanted_device(&self, device: &UioDeviceInfo) -> bool {
        self.device.as_ref().is_none_or(|wanted| {
            device.name.as_ref() == Some(wanted) || *wanted == format!("uio{}", device.minor)
        })
    }

    /// The event as the model may see it; `None`: not at all.
    pub fn pass(&mut self, event: Event) -> Option<Event> {
        self.pass_from(event, false)
    }

    /// The same of an event whose task is or is not `outside` of the cgroup that was asked for.
    pub fn pass_from(&mut self, event: Event, outside: bool) -> Option<Event> {
        let by_task = self.pid.is_some() || self.comm.is_some() || self.by_cgroup;
        self.decide(event, by_task, |_| !outside)
    }

    /// The same, and only what these tasks do.
    pub fn pass_of(&mut self, event: Event, whose: impl Fn(&Task) -> bool) -> Option<Event> {
        self.decide(event, true, whose)
    }

    fn decide(&mut self, mut event: Event, by_task: bool, whose: impl Fn(&Task) -> bool) -> Option<Event> {
        let wanted = |filter: &Filter, task: &Task| filter.wanted_task(task) && whose(task);
        let keep = match &mut event.kind {
            EventKind::UioDevices(devices) => {
                devices.retain(|device| self.wanted_device(device));
                if self.device.is_some() {
                    self.minors.extend(devices.iter().map(|d| d.minor));
                }
                true
            }
            EventKind::UioOpen(open) => {
                if self.device.is_some() {
                    open.openers.retain(|opener| self.minors.contains(&opener.minor));
                }
                true
            }
            EventKind::UioReading(readings) => {
                if self.device.is_some() {
                    readings.retain(|reading| self.minors.contains(&reading.device.minor));
                }
                true
            }
            EventKind::UioBlockers(readings) => {
                if self.device.is_some() {
                    readings.retain(|reading| self.minors.contains(&reading.device.minor));
                }
                true
            }
            EventKind::UioRunning(rows) => {
                rows.retain(|row| {
                    wanted(self, &row.by)
                        && (self.device.is_none() || self.minors.contains(&row.device.minor))
                });
                true
            }
            // The programs knew at its begin whether it is of the cgroup; its task may have been moved since.
            EventKind::UioSlow(slow) => {
                (self.by_cgroup && self.wanted_task(&slow.by) || wanted(self, &slow.by))
                    && (self.device.is_none() || self.minors.contains(&slow.device.minor))
            }
            EventKind::RefKill { by, reference, .. } if by_task => {
                let of_context = self.of_contexts.remove(reference);
                let wanted = wanted(self, by) || of_context;
                if !wanted {
                    self.refs.remove(reference);
                } else if self.refs.len() < REFS_MAX {
                    self.refs.insert(*reference);
                }
                wanted
            }
            // Its release comes after its switch, if it is traced; a kill of the address' next ref decides anew.
            EventKind::RefSwitched {
                reference,
                references,
                ..
            } if by_task => {
                if *references == Some(0) {
                    self.refs.remove(reference)
                } else {
                    self.refs.contains(reference)
                }
            }
            EventKind::RefReleased { reference, .. } if by_task => self.refs.remove(reference),
            EventKind::Waiting(found) => {
                found.retain(|stack| wanted(self, &stack.task));
                true
            }
            EventKind::AioKill { by, users, reqs, .. } => {
                let wanted = wanted(self, by);
                for reference in [*users, *reqs] {
                    if !wanted || !by_task {
                        self.of_contexts.remove(&reference);
                    } else if self.of_contexts.len() < REFS_MAX {
                        self.of_contexts.insert(reference);
                    }
                }
                wanted
            }
            EventKind::ExitAioBegin { by, .. }
            | EventKind::ExitAioEnd { by, .. }
            | EventKind::IoDestroyBegin { by, .. }
            | EventKind::IoDestroyEnd { by, .. } => wanted(self, by),
            _ => true,
        };
        keep.then_some(event)
    }

    /// Leaves out of a snapshot what was not asked for (other owners, the tool's own refs), and says what was asked for: that nothing
    /// is seen of all others is no finding about the host.
    pub fn shape(&self, snapshot: &mut Snapshot) {
        if !self.words.is_empty() {
            for finding in &mut snapshot.findings {
                if finding.id == "nothing_here" {
                    finding.id = "nothing_asked_for".to_owned();
                    finding.text = format!("of what was asked for, {}", finding.text);
                }
            }
            let filtered = Finding {
                id: "filtered".to_owned(),
                severity: Severity::Info,
                subject: "host".to_owned(),
                text: format!(
                    "only what was asked for is looked at ({}): all else on this host is left out, also of how long a lock is held \
                     and how many wait for it",
                    self.words
                ),
                cost: 0.0,
                evidence: Default::default(),
            };
            // First: it says what all others are about.
            snapshot.findings.insert(0, filtered);
        }
        let all = self.all;
        snapshot.ref_owners.retain(|row| {
            (all || !row.own)
                && self
                    .owner
                    .as_ref()
                    .is_none_or(|text| row.owner.contains(text) || row.release.contains(text))
        });
    }
}

/// The options that leave something out.
fn words(config: &TraceConfig) -> String {
    let pid = config.pid.map(|pid| pid.to_string());
    let options = [
        ("--pid", &pid),
        ("--comm", &config.comm),
        ("--cgroup", &config.cgroup),
        ("--device", &config.device),
        ("--owner", &config.owner),
    ];
    let given = options
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name} {}", printable(value.clone()?))));
    given.collect::<Vec<_>>().join(", ")
}

/// A name as events have it.
fn as_shown(name: &str) -> String {
    kernels_name(name).map_or_else(|| name.to_owned(), |name| decode::comm(&name))
}

/// A name as the kernel keeps it: cut to its length and filled up with zeros. `None`: it holds the sign that stands for what
/// cannot be shown, so it is no task's own and compared as it is shown.
pub fn kernels_name(shown: &str) -> Option<[u8; COMM]> {
    if shown.contains(char::REPLACEMENT_CHARACTER) {
        return None;
    }
    let mut name = [0; COMM];
    for (to, from) in name.iter_mut().zip(shown.as_bytes()).take(COMM - 1) {
        *to = *from;
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind) -> Event {
        Event { ts_ns: 1, kind }
    }

    fn task(tgid: u32) -> Task {
        Task {
            tgid,
            tid: tgid,
            comm: "c".into(),
        }
    }

    fn kill(by: u32, reference: u64) -> Event {
        event(EventKind::RefKill {
            by: task(by),
            reference: KernelPtr(reference),
            release: KernelPtr(9),
            confirm: None,
            already_atomic: false,
            already_dead: false,
            references: None,
            stack: None,
        })
    }

    fn switched(reference: u64) -> Event {
        event(EventKind::RefSwitched {
            reference: KernelPtr(reference),
            release: KernelPtr(9),
            references: Some(1),
        })
    }

    fn context(by: u32, users: u64, reqs: u64) -> Event {
        event(EventKind::AioKill {
            by: task(by),
            mm: KernelPtr(1),
            ctx: KernelPtr(users),
            wait: Some(KernelPtr(2)),
            users: KernelPtr(users),
            reqs: KernelPtr(reqs),
            user_id: 3,
        })
    }

    /// The requests' ref of a context is killed by whoever RCU's callback has interrupted: its grace period is the process' all
    /// the same.
    #[test]
    fn a_contexts_refs_are_its_process_whoever_kills_them() {
        let mut filter = Filter {
            pid: Some(5),
            ..Filter::default()
        };
        let mut passes = |event| filter.pass(event).is_some();
        assert!(passes(context(5, 10, 11)));
        assert!(passes(kill(5, 10)));
        assert!(!passes(kill(77, 10)), "once");
        assert!(passes(kill(77, 11)), "in RCU context");
        assert!(passes(switched(11)));
        // Another process' context.
        assert!(!passes(context(6, 20, 21)));
        assert!(!passes(kill(77, 21)));
        assert!(!passes(switched(21)));
        // The memory is reused by somebody else's ref, and by somebody else's context.
        assert!(!passes(kill(77, 11)));
        assert!(!passes(switched(11)));
        assert!(passes(context(5, 10, 11)));
        assert!(!passes(context(6, 10, 11)));
        assert!(!passes(kill(77, 11)));
    }

    /// What the programs say of a task's cgroup decides, and a context's refs are those of its process here, too.
    #[test]
    fn by_cgroup_the_programs_decide() {
        let mut filter = Filter::new(&TraceConfig {
            cgroup: Some("/a".into()),
            ..TraceConfig::default()
        });
        let mut passes = |event, outside| filter.pass_from(event, outside).is_some();
        assert!(passes(kill(5, 1), false));
        assert!(passes(switched(1), true), "in whatever was interrupted");
        assert!(!passes(kill(6, 2), true));
        assert!(!passes(switched(2), false));
        assert!(passes(context(5, 10, 11), false));
        assert!(passes(kill(77, 11), true));
        assert!(!passes(context(6, 20, 21), true));
        assert!(!passes(kill(77, 21), true));
        let mut nobody = Filter::default();
        assert!(nobody.pass(kill(6, 2)).is_some());
    }

    #[test]
    fn names_are_cut_as_the_kernel_cuts_them() {
        assert_eq!(kernels_name("fio"), Some(*b"fio\0\0\0\0\0\0\0\0\0\0\0\0\0"));
        assert_eq!(kernels_name("a-name-of-17-byte"), Some(*b"a-name-of-17-by\0"));
        assert_eq!(kernels_name("a\u{fffd}b"), None);
        assert_eq!(as_shown("a-name-of-17-byte"), "a-name-of-17-by");
        assert_eq!(as_shown("a\u{fffd}b"), "a\u{fffd}b");
    }
}
