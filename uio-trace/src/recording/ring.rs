//! The last seconds of a trace, from which a recording can begin that reaches back before its reason.

use super::Known;
use crate::event::{Event, EventKind, MonotonicNs};
use std::collections::VecDeque;

/// Memory for the events kept, about, bytes. Older ones leave earlier than asked for when it is full.
const MEMORY_MAX: usize = 128 << 20;

/// Events of the last seconds, and what was known when they began.
#[derive(Debug)]
pub struct Ring {
    events: VecDeque<(usize, Event)>,
    bytes: usize,
    keep_ns: u64,
    known: Known,
    start_ns: MonotonicNs,
    newest_ns: MonotonicNs,
}

impl Ring {
    /// Keeps `keep_ns` of a trace that began at `start_ns`.
    pub fn new(keep_ns: u64, start_ns: MonotonicNs) -> Ring {
        Ring {
            events: VecDeque::new(),
            bytes: 0,
            keep_ns,
            known: Known::default(),
            start_ns,
            newest_ns: start_ns,
        }
    }

    /// Adds an event; the oldest leave.
    pub fn push(&mut self, event: Event) {
        self.newest_ns = self.newest_ns.max(event.ts_ns);
        let size = size(&event);
        self.bytes += size;
        self.events.push_back((size, event));
        let from_ns = self.newest_ns.saturating_sub(self.keep_ns);
        while let Some((size, oldest)) = self.events.front()
            && (oldest.ts_ns < from_ns || self.bytes > MEMORY_MAX)
        {
            self.bytes -= size;
            self.known.learn(oldest);
            self.start_ns = self.start_ns.max(oldest.ts_ns);
            self.events.pop_front();
        }
    }

    /// What was known before the oldest event.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Begin of the time it covers.
    pub fn start_ns(&self) -> MonotonicNs {
        self.start_ns
    }

    /// The events, oldest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().map(|(_, event)| event)
    }
}

/// About what an event takes in memory.
fn size(event: &Event) -> usize {
    const PLAIN: usize = 256;
    match &event.kind {
        EventKind::UioReading(readings) => {
            let buckets = |r: &crate::event::UioSeriesReading| {
                r.latency.buckets.len() + r.wait.buckets.len() + r.hold.buckets.len()
            };
            PLAIN + readings.iter().map(|r| 400 + 16 * buckets(r)).sum::<usize>()
        }
        EventKind::UioDevices(devices) => PLAIN + 300 * devices.len(),
        EventKind::UioOpen(open) => PLAIN + 100 * open.openers.len(),
        EventKind::Counters(counters) => PLAIN + 64 * counters.len(),
        EventKind::Probes(probes) => PLAIN + 400 * probes.len(),
        _ => PLAIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::KernelPtr;

    #[test]
    fn it_keeps_the_last_seconds_and_knows_what_left() {
        let mut ring = Ring::new(10, 100);
        ring.push(Event {
            ts_ns: 100,
            kind: EventKind::Symbol {
                addr: KernelPtr(1),
                name: "f".into(),
                module: None,
            },
        });
        for ts_ns in 101..=130 {
            ring.push(Event {
                ts_ns,
                kind: EventKind::Tick,
            });
        }
        let kept: Vec<u64> = ring.events().map(|event| event.ts_ns).collect();
        assert_eq!(kept, (120..=130).collect::<Vec<_>>());
        assert_eq!(ring.start_ns(), 119);
        assert_eq!(ring.known().tell(119).len(), 1);
    }

    #[test]
    fn memory_is_bounded() {
        let mut ring = Ring::new(u64::MAX, 0);
        let probe = crate::model::snapshot::Probe {
            subject: String::new(),
            hook: String::new(),
            state: crate::model::snapshot::ProbeState::Failed,
            method: None,
            reason: None,
            gives: String::new(),
            required: false,
            cost: None,
            late_cpus: Vec::new(),
        };
        for ts_ns in 0..1000 {
            ring.push(Event {
                ts_ns,
                kind: EventKind::Probes(vec![probe.clone(); 1000]),
            });
        }
        assert!(ring.bytes <= MEMORY_MAX);
        assert!(ring.events.len() < 400, "{}", ring.events.len());
    }
}
