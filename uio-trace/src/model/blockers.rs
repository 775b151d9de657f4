//! Who held info_lock while others waited for it: by holder thread, and by pairs of operations.

use super::limits::{MAX_BLOCKERS, SHOWN_BLOCKERS};
use super::snapshot::{Blocker, OpPair};
use super::whatif::{Behind, GUEST_SHARE};
use crate::event::{DeviceKey, UioBlockerReading, UioOp};
use crate::format::printable;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// One entry of the kernel side's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    device: DeviceKey,
    waiter_op: UioOp,
    holder_op: Option<UioOp>,
    tgid: u32,
    tid: u32,
}

/// Waits, absolute since the trace began or a difference of two such.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Waits {
    count: u64,
    wait_ns: u64,
    same_cpu: u64,
}

impl Waits {
    fn since(self, base: Waits) -> Waits {
        Waits {
            count: self.count.saturating_sub(base.count),
            wait_ns: self.wait_ns.saturating_sub(base.wait_ns),
            same_cpu: self.same_cpu.saturating_sub(base.same_cpu),
        }
    }

    fn add(&mut self, other: Waits) {
        self.count = self.count.saturating_add(other.count);
        self.wait_ns = self.wait_ns.saturating_add(other.wait_ns);
        self.same_cpu = self.same_cpu.saturating_add(other.same_cpu);
    }
}

#[derive(Debug, Clone)]
struct Entry {
    comm: String,
    now: Waits,
    /// As it was when the interval began.
    base: Waits,
}

/// Number of readings by number of threads.
#[derive(Debug, Clone, Default)]
struct Rounds {
    now: BTreeMap<usize, u64>,
    /// As they were when the interval began.
    base: BTreeMap<usize, u64>,
}

impl Rounds {
    /// The median: a reading in which some threads ended and others began has them all. `None`: there was no reading.
    fn median(&self, interval: bool) -> Option<usize> {
        let since = |(threads, rounds): (&usize, &u64)| {
            let base = if interval {
                self.base.get(threads).copied()
            } else {
                None
            };
            (*threads, rounds.saturating_sub(base.unwrap_or(0)))
        };
        let all: u64 = self.now.iter().map(since).map(|(_, rounds)| rounds).sum();
        let mut below = 0;
        self.now.iter().map(since).find_map(|(threads, rounds)| {
            below += rounds;
            (rounds > 0 && 2 * below >= all).then_some(threads)
        })
    }
}

/// All holders others waited for.
#[derive(Debug, Clone, Default)]
pub struct Blockers {
    entries: HashMap<Key, Entry>,
    /// Between two readings, threads that others of the same kind of operation waited behind: how often there were so many.
    at_once: HashMap<(DeviceKey, UioOp), Rounds>,
    /// Waits behind each of them since the last round.
    grown: HashMap<(DeviceKey, UioOp), BTreeMap<(u32, u32), u64>>,
    /// Waits whose holder found no place.
    pub lost: u64,
}

