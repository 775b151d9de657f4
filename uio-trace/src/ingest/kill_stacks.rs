//! Kernel stacks of those who kill percpu_refs: the kernel side keeps them by number, here they get their functions' names, once.

use crate::{
    event::{Event, EventKind, MonotonicNs},
    model::limits::MAX_KILL_STACKS,
};
use aya::maps::{MapData, StackTraceMap};
use std::collections::HashSet;

/// Frames told of one stack, from the innermost outwards.
const MAX_FRAMES: usize = 32;

/// Reads stacks as kills refer to them.
pub struct KillStacks {
    map: StackTraceMap<MapData>,
    told: HashSet<u32>,
}

impl KillStacks {
    /// From the map they are in.
    pub fn new(map: StackTraceMap<MapData>) -> KillStacks {
        KillStacks {
            map,
            told: HashSet::new(),
        }
    }

    /// The stack that an event refers to, before the event; once for each.
    pub fn before(&mut self, event: &Event, name: impl Fn(u64) -> String, tell: impl FnOnce(Event)) {
        let EventKind::RefKill { stack: Some(id), .. } = event.kind else {
            return;
        };
        if self.told.contains(&id) || self.told.len() >= MAX_KILL_STACKS {
            return;
        }
        let Ok(trace) = self.map.get(&id, 0) else {
            // Gone, or of a number that is none: the kill has no stack.
            return;
        };
        self.told.insert(id);
        let addresses = trace.frames().iter().map(|frame| frame.ip);
        tell(told(event.ts_ns, id, addresses, name));
    }
}

fn told(
    ts_ns: MonotonicNs,
    id: u32,
    addresses: impl Iterator<Item = u64>,
    name: impl Fn(u64) -> String,
) -> Event {
    let frames = addresses
        .filter(|address| *address != 0)
        .take(MAX_FRAMES)
        .map(name);
    Event {
        ts_ns,
        kind: EventKind::KillStack {
            id,
            frames: frames.collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_bounded_and_named() {
        let name = |address: u64| format!("f{address}");
        let event = told(7, 3, [1, 0, 2].into_iter(), name);
        assert_eq!(
            event.kind,
            EventKind::KillStack {
                id: 3,
                frames: vec!["f1".into(), "f2".into()]
            }
        );
        let EventKind::KillStack { frames, .. } = told(7, 3, 1..1000, name).kind else {
            panic!("no stack");
        };
        assert_eq!(frames.len(), MAX_FRAMES);
    }
}
