//! Emptying a ring: entries are copied out in batches, so that the kernel gets its space back before anything is decoded.

use super::decode::{decode, outside};
use crate::event::Event;
use aya::maps::{MapData, RingBuf};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::{io, os::fd::AsRawFd};
use tokio::io::{Interest, unix::AsyncFd};

/// Entries taken out in one go: bounds the time until the next redraw under a flood.
const BATCH_ENTRIES: usize = 4096;

/// Entries of a ring, each with its length (u32, little-endian) before it.
#[derive(Debug, Default, Clone)]
pub struct Batch(Bytes);

/// Builds a [`Batch`].
#[derive(Debug, Default)]
pub struct BatchBuilder(BytesMut);

impl BatchBuilder {
    /// Adds an entry.
    pub fn push(&mut self, entry: &[u8]) {
        self.0.put_u32_le(entry.len() as u32);
        self.0.put_slice(entry);
    }

    /// The batch; the builder is empty afterwards and keeps its memory.
    pub fn take(&mut self) -> Batch {
        Batch(self.0.split().freeze())
    }
}

impl Batch {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decodes all entries, in order, each with whether its task is outside of the cgroup that was asked for. Returns how many
    /// were understood and how many not.
    pub fn decode(mut self, mut each: impl FnMut(Event, bool)) -> Decoded {
        let mut counts = Decoded::default();
        while self.0.remaining() >= 4 {
            let length = self.0.get_u32_le() as usize;
            if length > self.0.remaining() {
                counts.rejected += 1;
                break;
            }
            let entry = self.0.split_to(length);
            match decode(&entry) {
                Ok(event) => {
                    counts.decoded += 1;
                    each(event, outside(&entry));
                }
                Err(_) => counts.rejected += 1,
            }
        }
        counts
    }
}

/// Result of [`Batch::decode`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    /// Events.
    pub decoded: u64,
    /// Entries not understood.
    pub rejected: u64,
}

/// A ring to wait on.
pub struct RingReader {
    ring: AsyncFd<RingBuf<MapData>>,
    builder: BatchBuilder,
}

impl RingReader {
    /// # Errors
    /// When the ring cannot be registered with the reactor.
    pub fn new(ring: RingBuf<MapData>) -> io::Result<RingReader> {
        // SAFETY: the ring owns its descriptor for as long as it lives and always names the same one.
        let ring = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }?;
        Ok(RingReader {
            ring,
            builder: BatchBuilder::default(),
        })
    }

    /// Waits until there is something, and takes it.
    ///
    /// # Errors
    /// When the reactor fails.
    pub async fn next(&mut self) -> io::Result<Batch> {
        loop {
            let batch = self.drain();
            if !batch.is_empty() {
                return Ok(batch);
            }
            let mut guard = self.ring.readable_mut().await?;
            guard.clear_ready();
        }
    }

    /// What is there now, without waiting; at most a batch.
    pub fn drain(&mut self) -> Batch {
        let ring = self.ring.get_mut();
        for _ in 0..BATCH_ENTRIES {
            match ring.next() {
                Some(entry) => self.builder.push(&entry),
                None => break,
            }
        }
        self.builder.take()
    }
}

impl AsRawFd for RingReader {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.ring.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_not_understood_are_counted_and_skipped() {
        let mut builder = BatchBuilder::default();
        builder.push(&[1, 2, 3]);
        builder.push(&[0; 200]);
        let counts = builder.take().decode(|event, _| panic!("{event:?}"));
        assert_eq!(
            counts,
            Decoded {
                decoded: 0,
                rejected: 2
            }
        );
        assert!(builder.take().is_empty());
    }

    #[test]
    fn a_cut_off_batch_ends_it() {
        let counts = Batch(Bytes::from_static(&[200, 0, 0, 0, 1])).decode(|event, _| panic!("{event:?}"));
        assert_eq!(
            counts,
            Decoded {
                decoded: 0,
                rejected: 1
            }
        );
    }
}
