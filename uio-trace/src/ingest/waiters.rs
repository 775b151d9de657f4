//! Tasks that wait for something of ours, found by their kernel stacks.

use crate::{
    event::{Task, TaskStack},
    kernel::{
        Root, descriptors,
        stacks::{self, Glance},
    },
    model::waits,
};
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

/// What has waited since before the trace has not run for this long; shorter waits end by themselves.
const REST: Duration = Duration::from_secs(1);

/// For so long attaching may wait for the first look. A stack takes some tens of microseconds.
const GLANCE_BUDGET: Duration = Duration::from_secs(1);

fn is_ours(frames: &[String]) -> bool {
    waits::classify(frames).is_some()
}

/// The first look at all tasks, to be taken before anything is attached: no stack has a return of our kretprobes on it then.
/// Where others have set some, nothing is looked at yet.
pub fn before_attaching(root: &Root) -> Glance {
    if stacks::without_kretprobes(root) {
        stacks::glance(root, GLANCE_BUDGET, is_ours)
    } else {
        Glance::default()
    }
}

/// The second look, when everything is attached, by a thread of its own: whose wait that was found lasts, and who came to
/// wait meanwhile.
pub struct Scan(Option<Receiver<Vec<TaskStack>>>);

impl Scan {
    /// Begins.
    pub fn start(root: Root, first: Glance) -> Scan {
        let (send, receive) = channel();
        std::thread::spawn(move || {
            let found = stacks::settled(&root, REST, first, is_ours);
            // Nobody is there to hear it: the trace is over.
            let _ = send.send(found);
        });
        Scan(Some(receive))
    }

    /// One that finds nothing: stacks cannot be read.
    pub fn none() -> Scan {
        Scan(None)
    }

    /// What it found; once. `None`: not finished within `patience`, or told before.
    pub fn take(&mut self, patience: Duration) -> Option<Vec<TaskStack>> {
        match self.0.as_ref()?.recv_timeout(patience) {
            Ok(found) => {
                self.0 = None;
                Some(found)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.0 = None;
                None
            }
        }
    }
}

/// Where these tasks are now.
pub fn stacks_of(root: &Root, tasks: Vec<Task>) -> Vec<TaskStack> {
    tasks
        .into_iter()
        .map(|task| {
            let frames = stacks::read_resting(root, task.tgid, task.tid);
            let drains = waits::classify(&frames).is_some_and(|wait| wait.subject == "aio_drain");
            TaskStack {
                // An exiting process lets go of its contexts before it closes its files.
                direct_files: drains
                    .then(|| descriptors::direct_files(root, task.tgid))
                    .flatten(),
                frames,
                task,
            }
        })
        .collect()
}
