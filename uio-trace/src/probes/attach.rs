//! Really loading and attaching, with aya. Each program is loaded when its first attachment is tried.

use super::{
    catalog::{Attachment, Method},
    module_btf::{Module, ModulePrograms, Trampoline},
    perf::PerfEvent,
    plan::Attacher,
    tracefs::{KretprobeEvent, Kretprobes},
};
use aya::{
    Btf, Ebpf,
    programs::{
        BtfTracePoint, FEntry, FExit, KProbe, PerfEvent as PerfEventProgram, Program, ProgramError,
        fentry::FEntryLinkId, fexit::FExitLinkId, kprobe::KProbeLinkId, tp_btf::BtfTracePointLinkId,
    },
};
use std::{io, os::fd::AsFd};

/// Attachment of one program.
#[derive(Debug)]
pub enum Link {
    /// fentry
    Fentry(&'static str, FEntryLinkId),
    /// fexit
    Fexit(&'static str, FExitLinkId),
    /// fentry or fexit of a module's function
    Trampoline(Trampoline),
    /// kprobe or kretprobe
    Probe(&'static str, KProbeLinkId),
    /// kretprobe with room for many callers
    ManyCallers(&'static str, KretprobeEvent),
    /// tp_btf
    TpBtf(&'static str, BtfTracePointLinkId),
    /// Breakpoint: one event per CPU.
    Breakpoint {
        /// Program.
        program: &'static str,
        /// Kernel address.
        address: u64,
        /// (CPU, event)
        cpus: Vec<(u32, PerfEvent)>,
        /// Hits on CPUs that went offline since: an event does not come back with its CPU.
        hits_before: u64,
    },
}

/// Attaches programs of a loaded object.
pub struct AyaAttacher<'a> {
    /// The object.
    pub ebpf: &'a mut Ebpf,
    /// vmlinux BTF as aya wants it; `None`: no BTF.
    pub btf: Option<&'a Btf>,
    /// Address of a function.
    pub address_of: &'a dyn Fn(&str) -> Option<u64>,
    /// CPUs online now.
    pub cpus: &'a [u32],
    /// kretprobes by way of tracefs; `None`: not mounted, then the kernel's few instances must do.
    pub kretprobes: Option<&'a mut Kretprobes>,
    /// For functions of a module: where fentry and fexit go. `None`: to vmlinux.
    pub module: Option<(&'a ModulePrograms, &'a Module)>,
}

fn missing(program: &str) -> String {
    format!("the BPF object has no program {program}")
}

/// The kernel's own reason at the end of an error chain; of a verifier log its last line.
pub fn explain(error: &ProgramError) -> String {
    if let ProgramError::LoadError {
        io_error,
        verifier_log,
    } = error
    {
        return refusal(io_error, &verifier_log.to_string());
    }
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    match deepest.downcast_ref::<io::Error>() {
        Some(io_error) => match error {
            ProgramError::SyscallError(call) => format!("{}: {}", call.call, system_error(io_error)),
            _ => system_error(io_error),
        },
        None => deepest.to_string(),
    }
}

/// Why a program was not loaded: the last line of the verifier's log, if there is one, and the kernel's reason.
pub fn refusal(error: &io::Error, log: &str) -> String {
    let last = log
        .lines()
        .rev()
        .find(|line| {
            // After the reason the verifier prints statistics.
            let statistics = ["processed ", "stack depth ", "verification time "];
            !line.trim().is_empty() && !statistics.iter().any(|start| line.starts_with(start))
        })
        .unwrap_or_default();
    if last.is_empty() {
        format!("the kernel refused the program: {}", system_error(error))
    } else {
        format!(
            "the verifier refused the program: {} ({})",
            last.trim(),
            system_error(error)
        )
    }
}

/// The kernel's reason, in words where its own mislead.
pub fn system_error(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EBUSY) => "the function has no ftrace site (EBUSY)".into(),
        Some(libc::ENOSPC) => {
            "no free debug register on a CPU (ENOSPC): a debugger or another tracer holds them".into()
        }
        _ => error.to_string(),
    }
}

/// The program of that name, as what it is.
fn program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P, String>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    ebpf.program_mut(name)
        .ok_or_else(|| missing(name))?
        .try_into()
        .map_err(|e: ProgramError| explain(&e))
}

impl<'a> AyaAttacher<'a> {
    fn attach_probe(&mut self, attachment: &Attachment) -> Result<Link, String> {
        let program: &mut KProbe = program(self.ebpf, attachment.program)?;
        if program.fd().is_err() {
            program.load().map_err(|e| explain(&e))?;
        }
        if attachment.method == Method::Kretprobe
            && let Some(kretprobes) = &mut self.kretprobes
        {
            let program = program.fd().map_err(|e| explain(&e))?;
            // Where tracefs refuses, the plain way is tried: few instances are better than none.
            if let Ok(event) = kretprobes.attach(attachment.target, program.as_fd()) {
                return Ok(Link::ManyCallers(attachment.program, event));
            }
        }
        let link = program.attach(attachment.target, 0).map_err(|e| explain(&e))?;
        Ok(Link::Probe(attachment.program, link))
    }

