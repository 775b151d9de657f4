//! The loaded BPF object and its attachments for as long as the tool traces.

use super::{
    attach::{AyaAttacher, Link, attach_cpus, breakpoint_hits, detach},
    catalog::{CATALOG, Hook, Subject},
    look::Looker,
    plan::{self, Facts, Outcome},
    releases::Releases,
    tracefs::Kretprobes,
};
use crate::{
    event::KernelPtr,
    kernel::{
        KernelFacts, Root, cpus,
        offsets::{self, LockKind, UioLayout},
        read_btf,
    },
    model::snapshot::{Probe, ProbeState},
};
use aya::{
    Btf as AyaBtf, Ebpf, EbpfLoader, Pod,
    maps::{Array, HashMap as AyaHashMap, Map, MapData, MapError, RingBuf},
};
use std::{collections::HashMap, os::unix::fs::MetadataExt};
use thiserror::Error;
use uio_trace_common::{offsets::UioOffsets, uio::MAX_MINORS};
use zerocopy::IntoBytes;

/// The BPF object of this architecture. Built by `cargo xtask bpf` and checked in with a stamp of its inputs.
#[cfg(target_arch = "x86_64")]
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/uio-trace.x86_64.o");
/// The BPF object of this architecture. Built by `cargo xtask bpf` and checked in with a stamp of its inputs.
#[cfg(target_arch = "aarch64")]
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/uio-trace.aarch64.o");

/// Memory all series together may take, bytes; divided by the number of CPUs.
const SERIES_BUDGET: usize = 32 << 20;
/// Series a CPU gets at least and at most.
const SERIES_RANGE: (usize, usize) = (64, 2048);

/// Where the uio driver shows itself, module or built in.
const UIO_MODULE: &str = "sys/module/uio";

/// What to trace.
#[derive(Debug, Clone, Default)]
pub struct SessionConfig {
    /// Slow threshold, ns.
    pub slow_ns: u64,
    /// Only this process's UIO operations.
    pub target_tgid: Option<u32>,
    /// Messages of the BPF side to the log.
    pub bpf_log: bool,
    /// Bytes of the lifecycle ring; `None`: default.
    pub ring_bytes: Option<u32>,
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

/// `UioState` of the BPF side.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct UioStateValue {
    offsets: UioOffsets,
    epoch: u64,
}
// SAFETY: integers only, no padding (24 + 8 bytes), any bit pattern is a value.
unsafe impl Pod for UioStateValue {}

/// A hook and its attachments.
struct Attached {
    hook: &'static Hook,
    outcome: Outcome<Link>,
}

/// One life of the uio module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct UioInstance {
    /// Inode of its sysfs folder: a new one for each load.
    inode: u64,
}

/// What a row says when its kretprobe has only the instances perf gives it.
const FEW_CALLERS: &str =
    "of more than max(10, 2 x CPUs) calls at once the returns are missed: tracefs is not mounted or refused";

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
    looker: Looker,
    ebpf: Ebpf,
    aya_btf: Option<AyaBtf>,
    root: Root,
    facts: KernelFacts,
    cpus: Vec<u32>,
    uio: Option<UioInstance>,
    uio_layout: Option<UioLayout>,
    /// Attempts to attach to an instance that is still coming up.
    uio_attempts: u32,
    addresses: HashMap<&'static str, u64>,
}

/// Housekeeping rounds an appearing module gets until what does not attach has failed.
const UIO_ATTEMPTS: u32 = 20;

/// Functions a breakpoint may be set on; looked up once.
fn breakpoint_addresses(facts: &KernelFacts) -> HashMap<&'static str, u64> {
    CATALOG
        .iter()
        .flat_map(|hook| hook.ways.iter().flat_map(|way| way.iter()))
        .filter(|attachment| attachment.method == super::catalog::Method::Breakpoint)
        .filter_map(
            |attachment| match facts.symbols.addresses(attachment.target).as_slice() {
                [(address, None)] => Some((attachment.target, *address)),
                _ => None,
            },
        )
        .collect()
}

/// Facts for hooks in a module that came after the symbols were read: the kernel itself says whether a function is there.
struct ModuleFacts<'a>(&'a KernelFacts);

