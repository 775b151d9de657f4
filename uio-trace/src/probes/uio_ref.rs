//! Whether a UIO device has a percpu_ref in place of info_lock, by its memory: a program that is attached to nothing is run
//! with the device's address (BPF_PROG_TEST_RUN, raw tracepoints: 5.10 and later).

use super::{attach::explain, catalog::Subject};
use crate::{
    event::KernelPtr,
    model::snapshot::{Probe, ProbeState},
};
use aya::{
    Ebpf, TestRun,
    programs::{ProgramError, RawTracePoint, RawTracePointRunOptions},
};

/// The program.
const PROGRAM: &str = "uio_find_ref";

/// Looks into devices, if this kernel lets it.
pub struct RefFinder {
    state: Result<(), String>,
}

fn program(ebpf: &mut Ebpf) -> Result<&mut RawTracePoint, String> {
    ebpf.program_mut(PROGRAM)
        .ok_or_else(|| format!("the BPF object has no program {PROGRAM}"))?
        .try_into()
        .map_err(|error: ProgramError| explain(&error))
}

impl RefFinder {
    /// Loads the program. `needed`: the members of percpu_ref are known.
    pub fn new(ebpf: &mut Ebpf, needed: bool) -> RefFinder {
        let state = if needed {
            program(ebpf).and_then(|program| program.load().map_err(|error| explain(&error)))
        } else {
            Err("this kernel's BTF does not have the members of struct percpu_ref".into())
        };
        RefFinder { state }
    }

    /// Looks for a percpu_ref between these offsets of the device; one that is there is sent through the ring. False: it
    /// cannot be told.
    pub fn find(&mut self, ebpf: &mut Ebpf, idev: KernelPtr, range: (u32, u32)) -> bool {
        if self.state.is_err() || range.0 >= range.1 {
            return false;
        }
        let mut options = RawTracePointRunOptions::new();
        options.args[..3].copy_from_slice(&[idev.0, range.0.into(), range.1.into()]);
        self.state = program(ebpf)
            .and_then(|program| program.test_run(options).map_err(|error| explain(&error)))
            .map(drop);
        self.state.is_ok()
    }

    /// Its row among the probes.
    pub fn row(&self) -> Probe {
        Probe {
            subject: Subject::Uio.name().into(),
            hook: "look into a uio_device".into(),
            state: if self.state.is_ok() {
                ProbeState::Attached
            } else {
                ProbeState::Failed
            },
            method: self.state.is_ok().then(|| "test_run".into()),
            reason: self.state.as_ref().err().cloned(),
            gives: "whether a device has a percpu_ref in place of info_lock, and that one's release".into(),
            late_cpus: Vec::new(),
            required: false,
        }
    }
}
