//! A recording's smallest whole: a frame, a header of [`HEADER_BYTES`] and a payload. docs/recording.md has the layout.
//!
//! Header and payload have a checksum each. So a length is believed only when the header's sum says so, and a damaged
//! payload costs one frame.

use thiserror::Error;

/// First bytes of the file: no text begins so, and a transfer that changes line ends destroys it.
pub const MAGIC: [u8; 8] = *b"\x89UTR\r\n\x1a\n";
/// Grows when older programs cannot read newer files.
pub const MAJOR: u16 = 1;
/// Grows with what older programs may skip.
pub const MINOR: u16 = 0;
/// Length of the file's own header.
pub const FILE_HEADER_BYTES: usize = 16;
/// First bytes of a frame: what is looked for after damage.
pub const SYNC: [u8; 4] = [0xd7, b'U', b'T', b'F'];
/// Length of a frame's header.
pub const HEADER_BYTES: usize = 48;
/// Most bytes of a payload, stored or unpacked: a header that says more is not believed.
pub const PAYLOAD_MAX: usize = 64 << 20;
/// Payload packed with zstd; the only flag there is.
pub const FLAG_ZSTD: u16 = 1;

/// Frame kind: a [`crate::model::snapshot::Meta`].
pub const KIND_META: u16 = 1;
/// Frame kind: events, a JSON object a line.
pub const KIND_EVENTS: u16 = 2;
/// Frame kind: a [`super::Mark`].
pub const KIND_MARK: u16 = 3;
/// Frame kind: the recording was ended well. Nothing follows.
pub const KIND_END: u16 = 4;

/// The file's header.
pub fn file_header() -> [u8; FILE_HEADER_BYTES] {
    file_header_of(MAJOR, MINOR)
}

