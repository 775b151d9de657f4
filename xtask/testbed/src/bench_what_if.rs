//! What the tool says would be gained without info_lock, beside what is gained: the same load on the stock `uio` and on one
//! with a percpu_ref in its place. A figure for each load; processors that a host shares out make it a rough one.
//!
//! What is projected is the gain of the load as it is traced, so it is compared with traced runs on both: where tracing takes
//! a good part of an operation, the untraced load is another one. Its gain is printed, too.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};

use crate::device::Testbed;
use crate::kernel_modules::{Uio, swap};
use crate::report;
use crate::tests::{number, workload};
use crate::tool::{Records, Tool};

/// How long.
#[derive(Debug, Args)]
pub struct Options {
    /// Runs of each load on each `uio`, traced and untraced; the medians count.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// A load.
#[derive(Debug, Clone, Copy)]
struct Cell {
    threads: usize,
    hold_us: u64,
    spin: bool,
}

const THREADS: [usize; 4] = [1, 2, 4, 8];
const HOLDS: [(u64, bool); 4] = [(0, false), (20, false), (200, false), (20, true)];
/// Interval of the traced runs, s: at least four samples over time.
const INTERVAL_S: f64 = 3.0;
/// Length of an untraced run, s.
const RUN_S: f64 = 1.0;

fn cells() -> impl Iterator<Item = Cell> {
    HOLDS.into_iter().flat_map(|(hold_us, spin)| {
        THREADS.into_iter().map(move |threads| Cell {
            threads,
            hold_us,
            spin,
        })
    })
}

impl Cell {
    /// Runs it; writes per second.
    fn run(self, device: &Testbed, seconds: f64) -> Result<f64> {
        device.set_hold(self.hold_us, self.spin)?;
        let load = workload(&format!(
            "uio-write --device {} --threads {} --seconds {seconds}",
            device.node(),
            self.threads
        ))?;
        let writes = number(&load, "/devices/0/writes")? as f64;
        Ok(writes / (number(&load, "/wall_ns")? as f64 / 1e9))
    }

    /// Runs it for a whole interval of the tool and takes what that says of the device.
    fn traced(self, tool: &mut Tool, device: &Testbed) -> Result<(f64, Value)> {
        let next = |tool: &mut Tool| {
            tool.wait_for("an interval", Duration::from_secs(30), |record| {
                record["type"] == "interval"
            })
        };
        next(tool)?;
        // Begins a moment after the interval, and ends after it.
        let writes = self.run(device, INTERVAL_S * 1.15)?;
        next(tool)?;
        // The records of an interval follow its head, its losses last.
        tool.wait_for("its losses", Duration::from_secs(30), |record| {
            record["type"] == "loss"
        })?;
        let record = last_interval(tool.records(), &device.name)
            .with_context(|| format!("nothing is said of {self:?}"))?;
        Ok((writes, record.clone()))
    }
}

/// The device as the newest interval shows it.
fn last_interval<'a>(records: &'a Records, name: &str) -> Option<&'a Value> {
    let head = records
        .all()
        .iter()
        .rposition(|record| record["type"] == "interval")?;
    records.all()[head..]
        .iter()
        .find(|record| record["type"] == "uio_device" && record["name"] == name)
}

/// Writes per second of each load: the runs of one kind.
type Runs = Vec<Vec<f64>>;

/// One run of each load.
fn round(runs: &mut Runs) -> Result<()> {
    let device = Testbed::find(0)?;
    runs.resize(cells().count(), Vec::new());
    for (cell, runs) in cells().zip(runs) {
        runs.push(cell.run(&device, RUN_S)?);
    }
    Ok(())
}

/// The same under the tool.
fn traced_round(runs: &mut Runs) -> Result<()> {
    let tool = Tool::start(&[])?;
    round(runs)?;
    tool.finish().map(drop)
}

/// All rounds; kinds of runs take turns, so that what changes over time changes all of them.
#[derive(Debug, Default)]
struct Measured {
    stock: Runs,
    converted: Runs,
    stock_traced: Runs,
    converted_traced: Runs,
}

impl Measured {
    fn take(rounds: usize) -> Result<Measured> {
        let mut all = Measured::default();
        for _ in 0..rounds.max(1) {
            swap(Uio::Converted)?;
            round(&mut all.converted)?;
            traced_round(&mut all.converted_traced)?;
            swap(Uio::Stock)?;
            round(&mut all.stock)?;
            traced_round(&mut all.stock_traced)?;
        }
        Ok(all)
    }
}

fn median(runs: &[f64]) -> f64 {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Where an operation's time goes, us a write.
fn means(op: &Value) -> Value {
    let count = op["count"].as_f64().unwrap_or(0.0).max(1.0);
    let each = |sum: &Value| sum.as_f64().map(|ns| (ns / count / 100.0).round() / 10.0);
    json!({
        "latency_us": each(&op["latency_ns"]["sum"]),
        "wait_us": each(&op["wait_ns"]["sum"]),
        "hold_us": each(&op["hold_ns"]["sum"]),
        "spin_us": each(&op["spin_ns"]),
        "wake_us": each(&op["wake_ns"]),
        "contended": op["contended"].as_f64().map(|n| (n / count * 100.0).round() / 100.0),
    })
}

/// A line of data for each load.
pub fn run(options: &Options) -> Result<()> {
    let measured = Measured::take(options.rounds)?;
    let device = Testbed::find(0)?;
    let mut tool = Tool::start(&[&INTERVAL_S.to_string()])?;
    for (index, cell) in cells().enumerate() {
        let (_, record) = cell.traced(&mut tool, &device)?;
        let writes = |runs: &Runs| median(&runs[index]);
        report::data(&json!({
            "threads": cell.threads,
            "hold_us": cell.hold_us,
            "spin": cell.spin,
            "stock": writes(&measured.stock),
            "converted": writes(&measured.converted),
            "gain": writes(&measured.converted) / writes(&measured.stock),
            "stock_traced": writes(&measured.stock_traced),
            "converted_traced": writes(&measured.converted_traced),
            "gain_traced": writes(&measured.converted_traced) / writes(&measured.stock_traced),
            "mean_waiters": record["mean_waiters"],
            "utilization": record["utilization"],
            "op": record["ops"].as_array().and_then(|ops| ops.iter().find(|op| op["op"] == "write")).map(means),
            "what_if": record["what_if"],
        }));
    }
    tool.finish().map(drop)
}
