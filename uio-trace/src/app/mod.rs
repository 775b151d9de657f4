//! The commands: what wires rooms together.

pub mod cgroup;
pub mod check;
pub mod device;
pub mod diff;
pub mod exec;
pub mod filter;
pub mod hist;
pub mod meta;
pub mod output;
pub mod own_cost;
pub mod owned_file;
pub mod preflight;
pub mod record;
pub mod replay;
pub mod report;
pub mod signals;
pub mod top;
pub mod tracer;

use crate::{
    cli::{Cli, Command},
    config::{DiffConfig, ExecConfig, HistConfig, RecordConfig, ReportConfig, TraceConfig},
    error::AppError,
};

/// Runs the command.
///
/// # Errors
/// What ends the program other than well.
pub async fn run(cli: Cli) -> Result<(), AppError> {
    match cli.command {
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Exec(args)) => exec::run(ExecConfig::new(&args)?).await,
        Some(Command::Hist(args)) => hist::run(HistConfig::new(&args)?).await,
        Some(Command::Record(args)) => record::run(RecordConfig::new(&args)?).await,
        Some(Command::Replay(args)) => replay::run(&args).await,
        Some(Command::Report(args)) => report::run(ReportConfig::new(&args)?).await,
        Some(Command::Diff(args)) => diff::run(&DiffConfig::new(&args)),
        Some(Command::Top(args)) => top::run(TraceConfig::new(&args)?).await,
        None => top::run(TraceConfig::new(&cli.trace)?).await,
    }
}
