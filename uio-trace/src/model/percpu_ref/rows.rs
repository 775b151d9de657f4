//! What readers get of percpu_refs.

use super::super::histogram;
use super::super::limits::SHOWN_KILL_STACKS;
use super::super::owners;
use super::super::snapshot::{Histogram, InProgress, KillStack, RefOwner};
use super::{Owner, Refs, bare};
use crate::event::{KernelPtr, MonotonicNs};
use crate::format::plural;

/// Dying refs of an owner.
#[derive(Debug, Clone, Copy, Default)]
struct Dying {
    refs: u64,
    oldest: Option<MonotonicNs>,
    /// Sum over those of which it is known.
    references: Option<u64>,
}

impl Refs {
    /// Grace periods of all refs but the tool's own: how long RCU takes on this host.
    pub fn grace_periods(&self, interval: bool) -> Histogram {
        let owners = self.owners.iter().filter(|o| !owner_name(&o.release).1);
        let each: Vec<Histogram> = owners
            .map(|owner| if interval { &owner.interval } else { &owner.total })
            .map(|figures| figures.grace_period.histogram())
            .collect();
        histogram::merge(each.iter())
    }

    /// Records `ref_owner`.
    pub fn snapshot(&self, interval: bool, now_ns: MonotonicNs) -> Vec<RefOwner> {
        let mut dying = vec![Dying::default(); self.owners.len()];
        for open in self.open.values() {
            if let Some(d) = dying.get_mut(open.owner) {
                d.refs += 1;
                d.oldest = Some(d.oldest.map_or(open.killed_ns, |o| o.min(open.killed_ns)));
                if let Some(n) = open.references {
                    d.references = Some(d.references.unwrap_or(0).saturating_add(n));
                }
            }
        }
        let mut rows: Vec<RefOwner> = self
            .owners
            .iter()
            .zip(dying)
            .map(|(owner, dying)| self.row(owner, interval, dying, now_ns))
            .filter(|r| r.kills + r.switches + r.dying + r.released.unwrap_or(0) > 0)
            .collect();
        rows.sort_by(|a, b| (b.kills, &a.release).cmp(&(a.kills, &b.release)));
        rows
    }

    fn row(&self, owner: &Owner, interval: bool, dying: Dying, now_ns: u64) -> RefOwner {
        let f = if interval { &owner.interval } else { &owner.total };
        let (name, own) = owner_name(&owner.release);
        // Without a trace of the function some ends can still be told: those that the switch itself brings.
        let ends_seen = owner.traced || self.looks || owner.total.released > 0;
        RefOwner {
            owner: name,
            release: owner.release.clone(),
            kills: f.kills,
            kills_already_atomic: f.already_atomic,
            kills_already_dead: f.already_dead,
            switches: f.switches,
            released: ends_seen.then_some(f.released),
            released_early: f.early,
            ends_unseen: f.unseen_ends,
            revived: f.revived,
            grace_period_ns: f.grace_period.histogram(),
            drain_ns: f.drain.histogram(),
            dying: dying.refs,
            oldest_dying_ns: dying.oldest.map(|ns| now_ns.saturating_sub(ns)),
            dying_references: dying.references,
            last_killer: owner.killer.map(|tgid| format!("{} ({tgid})", owner.killer_comm)),
            kill_stacks: self.kill_stacks(owner, interval),
            own,
        }
    }

    fn kill_stacks(&self, owner: &Owner, interval: bool) -> Vec<KillStack> {
        let rows = owner.stacks.iter().filter_map(|(id, kills)| {
            let count = if interval { kills.interval } else { kills.total };
            let frames = self.stacks.get(id).filter(|_| count > 0)?;
            Some(KillStack {
                count,
                last_killer: format!("{} ({})", kills.last.comm, kills.last.tgid),
                frames: frames.clone(),
            })
        });
        let mut rows: Vec<KillStack> = rows.collect();
        rows.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.frames.cmp(&b.frames)));
        rows.truncate(SHOWN_KILL_STACKS);
        rows
    }

    /// Records `in_progress`: dying refs, without those `of_drain` accounts for.
    pub fn in_progress(&self, now_ns: MonotonicNs, of_drain: impl Fn(KernelPtr) -> bool) -> Vec<InProgress> {
        let open = self.open.iter().filter(|(reference, _)| !of_drain(**reference));
        open.filter_map(|(_, o)| {
            let owner = self.owners.get(o.owner)?;
            let references = o.references.filter(|_| o.switched);
            let left = references.map_or_else(String::new, |n| format!("; {} left", plural(n, "reference")));
            let age_ns = now_ns.saturating_sub(o.killed_ns);
            Some(InProgress {
                subject: "percpu_ref".to_string(),
                owner: owner_name(&owner.release).0,
                tgid: o.by.tgid,
                tid: o.by.tid,
                comm: o.by.comm.clone(),
                phase: if o.switched { "references" } else { "grace period" }.to_string(),
                age_ns: Some(age_ns),
                seen_ns: age_ns,
                references,
                detail: format!("{}{left}", owner.release),
                stack: None,
                direct_files: None,
                uncertain: o.uncertain_since.is_some(),
                uio: None,
            })
        })
        .collect()
    }
}

fn owner_name(release: &str) -> (String, bool) {
    match owners::lookup(bare(release)) {
        Some(known) => (known.owner.to_string(), known.own),
        None => (release.to_string(), false),
    }
}
