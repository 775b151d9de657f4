//! The loaded BPF object and its attachments for as long as the tool traces.

mod costs;
mod uio;

pub use costs::Statistics;
pub(super) use uio::module_programs;

use super::{
    attach::{AyaAttacher, Link, attach_cpus, breakpoint_hits},
    catalog::{CATALOG, Hook, Method, Subject},
    module_btf::{self, ModulePrograms},
    on_request::{REF_LOOK, Runner, UIO_FIND_REF},
    plan::{self, Facts, Outcome},
    releases::Releases,
    tracefs::Kretprobes,
};
use crate::{
    event::KernelPtr,
    kernel::{
        KernelFacts, Root, cpus,
        offsets::{self, LockKind, UioLayout},
    },
    model::snapshot::{Probe, ProbeState},
};
use aya::{
    Btf as AyaBtf, Ebpf, EbpfLoader,
    maps::{CgroupArray, Map, MapData, MapError, RingBuf, StackTraceMap},
};
use std::{collections::HashMap, os::fd::AsRawFd, thread::JoinHandle};
use thiserror::Error;
use uio::UioInstance;
use uio_trace_common::offsets::{FILTER_CGROUP, FILTER_COMM, FILTER_PID, Settings};
use zerocopy::IntoBytes;

/// The BPF object of this architecture. Built by `cargo xtask bpf` and checked in with a stamp of its inputs.
#[cfg(target_arch = "x86_64")]
pub(super) static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/uio-trace.x86_64.o");
/// The BPF object of this architecture. Built by `cargo xtask bpf` and checked in with a stamp of its inputs.
#[cfg(target_arch = "aarch64")]
pub(super) static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/uio-trace.aarch64.o");

/// Memory all series together may take, bytes; divided by the number of CPUs.
const SERIES_BUDGET: usize = 32 << 20;
/// Series a CPU gets at least and at most.
const SERIES_RANGE: (usize, usize) = (64, 2048);

/// Whose doings the programs look at; by default everybody's.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// This process.
    pub tgid: Option<u32>,
    /// Threads of this name, as the kernel keeps it.
    pub comm: Option<[u8; COMM]>,
    /// Tasks in the cgroup of [`Session::trace_cgroup`].
    pub cgroup: bool,
}

/// Bytes of a task's name with the NUL at its end: `TASK_COMM_LEN`, include/linux/sched.h.
pub const COMM: usize = 16;

impl Wanted {
    /// Into what the programs read.
    fn set(&self, settings: &mut Settings) {
        if let Some(tgid) = self.tgid {
            settings.filters |= FILTER_PID;
            settings.target_tgid = tgid;
        }
        if let Some(comm) = self.comm {
            settings.filters |= FILTER_COMM;
            let [low, high] = zerocopy::transmute!(comm);
            settings.target_comm_low = low;
            settings.target_comm_high = high;
        }
        if self.cgroup {
            settings.filters |= FILTER_CGROUP;
        }
    }
}

/// What to trace.
#[derive(Debug, Clone, Default)]
pub struct SessionConfig {
    /// Slow threshold, ns.
    pub slow_ns: u64,
    /// Whose UIO operations.
    pub wanted: Wanted,
    /// Messages of the BPF side to the log.
    pub bpf_log: bool,
    /// Bytes of the lifecycle ring; `None`: default.
    pub ring_bytes: Option<u32>,
    /// fentry and fexit on the uio module, though they hold it.
    pub hold_uio: bool,
    /// Told before each hook that is tried at the start: how many have been, of how many.
    pub progress: Option<fn(usize, usize)>,
}

/// Why the tool cannot trace.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The object does not load: maps refused, malformed.
    #[error("the BPF object could not be loaded: {0}")]
    Load(String),
    /// A map the object should have is missing or of another type.
    #[error("BPF map {map}: {cause}")]
    Map {
        /// Name of the map.
        map: &'static str,
        /// Cause.
        cause: String,
    },
}

/// The map with the cgroup of `--cgroup`.
const CGROUP: &str = "CGROUP";

/// A hook and its attachments.
struct Attached {
    hook: &'static Hook,
    outcome: Outcome<Link>,
}

/// What changed in [`Session::follow_uio`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// uio was attached (`Some(true)`) or is gone (`Some(false)`).
    pub uio: Option<bool>,
    /// Rows of [`Session::probes`] changed.
    pub probes: bool,
}

