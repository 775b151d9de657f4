//! Writing, frame by frame: a frame is one write, so that what was written stays readable whatever comes.

use super::{
    Mark, RecordingError,
    frame::{self, HEADER_BYTES, Header},
};
use crate::{event::Event, model::snapshot::Meta};
use serde::Serialize;
use std::io::Write;

/// A frame is closed when its lines reach this, unpacked: small enough to lose, large enough to pack well.
const FRAME_BYTES: usize = 256 << 10;
/// zstd's own default: more costs time on the traced host and gains little on lines of JSON.
const LEVEL: i32 = 3;

/// Writes a recording. What is not flushed is lost when it is dropped.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    lines: Vec<u8>,
    records: u32,
    first_ns: u64,
    last_ns: u64,
    number: u32,
    written: u64,
    events: u64,
}

fn failed(cause: std::io::Error) -> RecordingError {
    RecordingError::Io {
        what: "writing the recording",
        cause,
    }
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, RecordingError> {
    serde_json::to_vec(value).map_err(|error| failed(error.into()))
}

impl<W: Write> Writer<W> {
    /// Begins a recording.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(out: W, meta: &Meta) -> Result<Writer<W>, RecordingError> {
        let mut writer = Writer {
            out,
            lines: Vec::new(),
            records: 0,
            first_ns: meta.started_ns,
            last_ns: meta.started_ns,
            number: 0,
            written: 0,
            events: 0,
        };
        writer.out.write_all(&frame::file_header()).map_err(failed)?;
        writer.written = frame::FILE_HEADER_BYTES as u64;
        writer.frame(
            frame::KIND_META,
            1,
            (meta.started_ns, meta.started_ns),
            &json(meta)?,
        )?;
        Ok(writer)
    }

    /// Adds an event. It is in the file after [`Writer::flush`] at the latest.
    ///
    /// # Errors
    /// When the frame before it cannot be written, or the event alone is too large for a frame.
    pub fn event(&mut self, event: &Event) -> Result<(), RecordingError> {
        let begin = self.lines.len();
        serde_json::to_writer(&mut self.lines, event).map_err(|error| failed(error.into()))?;
        self.lines.push(b'\n');
        let bytes = self.lines.len() - begin;
        if bytes > frame::PAYLOAD_MAX {
            self.lines.truncate(begin);
            return Err(RecordingError::TooLarge { bytes });
        }
        if self.lines.len() > frame::PAYLOAD_MAX {
            // The large one becomes a frame of its own.
            let line = self.lines.split_off(begin);
            self.flush()?;
            self.lines = line;
        }
        if self.records == 0 {
            (self.first_ns, self.last_ns) = (event.ts_ns, event.ts_ns);
        }
        self.first_ns = self.first_ns.min(event.ts_ns);
        self.last_ns = self.last_ns.max(event.ts_ns);
        self.records += 1;
        self.events += 1;
        if self.lines.len() >= FRAME_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Notes that a trigger has found something.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn mark(&mut self, mark: &Mark) -> Result<(), RecordingError> {
        self.flush()?;
        self.frame(frame::KIND_MARK, 1, (mark.ts_ns, mark.ts_ns), &json(mark)?)
    }

    /// Hands the events so far to the kernel, as one frame.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn flush(&mut self) -> Result<(), RecordingError> {
        if self.records == 0 {
            return Ok(());
        }
        let lines = std::mem::take(&mut self.lines);
        let records = std::mem::take(&mut self.records);
        self.frame(frame::KIND_EVENTS, records, (self.first_ns, self.last_ns), &lines)?;
        self.lines = lines;
        self.lines.clear();
        Ok(())
    }

    /// Ends the recording well and gives back what it was written to.
    ///
    /// # Errors
    /// When the end cannot be written.
    pub fn end(mut self) -> Result<W, RecordingError> {
        self.flush()?;
        let end = serde_json::json!({ "events": self.events });
        self.frame(frame::KIND_END, 0, (self.last_ns, self.last_ns), &json(&end)?)?;
        self.out.flush().map_err(failed)?;
        Ok(self.out)
    }

    /// Bytes written in whole frames.
    pub fn bytes(&self) -> u64 {
        self.written
    }

    /// Events taken.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// What it is written to.
    pub fn output(&self) -> &W {
        &self.out
    }

    fn frame(
        &mut self,
        kind: u16,
        records: u32,
        (first_ns, last_ns): (u64, u64),
        payload: &[u8],
    ) -> Result<(), RecordingError> {
        let packed = zstd::bulk::compress(payload, LEVEL).map_err(failed)?;
        // Bytes that do not pack stay as they are.
        let (flags, stored) = if packed.len() < payload.len() {
            (frame::FLAG_ZSTD, packed.as_slice())
        } else {
            (0, payload)
        };
        let header = Header {
            kind,
            flags,
            stored: stored.len() as u32,
            unpacked: payload.len() as u32,
            records,
            payload_sum: crc32fast::hash(stored),
            first_ns,
            last_ns,
            number: self.number,
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + stored.len());
        bytes.extend_from_slice(&header.to_bytes());
        bytes.extend_from_slice(stored);
        self.out.write_all(&bytes).map_err(failed)?;
        self.number += 1;
        self.written += bytes.len() as u64;
        Ok(())
    }
}
