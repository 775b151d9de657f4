//! Slow operations and killed refs one by one, with their times, and sums of all of them for flame graphs.
//!
//! The figures of both are the model's; these are for pictures over time. The end of a ref is where the model sees it:
//! its release where that is traced, else the end of its grace period.

use crate::event::{DeviceKey, Event, EventKind, KernelPtr, MonotonicNs, RefState, Task, UioOp, UioSlow};
use crate::fast_map::PtrMap;
use crate::format::printable;
use crate::model::limits::{MAX_KILL_STACKS, MAX_OPEN_REFS, MAX_SYMBOLS};
use crate::model::owners;
use crate::model::snapshot::ProbeState;
use std::collections::{BTreeMap, HashSet};

/// Slow operations kept one by one.
pub const MAX_WAITS: usize = 20_000;
/// Killed refs kept one by one.
pub const MAX_REFS: usize = 20_000;
/// Rows of a sum; what is beyond goes into a row of its own.
pub const MAX_SUMS: usize = 4096;

/// What stands for names beyond [`MAX_SUMS`].
pub const OTHERS: &str = "(others)";

/// A slow UIO operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitSpan {
    /// Its end, CLOCK_MONOTONIC.
    pub end_ns: MonotonicNs,
    /// Everything else of it; names are printable.
    pub slow: UioSlow,
}

impl WaitSpan {
    /// Its begin, CLOCK_MONOTONIC.
    pub fn start_ns(&self) -> MonotonicNs {
        self.end_ns.saturating_sub(self.slow.latency_ns)
    }
}

/// Waits of slow operations that have device, operation, waiter and holder in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitSum {
    /// Device; `None`: this row is the sum of those that found no place.
    pub device: Option<DeviceKey>,
    /// What the waiters did.
    pub op: String,
    /// comm of the waiters.
    pub waiter: String,
    /// comm of the holder when the wait began; `None`: nobody, or not known.
    pub holder: Option<String>,
    /// Operations.
    pub count: u64,
    /// Their waits for info_lock, ns.
    pub wait_ns: u64,
}

/// A killed percpu_ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefSpan {
    /// Owner in words.
    pub owner: String,
    /// Who killed it; for the requests of an AIO context who waits for them.
    pub by: Task,
    /// Its address.
    pub reference: KernelPtr,
    /// Kill, CLOCK_MONOTONIC.
    pub killed_ns: MonotonicNs,
    /// In atomic mode; `None`: not seen.
    pub switched_ns: Option<MonotonicNs>,
    /// Last reference gone; `None`: not seen.
    pub released_ns: Option<MonotonicNs>,
    /// Number of the killer's kernel stack; `None`: not taken.
    pub stack: Option<u32>,
    /// Not ended when the trace did, or its end was lost.
    pub open: bool,
}

impl RefSpan {
    /// Kill to what was seen last of it, ns.
    pub fn length_ns(&self) -> u64 {
        let end = self.released_ns.or(self.switched_ns).unwrap_or(self.killed_ns);
        end.saturating_sub(self.killed_ns)
    }
}

/// Killed refs that have owner and killer in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KillSum {
    /// Owner in words.
    pub owner: String,
    /// comm of the killer.
    pub killer: String,
    /// Its kernel stack, from the innermost function outwards; empty: not taken.
    pub frames: Vec<String>,
    /// Kills.
    pub count: u64,
    /// Kill to end (release, grace period, or the end of the trace), summed, ns.
    pub dying_ns: u64,
}

/// What is left at the end.
#[derive(Debug)]
pub(super) struct Kept {
    pub waits: Vec<WaitSpan>,
    pub waits_omitted: u64,
    pub wait_sums: Vec<WaitSum>,
    pub refs: Vec<RefSpan>,
    pub refs_omitted: u64,
    pub kill_sums: Vec<KillSum>,
}