/// The tracing session.
pub struct Session {
    // Before the object: definitions are removed when nothing is attached to them any more.
    hooks: Vec<Attached>,
    kretprobes: Option<Kretprobes>,
    /// Release functions of percpu_refs, attached as kills show them.
    pub releases: Releases,
    ref_look: Runner,
    uio_find_ref: Runner,
    ebpf: Ebpf,
    aya_btf: Option<AyaBtf>,
    root: Root,
    facts: KernelFacts,
    cpus: Vec<u32>,
    uio: Option<UioInstance>,
    uio_layout: Option<UioLayout>,
    /// Attempts to attach to an instance that is still coming up.
    uio_attempts: u32,
    /// fentry and fexit for the module; `None`: not asked for.
    module_programs: Option<Result<ModulePrograms, String>>,
    /// Nothing is attached to the module, so that it can be unloaded: no driver uses it.
    let_go: bool,
    /// Detaching trampolines meanwhile.
    letting_go: Option<JoinHandle<()>>,
    /// Whom to tell how far attaching is; only at the start.
    progress: Option<fn(usize, usize)>,
    addresses: HashMap<&'static str, u64>,
}

/// Hooks that are tried before this one at the start: those of uio come last.
fn tried_before(hook: &Hook) -> usize {
    let (uio, fixed): (Vec<&Hook>, Vec<&Hook>) = CATALOG.iter().partition(|h| h.subject == Subject::Uio);
    let mut order = fixed.into_iter().chain(uio);
    order.position(|h| h == hook).unwrap_or(0)
}

/// Functions a breakpoint may be set on; looked up once.
fn breakpoint_addresses(facts: &KernelFacts) -> HashMap<&'static str, u64> {
    CATALOG
        .iter()
        .flat_map(|hook| hook.ways.iter().flat_map(|way| way.iter()))
        .filter(|attachment| attachment.method == Method::Breakpoint)
        .filter_map(
            |attachment| match facts.symbols.addresses(attachment.target).as_slice() {
                [(address, None)] => Some((attachment.target, *address)),
                _ => None,
            },
        )
        .collect()
}

fn map_error(map: &'static str) -> impl Fn(MapError) -> SessionError {
    move |error| SessionError::Map {
        map,
        cause: error.to_string(),
    }
}

impl Session {
    /// Loads the object and attaches what this kernel allows.
    ///
    /// # Errors
    /// [`SessionError`] when not even the maps can be made; a program that does not attach is a row in [`Session::probes`].
    pub fn start(root: Root, facts: KernelFacts, config: &SessionConfig) -> Result<Session, SessionError> {
        let preempt_rt = facts.version.split_whitespace().any(|word| word == "PREEMPT_RT");
        let mut settings = offsets::settings(facts.btf.as_ref().ok().map(AsRef::as_ref), preempt_rt);
        settings.slow_ns = config.slow_ns;
        config.wanted.set(&mut settings);
        settings.own_tgid = std::process::id();
        settings.per_cpu_offset = facts.symbols.per_cpu_offset();
        settings.possible_cpus = cpus::possible_without_gaps(&root);
        let log_level: u8 = if config.bpf_log {
            aya_log::Level::Trace as u8
        } else {
            0
        };

        let cpus = cpus::online(&root);
        let possible = aya::util::nr_cpus().unwrap_or(cpus.len().max(1));
        let series = (SERIES_BUDGET / (possible * size_of::<uio_trace_common::uio::UioSeries>()))
            .clamp(SERIES_RANGE.0, SERIES_RANGE.1);

        let aya_btf =
            AyaBtf::parse_file(root.join("sys/kernel/btf/vmlinux"), aya::Endianness::default()).ok();
        let mut loader = EbpfLoader::new();
        loader
            .btf(aya_btf.as_ref())
            .override_global("SETTINGS", settings.as_bytes(), true)
            .override_global(aya_log::LEVEL, &log_level, false)
            .map_max_entries("SERIES", series as u32);
        if let Some(bytes) = config.ring_bytes {
            loader
                .map_max_entries("LIFECYCLE", bytes)
                .map_max_entries("SLOW", bytes);
        }
        let mut ebpf = loader
            .load(OBJECT)
            .map_err(|error| SessionError::Load(chain(&error)))?;

        let addresses = breakpoint_addresses(&facts);
        let module_programs = config
            .hold_uio
            .then(|| match module_btf::preempts(&root, &facts.version) {
                Some(reason) => Err(reason),
                None => ModulePrograms::new(OBJECT, &ebpf, module_programs()),
            });
        let has_refs = facts.has_member("percpu_ref_data", "release");
        let releases = Releases::new(&mut ebpf, &root, has_refs);
        let ref_look = Runner::new(&mut ebpf, REF_LOOK, has_refs);
        let uio_find_ref = Runner::new(&mut ebpf, UIO_FIND_REF, has_refs);
        let mut session = Session {
            hooks: Vec::new(),
            kretprobes: Kretprobes::new(),
            releases,
            ref_look,
            uio_find_ref,
            ebpf,
            aya_btf,
            root,
            facts,
            cpus,
            uio: None,
            uio_layout: None,
            uio_attempts: 0,
            module_programs,
            let_go: false,
            letting_go: None,
            progress: config.progress,
            addresses,
        };
        session.attach_fixed();
        session.follow_uio()?;
        session.progress = None;
        Ok(session)
    }

