//! The case of 2015: contexts destroyed one after another, what the tool says they would take together, and what they do
//! take together, at exit.

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::report;
use crate::tests::{number, workload};
use crate::tool::{Records, Tool};

/// How much to run.
#[derive(Debug, Args)]
pub struct Options {
    /// Contexts of a process.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16, 64, 256])]
    contexts: Vec<u32>,
    /// Processes of each kind; medians are shown.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

fn drain<'a>(records: &'a Records, load: &Value) -> Result<&'a Value> {
    let tgid = number(load, "/tgid")?;
    match records.drains(tgid)[..] {
        [drain] => Ok(drain),
        ref others => bail!("{} drains of process {tgid}, should be one", others.len()),
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// From a drain's begin to the kill of its last context.
fn last_kill(drain: &Value) -> Result<u64> {
    let detail = drain["detail"].as_array().context("no detail")?;
    let kills = detail.iter().map(|context| number(context, "/start_offset_ns"));
    Ok(kills
        .collect::<Result<Vec<u64>>>()?
        .into_iter()
        .max()
        .unwrap_or(0))
}

/// What a drain's calls took beside the grace periods of their contexts.
fn outside(drain: &Value) -> Result<u64> {
    let mut sum = 0;
    for context in drain["detail"].as_array().context("no detail")? {
        let grace = number(context, "/users_gp_ns")? + number(context, "/reqs_gp_ns")?;
        sum += number(context, "/call_ns")?.saturating_sub(grace);
    }
    Ok(sum)
}

/// Runs all under one trace.
pub fn run(options: &Options) -> Result<()> {
    let tool = Tool::start(&["--all"])?;
    let mut loads = Vec::new();
    for &contexts in &options.contexts {
        for _ in 0..options.rounds {
            let serial = workload(&format!("aio --destroy --contexts {contexts}"))?;
            let parallel = workload(&format!("aio --exit --contexts {contexts}"))?;
            loads.push((contexts, serial, parallel));
        }
    }
    let records = tool.finish()?;
    for &contexts in &options.contexts {
        let (mut serial_ns, mut clock_ns, mut projected_ns, mut parallel_ns) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut longest_ns, mut kills_ns, mut outside_ns) = (Vec::new(), Vec::new(), Vec::new());
        for (_, serial, parallel) in loads.iter().filter(|load| load.0 == contexts) {
            let destroyed = drain(&records, serial)?;
            serial_ns.push(number(destroyed, "/wall_ns")?);
            projected_ns.push(number(destroyed, "/projected_parallel_ns")?);
            clock_ns.push(number(serial, "/wall_ns")?);
            let together = drain(&records, parallel)?;
            parallel_ns.push(number(together, "/wall_ns")?);
            longest_ns.push(number(together, "/projected_parallel_ns")?);
            kills_ns.push(last_kill(together)?);
            outside_ns.push(outside(destroyed)?);
        }
        report::data(&json!({
            "contexts": contexts,
            "serial_ns": median(serial_ns),
            "serial_clock_ns": median(clock_ns),
            "projected_ns": median(projected_ns),
            "parallel_ns": median(parallel_ns),
            "parallel_longest_ns": median(longest_ns),
            "parallel_kills_ns": median(kills_ns),
            "serial_outside_ns": median(outside_ns),
        }));
    }
    Ok(())
}
