//! Drains with requests in flight: a disk that answers after a known time, and the workload's clock at each submission.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::aio::{only_drain, phases, words};
use super::disks::Disk;
use super::{Guest, near, number, same, shortened, workload};
use crate::kernel_modules;
use crate::tool::{Records, Tool};

/// The disk's time for a read.
const READ_NS: u64 = 300_000_000;
/// Of the disks that get 64 contexts: submitting to all of them must take less.
const LONG_READ_NS: u64 = 600_000_000;
const CONTEXTS: u64 = 8;
const READS: u64 = 4;
const TOLERANCE: f64 = 0.05;

/// A process that ends contexts with reads in flight.
fn load(disk: &Disk, how: &str, contexts: u64, reads: u64) -> String {
    format!(
        "aio --{how} --contexts {contexts} --in-flight {reads} --file {}",
        disk.path()
    )
}

/// What is expected of a drain.
#[derive(Clone, Copy)]
struct Truth<'a> {
    disk: &'a Disk,
    contexts: u64,
    /// In each context.
    reads: u64,
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
fn contexts(drain: &Value, load: &Value, truth: Truth<'_>) -> Result<Parts> {
    let (count, read) = (truth.contexts, truth.disk.read_ns as f64);
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
        if switched > read {
            bail!("the grace periods outlast the reads: {}", shortened(context));
        }
        let end = (killed - submitted) as f64 + number(context, "/total_ns")? as f64;
        let timely = near("I/O phase", io, read - switched, TOLERANCE, read * TOLERANCE)
            .and_then(|()| near("submission to drained", end, read, TOLERANCE, 0.0));
        if let Err(error) = timely {
            late.push(error.context(shortened(context)));
        }
        same("requests in flight", number(context, "/in_flight")?, truth.reads)?;
        file(context, truth.disk)?;
        grace += (users_gp + reqs_gp) / count as f64;
        latest = latest.max(end);
    }
    // Of eight disks' timers one may have waited for the guest's processor.
    if late.len() as u64 > count / 8
        && let Some(error) = late.pop()
    {
        return Err(error.context(format!("{} more were late", late.len())));
    }
    same("in flight", number(drain, "/in_flight")?, count * truth.reads)?;
    file(drain, truth.disk)?;
    Ok(Parts {
        grace,
        io_since_submission: latest,
    })
}

/// The last request's file is the disk.
fn file(record: &Value, disk: &Disk) -> Result<()> {
    let file = &record["last_request"];
    same("disk", file["disk"].as_str(), Some(disk.name.as_str())).with_context(|| shortened(record))?;
    same("is_device", file["is_device"].as_bool(), Some(true))
}

/// The sentence about a slow exit blames I/O.
fn sentence(records: &Records, load: &Value, disk: &Disk) -> Result<()> {
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
        disk.name
    );
    if !text.ends_with(&expected) {
        bail!("the finding says: {text}");
    }
    Ok(())
}

/// Eight contexts with reads at the exit; and eight destroyed one after another, each with reads.
pub fn by_exit_and_destroy(_: &Guest) -> Result<String> {
    let disk = Disk::null_blk(READ_NS)?;
    let truth = Truth {
        disk: &disk,
        contexts: CONTEXTS,
        reads: READS,
    };
    let tool = Tool::start(&[])?;
    let exit = workload(&load(&disk, "exit", CONTEXTS, READS))?;
    let destroy = workload(&load(&disk, "destroy", CONTEXTS, READS))?;
    let records = tool.finish()?;
    let said = [
        drained(&records, &exit, "exit", truth)?,
        drained(&records, &destroy, "destroy", truth)?,
    ];
    sentence(&records, &exit, &disk)?;
    Ok(said.join("; "))
}

/// The one drain of a load: its words, its contexts, its time.
fn drained(records: &Records, load: &Value, how: &str, truth: Truth<'_>) -> Result<String> {
    let (cause, verdict, wall) = match how {
        "exit" => ("exit_aio", "parallel", "/exit_ns"),
        _ => ("io_destroy", "serial", "/wall_ns"),
    };
    let verdict = if truth.contexts == 1 { "single" } else { verdict };
    let drain = only_drain(records, load)?;
    words(drain, cause, truth.contexts, verdict)?;
    phases(drain)?;
    let parts = contexts(drain, load, truth)?;
    let found = number(drain, "/wall_ns")? as f64;
    near("wall time", found, number(load, wall)? as f64, TOLERANCE, 0.0)?;
    Ok(format!(
        "{cause} of {}: {} requests; grace periods {:.1} ms; submission to drained {:.1} ms",
        truth.contexts,
        drain["in_flight"],
        parts.grace / 1e6,
        parts.io_since_submission / 1e6
    ))
}

