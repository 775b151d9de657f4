//! `cargo xtask test`: everything that judges a change. Host first, then guests; all failures are collected.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::process::{cargo, describe, progress};
use crate::vm::kernels::{self, KERNELS, KernelSpec, TestSet};
use crate::vm::verdict::{Outcome, parse_test};
use crate::vm::{self, Job, Programs};
use crate::{apt, bpf, paths, perfetto};

/// Arguments of `cargo xtask test`.
#[derive(Debug, Args)]
pub struct TestArgs {
    /// Only what needs no guest.
    #[arg(long)]
    host: bool,
    /// Only this kernel's guest (may be given more than once).
    #[arg(long, value_name = "KERNEL", conflicts_with = "host")]
    guest: Vec<String>,
    /// Only guest tests whose name contains this.
    #[arg(long, conflicts_with = "host")]
    filter: Option<String>,
}

/// What was tried, and what of it failed.
#[derive(Debug, Default)]
struct Summary {
    passed: u32,
    failures: Vec<String>,
}

impl Summary {
    fn merge(&mut self, other: Summary) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
    }

    fn add(&mut self, name: &str, result: Result<()>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(error) => {
                println!("FAILED {name}: {error:#}");
                self.failures.push(format!("{name}: {error:#}"));
            }
        }
    }
}

/// The verb.
pub fn main(arguments: &TestArgs) -> Result<()> {
    let top = paths::workspace()?;
    let mut summary = Summary::default();
    let wants_host = arguments.guest.is_empty() && arguments.filter.is_none();
    if wants_host {
        host(&top, &mut summary);
    }
    if !arguments.host {
        guests(&top, arguments, &mut summary)?;
    }
    println!();
    for failure in &summary.failures {
        println!("FAILED {failure}");
    }
    println!("{} passed, {} failed", summary.passed, summary.failures.len());
    if !summary.failures.is_empty() {
        bail!("{} failed", summary.failures.len());
    }
    Ok(())
}

fn host(top: &Path, summary: &mut Summary) {
    summary.add("bpf object is up to date", bpf::check(top));
    summary.add("formatting", step(cargo(top).args(["fmt", "--all", "--check"])));
    let ebpf = top.join("uio-trace-ebpf");
    summary.add(
        "formatting of the BPF side",
        step(cargo(&ebpf).args(["fmt", "--all", "--check"])),
    );
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ];
    summary.add("clippy", step(cargo(top).args(clippy)));
    // `top` is driven in tmux, and a page of a report looked at in a browser.
    summary.add(
        "packages of the tests",
        apt::ensure_installed(&["tmux", "chromium", "fonts-dejavu-core"]),
    );
    let schema = perfetto::provide(top);
    host_tests(top, schema.as_deref().ok(), summary);
    summary.add("schema of Perfetto's traces", schema.map(drop));
    summary.add("bpf object built anew is the same", bpf::compare(top));
}

/// Runs one command with its output on this terminal.
fn step(command: &mut Command) -> Result<()> {
    progress(describe(command));
    crate::process::run(command)
}

/// Counts the tests of the workspace one by one: cargo's own summaries, one per test binary, are added up.
///
/// `schema`: the folder with Perfetto's; without it the tests that want it fail.
fn host_tests(top: &Path, schema: Option<&Path>, summary: &mut Summary) {
    let mut command = cargo(top);
    if let Some(schema) = schema {
        command.env(perfetto::VARIABLE, schema);
    }
    command.args(["test", "--workspace", "--locked", "--no-fail-fast"]);
    progress(describe(&command));
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return summary.add("cargo test", Err(error.into())),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let (passed, failed) = count_tests(&text);
    summary.passed += passed;
    for name in failed {
        summary.failures.push(name);
    }
    if !output.status.success() && summary.failures.is_empty() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        summary
            .failures
            .push(format!("cargo test ended with {}", output.status));
    }
}