impl plan::Facts for ModuleFacts<'_> {
    fn has_btf(&self) -> bool {
        self.0.has_btf()
    }
    fn has_member(&self, strukt: &str, member: &str) -> bool {
        self.0.has_member(strukt, member)
    }
    fn btf_functions(&self, name: &str) -> u32 {
        self.0.btf_functions(name)
    }
    fn has_tracepoint(&self, name: &str) -> bool {
        self.0.has_tracepoint(name)
    }
    fn has_symbol(&self, _name: &str, _module: Option<&str>) -> Option<bool> {
        None
    }
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
        settings.target_tgid = config.target_tgid.unwrap_or(0);
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
        let has_refs = facts.has_member("percpu_ref_data", "release");
        let releases = Releases::new(&mut ebpf, &root, has_refs);
        let looker = Looker::new(&mut ebpf, has_refs);
        let mut session = Session {
            hooks: Vec::new(),
            kretprobes: Kretprobes::new(),
            releases,
            looker,
            ebpf,
            aya_btf,
            root,
            facts,
            cpus,
            uio: None,
            uio_layout: None,
            uio_attempts: 0,
            addresses,
        };
        session.attach_fixed();
        session.follow_uio()?;
        Ok(session)
    }

    /// Hooks that do not depend on a module.
    fn attach_fixed(&mut self) {
        for hook in CATALOG {
            if hook.subject == Subject::Uio {
                self.hooks.push(Attached {
                    hook,
                    outcome: plan::waiting(hook),
                });
                continue;
            }
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
                    };
                    plan::try_hook(hook, &self.facts, &mut attacher)
                }
            };
            self.hooks.push(Attached { hook, outcome });
        }
    }

    /// The uio module's current life.
    fn uio_instance(&self) -> Option<UioInstance> {
        match std::fs::metadata(self.root.join(UIO_MODULE)) {
            Ok(folder) => Some(UioInstance { inode: folder.ino() }),
            // Built in, and then without a folder of its own unless it has parameters.
            Err(_) => self
                .facts
                .symbols
                .has("uio_write", None)
                .then_some(UioInstance { inode: 0 }),
        }
    }

    /// Attaches to or lets go of the uio module as it comes and goes. To be called several times a second.
    ///
    /// # Errors
    /// [`SessionError::Map`] when a map refuses.
    pub fn follow_uio(&mut self) -> Result<Changes, SessionError> {
        let now = self.uio_instance();
        let mut changes = Changes::default();
        if now != self.uio {
            if self.uio.is_some() {
                self.detach_uio();
                changes.uio = Some(false);
                changes.probes = true;
            }
            self.uio = now;
            self.uio_attempts = 0;
        }
        if self.uio.is_some() && self.uio_attempts < UIO_ATTEMPTS && !self.uio_attached() {
            self.uio_attempts += 1;
            // A module that is up does not get better by waiting.
            let live = self
                .root
                .text("sys/module/uio/initstate")
                .is_ok_and(|state| state == "live");
            let last = live || self.uio_attempts == UIO_ATTEMPTS;
            if last {
                self.uio_attempts = UIO_ATTEMPTS;
            }
            if self.attach_uio(last)? {
                changes.uio = Some(true);
                changes.probes = true;
            } else if last {
                changes.probes = true;
            }
        }
        Ok(changes)
    }

    /// Whether writes of the present module are traced.
    pub fn uio_attached(&self) -> bool {
        self.hooks.iter().any(|h| {
            h.hook.subject == Subject::Uio && h.hook.required && h.outcome.probe.state == ProbeState::Attached
        })
    }

    /// BTF of the module. `Err`: not there yet.
    fn uio_btf(&self, last_attempt: bool) -> Result<Option<crate::kernel::btf::Btf>, ()> {
        let path = self.root.join("sys/kernel/btf/uio");
        if path.exists() {
            return Ok(read_btf(&path, self.facts.btf.as_ref().ok()).ok());
        }
        // With module BTF in this kernel the file may be about to appear.
        let modules_have_btf =
            std::fs::read_dir(self.root.join("sys/kernel/btf")).is_ok_and(|folder| folder.count() > 1);
        if modules_have_btf && !last_attempt && self.uio.is_some_and(|uio| uio.inode != 0) {
            return Err(());
        }
        Ok(None)
    }

    fn attach_uio(&mut self, last_attempt: bool) -> Result<bool, SessionError> {
        let Ok(module) = self.uio_btf(last_attempt) else {
            return Ok(false);
        };
        let vmlinux = self.facts.btf.as_ref().ok().map(AsRef::as_ref);
        let Some(layout) = offsets::uio_layout(vmlinux, module.as_ref()) else {
            self.fail_uio("no BTF: the layout of struct uio_device is not known");
            return Ok(false);
        };
        self.uio_layout = Some(layout);
        self.set_uio_state(layout.offsets)?;
        self.new_uio_generations()?;
        for index in 0..self.hooks.len() {
            let hook = self.hooks[index].hook;
            if hook.subject != Subject::Uio {
                continue;
            }
            let mut attacher = AyaAttacher {
                ebpf: &mut self.ebpf,
                btf: self.aya_btf.as_ref(),
                address_of: &|_| None,
                cpus: &self.cpus,
                kretprobes: self.kretprobes.as_mut(),
            };
            let mut outcome = plan::try_hook(hook, &ModuleFacts(&self.facts), &mut attacher);
            let failed = outcome.probe.state != ProbeState::Attached;
            if !failed
                && !outcome
                    .handles
                    .iter()
                    .any(|link| matches!(link, Link::ManyCallers(_)))
            {
                outcome.probe.reason = Some(FEW_CALLERS.into());
            }
            self.hooks[index].outcome = outcome;
            if failed && hook.required && !last_attempt {
                // Still coming up: all or nothing, so that no operation is seen by half of the hooks.
                self.detach_uio();
                return Ok(false);
            }
        }
        self.set_uio_state(UioOffsets {
            armed: 1,
            ..layout.offsets
        })?;
        Ok(self.uio_attached())
    }

    fn fail_uio(&mut self, reason: &str) {
        for attached in &mut self.hooks {
            if attached.hook.subject == Subject::Uio {
                attached.outcome.probe.state = ProbeState::Failed;
                attached.outcome.probe.reason = Some(reason.to_owned());
            }
        }
    }

    fn detach_uio(&mut self) {
        for attached in &mut self.hooks {
            if attached.hook.subject != Subject::Uio {
                continue;
            }
            for link in attached.outcome.handles.drain(..) {
                detach(&mut self.ebpf, self.kretprobes.as_mut(), link);
            }
            attached.outcome = plan::waiting(attached.hook);
        }
    }

    fn set_uio_state(&mut self, uio_offsets: UioOffsets) -> Result<(), SessionError> {
        let map = self
            .ebpf
            .map_mut("UIO_STATE")
            .ok_or_else(|| missing("UIO_STATE"))?;
        let mut state: Array<&mut MapData, UioStateValue> = map.try_into().map_err(map_error("UIO_STATE"))?;
        let epoch = state.get(&0, 0).map_or(0, |old| old.epoch).wrapping_add(1);
        state
            .set(
                0,
                UioStateValue {
                    offsets: uio_offsets,
                    epoch,
                },
                0,
            )
            .map_err(map_error("UIO_STATE"))
    }

    /// A module that was away may have registered other devices at the old addresses: every minor that had a device gets its
    /// next generation, unless its unregistration was seen and gave it that already.
    fn new_uio_generations(&mut self) -> Result<(), SessionError> {
        let map = self
            .ebpf
            .map_mut("DEVICE_GENERATION")
            .ok_or_else(|| missing("DEVICE_GENERATION"))?;
        let mut known: AyaHashMap<&mut MapData, u64, u32> =
            map.try_into().map_err(map_error("DEVICE_GENERATION"))?;
        let generation_of: HashMap<u64, u32> = known.iter().filter_map(Result::ok).collect();
        for device in generation_of.keys() {
            known.remove(device).map_err(map_error("DEVICE_GENERATION"))?;
        }
        if generation_of.is_empty() {
            return Ok(());
        }
        let map = self
            .ebpf
            .map_mut("MINOR_DEVICE")
            .ok_or_else(|| missing("MINOR_DEVICE"))?;
        let mut minors: Array<&mut MapData, u64> = map.try_into().map_err(map_error("MINOR_DEVICE"))?;
        let mut ended = Vec::new();
        for minor in 0..MAX_MINORS {
            let device = minors.get(&minor, 0).map_err(map_error("MINOR_DEVICE"))?;
            if let Some(generation) = generation_of.get(&device) {
                ended.push((minor, generation + 1));
                minors.set(minor, 0, 0).map_err(map_error("MINOR_DEVICE"))?;
            }
        }
        let map = self
            .ebpf
            .map_mut("GENERATIONS")
            .ok_or_else(|| missing("GENERATIONS"))?;
        let mut generations: Array<&mut MapData, u32> = map.try_into().map_err(map_error("GENERATIONS"))?;
        for (minor, next) in ended {
            if generations.get(&minor, 0).map_err(map_error("GENERATIONS"))? < next {
                generations
                    .set(minor, next, 0)
                    .map_err(map_error("GENERATIONS"))?;
            }
        }
        Ok(())
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
        rows.push(self.looker.row());
        rows.extend(self.releases.rows());
        rows
    }

    /// Asks for the memory of these percpu_refs; the answers come through the ring. Whether rows of [`Session::probes`] changed.
    pub fn look_at(&mut self, refs: &[KernelPtr]) -> bool {
        self.looker.look(&mut self.ebpf, refs)
    }

    /// Whether [`Session::probes`] are others than these.
    pub fn probes_differ(&self, before: &[Probe]) -> bool {
        let now = self.hooks.iter().map(|hook| &hook.outcome.probe);
        !now.eq(before)
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

    /// Takes a ring out of the object, to be read by `ingest`.
    ///
    /// # Errors
    /// [`SessionError::Map`] when it is not there (or was taken).
    pub fn take_ring(&mut self, name: &'static str) -> Result<RingBuf<MapData>, SessionError> {
        let map = self.ebpf.take_map(name).ok_or_else(|| missing(name))?;
        RingBuf::try_from(map).map_err(map_error(name))
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
