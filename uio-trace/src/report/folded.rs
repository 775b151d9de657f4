//! Folded stacks for flame graphs: `frame;frame;... weight`, a line each, weights in nanoseconds.
//!
//! Three roots. `uio_wait;DEVICE;OPERATION;WAITER;HOLDER`: waits for info_lock of slow operations.
//! `aio_drain;PROCESS;CAUSE;PHASE`: the time of drains, by the phases of the context that decided (of all contexts where
//! they went one after another). `percpu_ref;OWNER;KILLER;FUNCTION;...`, the functions of the
//! killer's kernel stack where it was taken: kill to release, to the end of the grace period where the
//! release is not traced, or to the end of the trace.

use super::story::{Story, spans::OTHERS};
use crate::model::snapshot::{AioDrain, DrainCause, DrainVerdict};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the stacks.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut impl Write, story: &Story) -> io::Result<()> {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |frames: &[&str], ns: u64| {
        if ns > 0 {
            let frames: Vec<String> = frames.iter().map(|f| frame(f)).collect();
            let sum = stacks.entry(frames.join(";")).or_default();
            *sum = sum.saturating_add(ns);
        }
    };
    for sum in &story.wait_sums {
        let device = match sum.device {
            Some(key) if key.generation == 0 => format!("uio{}", key.minor),
            Some(key) => format!("uio{} ({})", key.minor, key.generation),
            None => OTHERS.to_owned(),
        };
        let holder = sum.holder.as_deref().unwrap_or("(holder not known)");
        add(&["uio_wait", &device, &sum.op, &sum.waiter, holder], sum.wait_ns);
    }
    for drain in &story.snapshot.aio_drains {
        let cause = match drain.cause {
            DrainCause::ExitAio => "exit_aio",
            DrainCause::IoDestroy => "io_destroy",
        };
        for (phase, ns) in phases(drain) {
            add(&["aio_drain", &drain.comm, cause, phase], ns);
        }
    }
    let hidden = |owner: &str| {
        let rows = &story.snapshot.ref_owners;
        owner != OTHERS && !rows.iter().any(|row| row.owner == owner)
    };
    for sum in story.kill_sums.iter().filter(|sum| !hidden(&sum.owner)) {
        let mut frames = vec!["percpu_ref", &sum.owner, &sum.killer];
        frames.extend(sum.frames.iter().rev().map(String::as_str));
        add(&frames, sum.dying_ns);
    }
    for (stack, ns) in stacks {
        writeln!(out, "{stack} {ns}")?;
    }
    Ok(())
}

/// The wall time of a drain in parts: they sum to it, or to the contexts' times where those went beside each other.
fn phases(drain: &AioDrain) -> Vec<(&'static str, u64)> {
    let critical = drain.detail.get(drain.critical);
    let contexts: Vec<_> = match drain.verdict {
        DrainVerdict::Serial => drain.detail.iter().collect(),
        DrainVerdict::Parallel | DrainVerdict::Single => critical.into_iter().collect(),
    };
    let mut parts: Vec<(&'static str, u64)> = Vec::new();
    let mut rest = drain.wall_ns;
    let mut add = |phase: &'static str, ns: u64| {
        rest = rest.saturating_sub(ns);
        match parts.iter_mut().find(|part| part.0 == phase) {
            Some(part) => part.1 = part.1.saturating_add(ns),
            None => parts.push((phase, ns)),
        }
    };
    for context in contexts {
        match (context.users_gp_ns, context.users_refs_ns, context.users_ns) {
            (Some(gp), Some(refs), _) => {
                add("users grace period", gp);
                add("users references", refs);
            }
            (_, _, Some(users)) => add("users", users),
            _ => {}
        }
        match (context.reqs_gp_ns, context.reqs_io_ns, context.reqs_ns) {
            (Some(gp), Some(io), _) => {
                add("requests grace period", gp);
                add("requests in flight", io);
            }
            (_, _, Some(reqs)) => add("requests", reqs),
            _ => {}
        }
    }
    parts.push(("(between the phases)", rest));
    parts
}

/// A name as a frame: it may not hold what separates frames, nor what ends a line.
fn frame(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|c| if c == ';' || c.is_control() { ':' } else { c })
        .collect();
    if name.trim().is_empty() {
        "(no name)".into()
    } else {
        name
    }
}
