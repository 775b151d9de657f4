//! Details that are text: of a finding, of something in progress, of a probe.

use crate::format::time_lost;
use crate::model::findings::evidence;
use crate::model::snapshot::{Finding, InProgress, Probe, Snapshot};
use crate::ui::arrange::Tabular;
use crate::ui::canvas::Canvas;
use crate::ui::format;
use crate::ui::state::{Detail, RowId, State};
use crate::ui::theme::{self, Role};
use crate::ui::widgets::facts::{self, Fact};
use ratatui::layout::Rect;
use serde_json::Value;

fn title_and_facts(snapshot: &Snapshot, id: &RowId, unicode: bool) -> Option<(String, Vec<Fact>)> {
    let now = snapshot.interval.end_ns;
    match id {
        RowId::Finding(name, subject) => snapshot
            .findings
            .iter()
            .find(|f| f.id == *name && f.subject == *subject)
            .map(|f| (format!("Finding: {}", f.subject), finding(f, unicode))),
        RowId::InProgress(..) => snapshot
            .in_progress
            .iter()
            .find(|p| p.id(now) == *id)
            .map(|p| (format!("In progress: {}", p.owner), in_progress(p, unicode))),
        RowId::Probe(..) => snapshot
            .probes
            .iter()
            .find(|p| p.id(now) == *id)
            .map(|p| (format!("Probe: {}", p.hook), probe(p, unicode))),
        RowId::Device(..) | RowId::Owner(_) | RowId::Drain(_) => None,
    }
}

fn finding(finding: &Finding, unicode: bool) -> Vec<Fact> {
    let (word, role) = theme::severity(finding);
    let mut facts = vec![
        Fact::with("severity", word, role),
        Fact::new("finding", format::micro(&finding.text, unicode)),
        Fact::new("name", finding.id.clone()),
    ];
    let lost = time_lost(finding.cost);
    if !lost.is_empty() {
        facts.push(Fact::new("time lost", format!("{lost} s per second")));
    }
    facts.extend(
        finding
            .evidence
            .iter()
            .map(|(name, value)| number(name, value, unicode)),
    );
    facts
}

/// A number of the finding, rounded and with its unit.
fn number(name: &str, value: &Value, unicode: bool) -> Fact {
    let (label, text) = evidence::words(name, value);
    Fact::new(label, format::micro(&text, unicode))
}

fn in_progress(item: &InProgress, unicode: bool) -> Vec<Fact> {
    let age = match item.age_ns {
        Some(ns) => Fact::new("age", format::duration_inline(ns, unicode)),
        None => Fact::with(
            "age",
            format!(
                "more than {}: it began before the trace",
                format::duration_inline(item.seen_ns, unicode)
            ),
            Role::Warning,
        ),
    };
    let mut facts = vec![
        age,
        Fact::with("waits for", item.phase.clone(), Role::Strong),
        Fact::new("process", item.comm.clone()),
        Fact::new("pid", item.tgid.to_string()),
        Fact::new("tid", item.tid.to_string()),
        Fact::new("subject", item.subject.clone()),
        Fact::new("owner", item.owner.clone()),
        Fact::new("detail", item.detail.clone()),
    ];
    if let Some(n) = item.references {
        facts.push(Fact::new("references left", n.to_string()));
    }
    if let Some(stack) = &item.stack {
        facts.push(Fact::new("kernel stack", stack.join(", ")));
    }
    if item.uncertain {
        facts.push(Fact::with(
            "uncertain",
            "its end may be among the lost events",
            Role::Warning,
        ));
    }
    facts
}

fn probe(probe: &Probe, unicode: bool) -> Vec<Fact> {
    let (word, role) = theme::probe_state(probe.state, probe.required);
    let none = || "-".to_owned();
    let cost = probe.cost.map_or_else(
        || "not counted".to_owned(),
        |cost| {
            let time = |ns| format::duration_inline(ns, unicode);
            format!(
                "{} hits in {}, {} each; {} missed",
                format::count(cost.hits),
                time(cost.counted_ns),
                cost.each_ns().map_or_else(none, time),
                format::count(cost.missed)
            )
        },
    );
    vec![
        Fact::with("state", word, role),
        Fact::new("subject", probe.subject.clone()),
        Fact::new("hook", probe.hook.clone()),
        Fact::new("method", probe.method.clone().unwrap_or_else(none)),
        Fact::new("required", if probe.required { "yes" } else { "no" }),
        Fact::new("reason", probe.reason.clone().unwrap_or_else(none)),
        Fact::new("gives", probe.gives.clone()),
        Fact::new("cost", cost),
    ]
}

/// The line that is first when the end is in view.
pub fn last_first_line(state: &State, detail: &Detail) -> usize {
    let unicode = state.facts.unicode;
    let Some((_, facts)) = title_and_facts(&detail.snapshot, &detail.id, unicode) else {
        return 0;
    };
    let rows = usize::from(state.body_rows().saturating_sub(1));
    facts::lines(&facts, state.size.0, unicode)
        .len()
        .saturating_sub(rows)
}

/// Draws the detail.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, state: &State, detail: &Detail) {
    let Some((title, facts)) = title_and_facts(&detail.snapshot, &detail.id, state.facts.unicode) else {
        return;
    };
    let body = canvas.heading(area, &title, super::detail_note(detail));
    facts::draw(canvas, body, &facts, detail.cursor);
}
