//! percpu_refs by owner.

use super::Page;
use crate::format::{duration, duration_or_unknown, left, plural, right, short_count};
use crate::model::findings;
use crate::model::snapshot::{Histogram, RefOwner, Snapshot};

pub(super) fn section(page: &mut Page, snapshot: &Snapshot, all: bool) {
    let owners: Vec<&RefOwner> = snapshot.ref_owners.iter().filter(|o| all || !o.own).collect();
    page.blank();
    let untraced = findings::not_traced(snapshot, "percpu_ref");
    if owners.is_empty() {
        match untraced {
            Some(why) => page.paragraph("percpu_ref: ", &format!("not traced: {why}"), 2),
            None => page.line("percpu_ref: none killed or switched"),
        }
        return;
    }
    if let Some(why) = untraced {
        page.paragraph("percpu_ref: ", &format!("traced in part: {why}"), 2);
    }
    let gp = &snapshot.grace_period_ns;
    let all_gp = match gp.count {
        0 => String::new(),
        _ => format!("; of all p50 {}, p99 {}", duration(gp.p50), duration(gp.p99)),
    };
    page.line(&format!(
        "percpu_ref: {} (gp: kill to switched{all_gp})",
        plural(owners.len() as u64, "owner")
    ));
    page.line("  owner                   kills switch released  gp p50  gp p99 dying  oldest");
    let shown = page.limits.owners.min(owners.len());
    for o in owners.iter().take(shown) {
        let gp = |pick: fn(&Histogram) -> u64| {
            duration_or_unknown((o.grace_period_ns.count > 0).then(|| pick(&o.grace_period_ns)))
        };
        page.line(&format!(
            "  {} {} {} {} {} {} {} {}",
            left(&o.owner, 22),
            right(&short_count(o.kills), 6),
            right(&short_count(o.switches), 6),
            right(&o.released.map_or_else(|| "?".to_string(), short_count), 8),
            right(&gp(|h| h.p50), 7),
            right(&gp(|h| h.p99), 7),
            right(&short_count(o.dying), 5),
            right(&duration_or_unknown(o.oldest_dying_ns), 7),
        ));
    }
    page.more(shown, owners.len());
    for o in owners.iter().filter(|o| all && o.ends_unseen > 0) {
        let text = format!(
            "{}: of {} the end was not seen (its release was not traced yet, or is not)",
            o.owner,
            plural(o.ends_unseen, "killed ref"),
        );
        page.paragraph("  ", &text, 4);
    }
}
