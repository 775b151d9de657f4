//! `cargo xtask bench`: how fast events are taken in (here), and what tracing costs, in instructions (in a guest). The
//! guest's clock counts instructions, so those figures do not depend on the machine and repeat to a fraction of a per
//! cent.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::Value;

use crate::paths;
use crate::process::{cargo, describe, progress, run};
use crate::vm::{self, Job, kernels};

/// Arguments of `cargo xtask bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
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
    let programs = vm::build_programs(&top)?;
    let kernel = kernels::provide(&paths::cache()?, kernels::find(&arguments.kernel)?)?;
    let job = Job {
        command: vec!["testbed".into(), "bench".into()],
        modules: vm::default_modules(),
        ..Job::default()
    };
    let mut guest = vm::prepare(&kernel, &programs, &job, "bench")?;
    guest.icount = true;
    guest.kvm = false;
    guest.limit = Duration::from_secs(900);
    guest.silence = Duration::from_secs(600);
    let outcome = guest.watch(&mut |_| {})?;
    println!("instructions, {} on one processor", kernel.release);
    println!(
        "{:<36} {:>10} {:>10} {:>10}  (least to most of the pairs)",
        "", "without", "with", "added"
    );
    for line in outcome.data() {
        let row: Value = serde_json::from_str(line)?;
        let number = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
        let what = row["what"].as_str().unwrap_or_default();
        println!(
            "{what:<36} {:>10.0} {:>10.0} {:>10.0}  ({:.0} to {:.0})",
            number("without"),
            number("with"),
            number("added"),
            number("least"),
            number("most")
        );
    }
    if let Some(problem) = outcome.problem() {
        bail!("{problem} (console: {})", guest.console_file().display());
    }
    match outcome.status() {
        Some(0) => Ok(()),
        _ => bail!("the measurement failed: {}", outcome.console_tail.join("\n")),
    }
}
