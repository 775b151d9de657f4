//! What is attached to the uio module, as it comes and goes.

use super::{AyaAttacher, Changes, Session, SessionError, map_error, missing};
use crate::{
    kernel::{KernelFacts, btf::Btf, offsets, read_btf},
    model::snapshot::ProbeState,
    probes::{
        attach::{Link, detach},
        catalog::{CATALOG, Method, Subject},
        module_btf::Module,
        plan::{self, Facts},
    },
};
use aya::{
    Pod,
    maps::{Array, HashMap as AyaHashMap, MapData},
};
use std::{collections::HashMap, os::unix::fs::MetadataExt};
use uio_trace_common::{offsets::UioOffsets, uio::MAX_MINORS};

/// Where the uio driver shows itself, module or built in.
const UIO_MODULE: &str = "sys/module/uio";

/// `UioState` of the BPF side.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct UioStateValue {
    offsets: UioOffsets,
    epoch: u64,
}
// SAFETY: integers only, no padding (24 + 8 bytes), any bit pattern is a value.
unsafe impl Pod for UioStateValue {}

/// One life of the uio module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UioInstance {
    /// Inode of its sysfs folder: a new one for each load.
    inode: u64,
}

/// What a row says when its kretprobe has only the instances perf gives it.
const FEW_CALLERS: &str =
    "of more than max(10, 2 x CPUs) calls at once the returns are missed: tracefs is not mounted or refused";

/// Housekeeping rounds an appearing module gets until what does not attach has failed.
const UIO_ATTEMPTS: u32 = 20;

/// Whether fentry and fexit are to be used on the module's functions.
enum Trampolines {
    /// Nobody asked for them.
    Unasked,
    /// Why they cannot be had.
    Refused(String),
    /// The module to attach them to.
    On(Box<Module>),
}

/// Facts for hooks in a module that came after the symbols were read: the kernel itself says whether a function is there.
struct ModuleFacts<'a>(&'a KernelFacts, &'a Trampolines);

impl Facts for ModuleFacts<'_> {
    fn has_btf(&self) -> bool {
        self.0.has_btf()
    }
    fn has_member(&self, strukt: &str, member: &str) -> bool {
        self.0.has_member(strukt, member)
    }
    fn btf_functions(&self, name: &str) -> u32 {
        match self.1 {
            // A twin elsewhere counts: before 6.3 the kernel looks for the address by the name alone.
            Trampolines::On(module) => {
                let symbols = self.0.symbols.addresses(name);
                let twins = symbols.iter().filter(|(_, owner)| *owner != Some("uio")).count();
                module.btf().function_count(name) + twins as u32
            }
            _ => 0,
        }
    }
    fn has_tracepoint(&self, name: &str) -> bool {
        self.0.has_tracepoint(name)
    }
    fn has_symbol(&self, _name: &str, _module: Option<&str>) -> Option<bool> {
        None
    }
    fn unasked(&self, method: Method) -> bool {
        matches!(method, Method::Fentry | Method::Fexit) && matches!(self.1, Trampolines::Unasked)
    }
    fn refused(&self, method: Method) -> Option<String> {
        match self.1 {
            Trampolines::Refused(reason) if matches!(method, Method::Fentry | Method::Fexit) => {
                Some(reason.clone())
            }
            _ => None,
        }
    }
}

/// Programs for functions of the uio module that aya cannot load.
pub(in crate::probes) fn module_programs() -> impl Iterator<Item = &'static str> {
    CATALOG
        .iter()
        .filter(|hook| hook.subject == Subject::Uio)
        .flat_map(|hook| hook.ways.iter().flat_map(|way| way.iter()))
        .filter(|attachment| matches!(attachment.method, Method::Fentry | Method::Fexit))
        .map(|attachment| attachment.program)
}

