//! The ring that TCMU shares with its handler: the mailbox at the start of /dev/uioN's map 0, then entries, then data
//! (Documentation/target/tcmu-design.rst; the layout is linux/target_core_user.h's, version 2).
//!
//! The kernel appends at cmd_head and takes back what lies before cmd_tail, so an entry that is done has to wait for those
//! before it: the tail moves over the done ones at its front, whoever finishes. (The kernel would also find a command by an
//! id written into another entry, so that ids could go back in order of completion; but that entry is still the only place
//! that holds a slower command's CDB and vectors.)

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

// struct tcmu_mailbox
const VERSION: usize = 0;
const RING_OFFSET: usize = 4;
const RING_SIZE: usize = 8;
const HEAD: usize = 12;
const TAIL: usize = 64;
// struct tcmu_cmd_entry; answers lie over the request, behind the header
const UFLAGS: usize = 7;
const IOV_COUNT: usize = 8;
const CDB_OFFSET: usize = 24;
const IOV: usize = 48;
const STATUS: usize = 8;
const SENSE: usize = 16;
const IOVEC_BYTES: usize = 16;
/// Bytes of a header, and of everything up to the vectors, and of an answer.
const HEADER: usize = 8;
const ANSWER: usize = 112;
const OP_PAD: u32 = 0;
const OP_COMMAND: u32 = 1;
const UNKNOWN_OP: u8 = 1;

/// The mapping, and how far it is handled.
pub struct Ring {
    base: *mut u8,
    length: usize,
    ring: usize,
    size: usize,
    progress: Mutex<Progress>,
}

// SAFETY: the mapping stays until the last user drops it; the parts of it that threads touch at once are the head and tail, by
// atomic operations; an entry and its data belong to the one thread that `take` gave it to.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

#[derive(Debug, Default)]
struct Progress {
    /// Where the next entry to be handled begins, bytes from the first one.
    next: usize,
    /// Those under way, oldest first: where each ends, and whether it is done.
    under_way: VecDeque<(usize, bool)>,
    /// How many have left the queue: the number of its front.
    left: u64,
}

impl Progress {
    fn add(&mut self, end: usize, done: bool) -> u64 {
        self.under_way.push_back((end, done));
        self.left + self.under_way.len() as u64 - 1
    }

    /// Marks one done; the new tail, if that moves it.
    fn done(&mut self, number: u64) -> Option<usize> {
        let index = usize::try_from(number.checked_sub(self.left)?).ok()?;
        self.under_way.get_mut(index)?.1 = true;
        let mut tail = None;
        while let Some((end, true)) = self.under_way.front() {
            tail = Some(*end);
            self.under_way.pop_front();
            self.left += 1;
        }
        tail
    }
}

/// A command that is the caller's to answer.
#[derive(Debug)]
pub struct Command {
    entry: usize,
    number: u64,
    /// The command descriptor block; one that is shorter is followed by what lies behind it.
    pub cdb: [u8; 16],
    vectors: Vec<(usize, usize)>,
}

