//! Hangs that are planted, and released: the tool started before, and started after.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::disks::SlowDisk;
use super::{Guest, same};
use crate::clock::wait_until;
use crate::kernel_modules;
use crate::mapper::Mapped;
use crate::tool::{Records, Tool};

const LIMIT: Duration = Duration::from_secs(60);
const CONTEXTS: u64 = 2;
const READS: u64 = 3;

/// A block device whose reads are answered at once, and one over it that can be suspended.
pub(super) struct Storage {
    mapped: Option<Mapped>,
}

impl Storage {
    pub(super) fn new() -> Result<Storage> {
        if kernel_modules::is_loaded("null_blk") {
            kernel_modules::unload("null_blk")?;
        }
        kernel_modules::load("null_blk nr_devices=1 queue_mode=2")?;
        kernel_modules::load("dm_mod")?;
        let mapped = Mapped::new("testbed", "/dev/nullb0", 2048)?;
        Ok(Storage { mapped: Some(mapped) })
    }

    pub(super) fn mapped(&self) -> Result<&Mapped> {
        self.mapped.as_ref().context("no mapped device")
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.mapped = None;
        let _ = kernel_modules::unload("null_blk");
    }
}

/// A process with reads in flight, killed: it hangs in exit_aio until the device is resumed.
struct Hanging(Child);

