//! A drain, open and ended: contexts one waiter waits for, how they overlapped, and what that means.

use super::context::{Context, Stage};
use super::together::together_ns;
use crate::event::{KernelPtr, MonotonicNs, RequestFile, Task};
use crate::model::limits::{
    DESTROY_GAP_FRACTION, DESTROY_GAP_MAX_NS, DESTROY_GAP_MIN_NS, MAX_DRAIN_DETAIL, MAX_DRAIN_FILES,
};
use crate::model::snapshot::{AioDrain, DrainCause, DrainVerdict, InProgress};

/// Overlap from which contexts count as drained together.
pub const PARALLEL_OVERLAP: f64 = 0.5;

/// A drain that has not ended.
#[derive(Debug, Clone)]
pub struct OpenDrain {
    /// Why.
    pub cause: DrainCause,
    /// Who waits.
    pub by: Task,
    /// The mm.
    pub mm: KernelPtr,
    /// `struct ctx_rq_wait`; `None` until the first kill.
    pub wait: Option<KernelPtr>,
    /// Begin: `exit_aio` or the first `io_destroy` entered, else the first kill.
    pub begin_ns: MonotonicNs,
    /// The begin is not the first kill only.
    pub begin_seen: bool,
    /// Return of the last `io_destroy`.
    pub last_return_ns: MonotonicNs,
    /// Last `free_ioctx_reqs`.
    pub last_release_ns: MonotonicNs,
    /// A call of the loop is under way.
    pub in_call: bool,
    /// Contexts, in order of their kill.
    pub contexts: Vec<Context>,
    /// Contexts not drained.
    pub left: usize,
    /// Contexts that found no place.
    pub not_kept: u64,
    /// Events were lost while it was open.
    pub touched_by_loss: bool,
    /// Since then without a sign of life.
    pub uncertain_since: Option<MonotonicNs>,
    /// Files of last requests, each once.
    files: Vec<RequestFile>,
}

impl OpenDrain {
    /// Without contexts.
    pub fn new(cause: DrainCause, by: Task, mm: KernelPtr, begin_ns: MonotonicNs, begin_seen: bool) -> Self {
        OpenDrain {
            cause,
            by,
            mm,
            wait: None,
            begin_ns,
            begin_seen,
            last_return_ns: begin_ns,
            last_release_ns: begin_ns,
            in_call: false,
            contexts: Vec::new(),
            left: 0,
            not_kept: 0,
            touched_by_loss: false,
            uncertain_since: None,
            files: Vec::new(),
        }
    }

    /// Longest gap (ns) after which another `io_destroy` still belongs to this drain: a tenth of its age, at least
    /// 50 ms, at most 1 s.
    pub fn allowed_gap_ns(&self) -> u64 {
        let age = self.last_return_ns.saturating_sub(self.begin_ns);
        (age / DESTROY_GAP_FRACTION).clamp(DESTROY_GAP_MIN_NS, DESTROY_GAP_MAX_NS)
    }

    /// The file of a context's last request. More than [`MAX_DRAIN_FILES`] are not told apart from unknown ones.
    pub fn set_last_request(&mut self, context: usize, file: RequestFile) {
        let known = self.files.iter().position(|f| *f == file);
        let place = match known {
            None if self.files.len() >= MAX_DRAIN_FILES => return,
            None => {
                self.files.push(file);
                self.files.len() - 1
            }
            Some(place) => place,
        };
        if let (Some(context), Ok(place)) = (self.contexts.get_mut(context), u8::try_from(place + 1)) {
            context.file = place;
        }
    }

    /// Something of it happened.
    pub fn alive(&mut self) {
        self.uncertain_since = None;
    }

