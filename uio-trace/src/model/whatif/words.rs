//! What makes a range wide, and what it takes for granted.

use super::Figures;
use crate::format::plural;

/// What makes a range wide.
pub(super) enum Wide {
    /// How many threads take part.
    Threads,
    /// How many threads take part at a time, where they come and go.
    Turnover,
    /// Whether the load paused.
    Pauses,
    /// How many CPUs there are.
    Cpus,
    /// Threads that share CPUs.
    SharedCpus,
    /// How much of the CPU time is spinning for the lock.
    Spinning,
    /// How long threads would wait for the CPUs.
    Queueing,
    /// Whether the lock's holder uses its CPU, with fewer CPUs than threads.
    OnCpu { cpus: f64 },
    /// What other work does when there is more of this one: no CPU is idle.
    Others { cpus: f64, others: f64 },
}

impl Wide {
    pub(super) fn words(&self, threads: u64) -> (&'static str, String) {
        match self {
            Wide::Spinning => (
                "spinning_unknown",
                "how much of the threads' CPU time is spinning for the lock, and how much is work, is not known".to_owned(),
            ),
            Wide::Queueing => (
                "queueing_unknown",
                "how long the threads would wait for each other's CPUs is not known".to_owned(),
            ),
            Wide::Threads => (
                "threads_unknown",
                "who held the lock is not known of enough waits to tell how many threads take part"
                    .to_owned(),
            ),
            Wide::Turnover => (
                "threads_unknown",
                "threads come and go, and how many take part at a time is not known".to_owned(),
            ),
            Wide::Pauses => (
                "pauses_unknown",
                "there are too few samples over time to tell pauses of the load from time between operations".to_owned(),
            ),
            Wide::Cpus => ("cpus_unknown", "the number of CPUs is not known".to_owned()),
            Wide::SharedCpus => (
                "shared_cpus",
                "many waits began on the CPU the holder was on: threads share CPUs, and it is not known whether holders \
                 of the lock use theirs or sleep"
                    .to_owned(),
            ),
            Wide::Others { cpus, others } => (
                "cpus_busy",
                format!(
                    "no CPU is idle, and other work than these threads' has {others:.1} of {}",
                    plural(cpus.round() as u64, "CPU"),
                ),
            ),
            Wide::OnCpu { cpus } => (
                "on_cpu_unknown",
                format!(
                    "{} share {}; nearer the lower end if holders of the lock compute, higher if they sleep, which is not known",
                    plural(threads, "thread"),
                    plural(*cpus as u64, "CPU"),
                ),
            ),
        }
    }
}

pub(super) fn assumptions(f: &Figures<'_>, others: Option<f64>) -> Vec<String> {
    let driver = if f.driver_wait_ns > 0 {
        "waits for the driver's locks do not grow"
    } else {
        "the driver has no lock of its own below"
    };
    [
        "the threads go on as before",
        "the rest of an operation takes as long",
        driver,
        match others {
            None => "the CPUs are free",
            Some(_) => "other work keeps its CPUs, or takes more",
        },
    ]
    .map(str::to_owned)
    .to_vec()
}
