//! Who has UIO devices open, looked up now and then by a thread of its own: there may be many processes.

use crate::{
    event::UioOpen,
    kernel::{Root, descriptors},
};
use std::{
    sync::mpsc::{Receiver, Sender, channel},
    time::{Duration, Instant},
};

/// Time between two looks, and after the devices changed.
const EVERY: Duration = Duration::from_secs(15);
const AFTER_A_CHANGE: Duration = Duration::from_secs(1);
/// Longest look.
const WITHIN: Duration = Duration::from_millis(500);

/// Looks when it is time to.
pub struct Openers {
    ask: Sender<()>,
    answers: Receiver<UioOpen>,
    asked: Option<Instant>,
    under_way: bool,
    changed: bool,
}

impl Openers {
    /// Starts the thread; it ends with this value.
    pub fn start(root: Root) -> Openers {
        let (ask, questions) = channel::<()>();
        let (answer, answers) = channel();
        std::thread::spawn(move || {
            for () in questions {
                if answer.send(descriptors::scan(&root, WITHIN)).is_err() {
                    return;
                }
            }
        });
        Openers {
            ask,
            answers,
            asked: None,
            under_way: false,
            changed: true,
        }
    }

    /// Devices came or went.
    pub fn devices_changed(&mut self) {
        self.changed = true;
    }

    /// What a look found that has ended since; asks for the next one when it is time.
    pub fn poll(&mut self, now: Instant) -> Option<UioOpen> {
        let found = self.answers.try_recv().ok();
        self.under_way &= found.is_none();
        let wait = if self.changed { AFTER_A_CHANGE } else { EVERY };
        let due = self
            .asked
            .is_none_or(|asked| now.saturating_duration_since(asked) >= wait);
        if due && !self.under_way && self.ask.send(()).is_ok() {
            (self.asked, self.under_way, self.changed) = (Some(now), true, false);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_taken_at_the_begin_and_then_rarely() {
        let root = Root::at(std::env::temp_dir().join("uio-trace-nothing-is-here"));
        let mut openers = Openers::start(root);
        let begin = Instant::now();
        let mut found = |now: Instant| {
            for _ in 0..1000 {
                if openers.poll(now).is_some() {
                    return true;
                }
                if !openers.under_way {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            panic!("no answer");
        };
        assert!(found(begin));
        assert!(!found(begin + EVERY / 2));
        assert!(found(begin + EVERY));
        openers.devices_changed();
        assert!(openers.poll(begin + EVERY + AFTER_A_CHANGE / 2).is_none());
        assert!(!openers.under_way, "not at once");
        openers.poll(begin + EVERY + AFTER_A_CHANGE);
        assert!(openers.under_way);
    }
}