/// 1, 8 and 64 contexts at the exit, and 1 and 8 destroyed one after another, on a disk whose delay is set.
fn on(disk: &Disk) -> Result<String> {
    const CASES: [(&str, u64); 5] = [
        ("exit", 1),
        ("exit", 8),
        ("exit", 64),
        ("destroy", 1),
        ("destroy", 8),
    ];
    let tool = Tool::start(&[])?;
    let mut loads = Vec::new();
    for (how, contexts) in CASES {
        // Of 64 one read each: SCSI has room for 192 commands.
        let reads = if contexts > CONTEXTS { 1 } else { READS };
        loads.push((how, contexts, reads, workload(&load(disk, how, contexts, reads))?));
    }
    let records = tool.finish()?;
    let mut said = Vec::new();
    for (how, contexts, reads, load) in &loads {
        let truth = Truth {
            disk,
            contexts: *contexts,
            reads: *reads,
        };
        said.push(drained(&records, load, how, truth)?);
    }
    Ok(said.join("; "))
}

/// dm-delay: bio-based, its delay in a table.
pub fn dm_delay(_: &Guest) -> Result<String> {
    // Its timer is up to 8 ticks late beyond 63 (kernel/time/timer.c): 32 ms at HZ=250, to be little of this.
    on(&Disk::delayed(2 * LONG_READ_NS)?)
}

/// scsi_debug: its delay by a timer for each command.
pub fn scsi_debug(_: &Guest) -> Result<String> {
    on(&Disk::scsi(LONG_READ_NS)?)
}

/// A regular file with O_DIRECT on ext4, on dm-delay: the file is named, and the disk its file system is on.
pub fn file_on_ext4(_: &Guest) -> Result<String> {
    const FILE: &str = "orders.ibd";
    let disk = Disk::delayed(READ_NS)?;
    let mounted = Mounted::new(&disk)?;
    let path = format!("{}/{FILE}", Mounted::PLACE);
    std::fs::write(&path, vec![7_u8; 256 * 1024]).with_context(|| format!("cannot write {path}"))?;
    std::fs::File::open(&path).and_then(|file| file.sync_all())?;
    let tool = Tool::start(&[])?;
    let line = format!("aio --exit --contexts {CONTEXTS} --in-flight {READS} --file {path}");
    let load = workload(&line)?;
    let records = tool.finish()?;
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path)?);
    drop(mounted);
    let drain = only_drain(&records, &load)?;
    words(drain, "exit_aio", CONTEXTS, "parallel")?;
    same("in flight", number(drain, "/in_flight")?, CONTEXTS * READS)?;
    let detail = drain["detail"].as_array().context("no detail")?;
    for record in detail.iter().chain([drain]) {
        let file = &record["last_request"];
        same("file", file["name"].as_str(), Some(FILE)).with_context(|| shortened(record))?;
        same("inode", file["inode"].as_u64(), Some(inode))?;
        same("disk", file["disk"].as_str(), Some(disk.name.as_str()))?;
        same("is_device", file["is_device"].as_bool(), Some(false))?;
    }
    Ok(format!("{FILE}, inode {inode}, on {}", disk.name))
}

/// An ext4 without a journal on a disk; unmounted when dropped.
struct Mounted(());

impl Mounted {
    const PLACE: &str = "/tmp/ext4";

    fn new(disk: &Disk) -> Result<Mounted> {
        // What ext4 has its checksums from; built in, or not needed, on some kernels.
        let _ = kernel_modules::load("crc32c_generic");
        kernel_modules::load("ext4")?;
        std::fs::create_dir_all(Mounted::PLACE)?;
        run(&[
            "mke2fs",
            "-q",
            "-F",
            "-t",
            "ext4",
            "-O",
            "^has_journal",
            &disk.path(),
        ])?;
        run(&["mount", "-t", "ext4", &disk.path(), Mounted::PLACE])?;
        Ok(Mounted(()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run(&["umount", Mounted::PLACE]);
    }
}

fn run(words: &[&str]) -> Result<()> {
    let (program, arguments) = words.split_first().context("no program")?;
    let output = std::process::Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
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
    let disk = Disk::null_blk(READ_NS)?;
    let tool = Tool::start(&[])?;
    let mut loads = Vec::new();
    for value in ["0", "1"] {
        let _setting = Setting::set("/sys/kernel/rcu_expedited", value)?;
        loads.push((value, workload(&load(&disk, "destroy", 2, READS))?));
    }
    let records = tool.finish()?;
    let mut said = Vec::new();
    for (value, load) in &loads {
        let truth = Truth {
            disk: &disk,
            contexts: 2,
            reads: READS,
        };
        let parts = contexts(only_drain(&records, load)?, load, truth)?;
        said.push(format!(
            "{value}: grace periods {:.1} ms, submission to drained {:.1} ms",
            parts.grace / 1e6,
            parts.io_since_submission / 1e6
        ));
    }
    Ok(said.join("; "))
}
