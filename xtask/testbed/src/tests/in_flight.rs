//! Drains with requests in flight: a disk that answers after a known time, and the workload's clock at each submission.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::aio::{only_drain, phases, words};
use super::{Guest, near, number, same, shortened, workload};
use crate::kernel_modules;
use crate::tool::{Records, Tool};

/// The disk's time for a read.
const READ_NS: u64 = 300_000_000;
const READ: f64 = READ_NS as f64;
const CONTEXTS: u64 = 8;
const READS: u64 = 4;
const TOLERANCE: f64 = 0.05;

/// null_blk whose reads take [`READ_NS`].
struct Disk(());

impl Disk {
    const NAME: &str = "nullb0";

    fn new() -> Result<Disk> {
        if kernel_modules::is_loaded("null_blk") {
            kernel_modules::unload("null_blk")?;
        }
        // Room for all reads: one that has to wait for a place takes longer.
        kernel_modules::load(&format!(
            "null_blk nr_devices=1 queue_mode=2 irqmode=2 hw_queue_depth=128 completion_nsec={READ_NS}"
        ))?;
        Ok(Disk(()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = kernel_modules::unload("null_blk");
    }
}

fn load(how: &str) -> String {
    format!(
        "aio --{how} --contexts {CONTEXTS} --in-flight {READS} --file /dev/{}",
        Disk::NAME
    )
}

/// What the critical context's drain was made of, ns.
#[derive(Debug)]
struct Parts {
    /// Both grace periods.
    grace: f64,
    /// From the last read's submission to the context's end.
    io_since_submission: f64,
}

/// Each context's end against the moment its last read was due; its I/O phase against what was left of that when its grace
/// periods were over; counts; and the file.
fn contexts(drain: &Value, load: &Value) -> Result<Parts> {
    let detail = drain["detail"].as_array().context("no detail")?;
    let submitted = load["submitted_ns"].as_array().context("no submissions")?;
    same("contexts in detail", detail.len(), submitted.len())?;
    let start = number(drain, "/start_ns")?;
    let critical = usize::try_from(number(drain, "/critical")?)?;
    let mut parts = None;
    for (index, context) in detail.iter().enumerate() {
        // Of an exit the contexts are killed in the table's order, which is that of their making.
        let submitted = submitted[index].as_u64().context("a time is no number")?;
        let killed = start + number(context, "/start_offset_ns")?;
        let [users_gp, refs, reqs_gp, io] = ["users_gp", "users_refs", "reqs_gp", "reqs_io"]
            .map(|phase| number(context, &format!("/{phase}_ns")).map(|ns| ns as f64));
        let (users_gp, refs, reqs_gp, io) = (users_gp?, refs?, reqs_gp?, io?);
        let switched = (killed - submitted) as f64 + users_gp + refs + reqs_gp;
        if switched > READ {
            bail!("the grace periods outlast the reads: {}", shortened(context));
        }
        near("I/O phase", io, READ - switched, TOLERANCE, READ * TOLERANCE)
            .with_context(|| shortened(context))?;
        let end = (killed - submitted) as f64 + number(context, "/total_ns")? as f64;
        near("submission to drained", end, READ, TOLERANCE, 0.0)?;
        same("requests in flight", number(context, "/in_flight")?, READS)?;
        file(context)?;
        if index == critical {
            parts = Some(Parts {
                grace: users_gp + reqs_gp,
                io_since_submission: end,
            });
        }
    }
    same("in flight", number(drain, "/in_flight")?, CONTEXTS * READS)?;
    file(drain)?;
    parts.context("no critical context")
}

/// The last request's file is the disk.
fn file(record: &Value) -> Result<()> {
    let file = &record["last_request"];
    same("disk", file["disk"].as_str(), Some(Disk::NAME)).with_context(|| shortened(record))?;
    same("is_device", file["is_device"].as_bool(), Some(true))
}

/// The sentence about a slow exit blames I/O.
fn sentence(records: &Records, load: &Value) -> Result<()> {
    let tgid = number(load, "/tgid")?;
    let found = records.of("finding").find(|finding| {
        finding["id"] == "aio_exit_slow_io"
            && finding["subject"]
                .as_str()
                .is_some_and(|subject| subject.ends_with(&format!("({tgid})")))
    });
    let text = found.and_then(|f| f["text"].as_str()).with_context(|| {
        let all: Vec<&Value> = records.of("finding").collect();
        format!("no finding aio_exit_slow_io of {tgid} among {all:?}")
    })?;
    let expected = format!(
        "are I/O in flight ({} requests), the last on {}",
        CONTEXTS * READS,
        Disk::NAME
    );
    if !text.ends_with(&expected) {
        bail!("the finding says: {text}");
    }
    Ok(())
}

/// Eight contexts with reads at the exit.
pub fn by_exit(_: &Guest) -> Result<String> {
    let _disk = Disk::new()?;
    let tool = Tool::start(&[])?;
    let load = workload(&load("exit"))?;
    let records = tool.finish()?;
    let drain = only_drain(&records, &load)?;
    words(drain, "exit_aio", CONTEXTS, "parallel")?;
    phases(drain)?;
    let parts = contexts(drain, &load)?;
    near(
        "wall time",
        number(drain, "/wall_ns")? as f64,
        number(&load, "/exit_ns")? as f64,
        TOLERANCE,
        0.0,
    )?;
    sentence(&records, &load)?;
    Ok(said(drain, &parts))
}

/// Eight contexts destroyed one after another, each with reads.
pub fn by_destroy(_: &Guest) -> Result<String> {
    let _disk = Disk::new()?;
    let tool = Tool::start(&[])?;
    let load = workload(&load("destroy"))?;
    let records = tool.finish()?;
    let drain = only_drain(&records, &load)?;
    words(drain, "io_destroy", CONTEXTS, "serial")?;
    phases(drain)?;
    let parts = contexts(drain, &load)?;
    near(
        "wall time",
        number(drain, "/wall_ns")? as f64,
        number(&load, "/wall_ns")? as f64,
        TOLERANCE,
        0.0,
    )?;
    Ok(said(drain, &parts))
}

fn said(drain: &Value, parts: &Parts) -> String {
    format!(
        "{} requests; grace periods {:.1} ms; submission to drained {:.1} ms",
        drain["in_flight"],
        parts.grace / 1e6,
        parts.io_since_submission / 1e6
    )
}

/// A setting of the kernel, put back at the end.
struct Setting {
    path: &'static str,
    before: String,
}

impl Setting {
    fn set(path: &'static str, value: &str) -> Result<Setting> {
        let before = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        std::fs::write(path, value).with_context(|| format!("cannot set {path}"))?;
        Ok(Setting { path, before })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = std::fs::write(self.path, self.before.trim());
    }
}

/// Whether RCU's grace periods are short or long changes that part and not the disk's.
pub fn other_grace_periods(_: &Guest) -> Result<String> {
    const EXPEDITED: &str = "/sys/kernel/rcu_expedited";
    const FIRST: &str = "/sys/module/rcutree/parameters/jiffies_till_first_fqs";
    let _disk = Disk::new()?;
    let tool = Tool::start(&[])?;
    let mut loads = Vec::new();
    for (name, path, value) in [
        ("as it is", EXPEDITED, "0"),
        ("expedited", EXPEDITED, "1"),
        ("scanned late", FIRST, "25"),
    ] {
        let _setting = Setting::set(path, value)?;
        loads.push((name, workload(&load("exit"))?));
    }
    let records = tool.finish()?;
    let mut rows = Vec::new();
    for (name, load) in &loads {
        let drain = only_drain(&records, load)?;
        rows.push((name, contexts(drain, load)?));
    }
    let text: Vec<String> = rows
        .iter()
        .map(|(name, parts)| {
            format!(
                "{name}: {:.1} ms, submission to drained {:.1} ms",
                parts.grace / 1e6,
                parts.io_since_submission / 1e6
            )
        })
        .collect();
    Ok(text.join("; "))
}
