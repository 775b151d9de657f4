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

/// What a drain was made of, ns.
#[derive(Debug)]
struct Parts {
    /// Both grace periods of a context, mean.
    grace: f64,
    /// From the last read's submission to its context's end, the longest.
    io_since_submission: f64,
}

/// Each context's end against the moment its last read was due; its I/O phase against what was left of that when its grace
/// periods were over; counts; and the file.
fn contexts(drain: &Value, load: &Value, count: u64) -> Result<Parts> {
    let detail = drain["detail"].as_array().context("no detail")?;
    let submitted = load["submitted_ns"].as_array().context("no submissions")?;
    same("contexts in detail", detail.len(), submitted.len())?;
    let start = number(drain, "/start_ns")?;
    let (mut grace, mut latest) = (0.0, 0.0_f64);
    let mut late = Vec::new();
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
        let end = (killed - submitted) as f64 + number(context, "/total_ns")? as f64;
        let timely = near("I/O phase", io, READ - switched, TOLERANCE, READ * TOLERANCE)
            .and_then(|()| near("submission to drained", end, READ, TOLERANCE, 0.0));
        if let Err(error) = timely {
            late.push(error.context(shortened(context)));
        }
        same("requests in flight", number(context, "/in_flight")?, READS)?;
        file(context)?;
        grace += (users_gp + reqs_gp) / count as f64;
        latest = latest.max(end);
    }
    // Of eight disks' timers one may have waited for the guest's processor.
    if late.len() as u64 > count / 8
        && let Some(error) = late.pop()
    {
        return Err(error.context(format!("{} more were late", late.len())));
    }
    same("in flight", number(drain, "/in_flight")?, count * READS)?;
    file(drain)?;
    Ok(Parts {
        grace,
        io_since_submission: latest,
    })
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

/// Eight contexts with reads at the exit; and eight destroyed one after another, each with reads.
pub fn by_exit_and_destroy(_: &Guest) -> Result<String> {
    let _disk = Disk::new()?;
    let tool = Tool::start(&[])?;
    let exit = workload(&load("exit"))?;
    let destroy = workload(&load("destroy"))?;
    let records = tool.finish()?;
    let mut said = Vec::new();
    for (load, cause, verdict, wall) in [
        (&exit, "exit_aio", "parallel", "/exit_ns"),
        (&destroy, "io_destroy", "serial", "/wall_ns"),
    ] {
        let drain = only_drain(&records, load)?;
        words(drain, cause, CONTEXTS, verdict)?;
        phases(drain)?;
        let parts = contexts(drain, load, CONTEXTS)?;
        let found = number(drain, "/wall_ns")? as f64;
        near("wall time", found, number(load, wall)? as f64, TOLERANCE, 0.0)?;
        said.push(format!(
            "{cause}: {} requests; grace periods {:.1} ms; submission to drained {:.1} ms",
            drain["in_flight"],
            parts.grace / 1e6,
            parts.io_since_submission / 1e6
        ));
    }
    sentence(&records, &exit)?;
    Ok(said.join("; "))
}

/// A setting of the kernel, put back at the end.
pub(super) struct Setting {
    path: &'static str,
    before: String,
}

impl Setting {
    pub(super) fn set(path: &'static str, value: &str) -> Result<Setting> {
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

/// `rcu_expedited` changes neither part: it is for those who wait in synchronize_rcu, and a percpu_ref is switched by call_rcu.
pub fn expedited(_: &Guest) -> Result<String> {
    let _disk = Disk::new()?;
    let tool = Tool::start(&[])?;
    let mut loads = Vec::new();
    for value in ["0", "1"] {
        let _setting = Setting::set("/sys/kernel/rcu_expedited", value)?;
        let line = format!(
            "aio --destroy --contexts 2 --in-flight {READS} --file /dev/{}",
            Disk::NAME
        );
        loads.push((value, workload(&line)?));
    }
    let records = tool.finish()?;
    let mut said = Vec::new();
    for (value, load) in &loads {
        let parts = contexts(only_drain(&records, load)?, load, 2)?;
        said.push(format!(
            "{value}: grace periods {:.1} ms, submission to drained {:.1} ms",
            parts.grace / 1e6,
            parts.io_since_submission / 1e6
        ));
    }
    Ok(said.join("; "))
}
