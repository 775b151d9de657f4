//! Tasks that were waiting when the trace began: nothing tells when, but their kernel stacks tell for what.
//!
//! A row stays until the task's stack says something else, or an event of the task itself shows that it has moved on.

use super::limits::MAX_BEGUN_BEFORE;
use super::snapshot::InProgress;
use crate::event::{MonotonicNs, Task, TaskStack};
use std::collections::BTreeMap;

/// What a stack says its task waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Subject of the row: `aio_drain`, `percpu_ref`, `uio_lock`.
    pub subject: &'static str,
    /// Owner in words, as `model::owners` has them.
    pub owner: &'static str,
    /// What for.
    pub phase: &'static str,
}

/// A function in which tasks wait.
struct Place {
    function: &'static str,
    wait: Wait,
    /// It also does other things that take long: it waits only below this one.
    inside: Option<&'static str>,
}

const fn place(
    function: &'static str,
    subject: &'static str,
    owner: &'static str,
    phase: &'static str,
) -> Place {
    Place {
        function,
        wait: Wait {
            subject,
            owner,
            phase,
        },
        inside: None,
    }
}

const fn refs(function: &'static str, owner: &'static str) -> Place {
    place(function, "percpu_ref", owner, "references")
}

const fn inside(place: Place, function: &'static str) -> Place {
    Place {
        inside: Some(function),
        ..place
    }
}

const COMPLETION: &str = "wait_for_completion";

/// Where mainline 5.10 to 6.12 waits for a percpu_ref; the file is named with the owner in `model::owners`.
const PLACES: &[Place] = &[
    place("exit_aio", "aio_drain", "exit_aio", "contexts to drain"),
    place(
        "__x64_sys_io_destroy",
        "aio_drain",
        "io_destroy",
        "a context to drain",
    ),
    place(
        "__arm64_sys_io_destroy",
        "aio_drain",
        "io_destroy",
        "a context to drain",
    ),
    place(
        "__se_sys_io_destroy",
        "aio_drain",
        "io_destroy",
        "a context to drain",
    ),
    place(
        "__do_sys_io_destroy",
        "aio_drain",
        "io_destroy",
        "a context to drain",
    ),
    refs("blk_mq_freeze_queue_wait", "block queue usage"),
    refs("blk_mq_freeze_queue_wait_timeout", "block queue usage"),
    place(
        "blk_queue_enter",
        "percpu_ref",
        "block queue usage",
        "the queue to be unfrozen",
    ),
    place(
        "__bio_queue_enter",
        "percpu_ref",
        "block queue usage",
        "the queue to be unfrozen",
    ),
    refs("transport_clear_lun_ref", "target LUN"),
    refs("target_wait_for_cmds", "target session commands"),
    refs("target_wait_for_sess_cmds", "target session commands"),
    inside(refs("nvmet_ns_disable", "NVMe target namespace"), COMPLETION),
    inside(refs("nvmet_sq_destroy", "NVMe target queue"), COMPLETION),
    refs("io_ring_exit_work", "io_uring context"),
    place(
        "io_uring_cancel_generic",
        "percpu_ref",
        "io_uring context",
        "requests to be cancelled",
    ),
    place(
        "__io_uring_cancel",
        "percpu_ref",
        "io_uring context",
        "requests to be cancelled",
    ),
    inside(refs("memunmap_pages", "device memory (DAX, HMM)"), COMPLETION),
    refs("__idxd_wq_quiesce", "IDXD work queue"),
    inside(refs("nfsd_shutdown_net", "NFS server"), COMPLETION),
    inside(refs("smc_wr_free_link", "SMC-R send requests"), COMPLETION),
    inside(refs("rtrs_srv_close_work", "RTRS server requests"), COMPLETION),
    refs("rvt_check_refs", "RDMA memory region"),
    refs("mddev_suspend", "MD array active I/O"),
    inside(refs("__do_sys_swapoff", "swap device"), COMPLETION),
    inside(refs("__x64_sys_swapoff", "swap device"), COMPLETION),
    place(
        "percpu_ref_switch_to_atomic_sync",
        "percpu_ref",
        "percpu_ref",
        "a switch of its mode",
    ),
    place(
        "__percpu_ref_switch_mode",
        "percpu_ref",
        "percpu_ref",
        "a switch of its mode",
    ),
    place(
        "percpu_ref_kill_and_confirm",
        "percpu_ref",
        "percpu_ref",
        "a switch of its mode",
    ),
];

