//! Trying the ways of each hook in order, each on its own: one failure costs one hook. Pure but for the [`Attacher`], so it is
//! tested with fakes and recorded kernels.

use super::catalog::{Attachment, Hook, Method, Subject};
use crate::{
    kernel::KernelFacts,
    model::snapshot::{Probe, ProbeState},
};

/// What really loads and attaches.
pub trait Attacher {
    /// Handle of an attachment, to take it back.
    type Handle;

    /// Loads and attaches one program.
    ///
    /// # Errors
    /// One sentence for the user: what failed and the kernel's reason.
    fn attach(&mut self, attachment: &Attachment) -> Result<Self::Handle, String>;

    /// Takes an attachment back.
    fn detach(&mut self, handle: Self::Handle);
}

/// What decides before anything is loaded.
pub trait Facts {
    /// Whether vmlinux has BTF.
    fn has_btf(&self) -> bool;
    /// Whether `strukt.member` exists.
    fn has_member(&self, strukt: &str, member: &str) -> bool;
    /// How many functions of that name BTF knows in vmlinux.
    fn btf_functions(&self, name: &str) -> u32;
    /// Whether BTF knows the tracepoint.
    fn has_tracepoint(&self, name: &str) -> bool;
    /// Whether a function of exactly this name exists (in `module` if named); `None`: symbols cannot be read.
    fn has_symbol(&self, name: &str, module: Option<&str>) -> Option<bool>;
    /// Whether ways by this method are passed over without a word, as nobody asked for them.
    fn unasked(&self, _method: Method) -> bool {
        false
    }
    /// Why the method is not to be had here, whatever the function.
    fn refused(&self, _method: Method) -> Option<String> {
        None
    }
}

impl Facts for KernelFacts {
    fn has_btf(&self) -> bool {
        self.btf.is_ok()
    }

    fn has_member(&self, strukt: &str, member: &str) -> bool {
        self.btf
            .as_ref()
            .is_ok_and(|btf| btf.offset_of(strukt, member).is_some())
    }

    fn btf_functions(&self, name: &str) -> u32 {
        self.btf.as_ref().map_or(0, |btf| btf.function_count(name))
    }

    fn has_tracepoint(&self, name: &str) -> bool {
        self.btf.as_ref().is_ok_and(|btf| btf.has_tracepoint(name))
    }

    fn has_symbol(&self, name: &str, module: Option<&str>) -> Option<bool> {
        if self.symbols.hidden() {
            return None;
        }
        Some(match module {
            Some(module) => self.symbols.has(name, Some(module)),
            None => !self.symbols.addresses(name).is_empty(),
        })
    }
}

/// A hook after trying: its row, and the handles to take it back.
#[derive(Debug)]
pub struct Outcome<H> {
    /// For `check`, the probes screen and `meta.probes`.
    pub probe: Probe,
    /// Attachments in use.
    pub handles: Vec<H>,
}

fn row(hook: &Hook, state: ProbeState, method: Option<String>, reason: Option<String>) -> Probe {
    Probe {
        subject: hook.subject.name().into(),
        hook: hook.name.into(),
        state,
        method,
        reason,
        gives: hook.gives.into(),
        required: hook.required,
        cost: None,
        late_cpus: Vec::new(),
    }
}

/// Why a hook waits: its module is not there.
pub const NOT_LOADED: &str = "module uio is not loaded; it is attached when it appears";
/// Why a hook waits: its module was there and is not any more.
pub const UNLOADED: &str = "module uio was unloaded, and is attached when it appears again";
/// Why a hook waits: what attaches it would hold a module that nobody else uses.
pub const UNUSED: &str = "no driver uses module uio: it is let go of, so that it can be unloaded";

/// A row for a hook that cannot be attached yet.
pub fn waiting<H>(hook: &Hook, reason: &str) -> Outcome<H> {
    Outcome {
        probe: row(hook, ProbeState::Waiting, None, Some(reason.to_owned())),
        handles: Vec::new(),
    }
}

/// A row for a hook another one makes superfluous.
pub fn not_needed<H>(hook: &Hook, other: &str) -> Outcome<H> {
    let reason = format!("{other} is in use");
    Outcome {
        probe: row(hook, ProbeState::NotNeeded, None, Some(reason)),
        handles: Vec::new(),
    }
}

