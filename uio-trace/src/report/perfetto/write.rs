//! Packets of a trace: tracks, slices and counter values, with the field numbers of the published schema.

use super::lanes::lanes;
use super::proto::Message;
use crate::format::parse_rfc3339;
use crate::report::story::Story;
use std::io::{self, Write};

/// Field numbers of `Trace` and `TracePacket`.
mod packet {
    pub const PACKET: u32 = 1;
    pub const CLOCK_SNAPSHOT: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE_ID: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const CLOCK_ID: u32 = 58;
    pub const TRACK_DESCRIPTOR: u32 = 60;
}

/// Of `ClockSnapshot` and its `Clock`; the clocks of `BuiltinClock`.
mod clock {
    pub const CLOCKS: u32 = 1;
    pub const PRIMARY: u32 = 2;
    pub const ID: u32 = 1;
    pub const TIMESTAMP: u32 = 2;
    pub const REALTIME: u64 = 1;
    pub const MONOTONIC: u64 = 3;
}

/// Of `TrackDescriptor`, `ProcessDescriptor`, `CounterDescriptor`.
mod track {
    pub const UUID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const PROCESS: u32 = 3;
    pub const PARENT: u32 = 5;
    pub const COUNTER: u32 = 8;
    pub const PROCESS_PID: u32 = 1;
    pub const PROCESS_NAME: u32 = 6;
    pub const COUNTER_UNIT_NAME: u32 = 6;
}

/// Of `TrackEvent` and `DebugAnnotation`.
mod event {
    pub const ANNOTATION: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const TRACK: u32 = 11;
    pub const CATEGORY: u32 = 22;
    pub const NAME: u32 = 23;
    pub const COUNTER: u32 = 44;
    pub const BEGIN: u64 = 1;
    pub const END: u64 = 2;
    pub const VALUE: u64 = 4;
    pub const ANNOTATION_NAME: u32 = 10;
    pub const ANNOTATION_UINT: u32 = 3;
    pub const ANNOTATION_TEXT: u32 = 6;
}

/// A slice with what lies within it.
pub(super) struct Slice {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) category: &'static str,
    pub(super) name: String,
    pub(super) notes: Vec<(&'static str, Note)>,
    pub(super) within: Vec<Slice>,
}

pub(super) enum Note {
    Number(u64),
    Text(String),
}

/// A time as trace_processor reads it: signed. What is beyond, of a damaged recording, would be before all else there.
fn moment(ns: u64) -> u64 {
    ns.min(i64::MAX.unsigned_abs())
}

/// Writes packets.
pub(super) struct Writer<'a, W> {
    out: &'a mut W,
    last_uuid: u64,
}

impl<'a, W: Write> Writer<'a, W> {
    pub(super) fn new(out: &'a mut W) -> Writer<'a, W> {
        Writer { out, last_uuid: 0 }
    }

    fn packet(&mut self, message: Message) -> io::Result<()> {
        let message = message.uint(packet::SEQUENCE_ID, 1);
        let trace = Message::new().message(packet::PACKET, &message);
        self.out.write_all(trace.encoded())
    }

    /// First of all: times are of CLOCK_MONOTONIC, and what wall clock time that is.
    pub(super) fn clocks(&mut self, story: &Story) -> io::Result<()> {
        let one = |id, ns| {
            Message::new()
                .uint(clock::ID, id)
                .uint(clock::TIMESTAMP, moment(ns))
        };
        let mut clocks = Message::new().message(clock::CLOCKS, &one(clock::MONOTONIC, story.meta.started_ns));
        if let Some(unix_ns) = parse_rfc3339(&story.meta.started) {
            clocks = clocks.message(clock::CLOCKS, &one(clock::REALTIME, unix_ns));
        }
        let clocks = clocks.uint(clock::PRIMARY, clock::MONOTONIC);
        // 1: SEQ_INCREMENTAL_STATE_CLEARED, nothing before belongs to this sequence.
        self.packet(
            Message::new()
                .message(packet::CLOCK_SNAPSHOT, &clocks)
                .uint(packet::SEQUENCE_FLAGS, 1),
        )
    }

    pub(super) fn track(
        &mut self,
        parent: Option<u64>,
        name: &str,
        special: Option<(u32, Message)>,
    ) -> io::Result<u64> {
        self.last_uuid += 1;
        let mut descriptor = Message::new()
            .uint(track::UUID, self.last_uuid)
            .text(track::NAME, name);
        if let Some(parent) = parent {
            descriptor = descriptor.uint(track::PARENT, parent);
        }
        if let Some((field, special)) = special {
            descriptor = descriptor.message(field, &special);
        }
        self.packet(Message::new().message(packet::TRACK_DESCRIPTOR, &descriptor))?;
        Ok(self.last_uuid)
    }

    pub(super) fn process(&mut self, pid: u32, name: &str) -> io::Result<u64> {
        let process = Message::new()
            .uint(track::PROCESS_PID, u64::from(pid))
            .text(track::PROCESS_NAME, name);
        self.track(None, name, Some((track::PROCESS, process)))
    }

    pub(super) fn counter(&mut self, parent: Option<u64>, name: &str, unit: &str) -> io::Result<u64> {
        let counter = Message::new().text(track::COUNTER_UNIT_NAME, unit);
        self.track(parent, name, Some((track::COUNTER, counter)))
    }

    fn event(&mut self, at_ns: u64, event: &Message) -> io::Result<()> {
        self.packet(
            Message::new()
                .uint(packet::TIMESTAMP, moment(at_ns))
                .uint(packet::CLOCK_ID, clock::MONOTONIC)
                .message(packet::TRACK_EVENT, event),
        )
    }

    pub(super) fn value(&mut self, track: u64, at_ns: u64, value: f64) -> io::Result<()> {
        let event = Message::new()
            .uint(event::TYPE, event::VALUE)
            .uint(event::TRACK, track)
            .double(event::COUNTER, value);
        self.event(at_ns, &event)
    }

    fn slice(&mut self, track: u64, slice: &Slice) -> io::Result<()> {
        let mut begin = Message::new()
            .uint(event::TYPE, event::BEGIN)
            .uint(event::TRACK, track)
            .text(event::CATEGORY, slice.category)
            .text(event::NAME, &slice.name);
        for (name, note) in &slice.notes {
            let annotation = Message::new().text(event::ANNOTATION_NAME, name);
            let annotation = match note {
                Note::Number(n) => annotation.uint(event::ANNOTATION_UINT, *n),
                Note::Text(text) => annotation.text(event::ANNOTATION_TEXT, text),
            };
            begin = begin.message(event::ANNOTATION, &annotation);
        }
        self.event(slice.from_ns, &begin)?;
        for within in &slice.within {
            self.slice(track, within)?;
        }
        let end = Message::new()
            .uint(event::TYPE, event::END)
            .uint(event::TRACK, track);
        self.event(slice.to_ns, &end)
    }

    /// Slices that may overlap, on as many tracks of one name below `parent` as they need.
    pub(super) fn slices(&mut self, parent: u64, name: &str, mut slices: Vec<Slice>) -> io::Result<()> {
        slices.sort_by_key(|s| (s.from_ns, s.to_ns));
        let times: Vec<(u64, u64)> = slices.iter().map(|s| (s.from_ns, s.to_ns)).collect();
        for lane in lanes(&times) {
            let track = self.track(Some(parent), name, None)?;
            for slice in lane.into_iter().filter_map(|index| slices.get(index)) {
                self.slice(track, slice)?;
            }
        }
        Ok(())
    }
}
