//! AIO drains: cause, verdict, contexts, times.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Guest, near, number, same, shortened, workload};
use crate::kernel_modules;
use crate::tool::{ProgramTimes, Records, Tool};

const TOLERANCE: f64 = 0.05;
/// Of hundreds of contexts: the kernel frees them in work items, which run beside the rest of the exit.
const MANY: f64 = 0.15;
/// The wake of who waits: on a translated processor that has gone idle it takes a turn of the host's scheduler.
const FLOOR_NS: f64 = 3_000_000.0;

/// A real-time kernel runs callbacks and exits in threads, which come and go between the two clocks; and beside other guests
/// processors are taken away. There the times only show that the same programs work.
fn tolerance(guest: &Guest) -> f64 {
    if guest.kernel.ends_with("-rt") || !guest.alone {
        0.35
    } else {
        TOLERANCE
    }
}

pub(super) fn only_drain<'a>(records: &'a Records, load: &Value) -> Result<&'a Value> {
    let tgid = number(load, "/tgid")?;
    match records.drains(tgid)[..] {
        [drain] => Ok(drain),
        [] => bail!(
            "no drain of process {tgid}; in all: {}",
            records.of("aio_drain").count()
        ),
        ref several => bail!("{} drains of process {tgid}, should be one", several.len()),
    }
}

/// The four phases of each context are there and sum to its total; the critical one's are those of the drain.
pub(super) fn phases(drain: &Value) -> Result<()> {
    let detail = drain["detail"].as_array().context("no detail")?;
    for context in detail {
        let mut sum = 0;
        for phase in ["users_gp_ns", "users_refs_ns", "reqs_gp_ns", "reqs_io_ns"] {
            sum += number(context, &format!("/{phase}"))?;
        }
        near(
            "sum of a context's phases",
            sum as f64,
            number(context, "/total_ns")? as f64,
            0.01,
            1_000.0,
        )?;
        if number(context, "/users_gp_ns")? == 0 || number(context, "/reqs_gp_ns")? == 0 {
            bail!("a context without its two grace periods: {context}");
        }
    }
    let critical = usize::try_from(number(drain, "/critical")?)?;
    let critical = detail
        .get(critical)
        .with_context(|| format!("no context {critical}"))?;
    for (phase, of_context) in [
        ("users_gp", "users_gp_ns"),
        ("users_refs", "users_refs_ns"),
        ("reqs_gp", "reqs_gp_ns"),
        ("reqs_io", "reqs_io_ns"),
    ] {
        let total = number(drain, &format!("/phases_ns/{phase}"))?;
        same(
            &format!("{phase} of the critical context"),
            total,
            number(critical, &format!("/{of_context}"))?,
        )?;
    }
    Ok(())
}

pub(super) fn words(drain: &Value, cause: &str, contexts: u64, verdict: &str) -> Result<()> {
    same("cause", drain["cause"].as_str(), Some(cause)).with_context(|| shortened(drain))?;
    same("contexts", number(drain, "/contexts")?, contexts)?;
    same("verdict", drain["verdict"].as_str(), Some(verdict)).with_context(|| shortened(drain))
}

/// A process exits with contexts: drained together.
pub fn by_exit(guest: &Guest, contexts: u64) -> Result<String> {
    let tool = Tool::start(&[])?;
    let load = workload(&format!("aio --exit --contexts {contexts}"))?;
    let records = tool.finish()?;
    let drain = only_drain(&records, &load)?;
    words(
        drain,
        "exit_aio",
        contexts,
        if contexts == 1 { "single" } else { "parallel" },
    )?;
    let wall = number(drain, "/wall_ns")? as f64;
    let exit = number(&load, "/exit_ns")? as f64 - number(&load, "/exit_without_contexts_ns")? as f64;
    let allowed = if contexts > 64 { MANY } else { tolerance(guest) };
    near("wall time", wall, exit, allowed, FLOOR_NS)?;
    if wall > number(&load, "/exit_ns")? as f64 {
        bail!(
            "the drain took longer than the exit it is part of: {}",
            shortened(drain)
        );
    }
    phases(drain)?;
    Ok(format!(
        "{:.1} ms (the parent's clock {:.1} ms)",
        wall / 1e6,
        exit / 1e6
    ))
}

