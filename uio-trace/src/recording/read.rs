//! Reading, frame by frame: nothing but the frame at hand is in memory, and no length is believed before its checksum.

use super::{
    Gap, GapReason, Record, RecordingError,
    frame::{self, FILE_HEADER_BYTES, HEADER_BYTES, Header},
};
use crate::event::Event;
use serde::de::IgnoredAny;
use std::{
    collections::VecDeque,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::Path,
};

/// Bytes asked for at once.
const CHUNK: usize = 64 << 10;

/// Opens a recording.
///
/// # Errors
/// It cannot be opened, is empty, is something else, or was made by a later major version.
pub fn read(path: &Path) -> Result<Reader<File>, RecordingError> {
    let open = |cause| RecordingError::Open {
        path: path.to_owned(),
        cause,
    };
    let file = File::open(path).map_err(open)?;
    if file.metadata().map_err(open)?.is_dir() {
        return Err(open(std::io::ErrorKind::IsADirectory.into()));
    }
    Reader::new(file)
}

/// A place between two records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where a frame begins in the file.
    frame: u64,
    /// Bytes of its lines that come before.
    line: usize,
}

impl Place {
    /// Before the first frame.
    pub fn begin() -> Place {
        Place {
            frame: FILE_HEADER_BYTES as u64,
            line: 0,
        }
    }

    /// Offset from which on the file's frames come after the place.
    pub fn after_begin(&self) -> u64 {
        self.frame + u64::from(self.line > 0)
    }

    /// To tell places apart.
    pub fn key(&self) -> (u64, usize) {
        (self.frame, self.line)
    }

    /// Where reading must go on in the file.
    pub fn offset(&self) -> u64 {
        self.frame
    }
}

/// The time that a recording is about, CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    /// Earliest event, ns.
    pub first_ns: u64,
    /// Latest event, ns.
    pub last_ns: u64,
}

impl Extent {
    fn cover(&mut self, header: &Header) {
        if header.kind == frame::KIND_EVENTS && header.first_ns <= header.last_ns {
            let empty = *self == Extent::default();
            self.first_ns = if empty {
                header.first_ns
            } else {
                self.first_ns.min(header.first_ns)
            };
            self.last_ns = self.last_ns.max(header.last_ns);
        }
    }
}

/// The time a recording is about, from its frames' headers. Only behind damage is everything read.
///
/// # Errors
/// As [`read`], and when reading fails.
pub fn extent(path: &Path) -> Result<Extent, RecordingError> {
    read(path)?;
    let failed = |cause| RecordingError::Io {
        what: "reading the recording",
        cause,
    };
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut extent = Extent::default();
    let mut at = FILE_HEADER_BYTES as u64;
    let mut bytes = [0; HEADER_BYTES];
    while at < length {
        file.seek(SeekFrom::Start(at)).map_err(failed)?;
        let header = file
            .read_exact(&mut bytes)
            .ok()
            .and_then(|()| Header::parse(&bytes).ok());
        let Some(header) = header else {
            let mut rest = Reader::resume(
                {
                    file.seek(SeekFrom::Start(at)).map_err(failed)?;
                    file
                },
                Place { frame: at, line: 0 },
            )?;
            rest.extent = extent;
            for record in rest.by_ref() {
                record?;
            }
            return Ok(rest.extent);
        };
        at += (HEADER_BYTES + header.stored as usize) as u64;
        if at <= length {
            extent.cover(&header);
        }
    }
    Ok(extent)
}