    /// For readers; `None` while nothing of it waits (a gap between two calls). `switches`: the end of grace periods is
    /// seen on this kernel.
    /// `references`: of a ref past its grace period, those left.
    pub fn in_progress(
        &self,
        now_ns: MonotonicNs,
        switches: bool,
        references: &dyn Fn(KernelPtr) -> Option<u64>,
    ) -> Option<InProgress> {
        if self.contexts.is_empty() || (self.cause == DrainCause::IoDestroy && !self.in_call) {
            return None;
        }
        let mut stages = [0u64; 5];
        for c in &self.contexts {
            stages[c.stage() as usize] += 1;
        }
        let name = |stage: Stage| match stage {
            Stage::UsersGracePeriod if switches => "grace period of users",
            Stage::UsersGracePeriod | Stage::UsersReferences if !switches => "grace period or references",
            Stage::UsersReferences | Stage::UsersGracePeriod => "references",
            Stage::ReqsGracePeriod if switches => "grace period of requests",
            Stage::ReqsGracePeriod | Stage::Requests if !switches => "grace period or requests in flight",
            Stage::ReqsGracePeriod | Stage::Requests => "requests in flight",
            Stage::Drained => "drained, the waiter has not returned",
        };
        let order = [
            Stage::UsersGracePeriod,
            Stage::UsersReferences,
            Stage::ReqsGracePeriod,
            Stage::Requests,
        ];
        let open: Vec<(Stage, u64)> = order
            .into_iter()
            .map(|s| (s, stages[s as usize]))
            .filter(|s| s.1 > 0)
            .collect();
        // The drain ends with its last context: it waits for the stage furthest from the end.
        let phase = open.first().map_or(Stage::Drained, |s| s.0);
        let parts: Vec<String> = open.iter().map(|(s, n)| format!("{} {n}", name(*s))).collect();
        let mut detail = format!("{} of {} contexts left", self.left, self.contexts.len());
        if parts.len() > 1 {
            detail = format!("{detail}: {}", parts.join(", "));
        }
        // Of the contexts in that stage; those that are not known make it a lower bound, so then none is named.
        let held = self
            .contexts
            .iter()
            .filter(|c| c.stage() == phase)
            .map(|c| match phase {
                Stage::UsersReferences => references(c.users),
                Stage::Requests => references(c.reqs),
                _ => None,
            });
        let references = held.sum::<Option<u64>>().filter(|_| phase != Stage::Drained);
        match (phase, references) {
            (Stage::Requests, Some(n)) => {
                detail.push_str(&format!(
                    "; {}",
                    plural(n, "request in flight", "requests in flight")
                ));
            }
            (Stage::UsersReferences, Some(n)) => {
                detail.push_str(&format!("; {}", plural(n, "reference held", "references held")));
            }
            _ => {}
        }
        let age_ns = now_ns.saturating_sub(self.begin_ns);
        Some(InProgress {
            subject: "aio_drain".to_string(),
            owner: match self.cause {
                DrainCause::ExitAio => "exit_aio",
                DrainCause::IoDestroy => "io_destroy",
            }
            .to_string(),
            tgid: self.by.tgid,
            tid: self.by.tid,
            comm: self.by.comm.clone(),
            phase: name(phase).to_string(),
            age_ns: Some(age_ns),
            seen_ns: age_ns,
            references,
            detail,
            stack: None,
            direct_files: None,
            uncertain: self.uncertain_since.is_some(),
            uio: None,
        })
    }
}

/// `1 request in flight`, `3 requests in flight`
fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// An ended drain; its contexts become [`AioDrain::detail`] only when somebody looks.
#[derive(Debug, Clone)]
pub struct FinishedDrain {
    summary: AioDrain,
    contexts: Vec<Context>,
    files: Vec<RequestFile>,
}

impl FinishedDrain {
    /// Ends `open` at `end_ns`. Every context must have an end.
    pub fn new(id: u64, open: OpenDrain, end_ns: MonotonicNs) -> FinishedDrain {
        let OpenDrain {
            cause,
            by,
            begin_ns,
            mut contexts,
            not_kept,
            touched_by_loss,
            files,
            ..
        } = open;
        let figures = Overlap::of(&contexts);
        let projected = match figures.verdict {
            DrainVerdict::Serial => together_ns(&contexts).unwrap_or(figures.longest_ns),
            DrainVerdict::Parallel | DrainVerdict::Single => figures.longest_ns,
        };
        let critical = match figures.verdict {
            DrainVerdict::Parallel => position_of_max(&contexts, Context::end_ns),
            DrainVerdict::Serial | DrainVerdict::Single => position_of_max(&contexts, Context::total_ns),
        };
        let phases_ns = contexts.get(critical).map(Context::phases).unwrap_or_default();
        let uncertain = touched_by_loss || not_kept > 0 || contexts.iter().any(|c| c.uncertain);
        // One that is not known makes the sum unknown.
        let in_flight = contexts.iter().map(Context::in_flight).sum::<Option<u64>>();
        let in_flight = in_flight.filter(|_| not_kept == 0);
        let last_request = contexts.get(critical).and_then(|c| c.file_in(&files));
        let count = contexts.len();
        // The critical context is always among those kept.
        let mut kept_critical = critical;
        if count > MAX_DRAIN_DETAIL {
            if critical >= MAX_DRAIN_DETAIL {
                kept_critical = MAX_DRAIN_DETAIL - 1;
                contexts.swap(critical, kept_critical);
            }
            contexts.truncate(MAX_DRAIN_DETAIL);
        }
        contexts.shrink_to_fit();
        let summary = AioDrain {
            id,
            cause,
            tgid: by.tgid,
            tid: by.tid,
            comm: by.comm,
            contexts: count as u64 + not_kept,
            start_ns: begin_ns,
            wall_ns: end_ns.saturating_sub(begin_ns),
            sum_ns: figures.sum_ns,
            overlap: figures.overlap,
            verdict: figures.verdict,
            projected_parallel_ns: projected,
            critical: kept_critical,
            phases_ns,
            in_flight,
            last_request,
            detail: Vec::new(),
            uncertain,
        };
        FinishedDrain {
            summary,
            contexts,
            files,
        }
    }

