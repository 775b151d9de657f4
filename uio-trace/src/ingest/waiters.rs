//! Tasks that wait for something of ours, found by their kernel stacks.

use crate::{
    event::{Task, TaskStack},
    kernel::{Root, stacks},
    model::waits,
};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// One look at all tasks, by a thread of its own: with thousands of them it takes a moment.
pub struct Scan(Option<Receiver<Vec<TaskStack>>>);

impl Scan {
    /// Begins.
    pub fn start(root: Root) -> Scan {
        let (send, receive) = channel();
        std::thread::spawn(move || {
            let found = stacks::all(&root, |frames| waits::classify(frames).is_some());
            // Nobody is there to hear it: the trace is over.
            let _ = send.send(found);
        });
        Scan(Some(receive))
    }

    /// What it found; once. `None`: not finished, or told before.
    pub fn take(&mut self) -> Option<Vec<TaskStack>> {
        match self.0.as_ref()?.try_recv() {
            Ok(found) => {
                self.0 = None;
                Some(found)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.0 = None;
                None
            }
        }
    }

    /// Waits for it; before a last dump.
    pub fn finish(&mut self) -> Option<Vec<TaskStack>> {
        self.0.take()?.recv().ok()
    }
}

/// Where these tasks are now.
pub fn stacks_of(root: &Root, tasks: Vec<Task>) -> Vec<TaskStack> {
    tasks
        .into_iter()
        .map(|task| TaskStack {
            frames: stacks::read(root, task.tgid, task.tid),
            task,
        })
        .collect()
}
