//! Reads what `hist --json` or `report --json` wrote: `meta`, then intervals, each ended by `loss` (docs/json.md).
//!
//! An interval counts when its `loss` was read. What comes after the last one, and a last line that is cut off, is left
//! out and said. Records that are not known are skipped and counted.

use super::Side;
use crate::format::plural;
use crate::model::snapshot::{AioDrain, Histogram, Interval, Loss, Meta, RefOwner, Snapshot, UioDevice};
use serde::Deserialize;
use std::io::{BufRead, Read};
use std::sync::Arc;
use thiserror::Error;

/// Longest line, bytes: a drain of 512 contexts has about 200 kB.
pub const MAX_LINE: u64 = 64 << 20;

/// Why a dump cannot be read.
#[derive(Debug, Error)]
pub enum DumpError {
    /// Reading failed.
    #[error("reading failed: {0}")]
    Io(#[from] std::io::Error),
    /// Something else.
    #[error(
        "it is neither a recording nor a dump: uio-trace record makes recordings, uio-trace hist --json dumps"
    )]
    NotADump,
    /// Nothing in it.
    #[error("it is empty: uio-trace record makes recordings, uio-trace hist --json dumps")]
    Empty,
    /// Of a later version.
    #[error("its records are of version {0}, this uio-trace reads up to {max}: use a newer uio-trace", max = crate::report::json::SCHEMA_VERSION)]
    TooNew(u32),
    /// A line that is no record.
    #[error("line {line} is not a record ({why}): the dump is damaged; make it anew")]
    Line {
        /// From 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// No whole interval.
    #[error("it has no whole interval: the dump was ended before its first results")]
    NoInterval,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Record {
    Meta(Box<Meta>),
    Interval(IntervalRecord),
    UioDevice(Box<UioDevice>),
    RefOwner(Box<RefOwner>),
    AioDrain(Box<AioDrain>),
    Loss(Box<Loss>),
    InProgress(serde::de::IgnoredAny),
    Finding(serde::de::IgnoredAny),
    SlowOp(serde::de::IgnoredAny),
    ProbeCost(serde::de::IgnoredAny),
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct IntervalRecord {
    #[serde(flatten)]
    interval: Interval,
    uio_present: Option<bool>,
    aio_drains_omitted: u64,
}

/// Reads a dump to its end.
///
/// # Errors
/// [`DumpError`].
pub fn read(mut input: impl BufRead) -> Result<Side, DumpError> {
    let mut side = Side::default();
    let mut running: Option<Snapshot> = None;
    let (mut number, mut unknown, mut intervals) = (0u64, 0u64, 0u64);
    let mut cut = false;
    let mut line = Vec::new();
    loop {
        line.clear();
        let bytes = input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
        if bytes == 0 {
            break;
        }
        number += 1;
        let whole = line.last() == Some(&b'\n');
        if !whole && bytes as u64 == MAX_LINE {
            return Err(not_a_record(&side, number, "longer than 64 MiB"));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let record = match serde_json::from_slice::<Record>(&line) {
            Ok(record) => record,
            Err(_) if !whole && side.meta.is_some() => {
                cut = true;
                break;
            }
            Err(error) => return Err(not_a_record(&side, number, &reason(&error))),
        };
        if side.meta.is_none() && !matches!(record, Record::Meta(_)) {
            return Err(DumpError::NotADump);
        }
        match record {
            Record::Meta(meta) if meta.schema_version > crate::report::json::SCHEMA_VERSION => {
                return Err(DumpError::TooNew(meta.schema_version));
            }
            Record::Meta(meta) => {
                side.meta.get_or_insert(*meta);
            }
            Record::Interval(record) => running = Some(begin(record)),
            Record::Loss(loss) => {
                if let Some(mut snapshot) = running.take() {
                    snapshot.loss = *loss;
                    side.add(&snapshot);
                    intervals += 1;
                }
            }
            Record::Unknown => unknown += 1,
            row => {
                if let Some(snapshot) = &mut running {
                    match row {
                        Record::UioDevice(device) => snapshot.uio_devices.push(*device),
                        Record::RefOwner(owner) => snapshot.ref_owners.push(*owner),
                        Record::AioDrain(drain) => snapshot.aio_drains.push(*drain),
                        _ => {}
                    }
                }
            }
        }
    }
    if side.meta.is_none() {
        return Err(DumpError::Empty);
    }
    if intervals == 0 {
        return Err(DumpError::NoInterval);
    }
    if cut || running.is_some() {
        side.remarks
            .push("the dump is cut off: its last interval is not whole and is left out".into());
    }
    if unknown > 0 {
        side.remarks.push(format!(
            "{} of a later version skipped",
            plural(unknown, "record")
        ));
    }
    Ok(side)
}

fn begin(record: IntervalRecord) -> Snapshot {
    Snapshot {
        interval: record.interval,
        uio_present: record.uio_present,
        uio_devices: Vec::new(),
        ref_owners: Vec::new(),
        grace_period_ns: Histogram::default(),
        aio_drains: Vec::new(),
        aio_drains_omitted: record.aio_drains_omitted,
        in_progress: Vec::new(),
        findings: Vec::new(),
        slow_ops: Vec::new(),
        loss: Loss::default(),
        probes: Vec::new(),
        history: Arc::default(),
    }
}

/// The first line decides whether it is a dump at all.
fn not_a_record(side: &Side, line: u64, why: &str) -> DumpError {
    if side.meta.is_none() {
        return DumpError::NotADump;
    }
    DumpError::Line {
        line,
        why: why.to_owned(),
    }
}

/// serde's reason without its own line number, which is always 1, and without what the file says: that goes to terminals.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    crate::format::fit(&crate::format::printable(text.to_owned()), 120)
}
