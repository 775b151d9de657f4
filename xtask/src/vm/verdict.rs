//! What a guest said in the end, read from its results port, and the signs of a hang on its console.
//!
//! Result lines: `UIO-TRACE-UP RELEASE` once user space runs; `UIO-TRACE-TEST NAME ok|FAILED DETAIL` per test;
//! `UIO-TRACE-DATA JSON` for figures; `UIO-TRACE-EXIT STATUS` when the job has ended. A guest that did not say
//! the first and the last is a failure, whatever else it said.

use std::time::Duration;

/// How the run of a guest ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It powered itself off.
    Off,
    /// The console showed this sign of a hang or a crash.
    Hang(String),
    /// It ran longer than allowed.
    Limit(Duration),
    /// It said nothing for too long.
    Silent(Duration),
}

/// Everything known about a guest's run.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// The result lines.
    pub lines: Vec<String>,
    /// The last lines of the console.
    pub console_tail: Vec<String>,
    /// How long it ran.
    pub took: Duration,
}

/// One test's verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Test {
    /// Its name.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// One line of detail.
    pub detail: String,
}

impl Outcome {
    /// The verdict lines.
    pub fn tests(&self) -> Vec<Test> {
        self.lines.iter().filter_map(|line| parse_test(line)).collect()
    }

    /// The figures a guest handed over.
    pub fn data(&self) -> impl Iterator<Item = &str> {
        self.lines
            .iter()
            .filter_map(|line| line.strip_prefix("UIO-TRACE-DATA "))
    }

    /// The exit status of the job.
    pub fn status(&self) -> Option<i32> {
        self.lines
            .iter()
            .find_map(|line| line.strip_prefix("UIO-TRACE-EXIT "))
            .and_then(|text| text.parse().ok())
    }

    /// What is wrong with the guest itself, apart from its tests.
    pub fn problem(&self) -> Option<String> {
        let up = self.lines.iter().any(|line| line.starts_with("UIO-TRACE-UP "));
        match (&self.ended, up, self.status()) {
            (Ended::Hang(marker), _, _) => Some(format!(
                "the guest's console said: {marker} (in translation, with a thread for each processor, kernels do that by themselves \
                 when code is patched: docs/testing.md; --one-thread of `cargo xtask vm` avoids it)"
            )),
            (Ended::Limit(limit), _, _) => Some(format!("the guest ran longer than {} s", limit.as_secs())),
            (Ended::Silent(limit), _, _) => Some(format!("the guest said nothing for {} s", limit.as_secs())),
            (Ended::Off, false, _) => Some("the guest never came up".to_owned()),
            (Ended::Off, true, None) => Some("the guest ended before its job did".to_owned()),
            (Ended::Off, true, Some(_)) => None,
        }
    }
}

/// Reads `UIO-TRACE-TEST NAME ok|FAILED DETAIL`.
pub fn parse_test(line: &str) -> Option<Test> {
    let mut words = line.strip_prefix("UIO-TRACE-TEST ")?.splitn(3, ' ');
    let name = words.next()?.to_owned();
    let passed = match words.next()? {
        "ok" => true,
        "FAILED" => false,
        _ => return None,
    };
    Some(Test {
        name,
        passed,
        detail: words.next().unwrap_or_default().to_owned(),
    })
}

/// The part of a console line that says that the kernel hangs or is broken.
pub fn hang_marker(line: &str) -> Option<&str> {
    const MARKERS: [&str; 11] = [
        "Kernel panic - not syncing",
        "BUG: ",
        "Oops: ",
        "general protection fault",
        "detected stalls on CPUs",
        "self-detected stall",
        "watchdog: BUG: soft lockup",
        "blocked for more than",
        "WARNING: possible",
        "Unable to mount root",
        "Out of memory: ",
    ];
    MARKERS
        .iter()
        .find_map(|marker| line.find(marker))
        .and_then(|start| line.get(start..))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ended: Ended, lines: &[&str]) -> Outcome {
        Outcome {
            ended,
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
            console_tail: Vec::new(),
            took: Duration::from_secs(1),
        }
    }

    #[test]
    fn reads_verdicts() {
        let run = outcome(
            Ended::Off,
            &[
                "UIO-TRACE-UP 6.1",
                "UIO-TRACE-TEST a ok",
                "UIO-TRACE-TEST b FAILED 3 is not 4",
                "UIO-TRACE-EXIT 1",
            ],
        );
        assert_eq!(run.problem(), None);
        assert_eq!(run.status(), Some(1));
        let tests = run.tests();
        assert!(tests[0].passed && !tests[1].passed);
        assert_eq!(tests[1].detail, "3 is not 4");
    }

    #[test]
    fn a_guest_that_never_came_up_is_a_problem() {
        assert!(outcome(Ended::Off, &[]).problem().is_some());
        assert!(outcome(Ended::Off, &["UIO-TRACE-UP 6.1"]).problem().is_some());
        assert!(
            outcome(Ended::Silent(Duration::from_secs(9)), &["UIO-TRACE-EXIT 0"])
                .problem()
                .is_some()
        );
    }

    #[test]
    fn knows_a_hang() {
        assert!(hang_marker("[  1.2] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:").is_some());
        assert!(hang_marker("[  1.2] INFO: task x:12 blocked for more than 120 seconds.").is_some());
        assert!(hang_marker("[  1.2] uio_testbed: loading out-of-tree module taints kernel.").is_none());
    }
}
