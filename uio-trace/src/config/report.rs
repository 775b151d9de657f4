//! Validated values of `report` and `diff`.

use super::{TraceConfig, duration, is_stream};
use crate::{
    app::output::Target,
    cli::{DiffArgs, OutputArgs, ReportArgs, TraceArgs},
    error::AppError,
};
use std::path::PathBuf;
use std::time::Duration;

/// What a report is made from.
#[derive(Debug, Clone)]
pub enum ReportSource {
    /// A recording.
    File(PathBuf),
    /// A trace of this length.
    Live(Duration),
}

/// Form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportForm {
    /// For a ticket.
    Text,
    /// NDJSON.
    Json,
    /// One file with plots.
    Html,
    /// Protobuf trace.
    Perfetto,
    /// Stacks for flame graphs.
    Folded,
}

/// `report`.
#[derive(Debug, Clone)]
pub struct ReportConfig {
    /// From what.
    pub source: ReportSource,
    /// Form.
    pub form: ReportForm,
    /// Where to.
    pub target: Target,
    /// What to trace, or to take from the recording.
    pub trace: TraceConfig,
}

/// `diff`.
#[derive(Debug, Clone)]
pub struct DiffConfig {
    /// Before.
    pub before: PathBuf,
    /// After.
    pub after: PathBuf,
    /// NDJSON.
    pub json: bool,
    /// Every row.
    pub all: bool,
    /// Where to.
    pub target: Target,
}

fn target(args: &OutputArgs) -> Target {
    Target {
        path: args.output.clone().filter(|path| !is_stream(path)),
        force: args.force,
    }
}

/// An option that says how to trace, where one is given.
fn for_tracing(args: &TraceArgs) -> Option<&'static str> {
    let given = [
        ("--slow", args.slow != TraceArgs::SLOW),
        ("--hold-uio", args.hold_uio),
        ("--cost", args.cost),
        ("--bpf-log", args.bpf_log),
        ("--ring-kib", args.ring_kib.is_some()),
    ];
    given.into_iter().find(|option| option.1).map(|option| option.0)
}

impl ReportConfig {
    /// # Errors
    /// [`AppError::Usage`] for values that mean nothing.
    pub fn new(args: &ReportArgs) -> Result<ReportConfig, AppError> {
        let trace = TraceConfig::new(&args.trace)?;
        let source = match (&args.file, &args.live) {
            (Some(file), _) => {
                if let Some(option) = for_tracing(&args.trace) {
                    return Err(AppError::Usage(format!(
                        "{option} has no effect on a recording, which is as it was recorded: leave it out, or give it to record"
                    )));
                }
                if args.trace.cgroup.is_some() {
                    return Err(AppError::Usage(
                        "--cgroup: a recording does not know the cgroups of its processes; give it to record"
                            .into(),
                    ));
                }
                ReportSource::File(file.clone())
            }
            (None, Some(live)) => {
                let length = duration("--live", live)?;
                if length.is_zero() {
                    return Err(AppError::Usage(
                        "--live 0 would show nothing: give seconds (1, 0.5) or 500ms, 2s, 5m".into(),
                    ));
                }
                ReportSource::Live(length)
            }
            (None, None) => {
                return Err(AppError::Usage(
                    "give a recording, or --live DURATION to trace now".into(),
                ));
            }
        };
        let form = match (args.json, args.html, args.perfetto, args.folded) {
            (true, ..) => ReportForm::Json,
            (_, true, ..) => ReportForm::Html,
            (_, _, true, _) => ReportForm::Perfetto,
            (.., true) => ReportForm::Folded,
            _ => ReportForm::Text,
        };
        Ok(ReportConfig {
            source,
            form,
            target: target(&args.output),
            trace,
        })
    }
}

impl DiffConfig {
    /// From the command line.
    pub fn new(args: &DiffArgs) -> DiffConfig {
        DiffConfig {
            before: args.before.clone(),
            after: args.after.clone(),
            json: args.json,
            all: args.all,
            target: target(&args.output),
        }
    }
}
