//! Much of it at once: what was seen and what is said to be lost is what was done.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Guest, refs, same, shortened, workload};
use crate::tool::{Records, Tool};

const LIMIT: Duration = Duration::from_secs(60);
/// Cgroups, each with two refs.
const CGROUPS: u64 = 1_000;
/// Processes with a context each.
const EXITS: u64 = 500;

fn of_cgroups(records: &Records, number: &str) -> u64 {
    ["css_release", "cgroup_bpf_release_fn"]
        .iter()
        .map(|owner| records.owner_sum(owner, number))
        .sum()
}

/// Drains of the storm's processes: rows, and those that an interval had too many of.
fn drains(records: &Records) -> u64 {
    let rows = records
        .of("aio_drain")
        .filter(|drain| drain["comm"] == "aio-storm")
        .count() as u64;
    let omitted: u64 = records
        .of("interval")
        .filter_map(|interval| interval["aio_drains_omitted"].as_u64())
        .sum();
    rows + omitted
}

/// Kills of two thousand refs of cgroups, then five hundred exits with a context each, 64 at a time.
pub fn refs_and_exits(_: &Guest) -> Result<String> {
    let mut tool = Tool::start(&["1"])?;
    let begin = Instant::now();
    workload(&format!("cgroup-cycle --count {CGROUPS}"))?;
    let cgroups_took = begin.elapsed();
    let seen = |records: &Records| of_cgroups(records, "kills") + of_cgroups(records, "switches");
    tool.wait_until("every kill and switch", LIMIT, |records| {
        seen(records) + refs::missed(records) >= 4 * CGROUPS
    })?;
    let begin = Instant::now();
    workload(&format!("aio-storm --count {EXITS} --at-once 64"))?;
    let exits_took = begin.elapsed();
    let waited = tool.wait_until("every drain", LIMIT, |records| drains(records) >= EXITS);
    let records = tool.finish()?;
    let (kills, switches) = (of_cgroups(&records, "kills"), of_cgroups(&records, "switches"));
    let (drains, missed) = (drains(&records), refs::missed(&records));
    let text = format!(
        "{kills} kills and {switches} switches of {} each in {:.1} s; {drains} drains of {EXITS} in {:.1} s; {missed} lost",
        2 * CGROUPS,
        cgroups_took.as_secs_f64(),
        exits_took.as_secs_f64()
    );
    // A drain needs no breakpoint, so it may only be missing where an event was lost.
    if missed == 0 {
        waited.with_context(|| text.clone())?;
        same(
            "kills of users",
            records.owner_sum("free_ioctx_users", "kills"),
            EXITS,
        )?;
        same(
            "releases",
            records.owner_sum("free_ioctx_reqs", "released"),
            EXITS,
        )?;
    }
    if kills > 2 * CGROUPS || switches > 2 * CGROUPS || drains > EXITS {
        bail!("more than was done: {text}");
    }
    if seen(&records) + missed < 4 * CGROUPS || drains + missed < EXITS {
        bail!("less than was done: {text}");
    }
    let wrong = records
        .of("aio_drain")
        .filter(|drain| drain["comm"] == "aio-storm")
        .find(|drain| drain["contexts"] != 1 || drain["cause"] != "exit_aio");
    match wrong {
        Some(drain) => bail!("not one context at exit: {}", shortened(drain)),
        None => Ok(text),
    }
}
