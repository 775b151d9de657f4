//! percpu_refs of others: kills and switches under their release symbols.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Guest, near, same, workload};
use crate::clock::wait_until;
use crate::device::Testbed;
use crate::kernel_modules;
use crate::ref_testbed::{RELEASE, RefTestbed};
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
pub(super) fn missed(records: &Records) -> u64 {
    records
        .of("loss")
        .filter_map(|loss| loss["dropped"].as_object())
        .flat_map(|dropped| dropped.values().filter_map(serde_json::Value::as_u64))
        .sum()
}

/// Of an owner the stacks of its killers, with how many kills they were.
fn kill_stacks(records: &Records, release: &str) -> Vec<(u64, Vec<String>)> {
    let of_owner = |record: &&Value| {
        record["release"]
            .as_str()
            .is_some_and(|name| name.split(' ').next() == Some(release))
    };
    let stacks = records
        .of("ref_owner")
        .filter(of_owner)
        .filter_map(|record| record["kill_stacks"].as_array());
    stacks
        .flatten()
        .map(|stack| {
            let frames = stack["frames"].as_array().into_iter().flatten();
            let frames = frames.filter_map(|frame| frame.as_str().map(str::to_owned));
            (stack["count"].as_u64().unwrap_or(0), frames.collect())
        })
        .collect()
}

