//! percpu_refs: kills, grace periods and ends, by owner (release function).
//!
//! A kill opens an entry under the ref's address. The switch to atomic mode ends its grace period, the release its
//! drain (lib/percpu-refcount.c: `percpu_ref_kill_and_confirm`, `percpu_ref_switch_to_atomic_rcu`). The kernel reuses
//! the memory, so an address killed anew is another ref.
//!
//! Not every end is seen: a release function is traced from its owner's first kill on, and events get lost. So the number
//! of references at the switch says whether it ended there, and the memory of a ref that is dying for long is looked at
//! ([`look`]).

mod look;
mod rows;

use super::histogram::Recorder;
use super::limits::{
    MAX_KILL_STACKS, MAX_OPEN_REFS, MAX_OWNER_STACKS, MAX_REF_OWNERS, MAX_SYMBOLS, UNCERTAIN_LIFETIME_NS,
};
use crate::event::{KernelPtr, MonotonicNs, Task};
use crate::fast_map::PtrMap;
use crate::format::printable;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Where the end of a grace period is seen.
pub const SWITCH_HOOK: &str = "percpu_ref_switch_to_atomic_rcu";
/// Name of the program that looks at a ref's memory when asked, among the probes.
pub const LOOK_HOOK: &str = "look at a percpu_ref";

/// Counts of an owner over a stretch of time.
#[derive(Debug, Clone, Default)]
struct Figures {
    kills: u64,
    already_atomic: u64,
    already_dead: u64,
    switches: u64,
    released: u64,
    early: u64,
    unseen_ends: u64,
    revived: u64,
    grace_period: Recorder,
    drain: Recorder,
}

#[derive(Debug, Clone, Default)]
struct Owner {
    /// Symbol, with ` [module]`.
    release: String,
    /// Its function's releases are seen.
    traced: bool,
    total: Figures,
    interval: Figures,
    /// Of `last_killer`; its comm is kept apart so that its memory is reused.
    killer: Option<u32>,
    killer_comm: String,
    /// By number of the stack.
    stacks: BTreeMap<u32, StackKills>,
}

/// Kills with the same kernel stack.
#[derive(Debug, Clone, Default)]
struct StackKills {
    total: u64,
    interval: u64,
    last: Task,
}

impl Owner {
    /// Counts a switch; `sample`: its grace period, ns, if it had one.
    fn switched(&mut self, sample: Option<u64>) {
        for figures in [&mut self.total, &mut self.interval] {
            figures.switches += 1;
            if let Some(ns) = sample {
                figures.grace_period.record(ns);
            }
        }
    }

    /// Counts an end in both stretches of time.
    fn count(&mut self, count: impl Fn(&mut Figures)) {
        count(&mut self.total);
        count(&mut self.interval);
    }
}

/// A killed ref whose end was not seen.
#[derive(Debug, Clone)]
struct OpenRef {
    owner: usize,
    release: KernelPtr,
    killed_ns: MonotonicNs,
    switched: bool,
    /// References left, as last heard; `None`: not known, or in its grace period.
    references: Option<u64>,
    /// A look found none left: the next one that does ends it.
    seen_empty: bool,
    by: Task,
    uncertain_since: Option<MonotonicNs>,
}

/// All refs.
#[derive(Debug, Clone, Default)]
pub struct Refs {
    owners: Vec<Owner>,
    by_release: PtrMap<usize>,
    by_symbol: HashMap<String, usize>,
    symbols: PtrMap<String>,
    /// Frames of killers' stacks by number.
    stacks: HashMap<u32, Vec<String>>,
    open: PtrMap<OpenRef>,
    traced: HashSet<String>,
    /// Kills that found no place, by bound.
    pub owners_lost: u64,
    /// Kills that were counted but are not followed.
    pub open_lost: u64,
    /// Given up: uncertain for [`UNCERTAIN_LIFETIME_NS`].
    pub expired: u64,
    any_uncertain: bool,
    /// No probe sees the end of a grace period on this kernel.
    switches_untraced: bool,
    /// The memory of a ref can be looked at.
    looks: bool,
}

/// A kill, as its event says it.
#[derive(Debug, Clone, Copy)]
pub struct Kill {
    /// When.
    pub ts_ns: MonotonicNs,
    /// The ref.
    pub reference: KernelPtr,
    /// Its release function.
    pub release: KernelPtr,
    /// No grace period follows.
    pub already_atomic: bool,
    /// Was dead.
    pub already_dead: bool,
    /// References left, when it was in atomic mode.
    pub references: Option<u64>,
    /// The killer's kernel stack.
    pub stack: Option<u32>,
    /// It belongs to a known AIO context, whose releases are always traced.
    pub aio: bool,
}

