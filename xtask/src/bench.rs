//! `cargo xtask bench`: how fast events are taken in (here), and what tracing costs, in instructions (in a guest). The
//! guest's clock counts instructions, so those figures do not depend on the machine and repeat to a fraction of a per
//! cent.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::process::{cargo, describe, progress, run};
use crate::vm::{self, Guest, Job, kernels};
use crate::{apt, paths};

/// Cases of the kernel's history, measured anew.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Case {
    /// AIO contexts drained one after another and together: "serial percpu_ref draining in exit_aio()".
    #[value(name = "aio-2015")]
    Aio2015,
    /// What is projected without info_lock, and what a uio without it does.
    #[value(name = "what-if")]
    WhatIf,
    /// fio on tcm_loop and TCMU: "uio: Replace mutex info_lock with percpu_ref".
    #[value(name = "uio-2022")]
    Uio2022,
}

/// Arguments of `cargo xtask bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// A case instead of the costs.
    #[arg(value_enum, conflicts_with_all = ["guest", "host"])]
    case: Option<Case>,
    /// Only what the traced kernel pays, in a guest.
    #[arg(long)]
    guest: bool,
    /// Only what the tool itself pays, on this machine: events per second, memory.
    #[arg(long, conflicts_with = "guest")]
    host: bool,
    /// Its kernel.
    #[arg(long, default_value = "6.12")]
    kernel: String,
}

/// The verb.
pub fn main(arguments: &BenchArgs) -> Result<()> {
    let top = paths::workspace()?;
    match arguments.case {
        Some(Case::Aio2015) => return aio_2015(&top, &arguments.kernel),
        Some(Case::WhatIf) => return what_if(&top, &arguments.kernel),
        Some(Case::Uio2022) => return uio_2022(&top, &arguments.kernel),
        None => {}
    }
    if !arguments.guest {
        let mut model = cargo(&top);
        model.args([
            "bench",
            "--quiet",
            "--locked",
            "--package",
            "uio-trace",
            "--bench",
            "model",
        ]);
        progress(describe(&model));
        run(&mut model)?;
    }
    if arguments.host {
        return Ok(());
    }
    instructions(&top, &arguments.kernel)
}

/// Boots a guest that runs this command of the testbed, with these programs of this machine; its figures.
fn measure_with(
    top: &Path,
    kernel: &str,
    command: &str,
    host_programs: &[&str],
    prepare: impl FnOnce(&mut Guest),
) -> Result<Vec<Value>> {
    let programs = vm::build_programs(top)?;
    let kernel = kernels::provide(&paths::cache()?, kernels::find(kernel)?)?;
    let job = Job {
        command: vec!["testbed".into(), command.into()],
        modules: vm::default_modules(),
        host_programs: host_programs.iter().map(PathBuf::from).collect(),
        ..Job::default()
    };
    let mut guest = vm::prepare(&kernel, &programs, &job, command)?;
    guest.limit = Duration::from_secs(900);
    guest.silence = Duration::from_secs(600);
    prepare(&mut guest);
    progress(format!("booting {}", kernel.release));
    let outcome = guest.watch(&mut |_| {})?;
    if let Some(problem) = outcome.problem() {
        bail!("{problem} (console: {})", guest.console_file().display());
    }
    if outcome.status() != Some(0) {
        bail!("the measurement failed: {}", outcome.console_tail.join("\n"));
    }
    let rows = outcome.data().map(|line| Ok(serde_json::from_str(line)?));
    rows.collect()
}

fn measure(top: &Path, kernel: &str, command: &str, prepare: impl FnOnce(&mut Guest)) -> Result<Vec<Value>> {
    measure_with(top, kernel, command, &[], prepare)
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or(f64::NAN)
}

/// What tracing adds, in instructions.
fn instructions(top: &Path, kernel: &str) -> Result<()> {
    let rows = measure(top, kernel, "bench", |guest| {
        guest.icount = true;
        guest.kvm = false;
    })?;
    println!("instructions, {kernel} on one processor");
    println!(
        "{:<46} {:>10} {:>10} {:>10}  (least to most of the pairs; mean and its standard error)",
        "", "without", "with", "added"
    );
    for row in rows {
        let what = row["what"].as_str().unwrap_or_default();
        println!(
            "{what:<46} {:>10.0} {:>10.0} {:>10.0}  ({:.0} to {:.0}; {:.1} +- {:.1})",
            number(&row, "without"),
            number(&row, "with"),
            number(&row, "added"),
            number(&row, "least"),
            number(&row, "most"),
            number(&row, "mean"),
            number(&row, "standard_error"),
        );
    }
    Ok(())
}

/// AIO contexts destroyed one after another and together.
fn aio_2015(top: &Path, kernel: &str) -> Result<()> {
    // The tool attaches to release functions while they run: see the guests for patching in test.rs.
    let rows = measure(top, kernel, "bench-aio", |guest| guest.one_thread = true)?;
    println!("idle AIO contexts of a process, {kernel}, ms, medians");
    println!(
        "{:>8} {:>12} {:>12} {:>10} {:>10} {:>10} {:>12} {:>10}",
        "", "one by one", "own clock", "longest", "projected", "together", "together", "projected"
    );
    println!(
        "{:>8} {:>12} {:>12} {:>10} {:>10} {:>10} {:>12} {:>10}",
        "contexts",
        "(io_destroy)",
        "of the load",
        "context",
        "together",
        "(exit)",
        "(busy exit)",
        "is off by"
    );
    for row in rows {
        let ms = |name: &str| number(&row, name) / 1e6;
        println!(
            "{:>8} {:>12.1} {:>12.1} {:>10.1} {:>10.1} {:>10.1} {:>12.1} {:>8.0} %",
            number(&row, "contexts"),
            ms("serial_ns"),
            ms("serial_clock_ns"),
            ms("serial_longest_ns"),
            ms("projected_ns"),
            ms("parallel_ns"),
            ms("parallel_any_ns"),
            (ms("projected_ns") / ms("parallel_ns") - 1.0) * 100.0
        );
    }
    Ok(())
}

