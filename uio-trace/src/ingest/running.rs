//! UIO operations under way: the kernel side's in-flight slots, mapped, and looked through for those that take long.
//!
//! Nothing on the traced path pays for this: the slots are there anyway, and only memory is read.

use crate::{
    event::{DeviceKey, KernelPtr, LockWait, MonotonicNs, Task, UioOp, UioRunning},
    ingest::decode,
    kernel::Root,
    model::limits::{MAX_RUNNING, RUNNING_AFTER_NS},
    probes::session::{Session, SessionError},
};
use aya::maps::Map;
use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    ptr::NonNull,
    sync::atomic::{Ordering, fence},
};
use uio_trace_common::uio::{INFLIGHT_BITS, InFlight};

/// Slots in the map.
const SLOTS: usize = 2 << INFLIGHT_BITS;

/// The mapped slots.
pub struct RunningReader {
    slots: NonNull<InFlight>,
    /// Operations were told of last time: that there are none any more is news.
    told: bool,
}

// SAFETY: the mapping belongs to this value alone and is only read.
unsafe impl Send for RunningReader {}

impl RunningReader {
    /// Maps the slots.
    ///
    /// # Errors
    /// [`SessionError::Map`] when the map is not there or cannot be mapped.
    pub fn new(session: &Session) -> Result<RunningReader, SessionError> {
        let fail = |cause: String| SessionError::Map {
            map: "INFLIGHT",
            cause,
        };
        let Map::Array(data) = session.map("INFLIGHT")? else {
            return Err(fail("is no array".to_owned()));
        };
        // SAFETY: a new mapping of a whole map of this size at a place the kernel chooses; the result is checked.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                SLOTS * size_of::<InFlight>(),
                libc::PROT_READ,
                libc::MAP_SHARED,
                data.fd().as_fd().as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(fail(io::Error::last_os_error().to_string()));
        }
        let slots = NonNull::new(address.cast()).ok_or_else(|| fail("is mapped nowhere".to_owned()))?;
        Ok(RunningReader { slots, told: false })
    }

    /// Operations that have taken long by now; `None`: none has, and none had.
    pub fn read(&mut self, root: &Root, now_ns: MonotonicNs, hosts_pids: bool) -> Option<Vec<UioRunning>> {
        let mut found: Vec<UioRunning> = (0..SLOTS)
            .filter_map(|index| self.slot(index, now_ns))
            .filter_map(|slot| running(&slot, |tid| task(root, tid, hosts_pids)))
            .take(MAX_RUNNING)
            .collect();
        found.sort_by_key(|row| (row.since_ns, row.by.tid));
        let news = self.told || !found.is_empty();
        self.told = !found.is_empty();
        news.then_some(found)
    }

    /// A copy of a slot whose operation has taken long. The kernel side may be at it: an operation that ends or begins meanwhile
    /// has another begin after the copy than before.
    fn slot(&self, index: usize, now_ns: MonotonicNs) -> Option<InFlight> {
        if index >= SLOTS {
            return None;
        }
        // SAFETY: inside of the mapping, which lives as long as this value.
        let slot = unsafe { self.slots.add(index) };
        // SAFETY: as above; aligned as the map's values are; the kernel writes whole words.
        let begin = || unsafe { (&raw const (*slot.as_ptr()).start_ns).read_volatile() };
        let start_ns = begin();
        if start_ns == 0 || start_ns.saturating_add(RUNNING_AFTER_NS) > now_ns {
            return None;
        }
        fence(Ordering::Acquire);
        // SAFETY: as above; any bit pattern is a value of a struct of integers.
        let copy = unsafe { slot.as_ptr().read_volatile() };
        fence(Ordering::Acquire);
        (copy.start_ns == start_ns && begin() == start_ns).then_some(copy)
    }
}

impl Drop for RunningReader {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size, and nothing refers to it any more.
        unsafe { libc::munmap(self.slots.as_ptr().cast(), SLOTS * size_of::<InFlight>()) };
    }
}

/// The thread as /proc has it; `None`: it is gone, and so is its operation.
fn task(root: &Root, tid: u32, hosts_pids: bool) -> Option<Task> {
    if !hosts_pids {
        // Whose it is cannot be looked up by the kernel's number.
        return Some(Task {
            tgid: 0,
            tid,
            comm: "?".to_owned(),
        });
    }
    let status = root.text(format!("proc/{tid}/status")).ok()?;
    let value = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"))
    };
    Some(Task {
        tgid: value("Tgid")?.trim().parse().ok()?,
        tid,
        comm: value("Name")?.to_owned(),
    })
}

