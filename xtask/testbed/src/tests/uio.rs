//! UIO: exact counts, errors, hold and wait times.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Guest, near, number, same, shortened, workload};
use crate::bpf_programs::ReadMap;
use crate::clock::percentile;
use crate::device::{TCMU_NAME, Testbed, make_tcmu, minor_of};
use crate::kernel_modules;
use crate::tool::{ProgramTimes, Records, Tool};

/// The share by which a mean or a total may differ from the independent measure.
const TOLERANCE: f64 = 0.05;
/// What uio_write does around irqcontrol, and the tool's own probes, take in a translated guest.
const PROBES_NS: f64 = 5_000.0;

/// Writers on two devices: each device has exactly its own.
pub fn exact_counts(_: &Guest) -> Result<String> {
    exact_counts_with(&[])
}

/// The same by fentry and fexit, where the kernel has BTF of modules and does not preempt; elsewhere by kprobes, with the
/// reason.
pub fn exact_counts_by_fentry(guest: &Guest) -> Result<String> {
    let tool = Tool::start(&[HOLD])?;
    let method = tool.method("uio_write").map(str::to_owned);
    let records = tool.finish()?;
    let probes = records.of("meta").next().map(|meta| meta["probes"].clone());
    let probes = probes.unwrap_or_default();
    let hooks = probes.as_array().into_iter().flatten();
    // Looking into a device is no hook: that program is run, not attached.
    for hook in hooks.filter(|hook| hook["subject"] == "uio" && hook["method"] != "test_run") {
        let name = hook["hook"].as_str().unwrap_or_default();
        if name.ends_with("_show") {
            // These have twins in other modules, and are left to kprobes.
            same(name, hook["method"].as_str(), Some("kprobe+kretprobe"))?;
        } else if FENTRY_KERNELS.contains(&guest.kernel.as_str()) {
            same(name, hook["method"].as_str(), Some("fentry+fexit"))?;
        } else {
            same(name, hook["method"].as_str(), Some("kprobe+kretprobe"))?;
            let reason = hook["reason"].as_str().unwrap_or_default();
            if !reason.starts_with("fentry: ") {
                bail!("{name} does not say why not fentry: {reason:?}");
            }
        }
    }
    let counts = exact_counts_with(&[HOLD])?;
    Ok(format!("{counts}, by {}", method.unwrap_or_default()))
}

/// The option that asks for fentry and fexit.
pub const HOLD: &str = "--hold-uio";
/// Kernels on which that has to work: BTF of modules, no preemption.
pub const FENTRY_KERNELS: [&str; 2] = ["6.1", "6.12"];

fn exact_counts_with(options: &[&str]) -> Result<String> {
    if !kernel_modules::have_testbed() {
        return exact_count_on_tcmu(options);
    }
    let (first, second) = (Testbed::find(0)?, Testbed::find(1)?);
    for device in [&first, &second] {
        device.set_hold(0, false)?;
        device.reset()?;
    }
    let tool = Tool::start(options)?;
    // Four threads on one device, two on the other, with different counts.
    workload(&format!(
        "uio-write --device {} --threads 4 --count 1500",
        first.node()
    ))?;
    workload(&format!(
        "uio-write --device {},{} --threads 4 --count 500 --own-fd",
        first.node(),
        second.node()
    ))?;
    let records = tool.finish()?;
    for (device, expected) in [(&first, 7000), (&second, 1000)] {
        same("the module's own count", device.truth()?.calls, expected)?;
        let figures = records.operation(&device.name, "write");
        same(
            &format!("writes of {}", device.name),
            number(figures, "/count")?,
            expected,
        )?;
        same(
            "count of latencies",
            number(figures, "/latency_ns/count")?,
            expected,
        )?;
        same(
            "errors",
            figures["errors"].as_object().map_or(0, |errors| errors.len()),
            0,
        )?;
    }
    only_devices(&records, &[&first.name, &second.name])?;
    nothing_lost(&records)?;
    Ok("7000 and 1000 writes, 6 threads".to_owned())
}