/// What a stack (innermost function first) waits for; `None`: nothing of ours.
pub fn classify(frames: &[String]) -> Option<Wait> {
    if let Some(wait) = info_lock(frames) {
        return Some(wait);
    }
    let at = |name: &str| frames.iter().position(|f| bare(f) == name);
    let hits = PLACES.iter().filter_map(|place| {
        let position = at(place.function)?;
        let waits = place
            .inside
            .is_none_or(|inner| frames[..position].iter().any(|f| bare(f).starts_with(inner)));
        waits.then_some((position, place.wait))
    });
    // The innermost says it most exactly.
    hits.min_by_key(|(position, _)| *position).map(|hit| hit.1)
}

/// Functions of drivers/uio/uio.c that take info_lock (5.10 to 7.2), but for the attributes, whose names others have, too.
pub(super) const TAKERS: [&str; 9] = [
    "uio_write",
    "uio_read",
    "uio_poll",
    "uio_mmap",
    "uio_vma_fault",
    "uio_open",
    "uio_release",
    "uio_unregister_device",
    "__uio_register_device",
];

/// A mutex taken by a function of drivers/uio/uio.c itself; one that its driver takes is not info_lock.
fn info_lock(frames: &[String]) -> Option<Wait> {
    let is_mutex = |f: &String| {
        let name = bare(f);
        name.contains("mutex_lock") || name.starts_with("rt_mutex") || name.starts_with("__rt_mutex")
    };
    let mutex = frames.iter().position(is_mutex)?;
    let taker = frames[mutex..].iter().find(|f| !is_mutex(f)).map(|f| bare(f))?;
    TAKERS.contains(&taker).then_some(Wait {
        subject: "uio_lock",
        owner: "info_lock of a UIO device",
        phase: "info_lock",
    })
}

/// Without what the compiler appends to its clones.
pub(super) fn bare(function: &str) -> &str {
    let end = [".constprop.", ".isra.", ".part.", ".cold"]
        .into_iter()
        .filter_map(|suffix| function.find(suffix))
        .min();
    end.map_or(function, |end| &function[..end])
}

/// A task that waits.
#[derive(Debug, Clone)]
struct Waiter {
    task: Task,
    wait: Wait,
    stack: Vec<String>,
    direct_files: Option<Vec<String>>,
    found_ns: MonotonicNs,
}

/// The tasks found waiting.
#[derive(Debug, Clone, Default)]
pub struct BegunBefore {
    by_tid: BTreeMap<u32, Waiter>,
    /// Tasks that found no place.
    pub refused: u64,
}

impl BegunBefore {
    /// A task found when the trace began.
    pub fn found(&mut self, ts_ns: MonotonicNs, found: TaskStack) {
        let Some(wait) = classify(&found.frames) else {
            return;
        };
        if self.by_tid.len() >= MAX_BEGUN_BEFORE && !self.by_tid.contains_key(&found.task.tid) {
            self.refused += 1;
            return;
        }
        let waiter = Waiter {
            task: found.task,
            wait,
            stack: found.frames,
            direct_files: found.direct_files,
            found_ns: ts_ns,
        };
        self.by_tid.entry(waiter.task.tid).or_insert(waiter);
    }

