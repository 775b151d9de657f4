//! The triage session: one command traced, a trace recorded and reported.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::aio::phases;
use super::{Guest, near, number, same, workload};
use crate::clock::wait_until;
use crate::device::Testbed;
use crate::tool::{PROGRAM, Records};

/// What the tool may take to attach, or a command to end.
const LIMIT: Duration = Duration::from_secs(240);

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// `exec`: the drains are those of the command and of what it starts, also of a process whose parent has gone; what others do
/// meanwhile is not among them; its status is the tool's.
pub fn exec(_: &Guest) -> Result<String> {
    const DUMP: &str = "/tmp/exec.ndjson";
    const STRANGER: &str = "/tmp/stranger.json";
    let script = "/bin/testbed aio --exit --contexts 4 > /tmp/own.json; \
                  (/bin/testbed aio --destroy --contexts 2 > /tmp/orphan.part; mv /tmp/orphan.part /tmp/orphan.json) & \
                  : > /tmp/begun; while ! [ -e /tmp/stranger.json ] || ! [ -e /tmp/orphan.json ]; do sleep 0.1; done; exit 7";
    for file in ["/tmp/own.json", "/tmp/orphan.json", "/tmp/begun", STRANGER, DUMP] {
        let _ = std::fs::remove_file(file);
    }
    let mut tool = Command::new(PROGRAM)
        .args([
            "exec",
            "--json",
            "-o",
            DUMP,
            "--",
            "sh",
            "-c",
            &format!("sh -c '{script}'; exit $?"),
        ])
        .stdin(Stdio::null())
        .spawn()
        .context("cannot start exec")?;
    let begun = wait_until("the command", LIMIT, || {
        std::fs::exists("/tmp/begun").unwrap_or(false)
    });
    if let Err(error) = begun {
        tool.kill()?;
        tool.wait()?;
        return Err(error);
    }
    let stranger = workload("aio --exit --contexts 3")?;
    std::fs::write(STRANGER, "")?;
    let status = tool.wait().context("cannot wait for exec")?;
    same("exit status", status.code(), Some(7))?;
    let records = Records::read(&read(DUMP)?)?;
    for (file, contexts, verdict) in [
        ("/tmp/own.json", 4, "parallel"),
        ("/tmp/orphan.json", 2, "serial"),
    ] {
        let load: Value = serde_json::from_str(read(file)?.trim())?;
        let tgid = number(&load, "/tgid")?;
        let [drain] = records.drains(tgid)[..] else {
            bail!("{} drains of {file}, should be one", records.drains(tgid).len());
        };
        same("contexts", number(drain, "/contexts")?, contexts)?;
        same("verdict", drain["verdict"].as_str(), Some(verdict))?;
        // Also the second grace period, which begins in RCU context.
        phases(drain)?;
    }
    same(
        "drains of a process that is not the command's",
        records.drains(number(&stranger, "/tgid")?).len(),
        0,
    )?;
    same("drains", records.of("aio_drain").count(), 2)?;
    Ok("two drains of the command's, none of another's, status 7".to_owned())
}

/// Starts `record` and waits until it records.
fn start_recording(file: &str) -> Result<Child> {
    let mut tool = Command::new(PROGRAM)
        .args(["record", "--force", "-o", file])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start record")?;
    let mut said = BufReader::new(tool.stderr.take().context("no stderr")?).lines();
    let found = said
        .by_ref()
        .map_while(Result::ok)
        .any(|line| line.contains("recording to"));
    if !found {
        tool.wait()?;
        bail!("record ended before it recorded");
    }
    // It goes on talking, and must not block in it.
    std::thread::spawn(move || said.for_each(drop));
    Ok(tool)
}

fn end(tool: &mut Child, signal: i32) -> Result<()> {
    let pid = i32::try_from(tool.id())?;
    // SAFETY: plain integers; the child has not been waited for.
    unsafe { libc::kill(pid, signal) };
    tool.wait().context("cannot wait for record")?;
    Ok(())
}

fn report(file: &str) -> Result<(Records, String)> {
    let output = Command::new(PROGRAM)
        .args(["report", "--json", file])
        .stdin(Stdio::null())
        .output()
        .context("cannot start report")?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("report: {errors}");
    }
    Ok((Records::read(&String::from_utf8(output.stdout)?)?, errors))
}