    /// From now on the programs look at tasks in this cgroup, an open folder, and below it.
    ///
    /// # Errors
    /// [`SessionError::Map`] when the kernel does not take it.
    pub fn trace_cgroup(&mut self, folder: &std::fs::File) -> Result<(), SessionError> {
        let map = self.ebpf.map_mut(CGROUP).ok_or_else(|| missing(CGROUP))?;
        CgroupArray::try_from(map)
            .and_then(|mut cgroups| cgroups.set(0, folder.as_raw_fd(), 0))
            .map_err(map_error(CGROUP))
    }

    /// Hooks that do not depend on a module.
    fn attach_fixed(&mut self) {
        for hook in CATALOG {
            if hook.subject == Subject::Uio {
                self.hooks.push(Attached {
                    hook,
                    outcome: plan::waiting(hook, plan::NOT_LOADED),
                });
                continue;
            }
            self.tell_progress(hook);
            let attached = hook.instead_of.filter(|other| {
                self.hooks
                    .iter()
                    .any(|h| h.hook.name == *other && h.outcome.probe.state == ProbeState::Attached)
            });
            let outcome = match attached {
                Some(other) => plan::not_needed(hook, other),
                None => {
                    let mut attacher = AyaAttacher {
                        ebpf: &mut self.ebpf,
                        btf: self.aya_btf.as_ref(),
                        address_of: &|name| self.addresses.get(name).copied(),
                        cpus: &self.cpus,
                        kretprobes: self.kretprobes.as_mut(),
                        module: None,
                    };
                    plan::try_hook(hook, &self.facts, &mut attacher)
                }
            };
            self.hooks.push(Attached { hook, outcome });
        }
    }

    /// Says how far attaching is, before this hook is tried.
    fn tell_progress(&self, hook: &Hook) {
        if let Some(progress) = self.progress {
            progress(tried_before(hook), CATALOG.len());
        }
    }

    /// Puts breakpoints on CPUs that came online. Whether rows of [`Session::probes`] changed.
    pub fn follow_cpus(&mut self) -> bool {
        let online = cpus::online(&self.root);
        if online.is_empty() || online == self.cpus {
            return false;
        }
        let came: Vec<u32> = online
            .iter()
            .copied()
            .filter(|cpu| !self.cpus.contains(cpu))
            .collect();
        for attached in &mut self.hooks {
            let probe = &mut attached.outcome.probe;
            for link in &mut attached.outcome.handles {
                if !matches!(link, Link::Breakpoint { .. }) {
                    continue;
                }
                if let Err(reason) = attach_cpus(&mut self.ebpf, link, &online) {
                    probe.reason = Some(format!("not on every CPU: {reason}"));
                }
                probe.late_cpus.extend(&came);
                probe.late_cpus.sort_unstable();
                probe.late_cpus.dedup();
            }
        }
        self.cpus = online;
        true
    }

    /// A row for each hook.
    pub fn probes(&self) -> Vec<Probe> {
        let mut rows: Vec<Probe> = self.hooks.iter().map(|h| h.outcome.probe.clone()).collect();
        rows.push(self.ref_look.row());
        rows.push(self.uio_find_ref.row());
        rows.extend(self.releases.rows());
        rows
    }

