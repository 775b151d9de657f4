//! fio as Debian packages it, unchanged: the drains of its jobs against the processes and threads /proc shows, fio's own report
//! and this process's clock around it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::aio::{phases, words};
use super::disks::Disk;
use super::{Guest, number, same, shortened};
use crate::clock::{monotonic_ns, wait_until};
use crate::tool::{PROGRAM, Records, Tool};

const LIMIT: Duration = Duration::from_secs(120);
/// The disk's time for a read.
const READ_NS: u64 = 20_000_000;
/// Longer than the grace periods of a drain.
const LONG_READ_NS: u64 = 300_000_000;
/// Reads that a job keeps in flight.
const DEPTH: u64 = 8;
const JOBS: u64 = 3;
const OUTPUT: &str = "/tmp/fio.json";

/// How fio runs its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Jobs {
    Processes,
    Threads,
}

/// Jobs that read at random for some seconds.
fn arguments(disk: &Disk, jobs: Jobs, count: u64, seconds: u32) -> Vec<String> {
    let mut words = vec![
        "--output-format=json".to_owned(),
        format!("--output={OUTPUT}"),
        "--name=reader".to_owned(),
        format!("--filename={}", disk.path()),
        "--ioengine=libaio".to_owned(),
        "--direct=1".to_owned(),
        "--rw=randread".to_owned(),
        "--bs=4k".to_owned(),
        "--size=64m".to_owned(),
        format!("--iodepth={DEPTH}"),
        "--time_based".to_owned(),
        format!("--runtime={seconds}"),
        format!("--numjobs={count}"),
    ];
    if jobs == Jobs::Threads {
        words.push("--thread=1".to_owned());
    }
    words
}

/// fio under way.
struct Fio {
    child: Child,
    begin_ns: u64,
}

impl Fio {
    fn start(arguments: &[String]) -> Result<Fio> {
        let _ = std::fs::remove_file(OUTPUT);
        let begin_ns = monotonic_ns();
        let child = Command::new("fio")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start fio")?;
        Ok(Fio { child, begin_ns })
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its exit code, and what it reports of its jobs.
    fn end(&mut self) -> Result<(Option<i32>, Vec<Value>)> {
        let status = self.child.wait().context("cannot wait for fio")?;
        Ok((status.code(), reported()?))
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        // After end() this finds no process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Each job in fio's report.
fn reported() -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(OUTPUT).with_context(|| format!("fio left no {OUTPUT}"))?;
    let begin = text.find('{').context("fio's report has no object")?;
    let report: Value = serde_json::from_str(&text[begin..]).context("fio's report is not JSON")?;
    let jobs = report["jobs"].as_array().context("fio's report has no jobs")?;
    Ok(jobs.clone())
}

/// Processes that a process's main thread has forked.
fn children(pid: u32) -> BTreeSet<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// Threads of a process.
fn threads(pid: u32) -> BTreeSet<u64> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"));
    let names = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

/// Whether a process has an AIO context: its ring is mapped under this name (fs/aio.c, `aio_setup_ring`).
fn has_context(pid: u64) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains("/[aio]"))
}

/// The processes of fio's jobs, once each of them has its context.
fn job_processes(fio: u32, count: u64) -> Result<BTreeSet<u64>> {
    let ready = || {
        let found = children(fio);
        found.len() as u64 == count && found.iter().all(|pid| has_context(*pid))
    };
    wait_until("fio's jobs", LIMIT, ready)?;
    Ok(children(fio))
}

/// Drains by a number of theirs.
fn by<'a>(records: &'a Records, name: &'a str) -> impl Iterator<Item = (u64, &'a Value)> + 'a {
    records
        .of("aio_drain")
        .filter_map(move |drain| Some((drain[name].as_u64()?, drain)))
}