/// The file's header, of any version.
pub fn file_header_of(major: u16, minor: u16) -> [u8; FILE_HEADER_BYTES] {
    let mut bytes = [0; FILE_HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&major.to_le_bytes());
    bytes[10..12].copy_from_slice(&minor.to_le_bytes());
    let sum = crc32fast::hash(&bytes[..12]);
    bytes[12..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Major and minor version; `None`: not a recording's header, or damaged.
pub fn parse_file_header(bytes: &[u8]) -> Option<(u16, u16)> {
    let bytes: &[u8; FILE_HEADER_BYTES] = bytes.get(..FILE_HEADER_BYTES)?.try_into().ok()?;
    let whole = bytes[..8] == MAGIC && crc32fast::hash(&bytes[..12]) == u32_at(bytes, 12);
    whole.then(|| (u16_at(bytes, 8), u16_at(bytes, 10)))
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// `KIND_*`, or one of a later minor version.
    pub kind: u16,
    /// `FLAG_*`.
    pub flags: u16,
    /// Bytes of the payload in the file.
    pub stored: u32,
    /// Bytes of the payload unpacked.
    pub unpacked: u32,
    /// Records in it.
    pub records: u32,
    /// CRC-32 of the payload as stored.
    pub payload_sum: u32,
    /// Time of its earliest record, CLOCK_MONOTONIC, ns.
    pub first_ns: u64,
    /// Time of its latest record.
    pub last_ns: u64,
    /// Number of the frame in the file, from 0.
    pub number: u32,
}

/// What is wrong with bytes that should be a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// No frame begins here.
    #[error("the frame's header is damaged")]
    Header,
    /// The payload's checksum is wrong, or it cannot be unpacked.
    #[error("the frame's payload is damaged")]
    Payload,
}

impl Header {
    /// As bytes.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&SYNC);
        bytes[4..6].copy_from_slice(&self.kind.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.flags.to_le_bytes());
        let words = [self.stored, self.unpacked, self.records, self.payload_sum];
        for (i, word) in words.into_iter().enumerate() {
            bytes[8 + 4 * i..12 + 4 * i].copy_from_slice(&word.to_le_bytes());
        }
        bytes[24..32].copy_from_slice(&self.first_ns.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.last_ns.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.number.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..44]);
        bytes[44..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`FrameError::Header`]: too few, without the sync bytes, a wrong checksum, or lengths no writer makes.
    pub fn parse(bytes: &[u8]) -> Result<Header, FrameError> {
        let bytes = bytes.get(..HEADER_BYTES).ok_or(FrameError::Header)?;
        if bytes[..4] != SYNC || crc32fast::hash(&bytes[..44]) != u32_at(bytes, 44) {
            return Err(FrameError::Header);
        }
        let header = Header {
            kind: u16_at(bytes, 4),
            flags: u16_at(bytes, 6),
            stored: u32_at(bytes, 8),
            unpacked: u32_at(bytes, 12),
            records: u32_at(bytes, 16),
            payload_sum: u32_at(bytes, 20),
            first_ns: u64_at(bytes, 24),
            last_ns: u64_at(bytes, 32),
            number: u32_at(bytes, 40),
        };
        let sane = header.stored as usize <= PAYLOAD_MAX && header.unpacked as usize <= PAYLOAD_MAX;
        sane.then_some(header).ok_or(FrameError::Header)
    }

    /// Whether this version can unpack the payload.
    pub fn known_packing(&self) -> bool {
        self.flags & !FLAG_ZSTD == 0
    }

    /// The payload, checked and unpacked; never more than the header says.
    ///
    /// # Errors
    /// [`FrameError::Payload`].
    pub fn unpack(&self, stored: &[u8]) -> Result<Vec<u8>, FrameError> {
        if crc32fast::hash(stored) != self.payload_sum {
            return Err(FrameError::Payload);
        }
        let unpacked = if self.flags & FLAG_ZSTD == 0 {
            stored.to_vec()
        } else {
            zstd::bulk::decompress(stored, self.unpacked as usize).map_err(|_| FrameError::Payload)?
        };
        if unpacked.len() == self.unpacked as usize {
            Ok(unpacked)
        } else {
            Err(FrameError::Payload)
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written_and_no_flipped_bit_passes() {
        let header = Header {
            kind: 2,
            flags: FLAG_ZSTD,
            stored: 100,
            unpacked: 1000,
            records: 7,
            payload_sum: 0xdead_beef,
            first_ns: 1 << 50,
            last_ns: u64::MAX,
            number: 3,
        };
        let bytes = header.to_bytes();
        assert_eq!(Header::parse(&bytes), Ok(header));
        for bit in 0..HEADER_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::parse(&flipped), Err(FrameError::Header), "bit {bit}");
        }
        for length in 0..HEADER_BYTES {
            assert_eq!(Header::parse(&bytes[..length]), Err(FrameError::Header));
        }
    }

    #[test]
    fn lengths_beyond_any_writers_are_not_believed() {
        for (stored, unpacked) in [(u32::MAX, 0), (0, u32::MAX), (PAYLOAD_MAX as u32 + 1, 0)] {
            let header = Header {
                stored,
                unpacked,
                ..Header::default()
            };
            assert_eq!(Header::parse(&header.to_bytes()), Err(FrameError::Header));
        }
    }

    #[test]
    fn a_payload_larger_than_it_says_is_not_unpacked() {
        let stored = zstd::bulk::compress(&vec![0; 1 << 20], 3).unwrap();
        let header = Header {
            flags: FLAG_ZSTD,
            stored: stored.len() as u32,
            unpacked: 1000,
            payload_sum: crc32fast::hash(&stored),
            ..Header::default()
        };
        assert_eq!(header.unpack(&stored), Err(FrameError::Payload));
    }

    #[test]
    fn the_files_header_tells_the_version() {
        assert_eq!(parse_file_header(&file_header_of(7, 9)), Some((7, 9)));
        assert_eq!(parse_file_header(&file_header()[..15]), None);
        for bit in 0..FILE_HEADER_BYTES * 8 {
            let mut flipped = file_header();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse_file_header(&flipped), None, "bit {bit}");
        }
    }
}
