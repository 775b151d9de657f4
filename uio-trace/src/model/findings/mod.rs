//! Named diagnoses of a snapshot: what costs time, what is stuck, what is not the problem, what was not looked at.
//!
//! A finding is one sentence with its numbers, and the numbers apart as evidence. They are ranked by `cost`: time lost
//! per second of wall time, which readers call so: what the tool itself takes is its cost. There is always one, if only that nothing was found and what was checked.

mod aio;
pub mod evidence;
mod refs;
mod uio;
mod uio_behind;
mod uio_stuck;

use super::snapshot::{Finding, ProbeState, Severity, Snapshot};
use crate::format::{duration_or_unknown, plural};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Findings of a snapshot; the least costly beyond are left out.
pub const MAX_FINDINGS: usize = 32;

/// The findings of a snapshot, most time lost first; never empty.
pub fn diagnose(snapshot: &Snapshot) -> Vec<Finding> {
    let mut findings = Vec::new();
    uio::diagnose(snapshot, &mut findings);
    aio::diagnose(snapshot, &mut findings);
    refs::diagnose(snapshot, &mut findings);
    losses(snapshot, &mut findings);
    late_cpus(snapshot, &mut findings);
    nothing_here(snapshot, &mut findings);
    findings.sort_by(|a, b| {
        let by_cost = b.cost.total_cmp(&a.cost);
        by_cost
            .then(b.severity.cmp(&a.severity))
            .then_with(|| (&a.id, &a.subject).cmp(&(&b.id, &b.subject)))
    });
    findings.truncate(MAX_FINDINGS);
    findings
}

/// A finding under construction.
fn finding(id: &str, severity: Severity, subject: String, text: String, cost: f64) -> Finding {
    Finding {
        id: id.to_string(),
        severity,
        subject,
        text,
        cost,
        evidence: BTreeMap::new(),
    }
}

/// Adds numbers to it.
fn with<const N: usize>(mut finding: Finding, evidence: [(&str, Value); N]) -> Finding {
    finding
        .evidence
        .extend(evidence.map(|(name, value)| (name.to_string(), value)));
    finding
}

/// Length of the snapshot's stretch, ns, at least 1.
fn wall_ns(snapshot: &Snapshot) -> f64 {
    snapshot.interval.duration_ns.max(1) as f64
}

fn losses(snapshot: &Snapshot, findings: &mut Vec<Finding>) {
    let total = snapshot.loss.total();
    if total == 0 {
        return;
    }
    let mut reasons: Vec<(&String, &u64)> = snapshot.loss.dropped.iter().collect();
    reasons.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let named: Vec<String> = reasons
        .iter()
        .take(3)
        .map(|(reason, n)| format!("{reason} {n}"))
        .collect();
    let more = if reasons.len() > 3 { ", ..." } else { "" };
    let text = format!(
        "{} lost ({}{more}): counts and times are lower bounds",
        plural(total, "event"),
        named.join(", "),
    );
    let f = finding("losses", Severity::Warning, "trace".to_string(), text, 0.0);
    findings.push(with(
        f,
        [
            ("lost", total.into()),
            ("uncertain", snapshot.loss.uncertain.into()),
        ],
    ));
}

/// For at most so long a CPU that comes online is not followed, ms: the tracer's round of looks, and its work.
const CPU_FOLLOWED_MS: u64 = 500;

/// A breakpoint is set on each CPU by itself, so what happens on a new one before that is not seen.
fn late_cpus(snapshot: &Snapshot, findings: &mut Vec<Finding>) {
    let cpus: BTreeSet<u32> = snapshot.probes.iter().flat_map(|p| p.late_cpus.clone()).collect();
    if cpus.is_empty() {
        return;
    }
    let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
    let text = format!(
        "CPU {} came online while tracing: kills and switches of percpu_refs on it are not seen for the first half second",
        list.join(", "),
    );
    let f = finding("cpu_came_online", Severity::Info, "trace".to_string(), text, 0.0);
    findings.push(with(
        f,
        [
            ("cpus", cpus.len().into()),
            ("unseen_at_most_ms", CPU_FOLLOWED_MS.into()),
        ],
    ));
}

/// Says what was looked at when nothing waits, and what could not be.
fn nothing_here(snapshot: &Snapshot, findings: &mut Vec<Finding>) {
    let blind = blind_subjects(snapshot);
    for (subject, reason) in &blind {
        let text = format!("{subject} is not checked: {reason}");
        findings.push(finding(
            "not_checked",
            Severity::Warning,
            (*subject).to_string(),
            text,
            0.0,
        ));
    }
    let waits = findings
        .iter()
        .any(|f| f.severity > Severity::Info && !SAYS_NOTHING.contains(&f.id.as_str()));
    if waits {
        return;
    }
    // What is said of UIO operations is said by their own findings.
    let mut rows = snapshot.in_progress.iter().filter(|row| row.uio.is_none());
    if let Some(oldest) = rows.next() {
        let text = format!(
            "{} under way, the oldest for {}: no longer than usual",
            plural(rows.count() as u64 + 1, "drain or percpu_ref"),
            duration_or_unknown(oldest.age_ns),
        );
        let f = finding("under_way", Severity::Info, "host".to_string(), text, 0.0);
        findings.push(with(f, [("oldest_ns", oldest.age_ns.into())]));
        return;
    }
    let ops: u64 = snapshot
        .uio_devices
        .iter()
        .flat_map(|d| &d.ops)
        .map(|o| o.count)
        .sum();
    let drains = snapshot.aio_drains.len() as u64 + snapshot.aio_drains_omitted;
    let (mut kills, mut switches) = (0, 0);
    for owner in snapshot.ref_owners.iter().filter(|o| !o.own) {
        kills += owner.kills;
        switches += owner.switches;
    }
    let uio = match (snapshot.uio_present, snapshot.uio_devices.len() as u64) {
        (Some(false), 0) => "uio is not loaded".to_string(),
        (None, 0) => "whether uio is loaded is not known".to_string(),
        (_, n) => format!("{} with {}", plural(n, "UIO device"), plural(ops, "operation")),
    };
    let checked = [
        ("UIO", uio),
        ("AIO", plural(drains, "AIO drain")),
        (
            "percpu_ref",
            format!(
                "{} and {} of percpu_refs",
                plural(kills, "kill"),
                plural(switches, "switch")
            ),
        ),
    ];
    let seen: Vec<String> = checked
        .into_iter()
        .filter(|(name, _)| blind.iter().all(|b| b.0 != *name))
        .map(|c| c.1)
        .collect();
    if seen.is_empty() {
        return;
    }
    let text = format!(
        "nothing here is waiting on {}; checked: {}",
        waiting_on(&blind),
        seen.join(", ")
    );
    let f = finding("nothing_here", Severity::Info, "host".to_string(), text, 0.0);
    let evidence = [
        ("uio_ops", ops.into()),
        ("aio_drains", drains.into()),
        ("ref_kills", kills.into()),
    ];
    findings.push(with(f, evidence));
}

