//! Operations that do not end while somebody looks, and devices that are unlike others.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Guest, LIMIT, near, number, same, shortened};
use crate::clock::{monotonic_ns, wait_until};
use crate::device::{Settings, Testbed};
use crate::kernel_modules;
use crate::tool::{PROGRAM, Records, Tool};

/// How long the driver keeps a write.
const HOLD_US: u64 = 6_000_000;
/// Between two looks of the tool, and for what is looked at meanwhile.
const LOOK_NS: f64 = 700e6;

/// Rows of operations under way in the newest interval.
fn rows(records: &Records) -> Vec<&Value> {
    let all = records.all();
    let head = all.iter().rposition(|record| record["type"] == "interval");
    let newest = head.map_or(&[] as &[Value], |head| &all[head..]);
    newest
        .iter()
        .filter(|record| record["type"] == "in_progress" && record["subject"] == "uio_op")
        .collect()
}

fn row_of<'a>(rows: &[&'a Value], tid: u32) -> Option<&'a Value> {
    rows.iter().copied().find(|row| row["tid"] == tid)
}

/// A thread that writes once; its id and when it began.
struct Writer {
    tid: u32,
    began_ns: u64,
    handle: std::thread::JoinHandle<Result<u64>>,
}

/// A descriptor of the device: opening takes the lock, too.
fn open(device: &Testbed) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(device.node())
        .with_context(|| format!("cannot open {}", device.node()))
}

/// Starts it; returns once it is about to write.
fn writer(file: &File) -> Result<Writer> {
    let mut file = file.try_clone()?;
    let (send, receive) = std::sync::mpsc::channel();
    let handle = std::thread::spawn(move || {
        // SAFETY: takes no argument and cannot fail.
        let _ = send.send((unsafe { libc::gettid() }, monotonic_ns()));
        file.write_all(&1_u32.to_ne_bytes()).context("a write")?;
        Ok(monotonic_ns())
    });
    let (tid, began_ns) = receive.recv().context("a writer did not start")?;
    Ok(Writer {
        tid: u32::try_from(tid)?,
        began_ns,
        handle,
    })
}

/// A write that the driver keeps for seconds, and one that waits behind it: both are shown with their ages, what they wait for
/// and behind whom, and a sentence says so. Once they are over they are gone.
pub fn shown(_: &Guest) -> Result<String> {
    let device = Testbed::find(0)?;
    let settings = Settings::of(&device);
    device.set_hold(0, false)?;
    device.reset()?;
    let mut tool = Tool::start(&["1"])?;
    let file = open(&device)?;
    device.set_hold(HOLD_US, false)?;
    let holder = writer(&file)?;
    wait_until("that the write is in the driver", Duration::from_secs(5), || {
        device.truth().is_ok_and(|truth| truth.calls == 1)
    })?;
    let waiter = writer(&file)?;
    // Both with the kernel stacks that they get after a second.
    tool.wait_until("both operations with their stacks", LIMIT, |records| {
        let rows = rows(records);
        [holder.tid, waiter.tid]
            .iter()
            .all(|tid| row_of(&rows, *tid).is_some_and(|row| row["stack"].is_array()))
            && records.of("finding").any(|finding| finding["id"] == "uio_stuck")
    })?;
    let seen_ns = monotonic_ns() as f64;
    let newest = rows(tool.records());
    let (held, waits) = (
        row_of(&newest, holder.tid).cloned().context("no holder")?,
        row_of(&newest, waiter.tid).cloned().context("no waiter")?,
    );
    same(
        "what the holder waits for",
        held["phase"].as_str(),
        Some("the driver"),
    )?;
    same(
        "what the waiter waits for",
        waits["phase"].as_str(),
        Some("info_lock"),
    )?;
    same(
        "behind whom",
        waits["uio"]["holder"]["tid"].as_u64(),
        Some(holder.tid.into()),
    )
    .with_context(|| shortened(&waits))?;
    same("doing what", waits["uio"]["holder_op"].as_str(), Some("write"))?;
    for (row, of) in [(&held, &holder), (&waits, &waiter)] {
        same(
            "its device",
            row["uio"]["minor"].as_u64(),
            Some(device.minor.into()),
        )?;
        let age = number(row, "/age_ns")? as f64;
        near("age", age, seen_ns - of.began_ns as f64, 0.0, LOOK_NS)?;
        let inside = row["stack"].as_array().into_iter().flatten();
        if !inside.into_iter().any(|frame| frame == "uio_write") {
            bail!("not the stack of a write: {}", shortened(row));
        }
    }
    let text = tool
        .records()
        .of("finding")
        .filter(|finding| finding["id"] == "uio_stuck")
        .last()
        .and_then(|finding| finding["text"].as_str())
        .unwrap_or_default()
        .to_owned();
    for part in [format!("/{})", waiter.tid), format!("/{}) in write", holder.tid)] {
        if !text.contains(&part) {
            bail!("{part:?} is not in: {text}");
        }
    }
    device.set_hold(0, false)?;
    for writer in [holder, waiter] {
        writer
            .handle
            .join()
            .map_err(|_| anyhow::anyhow!("a writer panicked"))??;
    }
    let seen = tool.records().of("interval").count();
    tool.wait_until("an interval after both were over", LIMIT, |records| {
        records.of("interval").count() > seen + 1 && rows(records).is_empty()
    })?;
    tool.finish()?;
    settings.restore()?;
    Ok(text)
}

