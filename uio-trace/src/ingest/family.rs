//! Which processes descend from the one that `exec` started: threads, forks, also those whose parent is gone.
//!
//! The kernel itself hands a perf event with `inherit` on to whatever its task forks, and with `task` writes a record of
//! each fork (perf_event_open(2)). So nothing is polled and nobody can slip through by forking twice. A child's record is
//! written before the child runs: whoever takes events of the trace first and then calls [`Family::update`] knows all
//! processes that these events can be of. No privilege is needed, and nothing is counted: the event is a dummy.

use crate::kernel::{Root, cpus};
use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::{FromRawFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Data pages of a CPU's ring, a power of two: 64 KiB, two thousand forks between two readings.
const PAGES: usize = 16;
/// `PERF_ATTR_SIZE_VER0` of include/uapi/linux/perf_event.h.
const ATTR_BYTES: u32 = 64;
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_DUMMY: u64 = 9;
const ATTR_INHERIT: u64 = 1 << 1;
const ATTR_EXCLUDE_KERNEL: u64 = 1 << 5;
const ATTR_EXCLUDE_HV: u64 = 1 << 6;
const ATTR_TASK: u64 = 1 << 13;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_EXIT: u32 = 4;
const PERF_RECORD_FORK: u32 = 7;
/// Offsets in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
/// Processes are remembered for so long after their end: events of theirs may still be on the way.
const LINGER: Duration = Duration::from_secs(10);

/// The first part of `struct perf_event_attr`, include/uapi/linux/perf_event.h.
#[repr(C)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}

const _: () = assert!(std::mem::size_of::<Attr>() == ATTR_BYTES as usize);

/// A CPU's ring of records.
#[derive(Debug)]
struct Ring {
    base: NonNull<u8>,
    page: usize,
    _event: OwnedFd,
}

/// A process or thread came or went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Fork { pid: u32, parent: u32, tid: u32 },
    Exit { pid: u32, tid: u32 },
    Lost(u64),
}

impl Ring {
    fn open(cpu: u32) -> io::Result<Ring> {
        let attr = Attr {
            kind: PERF_TYPE_SOFTWARE,
            size: ATTR_BYTES,
            config: PERF_COUNT_SW_DUMMY,
            sample_period: 0,
            sample_type: 0,
            read_format: 0,
            flags: ATTR_INHERIT | ATTR_EXCLUDE_KERNEL | ATTR_EXCLUDE_HV | ATTR_TASK,
            wakeup_events: 0,
            bp_type: 0,
            config1: 0,
        };
        // SAFETY: `attr` is as long as it says, and lives through the call; 0 is the calling thread, -1 no group.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attr,
                0,
                cpu as libc::c_int,
                -1,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let event = unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) };
        // SAFETY: plain number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        // SAFETY: a new mapping of the event's ring, at a place the kernel chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page * (PAGES + 1),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd as libc::c_int,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Ring {
            base,
            page,
            _event: event,
        })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the mapping's first page, aligned for a u64, shared with the kernel, which the atomic allows.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// The bytes of all whole records since the last call.
    fn take(&self) -> Vec<u8> {
        let head = self.word(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.word(DATA_TAIL).load(Ordering::Relaxed);
        let size = (self.page * PAGES) as u64;
        let bytes = (tail..head).map(|at| {
            // SAFETY: within the data pages; the kernel does not write between tail and head.
            unsafe { *self.base.as_ptr().add(self.page + (at % size) as usize) }
        });
        let bytes = bytes.collect();
        self.word(DATA_TAIL).store(head, Ordering::Release);
        bytes
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping of `open`, which nothing refers to any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.page * (PAGES + 1)) };
    }
}

/// Records of a ring: `struct perf_event_header`, then pid, ppid, tid, ptid, time for forks and exits.
fn parse(mut bytes: &[u8]) -> Vec<Change> {
    let word = |bytes: &[u8], at: usize| -> Option<u32> {
        bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
    };
    let mut changes = Vec::new();
    while let (Some(kind), Some(sizes)) = (word(bytes, 0), word(bytes, 4)) {
        // `misc` and `size`, 16 bits each.
        let size = sizes.to_ne_bytes();
        let size = usize::from(u16::from_ne_bytes([size[2], size[3]]));
        if size < 8 || size > bytes.len() {
            break;
        }
        let (record, rest) = bytes.split_at(size);
        bytes = rest;
        let (first, second, third) = (word(record, 8), word(record, 12), word(record, 16));
        let change = match (kind, first, second, third) {
            (PERF_RECORD_FORK, Some(pid), Some(parent), Some(tid)) => Some(Change::Fork { pid, parent, tid }),
            (PERF_RECORD_EXIT, Some(pid), _, Some(tid)) => Some(Change::Exit { pid, tid }),
            // An id of 64 bits, then how many, of 64 bits.
            (PERF_RECORD_LOST, _, _, Some(low)) => Some(Change::Lost(u64::from(low))),
            _ => None,
        };
        changes.extend(change);
    }
    changes
}

/// The processes, and where news of them come from.
#[derive(Debug, Default)]
pub struct Family {
    rings: Vec<Ring>,
    /// Threads of each process that has not ended.
    alive: HashMap<u32, HashSet<u32>>,
    /// Those, and the ones that ended lately.
    members: HashSet<u32>,
    ended: Vec<(u32, Instant)>,
    /// Forks whose parent is not known to belong to it: of this process itself, until [`Family::adopt`].
    strangers: Vec<Change>,
    seen: u64,
    lost: u64,
}