/// There is a drain for each of fio's jobs, of the processes or threads that they are, one context each, by `io_destroy`, which
/// fio calls at a job's end; and nothing else.
fn judge(
    records: &Records,
    jobs: Jobs,
    of: &BTreeSet<u64>,
    fio: u32,
    reports: &[Value],
    times: (u64, u64),
) -> Result<String> {
    let all: Vec<&Value> = records.of("aio_drain").collect();
    same("drains", all.len(), reports.len())?;
    let named = if jobs == Jobs::Threads { "tid" } else { "tgid" };
    let found: BTreeSet<u64> = by(records, named).map(|(id, _)| id).collect();
    match jobs {
        Jobs::Processes => same("processes that drained", &found, of)?,
        // Besides the jobs there are the main thread and a helper.
        Jobs::Threads => {
            same("threads that drained", found.len(), reports.len())?;
            if !found.is_subset(of) || found.contains(&u64::from(fio)) {
                bail!("threads {found:?} drained, fio's are {of:?}");
            }
        }
    }
    let mut shortest = u64::MAX;
    for report in reports {
        same("fio's own error", number(report, "/error")?, 0)?;
        shortest = shortest.min(number(report, "/job_runtime")?);
    }
    let mut longest = 0;
    for drain in &all {
        words(drain, "io_destroy", 1, "single")?;
        phases(drain)?;
        same("comm", drain["comm"].as_str(), Some("fio"))?;
        same("uncertain", drain["uncertain"].as_bool(), Some(false))?;
        if jobs == Jobs::Threads {
            same("tgid", number(drain, "/tgid")?, u64::from(fio))?;
        }
        // fio waits for its reads before it ends a job.
        same("in flight", number(drain, "/in_flight")?, 0)?;
        let (start, wall) = (number(drain, "/start_ns")?, number(drain, "/wall_ns")?);
        if start < times.0 + shortest * 1_000_000 || start + wall > times.1 {
            bail!(
                "a drain at {start} of {wall} ns; fio ran from {} to {}, its jobs {shortest} ms: {}",
                times.0,
                times.1,
                shortened(drain)
            );
        }
        longest = longest.max(wall);
    }
    nothing_left(records)?;
    Ok(format!(
        "{} drains of fio's {jobs:?}, the longest {:.1} ms",
        all.len(),
        longest as f64 / 1e6
    ))
}

/// The last interval has no row of anything that waits.
fn nothing_left(records: &Records) -> Result<()> {
    let all = records.all();
    let last = all.iter().rposition(|record| record["type"] == "interval");
    let row = all[last.context("no interval")?..]
        .iter()
        .find(|record| record["type"] == "in_progress" && record["subject"] == "aio_drain");
    match row {
        Some(row) => bail!("still in progress: {}", shortened(row)),
        None => Ok(()),
    }
}

fn ends_by_itself(jobs: Jobs) -> Result<String> {
    let disk = Disk::null_blk(READ_NS)?;
    let tool = Tool::start(&[])?;
    let mut fio = Fio::start(&arguments(&disk, jobs, JOBS, 3))?;
    let of = match jobs {
        Jobs::Processes => job_processes(fio.pid(), JOBS)?,
        Jobs::Threads => {
            let pid = fio.pid();
            wait_until("fio's jobs", LIMIT, || threads(pid).len() as u64 >= JOBS + 2)?;
            threads(pid)
        }
    };
    let (pid, begin) = (fio.pid(), fio.begin_ns);
    let (code, reports) = fio.end()?;
    let end = monotonic_ns();
    same("fio's exit code", code, Some(0))?;
    same("jobs that fio reports", reports.len() as u64, JOBS)?;
    let records = tool.finish()?;
    judge(&records, jobs, &of, pid, &reports, (begin, end))
}

/// Jobs that are processes.
pub fn processes(_: &Guest) -> Result<String> {
    ends_by_itself(Jobs::Processes)
}

/// Jobs that are threads.
pub fn threads_of_one_process(_: &Guest) -> Result<String> {
    ends_by_itself(Jobs::Threads)
}