/// Warnings that are not about something that waits.
const SAYS_NOTHING: [&str; 4] = ["losses", "not_checked", "uio_wait_unknown", "uio_gone_open"];

fn waiting_on(blind: &[(&'static str, String)]) -> String {
    let seen: Vec<&str> = [("UIO", "UIO"), ("AIO", "AIO"), ("percpu_ref", "a percpu_ref")]
        .into_iter()
        .filter(|(name, _)| blind.iter().all(|b| b.0 != *name))
        .map(|(_, words)| words)
        .collect();
    match seen.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => seen.concat(),
    }
}

/// Subjects that show nothing or too little: none of their probes works, or one they need does not. With the first
/// reason. A probe that waits for its module is no blindness: without the module there is nothing to see.
fn blind_subjects(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let mut blind = Vec::new();
    for (subject, name) in [("uio", "UIO"), ("aio", "AIO"), ("percpu_ref", "percpu_ref")] {
        let probes: Vec<_> = snapshot.probes.iter().filter(|p| p.subject == subject).collect();
        let failed: Vec<_> = probes.iter().filter(|p| p.state == ProbeState::Failed).collect();
        let needed = failed.iter().find(|p| p.required);
        if let Some(first) = needed.or(failed.first().filter(|_| failed.len() == probes.len())) {
            let reason = first.reason.as_deref().unwrap_or("it cannot be attached");
            blind.push((name, format!("{}: {reason}", first.hook)));
        }
    }
    blind
}

/// Why a subject (`uio`, `aio`, `percpu_ref`) shows nothing or too little here: the hook and its reason; `None`: it is
/// traced.
pub fn not_traced(snapshot: &Snapshot, subject: &str) -> Option<String> {
    let blind = blind_subjects(snapshot);
    blind
        .into_iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(subject))
        .map(|(_, why)| why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventKind, UioPresence};
    use crate::model::snapshot::Probe;
    use crate::model::{Config, Model, Scope};

    fn with_probes(probes: &[(&str, ProbeState)]) -> Vec<Finding> {
        let probe = |(subject, state): &(&str, ProbeState)| Probe {
            subject: subject.to_string(),
            hook: "h".to_string(),
            state: *state,
            method: None,
            reason: Some("lockdown".to_string()),
            gives: String::new(),
            required: true,
            cost: None,
            late_cpus: Vec::new(),
        };
        of(&[
            EventKind::UioPresence(UioPresence::Absent),
            EventKind::Probes(probes.iter().map(probe).collect()),
        ])
    }

    fn of(kinds: &[EventKind]) -> Vec<Finding> {
        let mut model = Model::new(Config {
            start_ns: Some(0),
            ..Config::default()
        });
        for kind in kinds.iter().cloned() {
            model.apply(Event {
                ts_ns: 1_000_000_000,
                kind,
            });
        }
        model.snapshot(Scope::SinceStart).findings
    }

    #[test]
    fn nothing_says_what_was_checked() {
        let findings = with_probes(&[]);
        assert_eq!(findings.len(), 1);
        assert_eq!(
            findings[0].text,
            "nothing here is waiting on UIO, AIO or a percpu_ref; checked: uio is not loaded, 0 AIO drains, \
             0 kills and 0 switches of percpu_refs"
        );
    }

    #[test]
    fn a_driver_that_nothing_has_told_of_is_not_called_absent() {
        let findings = of(&[]);
        assert!(
            findings[0]
                .text
                .contains("checked: whether uio is loaded is not known, 0 AIO drains"),
            "{findings:?}"
        );
    }

    #[test]
    fn what_was_not_checked_is_not_called_idle() {
        let findings = with_probes(&[
            ("uio", ProbeState::Waiting),
            ("aio", ProbeState::Attached),
            ("percpu_ref", ProbeState::Failed),
        ]);
        assert_eq!(findings[0].text, "percpu_ref is not checked: h: lockdown");
        assert!(
            findings[1]
                .text
                .starts_with("nothing here is waiting on UIO or AIO; checked: "),
            "{findings:?}"
        );
        let blind = with_probes(&[
            ("uio", ProbeState::Failed),
            ("aio", ProbeState::Failed),
            ("percpu_ref", ProbeState::Failed),
        ]);
        assert_eq!(blind.len(), 3);
        assert!(blind.iter().all(|f| f.id == "not_checked"));
    }
}
