//! UIO operations that wait now, for long, and unregistrations that do not get on.

use super::{finding, with};
use crate::event::UioOp;
use crate::format::{duration, plural};
use crate::model::running::behind;
use crate::model::snapshot::{Finding, InProgress, InUio, Severity, Snapshot};
use std::collections::BTreeMap;

/// Waiting for this long, ns, is worth a line.
pub const STUCK_NS: u64 = 1_000_000_000;
/// Waiting for longer than this, ns, is critical.
const CRITICAL_NS: u64 = 5_000_000_000;

fn severity(ns: u64) -> Severity {
    if ns >= CRITICAL_NS {
        Severity::Critical
    } else {
        Severity::Warning
    }
}

fn who(row: &InProgress) -> String {
    format!("{} ({}/{})", row.comm, row.tgid, row.tid)
}

fn holder(uio: &InUio) -> String {
    let op = uio.holder_op.as_deref();
    let op = op.and_then(|name| UioOp::ALL.into_iter().find(|op| op.name() == name));
    uio.holder
        .as_ref()
        .map_or_else(String::new, |task| format!(", {}", behind(task, op)))
}

/// What the operations under way say; at most one finding of each kind for a device.
pub(super) fn diagnose(snapshot: &Snapshot, findings: &mut Vec<Finding>) {
    let mut waiters: BTreeMap<&str, Vec<(&InProgress, &InUio, u64)>> = BTreeMap::new();
    for row in &snapshot.in_progress {
        let Some(uio) = &row.uio else { continue };
        if uio.op == UioOp::Unregister.name() {
            findings.extend(unregister(snapshot, row, uio));
        } else if let Some(wait_ns) = uio.wait_ns.filter(|ns| *ns >= STUCK_NS) {
            waiters.entry(&row.owner).or_default().push((row, uio, wait_ns));
        }
    }
    for row in &snapshot.in_progress {
        let waited_for = |(first, _, _): &(&InProgress, &InUio, u64)| {
            let holder = first.uio.as_ref().and_then(|uio| uio.holder.as_ref());
            holder.is_some_and(|holder| holder.tid == row.tid)
        };
        if !waiters.values().flatten().any(waited_for) {
            findings.extend(in_the_driver(row));
        }
    }
    for (owner, mut rows) in waiters {
        rows.sort_by_key(|(row, _, wait_ns)| (std::cmp::Reverse(*wait_ns), row.tid));
        let Some((first, uio, wait_ns)) = rows.first() else {
            continue;
        };
        let others = match rows.len() {
            1 => String::new(),
            2 => "; another one waits, too".to_owned(),
            n => format!("; {} others wait, too", n - 1),
        };
        let text = format!(
            "{owner}: {} has waited {} for {} in {}{}{others}",
            who(first),
            duration(*wait_ns),
            first.phase,
            uio.op,
            holder(uio),
        );
        // As many threads stand still.
        let cost = rows.len() as f64;
        let f = finding("uio_stuck", severity(*wait_ns), owner.to_owned(), text, cost);
        let numbers = [("wait_ns", (*wait_ns).into()), ("waiters", rows.len().into())];
        findings.push(with(f, numbers));
    }
}

/// An operation that does not come back from the driver, with nobody behind it.
fn in_the_driver(row: &InProgress) -> Option<Finding> {
    let uio = row.uio.as_ref()?;
    let age_ns = row.age_ns.filter(|ns| *ns >= STUCK_NS)?;
    if uio.wait_ns.is_some() || uio.op == UioOp::Unregister.name() {
        return None;
    }
    let text = format!(
        "{}: {} has been in {} for {}, in the driver; nobody waits for it",
        row.owner,
        who(row),
        uio.op,
        duration(age_ns)
    );
    let severity = if age_ns >= CRITICAL_NS {
        Severity::Warning
    } else {
        Severity::Info
    };
    let f = finding("uio_long_op", severity, row.owner.clone(), text, 0.0);
    Some(with(f, [("age_ns", age_ns.into())]))
}

