//! Places in which something is missing: each is said in one sentence, and what is left works.

use std::ffi::CString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::aio::{only_drain, words};
use super::in_flight::Setting;
use super::{Guest, number, refs, same, shortened, workload};
use crate::breakpoints;
use crate::tool::{PROGRAM, Records, Tool};

const KILL: &str = "percpu_ref_kill_and_confirm";
const STACKS: &str = "/proc/PID/stack";

/// A probe's row has this state, and its reason says this.
fn says(records: &Records, hook: &str, state: &str, reason: &str) -> Result<String> {
    let probe = records.probe(hook);
    let said = probe["reason"].as_str().unwrap_or_default();
    if probe["state"] != state || !said.contains(reason) {
        bail!("{hook} should be {state} and say {reason:?}: {probe}");
    }
    Ok(said.to_owned())
}

/// Four contexts at an exit, all there; of their phases only what is seen without the switches.
fn drains_without_switches(records: &Records, load: &Value) -> Result<()> {
    let drain = only_drain(records, load)?;
    words(drain, "exit_aio", 4, "parallel")?;
    let phases = &drain["phases_ns"];
    if !phases["users_gp"].is_null() || number(phases, "/users")? == 0 || number(phases, "/reqs")? == 0 {
        bail!("not the phases that are known without switches: {phases}");
    }
    Ok(())
}

/// Every debug register belongs to another.
pub fn no_debug_registers(_: &Guest) -> Result<String> {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let taken: Vec<_> = (0..cpus).map(breakpoints::take).collect();
    if taken.iter().any(|taken| taken.len() != 4) {
        bail!("not all debug registers could be taken: {taken:?}");
    }
    let tool = Tool::start(&[])?;
    let load = workload("aio --exit --contexts 4")?;
    let records = tool.finish()?;
    drop(taken);
    drains_without_switches(&records, &load)?;
    says(&records, KILL, "failed", "no free debug register")
}

/// Addresses of kernel functions are hidden from root, too.
pub fn kptr_restrict(_: &Guest) -> Result<String> {
    let _setting = Setting::set("/proc/sys/kernel/kptr_restrict", "2")?;
    let tool = Tool::start(&[])?;
    let load = workload("aio --exit --contexts 4")?;
    let records = tool.finish()?;
    drains_without_switches(&records, &load)?;
    says(&records, KILL, "failed", "kernel.kptr_restrict")
}

/// The tool by `exec` over a shell script, as text: what it printed and its exit code.
fn exec(script: &str) -> Result<(String, Option<i32>)> {
    let output = Command::new(PROGRAM)
        .args(["exec", "--", "sh", "-c", script])
        .stdin(Stdio::null())
        .output()
        .context("cannot start exec")?;
    let mut text = String::from_utf8(output.stdout)?;
    text.push_str(&String::from_utf8(output.stderr)?);
    Ok((text, output.status.code()))
}

/// A processor goes and comes back; what happens on the others meanwhile is counted, and so is what happens on it once it is
/// followed again.
pub fn cpu_offline_and_online(_: &Guest) -> Result<String> {
    const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";
    const OWNERS: [&str; 2] = ["css_release", "cgroup_bpf_release_fn"];
    let mut tool = Tool::start(&["0.5"])?;
    let mut done = 0;
    let mut cycles = |cpu: u32| {
        done += 2;
        workload(&format!("cgroup-cycle --count 2 --cpu {cpu}"))?;
        Ok::<u64, anyhow::Error>(done)
    };
    let sum = |records: &Records, name: &str| -> u64 {
        OWNERS.iter().map(|owner| records.owner_sum(owner, name)).sum()
    };
    let seen = |records: &Records| sum(records, "kills") + sum(records, "switches") + refs::missed(records);
    cycles(1)?;
    {
        let _offline = Setting::set(ONLINE, "0")?;
        let done = cycles(0)?;
        tool.wait_until("what was done without the processor", super::LIMIT, |records| {
            seen(records) >= 4 * done
        })?;
    }
    // It tells when it follows the processor.
    tool.wait_for("the processor to be followed", super::LIMIT, |record| {
        record["type"] == "finding" && record["id"] == "cpu_came_online"
    })?;
    let done = cycles(1)?;
    tool.wait_until("what was done on the processor", super::LIMIT, |records| {
        seen(records) >= 4 * done
    })?;
    let records = tool.finish()?;
    let (kills, switches, missed) = (
        sum(&records, "kills"),
        sum(&records, "switches"),
        refs::missed(&records),
    );
    if missed == 0 {
        same("kills", kills, 2 * done)?;
        same("switches", switches, 2 * done)?;
    }
    let finding = records.of("finding").find(|f| f["id"] == "cpu_came_online");
    let text = finding.and_then(|f| f["text"].as_str()).unwrap_or_default();
    Ok(format!(
        "{kills} kills, {switches} switches, {missed} missed; {text}"
    ))
}

