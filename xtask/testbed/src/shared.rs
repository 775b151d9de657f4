//! Memory shared between a workload and the processes it forks.

use std::sync::atomic::AtomicU64;

use anyhow::{Result, bail};

/// A page of atomic words that stays shared across fork().
#[derive(Debug)]
pub struct SharedWords {
    address: *mut AtomicU64,
}

/// Words in the page.
pub const WORDS: usize = 512;

impl SharedWords {
    /// Maps a page of zeroes.
    pub fn new() -> Result<SharedWords> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice; no existing memory is touched.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                WORDS * 8,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            bail!("cannot map shared memory: {}", std::io::Error::last_os_error());
        }
        Ok(SharedWords {
            address: address.cast(),
        })
    }

    /// The word with this index.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < WORDS, "no such shared word");
        // SAFETY: the index is inside the mapping, which lives as long as self; zeroed memory is a valid atomic.
        unsafe { &*self.address.add(index) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in new() with this length and no reference to it outlives self.
        unsafe { libc::munmap(self.address.cast(), WORDS * 8) };
    }
}