/// An unregistration that takes long: for what it waits.
fn unregister(snapshot: &Snapshot, row: &InProgress, uio: &InUio) -> Option<Finding> {
    let age_ns = row.age_ns.filter(|ns| *ns >= STUCK_NS)?;
    let waits_for = match uio.wait_ns {
        Some(wait_ns) => format!(
            "has waited {} for {}{}",
            duration(wait_ns),
            row.phase,
            holder(uio)
        ),
        None => {
            // A percpu_ref in place of the lock: whoever was inside before has a reference.
            let inside = |other: &&InProgress| {
                other.age_ns > row.age_ns
                    && other.uio.as_ref().is_some_and(|of| {
                        (of.minor, of.generation) == (uio.minor, uio.generation) && of.op != uio.op
                    })
            };
            let mut inside = snapshot.in_progress.iter().filter(inside);
            let first = inside.next().and_then(|other| {
                let op = &other.uio.as_ref()?.op;
                Some(format!(
                    "; {} has been inside {op} for {}",
                    who(other),
                    duration(other.age_ns?)
                ))
            });
            let more = match inside.count() {
                0 => String::new(),
                n => format!(
                    " and {} since before it began",
                    plural(n as u64, "other operation")
                ),
            };
            format!(
                "has been under way for {}{}{more}",
                duration(age_ns),
                first.unwrap_or_default()
            )
        }
    };
    let text = format!("{}: its unregistration by {} {waits_for}", row.owner, who(row));
    let f = finding(
        "uio_unregister_stuck",
        severity(age_ns),
        row.owner.clone(),
        text,
        1.0,
    );
    Some(with(f, [("seen_ns", age_ns.into())]))
}

#[cfg(test)]
mod tests {
    use crate::event::{DeviceKey, Event, EventKind, KernelPtr, LockWait, Task, UioOp, UioRunning};
    use crate::model::snapshot::{Finding, Severity};
    use crate::model::{Config, Model, Scope};

    fn row(tid: u32, op: UioOp, since_s: u64, behind: Option<u32>) -> UioRunning {
        let task = |tid| Task {
            tgid: 1,
            tid,
            comm: "w".into(),
        };
        UioRunning {
            by: task(tid),
            device: DeviceKey {
                minor: 0,
                generation: 0,
            },
            idev: KernelPtr(1),
            op,
            since_ns: since_s * 1_000_000_000,
            waits: behind.map(|tid| LockWait {
                info_lock: true,
                since_ns: since_s * 1_000_000_000,
                holder: Some(task(tid)),
                holder_op: Some(UioOp::Write),
            }),
        }
    }

    /// Findings ten seconds after the begin that are about operations under way.
    fn findings(rows: Vec<UioRunning>) -> Vec<Finding> {
        let mut model = Model::new(Config {
            start_ns: Some(0),
            ..Config::default()
        });
        model.apply(Event {
            ts_ns: 10_000_000_000,
            kind: EventKind::UioRunning(rows),
        });
        let all = model.snapshot(Scope::SinceStart).findings;
        let ours = ["uio_stuck", "uio_long_op", "uio_unregister_stuck"];
        all.into_iter()
            .filter(|f| ours.contains(&f.id.as_str()))
            .collect()
    }

    #[test]
    fn one_sentence_for_all_that_wait() {
        let found = findings(vec![
            row(5, UioOp::Write, 1, None),
            row(6, UioOp::Poll, 2, Some(5)),
            row(7, UioOp::Write, 3, Some(5)),
            row(8, UioOp::Write, 4, Some(5)),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            found[0].text,
            "uio0: w (1/6) has waited 8.00 s for info_lock in poll, behind w (1/5) in write; 2 others wait, too"
        );
        assert_eq!(found[0].severity, Severity::Critical);
        // A wait of half a second is none yet.
        let mut short = row(6, UioOp::Poll, 9, Some(5));
        short.waits.as_mut().unwrap().since_ns = 9_500_000_000;
        assert_eq!(findings(vec![row(5, UioOp::Write, 9, None), short]).len(), 1);
    }

    #[test]
    fn an_unregistration_names_what_it_waits_for() {
        let found = findings(vec![
            row(5, UioOp::Write, 1, None),
            row(6, UioOp::Unregister, 2, Some(5)),
        ]);
        let texts: Vec<&str> = found.iter().map(|f| f.text.as_str()).collect();
        let stuck =
            "uio0: its unregistration by w (1/6) has waited 8.00 s for info_lock, behind w (1/5) in write";
        assert!(texts.contains(&stuck), "{texts:?}");
        // A percpu_ref: who has been inside since before.
        let found = findings(vec![
            row(5, UioOp::Write, 1, None),
            row(6, UioOp::Unregister, 2, None),
            row(7, UioOp::Write, 3, None),
        ]);
        let texts: Vec<&str> = found.iter().map(|f| f.text.as_str()).collect();
        let stuck = "uio0: its unregistration by w (1/6) has been under way for 8.00 s; w (1/5) has been inside write for \
                     9.00 s";
        assert!(texts.contains(&stuck), "{texts:?}");
    }

    #[test]
    fn a_long_stay_in_the_driver_is_told_when_nobody_waits() {
        let found = findings(vec![row(5, UioOp::Write, 8, None)]);
        assert_eq!(
            found[0].text,
            "uio0: w (1/5) has been in write for 2.00 s, in the driver; nobody waits for it"
        );
        assert_eq!(found[0].severity, Severity::Info);
    }
}