fn exact_count_on_tcmu(options: &[&str]) -> Result<String> {
    let minor = minor_of(TCMU_NAME).or_else(|_| make_tcmu())?;
    let tool = Tool::start(options)?;
    workload(&format!(
        "uio-write --device /dev/uio{minor} --threads 4 --count 1000"
    ))?;
    let records = tool.finish()?;
    same(
        "writes",
        number(records.operation(TCMU_NAME, "write"), "/count")?,
        4000,
    )?;
    nothing_lost(&records)?;
    Ok("4000 writes by 4 threads on a TCMU device".to_owned())
}

/// A device that is written to without a break.
fn any_device() -> Result<(String, String)> {
    if kernel_modules::have_testbed() {
        let device = Testbed::find(0)?;
        device.set_hold(0, false)?;
        return Ok((device.name.clone(), device.node()));
    }
    let minor = minor_of(TCMU_NAME).or_else(|_| make_tcmu())?;
    Ok((TCMU_NAME.to_owned(), format!("/dev/uio{minor}")))
}

/// The tool reads its maps ten times a second and more. A kernel that preempts anywhere (7.2 does) can take the CPU from a
/// system call of its reading, and leaves out the programs of whoever runs there then (`bpf_prog_active`).
pub fn exact_counts_while_read(_: &Guest) -> Result<String> {
    let (name, node) = any_device()?;
    let tool = Tool::start(&["0.1"])?;
    let load = workload(&format!("uio-write --device {node} --threads 4 --seconds 12"))?;
    let records = tool.finish()?;
    let writes = number(&load, "/devices/0/writes")?;
    let seen = records.operation_sum(&name, "write", "count");
    nothing_lost(&records).with_context(|| format!("{seen} of {writes} writes seen"))?;
    same("writes", seen, writes)?;
    Ok(format!("{writes} writes"))
}

/// Threads that write, and threads of another program that reads maps of its own.
const WRITERS: u64 = 4;
/// Kernels that preempt in the middle of a system call.
const PREEMPTING: [&str; 2] = ["6.12-rt", "sid"];

/// Somebody else reads BPF maps all the time: each write that the kernel ran no program for is counted as missed.
pub fn misses_are_counted(guest: &Guest) -> Result<String> {
    let (name, node) = any_device()?;
    let map = ReadMap::create().context("cannot make a BPF map")?;
    let end = AtomicBool::new(false);
    let (load, records) = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..WRITERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut result = Ok(());
                    while result.is_ok() && !end.load(Ordering::Relaxed) {
                        result = map.read();
                    }
                    result
                })
            })
            .collect();
        let run = || -> Result<(Value, Records)> {
            let tool = Tool::start(&[])?;
            let load = workload(&format!(
                "uio-write --device {node} --threads {WRITERS} --seconds 5"
            ))?;
            Ok((load, tool.finish()?))
        };
        let result = run();
        end.store(true, Ordering::Relaxed);
        for reader in readers {
            let read = reader.join().map_err(|_| anyhow::anyhow!("a reader panicked"))?;
            read.context("cannot read the map")?;
        }
        result
    })?;
    let writes = number(&load, "/devices/0/writes")?;
    let seen = records.operation_sum(&name, "write", "count");
    let lost = lost(&records)?;
    let of = |reason: &str| lost.get(reason).copied().unwrap_or(0);
    let told = seen + of("entry_missed") + of("exit_missed");
    // A thread's last return is noticed as missed by its next operation, of which there is none; and what is missed can be the
    // open or the release.
    if told > writes + 2 || told + WRITERS < writes {
        bail!("{writes} writes; {seen} were seen, lost are {lost:?}");
    }
    if PREEMPTING.contains(&guest.kernel.as_str()) {
        if of("entry_missed") == 0 {
            bail!("nothing was missed, so this shows nothing: {lost:?}");
        }
    } else {
        same("missed on a kernel that does not preempt", of("entry_missed"), 0)?;
    }
    Ok(format!("{writes} writes, {seen} seen, lost {lost:?}"))
}

