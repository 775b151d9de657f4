//! Operations of threads that are ending already.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, bail};

use super::{Guest, number, same, shortened};
use crate::device::Testbed;
use crate::tool::Tool;

const PAGE: usize = 4096;
/// Pages of the device's memory, and threads that end, each with a page of its own.
const PAGES: usize = 16;
const STACK: usize = 64 << 10;

/// The device's memory, mapped for as long as this lives.
struct Memory(*mut libc::c_void);

impl Memory {
    fn map(device: &Testbed) -> Result<Memory> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(device.node())
            .with_context(|| format!("cannot open {}", device.node()))?;
        // SAFETY: a new mapping at a place the kernel chooses; the result is checked.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGES * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            bail!("cannot map the device: {}", std::io::Error::last_os_error());
        }
        Ok(Memory(start))
    }

    fn page(&self, index: usize) -> *mut libc::c_void {
        // SAFETY: callers stay below PAGES.
        unsafe { self.0.add(index * PAGE) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nothing refers to any more.
        unsafe { libc::munmap(self.0, PAGES * PAGE) };
    }
}

/// Asks the kernel to clear a word when this task ends, and ends: the word's page comes in by a fault inside of the exit
/// (kernel/fork.c, `mm_release`).
extern "C" fn end_with_a_fault(page: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the word is in the mapping, which the parent keeps until this task is gone; nothing of the process but the
    // task itself is changed.
    unsafe {
        libc::syscall(libc::SYS_set_tid_address, page);
        libc::syscall(libc::SYS_exit, 0);
    }
    0
}

/// A task in this process's memory that ends so; its id.
fn ended(page: *mut libc::c_void) -> Result<u64> {
    let mut stack = vec![0_u8; STACK];
    let top = stack.as_mut_ptr_range().end;
    let top = top.wrapping_sub(top.addr() % 16);
    // SAFETY: the stack lives until the task is gone, for which CLONE_VFORK and waitpid wait; until then this thread does not run,
    // so what both share (errno) is nobody's.
    let pid = unsafe {
        libc::clone(
            end_with_a_fault,
            top.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            page,
        )
    };
    if pid < 0 {
        bail!("cannot start a task: {}", std::io::Error::last_os_error());
    }
    let mut status = 0;
    // SAFETY: the status is valid for the call.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if waited != pid || status != 0 {
        bail!("the task ended with {status}");
    }
    Ok(u64::try_from(pid)?)
}

/// Page faults on device memory while a task exits: each is counted, as the task's own, and leaves nothing behind.
pub fn faults(_: &Guest) -> Result<String> {
    let device = Testbed::find(0)?;
    let memory = Memory::map(&device)?;
    let tool = Tool::start(&["--slow", "1us"])?;
    let mut ended_ids = BTreeSet::new();
    for index in 0..PAGES {
        ended_ids.insert(ended(memory.page(index))?);
    }
    // All pages are there now: had the kernel not touched one, this would be one more fault, of this task.
    for index in 0..PAGES {
        // SAFETY: inside of the mapping.
        unsafe { memory.page(index).cast::<u8>().read_volatile() };
    }
    let records = tool.finish()?;
    let fault = records.operation(&device.name, "fault");
    same("faults", number(fault, "/count")?, PAGES as u64)?;
    let of: BTreeSet<u64> = records
        .of("slow_op")
        .filter(|row| row["op"] == "fault")
        .filter_map(|row| row["tid"].as_u64())
        .collect();
    same("tasks that had a fault", &of, &ended_ids)?;
    if let Some(row) = records
        .of("in_progress")
        .filter(|row| row["subject"] == "uio_op")
        .last()
    {
        bail!("still under way: {}", shortened(row));
    }
    super::uio::nothing_lost(&records)?;
    Ok(format!("{PAGES} faults of tasks on their way out"))
}