impl Hanging {
    fn new(storage: &Storage) -> Result<Hanging> {
        let mapped = storage.mapped()?;
        mapped.suspend()?;
        let mut child = Command::new("/bin/testbed")
            .args(["aio", "--hold", "--contexts", &CONTEXTS.to_string()])
            .args(["--in-flight", &READS.to_string(), "--file", &mapped.path()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the workload")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut line)?;
        if line.is_empty() {
            bail!("the workload could not set up its reads");
        }
        child.kill().context("cannot kill the workload")?;
        let hanging = Hanging(child);
        wait_until("the process to hang in exit_aio", LIMIT, || {
            hanging.stack().contains("exit_aio")
        })?;
        Ok(hanging)
    }

    fn pid(&self) -> u64 {
        u64::from(self.0.id())
    }

    fn stack(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/stack", self.0.id())).unwrap_or_default()
    }
}

pub(super) fn row_of(record: &Value, pid: u64) -> bool {
    record["type"] == "in_progress" && record["tgid"].as_u64() == Some(pid)
}

pub(super) fn stack_has(record: &Value, function: &str) -> bool {
    record["stack"]
        .as_array()
        .is_some_and(|stack| stack.iter().any(|frame| frame.as_str() == Some(function)))
}

/// The one file that its process has open for direct I/O.
fn direct_on(record: &Value, storage: &Storage) -> bool {
    let Ok(mapped) = storage.mapped() else {
        return false;
    };
    record["direct_files"]
        .as_array()
        .is_some_and(|files| files[..] == [mapped.path()])
}

/// In the last interval that is complete there is no row of this process.
pub(super) fn gone(records: &Records, pid: u64) -> bool {
    let all = records.all();
    let begin = all.iter().rposition(|record| record["type"] == "interval");
    let complete = all.last().is_some_and(|record| record["type"] == "loss");
    complete && begin.is_some_and(|at| !all[at..].iter().any(|record| row_of(record, pid)))
}

/// A suspended device under AIO, and SIGKILL; the tool runs.
pub fn exit_aio_before(_: &Guest) -> Result<String> {
    let storage = Storage::new()?;
    let mut tool = Tool::start(&["1"])?;
    let mut hanging = Hanging::new(&storage)?;
    let pid = hanging.pid();
    tool.wait_for("the hanging exit", LIMIT, |record| {
        row_of(record, pid)
            && record["owner"] == "exit_aio"
            && record["comm"] == "aio-holder"
            && record["phase"] == "requests in flight"
            && record["references"].as_u64() == Some(CONTEXTS * READS)
            && record["age_ns"].as_u64().is_some_and(|ns| ns > 1_000_000_000)
            && stack_has(record, "exit_aio")
            && direct_on(record, &storage)
    })?;
    storage.mapped()?.resume()?;
    tool.wait_until("its drain", LIMIT, |records| records.drains(pid).len() == 1)?;
    tool.wait_until("no row any more", LIMIT, |records| gone(records, pid))?;
    hanging.0.wait().context("cannot wait for the workload")?;
    let records = tool.finish()?;
    let drains = records.drains(pid);
    let drain = drains.first().context("no drain")?;
    same("contexts", drain["contexts"].as_u64(), Some(CONTEXTS))?;
    let file = drain.pointer("/last_request/disk").and_then(Value::as_str);
    same(
        "last request",
        file,
        storage.mapped()?.path().strip_prefix("/dev/"),
    )?;
    let io = drain.pointer("/phases_ns/reqs_io").and_then(Value::as_u64);
    if io.is_none_or(|ns| ns < 1_000_000_000) {
        bail!("the hang is not in the phase of I/O: {}", drain["phases_ns"]);
    }
    Ok(format!("{} requests in flight", CONTEXTS * READS))
}

/// The same, and the tool comes when it hangs already.
pub fn exit_aio_after(_: &Guest) -> Result<String> {
    let storage = Storage::new()?;
    let mut hanging = Hanging::new(&storage)?;
    let pid = hanging.pid();
    let mut tool = Tool::start(&["1"])?;
    tool.wait_for("the hanging exit", LIMIT, |record| {
        row_of(record, pid)
            && record["owner"] == "exit_aio"
            && record["subject"] == "aio_drain"
            && record["comm"] == "aio-holder"
            && record["age_ns"].is_null()
            && stack_has(record, "exit_aio")
            && direct_on(record, &storage)
    })?;
    tool.wait_for("the finding", LIMIT, |record| {
        record["id"] == "waiting_before_trace"
            && record["text"]
                .as_str()
                .is_some_and(|text| text.contains("aio-holder"))
    })?;
    storage.mapped()?.resume()?;
    hanging.0.wait().context("cannot wait for the workload")?;
    tool.wait_until("no row any more", LIMIT, |records| gone(records, pid))?;
    tool.finish()?;
    Ok("named by its stack".to_owned())
}

/// A queue that is to be frozen while it has a request for some seconds; the tool runs before, or comes after.
fn queue_freeze(tool_first: bool) -> Result<String> {
    // At HZ=250 a quarter of a minute, or longer than attaching takes on a slow guest; less than a hung task's 120 seconds.
    let jiffies = if tool_first { 3_750 } else { 25_000 };
    let disk = SlowDisk::new()?;
    let first = if tool_first {
        Some(Tool::start(&["1"])?)
    } else {
        None
    };
    disk.set_delay(jiffies)?;
    let mut reader = Command::new("/bin/testbed")
        .args(["aio", "--hold", "--in-flight", "1", "--file"])
        .arg(format!("/dev/{}", SlowDisk::NAME))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the workload")?;
    let mut line = String::new();
    BufReader::new(reader.stdout.take().context("no stdout")?).read_line(&mut line)?;
    let mut freezer = Command::new("/bin/testbed")
        .args(["elevator", "--count", "1", "--device", SlowDisk::NAME])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start the workload")?;
    let stack = format!("/proc/{}/stack", freezer.id());
    wait_until("the queue to be frozen", LIMIT, || {
        std::fs::read_to_string(&stack).is_ok_and(|text| text.contains("blk_mq_freeze_queue_wait"))
    })?;
    let mut tool = match first {
        Some(tool) => tool,
        None => Tool::start(&["1"])?,
    };
    let found = tool.wait_for("the frozen queue", LIMIT, |record| {
        record["type"] == "in_progress"
            && record["owner"] == "block queue usage"
            && record["comm"] == "elevator"
            && record["phase"] == "references"
            && stack_has(record, "blk_mq_freeze_queue_wait")
            && (tool_first == (record["references"].as_u64() == Some(1)))
            && (tool_first != record["age_ns"].is_null())
    });
    let frozen = freezer.wait().context("cannot wait for the workload")?;
    reader.kill().context("cannot kill the workload")?;
    reader.wait().context("cannot wait for the workload")?;
    found?;
    same("the freeze ended well", frozen.success(), true)?;
    let no_row = |records: &Records| {
        let all = records.all();
        let begin = all.iter().rposition(|record| record["type"] == "interval");
        let row = |record: &Value| record["type"] == "in_progress" && record["owner"] == "block queue usage";
        all.last().is_some_and(|record| record["type"] == "loss")
            && begin.is_some_and(|at| !all[at..].iter().any(row))
    };
    tool.wait_until("no row any more", LIMIT, no_row)?;
    tool.finish()?;
    disk.set_delay(0)?;
    Ok("one request held it".to_owned())
}

/// The tool runs when the freeze begins.
pub fn queue_freeze_before(_: &Guest) -> Result<String> {
    queue_freeze(true)
}

/// It comes later.
pub fn queue_freeze_after(_: &Guest) -> Result<String> {
    queue_freeze(false)
}
