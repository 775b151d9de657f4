//! Where the time of AIO drains goes, and which of it need not be.

use super::{finding, wall_ns, with};
use crate::event::RequestFile;
use crate::format::{count, duration, plural};
use crate::model::snapshot::{AioDrain, DrainCause, DrainVerdict, Finding, Severity, Snapshot};
use std::collections::BTreeMap;

/// A serial drain whose contexts drained together would save at least this, ns, is worth a finding.
pub const SERIAL_MIN_SAVED_NS: u64 = 10_000_000;
/// From this on, ns, it is critical.
pub const SERIAL_CRITICAL_NS: u64 = 1_000_000_000;
/// A drain at least this long, ns, is slow.
pub const SLOW_DRAIN_NS: u64 = 100_000_000;
/// From this on, ns, it is critical.
pub const CRITICAL_DRAIN_NS: u64 = 5_000_000_000;
/// Share of the critical context's time from which one phase is named as the cause.
pub const DOMINANT_SHARE: f64 = 0.5;

/// What the drains of one process have in common.
#[derive(Default)]
struct Group<'a> {
    drains: u64,
    contexts: u64,
    /// Begin and end of each, and its part: together, for serial ones; the phase, for slow ones. ns.
    spans: Vec<(u64, u64, u64)>,
    /// Time in which at least one was under way: several threads may have one each at the same time.
    wall_ns: u64,
    /// The parts added up; of those that overlap the longest.
    part_ns: u64,
    longest_ns: u64,
    /// Of the longest: the file of its last request.
    file: Option<&'a RequestFile>,
    /// Requests in flight when their grace periods ended.
    requests: Option<u64>,
}

impl Group<'_> {
    /// Adds up what does not overlap.
    fn add_up(&mut self) {
        self.spans.sort_unstable();
        let (mut covered_to, mut part) = (0, 0);
        for (begin, end, of_drain) in &self.spans {
            if *begin >= covered_to {
                self.part_ns = self.part_ns.saturating_add(part);
                part = 0;
            }
            let new = end.saturating_sub(covered_to.max(*begin));
            self.wall_ns = self.wall_ns.saturating_add(new);
            covered_to = covered_to.max(*end);
            part = part.max(*of_drain);
        }
        self.part_ns = self.part_ns.saturating_add(part);
    }
}

/// Kinds of findings, by their id.
fn kind(drain: &AioDrain) -> Option<(&'static str, u64)> {
    if drain.verdict == DrainVerdict::Serial {
        let together = drain.projected_parallel_ns;
        let saved = drain.wall_ns.saturating_sub(together);
        return (saved >= SERIAL_MIN_SAVED_NS).then_some(("aio_serial_destroy", together));
    }
    if drain.wall_ns < SLOW_DRAIN_NS {
        return None;
    }
    let p = drain.phases_ns;
    let grace = p.users_gp.zip(p.reqs_gp).map(|(a, b)| a + b);
    let total = drain
        .detail
        .get(drain.critical)
        .map_or(drain.wall_ns, |c| c.total_ns)
        .max(1);
    let phases = [
        ("aio_exit_slow_gp", grace),
        ("aio_exit_slow_io", p.reqs_io),
        ("aio_exit_slow_refs", p.users_refs),
    ];
    let dominant = phases
        .into_iter()
        .filter_map(|(id, ns)| Some((id, ns?)))
        .find(|(_, ns)| *ns as f64 >= DOMINANT_SHARE * total as f64);
    Some(dominant.unwrap_or(("aio_exit_slow", drain.wall_ns)))
}

pub(super) fn diagnose(snapshot: &Snapshot, findings: &mut Vec<Finding>) {
    let mut groups: BTreeMap<(&str, u32, &str, bool), Group<'_>> = BTreeMap::new();
    for drain in &snapshot.aio_drains {
        let Some((id, part_ns)) = kind(drain) else {
            continue;
        };
        let exit = drain.cause == DrainCause::ExitAio;
        let g = groups.entry((id, drain.tgid, &drain.comm, exit)).or_default();
        g.drains += 1;
        g.contexts += drain.contexts;
        let end = drain.start_ns.saturating_add(drain.wall_ns);
        g.spans.push((drain.start_ns, end, part_ns));
        if drain.wall_ns >= g.longest_ns {
            g.longest_ns = drain.wall_ns;
            g.requests = drain.in_flight.filter(|_| g.drains == 1);
            g.file = drain.last_request.as_ref();
        }
    }
    for ((id, tgid, comm, exit), mut group) in groups {
        group.add_up();
        let subject = format!("{comm} ({tgid})");
        let f = if id == "aio_serial_destroy" {
            serial(snapshot, &group, subject, exit)
        } else {
            slow(snapshot, id, &group, subject, exit)
        };
        let evidence = [
            ("drains", group.drains.into()),
            ("contexts", group.contexts.into()),
            ("wall_ns", group.wall_ns.into()),
            ("longest_ns", group.longest_ns.into()),
        ];
        findings.push(with(f, evidence));
    }
}

fn serial(snapshot: &Snapshot, g: &Group<'_>, subject: String, exit: bool) -> Finding {
    let saved = g.wall_ns.saturating_sub(g.part_ns);
    let severity = if saved >= SERIAL_CRITICAL_NS {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let how = if exit { "drained" } else { "destroyed" };
    let advice = if exit {
        ""
    } else {
        ": leave them to exit, which drains all at once, or destroy them from several threads"
    };
    let text = format!(
        "{subject} {how} {} one after another: {}; together it would take about {}{advice}",
        plural(g.contexts, "AIO context"),
        duration(g.wall_ns),
        duration(g.part_ns),
    );
    let f = finding(
        "aio_serial_destroy",
        severity,
        subject,
        text,
        saved as f64 / wall_ns(snapshot),
    );
    with(
        f,
        [
            ("projected_parallel_ns", g.part_ns.into()),
            ("saved_ns", saved.into()),
        ],
    )
}

fn slow(snapshot: &Snapshot, id: &str, g: &Group<'_>, subject: String, exit: bool) -> Finding {
    let severity = if g.longest_ns >= CRITICAL_DRAIN_NS {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let cause = match id {
        "aio_exit_slow_gp" => format!("{} are RCU grace periods", duration(g.part_ns)),
        "aio_exit_slow_io" => {
            let file = g
                .file
                .map_or_else(String::new, |file| format!(", the last on {file}"));
            let requests = g
                .requests
                .map_or_else(String::new, |n| format!(" ({})", plural(n, "request")));
            format!("{} are I/O in flight{requests}{file}", duration(g.part_ns))
        }
        "aio_exit_slow_refs" => format!("{} are system calls that hold references", duration(g.part_ns)),
        _ => "no single phase is to blame, or the phases are not known".to_string(),
    };
    let how = if exit {
        "exit waited for"
    } else {
        "io_destroy waited for"
    };
    let times = if g.drains > 1 {
        format!(" in {} drains", count(g.drains))
    } else {
        String::new()
    };
    let text = format!(
        "{subject}: {how} {}{times}: of {}, {cause}",
        plural(g.contexts, "AIO context"),
        duration(g.wall_ns),
    );
    let f = finding(id, severity, subject, text, g.wall_ns as f64 / wall_ns(snapshot));
    with(f, [("phase_ns", g.part_ns.into())])
}