fn only_devices(records: &Records, names: &[&str]) -> Result<()> {
    for record in records.of("uio_device") {
        let name = record["name"].as_str().unwrap_or_default();
        let operations = record["ops"].as_array().map_or(0, Vec::len);
        if !names.contains(&name) && operations > 0 {
            bail!("operations on a device that nobody used: {}", shortened(record));
        }
    }
    Ok(())
}

/// What was lost in any interval, by reason.
fn lost(records: &Records) -> Result<BTreeMap<String, u64>> {
    if records.loss().is_null() {
        bail!("there is no loss record");
    }
    let mut all = BTreeMap::new();
    for record in records.of("loss") {
        for (reason, count) in record["dropped"].as_object().into_iter().flatten() {
            *all.entry(reason.clone()).or_insert(0) += count.as_u64().unwrap_or(0);
        }
    }
    Ok(all)
}

pub(super) fn nothing_lost(records: &Records) -> Result<()> {
    let lost = lost(records)?;
    if !lost.is_empty() {
        bail!("events dropped: {lost:?}");
    }
    Ok(())
}

/// Every third call fails with EIO, then every second with EAGAIN.
pub fn errors_by_errno(_: &Guest) -> Result<String> {
    let device = Testbed::find(0)?;
    device.set_hold(0, false)?;
    device.reset()?;
    let tool = Tool::start(&[])?;
    device.set_failure(3, libc::EIO)?;
    let first = workload(&format!(
        "uio-write --device {} --threads 2 --count 300",
        device.node()
    ))?;
    device.set_failure(2, libc::EAGAIN)?;
    let second = workload(&format!(
        "uio-write --device {} --threads 1 --count 400",
        device.node()
    ))?;
    device.set_failure(0, libc::EIO)?;
    let records = tool.finish()?;
    let figures = records.operation(&device.name, "write");
    let errors = &figures["errors"];
    let io = number(&first, "/devices/0/errors/EIO")?;
    let again = number(&second, "/devices/0/errors/EAGAIN")?;
    same("the module's failed calls", device.truth()?.failed, io + again)?;
    same("EIO", number(errors, "/EIO")?, io)?;
    same("EAGAIN", number(errors, "/EAGAIN")?, again)?;
    same(
        "kinds of errors",
        errors.as_object().map_or(0, |errors| errors.len()),
        2,
    )?;
    same("writes", number(figures, "/count")?, 1000)?;
    Ok(format!("{io} EIO, {again} EAGAIN"))
}

/// A run of writers on one device: the module's and the workload's own figures.
struct Run {
    writes: f64,
    latency_sum: f64,
    /// Values at the ranks around the 99th percentile.
    latency_p99: (u64, u64),
    held_ns: f64,
    /// From the writers' stamps to irqcontrol, summed.
    arrival_ns: f64,
    /// Time the tool's programs ran meanwhile, by the kernel's count.
    programs_ns: f64,
    hold_p99: (u64, u64),
}

fn run_writers(tool: &Tool, device: &Testbed, threads: usize, seconds: f64) -> Result<Run> {
    device.reset()?;
    let line = format!(
        "uio-write --device {} --threads {threads} --seconds {seconds} --fifo",
        device.node()
    );
    let programs_ns = tool.programs_ns()?;
    let load = workload(&line)?;
    let programs_ns = tool.programs_ns()? - programs_ns;
    let truth = device.truth()?;
    let own = |name: &str| number(&load, &format!("/devices/0/{name}"));
    let writes = own("writes")?;
    same("the module's calls", truth.calls, writes)?;
    let samples = device.sorted_samples(writes)?;
    Ok(Run {
        writes: writes as f64,
        latency_sum: own("latency_ns/sum")? as f64,
        latency_p99: (own("latency_ns/p98_5")?, own("latency_ns/p99_5")?),
        held_ns: truth.held_ns as f64,
        arrival_ns: truth.arrival_ns as f64,
        programs_ns: programs_ns as f64,
        hold_p99: (percentile(&samples, 0.985), percentile(&samples, 0.995)),
    })
}

