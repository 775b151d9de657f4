//! What the reader sees first: host and time, findings, what is under way; and last: how far all of it can be trusted.

use super::MAX_ROWS;
use super::text::{esc, figures, how_to_read, more, table, words};
use crate::format::{count, duration, duration_or_unknown, parse_rfc3339, plural, rfc3339, time_lost};
use crate::model::snapshot::{ProbeState, Severity, Snapshot};
use crate::report::story::Story;

pub(super) fn header(p: &mut String, story: &Story) {
    let (meta, interval) = (&story.meta, &story.snapshot.interval);
    let at = |ns: u64| {
        let started = parse_rfc3339(&meta.started)?;
        Some(rfc3339(
            started.saturating_add(ns).saturating_sub(meta.started_ns),
        ))
    };
    let time = match (at(interval.start_ns), at(interval.end_ns)) {
        (Some(from), Some(to)) => format!("{from} to {to}"),
        _ => format!("from {}", meta.started),
    };
    p.push_str(&format!(
        "<header>\n<h1>{} waited for UIO, AIO and percpu_refs like this</h1>\n<p class=\"muted\">{} ({}) &#183; Linux {} \
         &#183; {}</p>\n",
        esc(&meta.host),
        esc(&time),
        esc(&duration(interval.duration_ns)),
        esc(&meta.kernel),
        esc(&meta.tool),
    ));
    for remark in &story.remarks {
        p.push_str(&format!("<p class=\"remark\"><b>Note:</b> {}</p>\n", esc(remark)));
    }
    p.push_str("<nav aria-label=\"Sections\"><ul>");
    for (id, name) in [
        ("findings", "Findings"),
        ("progress", "Under way"),
        ("uio", "UIO devices"),
        ("aio", "AIO drains"),
        ("refs", "percpu_refs"),
        ("time", "Over time"),
        ("trust", "What was measured"),
    ] {
        p.push_str(&format!("<li><a href=\"#{id}\">{name}</a></li>"));
    }
    p.push_str("</ul></nav>\n</header>\n");
}

pub(super) fn findings(p: &mut String, snapshot: &Snapshot) {
    p.push_str("<section id=\"findings\">\n<h2>Findings</h2>\n");
    how_to_read(
        p,
        "most time lost first. The figure is the time lost per second: 2.94 means that at every moment about three threads \
         stood still for this reason.",
    );
    p.push_str("<ol class=\"findings\">\n");
    for finding in &snapshot.findings {
        let (class, level) = match finding.severity {
            Severity::Critical => ("critical", "\u{25b2} critical"),
            Severity::Warning => ("warning", "\u{25c6} warning"),
            Severity::Info => ("info", "\u{25cf} for info"),
        };
        let lost = match time_lost(finding.cost) {
            none if none.is_empty() => none,
            lost => format!("{} <small>s lost per second</small>", esc(&lost)),
        };
        p.push_str(&format!(
            "<li class=\"{class}\"><b class=\"level\">{level}</b><p class=\"what\">{}</p><span class=\"lost\">{lost}</span></li>\n",
            esc(&finding.text),
        ));
    }
    p.push_str("</ol>\n</section>\n");
}

pub(super) fn in_progress(p: &mut String, snapshot: &Snapshot) {
    p.push_str("<section id=\"progress\">\n<h2>Under way at the end</h2>\n");
    let rows = &snapshot.in_progress;
    if rows.is_empty() {
        p.push_str("<p>Nothing: every drain that began has ended, and every percpu_ref that was killed is gone.</p>\n");
    } else {
        how_to_read(
            p,
            "what had begun and not ended, longest first. What is old here hangs; the phase says what for.",
        );
        let columns = [
            figures("age"),
            words("process"),
            words("owner"),
            words("waits for"),
            words("detail"),
        ];
        let cells: Vec<Vec<String>> = rows
            .iter()
            .take(MAX_ROWS)
            .map(|row| {
                let age = match row.age_ns {
                    Some(ns) => duration(ns),
                    None => "before the trace".into(),
                };
                let age = if row.uncertain { format!("{age} ?") } else { age };
                vec![
                    age,
                    format!("{} ({})", row.comm, row.tgid),
                    row.owner.clone(),
                    row.phase.clone(),
                    row.detail.clone(),
                ]
            })
            .collect();
        table(
            p,
            "Under way; ? marks those whose end may be among the lost events",
            &columns,
            &cells,
        );
        more(p, cells.len(), rows.len(), "row");
    }
    p.push_str("</section>\n");
}

