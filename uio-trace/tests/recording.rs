//! Recordings: what was written is read again, and what happened to the file costs no more than it must.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot make its recording has failed"
)]

#[path = "recorded/mod.rs"]
mod recorded;
#[path = "scenario/script.rs"]
#[allow(dead_code, reason = "another test's file")]
mod script;

use recorded::{events, meta, recording, scratch};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use uio_trace::event::{Event, EventKind};
use uio_trace::model::{Config, Model, Scope};
use uio_trace::recording::frame::{self, HEADER_BYTES, Header};
use uio_trace::recording::{GapReason, Mark, Reader, Record, RecordingError, Writer, read};
use uio_trace::report::json;

fn records(bytes: &[u8]) -> Vec<Record> {
    Reader::new(bytes).unwrap().map(Result::unwrap).collect()
}

fn events_of(records: &[Record]) -> Vec<Event> {
    let event = |record: &Record| match record {
        Record::Event(event) => Some(event.clone()),
        _ => None,
    };
    records.iter().filter_map(event).collect()
}

fn gaps(records: &[Record]) -> Vec<GapReason> {
    let reason = |record: &Record| match record {
        Record::Gap(gap) => Some(gap.reason),
        _ => None,
    };
    records.iter().filter_map(reason).collect()
}

/// Where each frame begins, with its header.
fn frames(bytes: &[u8]) -> Vec<(usize, Header)> {
    let mut found = Vec::new();
    let mut at = frame::FILE_HEADER_BYTES;
    while at < bytes.len() {
        let header = Header::parse(&bytes[at..]).unwrap();
        found.push((at, header));
        at += HEADER_BYTES + header.stored as usize;
    }
    assert_eq!(at, bytes.len());
    found
}

/// Numbers the kinds: whoever adds one is asked for its place here, and [`events`] for an example.
fn kind(event: &Event) -> usize {
    match event.kind {
        EventKind::RefKill { .. } => 0,
        EventKind::RefSwitched { .. } => 1,
        EventKind::RefReleased { .. } => 2,
        EventKind::RefLooked { .. } => 3,
        EventKind::ExitAioBegin { .. } => 4,
        EventKind::ExitAioEnd { .. } => 5,
        EventKind::IoDestroyBegin { .. } => 6,
        EventKind::IoDestroyEnd { .. } => 7,
        EventKind::AioKill { .. } => 8,
        EventKind::AioUsersReleased { .. } => 9,
        EventKind::AioReqsReleased { .. } => 10,
        EventKind::UioSlow(_) => 11,
        EventKind::UioRegistered { .. } => 12,
        EventKind::UioUnregistered { .. } => 13,
        EventKind::Symbol { .. } => 14,
        EventKind::UioReading(_) => 15,
        EventKind::UioBlockers(_) => 16,
        EventKind::UioDevices(_) => 17,
        EventKind::UioPresence(_) => 18,
        EventKind::UioLockKind(_) => 19,
        EventKind::Counters(_) => 20,
        EventKind::Probes(_) => 21,
        EventKind::Waiting(_) => 22,
        EventKind::Stacks(_) => 23,
        EventKind::Tick => 24,
        EventKind::UioOpen(_) => 25,
        EventKind::ThreadTimes(_) => 26,
        EventKind::AioLastRequest { .. } => 27,
        EventKind::UioRunning(_) => 28,
        EventKind::KillStack { .. } => 29,
        EventKind::ProbeCosts(_) => 30,
    }
}

const KINDS: usize = 31;

#[test]
fn every_kind_of_event_is_read_as_it_was_written() {
    let written = events();
    let kinds: BTreeSet<usize> = written.iter().map(kind).collect();
    assert_eq!(kinds, (0..KINDS).collect());
    let read = records(&recording(&written));
    assert_eq!(read[0], Record::Meta(Box::new(meta())));
    assert_eq!(events_of(&read), written);
    assert_eq!(read.last(), Some(&Record::End));
    assert_eq!(read.len(), written.len() + 2);
}

#[test]
fn a_replayed_model_shows_what_the_live_one_showed() {
    let show = |events: Vec<Event>| {
        let mut model = Model::new(Config {
            start_ns: Some(0),
            ..Config::default()
        });
        events.into_iter().for_each(|event| model.apply(event));
        json::render(&meta(), &model.snapshot(Scope::SinceStart)).unwrap()
    };
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios")).unwrap() {
        let path = entry.unwrap().path();
        let scenario: toml::Table = toml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let mut script = script::Script::default();
        let mut live = Vec::new();
        for step in scenario["step"].as_array().unwrap() {
            let text = step.get("events").and_then(|e| e.as_str()).unwrap_or("");
            live.extend(script.read(text, step.get("as_written").is_none()));
        }
        let replayed = events_of(&records(&recording(&live)));
        assert_eq!(show(replayed), show(live), "{}", path.display());
    }
}

