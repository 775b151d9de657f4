//! percpu_refs that do not end, are killed twice, or switch all the time; drains that hang.

use super::{finding, wall_ns, with};
use crate::format::{duration, plural};
use crate::model::snapshot::{Finding, InProgress, RefOwner, Severity, Snapshot};

/// Dying for longer than this, ns, is stuck: grace periods take milliseconds, seconds on a busy host.
pub const STUCK_NS: u64 = 5_000_000_000;
/// From this on, ns, it is critical.
pub const CRITICAL_STUCK_NS: u64 = 60_000_000_000;
/// Switches per second of one owner from which they are a storm.
pub const STORM_PER_SECOND: f64 = 50.0;
/// Switches below which there is no storm.
pub const STORM_MIN: u64 = 100;

pub(super) fn diagnose(snapshot: &Snapshot, findings: &mut Vec<Finding>) {
    for owner in &snapshot.ref_owners {
        findings.extend(killed_twice(owner));
        if !owner.own {
            findings.extend(storm(snapshot, owner));
        }
    }
    stuck(snapshot, findings);
}

fn killed_twice(owner: &RefOwner) -> Option<Finding> {
    let n = owner.kills_already_dead;
    if n == 0 {
        return None;
    }
    let text = format!(
        "{}: {} of a percpu_ref that was dead already: a bug in that kernel code ({})",
        owner.owner,
        plural(n, "kill"),
        owner.release
    );
    let f = finding(
        "ref_killed_twice",
        Severity::Critical,
        owner.owner.clone(),
        text,
        0.0,
    );
    Some(with(f, [("kills_already_dead", n.into())]))
}

fn storm(snapshot: &Snapshot, owner: &RefOwner) -> Option<Finding> {
    let per_second = owner.switches as f64 * 1e9 / wall_ns(snapshot);
    if owner.switches < STORM_MIN || per_second < STORM_PER_SECOND {
        return None;
    }
    let text = format!(
        "{}: {} to atomic mode, {per_second:.0} per second, each an RCU grace period (p50 {})",
        owner.owner,
        plural(owner.switches, "switch"),
        duration(owner.grace_period_ns.p50),
    );
    let f = finding(
        "mode_switch_storm",
        Severity::Warning,
        owner.owner.clone(),
        text,
        0.0,
    );
    Some(with(
        f,
        [
            ("switches", owner.switches.into()),
            ("per_second", per_second.into()),
        ],
    ))
}

/// One finding for each owner with something stuck, one for each stuck drain.
fn stuck(snapshot: &Snapshot, findings: &mut Vec<Finding>) {
    // What may only have lost its end is no diagnosis; it stays under way, marked.
    let old = |p: &&InProgress| !p.uncertain && p.age_ns.is_none_or(|age| age >= STUCK_NS);
    let mut refs: Vec<(&InProgress, u64)> = Vec::new();
    for p in snapshot.in_progress.iter().filter(old) {
        if p.subject == "aio_drain" {
            findings.push(stuck_drain(p));
        } else if let Some((_, n)) = refs.iter_mut().find(|(first, _)| first.owner == p.owner) {
            *n += 1;
        } else {
            // Longest first: the first of an owner is its oldest.
            refs.push((p, 1));
        }
    }
    for (oldest, n) in refs {
        let text = format!(
            "{}: {} killed and not gone, the oldest for {} in phase \"{}\", killed by {} ({})",
            oldest.owner,
            plural(n, "percpu_ref"),
            age(oldest),
            oldest.phase,
            oldest.comm,
            oldest.tgid,
        );
        let f = finding(
            "ref_stuck",
            severity(oldest),
            oldest.owner.clone(),
            text,
            n as f64,
        );
        findings.push(with(f, [("refs", n.into()), ("oldest_ns", oldest.age_ns.into())]));
    }
}

fn stuck_drain(p: &InProgress) -> Finding {
    let subject = format!("{} ({})", p.comm, p.tgid);
    let text = format!(
        "{subject} hangs in {} for {}: {}, waiting for {}",
        p.owner,
        age(p),
        p.detail,
        p.phase
    );
    // Its thread does nothing else meanwhile: a second lost each second.
    let f = finding("aio_drain_stuck", severity(p), subject, text, 1.0);
    with(f, [("age_ns", p.age_ns.into())])
}

fn severity(p: &InProgress) -> Severity {
    if p.age_ns.is_none_or(|age| age >= CRITICAL_STUCK_NS) {
        Severity::Critical
    } else {
        Severity::Warning
    }
}

fn age(p: &InProgress) -> String {
    p.age_ns
        .map_or_else(|| "longer than the trace".to_string(), duration)
}
