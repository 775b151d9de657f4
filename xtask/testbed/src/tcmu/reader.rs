//! Threads that read a disk at places of a random sequence, past the page cache, and compare what they get with
//! [`super::pattern`].

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Alignment that O_DIRECT wants, bytes.
const ALIGN: usize = 4096;

/// An aligned part of a buffer that is larger.
fn aligned(buffer: &mut [u8], length: usize) -> &mut [u8] {
    let skip = buffer.as_ptr().align_offset(ALIGN);
    &mut buffer[skip..skip + length]
}

fn open(disk: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(disk)
        .with_context(|| format!("cannot open {}", disk.display()))
}

/// Reads `length` bytes at `at`, all of them.
fn read_at(file: &File, at: u64, into: &mut [u8]) -> Result<()> {
    // SAFETY: `into` is a valid buffer of the length that is given.
    let got = unsafe { libc::pread(file.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), at as i64) };
    if usize::try_from(got) != Ok(into.len()) {
        let error = std::io::Error::last_os_error();
        bail!("a read of {} bytes at {at} gave {got} ({error})", into.len());
    }
    Ok(())
}

/// Reads with `threads` threads for so long; how many reads there were. A byte that is not the pattern's is a failure.
pub fn verify(disk: &Path, bytes: u64, length: usize, threads: u64, time: Duration) -> Result<u64> {
    let end = Instant::now() + time;
    let reader = |thread: u64| -> Result<u64> {
        let file = open(disk)?;
        let mut buffer = vec![0; length + ALIGN];
        let buffer = aligned(&mut buffer, length);
        let (mut random, mut count) = (thread + 1, 0);
        while Instant::now() < end {
            // Knuth's linear congruential generator; its upper bits
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = (random >> 33) % (bytes / length as u64) * length as u64;
            read_at(&file, at, buffer)?;
            if let Some(place) = (at..)
                .zip(buffer.iter())
                .find(|(at, byte)| super::pattern(*at) != **byte)
            {
                bail!("byte {} of the disk is {:#x}", place.0, place.1);
            }
            count += 1;
        }
        Ok(count)
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || reader(thread)))
            .collect();
        let mut count = 0;
        for thread in all {
            count += thread
                .join()
                .map_err(|_| anyhow::anyhow!("a reader panicked"))??;
        }
        Ok(count)
    })
}

/// Writes a block of another content at `at` and reads it back, with its neighbour behind it.
pub fn write_and_read(disk: &Path, at: u64) -> Result<()> {
    let file = open(disk)?;
    let mut buffer = vec![0; 3 * ALIGN];
    let buffer = aligned(&mut buffer, 2 * ALIGN);
    buffer[..ALIGN].fill(0xa5);
    // SAFETY: the buffer has the ALIGN bytes that are given.
    let put = unsafe { libc::pwrite(file.as_raw_fd(), buffer.as_ptr().cast(), ALIGN, at as i64) };
    if usize::try_from(put) != Ok(ALIGN) {
        bail!("a write gave {put} ({})", std::io::Error::last_os_error());
    }
    buffer.fill(0);
    read_at(&file, at, buffer)?;
    let behind = at + ALIGN as u64;
    let kept = (behind..)
        .zip(&buffer[ALIGN..])
        .all(|(at, byte)| super::pattern(at) == *byte);
    if !kept || buffer[..ALIGN].iter().any(|byte| *byte != 0xa5) {
        bail!("what was written at {at} is not what is read");
    }
    Ok(())
}
