//! Whether tracing is possible at all, and if not, whose fault it is and what to do.

use crate::{
    error::AppError,
    kernel::{KernelFacts, lockdown::Lockdown},
    model::snapshot::{Probe, ProbeState},
    probes::catalog::Subject,
};

/// Before anything is loaded: may this user trace?
///
/// # Errors
/// [`AppError::NotPermitted`] naming the missing capabilities and the command that works.
pub fn may_trace(facts: &KernelFacts) -> Result<(), AppError> {
    if !facts.privileges.cannot_trace() {
        return Ok(());
    }
    let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    Err(AppError::NotPermitted(format!(
        "tracing the kernel needs {}; run: sudo uio-trace {command}",
        facts.privileges.missing().join(", ")
    )))
}

/// After loading: does at least one subject work?
///
/// # Errors
/// [`AppError::Kernel`] naming what is missing: lockdown mode, BTF, or the first hook's reason.
pub fn can_trace(facts: &KernelFacts, probes: &[Probe]) -> Result<(), AppError> {
    let tried = probes.iter().filter(|p| p.subject != Subject::Uio.name());
    if tried.clone().any(|p| p.state == ProbeState::Attached) {
        return Ok(());
    }
    Err(AppError::Kernel(why_not(facts, tried)))
}

fn why_not<'a>(facts: &KernelFacts, mut probes: impl Iterator<Item = &'a Probe>) -> String {
    if matches!(facts.lockdown, Lockdown::Integrity | Lockdown::Confidentiality) {
        return format!(
            "this kernel is locked down ({}) and refuses tracing; boot without lockdown= or with Secure Boot off, or trace on \
             another host",
            facts.lockdown.name()
        );
    }
    if let Err(reason) = &facts.btf {
        return format!("this kernel has no BTF ({reason}); it needs CONFIG_DEBUG_INFO_BTF=y");
    }
    let reason = probes
        .find_map(|p| p.reason.clone())
        .unwrap_or_else(|| "no hook attached".into());
    format!(
        "this kernel refuses every hook (lockdown mode: {}): {reason}; see uio-trace check",
        facts.lockdown.name()
    )
}

/// When the BPF object itself is refused: maps need less than programs, so this is permission or memory.
pub fn load_failed(facts: &KernelFacts, error: &crate::probes::session::SessionError) -> AppError {
    if error.to_string().contains("Operation not permitted") {
        return AppError::Kernel(why_not(facts, std::iter::empty()));
    }
    AppError::Failed(format!("{error}; see uio-trace check"))
}
