//! Real programs, unchanged: fio with libaio. Its own report says how many jobs there were and how they ended; the kernel's own
//! tracing of system calls how many of their contexts they destroyed (the others are left to their exit).

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::aio::phases;
use super::disks::Disk;
use super::{Guest, LIMIT, same, shortened};
use crate::clock::wait_until;
use crate::tool::{PROGRAM, Records, Tool};

/// The harness copies it from the machine it runs on.
const FIO: &str = "/bin/fio";
const OUTPUT: &str = "/tmp/fio.json";
const JOBS: usize = 4;
/// Each read of the disk, ns.
const READ_NS: u64 = 2_000_000;

/// Reads the disk has completed so far.
fn reads() -> u64 {
    let stat = std::fs::read_to_string("/sys/block/nullb0/stat").unwrap_or_default();
    let first = stat.split_whitespace().next();
    first.and_then(|reads| reads.parse().ok()).unwrap_or(0)
}

/// The kernel's own count of fio's io_destroy(2) calls, in an instance of tracefs.
struct Destroyed;

impl Destroyed {
    const INSTANCE: &str = "/sys/kernel/tracing/instances/testbed";

    fn count() -> Result<Destroyed> {
        if !std::path::Path::new("/sys/kernel/tracing/instances").exists() {
            let mount = Command::new("/bin/busybox")
                .args(["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"])
                .status();
            same("mounting tracefs", mount?.success(), true)?;
        }
        std::fs::create_dir(Self::INSTANCE).context("cannot make an instance of tracefs")?;
        let destroyed = Destroyed;
        let switch = format!("{}/events/syscalls/sys_enter_io_destroy/enable", Self::INSTANCE);
        std::fs::write(&switch, "1").with_context(|| format!("cannot write {switch}"))?;
        Ok(destroyed)
    }

    fn by_fio(&self) -> Result<u64> {
        let trace = format!("{}/trace", Self::INSTANCE);
        let text = std::fs::read_to_string(&trace).with_context(|| format!("cannot read {trace}"))?;
        let lines = text.lines().filter(|line| line.trim_start().starts_with("fio-"));
        Ok(lines.count() as u64)
    }
}

impl Drop for Destroyed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(Self::INSTANCE);
    }
}

/// fio's command line: jobs that read at random for so long.
fn arguments(seconds: u32, threads: bool) -> Vec<String> {
    let _ = std::fs::remove_file(OUTPUT);
    let mut words: Vec<String> = [
        "--name=job",
        "--filename=/dev/nullb0",
        "--rw=randread",
        "--bs=4k",
        "--size=64m",
        "--direct=1",
        "--ioengine=libaio",
        "--iodepth=8",
        "--time_based",
        "--output-format=json",
    ]
    .map(str::to_owned)
    .to_vec();
    words.push(format!("--numjobs={JOBS}"));
    words.push(format!("--runtime={seconds}"));
    words.push(format!("--output={OUTPUT}"));
    if threads {
        words.push("--thread".to_owned());
    }
    words
}

fn start(seconds: u32, threads: bool) -> Result<Child> {
    Command::new(FIO)
        .args(arguments(seconds, threads))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start fio")
}

/// What fio says of its jobs: how many there were. One with an error is a failure.
fn jobs() -> Result<usize> {
    let text = std::fs::read_to_string(OUTPUT).context("fio left no report")?;
    // Its own messages come first.
    let begin = text.find('{').context("fio's report is no JSON")?;
    let report: Value = serde_json::from_str(&text[begin..]).context("fio's report is no JSON")?;
    let jobs = report["jobs"].as_array().context("fio's report has no jobs")?;
    if let Some(failed) = jobs.iter().find(|job| job["error"] != 0) {
        bail!("a job of fio failed: {}", shortened(&failed["error"]));
    }
    Ok(jobs.len())
}

/// What drains of fio's there were.
#[derive(Debug, Default)]
struct Drains {
    processes: BTreeSet<u64>,
    destroyed: u64,
    at_exit: u64,
}

/// All of them have ended, and the phases of each are known.
fn drains(records: &Records) -> Result<Drains> {
    let mut all = Drains::default();
    for drain in records.of("aio_drain").filter(|drain| drain["comm"] == "fio") {
        if drain["wall_ns"].as_u64().is_none_or(|wall| wall == 0) || drain["uncertain"] != false {
            bail!("a drain without its end: {}", shortened(drain));
        }
        phases(drain).with_context(|| shortened(drain))?;
        all.processes.extend(drain["tgid"].as_u64());
        let contexts = drain["contexts"].as_u64().unwrap_or(0);
        match drain["cause"].as_str() {
            Some("io_destroy") => all.destroyed += contexts,
            Some("exit_aio") => all.at_exit += contexts,
            other => bail!("cause {other:?}"),
        }
    }
    Ok(all)
}

/// As many contexts as jobs, those destroyed that the kernel has counted, in so many processes.
fn compare(records: &Records, destroyed: &Destroyed, processes: usize) -> Result<String> {
    let drains = drains(records)?;
    let context = || format!("{drains:?}");
    same("contexts", drains.destroyed + drains.at_exit, JOBS as u64).with_context(context)?;
    same("contexts destroyed", drains.destroyed, destroyed.by_fio()?).with_context(context)?;
    same("processes", drains.processes.len(), processes).with_context(context)?;
    nothing_left(records)?;
    Ok(format!(
        "{JOBS} jobs in {processes} processes: {} contexts destroyed, {} left to the exit",
        drains.destroyed, drains.at_exit
    ))
}