/// The gain without info_lock, projected and measured.
fn what_if(top: &Path, kernel: &str) -> Result<()> {
    let rows = measure(top, kernel, "bench-what-if", |guest| guest.smp = 2)?;
    println!(
        "writes to a UIO device per second, {kernel} on two processors: with info_lock, without it, and the gain; untraced, then traced"
    );
    println!(
        "{:>7} {:>14} {:>8} {:>8} {:>5} {:>8} {:>8} {:>5} {:>7}  projected",
        "threads", "hold", "with", "without", "gain", "with", "without", "gain", "waiting"
    );
    for row in &rows {
        let hold = match (number(row, "hold_us"), row["spin"].as_bool()) {
            (0.0, _) => "0 us".to_owned(),
            (us, Some(true)) => format!("{us} us spinning"),
            (us, _) => format!("{us} us asleep"),
        };
        let said = &row["what_if"];
        let projected = match (said["low"].as_f64(), said["high"].as_f64()) {
            (Some(low), Some(high)) => format!("{low:.2} to {high:.2}"),
            _ => "-".to_owned(),
        };
        println!(
            "{:>7} {hold:>14} {:>8.0} {:>8.0} {:>5.2} {:>8.0} {:>8.0} {:>5.2} {:>7.2}  {projected} {} {}",
            number(row, "threads"),
            number(row, "stock"),
            number(row, "converted"),
            number(row, "gain"),
            number(row, "stock_traced"),
            number(row, "converted_traced"),
            number(row, "gain_traced"),
            number(row, "mean_waiters"),
            said["verdict"].as_str().unwrap_or_default(),
            said["reason"].as_str().unwrap_or_default(),
        );
    }
    Ok(())
}

/// The load of 2022 with info_lock and without it, and what the tool says of both.
fn uio_2022(top: &Path, kernel: &str) -> Result<()> {
    apt::ensure_installed(&["fio"])?;
    let rows = measure_with(top, kernel, "bench-uio-2022", &["/usr/bin/fio"], |guest| {
        guest.smp = 2
    })?;
    println!(
        "fio randread, 128 KiB, 16 jobs of depth 16, on tcm_loop + TCMU (in memory), {kernel} on two processors; medians, least to most"
    );
    println!(
        "{:>7} {:>10} {:>8} {:>25} {:>12} {:>7} {:>7} {:>8} {:>8}",
        "handler", "uio", "", "MiB/s", "read, ms", "held", "waiting", "waited", "in tcmu"
    );
    for row in &rows {
        for (uio, traced, name) in [
            ("info_lock", "", "stock"),
            ("info_lock", "traced", "stock_traced"),
            ("percpu_ref", "", "converted"),
            ("percpu_ref", "traced", "converted_traced"),
        ] {
            let runs = &row[name];
            let bandwidth = format!(
                "{:.0} ({:.0} to {:.0})",
                number(runs, "bandwidth"),
                number(runs, "least"),
                number(runs, "most")
            );
            println!(
                "{:>7} {uio:>10} {traced:>8} {bandwidth:>25} {:>12.1} {}",
                number(row, "threads"),
                number(runs, "latency_us") / 1e3,
                figures(&runs["said"]),
            );
        }
        let gain =
            |with: &str, without: &str| number(&row[without], "bandwidth") / number(&row[with], "bandwidth");
        println!(
            "        measured without info_lock: {:.2} times, traced {:.2} times",
            gain("stock", "converted"),
            gain("stock_traced", "converted_traced")
        );
        let said = &row["stock_traced"]["said"];
        println!("        projected: {}", projection(&said["device"]["what_if"]));
        for finding in said["findings"].as_array().into_iter().flatten() {
            println!("        {}", finding["text"].as_str().unwrap_or_default());
        }
    }
    Ok(())
}

/// What the tool says of a run: how long the lock was held, who waited, and how long for locks of tcmu's own.
fn figures(said: &Value) -> String {
    let (device, write) = (&said["device"], &said["write"]);
    if device.is_null() {
        return String::new();
    }
    let share = |part: f64, of: f64| format!("{:.1} %", part / of * 100.0);
    let held = device["utilization"]
        .as_f64()
        .map_or("-".to_owned(), |held| share(held, 1.0));
    let waiting = device["mean_waiters"]
        .as_f64()
        .map_or("-".to_owned(), |waiting| format!("{waiting:.2}"));
    let waited = share(number(write, "contended"), number(write, "count"));
    let latency = number(&write["latency_ns"], "sum");
    let in_tcmu = share(number(device, "driver_wait_ns"), latency);
    format!("{held:>7} {waiting:>7} {waited:>8} {in_tcmu:>8}")
}

/// The gain that is projected, with its reason where there is none.
fn projection(said: &Value) -> String {
    let verdict = said["verdict"].as_str().unwrap_or_default();
    let reason = said["reason"].as_str().unwrap_or_default();
    match (said["low"].as_f64(), said["high"].as_f64()) {
        (Some(low), Some(high)) => format!("{low:.2} to {high:.2} times ({verdict} {reason})"),
        _ => format!("{verdict} {reason}"),
    }
}