/// A recording, ended by Ctrl-C and by kill -9: the report of it has what was done, and says whether it is whole.
pub fn record(_: &Guest) -> Result<String> {
    const FILE: &str = "/tmp/session.rec";
    let device = Testbed::find(0)?;
    device.set_hold(200, false)?;
    let mut seen = Vec::new();
    for signal in [libc::SIGINT, libc::SIGKILL] {
        device.reset()?;
        let mut tool = start_recording(FILE)?;
        workload(&format!(
            "uio-write --device {} --threads 2 --count 400",
            device.node()
        ))?;
        let load = workload("aio --destroy --contexts 4")?;
        if signal == libc::SIGKILL {
            // What has been written then stays; it is written once a second.
            wait_until("the recording to hold all of it", LIMIT, || {
                report(FILE).is_ok_and(|(records, _)| {
                    records.operation_sum(&device.name, "write", "count") == 800
                        && records.of("aio_drain").count() == 1
                })
            })?;
        }
        end(&mut tool, signal)?;
        let truth = device.truth()?;
        let (records, errors) = report(FILE)?;
        let write = records.operation(&device.name, "write");
        same("writes", number(write, "/count")?, truth.calls)?;
        near(
            "total hold",
            number(write, "/hold_ns/sum")? as f64,
            truth.held_ns as f64,
            0.05,
            10_000.0 * truth.calls as f64,
        )?;
        let [drain] = records.drains(number(&load, "/tgid")?)[..] else {
            bail!("{} drains", records.of("aio_drain").count());
        };
        same("contexts", number(drain, "/contexts")?, 4)?;
        near(
            "wall time of the drain",
            number(drain, "/wall_ns")? as f64,
            number(&load, "/wall_ns")? as f64,
            0.05,
            3_000_000.0,
        )?;
        let not_ended = errors.contains("not ended");
        same("told that it was not ended", not_ended, signal == libc::SIGKILL)?;
        seen.push(number(write, "/count")?);
    }
    device.set_hold(0, false)?;
    Ok(format!(
        "{seen:?} writes in recordings ended by SIGINT and SIGKILL"
    ))
}

/// A pseudo-terminal of 120x40: the side of whoever looks at it, and the program's.
fn open_terminal() -> Result<(OwnedFd, OwnedFd)> {
    let (mut ours, mut programs) = (0, 0);
    let size = libc::winsize {
        ws_row: 40,
        ws_col: 120,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the descriptors and the size live through the call; name and attributes may be null.
    let opened = unsafe {
        libc::openpty(
            &raw mut ours,
            &raw mut programs,
            std::ptr::null_mut(),
            std::ptr::null(),
            &raw const size,
        )
    };
    if opened != 0 {
        return Err(std::io::Error::last_os_error()).context("no pseudo-terminal");
    }
    // SAFETY: two new descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(programs)) })
}

/// What was drawn, without the terminal's control sequences (ECMA-48: `ESC [`, parameters, a letter), which stand for blanks, too.
fn words(drawn: &str) -> String {
    let mut pieces = drawn.split("\x1b[");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        text.push(' ');
        let end = piece
            .find(|c: char| c.is_ascii_alphabetic())
            .map_or(piece.len(), |at| at + 1);
        text.push_str(&piece[end..]);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The live screens, on a terminal, with a load: its device and its drain come up.
pub fn screens(_: &Guest) -> Result<String> {
    let device = Testbed::find(0)?;
    let (ours, programs) = open_terminal()?;
    let mut tool = Command::new(PROGRAM)
        .env("TERM", "xterm")
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::from(programs.try_clone()?))
        .stdout(Stdio::from(programs))
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start top")?;
    let drawn = Arc::new(Mutex::new(String::new()));
    let (mut keys, mut screen) = (File::from(ours.try_clone()?), File::from(ours));
    let reader = std::thread::spawn({
        let drawn = drawn.clone();
        move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = screen.read(&mut bytes) {
                if let Ok(mut drawn) = drawn.lock() {
                    drawn.push_str(&String::from_utf8_lossy(&bytes[..n]));
                }
            }
        }
    });
    let mut drive = || -> Result<()> {
        let mut press = |key: &str, shown: &str| {
            if let Ok(mut drawn) = drawn.lock() {
                drawn.clear();
            }
            keys.write_all(key.as_bytes())?;
            let comes_up = || drawn.lock().is_ok_and(|drawn| drawn.contains(shown));
            wait_until(&format!("{shown:?} on the screen"), LIMIT, comes_up)
        };
        press("", "Overview")?;
        workload(&format!("uio-write --device {} --count 100", device.node()))?;
        press("2", &device.name)?;
        let load = workload("aio --destroy --contexts 3")?;
        press("4", &format!("({})", number(&load, "/tgid")?))?;
        press("?", "Help")?;
        // A key has the kernel count what the programs cost, with the capabilities a running trace has kept, and another one ends
        // it. Drawn is only what differs, so the words are whole after a repaint.
        for (key, shown) in [
            ("?5", "not counted; c counts"),
            ("c", "of one CPU, counted"),
            ("c", "not counted; c counts"),
        ] {
            if let Ok(mut drawn) = drawn.lock() {
                drawn.clear();
            }
            keys.write_all(key.as_bytes())?;
            let mut asked: Option<Instant> = None;
            wait_until(&format!("{shown:?} on the screen"), LIMIT / 4, || {
                // Not all the time: a screen that is being repainted shows nothing.
                if asked.is_none_or(|at| at.elapsed() > Duration::from_secs(1)) {
                    asked = Some(Instant::now());
                    if (&keys).write_all(b"\x0c").is_err() {
                        return false;
                    }
                }
                drawn.lock().is_ok_and(|drawn| words(&drawn).contains(shown))
            })
            .with_context(|| drawn.lock().map(|drawn| words(&drawn)).unwrap_or_default())?;
        }
        keys.write_all(b"\x1bq")?;
        Ok(())
    };
    let driven = drive();
    if driven.is_err() {
        tool.kill()?;
    }
    let status = tool.wait().context("cannot wait for top")?;
    driven?;
    same("exit status", status.code(), Some(0))?;
    reader
        .join()
        .map_err(|_| anyhow::anyhow!("the reader panicked"))?;
    Ok("device and drain came up".to_owned())
}