/// A process that waits for info_lock, to open the device, is killed: the wait cannot be interrupted, so it still waits, gets the
/// lock, opens, and only then ends, without a write. All of it is shown and counted.
pub fn killed_while_waiting(_: &Guest) -> Result<String> {
    let device = Testbed::find(0)?;
    let settings = Settings::of(&device);
    device.set_hold(0, false)?;
    device.reset()?;
    let mut tool = Tool::start(&["1"])?;
    let file = open(&device)?;
    device.set_hold(HOLD_US / 2, false)?;
    let holder = writer(&file)?;
    wait_until("that the write is in the driver", Duration::from_secs(5), || {
        device.truth().is_ok_and(|truth| truth.calls == 1)
    })?;
    device.set_hold(0, false)?;
    let mut child = Command::new("/bin/testbed")
        .args(["uio-write", "--device", &device.node(), "--count", "1"])
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start a writer")?;
    let tgid = child.id();
    tool.wait_until("the waiting process", LIMIT, |records| {
        rows(records)
            .iter()
            .any(|row| row["tgid"] == tgid && row["phase"] == "info_lock")
    })?;
    child.kill().context("cannot kill the writer")?;
    let killed_ns = monotonic_ns();
    child.wait().context("cannot wait for the writer")?;
    let ended_ns = monotonic_ns();
    let written_ns = holder
        .handle
        .join()
        .map_err(|_| anyhow::anyhow!("the holder panicked"))??;
    let writes = device.truth()?.calls;
    let records = tool.finish()?;
    settings.restore()?;
    same("calls of the driver", writes, 1)?;
    // By its minor: while the lock is held, the name may not be read yet.
    let of = |op: &str, number: &str| -> u64 {
        let rows = records
            .of("uio_device")
            .filter(|row| row["minor"] == device.minor);
        rows.filter_map(|row| row["ops"].as_array())
            .flatten()
            .filter(|figures| figures["op"] == op)
            .filter_map(|figures| figures[number].as_u64())
            .sum()
    };
    same("writes", of("write", "count"), 1)?;
    // Ours and that of the killed process, which also closed it.
    same("opens", of("open", "count"), 2)?;
    same("opens that waited", of("open", "contended"), 1)?;
    same("closes", of("release", "count"), 1)?;
    if killed_ns >= written_ns || ended_ns < killed_ns {
        bail!("the holder was back before the waiter was killed: nothing was tried");
    }
    Ok(format!(
        "killed {} ms before the lock was free, opened all the same",
        (written_ns - killed_ns) / 1_000_000
    ))
}

/// The testbed's module with other parameters; the usual one is back at the end.
struct Reloaded;

impl Reloaded {
    fn with(parameters: &str) -> Result<Reloaded> {
        kernel_modules::unload("uio_testbed")?;
        let reloaded = Reloaded;
        kernel_modules::load(&format!("uio_testbed {parameters}"))?;
        Ok(reloaded)
    }

    fn end(self) -> Result<()> {
        std::mem::forget(self);
        kernel_modules::unload("uio_testbed")?;
        kernel_modules::load("uio_testbed devices=2")
    }
}

impl Drop for Reloaded {
    fn drop(&mut self) {
        // The test has failed already; the next one says so if there is no device.
        let _ = kernel_modules::unload("uio_testbed");
        let _ = kernel_modules::load("uio_testbed devices=2");
    }
}

