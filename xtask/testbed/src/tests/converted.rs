//! A `uio` module with a percpu_ref in place of info_lock: recognised, nobody waits, and what its unregistration takes.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Guest, near, number, same, shortened, workload};
use crate::clock::{monotonic_ns, wait_until};
use crate::device::Testbed;
use crate::kernel_modules::{Uio, swap};
use crate::tool::{Records, Tool};

/// As long as it lives, `uio` is a converted one; then the stock one is back.
struct Converted;

impl Converted {
    fn load(uio: Uio) -> Result<Converted> {
        let converted = Converted;
        swap(uio)?;
        Ok(converted)
    }

    /// Back to the stock one; a failure is told.
    fn end(self) -> Result<()> {
        std::mem::forget(self);
        swap(Uio::Stock)
    }
}

impl Drop for Converted {
    fn drop(&mut self) {
        // The test has failed already; the next one says so if there is no device.
        let _ = swap(Uio::Stock);
    }
}

/// The last record of the device.
fn device<'a>(records: &'a Records, name: &str) -> Result<&'a Value> {
    let found = records
        .of("uio_device")
        .filter(|record| record["name"] == name)
        .last();
    found.with_context(|| format!("no record of {name}"))
}

/// Many writers: counts exact, no wait, and the tool says what protects the device.
fn recognised(uio: Uio) -> Result<String> {
    let converted = Converted::load(uio)?;
    let testbed = Testbed::find(0)?;
    testbed.set_hold(200, false)?;
    testbed.reset()?;
    let tool = Tool::start(&[])?;
    workload(&format!(
        "uio-write --device {} --threads 4 --count 500",
        testbed.node()
    ))?;
    let calls = testbed.truth()?.calls;
    let records = tool.finish()?;
    let record = device(&records, &testbed.name)?;
    same(
        "what protects the device",
        record["lock"].as_str(),
        Some("percpu_ref"),
    )
    .with_context(|| shortened(record))?;
    same(
        "the utilization of no lock",
        record["utilization"].is_null(),
        true,
    )?;
    let figures = records.operation(&testbed.name, "write");
    same("the module's calls", calls, 2000)?;
    same("writes", number(figures, "/count")?, 2000)?;
    same("waits", number(figures, "/contended")?, 0)?;
    same(
        "why there is no projection",
        record["what_if"]["reason"].as_str(),
        Some("no_lock"),
    )?;
    let said = records.of("finding").any(|finding| {
        finding["text"]
            .as_str()
            .is_some_and(|text| text.contains("has no info_lock: a percpu_ref protects it"))
    });
    same("that a finding says so", said, true)?;
    converted.end()?;
    Ok("2000 writes by 4 threads, no wait".to_owned())
}

/// By its type information.
pub fn recognised_by_btf(_: &Guest) -> Result<String> {
    recognised(Uio::Converted)
}

/// By the memory of a device.
pub fn recognised_by_memory(_: &Guest) -> Result<String> {
    recognised(Uio::ConvertedPlain)
}

/// With a percpu_ref: grace period, then the drain until the long write lets go.
pub fn unregistered_with_ref(_: &Guest) -> Result<String> {
    let converted = Converted::load(Uio::Converted)?;
    let (record, end) = unregistered_under_load(true)?;
    converted.end()?;
    let row = &record["unregister"];
    let holder = &row["course"]["holders"][0];
    same("who held it", holder["tid"].as_u64(), Some(end.writer_tid.into()))
        .with_context(|| shortened(row))?;
    same("in what", holder["op"].as_str(), Some("write"))?;
    let part = |name: &str| number(row, name).map(|ns| ns as f64);
    same(
        "references held when the kill was confirmed",
        number(row, "/course/references")?,
        1,
    )?;
    let [before, grace, drain, rest] =
        ["before_ns", "grace_period_ns", "drain_ns", "rest_ns"].map(|name| part(&format!("/course/{name}")));
    let (before, grace, drain, rest) = (before?, grace?, drain?, rest?);
    near(
        "the sum of its parts",
        before + grace + drain + rest,
        part("/latency_ns")?,
        0.01,
        0.0,
    )?;
    // When the writer was back says when it let go.
    near(
        "the last put",
        part("/at_ns")? - rest,
        end.written_ns,
        0.0,
        PROBES_NS,
    )?;
    if drain < 0.1 * HOLD_US as f64 * 1e3 {
        bail!("the drain is only {drain:.0} ns of a hold of {HOLD_US} us");
    }
    Ok(format!(
        "unregistered in {:.0} ms (module {:.0}): grace period {:.0}, drain {:.0} ms; {REFUSED} writes refused",
        part("/latency_ns")? / 1e6,
        end.took_ns / 1e6,
        grace / 1e6,
        drain / 1e6
    ))
}