type WaitKey = (Option<DeviceKey>, &'static str, String, Option<String>);

/// An owner as its symbol says it.
#[derive(Debug)]
struct Owner {
    words: String,
    function: String,
}

/// Keeps spans.
#[derive(Debug, Default)]
pub(super) struct Spans {
    waits: Vec<WaitSpan>,
    waits_omitted: u64,
    wait_sums: BTreeMap<WaitKey, (u64, u64)>,
    refs: Vec<RefSpan>,
    refs_omitted: u64,
    kill_sums: BTreeMap<(String, String, Option<u32>), (u64, u64)>,
    /// Frames of killers' stacks, by number.
    stacks: BTreeMap<u32, Vec<String>>,
    open: PtrMap<RefSpan>,
    owners: PtrMap<Owner>,
    /// `users` and `reqs` of an AIO context.
    contexts: PtrMap<[KernelPtr; 2]>,
    /// Who waits for the `reqs` of a context: those are killed in RCU context, by whoever was interrupted.
    waiters: PtrMap<Task>,
    /// Release functions whose calls are seen; `None`: not told.
    traced: Option<HashSet<String>>,
}

impl Spans {
    pub(super) fn apply(&mut self, event: &Event) {
        let ts_ns = event.ts_ns;
        match &event.kind {
            EventKind::UioSlow(slow) => self.slow(ts_ns, slow),
            EventKind::KillStack { id, frames }
                if self.stacks.len() < MAX_KILL_STACKS || self.stacks.contains_key(id) =>
            {
                self.stacks.insert(*id, frames.clone());
            }
            EventKind::Symbol { addr, name, module } => self.symbol(*addr, name, module.as_deref()),
            EventKind::Probes(probes) => {
                let attached = probes.iter().filter(|p| p.state == ProbeState::Attached);
                self.traced = Some(attached.map(|p| p.hook.clone()).collect());
            }
            EventKind::RefKill {
                by,
                reference,
                release,
                already_atomic,
                already_dead: false,
                confirm: _,
                references,
                stack,
            } => {
                self.kill(ts_ns, by, *reference, *release, *already_atomic, *stack);
                self.dropped_last(ts_ns, *reference, *references);
            }
            EventKind::RefSwitched {
                reference,
                release,
                references,
            } => {
                self.switched(ts_ns, *reference, *release, *references);
                self.dropped_last(ts_ns, *reference, *references);
            }
            EventKind::RefLooked {
                reference,
                state: RefState::Gone | RefState::Alive,
                ..
            } => {
                if let Some(span) = self.open.remove(reference) {
                    self.close(span, false);
                }
            }
            EventKind::RefReleased { reference, .. } => self.released(ts_ns, *reference),
            EventKind::AioKill {
                by, ctx, users, reqs, ..
            } if self.contexts.len() < MAX_OPEN_REFS => {
                if let Some([_, former]) = self.contexts.insert(*ctx, [*users, *reqs]) {
                    self.waiters.remove(&former);
                }
                self.waiters.insert(*reqs, by.clone());
            }
            EventKind::AioUsersReleased { ctx } => {
                if let Some([users, _]) = self.contexts.get(ctx).copied() {
                    self.released(ts_ns, users);
                }
            }
            EventKind::AioReqsReleased { ctx } => {
                if let Some([_, reqs]) = self.contexts.remove(ctx) {
                    self.waiters.remove(&reqs);
                    self.released(ts_ns, reqs);
                }
            }
            _ => {}
        }
    }

    fn slow(&mut self, ts_ns: MonotonicNs, slow: &UioSlow) {
        let mut slow = slow.clone();
        slow.by = clean(slow.by);
        slow.holder = slow.holder.map(clean);
        if slow.wait_ns > 0 {
            let mut key: WaitKey = (
                Some(slow.device),
                slow.op.name(),
                slow.by.comm.clone(),
                slow.holder.as_ref().map(|h| h.comm.clone()),
            );
            if !self.wait_sums.contains_key(&key) && self.wait_sums.len() >= MAX_SUMS {
                key = (None, UioOp::Write.name(), OTHERS.into(), None);
            }
            let sum = self.wait_sums.entry(key).or_default();
            sum.0 += 1;
            sum.1 = sum.1.saturating_add(slow.wait_ns);
        }
        self.waits.push(WaitSpan { end_ns: ts_ns, slow });
        // Twice as many before the short ones go, so that each is looked at a few times only.
        if self.waits.len() >= 2 * MAX_WAITS {
            self.waits_omitted += longest(&mut self.waits, MAX_WAITS, |w| w.slow.latency_ns);
        }
    }

    fn symbol(&mut self, addr: KernelPtr, name: &str, module: Option<&str>) {
        if self.owners.len() >= MAX_SYMBOLS && !self.owners.contains_key(&addr) {
            return;
        }
        let name = printable(name.to_owned());
        let words = match (owners::lookup(&name), module) {
            (Some(known), _) => known.owner.to_owned(),
            (None, Some(module)) => format!("{name} [{}]", printable(module.to_owned())),
            (None, None) => name.clone(),
        };
        let function = match module {
            Some(module) => format!("{name} [{}]", printable(module.to_owned())),
            None => name,
        };
        self.owners.insert(addr, Owner { words, function });
    }

    fn kill(
        &mut self,
        ts_ns: MonotonicNs,
        by: &Task,
        reference: KernelPtr,
        release: KernelPtr,
        atomic: bool,
        stack: Option<u32>,
    ) {
        // Killed anew: the memory was reused, so the end of the former one was not seen.
        if let Some(former) = self.open.remove(&reference) {
            self.close(former, true);
        }
        let owner = match self.owners.get(&release) {
            Some(owner) => owner.words.clone(),
            None => format!("{:#x}", release.0),
        };
        let by = self.waiters.remove(&reference).unwrap_or_else(|| by.clone());
        let span = RefSpan {
            owner,
            by: clean(by),
            reference,
            killed_ns: ts_ns,
            switched_ns: None,
            released_ns: None,
            stack,
            open: false,
        };
        if self.open.len() >= MAX_OPEN_REFS || (atomic && !self.sees_release(release)) {
            self.close(span, false);
        } else {
            self.open.insert(reference, span);
        }
    }

    fn sees_release(&self, release: KernelPtr) -> bool {
        let (Some(traced), Some(owner)) = (&self.traced, self.owners.get(&release)) else {
            return self.traced.is_none();
        };
        traced.contains(&owner.function)
    }

    fn switched(
        &mut self,
        ts_ns: MonotonicNs,
        reference: KernelPtr,
        release: KernelPtr,
        references: Option<u64>,
    ) {
        let sees_release = self.sees_release(release);
        let Some(span) = self.open.get_mut(&reference) else {
            return;
        };
        span.switched_ns.get_or_insert(ts_ns);
        if !sees_release
            && references.is_none()
            && let Some(span) = self.open.remove(&reference)
        {
            self.close(span, false);
        }
    }

    /// A kill or a switch that leaves no reference releases the ref at once, traced or not.
    fn dropped_last(&mut self, ts_ns: MonotonicNs, reference: KernelPtr, references: Option<u64>) {
        if references == Some(0) {
            self.released(ts_ns, reference);
        }
    }

    fn released(&mut self, ts_ns: MonotonicNs, reference: KernelPtr) {
        if let Some(mut span) = self.open.remove(&reference) {
            span.released_ns = Some(ts_ns);
            self.close(span, false);
        }
    }

    fn close(&mut self, mut span: RefSpan, open: bool) {
        span.open = open;
        let length_ns = span.length_ns();
        self.count(span, length_ns);
    }

    fn count(&mut self, span: RefSpan, length_ns: u64) {
        let mut key = (span.owner.clone(), span.by.comm.clone(), span.stack);
        if !self.kill_sums.contains_key(&key) && self.kill_sums.len() >= MAX_SUMS {
            key = (OTHERS.into(), OTHERS.into(), None);
        }
        let sum = self.kill_sums.entry(key).or_default();
        sum.0 += 1;
        sum.1 = sum.1.saturating_add(length_ns);
        self.refs.push(span);
        if self.refs.len() >= 2 * MAX_REFS {
            self.refs_omitted += longest(&mut self.refs, MAX_REFS, RefSpan::length_ns);
        }
    }

    /// The end of the trace: what is open has lasted until now.
    pub(super) fn finish(mut self, end_ns: MonotonicNs) -> Kept {
        for mut span in std::mem::take(&mut self.open).into_values() {
            span.open = true;
            let length_ns = end_ns.saturating_sub(span.killed_ns).max(span.length_ns());
            self.count(span, length_ns);
        }
        self.waits_omitted += longest(&mut self.waits, MAX_WAITS, |w| w.slow.latency_ns);
        self.refs_omitted += longest(&mut self.refs, MAX_REFS, RefSpan::length_ns);
        self.waits.sort_by_key(|w| (w.start_ns(), w.slow.by.tid));
        self.refs.sort_by_key(|r| (r.killed_ns, r.reference));
        let mut wait_sums: Vec<WaitSum> = self
            .wait_sums
            .into_iter()
            .map(|((device, op, waiter, holder), (count, wait_ns))| WaitSum {
                op: if device.is_some() { op } else { OTHERS }.to_owned(),
                device,
                waiter,
                holder,
                count,
                wait_ns,
            })
            .collect();
        wait_sums.sort_by_key(|s| std::cmp::Reverse(s.wait_ns));
        let mut kill_sums: Vec<KillSum> = self
            .kill_sums
            .into_iter()
            .map(|((owner, killer, stack), (count, dying_ns))| KillSum {
                owner,
                killer,
                frames: stack
                    .and_then(|id| self.stacks.get(&id).cloned())
                    .unwrap_or_default(),
                count,
                dying_ns,
            })
            .collect();
        kill_sums.sort_by_key(|s| std::cmp::Reverse(s.dying_ns));
        Kept {
            waits: self.waits,
            waits_omitted: self.waits_omitted,
            wait_sums,
            refs: self.refs,
            refs_omitted: self.refs_omitted,
            kill_sums,
        }
    }
}

/// Keeps the `max` longest; returns how many went.
fn longest<T>(spans: &mut Vec<T>, max: usize, length: impl Fn(&T) -> u64) -> u64 {
    if spans.len() <= max {
        return 0;
    }
    spans.select_nth_unstable_by_key(max, |span| std::cmp::Reverse(length(span)));
    let gone = spans.len() - max;
    spans.truncate(max);
    gone as u64
}

fn clean(task: Task) -> Task {
    Task {
        comm: printable(task.comm),
        ..task
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_longest_are_kept_and_the_others_counted() {
        let mut spans = Spans::default();
        for i in 0..(3 * MAX_WAITS as u64) {
            let slow = UioSlow {
                by: Task {
                    tgid: 1,
                    tid: 1,
                    comm: format!("w{i}"),
                },
                cpu: 0,
                device: DeviceKey {
                    minor: 0,
                    generation: 0,
                },
                op: UioOp::Write,
                ret: 0,
                latency_ns: 1 + i * 7919 % 60_000,
                wait_ns: 1,
                hold_ns: 0,
                driver_wait_ns: 0,
                holder: None,
                holder_op: None,
            };
            spans.slow(1_000_000 + i, &slow);
        }
        let kept = spans.finish(0);
        assert_eq!(kept.waits.len(), MAX_WAITS);
        assert_eq!(kept.waits_omitted, 2 * MAX_WAITS as u64);
        // 7919 and 60,000 have no common divisor: every length occurs once.
        assert_eq!(
            kept.waits.iter().map(|w| w.slow.latency_ns).min(),
            Some(2 * MAX_WAITS as u64 + 1)
        );
        assert_eq!(kept.wait_sums.len(), MAX_SUMS + 1);
        assert_eq!(
            kept.wait_sums.iter().map(|s| s.wait_ns).sum::<u64>(),
            3 * MAX_WAITS as u64
        );
        assert_eq!(kept.wait_sums[0].device, None);
    }
}
