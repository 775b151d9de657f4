//! The uio module gone and back under a running tool.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::uio::{FENTRY_KERNELS, HOLD};
use super::{Guest, same, workload};
use crate::clock::{monotonic_ns, wait_until};
use crate::device::Testbed;
use crate::kernel_modules;
use crate::tool::{Records, Tool};

/// Waits until the tool says of its probe on uio_write that it is in this state.
fn wait_for_write_probe(tool: &mut Tool, state: &str) -> Result<()> {
    let what = format!("that the probe on uio_write is {state}");
    tool.wait_for(&what, Duration::from_secs(60), |record| {
        let probes = record["probes"].as_array();
        probes.is_some_and(|probes| {
            probes
                .iter()
                .any(|probe| probe["hook"] == "uio_write" && probe["state"] == state)
        })
    })
}

/// Waits until the tool has counted so many writes of the device.
fn wait_for_writes(tool: &mut Tool, device: &Testbed, writes: u64) -> Result<()> {
    let counted = |records: &Records| records.operation_sum(&device.name, "write", "count") >= writes;
    tool.wait_until("the writes", Duration::from_secs(60), counted)
}

/// Three lives of the driver, each with its own number of writes.
pub fn three_times(_: &Guest) -> Result<String> {
    let mut tool = Tool::start(&["1"])?;
    let mut expected = 0;
    for life in 1..=3_u64 {
        kernel_modules::unload("uio_testbed")?;
        kernel_modules::unload("uio")?;
        wait_for_write_probe(&mut tool, "waiting").with_context(|| format!("life {life}"))?;
        kernel_modules::load("uio_testbed devices=2")?;
        wait_for_write_probe(&mut tool, "attached").with_context(|| format!("life {life}"))?;
        let device = Testbed::find(0)?;
        wait_until("the device node", Duration::from_secs(10), || {
            std::path::Path::new(&device.node()).exists()
        })?;
        workload(&format!(
            "uio-write --device {} --count {}",
            device.node(),
            life * 100
        ))?;
        expected += life * 100;
        wait_for_writes(&mut tool, &device, expected).with_context(|| format!("life {life}"))?;
    }
    kernel_modules::unload("uio_testbed")?;
    kernel_modules::unload("uio")?;
    // Two whole intervals after the last life: no device may be left.
    for _ in 0..3 {
        tool.wait_for("an interval", Duration::from_secs(20), |record| {
            record["type"] == "interval"
        })?;
    }
    let records = tool.finish()?;
    kernel_modules::load("uio_testbed devices=2")?;
    same(
        "writes in all lives",
        records.operation_sum("uio_testbed0", "write", "count"),
        expected,
    )?;
    let last = records
        .all()
        .iter()
        .rposition(|record| record["type"] == "interval")
        .unwrap_or(0);
    if let Some(stale) = records
        .all()
        .iter()
        .skip(last)
        .find(|record| record["type"] == "uio_device")
    {
        bail!("a device is shown that is gone: {stale}");
    }
    Ok(format!("{expected} writes in three lives"))
}

/// With fentry the module is held while a driver uses it, and let go of then; kprobes never hold it.
pub fn let_go_of(guest: &Guest) -> Result<String> {
    let mut tool = Tool::start(&["1", HOLD])?;
    let mut expected = 0;
    let mut took = Vec::new();
    for life in 1..=2_u64 {
        kernel_modules::unload("uio_testbed")?;
        let begin = monotonic_ns();
        wait_until("that uio can be unloaded", Duration::from_secs(30), || {
            kernel_modules::unload("uio").is_ok()
        })?;
        took.push((monotonic_ns() - begin) / 1_000_000);
        wait_for_write_probe(&mut tool, "waiting").with_context(|| format!("life {life}"))?;
        kernel_modules::load("uio_testbed devices=2")?;
        wait_for_write_probe(&mut tool, "attached").with_context(|| format!("life {life}"))?;
        let device = Testbed::find(0)?;
        workload(&format!("uio-write --device {} --count 100", device.node()))?;
        expected += 100;
        wait_for_writes(&mut tool, &device, expected).with_context(|| format!("life {life}"))?;
    }
    let records = tool.finish()?;
    same(
        "writes in all lives",
        records.operation_sum("uio_testbed0", "write", "count"),
        expected,
    )?;
    let by_fentry = FENTRY_KERNELS.contains(&guest.kernel.as_str());
    let way = if by_fentry { "fentry" } else { "kprobes" };
    Ok(format!(
        "{expected} writes in two lives, by {way}; uio could be unloaded after {took:?} ms"
    ))
}
