//! UIO operations that are under way and have taken long: who is inside, who waits for whom.

use super::snapshot::{InProgress, InUio};
use super::waits::{TAKERS, bare};
use crate::event::{DeviceKey, LockWait, MonotonicNs, Task, TaskStack, UioOp, UioRunning};
use std::collections::BTreeSet;

/// Reads of attributes, whose functions' names others have, too.
const ATTRIBUTES: [&str; 2] = ["name_show", "version_show"];

/// Whether a stack is that of a thread inside a UIO operation.
pub fn in_uio(frames: &[String]) -> bool {
    frames
        .iter()
        .map(|frame| bare(frame))
        .any(|frame| TAKERS.contains(&frame) || ATTRIBUTES.contains(&frame))
}

/// The latest look at the kernel side's slots.
#[derive(Debug, Clone, Default)]
pub struct Running {
    rows: Vec<UioRunning>,
    /// Operations (thread, begin) whose return was missed: their thread was seen elsewhere.
    ghosts: BTreeSet<(u32, MonotonicNs)>,
}

impl Running {
    /// All there are now, instead of those before.
    pub fn set(&mut self, mut rows: Vec<UioRunning>) {
        for row in &mut rows {
            row.by = super::clean(std::mem::take(&mut row.by));
            if let Some(wait) = &mut row.waits {
                wait.holder = wait.holder.take().map(super::clean);
            }
        }
        let key = |row: &UioRunning| (row.by.tid, row.since_ns);
        let keys: BTreeSet<_> = rows.iter().map(key).collect();
        self.ghosts.retain(|ghost| keys.contains(ghost));
        rows.retain(|row| !self.ghosts.contains(&key(row)));
        self.rows = rows;
    }

    /// Where threads are now: one that waits elsewhere has left its operation, and only the return was missed.
    pub fn stacks(&mut self, stacks: &[TaskStack]) {
        for stack in stacks {
            if stack.frames.is_empty() || in_uio(&stack.frames) {
                continue;
            }
            for row in &self.rows {
                if row.by.tid == stack.task.tid {
                    self.ghosts.insert((row.by.tid, row.since_ns));
                }
            }
        }
        self.rows
            .retain(|row| !self.ghosts.contains(&(row.by.tid, row.since_ns)));
    }

    /// The operations.
    pub fn rows(&self) -> &[UioRunning] {
        &self.rows
    }

    /// Whether this thread is in one.
    pub fn has(&self, tid: u32) -> bool {
        self.rows.iter().any(|row| row.by.tid == tid)
    }

    /// Records `in_progress`. `uncertain`: returns were missed, so what is shown may be over.
    pub fn in_progress(
        &self,
        now_ns: MonotonicNs,
        uncertain: bool,
        name: impl Fn(DeviceKey) -> Option<String>,
    ) -> impl Iterator<Item = InProgress> {
        self.rows.iter().map(move |row| {
            let device = format!("uio{}", row.device.minor);
            let owner = match name(row.device) {
                Some(name) => format!("{device} ({name})"),
                None => device.clone(),
            };
            let age_ns = now_ns.saturating_sub(row.since_ns);
            InProgress {
                subject: "uio_op".to_owned(),
                owner,
                tgid: row.by.tgid,
                tid: row.by.tid,
                comm: row.by.comm.clone(),
                phase: phase(row).to_owned(),
                age_ns: Some(age_ns),
                seen_ns: age_ns,
                references: None,
                detail: self.detail(row),
                stack: None,
                direct_files: None,
                uncertain,
                uio: Some(InUio {
                    minor: row.device.minor,
                    generation: row.device.generation,
                    op: row.op.name().to_owned(),
                    wait_ns: row
                        .waits
                        .as_ref()
                        .map(|wait| now_ns.saturating_sub(wait.since_ns)),
                    holder: row.waits.as_ref().and_then(|wait| wait.holder.clone()),
                    holder_op: row
                        .waits
                        .as_ref()
                        .and_then(|wait| wait.holder_op)
                        .map(|op| op.name().to_owned()),
                }),
            }
        })
    }

