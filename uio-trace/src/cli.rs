//! The command line as text: what clap parses. `config` makes it valid values.

mod report;

pub use report::{DiffArgs, OutputArgs, ReportArgs};

use crate::error::AppError;
use clap::{Args, Parser, Subcommand};
use std::io::Write;

/// Parses this process's arguments. `None`: help or version was asked for, and is written.
///
/// Not `Cli::parse`: it ends the process well also when the help could not be written.
///
/// # Errors
/// [`AppError::Usage`] for what the command line does not know; a failed write.
pub fn parse() -> Result<Option<Cli>, AppError> {
    let error = match Cli::try_parse() {
        Ok(cli) => return Ok(Some(cli)),
        Err(error) => error,
    };
    let text = error.render().to_string();
    if error.use_stderr() {
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        return Err(AppError::Usage(text.trim_end().to_owned()));
    }
    let mut out = crate::stdout::lock()?;
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(None)
}

/// `--pid`.
fn process_id(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err("give the number of a process, as ps shows it".into()),
    }
}

/// COUNT.
fn interval_count(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("give a number of intervals, 1 or more".into()),
    }
}

/// Tells which UIO device is serialised by its info_lock, where a percpu_ref's kill spends its time, and whether a process
/// exits slowly because its AIO contexts drain one after another.
#[derive(Debug, Parser)]
#[command(name = "uio-trace", version = crate::version::LONG, max_term_width = 100)]
// Options before a command would be those of `top`, and silently not hold for it.
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Without a command: top.\nExit codes: 0 done, 1 failed, 2 usage, 3 not permitted, 4 this kernel cannot."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of `top` when no command is named.
    #[command(flatten)]
    pub trace: TraceArgs,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Live screens (needs a terminal)
    Top(TraceArgs),
    /// Histograms and drains as text or JSON, at Ctrl-C or each INTERVAL
    Hist(HistArgs),
    /// Traces a command and what it starts, and reports when it has ended; ends as the command did
    Exec(ExecArgs),
    /// Records the decoded events to a file, to replay them here or elsewhere
    Record(RecordArgs),
    /// The live screens over a recording (needs a terminal; no root, any machine)
    Replay(ReplayArgs),
    /// What a recording tells: text, JSON, a HTML page, a Perfetto trace, or folded stacks
    Report(ReportArgs),
    /// What got better and what worse between two recordings or JSON dumps
    Diff(DiffArgs),
    /// Can this kernel be traced, by this user? Each hook and how it attaches. Works without root
    Check(CheckArgs),
}

/// What to trace.
#[derive(Debug, Clone, Default, Args)]
pub struct TraceArgs {
    /// Only this process (its UIO operations, AIO contexts and the refs it kills)
    #[arg(short, long, value_name = "PID", value_parser = process_id)]
    pub pid: Option<u32>,
    /// Only threads of this name (the kernel keeps 15 bytes of it)
    #[arg(long, value_name = "NAME")]
    pub comm: Option<String>,
    /// Only processes in this cgroup (v2) and below: its path below /sys/fs/cgroup, or as in /proc/PID/cgroup
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<String>,
    /// Only this UIO device: uio0, /dev/uio0, or the name its driver gave it
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Only percpu_refs whose owner or release function contains this text
    #[arg(long, value_name = "TEXT")]
    pub owner: Option<String>,
    /// Show UIO operations of at least this length one by one
    #[arg(long, value_name = "DURATION", default_value = TraceArgs::SLOW)]
    pub slow: String,
    /// Show everything, also the tool's own percpu_refs
    #[arg(long)]
    pub all: bool,
    /// Trace uio by fentry and fexit, which cost less than kprobes, but hold the module: it can be unloaded some seconds
    /// after its last driver
    #[arg(long)]
    pub hold_uio: bool,
    /// Let the kernel count how often and how long each program runs, for as long as the tool does; that itself costs some tens of
    /// nanoseconds for each run of any BPF program
    #[arg(long)]
    pub cost: bool,
    /// Messages of the BPF programs, to standard error
    #[arg(long)]
    pub bpf_log: bool,
    /// Size of the event rings in KiB, a power of two (default: 1024)
    #[arg(long, value_name = "KIB", hide_short_help = true)]
    pub ring_kib: Option<u32>,
}

impl TraceArgs {
    /// `--slow` where it is not given.
    pub const SLOW: &str = "1ms";
}

/// `hist`.
#[derive(Debug, Args)]
pub struct HistArgs {
    /// Print every INTERVAL (seconds, or 500ms, 2m) what happened in it; without: once, at the end
    #[arg(value_name = "INTERVAL")]
    pub interval: Option<String>,
    /// Stop after COUNT intervals
    #[arg(value_name = "COUNT", requires = "interval", value_parser = interval_count)]
    pub count: Option<u64>,
    /// Stop after this long
    #[arg(long, value_name = "DURATION")]
    pub duration: Option<String>,
    /// NDJSON: one record a line (docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// CSV: a line for each device and operation
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// What to trace.
    #[command(flatten)]
    pub trace: TraceArgs,
}

/// `exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Write the report to FILE instead of standard error; - is standard output
    #[arg(short, long = "output", value_name = "FILE")]
    pub output: Option<std::path::PathBuf>,
    /// Replace FILE if it exists
    #[arg(long, requires = "output")]
    pub force: bool,
    /// The report as NDJSON (docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
    /// What to trace.
    #[command(flatten)]
    pub trace: TraceArgs,
}

/// `record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// The file; with --trigger FILE, FILE.2, FILE.3, ...
    #[arg(short, long = "output", value_name = "FILE")]
    pub output: std::path::PathBuf,
    /// Stop after this long
    #[arg(long, value_name = "DURATION")]
    pub duration: Option<String>,
    /// Disk space to use at most (1M, 500M, 2G). Without --trigger the latest is kept, in FILE, FILE.1, FILE.2 and
    /// FILE.3; with it the recording ends there
    #[arg(long, value_name = "SIZE")]
    pub max_size: Option<String>,
    /// Replace FILE if it exists
    #[arg(long)]
    pub force: bool,
    /// Keep only what happened so many seconds before and after a trigger
    #[arg(long, value_name = "N", requires = "trigger")]
    pub ring_seconds: Option<u32>,
    /// What to wait for: 'aio.drain > 1s', 'uio.wait > 10ms', 'ref.drain > 500ms' or 'stuck > 5s'; may be repeated
    #[arg(long, value_name = "EXPR")]
    pub trigger: Vec<String>,
    /// What to trace.
    #[command(flatten)]
    pub trace: TraceArgs,
}

/// `replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// A file that record has written
    #[arg(value_name = "FILE")]
    pub file: std::path::PathBuf,
    /// Show everything, also percpu_refs of the recording tool itself
    #[arg(long)]
    pub all: bool,
}

/// `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Try fentry and fexit on uio, as a trace with this option does
    #[arg(long)]
    pub hold_uio: bool,
    /// One JSON record of type meta
    #[arg(long)]
    pub json: bool,
}
