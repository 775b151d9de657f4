//! What the programs cost: how often and how long they ran, as the kernel itself counts it while it is asked to.

use super::Session;
use crate::{
    event::ProbeCost,
    probes::{
        attach::Link,
        bpf_call::{self, ProgramCounts},
        catalog::Subject,
    },
};
use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
};

/// Programs at returns of UIO operations: the BPF side notices itself when they did not run.
const UIO_RETURNS: [&str; 2] = ["uio_exit", "uio_fault_exit"];

/// Hits that the kernel ran no program for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Missed {
    /// Entries of UIO operations.
    pub uio: u64,
    /// Of everything else.
    pub others: u64,
}

/// The kernel's statistics, kept while this lives.
pub struct Statistics(#[expect(dead_code, reason = "held open")] OwnedFd);

impl Statistics {
    /// Begins.
    ///
    /// # Errors
    /// A sentence.
    pub fn keep() -> Result<Statistics, String> {
        match bpf_call::keep_statistics() {
            Ok(descriptor) => Ok(Statistics(descriptor)),
            Err(error) => Err(format!(
                "the kernel does not count the time of BPF programs (BPF_ENABLE_STATS, since 5.8): {error}"
            )),
        }
    }
}

impl Session {
    /// A row for each attached hook: how often it was hit, and what its programs took.
    ///
    /// A program that serves several hooks (the return of UIO operations) is told for each of them by its mean, times their own
    /// hits.
    pub fn costs(&self) -> Vec<ProbeCost> {
        let mut known: HashMap<&'static str, ProgramCounts> = HashMap::new();
        let mut rows = Vec::new();
        for attached in &self.hooks {
            let mut programs: Vec<ProgramCounts> = Vec::new();
            for link in &attached.outcome.handles {
                let Some(counts) = self.counts_of(link, &mut known) else {
                    continue;
                };
                programs.push(counts);
            }
            let probe = &attached.outcome.probe;
            rows.extend(row(&probe.subject, &probe.hook, &programs));
        }
        rows
    }

    /// Hits that the kernel ran no program for, over all hooks and since the programs were loaded.
    ///
    /// Not of breakpoints, whose events count their hits themselves; nor of tracepoints, which run into themselves in interrupts
    /// that wait for spinning locks, and these are nothing this tool looks for.
    pub fn programs_missed(&self) -> Missed {
        let mut missed = Missed::default();
        let mut known: HashMap<&'static str, ProgramCounts> = HashMap::new();
        for attached in &self.hooks {
            let sum = match attached.hook.subject {
                Subject::Uio => &mut missed.uio,
                _ => &mut missed.others,
            };
            for link in &attached.outcome.handles {
                let first = match link {
                    Link::Probe(name, _) | Link::ManyCallers(name, _) => {
                        !UIO_RETURNS.contains(name) && !known.contains_key(name)
                    }
                    Link::Fentry(name, _) | Link::Fexit(name, _) => !known.contains_key(name),
                    Link::Trampoline(_) => true,
                    Link::TpBtf(..) | Link::Breakpoint { .. } => false,
                };
                // Once for each program: it may serve several hooks.
                if first && let Some(counts) = self.counts_of(link, &mut known) {
                    *sum += counts.missed;
                }
            }
        }
        missed
    }

    fn counts_of(
        &self,
        link: &Link,
        known: &mut HashMap<&'static str, ProgramCounts>,
    ) -> Option<ProgramCounts> {
        let name = match link {
            Link::Trampoline(trampoline) => {
                let (_, program) = trampoline.program();
                // Each of these is a program of its own.
                return bpf_call::program_counts(program).ok();
            }
            Link::Fentry(name, _)
            | Link::Fexit(name, _)
            | Link::Probe(name, _)
            | Link::TpBtf(name, _)
            | Link::ManyCallers(name, _) => name,
            Link::Breakpoint { program, .. } => program,
        };
        if let Some(counts) = known.get(name) {
            return Some(*counts);
        }
        let program = self.ebpf.program(name)?;
        let counts = bpf_call::program_counts(program.fd().ok()?.as_fd()).ok()?;
        known.insert(name, counts);
        Some(counts)
    }
}

/// Of the first program's runs, which are the hook's hits, and all programs' means.
fn row(subject: &str, hook: &str, programs: &[ProgramCounts]) -> Option<ProbeCost> {
    let hits = programs.first()?.runs;
    let mean = |counts: &ProgramCounts| counts.run_ns as f64 / counts.runs.max(1) as f64;
    let each_ns: f64 = programs.iter().map(mean).sum();
    Some(ProbeCost {
        subject: subject.to_owned(),
        hook: hook.to_owned(),
        hits,
        run_ns: (each_ns * hits as f64) as u64,
        missed: programs.iter().map(|counts| counts.missed).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_return_is_told_by_its_mean() {
        let entry = ProgramCounts {
            runs: 10,
            run_ns: 1_000,
            missed: 1,
        };
        // Of this hook and of others.
        let shared = ProgramCounts {
            runs: 40,
            run_ns: 8_000,
            missed: 2,
        };
        let cost = row("uio", "uio_write", &[entry, shared]).unwrap();
        assert_eq!((cost.hits, cost.run_ns, cost.missed), (10, 3_000, 3));
        assert_eq!(row("uio", "uio_write", &[]), None);
        // Nothing has run: nothing is divided by it.
        let idle = row("uio", "uio_write", &[ProgramCounts::default()]).unwrap();
        assert_eq!((idle.hits, idle.run_ns), (0, 0));
    }
}