/// The records of a recording, in order. After an error there are no more.
#[derive(Debug)]
pub struct Reader<R> {
    bytes: Window<R>,
    /// Lines of the frame at hand, and where the next one begins.
    lines: Vec<u8>,
    at: usize,
    ready: VecDeque<Record>,
    /// Number the next frame must have; `None`: any.
    next_number: Option<u32>,
    /// Where the frame at hand began.
    frame_at: u64,
    extent: Extent,
    state: State,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum State {
    Reading,
    Over,
}

impl<R: Read> Reader<R> {
    /// Reads from the begin of a recording.
    ///
    /// # Errors
    /// As [`read`].
    pub fn new(input: R) -> Result<Reader<R>, RecordingError> {
        let mut bytes = Window::new(input);
        let there = bytes.want(FILE_HEADER_BYTES + HEADER_BYTES)?;
        let head = bytes.get(there);
        let mut ready = VecDeque::new();
        match frame::parse_file_header(head) {
            Some((major, minor)) if major > frame::MAJOR => {
                return Err(RecordingError::TooNew { major, minor });
            }
            Some(_) => bytes.drop(FILE_HEADER_BYTES),
            None if head.is_empty() => return Err(RecordingError::Empty),
            // Cut off within its own header.
            None if there < FILE_HEADER_BYTES && frame::file_header().starts_with(head) => {}
            // Only its header is damaged: a frame stands where the first one belongs.
            None if head
                .get(FILE_HEADER_BYTES..)
                .is_some_and(|rest| Header::parse(rest).is_ok()) =>
            {
                ready.push_back(Record::Gap(Gap {
                    offset: 0,
                    bytes: FILE_HEADER_BYTES as u64,
                    records: Some(0),
                    reason: GapReason::Damaged,
                }));
                bytes.drop(FILE_HEADER_BYTES);
            }
            None => return Err(RecordingError::NotARecording),
        }
        Ok(Reader {
            bytes,
            lines: Vec::new(),
            at: 0,
            ready,
            next_number: Some(0),
            frame_at: 0,
            extent: Extent::default(),
            state: State::Reading,
        })
    }

    /// Goes on in the middle: `input` stands at the place's offset.
    ///
    /// # Errors
    /// When reading fails.
    pub fn resume(input: R, place: Place) -> Result<Reader<R>, RecordingError> {
        let mut bytes = Window::new(input);
        bytes.offset = place.frame;
        let mut reader = Reader {
            bytes,
            lines: Vec::new(),
            at: 0,
            ready: VecDeque::new(),
            next_number: None,
            frame_at: place.frame,
            extent: Extent::default(),
            state: State::Reading,
        };
        if place.line > 0 {
            reader.frame()?;
            reader.at = place.line.min(reader.lines.len());
        }
        Ok(reader)
    }

    /// Where the next record is.
    pub fn place(&self) -> Place {
        if self.at < self.lines.len() {
            Place {
                frame: self.frame_at,
                line: self.at,
            }
        } else {
            Place {
                frame: self.bytes.offset,
                line: 0,
            }
        }
    }

    /// The next line of the frame at hand.
    fn line(&mut self) -> Option<Record> {
        while self.at < self.lines.len() {
            let rest = &self.lines[self.at..];
            let length = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
            let line = &rest[..length];
            self.at += length + 1;
            if line.is_empty() {
                continue;
            }
            return Some(match serde_json::from_slice::<Event>(line) {
                Ok(event) => Record::Event(event),
                // Of a later version, which its checksum vouches for; counted either way.
                Err(_) => Record::Unknown { records: 1 },
            });
        }
        None
    }

    /// The next frame, or what there is instead. Nothing when the file is over.
    fn frame(&mut self) -> Result<(), RecordingError> {
        let there = self.bytes.want(HEADER_BYTES)?;
        if there == 0 {
            self.not_ended(0, GapReason::NotEnded);
            return Ok(());
        }
        let Ok(header) = Header::parse(self.bytes.get(there)) else {
            return self.resynchronise();
        };
        let (begin, length) = (self.bytes.offset, HEADER_BYTES + header.stored as usize);
        let there = self.bytes.want(length)?;
        if there < length {
            self.not_ended(there as u64, GapReason::CutOff);
            return Ok(());
        }
        self.skipped_before(&header);
        self.next_number = header.number.checked_add(1);
        self.frame_at = begin;
        self.extent.cover(&header);
        let known = (frame::KIND_META..=frame::KIND_END).contains(&header.kind) && header.known_packing();
        if known {
            let payload = header.unpack(&self.bytes.get(length)[HEADER_BYTES..]);
            let damaged = match payload {
                Ok(payload) => !self.take(&header, payload),
                Err(_) => true,
            };
            if damaged {
                self.ready.push_back(Record::Gap(Gap {
                    offset: begin,
                    bytes: length as u64,
                    records: Some(u64::from(header.records)),
                    reason: GapReason::Damaged,
                }));
            }
        } else {
            self.ready.push_back(Record::Unknown {
                records: u64::from(header.records),
            });
        }
        self.bytes.drop(length);
        Ok(())
    }