impl Family {
    /// Watches what the calling thread starts from now on.
    ///
    /// # Errors
    /// When the kernel allows no perf events.
    pub fn watch(root: &Root) -> io::Result<Family> {
        let mut family = Family::default();
        let mut refused = io::Error::other("no CPU is online");
        for cpu in cpus::online(root) {
            match Ring::open(cpu) {
                Ok(ring) => family.rings.push(ring),
                Err(error) => refused = error,
            }
        }
        if family.rings.is_empty() {
            return Err(refused);
        }
        Ok(family)
    }

    /// This process, started since, is the first of it.
    pub fn adopt(&mut self, pid: u32) {
        self.alive.entry(pid).or_default().insert(pid);
        self.members.insert(pid);
        self.seen += 1;
        self.update();
    }

    /// Reads what came and went.
    pub fn update(&mut self) {
        let mut changes = std::mem::take(&mut self.strangers);
        for ring in &self.rings {
            changes.extend(parse(&ring.take()));
        }
        self.apply(changes, Instant::now());
    }

    fn apply(&mut self, changes: Vec<Change>, now: Instant) {
        // Rings of different CPUs are in no order, so a child's forks may come before its own: until nothing new is found.
        let mut exits = Vec::new();
        let mut forks = Vec::new();
        for change in changes {
            match change {
                Change::Fork { .. } => forks.push(change),
                Change::Exit { pid, tid } => exits.push((pid, tid)),
                Change::Lost(count) => self.lost += count,
            }
        }
        loop {
            let before = forks.len();
            forks.retain(|fork| match *fork {
                Change::Fork { pid, parent, tid } if self.members.contains(&parent) => {
                    if self.members.insert(pid) {
                        self.seen += 1;
                    }
                    self.ended.retain(|(ended, _)| *ended != pid);
                    self.alive.entry(pid).or_default().insert(tid);
                    false
                }
                _ => true,
            });
            if forks.len() == before {
                break;
            }
        }
        for (pid, tid) in exits {
            if let Some(threads) = self.alive.get_mut(&pid) {
                threads.remove(&tid);
                if threads.is_empty() {
                    self.alive.remove(&pid);
                    self.ended.push((pid, now));
                }
            }
        }
        // Of this process' own threads, mostly; what is of the family finds its parent within a reading or two.
        let keep = forks.len().saturating_sub(1024);
        self.strangers = forks.split_off(keep);
        let members = &mut self.members;
        self.ended.retain(|(pid, at)| {
            let lingers = now.saturating_duration_since(*at) < LINGER;
            if !lingers {
                members.remove(pid);
            }
            lingers
        });
    }

    /// Whether a process belongs to it.
    pub fn contains(&self, pid: u32) -> bool {
        self.members.contains(&pid)
    }

    /// Processes that were part of it, ever.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Processes that have not ended.
    pub fn running(&self) -> usize {
        self.alive.len()
    }

    /// Records the kernel had no room for: as many forks may have been missed.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    fn fork(pid: u32, parent: u32) -> Change {
        Change::Fork {
            pid,
            parent,
            tid: pid,
        }
    }

    #[test]
    fn records_of_other_cpus_may_come_first() {
        let mut family = Family::default();
        family.adopt(10);
        let changes = vec![fork(13, 12), fork(12, 11), fork(11, 10), fork(99, 98)];
        family.apply(changes, Instant::now());
        assert!([10, 11, 12, 13].into_iter().all(|pid| family.contains(pid)));
        assert!(!family.contains(99));
        assert_eq!((family.seen(), family.running()), (4, 4));
    }

    #[test]
    fn a_process_ends_with_its_last_thread_and_is_known_for_a_while() {
        let mut family = Family::default();
        family.adopt(10);
        let thread = Change::Fork {
            pid: 10,
            parent: 10,
            tid: 11,
        };
        let now = Instant::now();
        family.apply(vec![thread, Change::Exit { pid: 10, tid: 10 }], now);
        assert_eq!(family.running(), 1);
        family.apply(vec![Change::Exit { pid: 10, tid: 11 }], now);
        assert_eq!(family.running(), 0);
        assert!(family.contains(10));
        family.apply(Vec::new(), now + LINGER);
        assert!(!family.contains(10), "its number may be another's by now");
    }

    #[test]
    fn broken_records_end_the_reading() {
        assert!(parse(&[7, 0, 0, 0, 0, 0, 4, 0]).is_empty());
        assert!(parse(&[7, 0, 0, 0, 0, 0, 200, 0]).is_empty());
        for length in 0..40 {
            parse(&[1; 40][..length]);
        }
    }

    #[test]
    fn forks_of_forks_are_followed_also_when_nobody_waits_for_them() {
        let mut family = match Family::watch(&Root::system()) {
            Ok(family) => family,
            // A sandbox without perf events: what follows them is tested above.
            Err(error) if error.raw_os_error().is_some() => return,
            Err(error) => panic!("{error}"),
        };
        // The inner shell's parent is gone by the time it prints its number.
        let script = "sh -c 'sh -c \"read line; echo \\$\\$; read line\" <&3 & ' 3<&0; read nothing";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        family.adopt(child.id());
        let mut input = child.stdin.take().unwrap();
        // A line for each of the two shells that read, whichever comes first.
        input.write_all(b"\n\n").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let inner: u32 = line.trim().parse().unwrap();
        family.update();
        assert!(
            family.contains(child.id()) && family.contains(inner),
            "{family:?}"
        );
        assert!(!family.contains(std::process::id()) && !family.contains(1));
        assert!(family.seen() >= 3);
        drop(input);
        child.wait().unwrap();
    }
}
