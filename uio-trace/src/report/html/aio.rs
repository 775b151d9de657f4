//! AIO drains: which were slow, was it one after another, what of it was grace periods and what I/O.

use super::overview::optional;
use super::text::{esc, figures, how_to_read, more, table, words};
use super::{MAX_ROWS, MAX_WATERFALLS, waterfall};
use crate::format::{count, duration, plural};
use crate::model::snapshot::{AioDrain, DrainCause, DrainVerdict};
use crate::report::story::Story;

pub(super) fn section(p: &mut String, story: &Story) {
    let snapshot = &story.snapshot;
    p.push_str("<section id=\"aio\">\n<h2>AIO drains</h2>\n");
    let ended = snapshot.aio_drains.len() as u64 + snapshot.aio_drains_omitted;
    if ended == 0 {
        p.push_str("<p>No AIO context was drained.</p>\n</section>\n");
        return;
    }
    how_to_read(
        p,
        "a process that exits, or calls io_destroy(2), waits until its AIO contexts are drained. Time goes from left to \
         right, a row is a context. A staircase is serial: each context waits for two RCU grace periods of its own. A \
         block is parallel: all wait together. Grace periods: the number of contexts and the RCU settings matter. In \
         flight: the storage does.",
    );
    waterfall::keys(p);
    let mut drains: Vec<&AioDrain> = snapshot.aio_drains.iter().collect();
    drains.sort_by_key(|d| (std::cmp::Reverse(d.wall_ns), d.id));
    for drain in drains.iter().take(MAX_WATERFALLS) {
        one(p, drain);
    }
    let rest = drains.len().saturating_sub(MAX_WATERFALLS);
    if rest > 0 {
        let columns = [
            words("process"),
            words("by"),
            figures("contexts"),
            words("verdict"),
            figures("took"),
            figures("together"),
        ];
        let rows: Vec<Vec<String>> = drains
            .iter()
            .skip(MAX_WATERFALLS)
            .take(MAX_ROWS)
            .map(|d| {
                vec![
                    format!("{} ({})", d.comm, d.tgid),
                    cause(d).to_owned(),
                    count(d.contexts),
                    verdict(d).to_owned(),
                    duration(d.wall_ns),
                    duration(d.projected_parallel_ns),
                ]
            })
            .collect();
        table(p, "Other drains, longest first", &columns, &rows);
    }
    let shown = drains.len().min(MAX_WATERFALLS + MAX_ROWS);
    more(p, shown, ended as usize, "drain");
    p.push_str("</section>\n");
}

fn cause(drain: &AioDrain) -> &'static str {
    match drain.cause {
        DrainCause::ExitAio => "exit",
        DrainCause::IoDestroy => "io_destroy",
    }
}

fn verdict(drain: &AioDrain) -> &'static str {
    match drain.verdict {
        DrainVerdict::Serial => "serial",
        DrainVerdict::Parallel => "parallel",
        DrainVerdict::Single => "single",
    }
}

/// One sentence with the verdict.
pub(super) fn sentence(drain: &AioDrain) -> String {
    let contexts = plural(drain.contexts, "context");
    let took = duration(drain.wall_ns);
    match drain.verdict {
        DrainVerdict::Serial => {
            let together = duration(drain.projected_parallel_ns);
            let saved = duration(drain.wall_ns.saturating_sub(drain.projected_parallel_ns));
            format!(
                "Serial: {contexts} one after another took {took}; together they would take {together}, {saved} less."
            )
        }
        DrainVerdict::Parallel => format!("Parallel: {contexts} together took {took}."),
        DrainVerdict::Single => format!("One context took {took}."),
    }
}

fn one(p: &mut String, drain: &AioDrain) {
    p.push_str(&format!(
        "<h3>{}: {} ({}/{})</h3>\n<p>{}{}</p>\n",
        esc(cause(drain)),
        esc(&drain.comm),
        drain.tgid,
        drain.tid,
        esc(&sentence(drain)),
        if drain.uncertain {
            " Events were lost: contexts may be missing, times are lower bounds."
        } else {
            ""
        }
    ));
    waterfall::draw(p, drain);
    let columns = [
        words("context"),
        figures("killed at"),
        figures("users: grace period"),
        figures("references"),
        figures("requests: grace period"),
        figures("in flight"),
        figures("total"),
    ];
    let rows: Vec<Vec<String>> = drain
        .detail
        .iter()
        .take(MAX_ROWS)
        .map(|c| {
            vec![
                c.ctx.clone(),
                duration(c.start_offset_ns),
                optional(c.users_gp_ns),
                optional(c.users_refs_ns),
                optional(c.reqs_gp_ns),
                optional(c.reqs_io_ns),
                duration(c.total_ns),
            ]
        })
        .collect();
    p.push_str("<details><summary>The same as a table</summary>\n");
    table(p, "Contexts in order of their kill", &columns, &rows);
    more(p, rows.len(), drain.contexts as usize, "context");
    p.push_str("</details>\n");
}
