//! `cargo xtask bench`: what tracing costs, in instructions. The guest's clock counts instructions, so the
//! figures do not depend on the machine and repeat to a fraction of a per cent.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::Value;

use crate::paths;
use crate::process::progress;
use crate::vm::{self, Job, kernels};

/// Arguments of `cargo xtask bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Measure in a guest (the only way there is).
    #[arg(long)]
    guest: bool,
    /// Its kernel.
    #[arg(long, default_value = "6.12")]
    kernel: String,
}

/// The verb.
pub fn main(arguments: &BenchArgs) -> Result<()> {
    if !arguments.guest {
        progress("measuring in a guest");
    }
    let top = paths::workspace()?;
    let programs = vm::build_programs(&top)?;
    let kernel = kernels::provide(&paths::cache()?, kernels::find(&arguments.kernel)?)?;
    let job = Job {
        command: vec!["testbed".into(), "bench".into()],
        modules: vm::default_modules(),
        terminal: None,
    };
    let mut guest = vm::prepare(&kernel, &programs, &job, "bench")?;
    guest.icount = true;
    guest.kvm = false;
    guest.limit = Duration::from_secs(900);
    guest.silence = Duration::from_secs(600);
    let outcome = guest.watch(&mut |_| {})?;
    println!("instructions, {} on one processor", kernel.release);
    println!("{:<36} {:>10} {:>10} {:>10}", "", "without", "with", "added");
    for line in outcome.data() {
        let row: Value = serde_json::from_str(line)?;
        let number = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
        let what = row["what"].as_str().unwrap_or_default();
        println!(
            "{what:<36} {:>10.0} {:>10.0} {:>10.0}",
            number("without"),
            number("with"),
            number("added")
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
