//! Validated values from the command line.

mod report;

pub use report::{DiffConfig, ReportConfig, ReportForm, ReportSource};

use crate::{
    cli::{ExecArgs, HistArgs, RecordArgs, TraceArgs},
    error::AppError,
    recording::trigger::{Figure, Trigger},
};
use std::{path::PathBuf, time::Duration};

/// What to trace.
#[derive(Debug, Clone, Default)]
pub struct TraceConfig {
    /// Only this process.
    pub pid: Option<u32>,
    /// Only processes of this name.
    pub comm: Option<String>,
    /// Only processes in this cgroup and below.
    pub cgroup: Option<String>,
    /// Only this device: `uioN` or a name.
    pub device: Option<String>,
    /// Only owners that contain this.
    pub owner: Option<String>,
    /// Slow threshold.
    pub slow: Duration,
    /// Also the tool's own refs.
    pub all: bool,
    /// fentry and fexit on the uio module.
    pub hold_uio: bool,
    /// What programs cost is counted.
    pub cost: bool,
    /// BPF messages.
    pub bpf_log: bool,
    /// Ring size in bytes.
    pub ring_bytes: Option<u32>,
    /// The terminal belongs to the screens: nothing is said on standard error meanwhile.
    pub screens: bool,
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

/// Whether a name stands for standard input or output.
pub fn is_stream(path: &std::path::Path) -> bool {
    path == std::path::Path::new("-")
}

/// `--device`: `/dev/uio0` is uio0. A driver's own name may have slashes, too.
fn device(text: &str) -> String {
    let node = text.strip_prefix("/dev/").filter(|node| {
        node.strip_prefix("uio")
            .is_some_and(|minor| !minor.is_empty() && minor.bytes().all(|digit| digit.is_ascii_digit()))
    });
    node.unwrap_or(text).to_owned()
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

/// `--duration`, which must leave time to do something.
fn run_length(text: Option<&str>, purpose: &str) -> Result<Option<Duration>, AppError> {
    let length = text.map(|text| duration("--duration", text)).transpose()?;
    if length.is_some_and(|length| length.is_zero()) {
        return Err(AppError::Usage(format!(
            "--duration 0 would {purpose} nothing: give seconds (1, 0.5) or 500ms, 2s, 5m"
        )));
    }
    Ok(length)
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
        let names = [
            ("--comm", &args.comm),
            ("--cgroup", &args.cgroup),
            ("--device", &args.device),
            ("--owner", &args.owner),
        ];
        if let Some((option, _)) = names
            .iter()
            .find(|(_, value)| value.as_ref().is_some_and(String::is_empty))
        {
            return Err(AppError::Usage(format!(
                "{option} '' names nothing: give a name, or leave the option out"
            )));
        }
        Ok(TraceConfig {
            pid: args.pid,
            comm: args.comm.clone(),
            cgroup: args.cgroup.clone(),
            device: args.device.as_deref().map(device),
            owner: args.owner.clone(),
            slow: duration("--slow", &args.slow)?,
            all: args.all,
            hold_uio: args.hold_uio,
            cost: args.cost,
            bpf_log: args.bpf_log,
            ring_bytes,
            screens: false,
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
        let length = run_length(args.duration.as_deref(), "show")?;
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

/// `exec`.
#[derive(Debug, Clone, Default)]
pub struct ExecConfig {
    /// Where the report goes: a file, or `-` for standard output; `None`: standard error.
    pub output: Option<PathBuf>,
    /// Also over a file that is there.
    pub force: bool,
    /// NDJSON.
    pub json: bool,
    /// CMD and its arguments.
    pub command: Vec<std::ffi::OsString>,
    /// What to trace.
    pub trace: TraceConfig,
}

impl ExecConfig {
    /// Whether the report goes to standard output, after all that CMD has written there.
    pub fn to_standard_output(&self) -> bool {
        self.output.as_deref().is_some_and(is_stream)
    }

    /// # Errors
    /// [`AppError::Usage`] for values that mean nothing.
    pub fn new(args: &ExecArgs) -> Result<ExecConfig, AppError> {
        if args.trace.pid.is_some() {
            return Err(AppError::Usage(
                "exec traces CMD and what it starts: leave --pid out, or use hist --pid".into(),
            ));
        }
        Ok(ExecConfig {
            output: args.output.clone(),
            force: args.force,
            json: args.json,
            command: args.command.clone(),
            trace: TraceConfig::new(&args.trace)?,
        })
    }
}

/// `record`.
#[derive(Debug, Clone, Default)]
pub struct RecordConfig {
    /// Where to.
    pub file: PathBuf,
    /// Also over a file that is there.
    pub force: bool,
    /// End.
    pub duration: Option<Duration>,
    /// Bytes on disk at most.
    pub max_bytes: Option<u64>,
    /// Time kept before and after a trigger; `None`: all is recorded.
    pub ring: Option<Duration>,
    /// What to wait for; empty: all is recorded.
    pub triggers: Vec<Trigger>,
    /// What to trace.
    pub trace: TraceConfig,
}

/// Time kept before and after a trigger when none is given.
const RING_SECONDS: u32 = 30;
/// Longest: events are kept in memory.
const MAX_RING_SECONDS: u32 = 3600;
/// Smallest `--max-size`: what each file must tell first has to fit with room to spare.
const MIN_SIZE: u64 = 1 << 20;

/// A number of bytes: `500M`, powers of 1024.
fn size(what: &str, text: &str) -> Result<u64, AppError> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit
        .to_ascii_lowercase()
        .trim_end_matches("ib")
        .trim_end_matches('b')
    {
        "" => Some(0),
        "k" => Some(10),
        "m" => Some(20),
        "g" => Some(30),
        "t" => Some(40),
        _ => None,
    };
    let bytes = number.parse::<u64>().ok().zip(shift);
    match bytes.and_then(|(number, shift)| number.checked_mul(1 << shift)) {
        Some(bytes) if bytes >= MIN_SIZE => Ok(bytes),
        Some(_) => Err(AppError::Usage(format!(
            "{what} '{text}' is too small to be of use: give 1M or more"
        ))),
        None => Err(AppError::Usage(format!(
            "{what} '{text}' is not a size: give bytes, or 500M, 2G"
        ))),
    }
}

impl RecordConfig {
    /// # Errors
    /// [`AppError::Usage`] for values that mean nothing.
    pub fn new(args: &RecordArgs) -> Result<RecordConfig, AppError> {
        if is_stream(&args.output) {
            return Err(AppError::Usage(
                "-o -: record writes to files, not to standard output: name one (./- for one of this name)"
                    .into(),
            ));
        }
        let length = run_length(args.duration.as_deref(), "record")?;
        let triggers = args
            .trigger
            .iter()
            .map(|text| Trigger::parse(text).map_err(|error| AppError::Usage(error.to_string())))
            .collect::<Result<Vec<_>, _>>()?;
        let seconds = args.ring_seconds.unwrap_or(RING_SECONDS);
        if !(1..=MAX_RING_SECONDS).contains(&seconds) {
            return Err(AppError::Usage(format!(
                "--ring-seconds {seconds}: give 1 to {MAX_RING_SECONDS} (they are kept in memory)"
            )));
        }
        let mut trace = TraceConfig::new(&args.trace)?;
        // Only operations at least as long as the slow threshold are seen one by one, and a wait is a part of one.
        let waits = triggers
            .iter()
            .filter(|trigger| trigger.figure == Figure::UioWait);
        trace.slow = waits
            .map(|trigger| trigger.threshold)
            .fold(trace.slow, Duration::min);
        Ok(RecordConfig {
            file: args.output.clone(),
            force: args.force,
            duration: length,
            max_bytes: args
                .max_size
                .as_deref()
                .map(|text| size("--max-size", text))
                .transpose()?,
            ring: (!triggers.is_empty()).then(|| Duration::from_secs(u64::from(seconds))),
            triggers,
            trace,
        })
    }

    /// Whether older files make room for newer ones.
    pub fn rotates(&self) -> bool {
        self.max_bytes.is_some() && self.ring.is_none()
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

    #[test]
    fn names_that_name_nothing_are_refused_and_nodes_are_devices() {
        type Set = fn(&mut TraceArgs, String);
        let with = |set: Set, text: &str| {
            let mut args = TraceArgs {
                slow: TraceArgs::SLOW.into(),
                ..TraceArgs::default()
            };
            set(&mut args, text.into());
            TraceConfig::new(&args)
        };
        let options: [(&str, Set); 4] = [
            ("--comm", |args, text| args.comm = Some(text)),
            ("--cgroup", |args, text| args.cgroup = Some(text)),
            ("--device", |args, text| args.device = Some(text)),
            ("--owner", |args, text| args.owner = Some(text)),
        ];
        for (option, set) in options {
            let error = with(set, "").unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().starts_with(option), "{error}");
            assert!(with(set, "x").is_ok());
        }
        for (given, meant) in [
            ("/dev/uio0", "uio0"),
            ("uio12", "uio12"),
            ("/dev/uio", "/dev/uio"),
            ("/dev/uio0x", "/dev/uio0x"),
            ("tcm-user/0/disk", "tcm-user/0/disk"),
        ] {
            assert_eq!(device(given), meant);
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("1M", 1 << 20),
            ("1048576", 1 << 20),
            ("2GiB", 2 << 30),
            ("500mb", 500 << 20),
        ] {
            assert_eq!(size("x", text).unwrap(), bytes, "{text}");
        }
        for bad in [
            "",
            "M",
            "1X",
            "-1M",
            "1.5G",
            "99999999999999999999",
            "99999999T",
            "1023K",
            "0",
        ] {
            let message = size("--max-size", bad).unwrap_err().to_string();
            assert!(message.contains("--max-size"), "{bad}: {message}");
        }
    }
}