    /// Where the task is now.
    pub fn stack(&mut self, seen: &TaskStack) {
        if let Some(waiter) = self.by_tid.get_mut(&seen.task.tid) {
            if classify(&seen.frames) == Some(waiter.wait) {
                waiter.stack.clone_from(&seen.frames);
                waiter.direct_files.clone_from(&seen.direct_files);
            } else {
                self.by_tid.remove(&seen.task.tid);
            }
        }
    }

    /// The thread did something: it is not where it was.
    pub fn moved(&mut self, tid: u32) {
        if !self.by_tid.is_empty() {
            self.by_tid.remove(&tid);
        }
    }

    /// The tasks, to be asked for again.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.by_tid.values().map(|w| &w.task)
    }

    /// Records `in_progress`.
    pub fn in_progress(&self, now_ns: MonotonicNs) -> impl Iterator<Item = InProgress> {
        self.by_tid.values().map(move |w| {
            let mut row = w.row(now_ns);
            row.set_direct_files(w.direct_files.as_deref());
            row
        })
    }
}

impl Waiter {
    fn row(&self, now_ns: MonotonicNs) -> InProgress {
        let w = self;
        InProgress {
            subject: w.wait.subject.to_string(),
            owner: w.wait.owner.to_string(),
            tgid: w.task.tgid,
            tid: w.task.tid,
            comm: w.task.comm.clone(),
            phase: w.wait.phase.to_string(),
            age_ns: None,
            seen_ns: now_ns.saturating_sub(w.found_ns),
            references: None,
            detail: format!(
                "began before the trace; in {}",
                w.stack.first().map_or("?", |f| f)
            ),
            stack: Some(w.stack.clone()),
            direct_files: None,
            uncertain: false,
            uio: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner_of(stack: &str) -> Option<(&'static str, &'static str)> {
        let frames: Vec<String> = stack.split_whitespace().map(str::to_owned).collect();
        classify(&frames).map(|w| (w.subject, w.owner))
    }

    #[test]
    fn waits_are_told_by_the_function_that_waits() {
        let cases = [
            (
                "wait_for_completion exit_aio mmput do_exit",
                Some(("aio_drain", "exit_aio")),
            ),
            (
                "__wait_for_common __x64_sys_io_destroy do_syscall_64",
                Some(("aio_drain", "io_destroy")),
            ),
            (
                "blk_mq_freeze_queue_wait elevator_switch elv_iosched_store",
                Some(("percpu_ref", "block queue usage")),
            ),
            (
                "__mutex_lock.constprop.0 uio_write vfs_write",
                Some(("uio_lock", "info_lock of a UIO device")),
            ),
            (
                "__mutex_lock.constprop.0 tcmu_irqcontrol uio_write vfs_write",
                None,
            ),
            ("do_nanosleep hrtimer_nanosleep", None),
            (
                "__flush_work mddev_suspend.part.0 x",
                Some(("percpu_ref", "MD array active I/O")),
            ),
            ("io_schedule try_to_unuse __do_sys_swapoff", None),
            (
                "wait_for_completion __do_sys_swapoff do_syscall_64",
                Some(("percpu_ref", "swap device")),
            ),
            ("", None),
        ];
        for (stack, expected) in cases {
            assert_eq!(owner_of(stack), expected, "{stack}");
        }
    }

    #[test]
    fn the_innermost_wait_counts() {
        // An exiting process whose AIO teardown waits for a frozen queue.
        let stack = "blk_mq_freeze_queue_wait some_teardown exit_aio do_exit";
        assert_eq!(owner_of(stack), Some(("percpu_ref", "block queue usage")));
    }

    #[test]
    fn owners_have_the_words_of_the_owners_table() {
        for place in PLACES
            .iter()
            .filter(|p| p.wait.subject == "percpu_ref" && p.wait.owner != "percpu_ref")
        {
            assert!(
                super::super::owners::KNOWN
                    .iter()
                    .any(|k| k.owner == place.wait.owner),
                "{}",
                place.function
            );
        }
    }
}