/// A release, as its event says it.
#[derive(Debug, Clone, Copy)]
pub struct Release {
    /// When.
    pub ts_ns: MonotonicNs,
    /// The ref.
    pub reference: KernelPtr,
    /// Its release function; `None` where only the AIO context is known.
    pub release: Option<KernelPtr>,
    /// The switch to atomic mode had not finished: a kernel bug.
    pub early: bool,
}

impl Refs {
    /// Name of an address.
    pub fn symbol(&mut self, addr: KernelPtr, name: &str, module: Option<&str>) {
        if self.symbols.len() >= MAX_SYMBOLS && !self.symbols.contains_key(&addr) {
            return;
        }
        let symbol = match module {
            Some(module) => format!("{name} [{module}]"),
            None => name.to_string(),
        };
        if self.symbols.insert(addr, symbol.clone()).as_ref() == Some(&symbol) {
            return;
        }
        // Named after its first use, or the address has changed hands with a module: look it up anew.
        if let Some(index) = self.by_release.remove(&addr)
            && let Some(owner) = self.owners.get_mut(index)
            && owner.release == unnamed(addr)
            && !self.by_symbol.contains_key(&symbol)
        {
            self.by_symbol.remove(&owner.release);
            owner.release.clone_from(&symbol);
            owner.traced |= self.traced.contains(&symbol);
            self.by_symbol.insert(symbol, index);
            self.by_release.insert(addr, index);
        }
    }

    /// A killer's kernel stack.
    pub fn kill_stack(&mut self, id: u32, frames: Vec<String>) {
        if self.stacks.len() < MAX_KILL_STACKS || self.stacks.contains_key(&id) {
            self.stacks
                .insert(id, frames.into_iter().map(printable).collect());
        }
    }

    /// Whether a release function is the uio module's: its percpu_refs are in place of info_lock.
    pub fn is_of_uio(&self, release: KernelPtr) -> bool {
        self.symbols
            .get(&release)
            .is_some_and(|symbol| symbol.ends_with(" [uio]"))
    }

    /// Hooks that are attached: those that are release functions make their owners' ends known.
    pub fn traced_hooks(&mut self, hooks: HashSet<String>) {
        for owner in &mut self.owners {
            owner.traced |= hooks.contains(&owner.release);
        }
        self.switches_untraced = !hooks.contains(SWITCH_HOOK);
        self.looks = hooks.contains(LOOK_HOOK);
        self.traced = hooks;
    }

    fn owner(&mut self, release: KernelPtr) -> Option<usize> {
        if let Some(index) = self.by_release.get(&release) {
            return Some(*index);
        }
        let symbol = self
            .symbols
            .get(&release)
            .cloned()
            .unwrap_or_else(|| unnamed(release));
        let index = match self.by_symbol.get(&symbol) {
            Some(index) => *index,
            None if self.owners.len() >= MAX_REF_OWNERS => return None,
            None => {
                let traced = self.traced.contains(&symbol);
                self.owners.push(Owner {
                    release: symbol.clone(),
                    traced,
                    ..Owner::default()
                });
                self.by_symbol.insert(symbol, self.owners.len() - 1);
                self.owners.len() - 1
            }
        };
        self.by_release.insert(release, index);
        Some(index)
    }

    /// A kill by `by`.
    pub fn kill(&mut self, kill: Kill, by: Task) {
        let index = self.owner(kill.release);
        let Some((index, owner)) = index.and_then(|i| Some((i, self.owners.get_mut(i)?))) else {
            self.owners_lost += 1;
            return;
        };
        owner.traced |= kill.aio;
        owner.killer = Some(by.tgid);
        owner.killer_comm.clone_from(&by.comm);
        if let Some(id) = kill.stack
            && (owner.stacks.len() < MAX_OWNER_STACKS || owner.stacks.contains_key(&id))
        {
            let kills = owner.stacks.entry(id).or_default();
            kills.total += 1;
            kills.interval += 1;
            kills.last.clone_from(&by);
        }
        for figures in [&mut owner.total, &mut owner.interval] {
            figures.kills += 1;
            figures.already_dead += u64::from(kill.already_dead);
            figures.already_atomic += u64::from(kill.already_atomic && !kill.already_dead);
        }
        if kill.already_dead {
            // The first kill's entry stays: that ref is still on its way.
            return;
        }
        if kill.references == Some(0) && !owner.traced {
            // The kill drops the last reference: it is released before the kill returns.
            owner.count(|f| {
                f.released += 1;
                f.drain.record(0);
            });
            self.unseen_end(kill.reference);
            return;
        }
        let followed = owner.traced
            || (self.looks && kill.references.is_some())
            || !(kill.already_atomic || self.switches_untraced);
        if !followed {
            owner.count(|f| f.unseen_ends += 1);
        }
        // An open entry under this address lost its end, or its memory is another ref's now.
        self.unseen_end(kill.reference);
        if !followed {
            return;
        }
        if self.open.len() >= MAX_OPEN_REFS {
            self.open_lost += 1;
            return;
        }
        let open = OpenRef {
            owner: index,
            release: kill.release,
            killed_ns: kill.ts_ns,
            switched: kill.already_atomic,
            references: kill.references,
            seen_empty: false,
            by,
            uncertain_since: None,
        };
        self.open.insert(kill.reference, open);
    }

