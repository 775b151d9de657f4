//! Release functions of percpu_refs, traced from their owner's first kill on.
//!
//! There are some forty owners, most of them not on this host, and attaching a kprobe takes up to a fraction of a second: so it
//! is done when a kill shows the function, by a thread of its own. It attaches by address, since names have twins (md's
//! `no_op`). Refs that are killed before are ended by the number of their references instead (`model::percpu_ref`).

use super::{attach::explain, catalog::Subject, perf::PerfEvent};
use crate::{
    kernel::{Root, symbols::Symbol},
    model::{
        owners,
        snapshot::{Probe, ProbeState},
    },
};
use aya::{
    Ebpf,
    programs::{KProbe, ProgramError},
};
use std::{
    collections::BTreeMap,
    os::fd::{AsFd, OwnedFd},
    sync::mpsc::{Receiver, Sender, channel},
};

/// The program, one for all functions: it takes the ref from their only argument.
const PROGRAM: &str = "ref_release_kprobe";
/// Functions traced at most: each takes a moment to attach, and to detach at the end.
pub const MAX_RELEASES: usize = 24;

/// A kprobe in place, or why not.
type Attached = Result<PerfEvent, String>;

/// A release function that a kill has shown.
struct Release {
    label: String,
    owner: &'static str,
    /// `None`: being attached.
    attached: Option<Attached>,
}

/// The traced release functions.
pub struct Releases {
    /// `Err`: none can be traced.
    worker: Result<Sender<u64>, String>,
    results: Receiver<(u64, Attached)>,
    by_address: BTreeMap<u64, Release>,
}

/// The program, loaded, and the number of perf's kprobe events.
fn prepare(ebpf: &mut Ebpf, root: &Root) -> Result<(OwnedFd, u32), String> {
    let kind = root
        .text("sys/bus/event_source/devices/kprobe/type")
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or("this kernel has no kprobe events (CONFIG_KPROBE_EVENTS)")?;
    let program: &mut KProbe = ebpf
        .program_mut(PROGRAM)
        .ok_or_else(|| format!("the BPF object has no program {PROGRAM}"))?
        .try_into()
        .map_err(|error: ProgramError| explain(&error))?;
    program.load().map_err(|error| explain(&error))?;
    let fd = program.fd().map_err(|error| explain(&error))?;
    let fd = fd
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| error.to_string())?;
    Ok((fd, kind))
}

fn attach(program: &OwnedFd, kind: u32, address: u64) -> Attached {
    PerfEvent::kprobe(kind, address, program.as_fd()).map_err(|error| error.to_string())
}

impl Releases {
    /// Ready to attach. `needed`: the members of percpu_ref are known.
    pub fn new(ebpf: &mut Ebpf, root: &Root, needed: bool) -> Releases {
        let (send_result, results) = channel();
        let prepared = if needed {
            prepare(ebpf, root)
        } else {
            Err("this kernel's BTF does not have the members of struct percpu_ref".into())
        };
        let worker = prepared.map(|(program, kind)| {
            let (send, wanted) = channel::<u64>();
            std::thread::spawn(move || {
                while let Ok(address) = wanted.recv() {
                    let attached = attach(&program, kind, address);
                    if send_result.send((address, attached)).is_err() {
                        return;
                    }
                }
            });
            send
        });
        Releases {
            worker,
            results,
            by_address: BTreeMap::new(),
        }
    }

    /// A kill has shown this release function.
    pub fn want(&mut self, address: u64, symbol: &Symbol) {
        let known = owners::lookup(&symbol.name);
        // The tool's own trampolines are of no interest, and those of AIO contexts have hooks of their own.
        let of_aio = [owners::AIO_USERS, owners::AIO_REQS].contains(&symbol.name.as_str());
        if of_aio || known.is_some_and(|k| k.own) || self.by_address.contains_key(&address) {
            return;
        }
        let Ok(worker) = &self.worker else { return };
        if self.by_address.len() >= MAX_RELEASES || worker.send(address).is_err() {
            return;
        }
        let label = match &symbol.module {
            Some(module) => format!("{} [{module}]", symbol.name),
            None => symbol.name.clone(),
        };
        // A module that was unloaded and came back somewhere else.
        self.by_address
            .retain(|_, r| r.label != label || symbol.module.is_none());
        self.by_address.insert(
            address,
            Release {
                label,
                owner: known.map_or("an owner that is not known", |k| k.owner),
                attached: None,
            },
        );
    }

    /// Takes in what has been attached meanwhile. Whether rows changed.
    pub fn poll(&mut self) -> bool {
        let mut changed = false;
        while let Ok((address, attached)) = self.results.try_recv() {
            if let Some(release) = self.by_address.get_mut(&address) {
                release.attached = Some(attached);
                changed = true;
            }
        }
        changed
    }

    /// Rows among the probes: one for each function that is attached or failed; one in all while there is none.
    pub fn rows(&self) -> Vec<Probe> {
        let row = |hook: &str, state, reason: Option<String>, gives: String| Probe {
            subject: Subject::PercpuRef.name().into(),
            hook: hook.into(),
            state,
            method: (state == ProbeState::Attached).then(|| "kprobe".into()),
            reason,
            gives,
            required: false,
            cost: None,
            late_cpus: Vec::new(),
        };
        const ALL: &str = "release functions";
        const GIVES: &str = "drain times of refs";
        if let Err(reason) = &self.worker {
            return vec![row(ALL, ProbeState::Failed, Some(reason.clone()), GIVES.into())];
        }
        let rows: Vec<Probe> = self
            .by_address
            .values()
            .filter_map(|release| {
                let (state, reason) = match release.attached.as_ref()? {
                    Ok(_) => (ProbeState::Attached, None),
                    Err(reason) => (ProbeState::Failed, Some(reason.clone())),
                };
                let gives = format!("{GIVES}: {}", release.owner);
                Some(row(&release.label, state, reason, gives))
            })
            .collect();
        if rows.is_empty() {
            let reason =
                "no percpu_ref was killed yet; each owner's is attached at its first kill".to_owned();
            return vec![row(ALL, ProbeState::Waiting, Some(reason), GIVES.into())];
        }
        rows
    }
}
