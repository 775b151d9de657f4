//! `--cgroup`: found before anything is traced, handed to the programs, and followed while the trace lasts. A service that is
//! restarted gets a new cgroup of the same name: that one is traced then.

use crate::{
    config::TraceConfig,
    error::AppError,
    kernel::{
        Root,
        cgroups::{Cgroup, CgroupError},
    },
    model::snapshot::{Probe, ProbeState},
    probes::session::Session,
    say::say,
};

/// The cgroup that is traced.
pub struct CgroupWatch {
    root: Root,
    cgroup: Cgroup,
    /// Why it is not traced now.
    gone: Option<String>,
    /// Nothing can be said on standard error.
    screens: bool,
}

/// How a row of it is called; the path follows.
const OPTION: &str = "--cgroup";

/// The cgroup's row among the probes.
pub const SUBJECT: &str = "filter";

impl CgroupWatch {
    /// The cgroup that is asked for; `None`: none is.
    ///
    /// # Errors
    /// [`AppError::Usage`]: there is no such cgroup, and which level of the path is missing; [`AppError::Kernel`]: there is no
    /// cgroup v2.
    pub fn start(root: &Root, config: &TraceConfig) -> Result<Option<CgroupWatch>, AppError> {
        let Some(named) = &config.cgroup else {
            return Ok(None);
        };
        let cgroup = Cgroup::find(root, named).map_err(|error| {
            let text = format!("{OPTION} {named}: {error}");
            match error {
                CgroupError::NoHierarchy => AppError::Kernel(text),
                _ => AppError::Usage(text),
            }
        })?;
        Ok(Some(CgroupWatch {
            root: root.clone(),
            cgroup,
            gone: None,
            screens: config.screens,
        }))
    }

    /// Has the programs look at the tasks in it.
    ///
    /// # Errors
    /// When it is gone already, or the kernel does not take it.
    pub fn hand_over(&mut self, session: &mut Session) -> Result<(), AppError> {
        let folder = self
            .cgroup
            .open(&self.root)
            .map_err(|error| AppError::Failed(format!("{OPTION} {}: {error}", self.cgroup.name())))?;
        Ok(session.trace_cgroup(&folder)?)
    }

    /// Looks whether it is still there, or there again; says so. Whether its row changed.
    pub fn follow(&mut self, session: &mut Session) -> bool {
        let now = self.cgroup.now(&self.root);
        let was_gone = self.gone.is_some();
        match now {
            None if was_gone => return false,
            None => {
                self.gone = Some("it was removed; one that gets its name will be traced".into());
                self.tell("was removed; one that gets its name will be traced");
            }
            Some(now) if now == self.cgroup && !was_gone => return false,
            Some(now) => {
                self.cgroup = now;
                match self.hand_over(session) {
                    Ok(()) => {
                        self.gone = None;
                        self.tell("was removed and is there anew: that one is traced now");
                    }
                    // Removed once more between two looks, most likely: the next one tells.
                    Err(error) if was_gone => {
                        let reason = error.to_string();
                        return self.gone.replace(reason.clone()) != Some(reason);
                    }
                    Err(error) => self.gone = Some(error.to_string()),
                }
            }
        }
        true
    }

    fn tell(&self, what: &str) {
        if !self.screens {
            say(format_args!("the cgroup {} {what}", self.cgroup.name()));
        }
    }

    /// Whether a task is in it.
    pub fn has(&self, tid: u32) -> bool {
        self.cgroup.has(&self.root, tid)
    }

    /// Whether it is traced, as a row among the probes.
    pub fn row(&self) -> Probe {
        Probe {
            subject: SUBJECT.into(),
            hook: format!("{OPTION} {}", self.cgroup.name()),
            state: match self.gone {
                None => ProbeState::Attached,
                Some(_) => ProbeState::Failed,
            },
            method: None,
            reason: self.gone.clone(),
            gives: "processes of this cgroup".into(),
            required: false,
            cost: None,
            late_cpus: Vec::new(),
        }
    }
}
