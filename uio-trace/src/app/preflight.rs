//! Whether tracing is possible at all, and if not, whose fault it is and what to do.

use super::record::size;
use crate::{
    error::AppError,
    kernel::{KernelFacts, Root, lockdown::Lockdown, memory},
    model::snapshot::{Probe, ProbeState},
    probes::catalog::Subject,
};
use std::{ffi::OsString, path::PathBuf};

/// Before anything is loaded: may this user trace?
///
/// # Errors
/// [`AppError::NotPermitted`] naming the missing capabilities and the command that works.
pub fn may_trace(facts: &KernelFacts) -> Result<(), AppError> {
    if !facts.privileges.cannot_trace() {
        return Ok(());
    }
    Err(AppError::NotPermitted(format!(
        "tracing the kernel needs {}; run: {}",
        facts.privileges.missing().join(", "),
        with_sudo(std::env::current_exe().ok(), std::env::args_os())
    )))
}

/// Rings of the size that is asked for: there are two, lifecycle and slow operations.
const RINGS: u64 = 2;
/// What they may take of the memory that is available: the kernel cannot take it back while the trace runs.
const RINGS_SHARE: u64 = 4;

/// Do rings of this size leave the host enough memory? Where that is not known they do.
///
/// # Errors
/// [`AppError::Usage`] with both numbers, and what would do.
pub fn rings_fit(root: &Root, ring_bytes: Option<u32>) -> Result<(), AppError> {
    let (Some(bytes), Some(available)) = (ring_bytes, memory::available(root)) else {
        return Ok(());
    };
    let needed = RINGS * u64::from(bytes);
    if needed <= available / RINGS_SHARE {
        return Ok(());
    }
    let fits = available / RINGS_SHARE / RINGS / 1024;
    let advice = match fits.checked_ilog2() {
        Some(power) => format!("give {} or less", 1_u64 << power),
        None => "leave it out".to_owned(),
    };
    Err(AppError::Usage(format!(
        "--ring-kib {}: the two rings would take {} of the {} of memory that are available, more than a quarter: {advice}",
        bytes / 1024,
        size(needed),
        size(available),
    )))
}

/// The same command line by way of sudo. sudo has a search path of its own, in which a tool of the user's is not, so the
/// program is named by its place, as it was called where that says it.
fn with_sudo(exe: Option<PathBuf>, arguments: impl Iterator<Item = OsString>) -> String {
    let mut arguments = arguments.map(|word| word.to_string_lossy().into_owned());
    let called = arguments.next().unwrap_or_else(|| "uio-trace".into());
    let program = match exe {
        Some(exe) if !called.contains('/') => exe.to_string_lossy().into_owned(),
        _ => called,
    };
    let words: Vec<String> = std::iter::once(program).chain(arguments).map(quoted).collect();
    format!("sudo {}", words.join(" "))
}

/// A word as a shell takes it for itself.
fn quoted(word: String) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+%@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Subjects that mean something on their own; lock waits only add to UIO's.
const SUBJECTS: [Subject; 3] = [Subject::Uio, Subject::Aio, Subject::PercpuRef];

/// After loading: does at least one subject work?
///
/// # Errors
/// [`AppError::Kernel`] naming what is missing: lockdown mode, BTF, or the first hook's reason.
pub fn can_trace(facts: &KernelFacts, probes: &[Probe]) -> Result<(), AppError> {
    let works = |subject: Subject| {
        let mut required = probes
            .iter()
            .filter(|p| p.required && p.subject == subject.name())
            .peekable();
        required.peek().is_some() && required.all(|p| p.state == ProbeState::Attached)
    };
    if SUBJECTS.into_iter().any(works) {
        return Ok(());
    }
    Err(AppError::Kernel(why_not(
        facts,
        probes.iter().filter(|p| p.state == ProbeState::Failed),
    )))
}

fn why_not<'a>(facts: &KernelFacts, probes: impl Iterator<Item = &'a Probe>) -> String {
    const ADVICE: &str = "boot it without lockdown= and with Secure Boot off, or trace on another host";
    if matches!(facts.lockdown, Lockdown::Integrity | Lockdown::Confidentiality) {
        return format!(
            "this kernel is locked down ({}) and refuses tracing; {ADVICE}",
            facts.lockdown.name()
        );
    }
    if let Err(reason) = &facts.btf {
        return format!("this kernel has no BTF ({reason}); it needs CONFIG_DEBUG_INFO_BTF=y");
    }
    let failed: Vec<&Probe> = probes.collect();
    let refused = failed
        .iter()
        .find(|p| p.reason.as_deref().is_some_and(|r| r.contains(REFUSED)));
    if let Some(probe) = refused {
        // Allowed by its capabilities and refused all the same: a lockdown that cannot be seen, or no BPF tracing at all
        // (kernel/trace/bpf_trace.c is not built without CONFIG_BPF_EVENTS, and some hosters' kernels forbid it).
        let why = match facts.lockdown {
            Lockdown::None => {
                "it is not locked down, so it is built without BPF tracing or a security module forbids it"
            }
            _ => {
                "its lockdown mode cannot be read: it is locked down, built without BPF tracing, or a security module \
                  forbids it"
            }
        };
        return format!(
            "this kernel refuses tracing programs even to a fully privileged user ({}: {REFUSED}); {why}; look for \
             CONFIG_BPF_EVENTS=y in its configuration, or trace on another host",
            probe.hook
        );
    }
    match failed.first() {
        Some(probe) => format!(
            "nothing can be traced on this kernel; {}: {}; see uio-trace check",
            probe.hook,
            probe.reason.as_deref().unwrap_or("not attached")
        ),
        None => "nothing can be traced on this kernel; see uio-trace check".into(),
    }
}

