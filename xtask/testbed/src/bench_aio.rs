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

/// The longest of a drain's contexts.
fn longest(drain: &Value) -> Result<u64> {
    let detail = drain["detail"].as_array().context("no detail")?;
    let totals = detail.iter().map(|context| number(context, "/total_ns"));
    Ok(totals
        .collect::<Result<Vec<u64>>>()?
        .into_iter()
        .max()
        .unwrap_or(0))
}

/// Runs all under one trace.
pub fn run(options: &Options) -> Result<()> {
    let tool = Tool::start(&["--all"])?;
    let mut loads = Vec::new();
    for &contexts in &options.contexts {
        for _ in 0..options.rounds {
            let serial = workload(&format!("aio --destroy --contexts {contexts}"))?;
            let calm = workload(&format!("aio --exit --calm --contexts {contexts}"))?;
            let exit = workload(&format!("aio --exit --contexts {contexts}"))?;
            loads.push((contexts, serial, calm, exit));
        }
    }
    let records = tool.finish()?;
    for &contexts in &options.contexts {
        let (mut serial_ns, mut clock_ns, mut projected_ns, mut parallel_ns) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut any_ns, mut kills_ns, mut longest_ns) = (Vec::new(), Vec::new(), Vec::new());
        for (_, serial, calm, exit) in loads.iter().filter(|load| load.0 == contexts) {
            let destroyed = drain(&records, serial)?;
            serial_ns.push(number(destroyed, "/wall_ns")?);
            projected_ns.push(number(destroyed, "/projected_parallel_ns")?);
            clock_ns.push(number(serial, "/wall_ns")?);
            let together = drain(&records, calm)?;
            parallel_ns.push(number(together, "/wall_ns")?);
            kills_ns.push(last_kill(together)?);
            longest_ns.push(longest(destroyed)?);
            any_ns.push(number(drain(&records, exit)?, "/wall_ns")?);
        }
        report::data(&json!({
            "contexts": contexts,
            "serial_ns": median(serial_ns),
            "serial_clock_ns": median(clock_ns),
            "projected_ns": median(projected_ns),
            "parallel_ns": median(parallel_ns),
            "parallel_any_ns": median(any_ns),
            "parallel_kills_ns": median(kills_ns),
            "serial_longest_ns": median(longest_ns),
        }));
    }
    Ok(())
}
