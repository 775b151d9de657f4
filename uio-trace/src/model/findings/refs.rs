//! percpu_refs that do not end, are killed twice, or switch all the time; drains that hang.

use super::{finding, uio_behind, wall_ns, with};
use crate::format::{duration, plural};
use crate::model::snapshot::{Finding, InProgress, RefOwner, Severity, Snapshot};

/// Dying for longer than this, ns, is stuck: grace periods take milliseconds, seconds on a busy host.
pub const STUCK_NS: u64 = 5_000_000_000;
/// From this on, ns, it is critical.
pub const CRITICAL_STUCK_NS: u64 = 60_000_000_000;
/// Seen to wait for this long, ns, since the trace began, without having moved: no grace period takes so long often.
pub const WAITING_BEFORE_NS: u64 = 1_000_000_000;
/// Switches per second of one owner from which they are a storm.
pub const STORM_PER_SECOND: f64 = 50.0;
/// Switches below which there is no storm.
pub const STORM_MIN: u64 = 100;

pub(super) fn diagnose(snapshot: &Snapshot, findings: &mut Vec<Finding>) {
    for owner in &snapshot.ref_owners {
        findings.extend(killed_twice(owner));
        findings.extend(released_early(owner));
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

fn released_early(owner: &RefOwner) -> Option<Finding> {
    let n = owner.released_early;
    if n == 0 {
        return None;
    }
    let text = format!(
        "{}: {} released before the grace period of the switch was over: a reference put twice in that kernel code ({})",
        owner.owner,
        plural(n, "percpu_ref"),
        owner.release
    );
    let f = finding(
        "ref_released_early",
        Severity::Critical,
        owner.owner.clone(),
        text,
        0.0,
    );
    Some(with(f, [("released_early", n.into())]))
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
    let old = |p: &&InProgress| !p.uncertain && p.age_ns.is_some_and(|age| age >= STUCK_NS);
    waiting_before(snapshot, findings);
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
        let left = match oldest.references {
            Some(left) => format!("{} left after", plural(left, "reference")),
            None => format!("in phase \"{}\" for", oldest.phase),
        };
        let text = format!(
            "{}: {} killed and not gone, the oldest with {left} {}, killed by {} ({})",
            oldest.owner,
            plural(n, "percpu_ref"),
            age(oldest),
            oldest.comm,
            oldest.tgid,
        )
        .replace("with in phase", "in phase");
        let f = finding(
            "ref_stuck",
            severity(oldest),
            oldest.owner.clone(),
            text,
            n as f64,
        );
        let evidence = [
            ("refs", n.into()),
            ("oldest_ns", oldest.age_ns.into()),
            ("references", oldest.references.into()),
        ];
        findings.push(with(f, evidence));
    }
}

/// One finding for what each kind of wait keeps waiting.
fn waiting_before(snapshot: &Snapshot, findings: &mut Vec<Finding>) {
    // Unregistrations of UIO devices have findings of their own.
    let waits =
        |p: &&InProgress| p.age_ns.is_none() && p.seen_ns >= WAITING_BEFORE_NS && !uio_behind::unregisters(p);
    let mut groups: Vec<(&InProgress, u64)> = Vec::new();
    for p in snapshot.in_progress.iter().filter(waits) {
        match groups
            .iter_mut()
            .find(|(first, _)| (&first.owner, &first.phase) == (&p.owner, &p.phase))
        {
            Some((first, n)) => {
                *n += 1;
                if p.seen_ns > first.seen_ns {
                    *first = p;
                }
            }
            None => groups.push((p, 1)),
        }
    }
    for (first, n) in groups {
        let subject = format!("{} ({})", first.comm, first.tgid);
        let others = match n {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let text = format!(
            "{subject}{others}: waiting since before the trace, so for more than {}: {}, for {}",
            duration(first.seen_ns),
            first.owner,
            first.phase,
        );
        let severity = if first.seen_ns >= STUCK_NS {
            Severity::Critical
        } else {
            Severity::Warning
        };
        let f = finding("waiting_before_trace", severity, subject, text, n as f64);
        findings.push(with(f, [("tasks", n.into()), ("seen_ns", first.seen_ns.into())]));
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