    /// Contexts kept.
    pub fn kept(&self) -> usize {
        self.contexts.len()
    }

    /// Record `aio_drain`.
    pub fn record(&self) -> AioDrain {
        let begin = self.summary.start_ns;
        AioDrain {
            detail: self
                .contexts
                .iter()
                .map(|c| c.detail(begin, &self.files))
                .collect(),
            ..self.summary.clone()
        }
    }
}

/// First position of the largest key.
fn position_of_max(contexts: &[Context], key: impl Fn(&Context) -> u64) -> usize {
    let mut best = 0;
    for (i, c) in contexts.iter().enumerate() {
        if contexts.get(best).is_some_and(|b| key(c) > key(b)) {
            best = i;
        }
    }
    best
}

/// How the contexts' intervals [kill, drained] lie to each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overlap {
    /// Sum of their lengths, ns.
    pub sum_ns: u64,
    /// The longest, ns.
    pub longest_ns: u64,
    /// `(sum - union) / (sum - longest)`: 0 when no two overlap, 1 when all lie within the longest.
    pub overlap: f64,
    /// Parallel from [`PARALLEL_OVERLAP`].
    pub verdict: DrainVerdict,
}

impl Overlap {
    /// Of drained contexts.
    pub fn of(contexts: &[Context]) -> Overlap {
        let mut spans: Vec<(u64, u64)> = contexts.iter().map(|c| (c.killed_ns, c.end_ns())).collect();
        spans.sort_unstable();
        let (mut sum_ns, mut longest_ns, mut union_ns, mut covered_to) = (0u64, 0u64, 0u64, 0u64);
        for (from, to) in spans {
            sum_ns = sum_ns.saturating_add(to - from);
            longest_ns = longest_ns.max(to - from);
            union_ns += to.saturating_sub(from.max(covered_to));
            covered_to = covered_to.max(to);
        }
        let rest = sum_ns - longest_ns;
        let overlap = if rest == 0 {
            0.0
        } else {
            (sum_ns - union_ns) as f64 / rest as f64
        };
        let verdict = match contexts.len() {
            0 | 1 => DrainVerdict::Single,
            _ if overlap >= PARALLEL_OVERLAP => DrainVerdict::Parallel,
            _ => DrainVerdict::Serial,
        };
        Overlap {
            sum_ns,
            longest_ns,
            overlap,
            verdict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts(spans: &[(u64, u64)]) -> Vec<Context> {
        let mut list = Vec::new();
        for (from, to) in spans {
            let mut c = Context::new(KernelPtr(1), KernelPtr(1), KernelPtr(25), 0, *from);
            c.reqs_released.set(*to);
            list.push(c);
        }
        list
    }

    #[test]
    fn one_after_another_does_not_overlap() {
        let o = Overlap::of(&contexts(&[(100, 133), (134, 167), (168, 200)]));
        assert_eq!(
            (o.sum_ns, o.longest_ns, o.overlap, o.verdict),
            (98, 33, 0.0, DrainVerdict::Serial)
        );
    }

    #[test]
    fn all_at_once_overlaps_fully() {
        let o = Overlap::of(&contexts(&[(100, 130), (101, 125), (102, 130)]));
        assert_eq!(
            (o.longest_ns, o.overlap, o.verdict),
            (30, 1.0, DrainVerdict::Parallel)
        );
    }

    #[test]
    fn staggered_kills_of_one_exit_are_parallel() {
        // Measured: 4 contexts killed within 1.7 ms, drained in 30 ms.
        let o = Overlap::of(&contexts(&[
            (1, 30_001),
            (600, 30_600),
            (1_200, 31_200),
            (1_700, 31_700),
        ]));
        assert!(o.overlap > 0.95, "{}", o.overlap);
    }

    #[test]
    fn an_end_before_the_kill_is_no_length() {
        let o = Overlap::of(&contexts(&[(100, 90), (100, 100)]));
        assert_eq!((o.sum_ns, o.overlap), (0, 0.0));
    }

    #[test]
    fn the_critical_context_is_kept_however_many_there_are() {
        let mut open = OpenDrain::new(
            DrainCause::ExitAio,
            Task {
                tgid: 1,
                tid: 1,
                comm: "x".into(),
            },
            KernelPtr(1),
            50,
            true,
        );
        open.contexts = contexts(&vec![(100, 200); 2000]);
        open.contexts[1999].reqs_released = super::super::context::Moment::default();
        open.contexts[1999].reqs_released.set(900);
        let d = FinishedDrain::new(1, open, 1000).record();
        assert_eq!(
            (d.contexts, d.detail.len(), d.wall_ns),
            (2000, MAX_DRAIN_DETAIL, 950)
        );
        assert_eq!(d.detail[d.critical].total_ns, 800);
        assert_eq!(d.verdict, DrainVerdict::Parallel);
    }
}
