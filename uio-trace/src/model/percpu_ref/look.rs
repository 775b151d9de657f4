//! Looking at the memory of refs that are dying for long: are they still there, and how many references are left?

use super::Refs;
use crate::event::{KernelPtr, MonotonicNs, RefState};
use crate::model::limits::{LOOK_AFTER_NS, MAX_LOOKS};

impl Refs {
    /// Refs dying for so long that their memory should be looked at, the oldest of them.
    pub fn to_look_at(&self, now_ns: MonotonicNs) -> Vec<KernelPtr> {
        if !self.looks {
            return Vec::new();
        }
        let old = now_ns.saturating_sub(LOOK_AFTER_NS);
        let mut found: Vec<(MonotonicNs, KernelPtr)> = self
            .open
            .iter()
            .filter(|(_, open)| open.killed_ns <= old)
            .map(|(reference, open)| (open.killed_ns, *reference))
            .collect();
        found.sort_unstable();
        found
            .into_iter()
            .take(MAX_LOOKS)
            .map(|(_, reference)| reference)
            .collect()
    }

    /// What its memory says now.
    pub fn looked(&mut self, ts_ns: MonotonicNs, reference: KernelPtr, release: KernelPtr, state: RefState) {
        let Some(open) = self.open.get_mut(&reference) else {
            return;
        };
        // Asked about an earlier ref at this address; this one's kill is only just under way.
        if ts_ns.saturating_sub(open.killed_ns) < LOOK_AFTER_NS {
            return;
        }
        let state = if release == open.release {
            state
        } else {
            RefState::Gone
        };
        match state {
            RefState::Gone => self.unseen_end(reference),
            RefState::Alive => {
                let index = open.owner;
                self.open.remove(&reference);
                if let Some(owner) = self.owners.get_mut(index) {
                    owner.count(|f| f.revived += 1);
                }
            }
            RefState::GracePeriod => open.uncertain_since = None,
            // Its release function may be about to run: it has until the next look.
            RefState::Held(0) if !open.seen_empty => {
                open.seen_empty = true;
                open.references = Some(0);
            }
            RefState::Held(0) => self.unseen_end(reference),
            RefState::Held(references) => {
                // Its switch was missed, if it was not seen: then when it was is not known.
                open.switched = true;
                open.references = Some(references);
                open.uncertain_since = None;
            }
        }
    }

    /// References left of a dying ref, as last heard.
    pub fn references(&self, reference: KernelPtr) -> Option<u64> {
        let open = self.open.get(&reference)?;
        open.references.filter(|_| open.switched)
    }

    /// Has this thread killed a ref that is still dying?
    pub fn killed_by(&self, tid: u32) -> bool {
        self.open.values().any(|open| open.by.tid == tid)
    }
}
