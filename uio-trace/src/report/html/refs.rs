//! percpu_refs: owners, their grace periods, who killed them, which never went.

use super::MAX_ROWS;
use super::distribution::{self, Row};
use super::overview::optional;
use super::text::{figures, how_to_read, more, table, words};
use crate::format::count;
use crate::model::histogram::merge;
use crate::model::snapshot::{Histogram, RefOwner};
use crate::report::story::Story;

pub(super) fn section(p: &mut String, story: &Story) {
    let owners: Vec<_> = story.snapshot.ref_owners.iter().filter(|o| !o.own).collect();
    p.push_str("<section id=\"refs\">\n<h2>percpu_refs</h2>\n");
    if owners.is_empty() {
        p.push_str("<p>No percpu_ref was killed or switched.</p>\n</section>\n");
        return;
    }
    how_to_read(
        p,
        "killing a percpu_ref switches it to atomic mode, which costs an RCU grace period (kill to switched); then its \
         last reference has to go (kill to released). A ref that is dying longer than its grace period has references \
         that somebody still holds.",
    );
    let grace = merge(owners.iter().map(|o| &o.grace_period_ns));
    let drain = merge(owners.iter().map(|o| &o.drain_ns));
    if grace.count + drain.count > 0 {
        p.push_str("<figure>\n<figcaption>All owners together.</figcaption>\n");
        distribution::draw(
            p,
            "dist-refs",
            "Kill to switched, and kill to released",
            &[
                Row {
                    name: "kill to switched",
                    class: "bar3",
                    histogram: &grace,
                },
                Row {
                    name: "kill to released",
                    class: "bar2",
                    histogram: &drain,
                },
            ],
        );
        p.push_str("</figure>\n");
    }
    let columns = [
        words("owner"),
        words("release function"),
        figures("kills"),
        figures("switches"),
        figures("released"),
        figures("switched p50"),
        figures("switched p99"),
        figures("released p50"),
        figures("released p99"),
        figures("dying"),
        figures("oldest"),
        words("last killer"),
    ];
    let rows: Vec<Vec<String>> = owners
        .iter()
        .take(MAX_ROWS)
        .map(|o| {
            let of = |h: &Histogram, ns: u64| optional((h.count > 0).then_some(ns));
            vec![
                o.owner.clone(),
                o.release.clone(),
                count(o.kills),
                count(o.switches),
                o.released.map_or_else(|| "not traced".into(), count),
                of(&o.grace_period_ns, o.grace_period_ns.p50),
                of(&o.grace_period_ns, o.grace_period_ns.p99),
                of(&o.drain_ns, o.drain_ns.p50),
                of(&o.drain_ns, o.drain_ns.p99),
                count(o.dying),
                optional(o.oldest_dying_ns),
                o.last_killer.clone().unwrap_or_else(|| "-".into()),
            ]
        })
        .collect();
    table(
        p,
        "Owners, most kills first; times from the kill",
        &columns,
        &rows,
    );
    more(p, rows.len(), owners.len(), "owner");
    killers(p, &owners);
    p.push_str("</section>\n");
}

/// Ways the kills came, of the owners shown.
fn killers(p: &mut String, owners: &[&RefOwner]) {
    let rows: Vec<Vec<String>> = owners
        .iter()
        .take(MAX_ROWS)
        .flat_map(|owner| {
            owner.kill_stacks.iter().map(|stack| {
                vec![
                    owner.owner.clone(),
                    count(stack.count),
                    stack.last_killer.clone(),
                    stack.frames.join(" < "),
                ]
            })
        })
        .take(2 * MAX_ROWS)
        .collect();
    if rows.is_empty() {
        return;
    }
    let columns = [
        words("owner"),
        figures("kills"),
        words("last killer"),
        words("functions, from the innermost outwards"),
    ];
    let title = "Through what they were killed; of an owner with many kills only some are looked at";
    table(p, title, &columns, &rows);
}
