//! A drain: a bar per context on a common time axis, four phases in four colours and four textures.

use super::aio::sentence;
use super::svg::{self, WIDTH};
use super::text::esc;
use crate::format::duration;
use crate::model::snapshot::{AioContext, AioDrain, DrainVerdict};

const LEFT: f64 = 150.0;
const RIGHT: f64 = 80.0;
const TOP: f64 = 24.0;
const ROW: f64 = 17.0;
const BAR: f64 = 11.0;
/// Rows drawn; of more contexts, some are picked.
const MAX_DRAWN: usize = 32;

/// Phases: CSS class and name.
const PHASES: [(&str, &str); 4] = [
    ("users-gp", "users: grace period"),
    ("users-refs", "users: references of system calls"),
    ("reqs-gp", "requests: grace period"),
    ("reqs-io", "requests in flight"),
];
const UNSPLIT: (&str, &str) = ("unsplit", "grace period and what follows, not told apart here");

/// What the textures mean.
pub(super) fn keys(p: &mut String) {
    p.push_str("<ul class=\"keys\">");
    for (class, name) in PHASES.iter().chain([&UNSPLIT]) {
        p.push_str(&format!(
            "<li><svg class=\"key\" viewBox=\"0 0 30 12\" aria-hidden=\"true\"><rect width=\"30\" height=\"12\" \
             class=\"{class}\"/><rect x=\"0.5\" y=\"0.5\" width=\"29\" height=\"11\" class=\"outline\"/></svg>{}</li>",
            esc(name)
        ));
    }
    p.push_str("</ul>\n");
}

/// Indices of the contexts drawn: all, or some at equal distances with the critical one among them.
fn picked(total: usize, critical: usize) -> Vec<usize> {
    if total <= MAX_DRAWN {
        return (0..total).collect();
    }
    let mut picked: Vec<usize> = (0..MAX_DRAWN)
        .map(|i| i * (total - 1) / (MAX_DRAWN - 1))
        .collect();
    if !picked.contains(&critical) && critical < total {
        // In place of its neighbour, not of the first or last.
        let at = picked.partition_point(|i| *i < critical).clamp(1, MAX_DRAWN - 2);
        if let Some(place) = picked.get_mut(at) {
            *place = critical;
        }
        picked.sort_unstable();
    }
    picked
}

pub(super) fn draw(p: &mut String, drain: &AioDrain) {
    let total = drain.detail.len();
    if total == 0 {
        return;
    }
    let rows = picked(total, drain.critical);
    let last_end = drain
        .detail
        .iter()
        .map(|c| c.start_offset_ns.saturating_add(c.total_ns));
    let end = last_end.max().unwrap_or(0).max(drain.wall_ns).max(1) as f64;
    let width = WIDTH - LEFT - RIGHT;
    let x = |ns: u64| LEFT + (ns as f64 / end).min(1.0) * width;
    let serial = drain.verdict == DrainVerdict::Serial;
    let extra = if serial { ROW + 6.0 } else { 0.0 };
    let bottom = TOP + ROW * rows.len() as f64;
    let height = bottom + extra + 6.0;
    let title = format!("Waterfall of drain {}", drain.id);
    let desc = format!("{} {}", sentence(drain), critical_sentence(drain));
    p.push_str("<figure>\n");
    if rows.len() < total {
        p.push_str(&format!(
            "<figcaption>{} of {total} contexts, at equal distances; * is the one that decided.</figcaption>\n",
            rows.len()
        ));
    } else if total > 1 {
        p.push_str("<figcaption>* is the context that decided.</figcaption>\n");
    }
    svg::plot(p, &format!("drain-{}", drain.id), height, &title, &desc, |p| {
        for ns in svg::steps(end, 5).into_iter().filter(|ns| *ns <= end) {
            let at = LEFT + ns / end * width;
            svg::line(p, (at, TOP - 6.0), (at, bottom), "grid");
            svg::label(p, at, TOP - 10.0, "soft mid", &svg::tick(ns));
        }
        for (row, index) in rows.iter().enumerate() {
            let Some(context) = drain.detail.get(*index) else {
                continue;
            };
            let y = TOP + ROW * row as f64 + 2.0;
            let star = if *index == drain.critical && total > 1 {
                "*"
            } else {
                ""
            };
            svg::label(
                p,
                LEFT - 8.0,
                y + BAR - 1.5,
                "mono end",
                &format!("{star}{}", context.ctx),
            );
            bar(p, context, y, x);
            svg::label(p, WIDTH, y + BAR - 1.5, "soft end", &duration(context.total_ns));
        }
        if serial {
            let y = bottom + 8.0;
            svg::label(p, LEFT - 8.0, y + BAR - 1.5, "end", "together");
            svg::bar(
                p,
                (LEFT, y),
                ((x(drain.projected_parallel_ns) - LEFT).max(1.0), BAR),
                "together",
                "what it would take if all contexts were drained together",
            );
            svg::label(
                p,
                WIDTH,
                y + BAR - 1.5,
                "soft end",
                &duration(drain.projected_parallel_ns),
            );
        }
    });
    p.push_str("</figure>\n");
}

/// Phases of a context: class, name, length. Unknown ones end the list.
fn parts(context: &AioContext) -> Vec<((&'static str, &'static str), u64)> {
    let mut parts = Vec::new();
    let halves = [
        (context.users_gp_ns, context.users_refs_ns, context.users_ns, 0),
        (context.reqs_gp_ns, context.reqs_io_ns, context.reqs_ns, 2),
    ];
    for (first, second, both, at) in halves {
        match (first, second, both) {
            (Some(a), Some(b), _) => parts.extend([(PHASES[at], a), (PHASES[at + 1], b)]),
            (_, _, Some(sum)) => parts.push((UNSPLIT, sum)),
            _ => return parts,
        }
    }
    parts
}

fn bar(p: &mut String, context: &AioContext, y: f64, x: impl Fn(u64) -> f64) {
    let start = context.start_offset_ns;
    let mut at = start;
    for ((class, name), ns) in parts(context) {
        let to = at.saturating_add(ns);
        let width = x(to) - x(at);
        if ns > 0 {
            let tip = format!("{}: {name} {}", context.ctx, duration(ns));
            svg::bar(p, (x(at), y), (width.max(0.5), BAR), class, &tip);
        }
        at = to;
    }
    let end = start.saturating_add(context.total_ns);
    svg::bar(
        p,
        (x(start), y),
        ((x(end) - x(start)).max(1.0), BAR),
        "outline",
        "",
    );
}

fn critical_sentence(drain: &AioDrain) -> String {
    let Some(context) = drain.detail.get(drain.critical) else {
        return String::new();
    };
    let parts: Vec<String> = parts(context)
        .into_iter()
        .map(|((_, name), ns)| format!("{name} {}", duration(ns)))
        .collect();
    format!(
        "The context that decided took {}: {}.",
        duration(context.total_ns),
        parts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picked_rows_keep_the_shape_and_the_critical_context() {
        assert_eq!(picked(3, 1), [0, 1, 2]);
        for total in [33, 64, 512] {
            for critical in 0..total {
                let rows = picked(total, critical);
                assert_eq!(rows.len(), MAX_DRAWN);
                assert!(
                    rows.windows(2).all(|w| w[0] < w[1]),
                    "{total} {critical}: {rows:?}"
                );
                assert!(rows.contains(&critical) && rows.contains(&0) && rows.contains(&(total - 1)));
            }
        }
    }
}