/// Hold and wait of a device whose irqcontrol takes a known time.
///
/// Truth of the hold: the module's own clock around irqcontrol. Truth of the wait: each write carries its writer's
/// clock, and irqcontrol, which is called with the lock held, tells how long ago that was; less what the way to
/// irqcontrol takes when nobody waits, known from a single writer on another device under the same tool, and less what
/// the tool's programs run longer for a write that waits.
pub fn timing(threads: usize, hold_us: u64, spin: bool) -> Result<String> {
    timing_with(&[], threads, hold_us, spin)
}

/// The same by fentry and fexit.
pub fn timing_by_fentry(threads: usize, hold_us: u64, spin: bool) -> Result<String> {
    timing_with(&[HOLD], threads, hold_us, spin)
}

fn timing_with(options: &[&str], threads: usize, hold_us: u64, spin: bool) -> Result<String> {
    let (device, other) = (Testbed::find(0)?, Testbed::find(1)?);
    for device in [&device, &other] {
        device.set_hold(hold_us, spin)?;
    }
    // A slow operation is also sent one by one, which costs its writer time after the tool's last look at the
    // clock. Here every operation would be one.
    let tool = Tool::start(&[&["--slow", "100s"], options].concat())?;
    let times = ProgramTimes::count()?;
    let alone = run_writers(&tool, &other, 1, 0.5)?;
    let run = run_writers(&tool, &device, threads, 2.0)?;
    drop(times);
    let records = tool.finish()?;
    for device in [&device, &other] {
        device.set_hold(0, false)?;
    }
    let truth = Truth {
        wait: (run.arrival_ns
            - run.programs_ns
            - (alone.arrival_ns - alone.programs_ns) / alone.writes * run.writes)
            .max(0.0),
        around: (alone.latency_sum - alone.held_ns) / alone.writes * run.writes,
    };
    let figures = records.operation(&device.name, "write");
    let per_write = |sum: f64| sum / run.writes / 1e3;
    let detail = format!(
        "{} writes, us each: hold {:.1} (module {:.1}), wait {:.1} (module {:.1}), latency {:.1} (workload {:.1}), around {:.1}; {} contended",
        run.writes,
        per_write(number(figures, "/hold_ns/sum")? as f64),
        per_write(run.held_ns),
        per_write(number(figures, "/wait_ns/sum")? as f64),
        per_write(truth.wait),
        per_write(number(figures, "/latency_ns/sum")? as f64),
        per_write(run.latency_sum),
        per_write(truth.around),
        number(figures, "/contended")?,
    );
    compare(figures, &run, threads, &truth).with_context(|| detail.clone())?;
    Ok(detail)
}

/// Totals of a run in nanoseconds, from the module and the workload.
struct Truth {
    wait: f64,
    /// What a write that never waits has besides its hold: system call, copy, the tool's probes.
    around: f64,
}

