//! Reading maps without losing the CPU in the middle.
//!
//! While a task is in a system call that reads a BPF map, the kernel leaves out the programs of kprobes and perf events on that
//! task's CPU (kernel/bpf/syscall.c: `bpf_disable_instrumentation`; kernel/trace/bpf_trace.c: `trace_call_bpf`; 5.10 to 7.2). A
//! kernel that preempts may give the CPU to another task right then, and all that this one does for milliseconds goes unseen.

/// As long as it lives, only real-time tasks take the CPU from this thread.
pub struct Undisturbed {
    before: Option<(libc::c_int, libc::sched_param)>,
}

impl Undisturbed {
    /// Begins, where `needed`. Where the kernel does not permit it nothing changes; what the reading costs then is counted
    /// (`program_missed`).
    pub fn begin(needed: bool) -> Undisturbed {
        Undisturbed {
            before: needed.then(raise).flatten(),
        }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        if let Some((policy, parameter)) = self.before {
            // SAFETY: the parameter is a valid struct that the call only reads; 0 is the calling thread.
            unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) };
        }
    }
}

/// To the lowest real-time priority; what it was before, or `None` when nothing was changed.
fn raise() -> Option<(libc::c_int, libc::sched_param)> {
    let mut before = libc::sched_param { sched_priority: 0 };
    // SAFETY: no pointer; 0 is the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    // SAFETY: the parameter is a valid struct that the call fills in; 0 is the calling thread.
    let got = unsafe { libc::sched_getparam(0, &raw mut before) };
    if policy < 0 || got != 0 {
        return None;
    }
    if [libc::SCHED_FIFO, libc::SCHED_RR].contains(&(policy & !libc::SCHED_RESET_ON_FORK)) {
        return None;
    }
    let raised = libc::sched_param { sched_priority: 1 };
    // SAFETY: as above; the call only reads it.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const raised) };
    (done == 0).then_some((policy, before))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> libc::c_int {
        // SAFETY: no pointer; 0 is the calling thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn the_policy_is_put_back() {
        let before = policy();
        let guard = Undisturbed::begin(true);
        // Not everywhere may a test do this.
        let expected = if guard.before.is_some() {
            libc::SCHED_FIFO
        } else {
            before
        };
        assert_eq!(policy(), expected);
        // A second one within changes nothing, and puts nothing back.
        drop(Undisturbed::begin(true));
        assert_eq!(policy(), expected);
        drop(guard);
        assert_eq!(policy(), before);
        drop(Undisturbed::begin(false));
        assert_eq!(policy(), before);
    }
}