#[test]
fn cut_off_at_any_byte_it_reads_up_to_the_last_whole_frame() {
    let written = events();
    let bytes = recording(&written);
    let frames = frames(&bytes);
    assert!(frames.len() >= 5, "{} frames", frames.len());
    for cut in 0..bytes.len() {
        let reader = match Reader::new(&bytes[..cut]) {
            Ok(reader) => reader,
            Err(error) => {
                assert!(
                    cut == 0 && matches!(error, RecordingError::Empty),
                    "{cut}: {error}"
                );
                continue;
            }
        };
        let read: Vec<Record> = reader.map(Result::unwrap).collect();
        let whole: u32 = frames
            .iter()
            .filter(|(at, header)| at + HEADER_BYTES + header.stored as usize <= cut)
            .filter(|(_, header)| header.kind == frame::KIND_EVENTS)
            .map(|(_, header)| header.records)
            .sum();
        let found = events_of(&read);
        assert_eq!(found.len(), whole as usize, "cut at {cut}");
        assert_eq!(found, written[..found.len()], "cut at {cut}");
        // Always told, and never taken for whole.
        let Some(Record::Gap(gap)) = read.last() else {
            panic!("cut at {cut}: {:?}", read.last())
        };
        let in_a_frame = gap.reason == GapReason::CutOff;
        assert_eq!(in_a_frame, gap.bytes > 0, "cut at {cut}: {gap:?}");
        assert!(in_a_frame || gap.reason == GapReason::NotEnded);
        assert_eq!(
            gap.offset + gap.bytes,
            if cut < 16 { gap.bytes } else { cut as u64 }
        );
    }
}

#[test]
fn a_flipped_bit_costs_one_frame() {
    let written = events();
    let bytes = recording(&written);
    let frames = frames(&bytes);
    for at in 0..bytes.len() {
        for bit in [0, 7] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let read = records(&damaged);
            let hit = frames.iter().rposition(|(begin, _)| *begin <= at);
            let expected: Vec<&Event> = match hit.map(|i| frames[i].1) {
                Some(header) if header.kind == frame::KIND_EVENTS => {
                    let before: u32 = frames[..hit.unwrap()]
                        .iter()
                        .filter(|(_, header)| header.kind == frame::KIND_EVENTS)
                        .map(|(_, header)| header.records)
                        .sum();
                    let lost = before as usize..(before + header.records) as usize;
                    let kept = |(i, event)| (!lost.contains(&i)).then_some(event);
                    written.iter().enumerate().filter_map(kept).collect()
                }
                _ => written.iter().collect(),
            };
            let found = events_of(&read);
            assert!(found.iter().eq(expected), "byte {at}, bit {bit}");
            assert!(!gaps(&read).is_empty(), "byte {at}, bit {bit}: not told");
        }
    }
}

#[test]
fn junk_between_frames_is_passed_over() {
    let written = events();
    let bytes = recording(&written);
    let second = frames(&bytes)[1].0;
    // Also longer than what is read at once, and with the begin of a frame's header in it.
    for junk in [vec![0; 1], frame::SYNC.repeat(20), vec![0xd7; 200_000]] {
        let mut longer = bytes[..second].to_vec();
        longer.extend_from_slice(&junk);
        longer.extend_from_slice(&bytes[second..]);
        let read = records(&longer);
        assert_eq!(events_of(&read), written);
        let Some(Record::Gap(gap)) = read.iter().find(|record| matches!(record, Record::Gap(_))) else {
            panic!("not told")
        };
        assert_eq!((gap.offset, gap.bytes), (second as u64, junk.len() as u64));
    }
    // A piece cut out between two frames.
    let (from, to) = (frames(&bytes)[2].0, frames(&bytes)[3].0);
    let shorter = [&bytes[..from], &bytes[to..]].concat();
    let read = records(&shorter);
    assert!(events_of(&read).len() < written.len());
    assert_eq!(gaps(&read), [GapReason::Damaged]);
}

#[test]
fn what_is_no_recording_is_refused_with_a_sentence() {
    let folder = scratch("refused");
    let path = folder.join("file");
    let refusal = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        read(&path).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refusal(b"").contains("empty"));
    assert!(refusal(b"{\"type\":\"meta\"}\n").contains("not a recording"));
    assert!(refusal(&[0; 100_000]).contains("not a recording"));
    let newer = frame::file_header_of(frame::MAJOR + 1, 3);
    let told = refusal(&newer);
    assert!(
        told.contains("version 2.3") && told.contains("newer uio-trace"),
        "{told}"
    );
    let missing = read(&folder.join("missing")).map(|_| ()).unwrap_err().to_string();
    assert!(
        missing.contains("missing") && missing.contains("No such file"),
        "{missing}"
    );
    let told = read(&folder).map(|_| ()).unwrap_err().to_string();
    assert!(told.contains("directory"), "{told}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A frame as a later version might write it.
fn foreign_frame(kind: u16, flags: u16, records: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        kind,
        flags,
        stored: payload.len() as u32,
        unpacked: payload.len() as u32,
        records,
        payload_sum: crc32fast::hash(payload),
        number: 1,
        ..Header::default()
    };
    [header.to_bytes().as_slice(), payload].concat()
}

