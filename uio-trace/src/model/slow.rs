//! Slow UIO operations one by one, with who held the lock while they waited.

use super::limits::MAX_SLOW_OPS;
use super::snapshot::SlowOp;
use crate::event::UioSlow;

/// What is kept for one scope.
#[derive(Debug, Clone, Default)]
struct Kept {
    /// Longest latency first, at most [`MAX_SLOW_OPS`].
    ops: Vec<UioSlow>,
}

/// Slow operations of both scopes.
#[derive(Debug, Clone, Default)]
pub struct SlowOps {
    since_start: Kept,
    interval: Kept,
}

impl SlowOps {
    /// A slow sample, at its exit.
    pub fn apply(&mut self, slow: UioSlow) {
        self.interval.add(&slow);
        self.since_start.add(&slow);
    }

    /// A new interval begins.
    pub fn begin_interval(&mut self) {
        self.interval = Kept::default();
    }

    /// Slow operations, longest first.
    pub fn ops(&self, interval: bool) -> Vec<SlowOp> {
        self.scope(interval).ops.iter().map(slow_op).collect()
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
    fn add(&mut self, slow: &UioSlow) {
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
        holder_op: s.holder_op.map(|op| op.name().to_owned()),
    }
}
