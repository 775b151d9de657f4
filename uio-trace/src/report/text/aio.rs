//! AIO drains: the longest of the stretch, with the phases of the context that decided.

use super::Page;
use crate::format::{count, duration, duration_or_unknown, left, plural, right, short_count};
use crate::model::findings;
use crate::model::snapshot::{AioDrain, DrainCause, DrainVerdict, Snapshot};

pub(super) fn section(page: &mut Page, snapshot: &Snapshot) {
    page.blank();
    let ended = snapshot.aio_drains.len() as u64 + snapshot.aio_drains_omitted;
    if ended == 0 {
        match findings::not_traced(snapshot, "aio") {
            Some(why) => page.paragraph("AIO: ", &format!("not traced: {why}"), 2),
            None => page.line("AIO: no context drained"),
        }
        return;
    }
    page.line(&format!(
        "AIO: {}, phases of the context that decided (gp: grace period)",
        plural(ended, "drain")
    ));
    page.line("  process        by      contexts          wall users:gp +refs reqs:gp    +I/O");
    let mut drains: Vec<&AioDrain> = snapshot.aio_drains.iter().collect();
    drains.sort_by_key(|d| (std::cmp::Reverse(d.wall_ns), d.id));
    let shown = page.limits.drains.min(drains.len());
    for d in drains.iter().take(shown) {
        row(page, d);
    }
    page.more(shown, drains.len());
    if snapshot.aio_drains_omitted > 0 {
        page.line(&format!(
            "  and {} no longer kept",
            count(snapshot.aio_drains_omitted)
        ));
    }
}

fn row(page: &mut Page, d: &AioDrain) {
    let cause = match d.cause {
        DrainCause::ExitAio => "exit",
        DrainCause::IoDestroy => "destroy",
    };
    let verdict = match d.verdict {
        DrainVerdict::Serial => "serial",
        DrainVerdict::Parallel => "parallel",
        DrainVerdict::Single => "single",
    };
    let uncertain = if d.uncertain { "?" } else { "" };
    let p = &d.phases_ns;
    let unknown_switches = p.users_gp.is_none() && p.reqs_gp.is_none();
    let phases = if unknown_switches {
        // Without the switches only the sums of a grace period and what follows are known.
        let sums = [p.users, p.reqs].map(|ns| right(&format!("= {}", duration_or_unknown(ns)), 15));
        sums.join(" ")
    } else {
        [p.users_gp, p.users_refs, p.reqs_gp, p.reqs_io]
            .map(|ns| right(&duration_or_unknown(ns), 7))
            .join(" ")
    };
    page.line(&format!(
        "  {} {} {} {} {} {phases}",
        left(&format!("{} ({})", d.comm, d.tgid), 14),
        left(cause, 7),
        right(&short_count(d.contexts), 4),
        left(&format!("{verdict}{uncertain}"), 9),
        right(&duration(d.wall_ns), 7),
    ));
    if let Some(file) = &d.last_request {
        page.paragraph("    ", &format!("its last request was on {file}"), 4);
    }
    if d.verdict == DrainVerdict::Serial {
        page.line(&format!(
            "    together it would take about {}",
            duration(d.projected_parallel_ns)
        ));
    }
}