fn compare(figures: &Value, run: &Run, threads: usize, truth: &Truth) -> Result<()> {
    same("writes", number(figures, "/count")?, run.writes as u64)?;
    let contended = number(figures, "/contended")?;
    if contended as f64 > run.writes {
        bail!("{contended} contended writes of {}", run.writes);
    }
    let (hold, latency) = (&figures["hold_ns"], &figures["latency_ns"]);
    let total = |histogram: &Value| number(histogram, "/sum").map(|sum| sum as f64);
    same("count of holds", number(hold, "/count")?, run.writes as u64)?;

    // The tool's hold also has what uio_write does around irqcontrol, and the probes: at most what a write of a single writer
    // has besides its hold, by the workload's clock.
    let around = (run.held_ns * TOLERANCE).max(truth.around);
    between(
        "total hold",
        total(hold)?,
        run.held_ns * (1.0 - TOLERANCE),
        run.held_ns + around,
    )?;
    // The writer's clock is outside the system call and the probes, the tool's inside.
    let (low, high) = (
        run.latency_sum * (1.0 - TOLERANCE) - truth.around - PROBES_NS * contended as f64,
        run.latency_sum,
    );
    between("total latency", total(latency)?, low, high)?;
    if threads == 1 {
        same("waits of a single writer", contended, 0)?;
    } else {
        // Between the writer's stamp and the tool's first look at the wait, and between its last and irqcontrol,
        // are the tracepoints' own programs.
        let floor = PROBES_NS * contended as f64;
        near(
            "total wait",
            total(&figures["wait_ns"])?,
            truth.wait,
            TOLERANCE,
            floor,
        )?;
    }
    same_bucket("p99 of hold", hold, run.hold_p99)?;
    same_bucket("p99 of latency", latency, run.latency_p99)
}

fn between(what: &str, found: f64, low: f64, high: f64) -> Result<()> {
    if found < low || found > high {
        bail!("{what} is {found:.0}, should be from {low:.0} to {high:.0}");
    }
    Ok(())
}

/// The 99th percentile may lie in the bucket of the true value or in a neighbour of it (buckets are at most 1/8 of
/// their lower bound wide). In a steep tail the two clocks, one inside the system call and one outside, need not
/// put the same write at the same rank: the true value is one between the ranks 98.5 % and 99.5 %.
fn same_bucket(what: &str, histogram: &Value, truth: (u64, u64)) -> Result<()> {
    const BUCKET: f64 = 1.125;
    let found = number(histogram, "/p99")? as f64;
    let low = truth.0 as f64 / (BUCKET * BUCKET) - PROBES_NS;
    let high = truth.1 as f64 * BUCKET * BUCKET + PROBES_NS;
    if found < low || found > high {
        bail!("{what} is {found}, more than a bucket from {truth:?}");
    }
    Ok(())
}

/// One writer on each of two devices with the same hold: neither waits, though both hold at the same time.
pub fn waits_stay_with_their_device(_: &Guest) -> Result<String> {
    let (first, second) = (Testbed::find(0)?, Testbed::find(1)?);
    for device in [&first, &second] {
        device.set_hold(200, false)?;
        device.reset()?;
    }
    let tool = Tool::start(&["1"])?;
    let both = format!(
        "uio-write --device {},{} --threads 2 --seconds 1 --pin",
        first.node(),
        second.node()
    );
    workload(&both)?;
    // Then three threads more on the first: its waits must not appear on the second.
    let background = std::thread::spawn({
        let line = format!("uio-write --device {} --seconds 2 --threads 1", second.node());
        move || workload(&line)
    });
    workload(&format!(
        "uio-write --device {} --threads 3 --seconds 2",
        first.node()
    ))?;
    background
        .join()
        .map_err(|_| anyhow::anyhow!("the writer panicked"))??;
    let writes = second.truth()?.calls;
    let mut tool = tool;
    let complete = |records: &Records| records.operation_sum(&second.name, "write", "count") >= writes;
    tool.wait_until("every write", Duration::from_secs(20), complete)?;
    let records = tool.finish()?;
    same(
        "waits of the uncontended device",
        records.operation_sum(&second.name, "write", "contended"),
        0,
    )?;
    let contended = records.operation_sum(&first.name, "write", "contended");
    if contended == 0 {
        bail!("three writers on one device never waited");
    }
    same(
        "writes of the first",
        records.operation_sum(&first.name, "write", "count"),
        first.truth()?.calls,
    )?;
    for device in [&first, &second] {
        device.set_hold(0, false)?;
    }
    Ok(format!(
        "{contended} waits on {}, none on {}",
        first.name, second.name
    ))
}