/// With info_lock: the wait for the long write.
pub fn unregistered_with_lock(_: &Guest) -> Result<String> {
    let (record, end) = unregistered_under_load(false)?;
    let row = &record["unregister"];
    let wait = number(row, "/wait_ns")? as f64;
    same("the course of no ref", row["course"].is_null(), true)?;
    // From when it asked for the lock to when the writer was back.
    near(
        "the wait for info_lock",
        wait,
        end.written_ns - end.began_ns,
        0.05,
        PROBES_NS,
    )?;
    Ok(format!(
        "unregistered in {:.0} ms (module {:.0}), of it {:.0} waiting for info_lock; {REFUSED} writes refused",
        number(row, "/latency_ns")? as f64 / 1e6,
        end.took_ns / 1e6,
        wait / 1e6
    ))
}

/// How long the write takes under which a device is unregistered.
const HOLD_US: u64 = 700_000;
/// Writes on the device that is gone.
const REFUSED: u64 = 5;
/// The clocks are around the tool's probes, and a woken thread has to get a processor.
const PROBES_NS: f64 = 20e6;

/// When what happened, by our clocks, ns.
struct Course {
    began_ns: f64,
    took_ns: f64,
    written_ns: f64,
    writer_tid: u32,
}

/// A device is unregistered under a write that takes long; then operations on it are refused. The tool's record of it.
fn unregistered_under_load(has_ref: bool) -> Result<(Value, Course)> {
    let testbed = Testbed::find(0)?;
    testbed.set_hold(0, false)?;
    testbed.reset()?;
    let mut tool = Tool::start(&["1"])?;
    let open = OpenOptions::new().read(true).write(true).open(testbed.node());
    let mut first = open.with_context(|| format!("cannot open {}", testbed.node()))?;
    let mut second = first.try_clone()?;
    // The tool looks into a device once it has seen an operation of it; then its release function is traced.
    first.write_all(&1_u32.to_ne_bytes()).context("a first write")?;
    tool.wait_for("the device's name", Duration::from_secs(60), |record| {
        record["type"] == "uio_device" && record["name"] == testbed.name.as_str()
    })?;
    if has_ref {
        let traced = |probe: &Value| {
            let hook = probe["hook"].as_str().unwrap_or_default();
            hook.starts_with("uio_info_free") && probe["state"] == "attached"
        };
        tool.wait_for(
            "that the release of the device's ref is traced",
            Duration::from_secs(60),
            |record| {
                record["probes"]
                    .as_array()
                    .is_some_and(|probes| probes.iter().any(traced))
            },
        )?;
    }
    testbed.set_hold(HOLD_US, false)?;
    let (send, receive) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || -> Result<u64> {
        // SAFETY: takes no argument and cannot fail.
        let _ = send.send(unsafe { libc::gettid() });
        first.write_all(&1_u32.to_ne_bytes()).context("the long write")?;
        Ok(monotonic_ns())
    });
    let writer_tid = u32::try_from(receive.recv().context("the writer did not start")?)?;
    wait_until("that the write is in the driver", Duration::from_secs(5), || {
        testbed.truth().is_ok_and(|truth| truth.calls == 2)
    })?;
    let began_ns = monotonic_ns();
    testbed.set_registered(false)?;
    let took_ns = testbed.register_ns()? as f64;
    let written_ns = writer
        .join()
        .map_err(|_| anyhow::anyhow!("the writer panicked"))??;
    for _ in 0..REFUSED {
        match second.write(&1_u32.to_ne_bytes()) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            other => bail!("a write on the unregistered device gave {other:?}"),
        }
    }
    drop(second);
    let records = tool.finish()?;
    testbed.set_registered(true)?;
    testbed.set_hold(0, false)?;
    let record = device(&records, &testbed.name)?.clone();
    let latency = number(&record["unregister"], "/latency_ns")? as f64;
    near("the unregistration", latency, took_ns, 0.05, PROBES_NS)?;
    same(
        "writes refused",
        records.operation_sum(&testbed.name, "write", "refused"),
        REFUSED,
    )?;
    let said = records
        .of("finding")
        .any(|finding| finding["id"] == "uio_refused");
    same("that a finding says so", said, true)?;
    let waits = records.operation_sum(&testbed.name, "write", "contended");
    same("waits of writes", waits, 0)?;
    Ok((
        record,
        Course {
            began_ns: began_ns as f64,
            took_ns,
            written_ns: written_ns as f64,
            writer_tid,
        },
    ))
}
