//! Running other programs: every failure names the command line, and a captured one also shows what it said.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// The command line as a person would type it, for error messages.
pub fn describe(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    const LONGEST: usize = 300;
    if line.len() > LONGEST {
        let end = (0..=LONGEST)
            .rev()
            .find(|at| line.is_char_boundary(*at))
            .unwrap_or(0);
        line.truncate(end);
        line.push_str(" ...");
    }
    line
}

/// Runs a command whose output goes to this terminal; fails unless it succeeds.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start `{}`", describe(command)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", describe(command));
    }
    Ok(())
}

/// Runs a command silently; its output is shown only when it fails.
pub fn run_quiet(command: &mut Command) -> Result<()> {
    capture(command).map(drop)
}

/// Runs a command and returns what it wrote to stdout; fails unless it succeeds.
pub fn capture(command: &mut Command) -> Result<String> {
    let output = raw_output(command)?;
    if !output.status.success() {
        bail!(
            "`{}` failed ({})\n{}{}",
            describe(command),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn raw_output(command: &mut Command) -> Result<Output> {
    command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{}`", describe(command)))
}

/// `cargo` of the toolchain that runs us, started in `directory`.
pub fn cargo(directory: &Path) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsStr::new("cargo").to_owned());
    let mut command = Command::new(program);
    command.current_dir(directory);
    command
}

/// A line of progress. On stderr, so that a verb's result alone is on stdout.
pub fn progress(text: impl AsRef<str>) {
    eprintln!("xtask: {}", text.as_ref());
}
