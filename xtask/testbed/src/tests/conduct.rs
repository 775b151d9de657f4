//! How the tool behaves in bad places: signals, kill -9, no privileges.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Guest, number, same, workload};
use crate::bpf_programs;
use crate::breakpoints;
use crate::clock::wait_until;
use crate::device::{TCMU_NAME, Testbed, make_tcmu, minor_of};
use crate::kernel_modules;
use crate::tool::{PROGRAM, Records, Tool};

/// A signal that asks it to end makes it print what it has.
pub fn prints_after(signal: i32) -> Result<String> {
    let device = Testbed::find(0)?;
    device.set_hold(0, false)?;
    let tool = Tool::start(&[])?;
    workload(&format!("uio-write --device {} --count 50", device.node()))?;
    let ended = tool.end(signal)?;
    same(
        "writes",
        number(ended.records.operation(&device.name, "write"), "/count")?,
        50,
    )?;
    Ok(format!("50 writes, exit code {}", ended.code))
}

/// Attached and detached again and again while every probed path is busy: nothing of the host may notice, every run ends well
/// and has seen the load.
pub fn attach_and_detach(options: &[&str]) -> Result<String> {
    // By fentry the kernel takes 22 trampolines down each time, which is slow in a guest of one thread.
    let rounds = if options.is_empty() { 5 } else { 2 };
    let (name, node) = if kernel_modules::have_testbed() {
        let device = Testbed::find(0)?;
        device.set_hold(0, false)?;
        (device.name.clone(), device.node())
    } else {
        let minor = minor_of(TCMU_NAME).or_else(|_| make_tcmu())?;
        (TCMU_NAME.to_owned(), format!("/dev/uio{minor}"))
    };
    // Until the test ends it.
    let mut load = Command::new("/bin/testbed")
        .args(["uio-write", "--threads", "3", "--seconds", "600", "--device"])
        .arg(&node)
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start the writers")?;
    let runs = (0..rounds).map(|_| {
        let mut tool = Tool::start(&[&["0.1"], options].concat())?;
        let seen = |records: &Records| records.operation_sum(&name, "write", "count") > 100;
        tool.wait_until("a hundred writes", Duration::from_secs(60), seen)?;
        workload("aio --exit --contexts 2")?;
        workload("cgroup-cycle --count 1")?;
        tool.finish()?;
        Ok(())
    });
    let result: Result<Vec<()>> = runs.collect();
    let ended = load.try_wait().context("cannot look after the writers")?;
    load.kill().context("cannot end the writers")?;
    load.wait().context("cannot wait for the writers")?;
    result?;
    if let Some(status) = ended {
        bail!("the writers ended by themselves: {status}");
    }
    Ok(format!("{rounds} times under three writers"))
}

const PROG_GET_NEXT_ID: u32 = 11;
const LINK_GET_NEXT_ID: u32 = 31;

/// Execution breakpoints this process can open on the first processor.
fn free_breakpoints() -> usize {
    breakpoints::take(0).len()
}

fn kprobes() -> usize {
    std::fs::read_to_string("/sys/kernel/debug/kprobes/list")
        .unwrap_or_default()
        .lines()
        .filter(|line| !line.contains("[GONE]"))
        .count()
}

/// After kill -9 no program, link, kprobe or breakpoint is left.
pub fn kill_leaves_nothing(options: &[&str]) -> Result<String> {
    let before = (
        bpf_programs::ids(PROG_GET_NEXT_ID),
        bpf_programs::ids(LINK_GET_NEXT_ID),
        kprobes(),
        free_breakpoints(),
    );
    let tool = Tool::start(options)?;
    let programs = bpf_programs::ids(PROG_GET_NEXT_ID).len() - before.0.len();
    let probes = kprobes().saturating_sub(before.2);
    if programs == 0 {
        bail!("no BPF program is loaded while the tool runs");
    }
    let pid = i32::try_from(tool.pid())?;
    // SAFETY: the child has not been waited for, so the pid is its own.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    drop(tool);
    let clean = || {
        (
            bpf_programs::ids(PROG_GET_NEXT_ID),
            bpf_programs::ids(LINK_GET_NEXT_ID),
            kprobes(),
            free_breakpoints(),
        ) == before
    };
    wait_until("everything to be gone", Duration::from_secs(30), clean).with_context(|| {
        format!(
            "programs {:?} -> {:?}, links {:?} -> {:?}, kprobes {} -> {}, free breakpoints {} -> {}",
            before.0,
            bpf_programs::ids(PROG_GET_NEXT_ID),
            before.1,
            bpf_programs::ids(LINK_GET_NEXT_ID),
            before.2,
            kprobes(),
            before.3,
            free_breakpoints()
        )
    })?;
    Ok(format!("{programs} programs and {probes} kprobes went"))
}

/// Without privileges: exit code 3 and a sentence that names what is missing.
pub fn unprivileged_is_refused(_: &Guest) -> Result<String> {
    // A device to ask for makes no difference, but then nothing else can be the reason.
    let _ = minor_of("uio_testbed0").or_else(|_| make_tcmu());
    let mut command = Command::new(PROGRAM);
    command
        .args(["hist", "--json"])
        .uid(65534)
        .gid(65534)
        .stdin(Stdio::null());
    let output = command.output().context("cannot start the tool")?;
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    same("exit code", output.status.code(), Some(3)).with_context(|| said.clone())?;
    if !said.contains("CAP_") && !said.contains("root") && !said.contains("sudo") {
        bail!("the message names no capability: {said}");
    }
    Ok(said)
}