impl Blockers {
    /// New readings; an entry that is not among them keeps its figures.
    pub fn readings(&mut self, readings: Vec<UioBlockerReading>) {
        for reading in readings {
            let key = Key {
                device: reading.device,
                waiter_op: reading.waiter_op,
                holder_op: reading.holder_op,
                tgid: reading.holder.tgid,
                tid: reading.holder.tid,
            };
            let now = Waits {
                count: reading.count,
                wait_ns: reading.wait_ns,
                same_cpu: reading.same_cpu,
            };
            let before = self.entries.get(&key).map_or(0, |entry| entry.now.count);
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.now = now;
            } else if self.entries.len() < MAX_BLOCKERS {
                let entry = Entry {
                    comm: printable(reading.holder.comm),
                    now,
                    base: Waits::default(),
                };
                self.entries.insert(key, entry);
            } else {
                self.lost += 1;
                continue;
            }
            if key.holder_op == Some(key.waiter_op) && now.count > before {
                let of = self.grown.entry((key.device, key.waiter_op)).or_default();
                *of.entry((key.tgid, key.tid)).or_default() += now.count - before;
            }
        }
    }

    /// Everything of a moment has been read.
    pub fn end_round(&mut self) {
        for (of, counts) in std::mem::take(&mut self.grown) {
            let guests = counts.values().sum::<u64>() as f64 * GUEST_SHARE;
            let threads = counts.values().filter(|count| **count as f64 >= guests).count();
            *self
                .at_once
                .entry(of)
                .or_default()
                .now
                .entry(threads)
                .or_default() += 1;
        }
    }

    /// A new interval begins.
    pub fn begin_interval(&mut self) {
        for entry in self.entries.values_mut() {
            entry.base = entry.now;
        }
        for rounds in self.at_once.values_mut() {
            rounds.base.clone_from(&rounds.now);
        }
    }

    fn of(&self, interval: bool, device: DeviceKey) -> impl Iterator<Item = (&Key, &Entry, Waits)> {
        self.entries.iter().filter_map(move |(key, entry)| {
            let waits = entry
                .now
                .since(if interval { entry.base } else { Waits::default() });
            (key.device == device && waits.count > 0).then_some((key, entry, waits))
        })
    }

    /// Holders of a device's lock, by the waits behind them, descending.
    pub fn holders(&self, interval: bool, device: DeviceKey) -> Vec<Blocker> {
        let mut sums: BTreeMap<(u32, u32, Option<UioOp>), (Waits, &str)> = BTreeMap::new();
        for (key, entry, waits) in self.of(interval, device) {
            let place = (key.tgid, key.tid, key.holder_op);
            sums.entry(place)
                .or_insert((Waits::default(), &entry.comm))
                .0
                .add(waits);
        }
        let mut rows: Vec<Blocker> = sums
            .into_iter()
            .map(|((tgid, tid, op), (waits, comm))| Blocker {
                op: op.map(|op| op.name().to_owned()),
                comm: comm.to_owned(),
                tgid,
                tid,
                count: waits.count,
                wait_ns: waits.wait_ns,
                same_cpu: waits.same_cpu,
            })
            .collect();
        rows.sort_by_key(|row| (Reverse(row.wait_ns), row.tgid, row.tid));
        rows.truncate(SHOWN_BLOCKERS);
        rows
    }

    /// Waits of a kind of operation, by thread of the same kind they began behind.
    pub fn behind(&self, interval: bool, device: DeviceKey, op: UioOp) -> Behind {
        let mut behind = Behind::default();
        let mut threads: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for (key, _, waits) in self
            .of(interval, device)
            .filter(|(key, _, _)| key.waiter_op == op)
        {
            behind.all = behind.all.saturating_add(waits.count);
            behind.wait_ns = behind.wait_ns.saturating_add(waits.wait_ns);
            behind.same_cpu = behind.same_cpu.saturating_add(waits.same_cpu);
            if key.holder_op == Some(op) {
                behind.own_wait_ns = behind.own_wait_ns.saturating_add(waits.wait_ns);
                let thread = threads.entry((key.tgid, key.tid)).or_default();
                *thread = thread.saturating_add(waits.count);
            }
        }
        behind.threads = threads.into_iter().collect();
        behind.at_once = self
            .at_once
            .get(&(device, op))
            .and_then(|rounds| rounds.median(interval));
        behind
    }

    /// What waited behind what, by the time waited, descending.
    pub fn pairs(&self, interval: bool, device: DeviceKey) -> Vec<OpPair> {
        let mut sums: BTreeMap<(UioOp, Option<UioOp>), Waits> = BTreeMap::new();
        for (key, _, waits) in self.of(interval, device) {
            sums.entry((key.waiter_op, key.holder_op)).or_default().add(waits);
        }
        let mut rows: Vec<OpPair> = sums
            .into_iter()
            .map(|((waiter, holder), waits)| OpPair {
                waiter: waiter.name().to_owned(),
                holder: holder.map(|op| op.name().to_owned()),
                count: waits.count,
                wait_ns: waits.wait_ns,
            })
            .collect();
        rows.sort_by(|a, b| {
            let names = |pair: &OpPair| (pair.waiter.clone(), pair.holder.clone());
            b.wait_ns.cmp(&a.wait_ns).then_with(|| names(a).cmp(&names(b)))
        });
        rows
    }
}
