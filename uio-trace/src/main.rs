//! Parse, run, exit code.

use clap::Parser;
use std::process::ExitCode;
use uio_trace::{app, cli::Cli, probes::tracefs};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(tracefs::JANITOR) {
        if let Some(pid) = arguments.next().and_then(|pid| pid.parse().ok()) {
            tracefs::janitor(pid);
        }
        return ExitCode::SUCCESS;
    }
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("uio-trace: the event loop could not be started: {error}");
            return ExitCode::from(1);
        }
    };
    match runtime.block_on(app::run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if error.exit_code() != 0 {
                eprintln!("uio-trace: {error}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}
