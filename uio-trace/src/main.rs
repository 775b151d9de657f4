//! Parse, run, exit code.

use std::process::ExitCode;
use uio_trace::{app, cli, error::AppError, say::say};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if error.exit_code() != 0 {
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