    /// Asks for the memory of these percpu_refs; the answers come through the ring. Whether rows of [`Session::probes`] changed.
    pub fn look_at(&mut self, refs: &[KernelPtr]) -> bool {
        let worked = self.ref_look.works();
        for reference in refs {
            self.ref_look.run(&mut self.ebpf, [reference.0]);
        }
        worked != self.ref_look.works()
    }

    /// Hits of the breakpoints, by program.
    pub fn breakpoint_hits(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let links = self.hooks.iter().flat_map(|hook| &hook.outcome.handles);
        links.filter_map(breakpoint_hits)
    }

    /// Ends the session and gives back what the kernel is.
    pub fn into_facts(self) -> KernelFacts {
        self.facts
    }

    /// What the kernel is.
    pub fn facts(&self) -> &KernelFacts {
        &self.facts
    }

    /// What serialises UIO devices here; `None`: no uio.
    pub fn uio_lock(&self) -> Option<LockKind> {
        self.uio_layout.map(|layout| layout.lock)
    }

    /// Looks for a percpu_ref in a device; one that is there is sent through the ring.
    /// Whether rows of [`Session::probes`] changed.
    pub fn look_into(&mut self, idev: KernelPtr) -> bool {
        let (from, to) = self.uio_layout.map_or((0, 0), |layout| layout.reference);
        if from >= to {
            return false;
        }
        let worked = self.uio_find_ref.works();
        self.uio_find_ref
            .run(&mut self.ebpf, [idev.0, from.into(), to.into()]);
        worked != self.uio_find_ref.works()
    }

    /// One was found: what protects devices is no mutex. Whether that is news.
    pub fn uio_has_ref(&mut self) -> bool {
        let Some(layout) = &mut self.uio_layout else {
            return false;
        };
        std::mem::replace(&mut layout.lock, LockKind::PercpuRef) == LockKind::AssumedMutex
    }

    /// Takes a ring out of the object, to be read by `ingest`.
    ///
    /// # Errors
    /// [`SessionError::Map`] when it is not there (or was taken).
    pub fn take_ring(&mut self, name: &'static str) -> Result<RingBuf<MapData>, SessionError> {
        let map = self.ebpf.take_map(name).ok_or_else(|| missing(name))?;
        RingBuf::try_from(map).map_err(map_error(name))
    }

    /// Takes a map of stacks.
    ///
    /// # Errors
    /// [`SessionError::Map`] when it is not there or no map of stacks.
    pub fn take_stacks(&mut self, name: &'static str) -> Result<StackTraceMap<MapData>, SessionError> {
        let map = self.ebpf.take_map(name).ok_or_else(|| missing(name))?;
        StackTraceMap::try_from(map).map_err(map_error(name))
    }

    /// A map, to be read by `ingest`.
    ///
    /// # Errors
    /// [`SessionError::Map`] when it is not there.
    pub fn map(&self, name: &'static str) -> Result<&Map, SessionError> {
        self.ebpf.map(name).ok_or_else(|| missing(name))
    }

    /// Starts passing on messages of the BPF side.
    ///
    /// # Errors
    /// [`SessionError::Map`] when the object has no log ring.
    pub fn bpf_log<L: log::Log>(&mut self, logger: L) -> Result<aya_log::EbpfLogger<L>, SessionError> {
        aya_log::EbpfLogger::init_with_logger(&mut self.ebpf, logger).map_err(|error| SessionError::Map {
            map: "AYA_LOGS",
            cause: error.to_string(),
        })
    }
}

fn missing(map: &'static str) -> SessionError {
    SessionError::Map {
        map,
        cause: "not in the BPF object".into(),
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_counted_in_the_order_they_are_tried() {
        let mut fixed: Vec<usize> = Vec::new();
        let mut uio: Vec<usize> = Vec::new();
        for hook in CATALOG {
            match hook.subject {
                Subject::Uio => uio.push(tried_before(hook)),
                _ => fixed.push(tried_before(hook)),
            }
        }
        fixed.append(&mut uio);
        assert_eq!(fixed, (0..CATALOG.len()).collect::<Vec<_>>());
    }
}