/// A process destroys its contexts one after another.
pub fn by_destroy(guest: &Guest, contexts: u64) -> Result<String> {
    let tool = Tool::start(&[])?;
    let load = workload(&format!("aio --destroy --contexts {contexts}"))?;
    let records = tool.finish()?;
    let drain = only_drain(&records, &load)?;
    words(drain, "io_destroy", contexts, "serial")?;
    let wall = number(drain, "/wall_ns")? as f64;
    let truth = number(&load, "/wall_ns")? as f64;
    near("wall time", wall, truth, tolerance(guest), FLOOR_NS)?;
    phases(drain)?;
    let detail = drain["detail"].as_array().context("no detail")?;
    let times = load["destroy_ns"].as_array().context("no times")?;
    same("contexts in detail", detail.len(), times.len())?;
    let begins = detail
        .iter()
        .map(|context| number(context, "/start_offset_ns"))
        .collect::<Result<Vec<u64>>>()?;
    let (mut longest, mut late) = (0, Vec::new());
    for (index, (context, time)) in detail.iter().zip(times).enumerate() {
        let total = number(context, "/total_ns")?;
        longest = longest.max(total);
        let time = time.as_u64().context("a time is no number")?;
        // A context is drained before its io_destroy returns: the caller has to wake first.
        if total > time {
            bail!("a context took {total} ns, its io_destroy only {time}");
        }
        if let Err(error) = near(
            "a context's time",
            total as f64,
            time as f64,
            tolerance(guest),
            FLOOR_NS,
        ) {
            late.push(error);
        }
        // From one kill to the next is one call, wake included.
        if let Some(next) = begins.get(index + 1) {
            let call = next.saturating_sub(begins[index]);
            near(
                "from one kill to the next",
                call as f64,
                time as f64,
                tolerance(guest),
                FLOOR_NS,
            )?;
        }
    }
    // Of sixteen callers one may have waited for a processor after its context was gone.
    if late.len() > detail.len().div_ceil(16) {
        bail!("{} of {} contexts: {:#}", late.len(), detail.len(), late[0]);
    }
    let together = number(drain, "/projected_parallel_ns")?;
    if together > longest {
        bail!("together {together} ns, the longest context {longest} ns");
    }
    Ok(format!(
        "{:.1} ms (own clock {:.1} ms), together it would be {:.1} ms",
        wall / 1e6,
        truth / 1e6,
        together as f64 / 1e6
    ))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// What contexts destroyed one after another are said to take together, against what as many take at exit by the parent's clock.
/// Medians: two grace periods are never as long as two others.
pub fn projected(_: &Guest, contexts: u64) -> Result<String> {
    let tool = Tool::start(&[])?;
    let (mut loops, mut exits) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        loops.push(workload(&format!("aio --destroy --contexts {contexts}"))?);
    }
    for _ in 0..5 {
        let load = workload(&format!("aio --exit --calm --contexts {contexts}"))?;
        let besides = number(&load, "/exit_without_contexts_ns")?;
        exits.push(number(&load, "/exit_ns")? as f64 - besides as f64);
    }
    let records = tool.finish()?;
    let mut said = Vec::new();
    for load in &loops {
        let drain = only_drain(&records, load)?;
        words(drain, "io_destroy", contexts, "serial")?;
        said.push(number(drain, "/projected_parallel_ns")? as f64);
    }
    let (said, took) = (median(said), median(exits));
    near("projected", said, took, MANY, 0.0)?;
    Ok(format!(
        "{contexts} contexts together: said {:.1} ms, took {:.1} ms ({:+.0} %)",
        said / 1e6,
        took / 1e6,
        (said / took - 1.0) * 100.0
    ))
}