/// 256 devices, each written a number of times of its own: told apart exactly, and the text still fits.
pub fn many_devices(_: &Guest) -> Result<String> {
    const DEVICES: u32 = 256;
    let reloaded = Reloaded::with(&format!("devices={DEVICES}"))?;
    let tool = Tool::start(&[])?;
    let mut all = 0;
    let writes = |index: u32| u64::from(index % 7 + 1);
    for index in 0..DEVICES {
        let device = Testbed::find(index)?;
        wait_until("the device node", Duration::from_secs(20), || {
            std::path::Path::new(&device.node()).exists()
        })?;
        let mut file = OpenOptions::new().write(true).open(device.node())?;
        for _ in 0..writes(index) {
            file.write_all(&1_u32.to_ne_bytes()).context("a write")?;
        }
        all += writes(index);
    }
    let records = tool.finish()?;
    for index in 0..DEVICES {
        let name = format!("uio_testbed{index}");
        same(
            &format!("writes of {name}"),
            number(records.operation(&name, "write"), "/count")?,
            writes(index),
        )?;
    }
    let text = text_dump()?;
    reloaded.end()?;
    let lines = text.lines().count();
    if lines > 70 {
        bail!("the text of {DEVICES} devices has {lines} lines");
    }
    Ok(format!("{DEVICES} devices, {all} writes, text of {lines} lines"))
}

/// `hist` as text, of a moment.
fn text_dump() -> Result<String> {
    let output = Command::new(PROGRAM)
        .args(["hist", "--duration", "1"])
        .stdin(Stdio::null())
        .output()
        .context("cannot start hist")?;
    if !output.status.success() {
        bail!("hist: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    // Bytes that are no text are a failure, too.
    String::from_utf8(output.stdout).context("the text is not UTF-8")
}

/// A driver that gives its device a name of 200 bytes with control characters and bytes that are no UTF-8.
pub fn device_name(_: &Guest) -> Result<String> {
    let device = Testbed::find(0)?;
    let mut name = b"evil\x1b[31m\x07\x9b\xff\xfe\xe2\x28tab\tname".to_vec();
    name.resize(200, b'x');
    device.set_registered(false)?;
    device.rename(&name)?;
    device.set_registered(true)?;
    let renamed = Renamed(&device);
    let device = Testbed::find(0)?;
    wait_until("the device node", Duration::from_secs(20), || {
        std::path::Path::new(&device.node()).exists()
    })?;
    let tool = Tool::start(&[])?;
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(device.node())?;
    for _ in 0..3 {
        file.write_all(&1_u32.to_ne_bytes()).context("a write")?;
    }
    // No interrupt has come: refused, and counted as that.
    let refused = file.read(&mut [0; 4]).map_err(|error| error.raw_os_error());
    same("a read without an interrupt", refused, Err(Some(libc::EAGAIN)))?;
    drop(file);
    let records = tool.finish()?;
    let row = records
        .of("uio_device")
        .find(|row| row["minor"] == device.minor && row["gone_ns"].is_null())
        .context("no device")?;
    let shown = row["name"].as_str().context("no name")?.to_owned();
    let text = text_dump()?;
    renamed.end()?;
    let is_bad = |c: char| c.is_control() && c != '\n';
    if shown.contains(is_bad) || !shown.starts_with("evil") || !shown.ends_with("xxx") {
        bail!("the name is shown as {shown:?}");
    }
    if let Some(bad) = text.chars().find(|c| is_bad(*c)) {
        bail!("the text has the control character {bad:?}");
    }
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    if widest > 80 {
        bail!("the text is {widest} columns wide");
    }
    same("writes", op_count(row, "write"), Some(3))?;
    same("reads", op_count(row, "read"), Some(1))?;
    Ok(format!(
        "shown as {:?}...",
        shown.chars().take(24).collect::<String>()
    ))
}

fn op_count(row: &Value, name: &str) -> Option<u64> {
    let ops = row["ops"].as_array()?;
    ops.iter().find(|op| op["op"] == name)?["count"].as_u64()
}

/// Gives the device its usual name back.
struct Renamed<'a>(&'a Testbed);

impl Renamed<'_> {
    fn end(self) -> Result<()> {
        let result = self.back();
        std::mem::forget(self);
        result
    }

    fn back(&self) -> Result<()> {
        self.0.set_registered(false)?;
        self.0.rename(self.0.name.as_bytes())?;
        self.0.set_registered(true)
    }
}

impl Drop for Renamed<'_> {
    fn drop(&mut self) {
        // The test has failed already.
        let _ = self.back();
    }
}
