//! Validated values from the command line.

use crate::{
    app::output::Target,
    cli::{DiffArgs, HistArgs, OutputArgs, ReportArgs, TraceArgs},
    error::AppError,
};
use std::path::PathBuf;
use std::time::Duration;

/// What to trace.
#[derive(Debug, Clone, Default)]
pub struct TraceConfig {
    /// Only this process.
    pub pid: Option<u32>,
    /// Only processes of this name.
    pub comm: Option<String>,
    /// Only this device: `uioN` or a name.
    pub device: Option<String>,
    /// Only owners that contain this.
    pub owner: Option<String>,
    /// Slow threshold.
    pub slow: Duration,
    /// Also the tool's own refs.
    pub all: bool,
    /// BPF messages.
    pub bpf_log: bool,
    /// Ring size in bytes.
    pub ring_bytes: Option<u32>,
}

/// `hist`.
#[derive(Debug, Clone)]
pub struct HistConfig {
    /// Print each; `None`: once.
    pub interval: Option<Duration>,
    /// Number of intervals.
    pub count: Option<u64>,
    /// End.
    pub duration: Option<Duration>,
    /// NDJSON.
    pub json: bool,
    /// CSV of the UIO operations.
    pub csv: bool,
    /// What to trace.
    pub trace: TraceConfig,
}

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

/// Shortest interval: reading the maps and printing must stay a small part of it.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// Longest: 32-bit bucket counts are read in between anyway, this only keeps clock arithmetic in range.
const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3600);

/// A length of time: plain seconds (`1`, `0.5`) or with a unit (`500ms`, `2m`).
fn duration(what: &str, text: &str) -> Result<Duration, AppError> {
    let bad = || {
        AppError::Usage(format!(
            "{what} '{text}' is not a length of time: give seconds (1, 0.5) or 500ms, 2s, 5m"
        ))
    };
    let parsed = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| bad())?,
        Err(_) => humantime::parse_duration(text).map_err(|_| bad())?,
    };
    if parsed > MAX_DURATION {
        return Err(AppError::Usage(format!(
            "{what} '{text}' is longer than a year: give less"
        )));
    }
    Ok(parsed)
}

impl TraceConfig {
    /// # Errors
    /// [`AppError::Usage`] for values that mean nothing.
    pub fn new(args: &TraceArgs) -> Result<TraceConfig, AppError> {
        let ring_bytes = match args.ring_kib {
            None => None,
            Some(kib) if kib.is_power_of_two() && (4..=1 << 20).contains(&kib) => Some(kib * 1024),
            Some(kib) => {
                return Err(AppError::Usage(format!(
                    "--ring-kib {kib}: give a power of two from 4 to 1048576 (the kernel takes no other ring sizes)"
                )));
            }
        };
        Ok(TraceConfig {
            pid: args.pid,
            comm: args.comm.clone(),
            device: args.device.clone(),
            owner: args.owner.clone(),
            slow: duration("--slow", &args.slow)?,
            all: args.all,
            bpf_log: args.bpf_log,
            ring_bytes,
        })
    }
}

impl HistConfig {
    /// # Errors
    /// [`AppError::Usage`] for values that mean nothing.
    pub fn new(args: &HistArgs) -> Result<HistConfig, AppError> {
        let interval = args
            .interval
            .as_deref()
            .map(|text| duration("INTERVAL", text))
            .transpose()?;
        if interval.is_some_and(|interval| interval < MIN_INTERVAL) {
            return Err(AppError::Usage(
                "INTERVAL is shorter than 10ms, reading would disturb what is read: give 10ms or more".into(),
            ));
        }
        let length = args
            .duration
            .as_deref()
            .map(|text| duration("--duration", text))
            .transpose()?;
        if length.is_some_and(|length| length.is_zero()) {
            return Err(AppError::Usage(
                "--duration 0 would show nothing: give seconds (1, 0.5) or 500ms, 2s, 5m".into(),
            ));
        }
        Ok(HistConfig {
            interval,
            count: args.count,
            duration: length,
            json: args.json,
            csv: args.csv,
            trace: TraceConfig::new(&args.trace)?,
        })
    }
}

fn target(args: &OutputArgs) -> Target {
    Target {
        path: args.output.clone(),
        force: args.force,
    }
}

impl ReportConfig {
    /// # Errors
    /// [`AppError::Usage`] for values that mean nothing.
    pub fn new(args: &ReportArgs) -> Result<ReportConfig, AppError> {
        let trace = TraceConfig::new(&args.trace)?;
        let source = match (&args.file, &args.live) {
            (Some(file), _) => {
                let TraceArgs {
                    slow,
                    bpf_log,
                    ring_kib,
                    ..
                } = &args.trace;
                if *bpf_log || ring_kib.is_some() || *slow != TraceArgs::SLOW {
                    return Err(AppError::Usage(
                        "--slow, --bpf-log and --ring-kib are for tracing: a recording is as it was recorded"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_units() {
        assert_eq!(duration("x", "1").unwrap(), Duration::from_secs(1));
        assert_eq!(duration("x", "0.5").unwrap(), Duration::from_millis(500));
        assert_eq!(duration("x", "500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(duration("x", "2m").unwrap(), Duration::from_secs(120));
        for bad in ["", "x", "-1", "nan", "inf", "1e300", "1 fortnight", "9999y"] {
            let message = duration("INTERVAL", bad).unwrap_err().to_string();
            assert!(message.contains("INTERVAL"), "{bad}: {message}");
        }
    }
}
