//! Looking at the memory of a percpu_ref that has been dying for long: a program that is attached to nothing is run with its
//! address (BPF_PROG_TEST_RUN, raw tracepoints: 5.10 and later) and sends what it finds through the ring.

use super::{attach::explain, catalog::Subject};
use crate::{
    event::KernelPtr,
    model::{
        percpu_ref::LOOK_HOOK,
        snapshot::{Probe, ProbeState},
    },
};
use aya::{
    Ebpf, TestRun,
    programs::{ProgramError, RawTracePoint, RawTracePointRunOptions},
};

/// The program.
const PROGRAM: &str = "ref_look";

/// Looks, if this kernel lets it.
pub struct Looker {
    state: Result<(), String>,
}

fn program(ebpf: &mut Ebpf) -> Result<&mut RawTracePoint, String> {
    ebpf.program_mut(PROGRAM)
        .ok_or_else(|| format!("the BPF object has no program {PROGRAM}"))?
        .try_into()
        .map_err(|error: ProgramError| explain(&error))
}

impl Looker {
    /// Loads the program. `needed`: the members of percpu_ref are known.
    pub fn new(ebpf: &mut Ebpf, needed: bool) -> Looker {
        let state = if needed {
            program(ebpf).and_then(|program| program.load().map_err(|error| explain(&error)))
        } else {
            Err("this kernel's BTF does not have the members of struct percpu_ref".into())
        };
        Looker { state }
    }

    /// Looks at each; the answers come through the ring. Whether its row changed: a kernel that refuses is not asked again.
    pub fn look(&mut self, ebpf: &mut Ebpf, refs: &[KernelPtr]) -> bool {
        if refs.is_empty() || self.state.is_err() {
            return false;
        }
        let result = program(ebpf).and_then(|program| {
            for reference in refs {
                let mut options = RawTracePointRunOptions::new();
                options.args[0] = reference.0;
                program.test_run(options).map_err(|error| explain(&error))?;
            }
            Ok(())
        });
        self.state = result;
        self.state.is_err()
    }

    /// Its row among the probes.
    pub fn row(&self) -> Probe {
        Probe {
            subject: Subject::PercpuRef.name().into(),
            hook: LOOK_HOOK.into(),
            state: if self.state.is_ok() {
                ProbeState::Attached
            } else {
                ProbeState::Failed
            },
            method: self.state.is_ok().then(|| "test_run".into()),
            reason: self.state.as_ref().err().cloned(),
            gives: "references left of refs that die for long, and ends that were missed".into(),
            required: false,
            late_cpus: Vec::new(),
        }
    }
}