    /// Takes a frame's payload; false when it is not what its kind says.
    fn take(&mut self, header: &Header, payload: Vec<u8>) -> bool {
        match header.kind {
            frame::KIND_EVENTS => {
                (self.lines, self.at) = (payload, 0);
            }
            frame::KIND_META => match serde_json::from_slice(&payload) {
                Ok(meta) => self.ready.push_back(Record::Meta(Box::new(meta))),
                Err(_) => return false,
            },
            frame::KIND_MARK => match serde_json::from_slice(&payload) {
                Ok(mark) => self.ready.push_back(Record::Mark(mark)),
                Err(_) => return false,
            },
            _ => {
                if serde_json::from_slice::<IgnoredAny>(&payload).is_err() {
                    return false;
                }
                self.ready.push_back(Record::End);
                self.state = State::Over;
            }
        }
        true
    }

    /// Frames missing before this one without a damaged byte between: somebody cut a piece out.
    fn skipped_before(&mut self, header: &Header) {
        if self.next_number.is_some_and(|number| number != header.number) {
            self.ready.push_back(Record::Gap(Gap {
                offset: self.bytes.offset,
                bytes: 0,
                records: None,
                reason: GapReason::Damaged,
            }));
        }
    }

    fn not_ended(&mut self, bytes: u64, reason: GapReason) {
        self.ready.push_back(Record::Gap(Gap {
            offset: self.bytes.offset,
            bytes,
            records: (reason == GapReason::NotEnded).then_some(0),
            reason,
        }));
        self.state = State::Over;
    }

    /// Looks for the next whole header.
    fn resynchronise(&mut self) -> Result<(), RecordingError> {
        let begin = self.bytes.offset;
        // At least one byte further: here is none.
        self.bytes.drop(1);
        loop {
            let there = self.bytes.want(HEADER_BYTES)?;
            if there < HEADER_BYTES {
                self.bytes.drop(there);
                let bytes = self.bytes.offset - begin;
                self.bytes.offset = begin;
                self.not_ended(bytes, GapReason::CutOff);
                return Ok(());
            }
            if Header::parse(self.bytes.get(HEADER_BYTES)).is_ok() {
                break;
            }
            let window = self.bytes.all();
            let next = window[1..]
                .windows(frame::SYNC.len())
                .position(|bytes| bytes == frame::SYNC)
                .map_or(window.len() + 1 - frame::SYNC.len(), |position| position + 1);
            self.bytes.drop(next.max(1));
        }
        self.ready.push_back(Record::Gap(Gap {
            offset: begin,
            bytes: self.bytes.offset - begin,
            records: None,
            reason: GapReason::Damaged,
        }));
        self.next_number = None;
        Ok(())
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // A frame's own gaps come before its events.
            if let Some(record) = self.ready.pop_front().or_else(|| self.line()) {
                return Some(Ok(record));
            }
            if self.state == State::Over {
                return None;
            }
            if let Err(error) = self.frame() {
                self.state = State::Over;
                return Some(Err(error));
            }
        }
    }
}

/// What was read and not yet used.
#[derive(Debug)]
struct Window<R> {
    input: R,
    buffer: Vec<u8>,
    begin: usize,
    /// Of `begin`, in the file.
    offset: u64,
}

impl<R: Read> Window<R> {
    fn new(input: R) -> Window<R> {
        Window {
            input,
            buffer: Vec::new(),
            begin: 0,
            offset: 0,
        }
    }

    /// Reads until there are so many bytes, or the file is over; how many of them there are.
    fn want(&mut self, length: usize) -> Result<usize, RecordingError> {
        while self.buffer.len() - self.begin < length {
            self.buffer.drain(..self.begin);
            self.begin = 0;
            let filled = self.buffer.len();
            // In small steps, so that a length the file does not have costs no memory.
            self.buffer.resize(filled + CHUNK, 0);
            let read = self.input.read(&mut self.buffer[filled..]);
            let count = *read.as_ref().unwrap_or(&0);
            self.buffer.truncate(filled + count);
            match read {
                Ok(0) => break,
                Ok(_) => {}
                Err(cause) if cause.kind() == std::io::ErrorKind::Interrupted => {}
                Err(cause) => {
                    return Err(RecordingError::Io {
                        what: "reading the recording",
                        cause,
                    });
                }
            }
        }
        Ok((self.buffer.len() - self.begin).min(length))
    }

    fn all(&self) -> &[u8] {
        &self.buffer[self.begin..]
    }

    fn get(&self, length: usize) -> &[u8] {
        &self.all()[..length]
    }

    fn drop(&mut self, length: usize) {
        self.begin += length;
        self.offset += length as u64;
    }
}