impl Session {
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
                self.detach_uio(plan::UNLOADED);
                changes.uio = Some(false);
                changes.probes = true;
            }
            self.uio = now;
            self.uio_attempts = 0;
            self.let_go = false;
        }
        if self.uio.is_some() && self.would_hold_uio() {
            let in_use = self.uio_in_use();
            if !in_use && !self.let_go {
                self.let_go_of_uio();
                changes.probes = true;
            } else if in_use && self.let_go {
                self.uio_attempts = 0;
            }
            self.let_go = !in_use;
        }
        // Two sets of programs on one function would count everything twice.
        self.letting_go.take_if(|thread| thread.is_finished());
        if self.let_go || self.letting_go.is_some() {
            return Ok(changes);
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

    /// Whether what is attached to the module, or would be, keeps it from being unloaded.
    fn would_hold_uio(&self) -> bool {
        let mut links = self
            .hooks
            .iter()
            .filter(|h| h.hook.subject == Subject::Uio)
            .flat_map(|h| &h.outcome.handles)
            .peekable();
        let nothing_yet = links.peek().is_none();
        matches!(self.module_programs, Some(Ok(_)))
            && (nothing_yet || links.any(|link| matches!(link, Link::Trampoline(_))))
    }

    /// Whether a driver uses the module; without one it has no devices, and nothing to be traced. (An open device holds its
    /// driver.)
    fn uio_in_use(&self) -> bool {
        // Where there is no such folder, modules are not unloaded at all.
        std::fs::read_dir(self.root.join(UIO_MODULE).join("holders"))
            .map_or(true, |mut holders| holders.next().is_some())
    }

    /// Detaches from a module nobody uses. The kernel waits for a grace period of RCU tasks for each trampoline, together for
    /// seconds, so that is done by a thread.
    fn let_go_of_uio(&mut self) {
        let mut links = Vec::new();
        for attached in &mut self.hooks {
            if attached.hook.subject == Subject::Uio {
                links.append(&mut attached.outcome.handles);
                attached.outcome = plan::waiting(attached.hook, plan::UNUSED);
            }
        }
        let (trampolines, others): (Vec<Link>, Vec<Link>) = links
            .into_iter()
            .partition(|link| matches!(link, Link::Trampoline(_)));
        for link in others {
            detach(&mut self.ebpf, self.kretprobes.as_mut(), link);
        }
        // Where no thread is to be had, the closure is dropped here, and what it holds with it.
        let spawned = std::thread::Builder::new()
            .name("let-go-of-uio".into())
            .spawn(move || drop(trampolines));
        self.letting_go = spawned.ok();
    }

    /// Whether writes of the present module are traced.
    pub fn uio_attached(&self) -> bool {
        self.hooks.iter().any(|h| {
            h.hook.subject == Subject::Uio && h.hook.required && h.outcome.probe.state == ProbeState::Attached
        })
    }

    /// BTF of the module. `Err`: not there yet.
    fn uio_btf(&self, last_attempt: bool) -> Result<Option<Btf>, ()> {
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
        let trampolines = match &self.module_programs {
            None => Trampolines::Unasked,
            Some(Err(reason)) => Trampolines::Refused(reason.clone()),
            Some(Ok(_)) => match Module::find("uio", module) {
                Ok(module) => Trampolines::On(Box::new(module)),
                Err(reason) => Trampolines::Refused(reason),
            },
        };
        self.set_uio_state(layout.offsets)?;
        self.new_uio_generations()?;
        for index in 0..self.hooks.len() {
            let hook = self.hooks[index].hook;
            if hook.subject != Subject::Uio {
                continue;
            }
            self.tell_progress(hook);
            let mut attacher = AyaAttacher {
                ebpf: &mut self.ebpf,
                btf: self.aya_btf.as_ref(),
                address_of: &|_| None,
                cpus: &self.cpus,
                kretprobes: self.kretprobes.as_mut(),
                module: match (&self.module_programs, &trampolines) {
                    (Some(Ok(programs)), Trampolines::On(module)) => Some((programs, module)),
                    _ => None,
                },
            };
            let mut outcome = plan::try_hook(hook, &ModuleFacts(&self.facts, &trampolines), &mut attacher);
            let failed = outcome.probe.state != ProbeState::Attached;
            if !failed
                && !outcome
                    .handles
                    .iter()
                    .any(|link| matches!(link, Link::ManyCallers(..) | Link::Trampoline(_)))
            {
                outcome.probe.reason = Some(FEW_CALLERS.into());
            }
            self.hooks[index].outcome = outcome;
            if failed && hook.required && !last_attempt {
                // Still coming up: all or nothing, so that no operation is seen by half of the hooks.
                self.detach_uio(plan::NOT_LOADED);
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

    fn detach_uio(&mut self, reason: &str) {
        for attached in &mut self.hooks {
            if attached.hook.subject != Subject::Uio {
                continue;
            }
            for link in attached.outcome.handles.drain(..) {
                detach(&mut self.ebpf, self.kretprobes.as_mut(), link);
            }
            attached.outcome = plan::waiting(attached.hook, reason);
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
}