/// Nothing of fio's is left in progress at the end.
fn nothing_left(records: &Records) -> Result<()> {
    let all = records.all();
    let head = all.iter().rposition(|record| record["type"] == "interval");
    let left = all[head.unwrap_or(0)..]
        .iter()
        .find(|record| record["type"] == "in_progress" && record["comm"] == "fio");
    match left {
        Some(row) => bail!("still in progress: {}", shortened(row)),
        None => Ok(()),
    }
}

/// Jobs that are processes.
pub fn fio_processes(_: &Guest) -> Result<String> {
    let _disk = Disk::null_blk(READ_NS)?;
    let destroyed = Destroyed::count()?;
    let tool = Tool::start(&[])?;
    let status = start(2, false)?.wait().context("cannot wait for fio")?;
    same("fio's status", status.code(), Some(0))?;
    let records = tool.finish()?;
    same("jobs in fio's report", jobs()?, JOBS)?;
    compare(&records, &destroyed, JOBS)
}

/// Jobs that are threads of one process.
pub fn fio_threads(_: &Guest) -> Result<String> {
    let _disk = Disk::null_blk(READ_NS)?;
    let destroyed = Destroyed::count()?;
    let tool = Tool::start(&[])?;
    let mut fio = start(2, true)?;
    let pid = u64::from(fio.id());
    let status = fio.wait().context("cannot wait for fio")?;
    same("fio's status", status.code(), Some(0))?;
    let records = tool.finish()?;
    same("jobs in fio's report", jobs()?, JOBS)?;
    same("process", drains(&records)?.processes, BTreeSet::from([pid]))?;
    compare(&records, &destroyed, 1)
}

/// fio interrupted by Ctrl-C in the middle, with requests in flight.
pub fn fio_interrupted(_: &Guest) -> Result<String> {
    let _disk = Disk::null_blk(READ_NS)?;
    let destroyed = Destroyed::count()?;
    let tool = Tool::start(&[])?;
    let mut fio = start(600, false)?;
    let read = wait_until("reads of fio's", LIMIT, || reads() > 200);
    let pid = i32::try_from(fio.id())?;
    // SAFETY: plain integers; fio has not been waited for.
    unsafe { libc::kill(pid, libc::SIGINT) };
    let status = fio.wait().context("cannot wait for fio")?;
    read?;
    let records = tool.finish()?;
    Ok(format!(
        "interrupted ({status}), {}",
        compare(&records, &destroyed, JOBS)?
    ))
}

/// Processes that a process's main thread has forked.
fn children(pid: u32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// fio's jobs killed in the middle: none of them destroys its context, the kernel drains at their exits.
pub fn fio_killed(_: &Guest) -> Result<String> {
    let _disk = Disk::null_blk(READ_NS)?;
    let destroyed = Destroyed::count()?;
    let tool = Tool::start(&[])?;
    let mut fio = start(600, false)?;
    let pid = fio.id();
    let read = wait_until("reads of fio's", LIMIT, || {
        reads() > 200 && children(pid).len() == JOBS
    });
    for job in children(pid) {
        // SAFETY: plain integers; the processes are fio's, which has not ended.
        unsafe { libc::kill(job, libc::SIGKILL) };
    }
    let status = fio.wait().context("cannot wait for fio")?;
    read?;
    same("contexts that fio destroyed", destroyed.by_fio()?, 0)?;
    let records = tool.finish()?;
    Ok(format!(
        "killed ({status}), {}",
        compare(&records, &destroyed, JOBS)?
    ))
}

/// `exec -- fio`: its report has the drains of fio's forked jobs, and its status is fio's.
pub fn exec_fio(_: &Guest) -> Result<String> {
    const DUMP: &str = "/tmp/exec-fio.ndjson";
    let _disk = Disk::null_blk(READ_NS)?;
    let destroyed = Destroyed::count()?;
    let run = |arguments: &[String]| {
        let mut tool = Command::new(PROGRAM)
            .args(["exec", "--force", "--json", "-o", DUMP, "--", FIO])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start exec")?;
        let end = wait_until("the end of exec", Duration::from_secs(240), || {
            tool.try_wait().is_ok_and(|status| status.is_some())
        });
        if end.is_err() {
            let _ = tool.kill();
        }
        let status = tool.wait().context("cannot wait for exec")?;
        end.map(|()| status)
    };
    let status = run(&arguments(2, false))?;
    same("exit status", status.code(), Some(0))?;
    same("jobs in fio's report", jobs()?, JOBS)?;
    let text = std::fs::read_to_string(DUMP).with_context(|| format!("no {DUMP}"))?;
    let records = Records::read(&text)?;
    let seen = compare(&records, &destroyed, JOBS)?;
    // fio itself refuses this, and says so by its status.
    let direct = Command::new(FIO)
        .args(["--name=job", "--ioengine=there-is-none"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot start fio")?;
    let status = run(&["--name=job".to_owned(), "--ioengine=there-is-none".to_owned()])?;
    same("status of a fio that fails", status.code(), direct.code())?;
    Ok(format!("{seen}; status 0, and {:?} as fio's own", status.code()))
}
