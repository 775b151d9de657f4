//! UIO: exact counts, errors, hold and wait times.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Guest, near, number, same, shortened, workload};
use crate::clock::percentile;
use crate::device::{Testbed, make_tcmu, minor_of};
use crate::kernel_modules;
use crate::tool::{Records, Tool};

/// The share by which a mean or a total may differ from the independent measure.
const TOLERANCE: f64 = 0.05;
/// What uio_write does around irqcontrol, and the tool's own probes, take in a translated guest.
const PROBES_NS: f64 = 5_000.0;
/// Several writers that spin keep more of the guest's processors busy than the machine may have. One that the host
/// takes away costs its writer time on either side of the tool's clock; sleeping writers hardly ever lose one.
const SPINNING_TOLERANCE: f64 = 0.25;

/// Writers on two devices: each device has exactly its own.
pub fn exact_counts(_: &Guest) -> Result<String> {
    if !kernel_modules::have_testbed() {
        return exact_count_on_tcmu();
    }
    let (first, second) = (Testbed::find(0)?, Testbed::find(1)?);
    for device in [&first, &second] {
        device.set_hold(0, false)?;
        device.reset()?;
    }
    let tool = Tool::start(&[])?;
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

fn exact_count_on_tcmu() -> Result<String> {
    const NAME: &str = "tcm-user/0/testbed/testbed//x";
    let minor = minor_of(NAME).or_else(|_| make_tcmu())?;
    let tool = Tool::start(&[])?;
    workload(&format!(
        "uio-write --device /dev/uio{minor} --threads 4 --count 1000"
    ))?;
    let records = tool.finish()?;
    same(
        "writes",
        number(records.operation(NAME, "write"), "/count")?,
        4000,
    )?;
    nothing_lost(&records)?;
    Ok("4000 writes by 4 threads on a TCMU device".to_owned())
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

fn nothing_lost(records: &Records) -> Result<()> {
    let loss = records.loss();
    if loss.is_null() {
        bail!("there is no loss record");
    }
    let dropped = loss["dropped"]
        .as_object()
        .map_or(0, |reasons| reasons.values().filter_map(Value::as_u64).sum());
    same("events dropped", dropped, 0)
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

struct Measured {
    threads: usize,
    writes: f64,
    /// What the typical write has besides its hold: median of latencies less median of holds.
    rest_ns: f64,
    latency_sum: f64,
    /// Values at the ranks around the 99th percentile.
    latency_p99: (u64, u64),
    held_ns: f64,
    /// From the first thread's begin to the last one's end.
    wall_ns: f64,
    hold_p99: (u64, u64),
    records: Records,
}

fn measure(device: &Testbed, threads: usize, seconds: f64) -> Result<Measured> {
    device.reset()?;
    // A slow operation is also sent one by one, which costs its writer time after the tool's last look at the
    // clock. Here every operation would be one.
    let tool = Tool::start(&["--slow", "100s"])?;
    let line = format!(
        "uio-write --device {} --threads {threads} --seconds {seconds} --fifo",
        device.node()
    );
    let load = workload(&line)?;
    let records = tool.finish()?;
    let truth = device.truth()?;
    let own = |name: &str| number(&load, &format!("/devices/0/{name}"));
    let writes = own("writes")?;
    same("the module's calls", truth.calls, writes)?;
    let samples = device.sorted_samples(writes)?;
    Ok(Measured {
        threads,
        writes: writes as f64,
        rest_ns: own("latency_ns/p50")? as f64 - percentile(&samples, 0.5) as f64,
        latency_sum: own("latency_ns/sum")? as f64,
        latency_p99: (own("latency_ns/p98_5")?, own("latency_ns/p99_5")?),
        held_ns: truth.held_ns as f64,
        wall_ns: number(&load, "/wall_ns")? as f64,
        hold_p99: (percentile(&samples, 0.985), percentile(&samples, 0.995)),
        records,
    })
}

/// Hold and wait of a device whose irqcontrol takes a known time.
///
/// Truth of the hold: the module's own clock around irqcontrol. Truth of the wait: what is left of the writes' time
/// after the holds and the rest, where the rest (system call, copy, the tool's probes) is what a typical write of
/// one writer alone, who never waits, has besides its hold.
///
/// Several writers hand the lock over: whoever releases it wakes the next before uio_write returns, and the next
/// takes a while to run. Both cost microseconds on a real machine and tens of them in a translated one, where the
/// wake goes through the host. The first part is in the tool's hold and in neither truth; what both take together
/// is what the wall time of a lock that is always held has besides holds. Short holds are compared with that
/// allowance; with a hold of 2 ms it is too small to matter, and there is none.
pub fn timing(threads: usize, hold_us: u64, spin: bool) -> Result<String> {
    let device = Testbed::find(0)?;
    device.set_hold(hold_us, spin)?;
    let alone = measure(&device, 1, 1.0)?;
    let rest = alone.rest_ns.max(0.0);
    let run = if threads == 1 {
        alone
    } else {
        measure(&device, threads, 3.0)?
    };
    device.set_hold(0, false)?;

    let truth = Truth {
        wait: run.latency_sum - run.held_ns - rest * run.writes,
        handover: match (threads, hold_us) {
            (1, _) | (_, 2000..) => 0.0,
            _ => (run.wall_ns - run.held_ns - rest * run.writes).max(0.0),
        },
        rest: rest * run.writes,
        share: if spin && threads > 1 {
            SPINNING_TOLERANCE
        } else {
            TOLERANCE
        },
    };
    let figures = run.records.operation(&device.name, "write");
    let per_write = |sum: f64| sum / run.writes / 1e3;
    let detail = format!(
        "{} writes, us each: hold {:.1} (module {:.1}), wait {:.1} (workload {:.1}), rest {:.1}, handover {:.1}; {} contended",
        run.writes,
        per_write(number(figures, "/hold_ns/sum")? as f64),
        per_write(run.held_ns),
        per_write(number(figures, "/wait_ns/sum")? as f64),
        per_write(truth.wait),
        per_write(truth.rest),
        per_write(truth.handover),
        number(figures, "/contended")?,
    );
    compare(figures, &run, &truth).with_context(|| detail.clone())?;
    Ok(detail)
}

/// Totals of a run in nanoseconds, from the workload and the module.
struct Truth {
    wait: f64,
    handover: f64,
    rest: f64,
    /// How much a total may differ.
    share: f64,
}

fn compare(figures: &Value, run: &Measured, truth: &Truth) -> Result<()> {
    same("writes", number(figures, "/count")?, run.writes as u64)?;
    let contended = number(figures, "/contended")?;
    if contended as f64 > run.writes {
        bail!("{contended} contended writes of {}", run.writes);
    }
    let (hold, latency) = (&figures["hold_ns"], &figures["latency_ns"]);
    let total = |histogram: &Value| number(histogram, "/sum").map(|sum| sum as f64);
    same("count of holds", number(hold, "/count")?, run.writes as u64)?;

    // The tool's hold also has what uio_write does around irqcontrol, and the probes.
    let probes = (run.held_ns * truth.share).max(PROBES_NS * run.writes);
    let (low, high) = (
        run.held_ns * (1.0 - TOLERANCE),
        run.held_ns + probes + truth.handover,
    );
    between("total hold", total(hold)?, low, high)?;
    // The writer's clock is outside the system call and the probes, the tool's inside.
    let (low, high) = (
        run.latency_sum * (1.0 - 2.0 * truth.share) - truth.rest,
        run.latency_sum,
    );
    between("total latency", total(latency)?, low, high)?;
    if run.threads == 1 {
        same("waits of a single writer", contended, 0)?;
    } else {
        let allowed = truth.wait * truth.share + truth.handover;
        near(
            "total wait",
            total(&figures["wait_ns"])?,
            truth.wait,
            0.0,
            allowed,
        )?;
    }
    same_bucket("p99 of hold", hold, run.hold_p99, truth.handover / run.writes)?;
    same_bucket("p99 of latency", latency, run.latency_p99, 0.0)
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
fn same_bucket(what: &str, histogram: &Value, truth: (u64, u64), handover: f64) -> Result<()> {
    const BUCKET: f64 = 1.125;
    let found = number(histogram, "/p99")? as f64;
    let low = truth.0 as f64 / (BUCKET * BUCKET) - PROBES_NS;
    let high = truth.1 as f64 * BUCKET * BUCKET + PROBES_NS + handover;
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