impl Ring {
    /// Maps the ring of a device whose map 0 has `length` bytes.
    pub fn map(device: &File, length: usize) -> Result<Ring> {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                device.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error()).context("cannot map the ring");
        }
        let mut ring = Ring {
            base: base.cast(),
            length,
            ring: 0,
            size: 0,
            progress: Mutex::default(),
        };
        let version = u16::from_le_bytes(ring.bytes(VERSION)?);
        if version != 2 {
            bail!("the ring has version {version}, not 2");
        }
        ring.ring = u32::from_le_bytes(ring.bytes(RING_OFFSET)?) as usize;
        ring.size = u32::from_le_bytes(ring.bytes(RING_SIZE)?) as usize;
        if ring.size == 0 || ring.ring.checked_add(ring.size).is_none_or(|end| end > length) {
            bail!("a ring of {} bytes at {} does not fit", ring.size, ring.ring);
        }
        let tail = ring.word(TAIL).load(Ordering::Acquire) as usize;
        ring.progress = Mutex::new(Progress {
            next: tail,
            ..Progress::default()
        });
        Ok(ring)
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: head and tail are aligned words of the mailbox, inside the first page of the mapping.
        unsafe { AtomicU32::from_ptr(self.base.add(at).cast()) }
    }

    fn check(&self, at: usize, length: usize) -> Result<()> {
        if at.checked_add(length).is_none_or(|end| end > self.length) {
            bail!("{length} bytes at {at} are outside of the mapping");
        }
        Ok(())
    }

    fn read(&self, at: usize, into: &mut [u8]) -> Result<()> {
        self.check(at, into.len())?;
        // SAFETY: inside the mapping, as just checked; `into` is ours.
        unsafe { std::ptr::copy_nonoverlapping(self.base.add(at), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    fn write(&self, at: usize, from: &[u8]) -> Result<()> {
        self.check(at, from.len())?;
        // SAFETY: inside the mapping, as just checked; `from` is ours.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.base.add(at), from.len()) };
        Ok(())
    }

    fn bytes<const N: usize>(&self, at: usize) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(at, &mut bytes)?;
        Ok(bytes)
    }

    /// The next command that the kernel has put there, if there is one. Pads are skipped; what is neither is told that it is
    /// unknown.
    pub fn take(&self) -> Result<Option<Command>> {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let head = self.word(HEAD).load(Ordering::Acquire) as usize;
            if progress.next == head {
                return Ok(None);
            }
            let entry = self.ring + progress.next;
            let header = u32::from_le_bytes(self.bytes(entry)?);
            let (operation, length) = (header & 7, (header & !7) as usize);
            if length < HEADER {
                bail!("an entry of {length} bytes");
            }
            progress.next = (progress.next + length) % self.size;
            let end = progress.next;
            if operation == OP_COMMAND {
                let number = progress.add(end, false);
                return self.command(entry, number).map(Some);
            }
            if operation != OP_PAD {
                self.write(entry + UFLAGS, &[UNKNOWN_OP])?;
            }
            let number = progress.add(end, false);
            if let Some(tail) = progress.done(number) {
                self.word(TAIL).store(tail as u32, Ordering::Release);
            }
        }
    }

    fn command(&self, entry: usize, number: u64) -> Result<Command> {
        let count = u32::from_le_bytes(self.bytes(entry + IOV_COUNT)?) as usize;
        let cdb = u64::from_le_bytes(self.bytes(entry + CDB_OFFSET)?) as usize;
        let vector = |index: usize| -> Result<(usize, usize)> {
            let at = entry + IOV + index * IOVEC_BYTES;
            let base = u64::from_le_bytes(self.bytes(at)?) as usize;
            let length = u64::from_le_bytes(self.bytes(at + 8)?) as usize;
            self.check(base, length)?;
            Ok((base, length))
        };
        Ok(Command {
            entry,
            number,
            cdb: self.bytes(cdb)?,
            vectors: (0..count).map(vector).collect::<Result<_>>()?,
        })
    }

    /// Data for the initiator; how much had a place.
    pub fn put(&self, command: &Command, mut data: &[u8]) -> Result<usize> {
        let all = data.len();
        for (base, length) in &command.vectors {
            let (now, later) = data.split_at(data.len().min(*length));
            self.write(*base, now)?;
            data = later;
        }
        Ok(all - data.len())
    }

    /// Data from the initiator, at most `length` bytes.
    pub fn get(&self, command: &Command, length: usize) -> Result<Vec<u8>> {
        let mut data = Vec::with_capacity(length);
        for (base, part) in &command.vectors {
            let from = data.len();
            data.resize(from + (*part).min(length - from), 0);
            self.read(*base, &mut data[from..])?;
        }
        Ok(data)
    }

    /// Answers a command, and gives back every entry at the front that is done.
    pub fn complete(&self, command: &Command, status: u8, sense: &[u8]) -> Result<()> {
        let mut answer = [0; ANSWER - STATUS];
        answer[0] = status;
        answer[SENSE - STATUS..][..sense.len()].copy_from_slice(sense);
        self.write(command.entry + STATUS, &answer)?;
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tail) = progress.done(command.number) {
            self.word(TAIL).store(tail as u32, Ordering::Release);
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}

#[cfg(test)]
mod test {
    use super::Progress;

    #[test]
    fn the_tail_waits_for_the_oldest() {
        let mut progress = Progress::default();
        let numbers: Vec<u64> = [100, 200, 0, 50].map(|end| progress.add(end, false)).into();
        assert_eq!(progress.done(numbers[1]), None);
        assert_eq!(progress.done(numbers[2]), None);
        // the first lets three go, the last of which ends at the wrap
        assert_eq!(progress.done(numbers[0]), Some(0));
        assert_eq!(progress.done(numbers[3]), Some(50));
        assert_eq!(progress.add(60, false), 4);
        assert_eq!(progress.done(4), Some(60));
        assert_eq!(progress.done(4), None);
    }
}