    /// Ends the entry under this address, whose end was not seen.
    fn unseen_end(&mut self, reference: KernelPtr) {
        if let Some(open) = self.open.remove(&reference)
            && let Some(owner) = self.owners.get_mut(open.owner)
        {
            owner.count(|f| f.unseen_ends += 1);
        }
    }

    /// A switch to atomic mode finished its grace period. `references`: left, if known.
    pub fn switched(
        &mut self,
        ts_ns: MonotonicNs,
        reference: KernelPtr,
        release: KernelPtr,
        references: Option<u64>,
    ) {
        let Some(open) = self.open.get_mut(&reference) else {
            match self.owner(release).and_then(|index| self.owners.get_mut(index)) {
                Some(owner) => owner.switched(None),
                None => self.owners_lost += 1,
            }
            return;
        };
        // A second switch without another kill (switch_to_atomic of a living ref came before) is no sample.
        let age = ts_ns.saturating_sub(open.killed_ns);
        let sample = (!open.switched).then_some(age);
        open.switched = true;
        open.references = references;
        // It was alive after the loss: its end is still to come.
        open.uncertain_since = None;
        let Some(owner) = self.owners.get_mut(open.owner) else {
            return;
        };
        owner.switched(sample);
        if owner.traced {
            return;
        }
        match references {
            // The switch drops the last reference: it is released at once.
            Some(0) => owner.count(|f| {
                f.released += 1;
                f.drain.record(age);
            }),
            Some(_) if self.looks => return,
            _ => owner.count(|f| f.unseen_ends += 1),
        }
        self.open.remove(&reference);
    }

    /// The last reference is gone.
    pub fn released(&mut self, release: Release) {
        let open = self.open.remove(&release.reference);
        let index = match (&open, release.release) {
            (Some(open), _) => Some(open.owner),
            (None, Some(release)) => self.owner(release),
            (None, None) => None,
        };
        let Some(owner) = index.and_then(|i| self.owners.get_mut(i)) else {
            return;
        };
        // Of a function that is traced since a moment ago the end may have been told from the references at the switch.
        let counted = open.is_some() || owner.traced;
        owner.traced = true;
        owner.count(|f| {
            f.released += u64::from(counted);
            f.early += u64::from(release.early);
            if let Some(open) = &open {
                f.drain.record(release.ts_ns.saturating_sub(open.killed_ns));
            }
        });
    }

    /// The ref is known to be gone, its release was not seen.
    pub fn forget(&mut self, reference: KernelPtr) {
        self.open.remove(&reference);
    }

    /// Lifecycle events were lost before `ts_ns`.
    pub fn mark_uncertain(&mut self, ts_ns: MonotonicNs) {
        for open in self.open.values_mut().filter(|o| o.killed_ns <= ts_ns) {
            open.uncertain_since.get_or_insert(ts_ns);
            self.any_uncertain = true;
        }
    }

    /// Gives up what has been uncertain for too long.
    pub fn sweep(&mut self, now_ns: MonotonicNs) {
        if !self.any_uncertain {
            return;
        }
        let before = self.open.len();
        let deadline = now_ns.saturating_sub(UNCERTAIN_LIFETIME_NS);
        self.open
            .retain(|_, o| o.uncertain_since.is_none_or(|since| since > deadline));
        self.expired += (before - self.open.len()) as u64;
        self.any_uncertain = self.open.values().any(|o| o.uncertain_since.is_some());
    }

    /// A new interval begins.
    pub fn begin_interval(&mut self) {
        for owner in &mut self.owners {
            for kills in owner.stacks.values_mut() {
                kills.interval = 0;
            }
            let f = &mut owner.interval;
            f.grace_period.clear();
            f.drain.clear();
            *f = Figures {
                grace_period: std::mem::take(&mut f.grace_period),
                drain: std::mem::take(&mut f.drain),
                ..Figures::default()
            };
        }
    }

    /// Open entries that may have lost their end.
    pub fn uncertain(&self) -> u64 {
        self.open.values().filter(|o| o.uncertain_since.is_some()).count() as u64
    }

    /// Release function, kills and switches of each owner since the begin, for the history.
    pub fn totals(&self) -> impl Iterator<Item = (&str, u64, u64)> + '_ {
        self.owners
            .iter()
            .map(|o| (o.release.as_str(), o.total.kills, o.total.switches))
    }
}

/// Symbol without its module.
fn bare(symbol: &str) -> &str {
    symbol.split(' ').next().unwrap_or(symbol)
}

/// Stands for a release function whose name never came.
fn unnamed(addr: KernelPtr) -> String {
    format!("{:#x}", addr.0)
}
