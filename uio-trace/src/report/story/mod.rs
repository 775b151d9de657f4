//! What a report tells: the model's figures of the whole time, and beside them what happened when.
//!
//! Events go in once ([`StoryBuilder::apply`]), a [`Story`] comes out. Its figures are those of the one model, so a
//! report shows the same numbers as the screens and `hist` do. What the model does not keep, because only a picture
//! over time needs it, is kept here: [`timeline`] samples each interval, [`spans`] keeps slow operations and refs one
//! by one, with their times. All of it is bounded; what does not fit is counted, and the report says so.

pub mod spans;
pub mod timeline;

use crate::event::{Event, EventKind, MonotonicNs};
use crate::model::snapshot::{Meta, Snapshot};
use crate::model::{self, Model, Scope, questions::Questions};
use spans::{KillSum, RefSpan, Spans, WaitSpan, WaitSum};
use timeline::{Sample, Timeline};

/// All a report needs; plain data.
#[derive(Debug, Clone)]
pub struct Story {
    /// Host, kernel, begin.
    pub meta: Meta,
    /// Figures of the whole time.
    pub snapshot: Snapshot,
    /// Equal stretches of time, oldest first, without gaps.
    pub samples: Vec<Sample>,
    /// Slow UIO operations, by begin; the longest where there were too many.
    pub waits: Vec<WaitSpan>,
    /// Slow operations not among them.
    pub waits_omitted: u64,
    /// All slow operations that waited, summed by device, operation, waiter and holder; by time, descending.
    pub wait_sums: Vec<WaitSum>,
    /// Killed percpu_refs, by kill; the longest where there were too many.
    pub refs: Vec<RefSpan>,
    /// Killed refs not among them.
    pub refs_omitted: u64,
    /// All killed refs, summed by owner and killer; by time, descending.
    pub kill_sums: Vec<KillSum>,
    /// What the reader of the report must know of its source: a recording that was cut off, records not understood.
    pub remarks: Vec<String>,
}

/// Takes events in.
#[derive(Debug)]
pub struct StoryBuilder {
    meta: Meta,
    model: Model,
    timeline: Timeline,
    spans: Spans,
}

impl StoryBuilder {
    /// The beginning.
    pub fn new(meta: Meta) -> StoryBuilder {
        let start_ns = meta.started_ns;
        StoryBuilder {
            model: Model::new(model::Config::of(&meta)),
            meta,
            timeline: Timeline::new(start_ns),
            spans: Spans::default(),
        }
    }

    /// The next event.
    pub fn apply(&mut self, event: Event) {
        let ts_ns = event.ts_ns;
        // What was counted in the kernel arrives with the counters, after the series: only then an interval is whole.
        let whole = matches!(event.kind, EventKind::Counters(_));
        self.spans.apply(&event);
        self.model.apply(event);
        if whole && self.timeline.is_due(ts_ns) {
            self.cut(ts_ns);
        }
    }

    fn cut(&mut self, now_ns: MonotonicNs) {
        self.timeline.push(&self.model.snapshot(Scope::Interval));
        self.model.begin_interval(now_ns);
    }

    /// What would be worth knowing now; see [`Model::questions`].
    pub fn questions(&mut self, now_ns: MonotonicNs) -> Questions {
        self.model.questions(now_ns)
    }

    /// Time of the latest event, ns.
    pub fn now_ns(&self) -> MonotonicNs {
        self.model.now_ns()
    }

    /// The end, at `end_ns` (CLOCK_MONOTONIC). `remarks`: sentences about the source. `shape` leaves out of the figures
    /// what was not asked for.
    pub fn finish(
        mut self,
        end_ns: MonotonicNs,
        remarks: Vec<String>,
        shape: impl FnOnce(&mut Snapshot),
    ) -> Story {
        self.model.finish(end_ns);
        let last = self.model.snapshot(Scope::Interval);
        if last.interval.duration_ns > 0 {
            self.timeline.push(&last);
        }
        let mut snapshot = self.model.snapshot(Scope::SinceStart);
        shape(&mut snapshot);
        let kept = self.spans.finish(snapshot.interval.end_ns);
        Story {
            meta: self.meta,
            snapshot,
            samples: self.timeline.finish(),
            waits: kept.waits,
            waits_omitted: kept.waits_omitted,
            wait_sums: kept.wait_sums,
            refs: kept.refs,
            refs_omitted: kept.refs_omitted,
            kill_sums: kept.kill_sums,
            remarks,
        }
    }
}