/// Passed tests and names of failed ones in libtest's output.
fn count_tests(text: &str) -> (u32, Vec<String>) {
    let mut passed = 0;
    let mut failed = Vec::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("test ") else {
            continue;
        };
        if rest.ends_with("... ok") {
            passed += 1;
        } else if let Some(name) = rest.strip_suffix(" ... FAILED") {
            failed.push(name.to_owned());
        }
    }
    (passed, failed)
}

fn guests(top: &Path, arguments: &TestArgs, summary: &mut Summary) -> Result<()> {
    let specs: Vec<&'static KernelSpec> = if arguments.guest.is_empty() {
        KERNELS.iter().collect()
    } else {
        arguments
            .guest
            .iter()
            .map(|name| kernels::find(name))
            .collect::<Result<_>>()?
    };
    let programs = vm::build_programs(top)?;
    let (full, smoke): (Vec<&KernelSpec>, Vec<&KernelSpec>) =
        specs.into_iter().partition(|spec| spec.set == TestSet::Full);
    // One at a time: these tests compare times, and two guests would share the same processors.
    for spec in &full {
        let part = timed_guest(spec, FULL, &programs, arguments.filter.as_deref());
        summary.merge(part);
    }
    // These have one thread each, and what they compare of times is not fine. The longest begin first, taken from the end.
    let queue: Mutex<Vec<(&'static KernelSpec, &str)>> = Mutex::new(
        smoke
            .into_iter()
            .rev()
            .map(|spec| (spec, SMOKE))
            .chain(full.into_iter().rev().map(|spec| (spec, PATCHING)))
            .collect(),
    );
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let next = || queue.lock().ok().and_then(|mut queue| queue.pop());
    let parts = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once)
            .map(|_| {
                scope.spawn(|| {
                    let mut all = Summary::default();
                    while let Some((spec, set)) = next() {
                        all.merge(timed_guest(spec, set, &programs, arguments.filter.as_deref()));
                    }
                    all
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| {
                worker.join().unwrap_or_else(|_| Summary {
                    failures: vec!["a thread of the runner panicked".to_owned()],
                    ..Summary::default()
                })
            })
            .collect::<Vec<_>>()
    });
    for part in parts {
        summary.merge(part);
    }
    Ok(())
}

/// A guest, and how long it took.
fn timed_guest(spec: &'static KernelSpec, set: &str, programs: &Programs, filter: Option<&str>) -> Summary {
    let start = Instant::now();
    let mut summary = Summary::default();
    if let Err(error) = guest(spec, set, programs, filter, &mut summary) {
        summary.add(&format!("guest {} ({set})", spec.name), Err(error));
    }
    progress(format!(
        "guest {} ({set}) took {} s",
        spec.name,
        start.elapsed().as_secs()
    ));
    summary
}

/// All tests but those of [`PATCHING`], with a thread for each processor.
const FULL: &str = "full";
/// Those that show on other kernels that everything loads, attaches and counts exactly.
const SMOKE: &str = "smoke";
/// Tests that let the kernel patch code which other processors run. Under QEMU's translation of several processors at a time
/// the kernel oopses then, also by its own kprobes and without the tool (docs/testing.md). So these get a guest in one thread.
const PATCHING: &str = "patching";

/// Sign of QEMU's fault: a breakpoint instruction of a patch, run by another processor after the patch was over. It comes up
/// before any program of ours has run, too (docs/testing.md).
const STALE_CODE: &str = "Oops: int3";
/// How often a guest that ended so may begin again.
const RESTARTS: usize = 2;