    fn detail(&self, row: &UioRunning) -> String {
        let op = row.op.name();
        match &row.waits {
            Some(LockWait {
                holder: Some(holder),
                holder_op,
                ..
            }) => format!("{op}; {}", behind(holder, *holder_op)),
            Some(LockWait { info_lock: true, .. }) => {
                format!("{op}; who held the lock when it began to wait is not known")
            }
            Some(_) => op.to_owned(),
            None => {
                let waiters = self.rows.iter().filter(|other| {
                    let holder = other.waits.as_ref().and_then(|wait| wait.holder.as_ref());
                    holder.is_some_and(|holder| holder.tid == row.by.tid)
                });
                match waiters.count() {
                    0 => op.to_owned(),
                    n => format!(
                        "{op}; {} began to wait behind it",
                        crate::format::plural(n as u64, "other")
                    ),
                }
            }
        }
    }
}

/// What it waits for.
fn phase(row: &UioRunning) -> &'static str {
    match (&row.waits, row.op) {
        (Some(wait), _) if wait.info_lock => "info_lock",
        (Some(_), _) => "another lock",
        // With a lock it is at the driver, with a percpu_ref at those who hold a reference: the ref has a row of its own.
        (None, UioOp::Unregister) => "the unregistration",
        (None, _) => "the driver",
    }
}

/// `behind fio (12/13) in write`
pub fn behind(holder: &Task, op: Option<UioOp>) -> String {
    let Task { comm, tgid, tid } = holder;
    match op {
        Some(op) => format!("behind {comm} ({tgid}/{tid}) in {}", op.name()),
        None => format!("behind {comm} ({tgid}/{tid})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::KernelPtr;

    fn task(tid: u32) -> Task {
        Task {
            tgid: 1,
            tid,
            comm: "a\x1bb".into(),
        }
    }

    fn row(tid: u32, since_ns: u64, behind: Option<u32>) -> UioRunning {
        UioRunning {
            by: task(tid),
            device: DeviceKey {
                minor: 2,
                generation: 0,
            },
            idev: KernelPtr(0x1000),
            op: UioOp::Write,
            since_ns,
            waits: behind.map(|tid| LockWait {
                info_lock: true,
                since_ns: since_ns + 5,
                holder: Some(task(tid)),
                holder_op: Some(UioOp::Poll),
            }),
        }
    }

    fn stack(tid: u32, frames: &[&str]) -> TaskStack {
        TaskStack {
            task: task(tid),
            frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
            direct_files: None,
        }
    }

    #[test]
    fn who_waits_and_who_is_waited_for() {
        let mut running = Running::default();
        running.set(vec![
            row(5, 100, None),
            row(6, 200, Some(5)),
            row(7, 300, Some(5)),
        ]);
        let rows: Vec<InProgress> = running
            .in_progress(1_000, false, |_| Some("dev".into()))
            .collect();
        assert_eq!(rows[0].phase, "the driver");
        assert_eq!(rows[0].detail, "write; 2 others began to wait behind it");
        assert_eq!(rows[0].comm, "a?b");
        assert_eq!(rows[1].owner, "uio2 (dev)");
        assert_eq!(rows[1].phase, "info_lock");
        assert_eq!(rows[1].detail, "write; behind a?b (1/5) in poll");
        assert_eq!(rows[1].age_ns, Some(800));
        assert_eq!(rows[1].uio.as_ref().unwrap().wait_ns, Some(795));
    }

    #[test]
    fn a_missed_return_is_no_ghost() {
        let mut running = Running::default();
        let both = vec![row(5, 100, None), row(6, 200, None)];
        running.set(both.clone());
        running.stacks(&[
            stack(5, &["usleep_range_state", "uio_write", "vfs_write"]),
            stack(6, &["futex_wait", "do_futex"]),
        ]);
        assert_eq!(running.rows().len(), 1);
        // The slot still says so the next time.
        running.set(both);
        assert_eq!(running.rows().iter().map(|r| r.by.tid).collect::<Vec<_>>(), [5]);
        // A running thread has no stack to be read: nothing is known.
        running.stacks(&[stack(5, &[])]);
        assert!(running.has(5));
        // The thread's next operation is another one.
        running.set(vec![row(6, 900, None)]);
        assert!(running.has(6) && !running.has(5));
    }
}
