//! The SCSI disk behind the TCMU device: what a command asks for, and its answer, from SPC-4 and SBC-3. Knows nothing of rings.
//! Memory is the backing store, in chunks with a lock each, so that worker threads do not wait for each other.

use std::sync::{PoisonError, RwLock};

/// Bytes of a block.
pub const BLOCK: usize = 512;
/// Bytes under one lock.
const CHUNK: usize = 128 << 10;

/// SAM status of a command that succeeded.
pub const GOOD: u8 = 0x00;
/// SAM status that comes with sense data.
pub const CHECK_CONDITION: u8 = 0x02;

const ILLEGAL_REQUEST: u8 = 0x05;
/// Additional sense codes, with their qualifiers (SPC-4 annex F).
const INVALID_OPCODE: u16 = 0x2000;
const OUT_OF_RANGE: u16 = 0x2100;
const INVALID_FIELD: u16 = 0x2400;

/// The disk.
#[derive(Debug)]
pub struct Disk {
    chunks: Vec<RwLock<Vec<u8>>>,
    blocks: u64,
}

/// What is sent back.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Success, with data for the initiator.
    Data(Vec<u8>),
    /// Success; the payload of the command is to be written at this byte.
    Write(u64, usize),
    /// Success without data.
    Done,
    /// CHECK CONDITION with this sense key and additional code.
    Sense(u8, u16),
}

/// Byte `at` of a disk that was never written to: what a reader expects, computed from the place alone.
pub fn pattern(at: u64) -> u8 {
    let word = (at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.rotate_left(29).to_le_bytes()[usize::from((at % 8) as u8)]
}

impl Disk {
    /// A disk of `bytes` (rounded down to whole chunks of 128 KiB) that holds [`pattern`].
    pub fn new(bytes: u64) -> Disk {
        let count = bytes / CHUNK as u64;
        let chunk = |index: u64| {
            let first = index * CHUNK as u64;
            RwLock::new((first..first + CHUNK as u64).map(pattern).collect())
        };
        Disk {
            chunks: (0..count).map(chunk).collect(),
            blocks: count * (CHUNK / BLOCK) as u64,
        }
    }

    /// Its size, bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks * BLOCK as u64
    }

    /// What a command descriptor block asks for.
    pub fn answer(&self, cdb: &[u8; 16]) -> Answer {
        let blocks = self.blocks;
        match cdb[0] {
            // TEST UNIT READY, SYNCHRONIZE CACHE (10, 16): memory is always ready and has no cache.
            0x00 | 0x35 | 0x91 => Answer::Done,
            0x12 => inquiry(cdb),
            // MODE SENSE (6, 10): a header without pages or block descriptors.
            0x1a => limited(vec![3, 0, 0, 0], usize::from(cdb[4])),
            0x5a => limited(vec![0, 6, 0, 0, 0, 0, 0, 0], usize::from(be16(cdb, 7))),
            0x25 => {
                let last = u32::try_from(blocks - 1).unwrap_or(u32::MAX);
                let mut data = last.to_be_bytes().to_vec();
                data.extend((BLOCK as u32).to_be_bytes());
                Answer::Data(data)
            }
            // SERVICE ACTION IN (16): READ CAPACITY (16)
            0x9e if cdb[1] & 0x1f == 0x10 => {
                let mut data = (blocks - 1).to_be_bytes().to_vec();
                data.extend((BLOCK as u32).to_be_bytes());
                data.resize(32, 0);
                limited(data, be32(cdb, 10) as usize)
            }
            0x9e => Answer::Sense(ILLEGAL_REQUEST, INVALID_FIELD),
            0x08 | 0x0a => {
                let first = u64::from(be32(cdb, 0) & 0x1f_ffff);
                // no length is 256 blocks
                let count = if cdb[4] == 0 { 256 } else { u32::from(cdb[4]) };
                self.transfer(cdb[0] == 0x08, first, count)
            }
            0x28 | 0x2a => self.transfer(cdb[0] == 0x28, be32(cdb, 2).into(), be16(cdb, 7).into()),
            0x88 | 0x8a => {
                let first = u64::from(be32(cdb, 2)) << 32 | u64::from(be32(cdb, 6));
                self.transfer(cdb[0] == 0x88, first, be32(cdb, 10))
            }
            _ => Answer::Sense(ILLEGAL_REQUEST, INVALID_OPCODE),
        }
    }

    fn transfer(&self, read: bool, first: u64, count: u32) -> Answer {
        if first
            .checked_add(count.into())
            .is_none_or(|end| end > self.blocks)
        {
            return Answer::Sense(ILLEGAL_REQUEST, OUT_OF_RANGE);
        }
        let (at, length) = (first * BLOCK as u64, count as usize * BLOCK);
        if !read {
            return Answer::Write(at, length);
        }
        let mut data = Vec::with_capacity(length);
        while data.len() < length {
            let at = (at + data.len() as u64) as usize;
            let within = at % CHUNK;
            let take = (length - data.len()).min(CHUNK - within);
            let chunk = self.chunks[at / CHUNK]
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            data.extend_from_slice(&chunk[within..within + take]);
        }
        Answer::Data(data)
    }

    /// Stores what [`Answer::Write`] asked for; the range was checked there.
    pub fn store(&self, at: u64, mut data: &[u8]) {
        let mut at = at as usize;
        while !data.is_empty() {
            let within = at % CHUNK;
            let (now, later) = data.split_at(data.len().min(CHUNK - within));
            let mut chunk = self.chunks[at / CHUNK]
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            chunk[within..within + now.len()].copy_from_slice(now);
            at += now.len();
            data = later;
        }
    }
}

