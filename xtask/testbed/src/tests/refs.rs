//! percpu_refs of others: kills and switches under their release symbols.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{Guest, workload};
use crate::kernel_modules;
use crate::tool::{Records, Tool};

const LIMIT: Duration = Duration::from_secs(40);

/// Kills, switches and a time for them, under this symbol, by one workload.
fn traffic(load: &str, symbols: &[&str]) -> Result<String> {
    let mut tool = Tool::start(&["1"])?;
    workload(load)?;
    // Releases may come from a work item long after the workload's end.
    let complete = |records: &Records| {
        symbols
            .iter()
            .all(|symbol| records.owner_sum(symbol, "kills") > 0 && records.owner_sum(symbol, "switches") > 0)
    };
    let waited = tool.wait_until("the expected owners", LIMIT, complete);
    let records = tool.finish()?;
    let mut seen = Vec::new();
    for symbol in symbols {
        let kills = records.owner_sum(symbol, "kills");
        let switches = records.owner_sum(symbol, "switches");
        let timed = records.owner_sum(symbol, "/grace_period_ns/count");
        seen.push(format!(
            "{symbol}: {kills} kills, {switches} switches, {timed} timed"
        ));
        if kills == 0 || switches == 0 || timed == 0 {
            let owners: Vec<&str> = records
                .of("ref_owner")
                .filter_map(|record| record["release"].as_str())
                .collect();
            bail!("{} (owners seen: {owners:?}; {waited:?})", seen.join(", "));
        }
    }
    Ok(seen.join(", "))
}

/// A cgroup made and removed.
pub fn cgroup(_: &Guest) -> Result<String> {
    traffic(
        "cgroup-cycle --count 3",
        &["css_release", "cgroup_bpf_release_fn"],
    )
}

/// An io_uring closed.
pub fn io_uring(_: &Guest) -> Result<String> {
    traffic("iouring-close --count 3", &["io_ring_ctx_ref_free"])
}

/// A block queue frozen.
pub fn queue_freeze(_: &Guest) -> Result<String> {
    if !kernel_modules::is_loaded("null_blk") {
        kernel_modules::load("null_blk nr_devices=1 queue_mode=2")?;
    }
    let result = traffic("elevator --count 4", &["blk_queue_usage_counter_release"]);
    kernel_modules::unload("null_blk")?;
    result
}
