//! Parse, run, exit code.

use std::process::ExitCode;
use uio_trace::{app, cli, error::AppError, probes::tracefs, say::say, stdout};

/// Runs before Rust's runtime, which opens /dev/null where standard output is closed.
// SAFETY: the section holds pointers to functions that the C runtime calls before `main`, with arguments that this one, of C's
// calling convention, leaves alone; it needs nothing of Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = stdout::look;

fn main() -> ExitCode {
    // Not in the command line's own table: the tool starts this for itself.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == tracefs::JANITOR) {
        if let Some(pid) = arguments.next().and_then(|pid| pid.to_str()?.parse().ok()) {
            tracefs::janitor(pid);
        }
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if error.is_told() {
                say(&error);
            }
            ExitCode::from(error.exit_code())
        }
    }
}

fn run() -> Result<(), AppError> {
    let Some(cli) = cli::parse()? else {
        return Ok(());
    };
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| AppError::Failed(format!("the event loop could not be started: {e}")))?
        .block_on(app::run(cli))
}