/// How EPERM reads in a hook's reason.
const REFUSED: &str = "Operation not permitted";

/// When the BPF object itself is refused: maps need less than programs, so this is permission or memory.
pub fn load_failed(facts: &KernelFacts, error: &crate::probes::session::SessionError) -> AppError {
    let text = error.to_string();
    if text.contains(REFUSED) {
        return AppError::Kernel(format!("{}: {text}", why_not(facts, std::iter::empty())));
    }
    AppError::Failed(format!("{text}; see uio-trace check"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{KernelFacts, Root};

    fn probe(subject: Subject, required: bool, state: ProbeState, reason: Option<&str>) -> Probe {
        Probe {
            subject: subject.name().into(),
            hook: "kill_ioctx".into(),
            state,
            method: None,
            reason: reason.map(str::to_owned),
            gives: String::new(),
            required,
            cost: None,
            late_cpus: Vec::new(),
        }
    }

    /// A root with BTF missing, or with a minimal one.
    fn facts(lockdown: Lockdown, btf: bool) -> KernelFacts {
        let mut facts = KernelFacts::read(&Root::at("/nonexistent"));
        facts.lockdown = lockdown;
        if btf {
            facts.btf = Ok(Default::default());
        }
        facts
    }

    fn refusal(facts: &KernelFacts, probes: &[Probe]) -> String {
        match can_trace(facts, probes) {
            Err(AppError::Kernel(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rings_leave_the_host_its_memory() {
        let folder = std::env::temp_dir().join(format!("uio-trace-rings-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("proc")).unwrap();
        let root = Root::at(&folder);
        assert!(rings_fit(&root, Some(1 << 30)).is_ok(), "not known");
        let text = "MemTotal:  4194304 kB\nMemFree: 1 kB\nMemAvailable:    3145728 kB\n";
        std::fs::write(folder.join("proc/meminfo"), text).unwrap();
        assert!(rings_fit(&root, None).is_ok());
        assert!(rings_fit(&root, Some(256 << 20)).is_ok());
        let error = rings_fit(&root, Some(1 << 30)).unwrap_err();
        assert_eq!(
            (error.exit_code(), error.to_string().as_str()),
            (
                2,
                "--ring-kib 1048576: the two rings would take 2.0 GiB of the 3.0 GiB of memory that are available, more \
                 than a quarter: give 262144 or less"
            )
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_sudo_command_can_be_pasted() {
        let command =
            |exe: &str, words: &[&str]| with_sudo(Some(PathBuf::from(exe)), words.iter().map(OsString::from));
        assert_eq!(
            command("/usr/bin/uio-trace", &["uio-trace"]),
            "sudo /usr/bin/uio-trace"
        );
        assert_eq!(
            command(
                "/home/a/target/dist/uio-trace",
                &["target/dist/uio-trace", "hist", "1"]
            ),
            "sudo target/dist/uio-trace hist 1"
        );
        assert_eq!(
            command("/bin/uio-trace", &["uio-trace", "hist", "--comm", "it's a name"]),
            r"sudo /bin/uio-trace hist --comm 'it'\''s a name'"
        );
    }

    #[test]
    fn one_working_subject_is_enough_but_lock_waits_alone_are_not() {
        let eperm = Some("fentry: the kernel refused the program: Operation not permitted (os error 1)");
        let lock_only = [
            probe(Subject::Lock, false, ProbeState::Attached, None),
            probe(Subject::Aio, true, ProbeState::Failed, eperm),
            probe(Subject::Uio, true, ProbeState::Waiting, None),
        ];
        let text = refusal(&facts(Lockdown::Unknown, true), &lock_only);
        assert!(
            text.contains("mode cannot be read: it is locked down, built without")
                && text.contains("kill_ioctx"),
            "{text}"
        );
        let text = refusal(&facts(Lockdown::None, true), &lock_only);
        assert!(
            text.contains("not locked down, so it is built without BPF tracing"),
            "{text}"
        );

        let aio = [
            probe(Subject::Aio, true, ProbeState::Attached, None),
            probe(Subject::PercpuRef, true, ProbeState::Failed, None),
        ];
        assert!(can_trace(&facts(Lockdown::None, true), &aio).is_ok());
    }

    #[test]
    fn the_reason_named_is_the_real_one() {
        let failed = [probe(
            Subject::Aio,
            true,
            ProbeState::Failed,
            Some("kprobe: No such file or directory"),
        )];
        assert!(refusal(&facts(Lockdown::Integrity, true), &failed).contains("locked down (integrity)"));
        assert!(refusal(&facts(Lockdown::None, false), &failed).contains("CONFIG_DEBUG_INFO_BTF"));
        assert!(refusal(&facts(Lockdown::None, true), &failed).contains("No such file or directory"));
    }
}
