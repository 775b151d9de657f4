//! Who waits for what, when several threads of a process end contexts: two that call io_destroy(2) at the same time, and one that
//! is in it when its process is killed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::aio::{phases, words};
use super::disks::Disk;
use super::hangs::{Storage, gone, row_of, stack_has};
use super::{Guest, LIMIT, near, number, same, shortened, workload};
use crate::clock::wait_until;
use crate::tool::Tool;

const READ_NS: u64 = 300_000_000;
const THREADS: u64 = 2;
const CONTEXTS: u64 = 4;
const READS: u64 = 3;
const TOLERANCE: f64 = 0.05;
const FLOOR_NS: f64 = 3_000_000.0;

/// A drain is what one waiter waits for: of two threads each has its own, of its own contexts, one after another, and the two
/// lie side by side, as the threads' own clocks say.
pub fn two_threads(_: &Guest) -> Result<String> {
    let disk = Disk::null_blk(READ_NS)?;
    let tool = Tool::start(&[])?;
    let load = workload(&format!(
        "aio-threads --threads {THREADS} --contexts {CONTEXTS} --in-flight {READS} --file {}",
        disk.path()
    ))?;
    let records = tool.finish()?;
    let drains = records.drains(number(&load, "/tgid")?);
    let threads = load["threads"].as_array().context("no threads")?;
    same("drains", drains.len(), threads.len())?;
    let (mut first_end, mut last_begin) = (u64::MAX, 0);
    for thread in threads {
        let tid = number(thread, "/tid")?;
        let drain = drains.iter().find(|drain| drain["tid"] == tid);
        let drain = drain.with_context(|| format!("no drain of thread {tid}"))?;
        words(drain, "io_destroy", CONTEXTS, "serial")?;
        phases(drain)?;
        same("uncertain", drain["uncertain"].as_bool(), Some(false))?;
        let (begin, end) = (number(thread, "/begin_ns")?, number(thread, "/end_ns")?);
        let (start, wall) = (number(drain, "/start_ns")?, number(drain, "/wall_ns")?);
        near(
            "wall time",
            wall as f64,
            (end - begin) as f64,
            TOLERANCE,
            FLOOR_NS,
        )?;
        if start < begin || start + wall > end {
            bail!("not within {begin} to {end}: {}", shortened(drain));
        }
        first_end = first_end.min(start + wall);
        last_begin = last_begin.max(start);
    }
    if last_begin >= first_end {
        bail!("the drains of two threads that destroy at the same time do not overlap");
    }
    Ok(format!(
        "{} drains of {CONTEXTS} contexts, side by side for {:.1} ms",
        drains.len(),
        (first_end - last_begin) as f64 / 1e6
    ))
}

/// A thread is in io_destroy(2), its reads do not come back, and its process is killed: the thread stays there, since it waits
/// uninterruptibly, and exit_aio for the other contexts only begins when it has gone.
pub fn killed_in_io_destroy(_: &Guest) -> Result<String> {
    const OTHERS: u64 = 2;
    let storage = Storage::new()?;
    storage.mapped()?.suspend()?;
    let mut tool = Tool::start(&["1"])?;
    let mut child = Command::new("/bin/testbed")
        .args(["aio-threads", "--others", &OTHERS.to_string()])
        .args(["--in-flight", &READS.to_string()])
        .args(["--file", &storage.mapped()?.path()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the workload")?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut line)?;
    let told: Value = serde_json::from_str(line.trim()).with_context(|| format!("it said {line:?}"))?;
    let (pid, tid) = (number(&told, "/tgid")?, number(&told, "/tid")?);
    let stack = format!("/proc/{pid}/task/{tid}/stack");
    let in_call = || std::fs::read_to_string(&stack).is_ok_and(|text| text.contains("sys_io_destroy"));
    wait_until("a thread in io_destroy", LIMIT, in_call)?;
    child.kill().context("cannot kill the workload")?;
    // Its leader is gone, the thread is not.
    wait_until("the leader to end", LIMIT, || {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|text| text.contains(") Z "))
    })?;
    // Intervals from here on are about a process that has been killed.
    tool.wait_for("an interval's end", LIMIT, |record| record["type"] == "loss")?;
    tool.wait_for("the hanging io_destroy", LIMIT, |record| {
        row_of(record, pid)
            && record["owner"] == "io_destroy"
            && record["tid"].as_u64() == Some(tid)
            && record["phase"] == "requests in flight"
            && record["references"].as_u64() == Some(READS)
            && (stack_has(record, "__x64_sys_io_destroy") || stack_has(record, "__do_sys_io_destroy"))
    })?;
    same("still there", in_call(), true)?;
    storage.mapped()?.resume()?;
    tool.wait_until("both drains", LIMIT, |records| records.drains(pid).len() == 2)?;
    tool.wait_until("no row any more", LIMIT, |records| gone(records, pid))?;
    child.wait().context("cannot wait for the workload")?;
    let records = tool.finish()?;
    let drains = records.drains(pid);
    let by = |cause: &str| drains.iter().find(|drain| drain["cause"] == cause).copied();
    let destroy = by("io_destroy").context("no drain by io_destroy")?;
    let exit = by("exit_aio").context("no drain by exit_aio")?;
    words(destroy, "io_destroy", 1, "single")?;
    words(exit, "exit_aio", OTHERS, "parallel")?;
    same("in flight", number(destroy, "/in_flight")?, READS)?;
    same("tid", number(destroy, "/tid")?, tid)?;
    for drain in [destroy, exit] {
        same("uncertain", drain["uncertain"].as_bool(), Some(false)).with_context(|| shortened(drain))?;
    }
    let end = number(destroy, "/start_ns")? + number(destroy, "/wall_ns")?;
    if number(exit, "/start_ns")? < end {
        bail!("exit_aio began before io_destroy returned: {}", shortened(exit));
    }
    Ok(format!(
        "{:.0} ms in io_destroy, then {:.1} ms in exit_aio",
        number(destroy, "/wall_ns")? as f64 / 1e6,
        number(exit, "/wall_ns")? as f64 / 1e6
    ))
}
