//! A disk served through TCMU: the tool's count of writes to its UIO device against the handler's own, and the data.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{Guest, number, same};
use crate::kernel_modules::{Uio, have_testbed, swap};
use crate::tcmu::{NAME, Served, reader, unload};
use crate::tool::Tool;

const MEBIBYTES: u64 = 16;
const THREADS: usize = 4;

/// With the `uio` that is loaded.
fn counted(lock: &str) -> Result<String> {
    let served = Served::set_up(MEBIBYTES, THREADS)?;
    reader::write_and_read(served.disk(), 8 << 20)?;
    let before = served.settled()?;
    let reads_before = served.reads()?;
    let tool = Tool::start(&[])?;
    let reads = reader::verify(served.disk(), 8 << 20, 128 << 10, 4, Duration::from_secs(2))?;
    let after = served.settled()?;
    let records = tool.finish()?;
    let record = records
        .of("uio_device")
        .filter(|record| record["name"] == NAME)
        .last();
    let Some(record) = record else {
        bail!("no record of {NAME}");
    };
    same("what protects the device", record["lock"].as_str(), Some(lock))?;
    let figures = records.operation(NAME, "write");
    let (count, waits) = (number(figures, "/count")?, number(figures, "/contended")?);
    same("writes", count, after - before)?;
    // By the block layer's count: neighbours that are asked for at once may have become one request.
    let requests = served.reads()?;
    same("requests", requests.0 - reads_before.0, count)?;
    same("reads", count + requests.1 - reads_before.1, reads)?;
    if lock != "mutex" {
        same("waits for info_lock where there is none", waits, 0)?;
    }
    super::uio::nothing_lost(&records)?;
    served.take_down()?;
    Ok(format!(
        "{reads} reads, {count} writes by {THREADS} threads, {waits} waited"
    ))
}

/// The kernel's own `uio`.
pub fn stock(_: &Guest) -> Result<String> {
    counted("mutex")
}

/// One with a percpu_ref: nobody waits, though tcmu's own lock is waited for.
pub fn converted(_: &Guest) -> Result<String> {
    if !have_testbed() {
        return Ok("no converted uio for this kernel".to_owned());
    }
    // `uio` can be taken out only when nothing uses it.
    unload()?;
    swap(Uio::Converted)?;
    let result = counted("percpu_ref");
    unload()?;
    swap(Uio::Stock)?;
    result
}