    fn attach_breakpoint(&mut self, attachment: &Attachment) -> Result<Link, String> {
        let address = (self.address_of)(attachment.target)
            .ok_or_else(|| format!("the address of {} is not known", attachment.target))?;
        let mut link = Link::Breakpoint {
            program: attachment.program,
            address,
            cpus: Vec::new(),
            hits_before: 0,
        };
        if let Err(reason) = attach_cpus(self.ebpf, &mut link, self.cpus) {
            self.detach(link);
            return Err(reason);
        }
        Ok(link)
    }

    fn btf(&self) -> Result<&'a Btf, String> {
        self.btf.ok_or_else(|| "this kernel has no BTF".into())
    }
}

/// Attaches a breakpoint on those of the online `cpus` it is not on yet, and lets go of those that are no more.
///
/// # Errors
/// The first CPU's failure; CPUs attached before stay.
pub fn attach_cpus(ebpf: &mut Ebpf, link: &mut Link, cpus: &[u32]) -> Result<(), String> {
    let Link::Breakpoint {
        program: name,
        address,
        cpus: attached,
        hits_before,
    } = link
    else {
        return Ok(());
    };
    attached.retain(|(cpu, event)| {
        let online = cpus.contains(cpu);
        if !online {
            *hits_before += event.hits().unwrap_or(0);
        }
        online
    });
    let program: &mut PerfEventProgram = program(ebpf, name)?;
    if program.fd().is_err() {
        program.load().map_err(|e| explain(&e))?;
    }
    for &cpu in cpus {
        if attached.iter().any(|(known, _)| *known == cpu) {
            continue;
        }
        let program = program.fd().map_err(|e| explain(&e))?;
        let event = PerfEvent::breakpoint(*address, cpu, program.as_fd())
            .map_err(|e| format!("CPU {cpu}: {}", system_error(&e)))?;
        attached.push((cpu, event));
    }
    Ok(())
}

/// How often a breakpoint was hit on all CPUs since it was set, with the program it runs; `None`: another kind of attachment.
pub fn breakpoint_hits(link: &Link) -> Option<(&'static str, u64)> {
    let Link::Breakpoint {
        program,
        cpus,
        hits_before,
        ..
    } = link
    else {
        return None;
    };
    // An event that cannot be read is of a CPU that is just going offline: less is known, nothing is made up.
    let now: u64 = cpus.iter().map(|(_, event)| event.hits().unwrap_or(0)).sum();
    Some((program, hits_before + now))
}

/// Detaches; failures are of no consequence, the kernel detaches with the descriptors.
pub fn detach(ebpf: &mut Ebpf, kretprobes: Option<&mut Kretprobes>, link: Link) {
    match link {
        Link::ManyCallers(_, event) => {
            if let Some(kretprobes) = kretprobes {
                kretprobes.remove(event);
            }
        }
        Link::Fentry(name, id) => {
            if let Some(Ok(program)) = ebpf.program_mut(name).map(<&mut FEntry>::try_from) {
                let _ = program.detach(id);
            }
        }
        Link::Fexit(name, id) => {
            if let Some(Ok(program)) = ebpf.program_mut(name).map(<&mut FExit>::try_from) {
                let _ = program.detach(id);
            }
        }
        Link::Probe(name, id) => {
            if let Some(Ok(program)) = ebpf.program_mut(name).map(<&mut KProbe>::try_from) {
                let _ = program.detach(id);
            }
        }
        Link::TpBtf(name, id) => {
            if let Some(Ok(program)) = ebpf.program_mut(name).map(<&mut BtfTracePoint>::try_from) {
                let _ = program.detach(id);
            }
        }
        Link::Breakpoint { cpus, .. } => drop(cpus),
        Link::Trampoline(trampoline) => drop(trampoline),
    }
}

impl Attacher for AyaAttacher<'_> {
    type Handle = Link;

    fn attach(&mut self, attachment: &Attachment) -> Result<Link, String> {
        let name = attachment.program;
        if let (Some((programs, module)), Method::Fentry | Method::Fexit) = (self.module, attachment.method) {
            return programs.attach(module, attachment).map(Link::Trampoline);
        }
        match attachment.method {
            Method::Kprobe | Method::Kretprobe => self.attach_probe(attachment),
            Method::Breakpoint => self.attach_breakpoint(attachment),
            Method::Fentry => {
                let btf = self.btf()?;
                let program: &mut FEntry = program(self.ebpf, name)?;
                program.load(attachment.target, btf).map_err(|e| explain(&e))?;
                program
                    .attach()
                    .map(|id| Link::Fentry(name, id))
                    .map_err(|e| explain(&e))
            }
            Method::Fexit => {
                let btf = self.btf()?;
                let program: &mut FExit = program(self.ebpf, name)?;
                program.load(attachment.target, btf).map_err(|e| explain(&e))?;
                program
                    .attach()
                    .map(|id| Link::Fexit(name, id))
                    .map_err(|e| explain(&e))
            }
            Method::TpBtf => {
                let btf = self.btf()?;
                let program: &mut BtfTracePoint = program(self.ebpf, name)?;
                program.load(attachment.target, btf).map_err(|e| explain(&e))?;
                program
                    .attach()
                    .map(|id| Link::TpBtf(name, id))
                    .map_err(|e| explain(&e))
            }
        }
    }

    fn detach(&mut self, handle: Link) {
        detach(self.ebpf, self.kretprobes.as_deref_mut(), handle);
    }
}