/// A workload in a PID namespace is shown by its number in the host's; and hidepid hides nothing from root.
pub fn load_in_pid_namespace(_: &Guest) -> Result<String> {
    let _hidden = HidePid::new()?;
    let tool = Tool::start(&[])?;
    let mut command = Command::new("/bin/unshare");
    command
        // As number 1 the workload would be the one that brings a guest up.
        .args([
            "-p",
            "-f",
            "/bin/sh",
            "-c",
            "testbed aio --hold --contexts 2; exit",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut unshare = command.spawn().context("cannot start unshare")?;
    let mut line = String::new();
    BufReader::new(unshare.stdout.take().context("no stdout")?).read_line(&mut line)?;
    let inside: Value = serde_json::from_str(&line).with_context(|| format!("the workload said {line:?}"))?;
    let inside = number(&inside, "/tgid")?;
    let host = only_child(only_child(unshare.id())?)?;
    if u64::from(host) == inside {
        bail!("{host} is its number on both sides");
    }
    // SAFETY: the number of a process that was just seen and that nobody else waits for.
    unsafe { libc::kill(i32::try_from(host)?, libc::SIGKILL) };
    unshare.wait().context("cannot wait for unshare")?;
    let records = tool.finish()?;
    match records.drains(u64::from(host))[..] {
        [drain] => {
            words(drain, "exit_aio", 2, "parallel")?;
            same("comm", drain["comm"].as_str(), Some("aio-holder"))?;
        }
        ref drains => bail!("{} drains of process {host}, should be one", drains.len()),
    }
    same(
        "stacks",
        records.probe(STACKS)["state"].as_str(),
        Some("attached"),
    )?;
    Ok(format!("{inside} there, {host} here"))
}

/// The child of a process that has one.
fn only_child(of: u32) -> Result<u32> {
    let path = format!("/proc/{of}/task/{of}/children");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    text.trim()
        .parse()
        .with_context(|| format!("{path} names not one child: {text}"))
}

/// The tool in a PID namespace: what it traces is right, what it would look up by number is not looked up, and that is said.
pub fn tool_in_pid_namespace(_: &Guest) -> Result<String> {
    let inside = |arguments: &[&str]| {
        let mut command = Command::new("/bin/unshare");
        command
            .args(["-p", "-f", "--mount-proc", PROGRAM, "hist", "--json"])
            .args(arguments)
            .stdin(Stdio::null());
        command
    };
    let refused = inside(&["--pid", "1"]).output().context("cannot start unshare")?;
    let said = String::from_utf8_lossy(&refused.stderr).trim().to_owned();
    same("exit code", refused.status.code(), Some(2)).with_context(|| said.clone())?;
    if !said.contains("PID namespace") {
        bail!("--pid in a namespace is refused with: {said}");
    }
    let mut tool = Tool::start_as(inside(&["0.5", "6"]))?;
    let load = workload("aio --exit --contexts 2")?;
    let tgid = number(&load, "/tgid")?;
    tool.wait_until("the drain", super::LIMIT, |records| {
        records.drains(tgid).len() == 1
    })?;
    let records = tool.end_of_itself()?;
    same("drains", records.drains(tgid).len(), 1)?;
    says(&records, STACKS, "failed", "PID namespace")
}

/// A process whose name would clear the screen.
pub fn process_name(_: &Guest) -> Result<String> {
    let script = "testbed aio --destroy --contexts 2 --comm \"$(printf 'a\\033[2J\\tb')\" >/dev/null; exit 7";
    let (text, code) = exec(script)?;
    same("exit code", code, Some(7))?;
    if let Some(line) = text.lines().find(|line| line.chars().any(char::is_control)) {
        bail!("a control character in {line:?}");
    }
    let line = text
        .lines()
        .find(|line| line.contains("[2J"))
        .context(text.clone())?;
    Ok(line.trim().to_owned())
}

/// /proc mounted with hidepid=2, put back at the end.
struct HidePid(());

impl HidePid {
    fn new() -> Result<HidePid> {
        HidePid::mount("hidepid=2")?;
        Ok(HidePid(()))
    }

    fn mount(options: &str) -> Result<()> {
        let options = CString::new(options)?;
        // SAFETY: all texts are NUL-terminated.
        let result = unsafe {
            libc::mount(
                c"proc".as_ptr(),
                c"/proc".as_ptr(),
                c"proc".as_ptr(),
                libc::MS_REMOUNT,
                options.as_ptr().cast(),
            )
        };
        if result != 0 {
            bail!("cannot mount /proc anew: {}", std::io::Error::last_os_error());
        }
        Ok(())
    }
}

impl Drop for HidePid {
    fn drop(&mut self) {
        let _ = HidePid::mount("hidepid=0");
    }
}

/// Who traces by capabilities does not see others' processes, and is told. (Root does: see [`load_in_pid_namespace`].)
pub fn hidepid(_: &Guest) -> Result<String> {
    let _hidden = HidePid::new()?;
    let mut command = Command::new(PROGRAM);
    command.args(["hist", "--json"]);
    // SAFETY: system calls on the child's own credentials, nothing else.
    unsafe { command.pre_exec(|| become_tracer(65534)) };
    let tool = Tool::start_as(command)?;
    let load = workload("aio --exit --contexts 2")?;
    let records = tool.finish()?;
    words(only_drain(&records, &load)?, "exit_aio", 2, "parallel")
        .with_context(|| shortened(records.loss()))?;
    says(&records, STACKS, "failed", "hidepid")
}

/// This process becomes a user with the capabilities that tracing needs, and without CAP_SYS_PTRACE.
fn become_tracer(user: u32) -> std::io::Result<()> {
    // include/uapi/linux/capability.h: DAC_READ_SEARCH, SYS_ADMIN, SYS_RESOURCE, SYSLOG, PERFMON, BPF
    const CAPABILITIES: [u32; 6] = [2, 21, 24, 34, 38, 39];
    const VERSION_3: u32 = 0x2008_0522;
    let mask = CAPABILITIES.iter().fold(0_u64, |mask, bit| mask | 1 << bit);
    let (low, high) = (mask as u32, (mask >> 32) as u32);
    let header = [VERSION_3, 0];
    // effective, permitted, inheritable of the low half, then of the high one
    let data = [low, low, low, high, high, high];
    let check = |result: libc::c_long| {
        if result == 0 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    };
    // SAFETY: plain integers, and arrays of the sizes that version 3 has.
    unsafe {
        check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0).into())?;
        check(libc::setresgid(user, user, user).into())?;
        check(libc::setresuid(user, user, user).into())?;
        check(libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()))?;
        for capability in CAPABILITIES {
            check(libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, capability, 0, 0).into())?;
        }
    }
    Ok(())
}