/// What a slot says. Not of one begun while hooks were being attached, whose end may not be seen; not of a registration; and a
/// read that does not wait for a lock sleeps for the interrupt, as it should.
fn running(slot: &InFlight, task: impl Fn(u32) -> Option<Task>) -> Option<UioRunning> {
    let op = UioOp::from_raw(slot.operation()).filter(|_| !slot.early())?;
    let waits = (slot.waited() && slot.awaited != 0).then(|| {
        let info_lock = (slot.lock_from..slot.lock_to).contains(&slot.awaited);
        LockWait {
            info_lock,
            since_ns: slot.await_ns,
            holder: (info_lock && slot.holder_tid != 0).then(|| Task {
                tgid: slot.holder_tgid,
                tid: slot.holder_tid,
                comm: decode::comm(&slot.holder_comm),
            }),
            holder_op: UioOp::from_raw(slot.holder_op).filter(|_| info_lock && slot.holder_tid != 0),
        }
    });
    if op == UioOp::Read && waits.is_none() {
        return None;
    }
    Some(UioRunning {
        by: task(slot.tid)?,
        device: DeviceKey {
            minor: slot.minor,
            generation: slot.generation,
        },
        idev: KernelPtr(slot.idev),
        op,
        since_ns: slot.start_ns,
        waits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uio_trace_common::uio::{EARLY, OP_OPEN, OP_READ, OP_UNKNOWN, OP_WRITE, OPS, WAITED};
    use zerocopy::FromZeros;

    fn slot(op: u32) -> InFlight {
        let mut slot = InFlight::new_zeroed();
        slot.start_ns = 100;
        slot.tid = 7;
        slot.op = op;
        slot.minor = 3;
        (slot.lock_from, slot.lock_to) = (0x1000, 0x2000);
        slot
    }

    fn someone(tid: u32) -> Option<Task> {
        (tid == 7).then(|| Task {
            tgid: 6,
            tid,
            comm: "w".into(),
        })
    }

    #[test]
    fn who_waits_for_what_behind_whom() {
        let mut waiter = slot(OP_WRITE | WAITED);
        waiter.awaited = 0x1010;
        waiter.await_ns = 120;
        waiter.holder_tid = 9;
        waiter.holder_tgid = 8;
        waiter.holder_op = OP_OPEN;
        waiter.holder_comm[..2].copy_from_slice(b"hd");
        let row = running(&waiter, someone).unwrap();
        assert_eq!((row.op, row.since_ns, row.by.tgid), (UioOp::Write, 100, 6));
        let waits = row.waits.unwrap();
        assert!(waits.info_lock);
        assert_eq!((waits.since_ns, waits.holder_op), (120, Some(UioOp::Open)));
        assert_eq!(waits.holder.unwrap().comm, "hd");
        // Another lock: who holds it is not known, whatever was before.
        waiter.awaited = 0x9000;
        let waits = running(&waiter, someone).unwrap().waits.unwrap();
        assert_eq!(
            (waits.info_lock, waits.holder, waits.holder_op),
            (false, None, None)
        );
        // The wait is over.
        waiter.awaited = 0;
        assert_eq!(running(&waiter, someone).unwrap().waits, None);
        waiter.awaited = 0x1010;
        waiter.holder_op = OP_UNKNOWN;
        assert_eq!(running(&waiter, someone).unwrap().waits.unwrap().holder_op, None);
    }

    #[test]
    fn what_is_no_long_operation() {
        // What `awaited` holds of a slot that has not waited is left from an earlier operation.
        let mut old = slot(OP_WRITE);
        old.awaited = 0x1010;
        assert_eq!(running(&old, someone).unwrap().waits, None);
        assert_eq!(running(&slot(OP_READ), someone), None);
        assert_eq!(running(&slot(OP_WRITE | EARLY), someone), None);
        assert_eq!(running(&slot(OPS), someone), None);
        // The thread is gone.
        assert_eq!(running(&slot(OP_WRITE), |_| None), None);
    }

    #[test]
    fn a_thread_by_its_number() {
        let me = std::process::id();
        let found = task(&Root::system(), me, true).unwrap();
        assert_eq!((found.tgid, found.tid), (me, me));
        assert_eq!(task(&Root::system(), u32::MAX, true), None);
        assert_eq!(task(&Root::system(), 5, false).unwrap().comm, "?");
    }
}
