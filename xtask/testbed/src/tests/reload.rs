//! The uio module gone and back under a running tool.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Guest, same, workload};
use crate::clock::wait_until;
use crate::device::Testbed;
use crate::kernel_modules;
use crate::tool::{Records, Tool};

const KPROBES: &str = "/sys/kernel/debug/kprobes/list";

/// How many probes sit on the driver's write function now (entry and return count apart). Where functions begin
/// with an ENDBR instruction, the probe is behind it: +0x4. What sat on a module that is gone is still listed,
/// without a name.
fn probes_of_write() -> usize {
    let list = std::fs::read_to_string(KPROBES).unwrap_or_default();
    list.lines()
        .filter(|line| line.contains(" uio_write+0x") && !line.contains("[GONE]"))
        .count()
}

/// Three lives of the driver, each with its own number of writes.
pub fn three_times(_: &Guest) -> Result<String> {
    let mut tool = Tool::start(&["1"])?;
    let probes = probes_of_write();
    if probes == 0 {
        bail!("nothing is attached to uio_write");
    }
    let mut expected = 0;
    for life in 1..=3_u64 {
        kernel_modules::unload("uio_testbed")?;
        kernel_modules::unload("uio")?;
        kernel_modules::load("uio_testbed devices=2")?;
        wait_until("the probes of uio_write", Duration::from_secs(30), || {
            probes_of_write() == probes
        })
        .with_context(|| format!("life {life}"))?;
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
        let counted = |records: &Records| records.operation_sum(&device.name, "write", "count") >= expected;
        tool.wait_until(
            &format!("the writes of life {life}"),
            Duration::from_secs(20),
            counted,
        )?;
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
