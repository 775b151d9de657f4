//! What tracing costs: run with `-icount shift=0`, where a nanosecond of the guest's clock is an instruction.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;

use crate::device::{Testbed, make_tcmu, minor_of};
use crate::ref_testbed::RefTestbed;
use crate::tests::{HOLD, number, same, workload};
use crate::tool::Tool;
use crate::{kernel_modules, report};

/// How much to run.
#[derive(Debug, Args)]
pub struct Options {
    /// Writes per measurement.
    #[arg(long, default_value_t = 20_000)]
    writes: u64,
    /// Calls of exit_aio() per measurement.
    #[arg(long, default_value_t = 20_000)]
    exits: u64,
    /// Kills of a percpu_ref per measurement.
    #[arg(long, default_value_t = 50)]
    kills: u64,
    /// Pairs of measurements without and with the tool.
    #[arg(long, default_value_t = 9)]
    pairs: u64,
}

/// How long the lock is held in the contended case.
const CONTENDED_HOLD_US: u64 = 50;
/// Contended writes are so many times fewer: they cost so much more.
const CONTENDED_SHARE: u64 = 10;

/// For the kernel to clean up after the tool.
const SETTLE: Duration = Duration::from_secs(10);

const EXIT: &str = "exit_aio of a process without AIO";
const KILL: &str = "percpu_ref_kill, to its event in the ring";

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
    let mut contended = None;
    if kernel_modules::have_testbed() {
        let device = Testbed::find(0)?;
        device.set_hold(0, false)?;
        let busy = Testbed::find(1)?;
        busy.set_hold(CONTENDED_HOLD_US, false)?;
        contended = Some(busy.node());
        devices.push(("write, testbed device", device.node()));
    }
    let minor = minor_of(TCMU).or_else(|_| make_tcmu())?;
    devices.push(("write, TCMU device", format!("/dev/uio{minor}")));

    let refs = RefTestbed::load()?;
    let measure = || -> Result<Vec<f64>> {
        let mut costs = Vec::new();
        for (_, node) in &devices {
            // warm: caches of translated code
            workload(&format!("uio-write --device {node} --count 2000"))?;
            let load = workload(&format!("uio-write --device {node} --count {}", options.writes))?;
            costs.push(number(&load, "/devices/0/latency_ns/sum")? as f64 / options.writes as f64);
        }
        if let Some(node) = &contended {
            // CPU time of the two writers, as each of them sleeps in turn.
            let each = options.writes / CONTENDED_SHARE;
            let load = workload(&format!("uio-write --device {node} --threads 2 --count {each}"))?;
            costs.push(number(&load, "/devices/0/cpu_ns")? as f64 / (2 * each) as f64);
        }
        // The part of an exit that is traced, by itself: a whole exit's cost varies by more than what is looked for.
        refs.exit_aio(2_000)?;
        costs.push(refs.exit_aio(options.exits)? as f64 / options.exits as f64);
        costs.push(refs.kills(options.kills)? as f64 / options.kills as f64);
        Ok(costs)
    };
    steady(&measure)?;
    // In turn: without the tool, with uio by kprobes, and by fentry.
    let mut rounds: Vec<[Vec<f64>; 3]> = Vec::new();
    for _ in 0..options.pairs {
        let without = measure()?;
        let kprobes = traced(&[], "kprobe+kretprobe", &measure)?;
        rounds.push([without, kprobes, traced(&[HOLD], "fentry+fexit", &measure)?]);
    }

    let names = devices
        .iter()
        .map(|(name, _)| *name)
        .chain(contended.iter().map(|_| "write that waits, testbed device"))
        .chain([EXIT, KILL]);
    for (index, name) in names.enumerate() {
        for (way, title) in [(1, "kprobes"), (2, "fentry")] {
            // The probes on those are the same.
            let of_uio = ![EXIT, KILL].contains(&name);
            if !of_uio && way == 2 {
                continue;
            }
            let added: Vec<f64> = sorted(rounds.iter().map(|round| round[way][index] - round[0][index]));
            let of = |way: usize| median(&sorted(rounds.iter().map(|round| round[way][index]))).round();
            report::data(&json!({
                "what": if of_uio { format!("{name}, {title}") } else { name.to_owned() },
                "without": of(0),
                "with": of(way),
                "added": median(&added).round(),
                "mean": mean(&added),
                "standard_error": standard_error(&added),
                "least": added.first().copied().unwrap_or(f64::NAN).round(),
                "most": added.last().copied().unwrap_or(f64::NAN).round(),
            }));
        }
    }
    Ok(())
}

/// Measures under the tool, which must have attached to uio in this way.
fn traced(options: &[&str], method: &str, measure: &impl Fn() -> Result<Vec<f64>>) -> Result<Vec<f64>> {
    let tool = Tool::start(options)?;
    let row = tool.records().probe("uio_write");
    same("the way of uio_write", row["method"].as_str(), Some(method)).with_context(|| row.to_string())?;
    // What is measured is the traced path, not the tool's own process, which shares the one processor: it stands still
    // meanwhile, and its programs go on.
    signal(&tool, libc::SIGSTOP)?;
    let costs = measure();
    signal(&tool, libc::SIGCONT)?;
    tool.finish()?;
    // The kernel takes trampolines down and frees programs long after their owner is gone, on this one processor.
    std::thread::sleep(SETTLE);
    costs
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// How far the mean is from what ever more measurements would lead to: the root of the sample's variance by its size.
fn standard_error(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let count = values.len() as f64;
    (squares / (count - 1.0) / count).sqrt()
}

fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::{mean, standard_error};

    /// By hand: deviations -2, 0, 2 from 3; variance 8/2, by three 4/3.
    #[test]
    fn error_of_a_mean() {
        let values = [1.0, 3.0, 5.0];
        assert!((mean(&values) - 3.0).abs() < 1e-12);
        assert!((standard_error(&values) - (4.0_f64 / 3.0).sqrt()).abs() < 1e-12);
    }
}