/// INQUIRY: standard data, or a page of vital product data.
fn inquiry(cdb: &[u8; 16]) -> Answer {
    let wanted = usize::from(be16(cdb, 3));
    if cdb[1] & 1 == 0 {
        if cdb[2] != 0 {
            return Answer::Sense(ILLEGAL_REQUEST, INVALID_FIELD);
        }
        // a disk; SPC-3; the usual format; 31 bytes follow; CmdQue
        let mut data = vec![0, 0, 5, 2, 31, 0, 0, 2];
        data.extend(b"TESTBED TCMU DISK       0001");
        return limited(data, wanted);
    }
    let body: Vec<u8> = match cdb[2] {
        // supported pages
        0x00 => vec![0x00, 0x80, 0x83, 0xb0, 0xb1],
        // serial number
        0x80 => b"testbed1".to_vec(),
        // identification: a T10 vendor ID, ASCII
        0x83 => [&[2, 1, 0, 16][..], b"TESTBED testbed1"].concat(),
        // block limits: none given
        0xb0 => vec![0; 60],
        // characteristics: does not rotate
        0xb1 => [&[0, 1][..], &[0; 58]].concat(),
        _ => return Answer::Sense(ILLEGAL_REQUEST, INVALID_FIELD),
    };
    let mut data = vec![0, cdb[2], 0, body.len() as u8];
    data.extend(body);
    limited(data, wanted)
}

fn limited(mut data: Vec<u8>, wanted: usize) -> Answer {
    data.truncate(wanted);
    Answer::Data(data)
}

fn be16(cdb: &[u8; 16], at: usize) -> u16 {
    u16::from_be_bytes([cdb[at], cdb[at + 1]])
}

fn be32(cdb: &[u8; 16], at: usize) -> u32 {
    u32::from_be_bytes([cdb[at], cdb[at + 1], cdb[at + 2], cdb[at + 3]])
}

/// Fixed-format sense data (SPC-4 4.5.3).
pub fn sense(key: u8, code: u16) -> [u8; 18] {
    let mut data = [0; 18];
    data[0] = 0x70;
    data[2] = key;
    data[7] = 10;
    data[12..14].copy_from_slice(&code.to_be_bytes());
    data
}

#[cfg(test)]
mod test {
    use super::*;

    fn cdb(bytes: &[u8]) -> [u8; 16] {
        let mut cdb = [0; 16];
        cdb[..bytes.len()].copy_from_slice(bytes);
        cdb
    }

    fn disk() -> Disk {
        Disk::new(1 << 20)
    }

    #[test]
    fn capacity_is_the_last_block_and_the_block_size() {
        let expected = [0, 0, 0x07, 0xff, 0, 0, 2, 0];
        assert_eq!(disk().answer(&cdb(&[0x25])), Answer::Data(expected.to_vec()));
        let long = cdb(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12]);
        let expected = [0, 0, 0, 0, 0, 0, 0x07, 0xff, 0, 0, 2, 0];
        assert_eq!(disk().answer(&long), Answer::Data(expected.to_vec()));
    }

    #[test]
    fn reads_of_each_length_give_the_pattern_of_their_place() {
        let reads = [
            cdb(&[0x08, 0, 0, 255, 2]),
            cdb(&[0x28, 0, 0, 0, 0, 255, 0, 0, 2]),
            cdb(&[0x88, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0, 2]),
        ];
        // across the border of two chunks
        let expected: Vec<u8> = (255 * 512..257 * 512).map(pattern).collect();
        for read in reads {
            assert_eq!(disk().answer(&read), Answer::Data(expected.clone()));
        }
    }

    #[test]
    fn read_6_without_a_length_is_256_blocks() {
        let Answer::Data(data) = disk().answer(&cdb(&[0x08])) else {
            panic!("no data");
        };
        assert_eq!(data.len(), 256 * 512);
    }

    #[test]
    fn what_is_written_is_read() {
        let disk = disk();
        let write = cdb(&[0x2a, 0, 0, 0, 0, 255, 0, 0, 2]);
        assert_eq!(disk.answer(&write), Answer::Write(255 * 512, 1024));
        disk.store(255 * 512, &[7; 1024]);
        let Answer::Data(data) = disk.answer(&cdb(&[0x28, 0, 0, 0, 0, 254, 0, 0, 4])) else {
            panic!("no data");
        };
        assert!(data[512..1536].iter().all(|byte| *byte == 7));
        assert_eq!(data[0], pattern(254 * 512));
        assert_eq!(data[1536], pattern(257 * 512));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let past = cdb(&[0x28, 0, 0, 0, 0x07, 0xff, 0, 0, 2]);
        assert_eq!(disk().answer(&past), Answer::Sense(5, 0x2100));
        let far = cdb(&[0x88, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 2]);
        assert_eq!(disk().answer(&far), Answer::Sense(5, 0x2100));
        assert_eq!(disk().answer(&cdb(&[0xff])), Answer::Sense(5, 0x2000));
        assert_eq!(
            disk().answer(&cdb(&[0x12, 1, 0x99, 0, 64])),
            Answer::Sense(5, 0x2400)
        );
        assert_eq!(sense(5, 0x2000)[..3], [0x70, 0, 5]);
        assert_eq!(sense(5, 0x2000)[12..14], [0x20, 0]);
    }

    #[test]
    fn inquiry_is_as_long_as_asked_for_at_most() {
        let Answer::Data(data) = disk().answer(&cdb(&[0x12, 0, 0, 0, 36])) else {
            panic!("no data");
        };
        assert_eq!((data.len(), data[4]), (36, 31));
        let Answer::Data(data) = disk().answer(&cdb(&[0x12, 1, 0xb0, 0, 255])) else {
            panic!("no data");
        };
        assert_eq!((data.len(), data[3]), (64, 60));
    }
}
