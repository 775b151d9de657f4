//! percpu_refs of others: kills and switches under their release symbols.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{Guest, workload};
use crate::device::Testbed;
use crate::kernel_modules;
use crate::tool::{Records, Tool};

const LIMIT: Duration = Duration::from_secs(40);

/// `expected` kills and switches, each with a time, under each of these symbols, by one workload; only what the tool says
/// it has missed may be less.
fn traffic(load: &str, expected: u64, symbols: &[&str]) -> Result<String> {
    let mut tool = Tool::start(&["1"])?;
    workload(load)?;
    let wanted = 2 * expected * symbols.len() as u64;
    // Releases may come from a work item long after the workload's end.
    let complete = |records: &Records| seen(records, symbols) + missed(records) >= wanted;
    let waited = tool.wait_until("every kill and switch", LIMIT, complete);
    let records = tool.finish()?;
    let mut rows = Vec::new();
    for symbol in symbols {
        let kills = records.owner_sum(symbol, "kills");
        let switches = records.owner_sum(symbol, "switches");
        let timed = records.owner_sum(symbol, "/grace_period_ns/count");
        rows.push(format!(
            "{symbol}: {kills} kills, {switches} switches, {timed} timed"
        ));
        if kills > expected || switches > expected || timed > kills.min(switches) || timed == 0 {
            bail!("{}; {expected} of each happened", rows.join(", "));
        }
    }
    let missed = missed(&records);
    let text = format!("{}; {missed} hits missed", rows.join(", "));
    if seen(&records, symbols) + missed < wanted {
        let owners: Vec<&str> = records
            .of("ref_owner")
            .filter_map(|record| record["release"].as_str())
            .collect();
        bail!("{text}, {wanted} happened (owners seen: {owners:?}; {waited:?})");
    }
    Ok(text)
}

fn seen(records: &Records, symbols: &[&str]) -> u64 {
    let sum = |name| {
        symbols
            .iter()
            .map(move |symbol| records.owner_sum(symbol, name))
            .sum::<u64>()
    };
    sum("kills") + sum("switches")
}

/// What the tool says it has missed, all intervals together.
fn missed(records: &Records) -> u64 {
    records
        .of("loss")
        .filter_map(|loss| loss["dropped"].as_object())
        .flat_map(|dropped| dropped.values().filter_map(serde_json::Value::as_u64))
        .sum()
}

/// A cgroup made and removed.
pub fn cgroup(_: &Guest) -> Result<String> {
    traffic("cgroup-cycle --count 3", 3, &CGROUP)
}

const CGROUP: [&str; 2] = ["css_release", "cgroup_bpf_release_fn"];

/// While the tool's own programs run all the time on every CPU: the kernel then runs none for a breakpoint that is hit in an
/// interrupt of them. How often is up to chance; that each is counted is not.
pub fn missed_hits_are_counted(_: &Guest) -> Result<String> {
    let device = Testbed::find(0)?;
    device.set_hold(0, false)?;
    let line = format!("uio-write --device {} --threads 2 --seconds 20", device.node());
    let writers = std::thread::spawn(move || workload(&line));
    let result = traffic("cgroup-cycle --count 60", 60, &CGROUP);
    writers
        .join()
        .map_err(|_| anyhow::anyhow!("the writers panicked"))??;
    result
}

/// An io_uring closed.
pub fn io_uring(_: &Guest) -> Result<String> {
    traffic("iouring-close --count 3", 3, &["io_ring_ctx_ref_free"])
}

/// A block queue frozen.
pub fn queue_freeze(_: &Guest) -> Result<String> {
    if !kernel_modules::is_loaded("null_blk") {
        kernel_modules::load("null_blk nr_devices=1 queue_mode=2")?;
    }
    let result = traffic("elevator --count 4", 4, &["blk_queue_usage_counter_release"]);
    kernel_modules::unload("null_blk")?;
    result
}
