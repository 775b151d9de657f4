//! Tasks that wait for something of ours, found by their kernel stacks.

use crate::{
    event::{Task, TaskStack},
    kernel::{Root, stacks},
    model::waits,
};
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

/// What has waited since before the trace has not run for this long; shorter waits end by themselves.
const REST: Duration = Duration::from_secs(1);

/// One look at all tasks, by a thread of its own: with thousands of them it takes a moment.
pub struct Scan(Option<Receiver<Vec<TaskStack>>>);

impl Scan {
    /// Begins.
    pub fn start(root: Root) -> Scan {
        let (send, receive) = channel();
        std::thread::spawn(move || {
            let found = stacks::all(&root, REST, |frames| waits::classify(frames).is_some());
            // Nobody is there to hear it: the trace is over.
            let _ = send.send(found);
        });
        Scan(Some(receive))
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
        .map(|task| TaskStack {
            frames: stacks::read_resting(root, task.tgid, task.tid),
            task,
        })
        .collect()
}