#[test]
fn what_a_later_version_adds_is_skipped_and_counted() {
    let first = frames(&recording(&events()))[1].0;
    let mut bytes = recording(&[])[..first].to_vec();
    bytes[..frame::FILE_HEADER_BYTES].copy_from_slice(&frame::file_header_of(frame::MAJOR, 99));
    bytes.extend(foreign_frame(77, 0, 5, b"anything"));
    bytes.extend(foreign_frame(
        frame::KIND_EVENTS,
        1 << 9,
        3,
        b"packed in a new way",
    ));
    let lines =
        b"{\"ts_ns\":5,\"kind\":{\"teleported\":{\"to\":3}}}\n{\"ts_ns\":6,\"kind\":\"tick\",\"cpu\":1}\n";
    bytes.extend(foreign_frame(frame::KIND_EVENTS, 0, 2, lines));
    let read = records(&bytes);
    let unknown: Vec<u64> = read
        .iter()
        .filter_map(|record| match record {
            Record::Unknown { records } => Some(*records),
            _ => None,
        })
        .collect();
    assert_eq!(unknown, [5, 3, 1]);
    let tick = Event {
        ts_ns: 6,
        kind: EventKind::Tick,
    };
    assert_eq!(events_of(&read), [tick], "a new field is no reason to skip");
}

#[test]
fn marks_are_kept_in_their_place() {
    let mark = Mark {
        ts_ns: 5,
        trigger: "aio.drain > 1s".into(),
        found: "postgres (1): 2 s".into(),
    };
    let tick = Event {
        ts_ns: 6,
        kind: EventKind::Tick,
    };
    let mut writer = Writer::new(Vec::new(), &meta()).unwrap();
    writer.event(&tick).unwrap();
    writer.mark(&mark).unwrap();
    writer.event(&tick).unwrap();
    let read = records(&writer.end().unwrap());
    let expected = [
        Record::Event(tick.clone()),
        Record::Mark(mark),
        Record::Event(tick),
    ];
    assert_eq!(read[1..4], expected);
}

/// A recording of any length that is in nobody's memory: frames again and again.
struct Endless {
    head: Vec<u8>,
    frame: Vec<u8>,
    left: u64,
    at: usize,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.head.len() {
            if self.left == 0 {
                return Ok(0);
            }
            self.left -= 1;
            (self.head, self.at) = (self.frame.clone(), 0);
        }
        let count = buffer.len().min(self.head.len() - self.at);
        buffer[..count].copy_from_slice(&self.head[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[test]
fn a_huge_file_is_read_as_a_stream() {
    // Of a kind that is passed over: the reader's memory must not grow with the file.
    let payload = vec![0; 8 << 20];
    let input = Endless {
        head: recording(&[])[..frames(&recording(&events()))[1].0].to_vec(),
        frame: foreign_frame(99, 0, 1, &payload),
        left: 24,
        at: 0,
    };
    let before = peak_memory();
    let unknown = Reader::new(input)
        .unwrap()
        .filter(|record| matches!(record, Ok(Record::Unknown { .. })))
        .count();
    assert_eq!(unknown, 24);
    let grown = peak_memory() - before;
    assert!(
        grown < 80 << 20,
        "{grown} bytes for a file of {}",
        24 * payload.len()
    );
}

/// Most memory this process has had, bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// A disk with so much room.
#[derive(Debug)]
struct Full {
    room: usize,
    written: Vec<u8>,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.room - self.written.len());
        self.written.extend_from_slice(&bytes[..count]);
        if count == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(count)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_and_leaves_what_was_written_readable() {
    let written = events();
    let whole = recording(&written).len();
    for room in [0, 10, 100, whole / 2, whole - 1] {
        let disk = Full {
            room,
            written: Vec::new(),
        };
        let mut kept = Vec::new();
        let result = Writer::new(disk, &meta()).and_then(|mut writer| {
            for event in &written {
                let result = writer.event(event).and_then(|()| writer.flush());
                kept.clone_from(&writer.output().written);
                result?;
            }
            let disk = writer.end()?;
            kept = disk.written;
            Ok(())
        });
        let error = result.expect_err("there was no room").to_string();
        assert!(error.contains("no storage space"), "{error}");
        if let Ok(reader) = Reader::new(kept.as_slice()) {
            let read: Vec<Record> = reader.map(Result::unwrap).collect();
            let found = events_of(&read);
            assert_eq!(found, written[..found.len()]);
            assert!(matches!(read.last(), Some(Record::Gap(_))));
        }
    }
}