/// The way to a kill: from the function itself to the system call that led there, each way counted.
pub fn killers_stacks(_: &Guest) -> Result<String> {
    const KILLS: u64 = 5;
    let testbed = RefTestbed::load()?;
    let tool = Tool::start(&[])?;
    for _ in 0..KILLS {
        testbed.command("init 0")?;
        testbed.command("kill 0")?;
        testbed.command("free 0")?;
    }
    workload("cgroup-cycle --count 3")?;
    let records = tool.finish()?;
    let missed = missed(&records);
    let mut said = Vec::new();
    for (release, caller, system_call, kills) in [
        // Written to a file of the module's.
        (RELEASE, "command_store", "ksys_write", KILLS),
        ("css_release", "cgroup_rmdir", "do_rmdir", 3),
    ] {
        let stacks = kill_stacks(&records, release);
        let through = |(_, frames): &&(u64, Vec<String>)| {
            let at = |name: &str| frames.iter().position(|frame| frame == name);
            // Innermost first.
            frames
                .first()
                .is_some_and(|first| first == "percpu_ref_kill_and_confirm")
                && at(caller).is_some_and(|caller| at(system_call).is_some_and(|call| caller < call))
        };
        let count: u64 = stacks.iter().filter(through).map(|(count, _)| count).sum();
        if count > kills || count + missed < kills || count == 0 {
            bail!(
                "{count} of {kills} kills of {release} came through {caller} and {system_call}: {stacks:?}"
            );
        }
        said.push(format!("{release}: {count} through {caller}"));
    }
    Ok(said.join(", "))
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

/// Rows of what is in progress of the testbed's refs.
fn in_progress(record: &Value) -> bool {
    record["type"] == "in_progress" && record["detail"].as_str().is_some_and(|d| d.starts_with(RELEASE))
}

/// Refs with three references on different CPUs that are given back a known time after the confirmation: the module's own
/// clock, against the grace periods and drain times of the tool. The first is held so long that its owner's release function
/// is traced meanwhile.
pub fn held_after_confirm(_: &Guest) -> Result<String> {
    const ROUNDS: u64 = 6;
    let testbed = RefTestbed::load()?;
    let mut tool = Tool::start(&["1"])?;
    let (mut grace, mut drain) = (0, 0);
    for round in 0..=ROUNDS {
        let hold_ms = if round == 0 { 3000 } else { 150 };
        for command in ["init 0", "hold 0 3", &format!("confirm 0 {hold_ms}")] {
            testbed.command(command)?;
        }
        let released = || testbed.state(0, "release_ns").is_ok_and(|ns| ns > 0);
        wait_until("the ref to be released", LIMIT, released)?;
        let [kill, confirm, release] =
            ["kill_ns", "confirm_ns", "release_ns"].map(|name| testbed.state(0, name));
        let kill = kill?;
        grace += confirm? - kill;
        drain += release? - kill;
        testbed.command("free 0")?;
    }
    let kills = ROUNDS + 1;
    tool.wait_until("all releases", LIMIT, |records| {
        records.owner_sum(RELEASE, "released") >= kills
    })?;
    drop(testbed);
    let records = tool.finish()?;
    for name in [
        "kills",
        "switches",
        "released",
        "/grace_period_ns/count",
        "/drain_ns/count",
    ] {
        same(name, records.owner_sum(RELEASE, name), kills)?;
    }
    for name in [
        "ends_unseen",
        "released_early",
        "kills_already_atomic",
        "kills_already_dead",
        "revived",
    ] {
        same(name, records.owner_sum(RELEASE, name), 0)?;
    }
    let found = records.owner_sum(RELEASE, "/grace_period_ns/sum");
    near(
        "grace periods",
        found as f64,
        grace as f64,
        0.05,
        2_000_000.0 * kills as f64,
    )?;
    let found = records.owner_sum(RELEASE, "/drain_ns/sum");
    near(
        "drains",
        found as f64,
        drain as f64,
        0.05,
        2_000_000.0 * kills as f64,
    )?;
    Ok(format!(
        "{kills} drains, {:.1} ms (the module's clock {:.1} ms)",
        found as f64 / 1e6,
        drain as f64 / 1e6
    ))
}

/// Five references taken on all CPUs and leaked: they are counted, named with their age, and when they are given back the row
/// ends. A ref that is resurrected meanwhile is no longer dying.
pub fn leaked(_: &Guest) -> Result<String> {
    let testbed = RefTestbed::load()?;
    let mut tool = Tool::start(&["1"])?;
    for command in ["init 1", "hold 1 5", "kill 1", "init 2", "hold 2 2", "kill 2"] {
        testbed.command(command)?;
    }
    let references = |record: &Value, n: u64| {
        in_progress(record) && record["phase"] == "references" && record["references"].as_u64() == Some(n)
    };
    let old = |record: &Value| record["age_ns"].as_u64().is_some_and(|ns| ns > 1_000_000_000);
    tool.wait_for("five references left", LIMIT, |record| {
        references(record, 5) && old(record)
    })?;
    tool.wait_for("two references left", LIMIT, |record| {
        references(record, 2) && old(record)
    })?;
    testbed.command("resurrect 2")?;
    let revived = |records: &Records| records.owner_sum(RELEASE, "revived");
    tool.wait_until("the resurrected ref", LIMIT, |records| revived(records) == 1)?;
    tool.wait_for("the finding", LIMIT, |record| {
        record["type"] == "finding"
            && record["id"] == "ref_stuck"
            && record["text"]
                .as_str()
                .is_some_and(|text| text.contains("5 references left"))
    })?;
    testbed.command("drop 1")?;
    tool.wait_until("the release", LIMIT, |records| {
        records.owner_sum(RELEASE, "released") == 1
    })?;
    let gone = |records: &Records| {
        let last = records
            .all()
            .iter()
            .rposition(|record| record["type"] == "interval");
        let ended = records
            .all()
            .last()
            .is_some_and(|record| record["type"] == "loss");
        ended && last.is_some_and(|at| !records.all()[at..].iter().any(in_progress))
    };
    tool.wait_until("no row any more", LIMIT, gone)?;
    let drain = testbed.state(1, "release_ns")? - testbed.state(1, "kill_ns")?;
    drop(testbed);
    let records = tool.finish()?;
    let longest = records
        .of("ref_owner")
        .filter(|record| {
            record["release"]
                .as_str()
                .is_some_and(|name| name.starts_with(RELEASE))
        })
        .filter_map(|record| record.pointer("/drain_ns/max")?.as_u64())
        .max()
        .context("no drain time")?;
    near("its length", longest as f64, drain as f64, 0.05, 5_000_000.0)?;
    Ok(format!("5 of 5 references, {:.2} s", longest as f64 / 1e9))
}

/// A second kill of a dead ref.
pub fn killed_twice(_: &Guest) -> Result<String> {
    let testbed = RefTestbed::load()?;
    let mut tool = Tool::start(&["1"])?;
    testbed.command("init 3")?;
    testbed.command("twice 3")?;
    tool.wait_until("the second kill", LIMIT, |records| {
        records.owner_sum(RELEASE, "kills_already_dead") == 1
    })?;
    tool.wait_for("the finding", LIMIT, |record| record["id"] == "ref_killed_twice")?;
    testbed.command("free 3")?;
    drop(testbed);
    let records = tool.finish()?;
    same("kills", records.owner_sum(RELEASE, "kills"), 2)?;
    Ok("found".to_owned())
}

/// A mode switch that a caller forces, back and forth, is a switch without a kill; a reinitialised ref can be killed again.
pub fn switched_and_reinitialised(_: &Guest) -> Result<String> {
    let testbed = RefTestbed::load()?;
    let tool = Tool::start(&["1"])?;
    for command in [
        "init 4", "atomic 4", "percpu 4", "atomic 4", "percpu 4", "kill 4", "reinit 4", "kill 4",
    ] {
        testbed.command(command)?;
    }
    testbed.command("free 4")?;
    drop(testbed);
    let records = tool.finish()?;
    same("kills", records.owner_sum(RELEASE, "kills"), 2)?;
    same("switches", records.owner_sum(RELEASE, "switches"), 4)?;
    same(
        "grace periods",
        records.owner_sum(RELEASE, "/grace_period_ns/count"),
        2,
    )?;
    same("released", records.owner_sum(RELEASE, "released"), 2)?;
    Ok("2 kills, 4 switches".to_owned())
}
