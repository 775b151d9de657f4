//! Slow UIO operations one by one, and who held the lock while they waited.

use super::limits::{MAX_BLOCKERS, MAX_RECENT_HOLDERS, MAX_SLOW_OPS, SHOWN_BLOCKERS};
use super::snapshot::{Blocker, SlowOp};
use crate::event::{DeviceKey, MonotonicNs, Task, UioOp, UioSlow};
use std::collections::HashMap;

/// A holder's last slow operation: from acquiring the lock to exit.
#[derive(Debug, Clone, Copy)]
struct Held {
    from_ns: MonotonicNs,
    to_ns: MonotonicNs,
    op: UioOp,
}

/// What is kept for one scope.
#[derive(Debug, Clone, Default)]
struct Kept {
    /// Longest latency first, at most [`MAX_SLOW_OPS`].
    ops: Vec<UioSlow>,
    seen: u64,
    blockers: HashMap<(DeviceKey, u32, u32), Counted>,
}

/// Counts of one holder thread of one device.
#[derive(Debug, Clone)]
struct Counted {
    comm: String,
    op: Option<UioOp>,
    count: u64,
    wait_ns: u64,
}

/// Slow operations of both scopes.
#[derive(Debug, Clone, Default)]
pub struct SlowOps {
    since_start: Kept,
    interval: Kept,
    recent: HashMap<(DeviceKey, u32), Held>,
    /// Waits whose holder found no place in the table.
    pub blockers_lost: u64,
}

impl SlowOps {
    /// A slow sample, at its exit.
    pub fn apply(&mut self, ts_ns: MonotonicNs, slow: UioSlow) {
        let op = slow.holder.as_ref().and_then(|h| self.holder_op(ts_ns, &slow, h));
        if self.recent.len() >= MAX_RECENT_HOLDERS {
            self.recent.clear();
        }
        if slow.op != UioOp::Read {
            let held = Held {
                from_ns: ts_ns.saturating_sub(slow.hold_ns),
                to_ns: ts_ns,
                op: slow.op,
            };
            self.recent.insert((slow.device, slow.by.tid), held);
        }
        let lost = self.since_start.add(&slow, op);
        self.interval.add(&slow, op);
        self.blockers_lost += u64::from(lost);
    }

    /// What the holder did when the wait began: known when the holder's own operation was slow too, and then its
    /// sample, sent at its exit, came before the waiter's.
    fn holder_op(&self, ts_ns: MonotonicNs, slow: &UioSlow, holder: &Task) -> Option<UioOp> {
        let held = self.recent.get(&(slow.device, holder.tid))?;
        // The wait begins with the operation, up to the instructions before the lock.
        let wait_from = ts_ns.saturating_sub(slow.latency_ns);
        let wait_to = wait_from.saturating_add(slow.wait_ns);
        (held.from_ns <= wait_to && held.to_ns >= wait_from).then_some(held.op)
    }

    /// A new interval begins.
    pub fn begin_interval(&mut self) {
        self.interval = Kept::default();
    }

    /// Slow operations, longest first.
    pub fn ops(&self, interval: bool) -> Vec<SlowOp> {
        self.scope(interval).ops.iter().map(slow_op).collect()
    }

    /// Holders of a device's lock, by the waits behind them.
    pub fn blockers(&self, interval: bool, device: DeviceKey) -> Vec<Blocker> {
        let mut rows: Vec<Blocker> = self
            .scope(interval)
            .blockers
            .iter()
            .filter(|(key, _)| key.0 == device)
            .map(|(&(_, tgid, tid), c)| Blocker {
                op: c.op.map(|op| op.name().to_string()),
                comm: c.comm.clone(),
                tgid,
                tid,
                count: c.count,
                wait_ns: c.wait_ns,
            })
            .collect();
        rows.sort_by_key(|b| (std::cmp::Reverse(b.wait_ns), b.tgid, b.tid));
        rows.truncate(SHOWN_BLOCKERS);
        rows
    }

    fn scope(&self, interval: bool) -> &Kept {
        if interval {
            &self.interval
        } else {
            &self.since_start
        }
    }
}

impl Kept {
    /// Adds a sample; true when its holder could not be counted.
    fn add(&mut self, slow: &UioSlow, op: Option<UioOp>) -> bool {
        self.seen += 1;
        let full = self.ops.len() >= MAX_SLOW_OPS;
        if !full
            || self
                .ops
                .last()
                .is_some_and(|last| last.latency_ns < slow.latency_ns)
        {
            let at = self.ops.partition_point(|o| o.latency_ns >= slow.latency_ns);
            self.ops.insert(at, slow.clone());
            self.ops.truncate(MAX_SLOW_OPS);
        }
        let Some(holder) = &slow.holder else { return false };
        let key = (slow.device, holder.tgid, holder.tid);
        if !self.blockers.contains_key(&key) && self.blockers.len() >= MAX_BLOCKERS {
            return true;
        }
        let counted = self.blockers.entry(key).or_insert_with(|| Counted {
            comm: holder.comm.clone(),
            op: None,
            count: 0,
            wait_ns: 0,
        });
        counted.op = op.or(counted.op);
        counted.count += 1;
        counted.wait_ns = counted.wait_ns.saturating_add(slow.wait_ns);
        false
    }
}

fn slow_op(s: &UioSlow) -> SlowOp {
    SlowOp {
        sysfs_name: format!("uio{}", s.device.minor),
        op: s.op.name().to_string(),
        tgid: s.by.tgid,
        tid: s.by.tid,
        comm: s.by.comm.clone(),
        latency_ns: s.latency_ns,
        wait_ns: s.wait_ns,
        hold_ns: s.hold_ns,
        driver_wait_ns: s.driver_wait_ns,
        holder: s
            .holder
            .as_ref()
            .map(|h| format!("{} ({}/{})", h.comm, h.tgid, h.tid)),
    }
}
