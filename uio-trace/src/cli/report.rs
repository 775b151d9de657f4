//! The command lines of `report` and `diff`.

use super::TraceArgs;
use clap::Args;
use std::path::PathBuf;

/// `report`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("form").multiple(false))]
pub struct ReportArgs {
    /// A recording; - is standard input
    #[arg(
        value_name = "FILE",
        required_unless_present = "live",
        conflicts_with = "live"
    )]
    pub file: Option<PathBuf>,
    /// Instead of a recording: trace for this long, then report
    #[arg(long, value_name = "DURATION")]
    pub live: Option<String>,
    /// NDJSON, the same records as those of hist (docs/json.md)
    #[arg(long, group = "form")]
    pub json: bool,
    /// One HTML file with plots; needs no network and no script
    #[arg(long, group = "form")]
    pub html: bool,
    /// A trace for ui.perfetto.dev
    #[arg(long, group = "form")]
    pub perfetto: bool,
    /// Folded stacks for flame graphs, in nanoseconds
    #[arg(long, group = "form")]
    pub folded: bool,
    /// Where to write it (default: standard output)
    #[command(flatten)]
    pub output: OutputArgs,
    /// What to trace, or to take from the recording.
    #[command(flatten)]
    pub trace: TraceArgs,
}

/// `diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Before: a recording, or the output of hist --json
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// After: likewise
    #[arg(value_name = "B")]
    pub after: PathBuf,
    /// NDJSON: one record a line (docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Show every row, also those without a difference
    #[arg(long)]
    pub all: bool,
    /// Where to write it.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Where a result goes.
#[derive(Debug, Clone, Default, Args)]
pub struct OutputArgs {
    /// File to write (default: standard output, as is -)
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// Replace OUT if it exists
    #[arg(long, requires = "output")]
    pub force: bool,
}