/// Losses, probes, settings, bounds.
pub(super) fn trust(p: &mut String, story: &Story) {
    let snapshot = &story.snapshot;
    p.push_str("<section id=\"trust\">\n<h2>What was measured, and what was not</h2>\n");
    let loss = &snapshot.loss;
    let sentence = if loss.total() == 0 {
        format!("Nothing was lost of {} operations and events.", count(loss.seen))
    } else {
        format!(
            "{} of {} operations and events were lost: counts and times are lower bounds. {} still open may have lost \
             their end.",
            count(loss.total()),
            if loss.seen_known() {
                count(loss.seen)
            } else {
                "an unknown number of".to_owned()
            },
            count(loss.uncertain)
        )
    };
    p.push_str(&format!("<p>{}</p>\n", esc(&sentence)));
    if loss.total() > 0 {
        let rows: Vec<Vec<String>> = loss
            .dropped
            .iter()
            .map(|(reason, n)| vec![reason.clone(), count(*n)])
            .collect();
        table(p, "Lost, by reason", &[words("reason"), figures("lost")], &rows);
    }
    let omitted = [
        (snapshot.aio_drains_omitted, "AIO drain"),
        (story.waits_omitted, "slow operation"),
        (story.refs_omitted, "killed percpu_ref"),
    ];
    let omitted: Vec<String> = omitted
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| plural(*n, what))
        .collect();
    if !omitted.is_empty() {
        let text = format!(
            "Not kept one by one, but part of the sums: {}.",
            omitted.join(", ")
        );
        p.push_str(&format!("<p>{}</p>\n", esc(&text)));
    }
    probes(p, story);
    if !story.meta.rcu.is_empty() {
        p.push_str("<h3>Settings that explain grace periods</h3>\n<dl>\n");
        for (name, value) in &story.meta.rcu {
            p.push_str(&format!("<dt>{}</dt><dd>{}</dd>\n", esc(name), esc(value)));
        }
        p.push_str("</dl>\n");
    }
    p.push_str("</section>\n");
}

fn probes(p: &mut String, story: &Story) {
    let probes = if story.snapshot.probes.is_empty() {
        &story.meta.probes
    } else {
        &story.snapshot.probes
    };
    if probes.is_empty() {
        return;
    }
    let off = probes
        .iter()
        .filter(|probe| probe.state == ProbeState::Failed)
        .count();
    let summary = if off == 0 {
        "All hooks that are needed work.".to_owned()
    } else {
        format!(
            "{} not traced on this kernel; the table says what is missing for it.",
            plural(off as u64, "hook")
        )
    };
    p.push_str(&format!("<p>{}</p>\n", esc(&summary)));
    let rows: Vec<Vec<String>> = probes
        .iter()
        .map(|probe| {
            let state = match probe.state {
                ProbeState::Attached => "attached",
                ProbeState::Waiting => "waits for its module",
                ProbeState::Failed => "failed",
                ProbeState::NotNeeded => "not needed",
            };
            vec![
                probe.hook.clone(),
                probe.subject.clone(),
                state.to_owned(),
                probe.method.clone().unwrap_or_default(),
                probe.reason.clone().unwrap_or_default(),
                probe.gives.clone(),
            ]
        })
        .collect();
    p.push_str("<details><summary>Hooks</summary>\n");
    let columns = ["hook", "subject", "state", "attached by", "reason", "gives"].map(words);
    table(p, "Hooks into the kernel", &columns, &rows);
    p.push_str("</details>\n");
}

/// `-`: not known.
pub(super) fn optional(ns: Option<u64>) -> String {
    duration_or_unknown(ns)
}
