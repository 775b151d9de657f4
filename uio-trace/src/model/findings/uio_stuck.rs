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
