//! `cargo xtask run`: the tool on this machine where its kernel can be traced, else in a guest with a load that
//! gives it something to show, on this terminal.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;

use crate::process::{progress, run};
use crate::vm::qemu::{Guest, Running};
use crate::vm::{self, Job, Kernel, Programs, initramfs, kernels};
use crate::{paths, terminal};

/// Arguments of `cargo xtask run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// A dump of ten seconds instead of the screen.
    #[arg(long)]
    once: bool,
    /// Boot this kernel in a guest, whatever this machine can do.
    #[arg(long)]
    kernel: Option<String>,
}

/// The verb.
pub fn main(arguments: &RunArgs) -> Result<()> {
    let top = paths::workspace()?;
    let once = arguments.once || !terminal::is_interactive();
    let programs = vm::build_programs(&top)?;
    if let (None, Some(tool)) = (&arguments.kernel, &programs.tool) {
        match refusal(tool) {
            None => return on_this_machine(tool, once),
            Some(reason) => progress(format!(
                "this machine cannot be traced ({reason}); starting a guest"
            )),
        }
    }
    let name = arguments.kernel.as_deref().unwrap_or("6.12");
    let kernel = kernels::provide(&paths::cache()?, kernels::find(name)?)?;
    let tool = if once {
        "uio-trace hist --duration 10"
    } else {
        "uio-trace top"
    };
    // The load runs beside the tool; when the tool ends, so does the guest.
    let job = Job {
        command: vec![
            "/bin/sh".into(),
            "-c".into(),
            format!("testbed demo >/dev/null 2>&1 & {tool}"),
        ],
        modules: vm::default_modules(),
        ..Job::default()
    };
    if once {
        dump(&kernel, &programs, &job)
    } else {
        interactive(&kernel, &programs, job, 4)
    }
}

/// Why this machine's kernel cannot be traced, in a line; `None` when it can.
fn refusal(tool: &Path) -> Option<String> {
    let output = with_privileges(tool).arg("check").output();
    match output {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let text = format!(
                "{}\n{}",
                String::from_utf8_lossy(&output.stderr),
                String::from_utf8_lossy(&output.stdout)
            );
            let line = text
                .lines()
                .find(|line| !line.trim().is_empty())
                .unwrap_or("no reason given");
            Some(line.trim().to_owned())
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Through sudo where this user is not root; without a terminal only if sudo asks nothing.
fn with_privileges(tool: &Path) -> Command {
    // SAFETY: geteuid takes no argument and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return Command::new(tool);
    }
    let mut command = Command::new("sudo");
    if !terminal::is_interactive() {
        command.arg("-n");
    }
    command.arg(tool);
    command
}

fn on_this_machine(tool: &Path, once: bool) -> Result<()> {
    let mut command = with_privileges(tool);
    if once {
        command.args(["hist", "--duration", "10"]);
    } else {
        command.arg("top");
    }
    run(&mut command)
}

/// A guest whose console's output is the result.
fn dump(kernel: &Kernel, programs: &Programs, job: &Job) -> Result<()> {
    let mut guest = vm::prepare(kernel, programs, job, "run")?;
    guest.verbose = true;
    // The load goes on while the tool attaches and detaches.
    guest.one_thread = true;
    guest.limit = Duration::from_secs(300);
    progress(format!("booting {}", kernel.release));
    let outcome = guest.watch(&mut |_| {})?;
    if let Some(problem) = outcome.problem() {
        bail!("{problem} (console: {})", guest.console_file().display());
    }
    match outcome.status() {
        Some(0) => Ok(()),
        status => bail!("uio-trace ended with {} in the guest", status.unwrap_or(-1)),
    }
}

/// A guest on this terminal.
pub fn interactive(kernel: &Kernel, programs: &Programs, mut job: Job, smp: u32) -> Result<()> {
    if !terminal::is_interactive() {
        bail!("this needs a terminal");
    }
    let kind = std::env::var("TERM").unwrap_or_else(|_| "xterm-256color".to_owned());
    job.terminal = Some(initramfs::Terminal {
        size: terminal::size(),
        kind,
    });
    let mut guest = vm::prepare(kernel, programs, &job, "run")?;
    guest.one_thread = true;
    guest.smp = smp;
    progress(format!("booting {} (some ten seconds)", kernel.release));
    attended(&guest)
}

fn attended(guest: &Guest) -> Result<()> {
    let raw = terminal::Raw::enter()?;
    let mut running: Running = guest.attach()?;
    terminal::forward_size(guest.control_socket());
    while !running.has_ended()? {
        if terminal::asked_to_end() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(running);
    drop(raw);
    Ok(())
}
