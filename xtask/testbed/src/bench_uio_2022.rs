//! The case of 2022, "uio: Replace mutex info_lock with percpu_ref": fio's random reads, 16 jobs, of a disk that several threads
//! serve through TCMU, behind tcm_loop; with the kernel's `uio` and with one that has a percpu_ref; untraced and traced. What the
//! handler writes to its UIO device runs tcmu's completions under info_lock.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::kernel_modules::{Uio, swap};
use crate::report;
use crate::tcmu::{NAME, Served, unload};
use crate::tests::number;
use crate::tool::{Records, Tool};

/// How much to run.
#[derive(Debug, Args)]
pub struct Options {
    /// Runs of each kind; the medians are shown.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of a run, s.
    #[arg(long, default_value_t = 4)]
    seconds: u32,
    /// Threads that complete commands; 1 is a handler as tcmu-runner had it before.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4])]
    threads: Vec<usize>,
    /// Size of the disk, MiB.
    #[arg(long, default_value_t = 64)]
    mebibytes: u64,
}

/// The job of the patch's description, its size and time cut down.
const JOB: [&str; 9] = [
    "--name=job",
    "--rw=randread",
    "--bs=128k",
    "--ioengine=libaio",
    "--iodepth=16",
    "--numjobs=16",
    "--direct=1",
    "--group_reporting",
    "--time_based",
];
const OUTPUT: &str = "/tmp/fio.json";

/// fio's own report of a run.
fn fio(disk: &Path, options: &Options) -> Result<Value> {
    let _ = std::fs::remove_file(OUTPUT);
    let status = Command::new("fio")
        .args(JOB)
        .arg(format!("--filename={}", disk.display()))
        .arg(format!("--size={}m", options.mebibytes))
        .arg(format!("--runtime={}", options.seconds))
        .args(["--output-format=json", &format!("--output={OUTPUT}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot start fio")?;
    if !status.success() {
        bail!("fio ended with {status}");
    }
    let text = std::fs::read_to_string(OUTPUT).context("fio left no report")?;
    // Its own messages come first.
    let begin = text.find('{').context("fio's report is no JSON")?;
    let report: Value = serde_json::from_str(&text[begin..]).context("fio's report is no JSON")?;
    let job = &report["jobs"][0];
    if job["error"] != 0 {
        bail!("fio's job failed: error {}", job["error"]);
    }
    Ok(job.clone())
}

/// Runs of one kind.
#[derive(Debug, Default)]
struct Runs {
    /// MiB/s, by fio.
    bandwidth: Vec<f64>,
    /// Mean time of a read from submission to its end, us, by fio.
    latency_us: Vec<f64>,
    /// Of the run with the median bandwidth, what the tool says; in traced runs.
    said: Vec<Value>,
}

impl Runs {
    fn run(&mut self, served: &Served, options: &Options, traced: bool) -> Result<()> {
        let before = served.settled()?;
        let tool = if traced { Some(Tool::start(&[])?) } else { None };
        let job = fio(served.disk(), options)?;
        let writes = served.settled()? - before;
        self.bandwidth
            .push(number(&job, "/read/bw_bytes")? as f64 / f64::from(1 << 20));
        self.latency_us
            .push(job["read"]["lat_ns"]["mean"].as_f64().unwrap_or(f64::NAN) / 1e3);
        if let Some(tool) = tool {
            self.said.push(what_is_said(&tool.finish()?, writes)?);
        }
        Ok(())
    }

    /// The index of the run with the median bandwidth.
    fn middle(&self) -> usize {
        let mut order: Vec<usize> = (0..self.bandwidth.len()).collect();
        order.sort_by(|a, b| self.bandwidth[*a].total_cmp(&self.bandwidth[*b]));
        order.get(order.len() / 2).copied().unwrap_or(0)
    }

    fn data(&self) -> Value {
        let middle = self.middle();
        let least = self.bandwidth.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.bandwidth.iter().copied().fold(0.0, f64::max);
        json!({
            "bandwidth": self.bandwidth.get(middle),
            "least": least,
            "most": most,
            "latency_us": self.latency_us.get(middle),
            "said": self.said.get(middle),
        })
    }
}

/// The device's last record, and the findings on it. That every write of the handler's was seen is a condition for all of it.
fn what_is_said(records: &Records, writes: u64) -> Result<Value> {
    let device = records
        .of("uio_device")
        .filter(|record| record["name"] == NAME)
        .last()
        .with_context(|| format!("no record of {NAME}"))?;
    let write = records.operation(NAME, "write");
    let seen = number(write, "/count")?;
    if seen != writes {
        bail!("{seen} writes were seen, the handler did {writes}");
    }
    let subject = format!("{} (", device["sysfs_name"].as_str().unwrap_or_default());
    let findings: Vec<&Value> = records
        .of("finding")
        .filter(|finding| {
            finding["subject"]
                .as_str()
                .is_some_and(|text| text.starts_with(&subject))
        })
        .collect();
    Ok(json!({ "device": device, "write": write, "findings": findings }))
}

/// What is measured of a handler with so many threads.
#[derive(Debug, Default)]
struct Measured {
    untraced: Runs,
    traced: Runs,
}

impl Measured {
    fn round(&mut self, options: &Options, threads: usize) -> Result<()> {
        let served = Served::set_up(options.mebibytes, threads)?;
        self.untraced.run(&served, options, false)?;
        self.traced.run(&served, options, true)?;
        served.take_down()?;
        // `uio` can be exchanged only when nothing uses it.
        unload()
    }
}

/// A line of data for each number of threads. Kinds of runs take turns, so that what changes over time changes all of them.
pub fn run(options: &Options) -> Result<()> {
    let mut all: Vec<(Measured, Measured)> = Vec::new();
    all.resize_with(options.threads.len(), Default::default);
    for _ in 0..options.rounds.max(1) {
        for (threads, (stock, converted)) in options.threads.iter().zip(&mut all) {
            swap(Uio::Stock)?;
            stock.round(options, *threads)?;
            swap(Uio::Converted)?;
            converted.round(options, *threads)?;
        }
    }
    for (threads, (stock, converted)) in options.threads.iter().zip(&all) {
        report::data(&json!({
            "threads": threads,
            "stock": stock.untraced.data(),
            "stock_traced": stock.traced.data(),
            "converted": converted.untraced.data(),
            "converted_traced": converted.traced.data(),
        }));
    }
    swap(Uio::Stock)
}
