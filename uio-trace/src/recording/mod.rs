//! A trace in a file: what [`crate::model::Model`] was fed, so that it can be fed the same again, elsewhere and later.
//!
//! [`Writer`] packs records into frames ([`frame`]), [`read`] gives them back one by one, whatever happened to the file.
//! A file is whole by itself: its first record is [`Record::Meta`], and events follow that make a model of nothing.
//! Here is neither aya nor tokio: a recording is read on any machine. The layout is in docs/recording.md.

pub mod frame;
mod known;
mod read;
mod ring;
pub mod trigger;
mod write;

pub use known::Known;
pub use read::{Extent, Place, Reader, extent, read};
pub use ring::Ring;
pub use write::Writer;

use crate::{
    event::{Event, EventKind, MonotonicNs},
    model::snapshot::Meta,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use thiserror::Error;

/// What a reader meets, in the order of the file.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// Host, kernel, probes, RCU settings. The first record, and once in a file, unless its frame is damaged.
    Meta(Box<Meta>),
    /// For the model.
    Event(Event),
    /// Why the recording was kept: a trigger.
    Mark(Mark),
    /// Records that cannot be had any more. Events may be missing here: what was open may have ended.
    Gap(Gap),
    /// Records of a later version, skipped.
    Unknown {
        /// How many.
        records: u64,
    },
    /// Ended well: nothing is missing behind this.
    End,
}

/// A moment that a trigger has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// When it was found, CLOCK_MONOTONIC.
    pub ts_ns: MonotonicNs,
    /// The trigger's expression.
    pub trigger: String,
    /// What it found, in words; printable.
    pub found: String,
}

/// A piece of the file that is not readable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its length, bytes.
    pub bytes: u64,
    /// Records in it; `None`: not known.
    pub records: Option<u64>,
    /// Why.
    pub reason: GapReason,
}

/// Why a piece of the file is not readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapReason {
    /// Bytes are not what was written.
    Damaged,
    /// The file ends in the middle of a frame.
    CutOff,
    /// The file ends after a whole frame, but the recording was not ended: its writer was killed, had no room, or still
    /// writes. No byte is missing, but later events may be.
    NotEnded,
}

impl Gap {
    /// Events that are missing, at least.
    pub fn missing(&self) -> u64 {
        match self.records {
            Some(records) => records,
            None => u64::from(self.reason != GapReason::NotEnded && self.bytes > 0).max(
                // A frame cut out leaves no byte behind.
                u64::from(self.reason == GapReason::Damaged),
            ),
        }
    }
}

/// Tells a model how many events are missing from gaps so far: it marks what may have ended there, and counts them as lost.
pub fn missing(total: u64, ts_ns: MonotonicNs) -> Event {
    Event {
        ts_ns,
        kind: EventKind::Counters(BTreeMap::from([("recording_gap".to_owned(), total)])),
    }
}

/// Why a recording cannot be read or written.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// The file cannot be opened.
    #[error("{}: {cause}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// Reading or writing failed.
    #[error("{what} failed: {cause}")]
    Io {
        /// What was done.
        what: &'static str,
        /// Why it failed.
        cause: std::io::Error,
    },
    /// The file is empty.
    #[error("it is empty: uio-trace record makes recordings")]
    Empty,
    /// Something else.
    #[error("it is not a recording of uio-trace: uio-trace record makes them")]
    NotARecording,
    /// Made by a later program whose files this one cannot read.
    #[error(
        "it is a recording of version {major}.{minor}, this uio-trace reads up to {}.x: use a newer uio-trace",
        frame::MAJOR
    )]
    TooNew {
        /// Its major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
    /// A record is larger than a frame may be.
    #[error("a record of {bytes} bytes does not fit into a frame")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}