/// SIGINT in the middle: fio ends its jobs early, and each drain ends. And SIGKILL: the kernel drains at exit, with the reads that
/// are in flight.
pub fn interrupted_and_killed(_: &Guest) -> Result<String> {
    let disk = Disk::null_blk(LONG_READ_NS)?;
    let mut tool = Tool::start(&["1"])?;
    let mut fio = Fio::start(&arguments(&disk, Jobs::Processes, JOBS, 600))?;
    let interrupted = job_processes(fio.pid(), JOBS)?;
    // SAFETY: plain integers; the child has not been waited for.
    unsafe { libc::kill(i32::try_from(fio.pid())?, libc::SIGINT) };
    let (_, reports) = fio.end()?;
    same("jobs that fio reports", reports.len() as u64, JOBS)?;
    tool.wait_until("a drain of each job", LIMIT, |records| {
        records.of("aio_drain").count() as u64 >= JOBS
    })?;

    let fio = Fio::start(&arguments(&disk, Jobs::Processes, JOBS, 600))?;
    let killed = job_processes(fio.pid(), JOBS)?;
    for pid in &killed {
        // SAFETY: plain integers; the processes are fio's, which has not ended.
        unsafe { libc::kill(i32::try_from(*pid)?, libc::SIGKILL) };
    }
    tool.wait_until("a drain of each job", LIMIT, |records| {
        records.of("aio_drain").count() as u64 >= 2 * JOBS
    })?;
    drop(fio);
    let records = tool.finish()?;
    same("drains", records.of("aio_drain").count() as u64, 2 * JOBS)?;
    let mut reads = 0;
    for (of, cause) in [(&interrupted, "io_destroy"), (&killed, "exit_aio")] {
        for pid in of {
            let [drain] = records.drains(*pid)[..] else {
                bail!("{} drains of job {pid}", records.drains(*pid).len());
            };
            words(drain, cause, 1, "single")?;
            phases(drain)?;
            same("comm", drain["comm"].as_str(), Some("fio"))?;
            let in_flight = number(drain, "/in_flight")?;
            let io = number(drain, "/phases_ns/reqs_io")?;
            if in_flight > DEPTH || io > LONG_READ_NS {
                bail!("{in_flight} reads in flight of {DEPTH}: {}", shortened(drain));
            }
            reads += in_flight;
        }
    }
    nothing_left(&records)?;
    Ok(format!(
        "{JOBS} interrupted, {JOBS} killed with {reads} reads left after their grace periods"
    ))
}

/// `exec -- fio`: the drains are those of the jobs that fio forks, the status is fio's.
pub fn under_exec(_: &Guest) -> Result<String> {
    const DUMP: &str = "/tmp/exec-fio.ndjson";
    let disk = Disk::null_blk(READ_NS)?;
    let _ = std::fs::remove_file(OUTPUT);
    let mut tool = exec(DUMP, &arguments(&disk, Jobs::Processes, JOBS, 3))?;
    let mut of = BTreeSet::new();
    let pid = tool.id();
    let found = wait_until("fio's jobs", LIMIT, || {
        let fio = children(pid).into_iter().find(|child| {
            let name = std::fs::read_to_string(format!("/proc/{child}/comm"));
            name.is_ok_and(|name| name.trim() == "fio")
        });
        if let Some(fio) = fio.and_then(|fio| u32::try_from(fio).ok()) {
            of = children(fio);
        }
        of.len() as u64 == JOBS
    });
    if found.is_err() {
        tool.kill()?;
    }
    let status = tool.wait().context("cannot wait for exec")?;
    found?;
    same("exit status", status.code(), Some(0))?;
    same("jobs that fio reports", reported()?.len() as u64, JOBS)?;
    let text = std::fs::read_to_string(DUMP).with_context(|| format!("cannot read {DUMP}"))?;
    let records = Records::read(&text)?;
    let drained: BTreeSet<u64> = by(&records, "tgid").map(|(tgid, _)| tgid).collect();
    same("processes that drained", &drained, &of)?;
    same("drains", records.of("aio_drain").count() as u64, JOBS)?;
    for drain in records.of("aio_drain") {
        words(drain, "io_destroy", 1, "single")?;
        same("comm", drain["comm"].as_str(), Some("fio"))?;
    }
    // fio refuses an option it does not know; so does a fio that nobody traces.
    let wrong = ["--no-such-option".to_owned()];
    let plain = Command::new("fio").args(&wrong).stdin(Stdio::null()).output()?;
    let _ = std::fs::remove_file(DUMP);
    let status = exec(DUMP, &wrong)?.wait().context("cannot wait for exec")?;
    same("exit status", status.code(), plain.status.code())?;
    if status.success() || !Path::new(DUMP).exists() {
        bail!(
            "a fio that refuses ended with {status}, its dump is there: {}",
            Path::new(DUMP).exists()
        );
    }
    Ok(format!(
        "{JOBS} drains of fio's children, status 0; {status} when fio refuses"
    ))
}

fn exec(dump: &str, arguments: &[String]) -> Result<Child> {
    Command::new(PROGRAM)
        .args(["exec", "--json", "-o", dump, "--", "fio"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start exec")
}