/// Reads that take a known time are in flight at the exit: the last phase is I/O.
pub fn io_in_flight(guest: &Guest) -> Result<String> {
    const READ_NS: u64 = 400_000_000;
    if kernel_modules::is_loaded("null_blk") {
        kernel_modules::unload("null_blk")?;
    }
    kernel_modules::load(&format!(
        "null_blk nr_devices=1 queue_mode=2 irqmode=2 completion_nsec={READ_NS}"
    ))?;
    let tool = Tool::start(&[])?;
    let load = workload("aio --exit --contexts 2 --in-flight 2 --file /dev/nullb0")?;
    let records = tool.finish()?;
    kernel_modules::unload("null_blk")?;
    let drain = only_drain(&records, &load)?;
    words(drain, "exit_aio", 2, "parallel")?;
    phases(drain)?;
    let wall = number(drain, "/wall_ns")? as f64;
    near(
        "wall time",
        wall,
        number(&load, "/exit_ns")? as f64,
        tolerance(guest),
        FLOOR_NS,
    )?;
    // The reads began before the exit; grace periods run while they are in flight.
    let io = number(drain, "/phases_ns/reqs_io")?;
    let wait_for_io = READ_NS / 2;
    if io < wait_for_io {
        bail!(
            "only {io} ns of I/O in flight, reads take {READ_NS} ns: {}",
            drain["phases_ns"]
        );
    }
    Ok(format!("{:.0} ms of it I/O", io as f64 / 1e6))
}

/// A thousand processes exit without AIO: no drain, nothing sent.
pub fn without_contexts(_: &Guest) -> Result<String> {
    let mut tool = Tool::start(&["1"])?;
    // What attaching itself caused is in the first interval.
    tool.wait_for("a first interval", Duration::from_secs(20), |record| {
        record["type"] == "loss"
    })?;
    tool.wait_for("a second interval", Duration::from_secs(20), |record| {
        record["type"] == "loss"
    })?;
    let mut before = Value::Null;
    tool.wait_for("a third interval", Duration::from_secs(20), |record| {
        before = record.clone();
        record["type"] == "loss"
    })?;
    workload("noaio-exit --count 1000")?;
    let records = tool.finish()?;
    same("drains", records.of("aio_drain").count(), 0)?;
    let submitted = |loss: &Value| number(loss, "/submitted");
    same(
        "events put into a ring",
        submitted(records.loss())?,
        submitted(&before)?,
    )?;
    Ok("1000 exits, no event".to_owned())
}

/// What an exit without AIO costs is what one program costs: of all that are attached, one runs for each process, by the kernel's
/// own count. The others look at contended locks, which exits rarely meet.
pub fn exit_runs_one_program(_: &Guest) -> Result<String> {
    const EXITS: u64 = 1_000;
    let _counting = ProgramTimes::count()?;
    let tool = Tool::start(&[])?;
    let before = tool.program_runs()?;
    workload(&format!("noaio-exit --count {EXITS}"))?;
    let after = tool.program_runs()?;
    tool.finish()?;
    let mut runs: Vec<u64> = after
        .iter()
        .map(|(id, runs)| runs - before.get(id).unwrap_or(&0))
        .collect();
    runs.sort_unstable();
    let most = runs.pop().context("no program")?;
    let others: u64 = runs.iter().sum();
    // The workload itself exits, and so may somebody else of the guest.
    if !(EXITS..=EXITS + 20).contains(&most) {
        bail!("the program that runs most ran {most} times for {EXITS} exits");
    }
    if others > EXITS / 20 {
        bail!("other programs ran {others} times for {EXITS} exits: {runs:?}");
    }
    Ok(format!(
        "{EXITS} exits: one of {} programs ran {most} times, the others {others} times",
        after.len()
    ))
}