/// Boots a guest for a set of tests; one that ends by QEMU's fault is booted anew for the tests that are left.
fn guest(
    spec: &'static KernelSpec,
    set: &str,
    programs: &Programs,
    filter: Option<&str>,
    summary: &mut Summary,
) -> Result<()> {
    let mut done: Option<String> = None;
    for restart in 0.. {
        let outcome = boot(spec, set, programs, filter, done.as_deref())?;
        for test in outcome.tests() {
            let name = format!("{} {}", spec.name, test.name);
            if test.passed {
                summary.passed += 1;
            } else {
                summary.failures.push(format!("{name}: {}", test.detail));
            }
            done = Some(test.name);
        }
        let failed_none = outcome.tests().iter().all(|test| test.passed);
        let problem = outcome.problem().or_else(|| match outcome.status() {
            Some(status) if status != 0 && failed_none => {
                Some(format!("the test runner ended with {status}"))
            }
            _ => None,
        });
        let Some(problem) = problem else {
            return Ok(());
        };
        for line in &outcome.console_tail {
            println!("    {line}");
        }
        let took = outcome.took.as_secs();
        if !problem.contains(STALE_CODE) || set != FULL || restart == RESTARTS {
            bail!("{problem} (after {took} s; its console is in target/guests)");
        }
        let after = done
            .as_deref()
            .map_or_else(String::new, |name| format!(" after {name}"));
        println!(
            "RESTARTED guest {} ({set}): {problem} (after {took} s): QEMU's translation of several processors; it goes on{after}",
            spec.name
        );
    }
    Ok(())
}

/// Programs of this machine that the tests of a set run: a real load, and what makes a file system for it.
fn programs_of(set: &str) -> Result<Vec<PathBuf>> {
    let (packages, programs): (&[&str], &[&str]) = match set {
        PATCHING => (&["fio"], &["/usr/bin/fio"]),
        FULL => (&["e2fsprogs", "strace"], &["/usr/sbin/mke2fs", "/usr/bin/strace"]),
        _ => return Ok(Vec::new()),
    };
    apt::ensure_installed(packages)?;
    let mut programs: Vec<PathBuf> = programs.iter().map(PathBuf::from).collect();
    if set == FULL {
        // Without them their one test fails, and not all others.
        match vm::libaio::provide(&paths::cache()?) {
            Ok(of_libaio) => programs.extend(of_libaio),
            Err(error) => progress(format!("no test programs of libaio: {error:#}")),
        }
    }
    Ok(programs)
}

/// Held while a guest's kernel is fetched and its modules are built.
static FETCHING: Mutex<()> = Mutex::new(());

/// One guest, from boot to end. `after`: only the tests behind that one.
fn boot(
    spec: &'static KernelSpec,
    set: &str,
    programs: &Programs,
    filter: Option<&str>,
    after: Option<&str>,
) -> Result<Outcome> {
    // Some kernels share packages, and are fetched and unpacked by one guest at a time.
    let fetching = FETCHING.lock();
    let kernel = kernels::provide(&paths::cache()?, spec).with_context(|| {
        format!(
            "kernel {} cannot be tested, its packages could not be had from Debian ({})",
            spec.name,
            spec.suite.unwrap_or("this release")
        )
    })?;
    let mut command: Vec<String> = ["testbed", "guest-tests", "--kernel", spec.name, "--set", set]
        .map(str::to_owned)
        .to_vec();
    for (option, value) in [("--filter", filter), ("--after", after)] {
        if let Some(value) = value {
            command.extend([option.to_owned(), value.to_owned()]);
        }
    }
    let job = Job {
        command,
        modules: vm::default_modules(),
        host_programs: programs_of(set)?,
        ..Job::default()
    };
    let mut guest = vm::prepare(&kernel, programs, &job, &format!("test-{set}"))?;
    drop(fetching);
    guest.one_thread = set != FULL;
    // A processor that the machine does not have is taken away from a guest in the middle of a measure.
    guest.smp = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 4) as u32);
    guest.limit = Duration::from_secs(2400);
    // In one thread everything takes turns, attaching five times most of all.
    guest.silence = Duration::from_secs(if guest.one_thread { 900 } else { 240 });
    progress(format!("booting {} ({set} tests)", kernel.release));
    guest.watch(&mut |line| {
        if let Some(test) = parse_test(line) {
            let verdict = if test.passed { "ok" } else { "FAILED" };
            println!("{} {} ... {verdict}  {}", spec.name, test.name, test.detail);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::count_tests;

    #[test]
    fn counts_libtest_lines() {
        let text = "running 3 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest d ... ignored\n\
                    test result: FAILED. 1 passed; 1 failed\n";
        assert_eq!(count_tests(text), (1, vec!["a::c".to_owned()]));
    }
}
