//! Much of it at once: what was seen and what is said to be lost is what was done.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Guest, refs, same, shortened, workload};
use crate::tool::{Records, Tool};

const LIMIT: Duration = Duration::from_secs(180);
/// Cgroups, each with two refs.
const CGROUPS: u64 = 10_000;
/// Processes with a context each.
const EXITS: u64 = 5_000;

const CGROUP_REFS: [&str; 2] = ["css_release", "cgroup_bpf_release_fn"];
const AIO_REFS: [&str; 2] = ["free_ioctx_users", "free_ioctx_reqs"];

fn of(records: &Records, owners: &[&str], number: &str) -> u64 {
    owners.iter().map(|owner| records.owner_sum(owner, number)).sum()
}

/// Kills and switches.
fn hits(records: &Records, owners: &[&str]) -> u64 {
    of(records, owners, "kills") + of(records, owners, "switches")
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

/// Twenty thousand refs of cgroups killed, then five thousand exits with a context each, 64 at a time. A hit of a breakpoint is in
/// a row of its owner, or among those that the kernel did not run the program for, or its event among those that the ring refused.
/// The other programs of the contexts' lives are missed as rarely as a soft interrupt meets a system call on a map.
pub fn refs_and_exits(_: &Guest) -> Result<String> {
    let mut tool = Tool::start(&["1"])?;
    let begin = Instant::now();
    workload(&format!("cgroup-cycle --count {CGROUPS}"))?;
    let cgroups_took = begin.elapsed();
    tool.wait_until("every kill and switch", LIMIT, |records| {
        hits(records, &CGROUP_REFS) + refs::missed(records) >= 4 * CGROUPS
    })?;
    let begin = Instant::now();
    workload(&format!("aio-storm --count {EXITS} --at-once 64"))?;
    let exits_took = begin.elapsed();
    tool.wait_until("every drain", LIMIT, |records| {
        drains(records) + lost(records, RING) + lost(records, PROGRAM_MISSED) >= EXITS
    })?;
    let records = tool.finish()?;
    let text = format!(
        "{} kills and {} switches of {} each in {:.1} s; {} drains of {EXITS} in {:.1} s; {} hits missed, {} other programs missed, \
         {} events refused by the ring",
        of(&records, &CGROUP_REFS, "kills"),
        of(&records, &CGROUP_REFS, "switches"),
        2 * CGROUPS,
        cgroups_took.as_secs_f64(),
        drains(&records),
        exits_took.as_secs_f64(),
        lost(&records, MISSED),
        lost(&records, PROGRAM_MISSED),
        lost(&records, RING),
    );
    judge(&records).with_context(|| text.clone())?;
    Ok(text)
}

/// A hit of a breakpoint whose program was not run, the same of another program, and an event without room in the ring.
const MISSED: &str = "breakpoint_missed";
const PROGRAM_MISSED: &str = "program_missed";
const RING: &str = "lifecycle_ring";
const REASONS: [&str; 3] = [MISSED, PROGRAM_MISSED, RING];

/// Lost for a reason, all intervals together.
fn lost(records: &Records, reason: &str) -> u64 {
    records
        .of("loss")
        .filter_map(|loss| loss["dropped"][reason].as_u64())
        .sum()
}

fn judge(records: &Records) -> Result<()> {
    ledger(records)?;
    let excused = REASONS.iter().map(|reason| lost(records, reason)).sum();
    for (owners, refs) in [(CGROUP_REFS, CGROUPS), (AIO_REFS, EXITS)] {
        for number in ["kills", "switches"] {
            at_most(number, of(records, &owners, number), 2 * refs, excused)?;
        }
    }
    // A drain and its releases need no breakpoint.
    let excused_drains = excused - lost(records, MISSED);
    at_most("drains", drains(records), EXITS, excused_drains)?;
    for owner in AIO_REFS {
        at_most(owner, records.owner_sum(owner, "released"), EXITS, excused_drains)?;
    }
    // All four together, so that no hit is excused twice; among the missed may be hits of refs that are not the storm's.
    let of_storm = hits(records, &CGROUP_REFS) + hits(records, &AIO_REFS);
    at_most("hits", of_storm, 4 * CGROUPS + 4 * EXITS, excused)?;
    let wrong = records
        .of("aio_drain")
        .filter(|drain| drain["comm"] == "aio-storm")
        .find(|drain| drain["contexts"] != 1 || drain["cause"] != "exit_aio");
    match wrong {
        Some(drain) => bail!("not one context at exit: {}", shortened(drain)),
        None => Ok(()),
    }
}

/// As much as was done; less only by what was lost.
fn at_most(what: &str, found: u64, done: u64, lost: u64) -> Result<()> {
    if found > done || found + lost < done {
        bail!("{what}: {found} of {done}, with {lost} lost");
    }
    Ok(())
}

/// What was seen is what was submitted and what was lost, by reason; what was submitted was decoded. All intervals together.
fn ledger(records: &Records) -> Result<()> {
    let sum = |name: &str| -> u64 { records.of("loss").filter_map(|loss| loss[name].as_u64()).sum() };
    let known: u64 = REASONS.iter().map(|reason| lost(records, reason)).sum();
    if refs::missed(records) != known {
        let losses: Vec<_> = records.of("loss").map(|loss| &loss["dropped"]).collect();
        bail!("lost for other reasons than {REASONS:?}: {losses:?}");
    }
    let accounted = sum("aggregated") + sum("submitted") + sum("ignored") + refs::missed(records);
    same("seen", sum("seen"), accounted)?;
    same("decoded", sum("decoded"), sum("submitted"))
}
