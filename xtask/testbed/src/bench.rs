//! What tracing costs: run with `-icount shift=0`, where a nanosecond of the guest's clock is an instruction.

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;

use crate::device::{Testbed, make_tcmu, minor_of};
use crate::tests::{number, workload};
use crate::tool::Tool;
use crate::{kernel_modules, report};

/// How much to run.
#[derive(Debug, Args)]
pub struct Options {
    /// Writes per measurement.
    #[arg(long, default_value_t = 20_000)]
    writes: u64,
    /// Exits per measurement.
    #[arg(long, default_value_t = 20)]
    exits: u64,
    /// Rounds of exits, of which the cheapest counts.
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// Pairs of measurements without and with the tool.
    #[arg(long, default_value_t = 9)]
    pairs: u64,
}

const TCMU: &str = "tcm-user/0/testbed/testbed//x";

fn signal(tool: &Tool, signal: i32) -> Result<()> {
    let pid = i32::try_from(tool.pid())?;
    // SAFETY: plain integers; the tool has not been waited for, so the pid is still its own.
    if unsafe { libc::kill(pid, signal) } != 0 {
        bail!("signal {signal} to the tool: {}", std::io::Error::last_os_error());
    }
    Ok(())
}

/// How far two measurements of the same may be apart.
const TOLERANCE: f64 = 0.02;
/// Measurements until two must have agreed.
const TRIES: u32 = 6;

/// Measures until two in a row agree: soon after boot the kernel still reads its clock through a slow clocksource, which is
/// part of what is measured.
fn steady(measure: &impl Fn() -> Result<Vec<f64>>) -> Result<Vec<f64>> {
    let mut last = measure()?;
    for _ in 0..TRIES {
        let now = measure()?;
        eprintln!("testbed: {last:.0?} then {now:.0?}");
        if now
            .iter()
            .zip(&last)
            .all(|(now, last)| (now - last).abs() <= TOLERANCE * last)
        {
            return Ok(now);
        }
        last = now;
    }
    bail!("the cost without the tool does not settle: {last:?}")
}

/// Measures without the tool and with it, in turn.
pub fn run(options: &Options) -> Result<()> {
    let mut devices = Vec::new();
    if kernel_modules::have_testbed() {
        let device = Testbed::find(0)?;
        device.set_hold(0, false)?;
        devices.push(("write, testbed device", device.node()));
    }
    let minor = minor_of(TCMU).or_else(|_| make_tcmu())?;
    devices.push(("write, TCMU device", format!("/dev/uio{minor}")));

    let measure = || -> Result<Vec<f64>> {
        let mut costs = Vec::new();
        for (_, node) in &devices {
            // warm: caches of translated code
            workload(&format!("uio-write --device {node} --count 2000"))?;
            let load = workload(&format!("uio-write --device {node} --count {}", options.writes))?;
            costs.push(number(&load, "/devices/0/latency_ns/sum")? as f64 / options.writes as f64);
        }
        // The cheapest of many rounds: an exit costs hundreds of times what is looked for in it, and timer ticks and RCU
        // callbacks fall into some rounds and not into others.
        let mut least = f64::INFINITY;
        for _ in 0..options.rounds {
            let load = workload(&format!("noaio-exit --count {}", options.exits))?;
            least = least.min(number(&load, "/wall_ns")? as f64 / options.exits as f64);
        }
        costs.push(least);
        Ok(costs)
    };
    steady(&measure)?;
    // In pairs, in turn: an exit's cost drifts with the state of the kernel's allocators by more than what is looked for.
    let mut pairs: Vec<(Vec<f64>, Vec<f64>)> = Vec::new();
    for _ in 0..options.pairs {
        let without = measure()?;
        let tool = Tool::start(&[])?;
        // What is measured is the traced path, not the tool's own process, which shares the one processor: it stands still
        // meanwhile, and its programs go on.
        signal(&tool, libc::SIGSTOP)?;
        let with = measure();
        signal(&tool, libc::SIGCONT)?;
        tool.finish()?;
        pairs.push((without, with?));
    }

    let names = devices
        .iter()
        .map(|(name, _)| *name)
        .chain(["exit of a process without AIO"]);
    for (index, name) in names.enumerate() {
        let added: Vec<f64> = sorted(pairs.iter().map(|(without, with)| with[index] - without[index]));
        report::data(&json!({
            "what": name,
            "without": median(&sorted(pairs.iter().map(|(without, _)| without[index]))).round(),
            "with": median(&sorted(pairs.iter().map(|(_, with)| with[index]))).round(),
            "added": median(&added).round(),
            "least": added.first().copied().unwrap_or(f64::NAN).round(),
            "most": added.last().copied().unwrap_or(f64::NAN).round(),
        }));
    }
    Ok(())
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
