//! Programs that are attached to nothing: they are run with arguments (BPF_PROG_TEST_RUN, raw tracepoints: 5.10 and later) and
//! send what they find in the kernel's memory through the ring.

use super::{attach::explain, catalog::Subject};
use crate::model::{
    percpu_ref::LOOK_HOOK,
    snapshot::{Probe, ProbeState},
};
use aya::{
    Ebpf, TestRun,
    programs::{ProgramError, RawTracePoint, RawTracePointRunOptions},
};

/// A program to run.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    program: &'static str,
    subject: Subject,
    hook: &'static str,
    gives: &'static str,
}

/// The memory of a percpu_ref that has been dying for long. Its argument: the ref.
pub const REF_LOOK: Request = Request {
    program: "ref_look",
    subject: Subject::PercpuRef,
    hook: LOOK_HOOK,
    gives: "references left of refs that die for long, and ends that were missed",
};

/// Whether a UIO device has a percpu_ref in place of info_lock. Its arguments: the device, and the offsets to look between.
pub const UIO_FIND_REF: Request = Request {
    program: "uio_find_ref",
    subject: Subject::Uio,
    hook: "look into a uio_device",
    gives: "whether a device has a percpu_ref in place of info_lock, and that one's release",
};

/// A request, as long as this kernel lets it run.
pub struct Runner {
    request: Request,
    state: Result<(), String>,
}

impl Runner {
    /// Loads the program. `needed`: the members of percpu_ref are known.
    pub fn new(ebpf: &mut Ebpf, request: Request, needed: bool) -> Runner {
        let mut runner = Runner {
            request,
            state: Ok(()),
        };
        runner.state = if needed {
            runner
                .program(ebpf)
                .and_then(|program| program.load().map_err(|error| explain(&error)))
        } else {
            Err("this kernel's BTF does not have the members of struct percpu_ref".into())
        };
        runner
    }

    fn program<'a>(&self, ebpf: &'a mut Ebpf) -> Result<&'a mut RawTracePoint, String> {
        ebpf.program_mut(self.request.program)
            .ok_or_else(|| format!("the BPF object has no program {}", self.request.program))?
            .try_into()
            .map_err(|error: ProgramError| explain(&error))
    }

    /// Runs it; what it finds comes through the ring. False: it did not run. A kernel that refuses is not asked again.
    pub fn run<const N: usize>(&mut self, ebpf: &mut Ebpf, arguments: [u64; N]) -> bool {
        if self.state.is_err() {
            return false;
        }
        let mut options = RawTracePointRunOptions::new();
        for (place, argument) in options.args.iter_mut().zip(arguments) {
            *place = argument;
        }
        self.state = self
            .program(ebpf)
            .and_then(|program| program.test_run(options).map_err(|error| explain(&error)))
            .map(drop);
        self.state.is_ok()
    }

    /// Whether it can be run.
    pub fn works(&self) -> bool {
        self.state.is_ok()
    }

    /// Its row among the probes.
    pub fn row(&self) -> Probe {
        Probe {
            subject: self.request.subject.name().into(),
            hook: self.request.hook.into(),
            state: if self.works() {
                ProbeState::Attached
            } else {
                ProbeState::Failed
            },
            method: self.works().then(|| "test_run".into()),
            reason: self.state.as_ref().err().cloned(),
            gives: self.request.gives.into(),
            cost: None,
            late_cpus: Vec::new(),
            required: false,
        }
    }
}