/// Tries a hook's ways.
pub fn try_hook<A: Attacher>(hook: &Hook, facts: &dyn Facts, attacher: &mut A) -> Outcome<A::Handle> {
    if let Some((strukt, member)) = hook.needs.iter().find(|(s, m)| !facts.has_member(s, m)) {
        let reason = if facts.has_btf() {
            format!("this kernel's struct {strukt} has no member {member}")
        } else {
            format!("no BTF (CONFIG_DEBUG_INFO_BTF): the place of {strukt}.{member} is not known")
        };
        return Outcome {
            probe: row(hook, ProbeState::Failed, None, Some(reason)),
            handles: Vec::new(),
        };
    }
    let mut reasons: Vec<String> = Vec::new();
    let asked = hook
        .ways
        .iter()
        .filter(|way| !way.iter().any(|attachment| facts.unasked(attachment.method)));
    for way in asked {
        let mut handles = Vec::new();
        let mut failure = None;
        for attachment in *way {
            match precheck(attachment, facts).map_or_else(|| attacher.attach(attachment), Err) {
                Ok(handle) => handles.push(handle),
                Err(reason) => {
                    failure = Some(format!("{}: {reason}", attachment.method.name()));
                    break;
                }
            }
        }
        match failure {
            None => {
                let method = way.iter().map(|a| a.method.name()).collect::<Vec<_>>();
                let mut names: Vec<&str> = Vec::new();
                for name in method {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                names.sort_unstable();
                let reason = (!reasons.is_empty()).then(|| reasons.join("; "));
                return Outcome {
                    probe: row(hook, ProbeState::Attached, Some(names.join("+")), reason),
                    handles,
                };
            }
            Some(reason) => {
                for handle in handles {
                    attacher.detach(handle);
                }
                reasons.push(reason);
            }
        }
    }
    Outcome {
        probe: row(hook, ProbeState::Failed, None, Some(reasons.join("; "))),
        handles: Vec::new(),
    }
}

/// What makes trying pointless; `None`: try.
fn precheck(attachment: &Attachment, facts: &dyn Facts) -> Option<String> {
    let (module, name) = match attachment.target.split_once(':') {
        Some((module, name)) => (Some(module), name),
        None => (None, attachment.target),
    };
    if let Some(reason) = facts.refused(attachment.method) {
        return Some(reason);
    }
    match attachment.method {
        Method::Fentry | Method::Fexit => {
            if !facts.has_btf() {
                return Some("this kernel has no BTF".into());
            }
            match facts.btf_functions(name) {
                0 => return Some(format!("this kernel has no function {name} in its BTF")),
                1 => {}
                n => {
                    return Some(format!(
                        "{name} occurs {n} times in BTF, the kernel would pick one blindly"
                    ));
                }
            }
        }
        Method::TpBtf => {
            return (!facts.has_tracepoint(name)).then(|| format!("this kernel has no tracepoint {name}"));
        }
        Method::Kprobe | Method::Kretprobe | Method::Breakpoint => {}
    }
    match facts.has_symbol(name, module) {
        Some(true) => None,
        Some(false) => Some(format!("this kernel has no function {}", attachment.target)),
        None if attachment.method == Method::Breakpoint => Some(
            "kernel addresses are hidden: CAP_SYSLOG is needed, and kernel.kptr_restrict below 2 (sysctl)"
                .into(),
        ),
        None => None,
    }
}

/// Whether a required hook of the subject failed: the sentence why the subject cannot be shown.
pub fn blocked<'a>(probes: impl IntoIterator<Item = &'a Probe>, subject: Subject) -> Option<String> {
    probes
        .into_iter()
        .find(|p| p.subject == subject.name() && p.required && p.state == ProbeState::Failed)
        .map(|p| format!("{}: {}", p.hook, p.reason.as_deref().unwrap_or("not attached")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::catalog::CATALOG;

    /// A kernel in which everything exists but what is listed.
    #[derive(Default)]
    struct Kernel {
        no_btf: bool,
        missing_tracepoints: bool,
        missing_members: Vec<&'static str>,
        twins: Vec<&'static str>,
        unasked: Vec<Method>,
        refused: Vec<Method>,
    }

    impl Facts for Kernel {
        fn has_btf(&self) -> bool {
            !self.no_btf
        }
        fn has_member(&self, strukt: &str, _member: &str) -> bool {
            !self.no_btf && !self.missing_members.contains(&strukt)
        }
        fn btf_functions(&self, name: &str) -> u32 {
            1 + u32::from(self.twins.contains(&name))
        }
        fn has_tracepoint(&self, _name: &str) -> bool {
            !self.missing_tracepoints
        }
        fn has_symbol(&self, _name: &str, _module: Option<&str>) -> Option<bool> {
            Some(true)
        }
        fn unasked(&self, method: Method) -> bool {
            self.unasked.contains(&method)
        }
        fn refused(&self, method: Method) -> Option<String> {
            self.refused.contains(&method).then(|| "not here".to_owned())
        }
    }

    /// Refuses the methods listed, remembers what is attached.
    #[derive(Default)]
    struct Fake {
        refuse: Vec<Method>,
        refuse_programs: Vec<&'static str>,
        attached: Vec<&'static str>,
    }

    impl Attacher for Fake {
        type Handle = &'static str;
        fn attach(&mut self, attachment: &Attachment) -> Result<&'static str, String> {
            if self.refuse.contains(&attachment.method) || self.refuse_programs.contains(&attachment.program)
            {
                return Err("refused".into());
            }
            self.attached.push(attachment.program);
            Ok(attachment.program)
        }
        fn detach(&mut self, handle: &'static str) {
            self.attached.retain(|p| *p != handle);
        }
    }

    fn hook(name: &str) -> &'static Hook {
        CATALOG.iter().find(|h| h.name == name).unwrap()
    }

    #[test]
    fn the_first_way_that_works_is_taken() {
        let mut fake = Fake::default();
        let outcome = try_hook(hook("io_destroy"), &Kernel::default(), &mut fake);
        assert_eq!(outcome.probe.state, ProbeState::Attached);
        assert_eq!(outcome.probe.method.as_deref(), Some("fentry+fexit"));
        assert_eq!(outcome.probe.reason, None);
    }

    #[test]
    fn a_refused_half_takes_the_other_half_back_and_says_why() {
        let mut fake = Fake {
            refuse_programs: vec!["io_destroy_entry"],
            ..Fake::default()
        };
        let outcome = try_hook(hook("io_destroy"), &Kernel::default(), &mut fake);
        assert_eq!(outcome.probe.method.as_deref(), Some("kprobe+kretprobe"));
        assert_eq!(outcome.probe.reason.as_deref(), Some("fentry: refused"));
        assert_eq!(fake.attached, ["io_destroy_kretprobe", "io_destroy_kprobe"]);
    }

    #[test]
    fn a_way_nobody_asked_for_is_passed_over_and_one_that_is_refused_is_told() {
        let mut fake = Fake::default();
        let asked = try_hook(hook("uio_write"), &Kernel::default(), &mut fake);
        assert_eq!(asked.probe.method.as_deref(), Some("fentry+fexit"));
        let unasked = Kernel {
            unasked: vec![Method::Fentry, Method::Fexit],
            ..Kernel::default()
        };
        let outcome = try_hook(hook("uio_write"), &unasked, &mut fake);
        assert_eq!(outcome.probe.method.as_deref(), Some("kprobe+kretprobe"));
        assert_eq!(outcome.probe.reason, None);
        let refused = Kernel {
            refused: vec![Method::Fentry, Method::Fexit],
            ..Kernel::default()
        };
        let outcome = try_hook(hook("uio_write"), &refused, &mut fake);
        assert_eq!(outcome.probe.method.as_deref(), Some("kprobe+kretprobe"));
        assert_eq!(outcome.probe.reason.as_deref(), Some("fentry: not here"));
    }

    #[test]
    fn when_no_way_works_every_reason_is_told() {
        let mut fake = Fake {
            refuse: vec![Method::Kprobe, Method::Breakpoint],
            ..Fake::default()
        };
        let outcome = try_hook(hook("percpu_ref_kill_and_confirm"), &Kernel::default(), &mut fake);
        assert_eq!(outcome.probe.state, ProbeState::Failed);
        assert_eq!(
            outcome.probe.reason.as_deref(),
            Some("breakpoint: refused; kprobe: refused")
        );
        assert!(outcome.handles.is_empty() && fake.attached.is_empty());
        assert!(blocked([&outcome.probe], Subject::PercpuRef).is_some());
        assert!(blocked([&outcome.probe], Subject::Aio).is_none());
    }

    #[test]
    fn facts_are_asked_before_anything_is_tried() {
        let old = Kernel {
            missing_tracepoints: true,
            ..Kernel::default()
        };
        let mut fake = Fake::default();
        let outcome = try_hook(hook("contention_begin/end"), &old, &mut fake);
        assert!(
            outcome
                .probe
                .reason
                .unwrap()
                .contains("no tracepoint contention_end")
        );

        let older = Kernel {
            missing_members: vec!["percpu_ref_data"],
            ..Kernel::default()
        };
        let outcome = try_hook(hook("percpu_ref_kill_and_confirm"), &older, &mut fake);
        assert!(
            outcome
                .probe
                .reason
                .unwrap()
                .contains("struct percpu_ref_data has no member release")
        );

        let twin = Kernel {
            twins: vec!["__x64_sys_io_destroy", "__arm64_sys_io_destroy"],
            ..Kernel::default()
        };
        let outcome = try_hook(hook("io_destroy"), &twin, &mut fake);
        assert_eq!(outcome.probe.method.as_deref(), Some("kprobe+kretprobe"));

        let no_btf = Kernel {
            no_btf: true,
            ..Kernel::default()
        };
        let outcome = try_hook(hook("kill_ioctx"), &no_btf, &mut fake);
        assert!(outcome.probe.reason.unwrap().contains("no BTF"));
    }
}
