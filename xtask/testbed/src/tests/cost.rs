//! `--cost`: what the kernel counts for the tool, against the workload's own count; and that the kernel counts no longer once the
//! tool has ended, whichever way.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Guest, LIMIT, number, same, workload};
use crate::bpf_programs::{self, Program};
use crate::clock::wait_until;
use crate::device::{TCMU_NAME, Testbed, make_tcmu, minor_of};
use crate::kernel_modules;
use crate::tool::Tool;

const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// The program at the entry of `uio_write`.
const ENTRY: &str = "uio_write_entry";

fn switch() -> Result<String> {
    let text = std::fs::read_to_string(SWITCH).with_context(|| format!("cannot read {SWITCH}"))?;
    Ok(text.trim().to_owned())
}

/// A device's node.
fn node() -> Result<String> {
    if kernel_modules::have_testbed() {
        let device = Testbed::find(0)?;
        device.set_hold(0, false)?;
        Ok(device.node())
    } else {
        let minor = minor_of(TCMU_NAME).or_else(|_| make_tcmu())?;
        Ok(format!("/dev/uio{minor}"))
    }
}

fn write(node: &str, count: u64) -> Result<Value> {
    workload(&format!("uio-write --device {node} --threads 2 --count {count}"))
}

/// Hits of `uio_write` are the workload's writes, and take a part of its time.
pub fn counted(_: &Guest) -> Result<String> {
    let node = node()?;
    let before = switch()?;
    let tool = Tool::start(&["--cost"])?;
    // Another switch than the sysctl: that one stays as it is.
    same("bpf_stats_enabled while it counts", switch()?, before.clone())?;
    let told = write(&node, 1500)?;
    let records = tool.finish()?;
    let row = records
        .of("probe_cost")
        .find(|row| row["hook"] == "uio_write")
        .context("no probe_cost of uio_write")?;
    let (hits, run_ns) = (number(row, "/hits")?, number(row, "/run_ns")?);
    same("hits of uio_write", hits, 3000)?;
    same("missed", number(row, "/missed")?, 0)?;
    let spent = told["devices"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|device| device["thread_ns"].as_u64())
        .sum::<u64>();
    if run_ns == 0 || run_ns > spent {
        bail!("its programs took {run_ns} ns of the writers' {spent} ns");
    }
    let idle = records.of("probe_cost").find(|row| row["hook"] == "uio_mmap");
    if let Some(row) = idle {
        same("hits of uio_mmap", number(row, "/hits")?, 0)?;
    }
    same("bpf_stats_enabled afterwards", switch()?, before)?;
    Ok(format!("3000 hits, {} ns each", run_ns / hits))
}

/// Runs of a program that the kernel has counted while `count` writes by each of two threads went through it.
fn counted_by_kernel(program: &Program, node: &str, count: u64) -> Result<u64> {
    let runs = || program.runs().context("the program is gone");
    let before = runs()?;
    write(node, count)?;
    Ok(runs()? - before)
}

/// A second copy of the tool, which does not ask, shows by its programs whether the kernel counts.
pub fn ends_with_the_tool(_: &Guest) -> Result<String> {
    let node = node()?;
    let before = switch()?;
    let quiet = Tool::start(&[])?;
    let programs = bpf_programs::all();
    let entry = programs
        .iter()
        .find(|program| program.name == ENTRY)
        .with_context(|| {
            let names: Vec<&str> = programs.iter().map(|p| p.name.as_str()).collect();
            format!("no program {ENTRY} among {names:?}")
        })?;
    same(
        "counted by nobody's wish",
        counted_by_kernel(entry, &node, 50)?,
        0,
    )?;

    let costly = Tool::start(&["--cost"])?;
    same(
        "counted while asked for",
        counted_by_kernel(entry, &node, 50)?,
        100,
    )?;
    let pid = costly.pid();
    // SAFETY: the child has not been waited for, so the pid is its own.
    unsafe { libc::kill(i32::try_from(pid)?, libc::SIGKILL) };
    drop(costly);
    let gone = || !Path::new(&format!("/proc/{pid}")).exists();
    wait_until("the killed tool to be gone", LIMIT, gone)?;
    // What a process held is let go of with it; the kernel's last worker may be a moment behind.
    let quiet_again = || matches!(counted_by_kernel(entry, &node, 5), Ok(0));
    wait_until("counting to end", Duration::from_secs(30), quiet_again)?;
    same("counted after a kill -9", counted_by_kernel(entry, &node, 50)?, 0)?;
    same("bpf_stats_enabled after a kill -9", switch()?, before.clone())?;

    let costly = Tool::start(&["--cost"])?;
    same(
        "counted while asked for again",
        counted_by_kernel(entry, &node, 50)?,
        100,
    )?;
    costly.finish()?;
    same("counted after its end", counted_by_kernel(entry, &node, 50)?, 0)?;
    same("bpf_stats_enabled after its end", switch()?, before)?;
    quiet.finish()?;
    Ok("100 of 100 while asked for, 0 after the end and after a kill -9".to_owned())
}
