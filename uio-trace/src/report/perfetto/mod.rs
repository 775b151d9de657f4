//! A trace for Perfetto (<https://ui.perfetto.dev>, trace_processor): protobuf, `perfetto.protos.Trace`.
//!
//! Tracks: a process for each that drained AIO contexts, with its drains, contexts and their phases; below `UIO` a
//! track for each device with its slow operations, utilization and waiters; below `percpu_ref` one for each owner with
//! its killed refs; losses. Slices of a track may overlap, Perfetto's must not: they are laid into [`lanes`].
//! Times are CLOCK_MONOTONIC of the traced host. Field numbers are those of the published schema,
//! protos/perfetto/trace/{trace_packet,clock_snapshot}.proto and track_event/*.proto.

mod lanes;
mod proto;
mod write;

use super::story::Story;
use crate::event::DeviceKey;
use crate::model::snapshot::{AioContext, AioDrain, DrainCause, DrainVerdict, UioDevice};
use std::collections::BTreeMap;
use std::io::{self, Write};
use write::{Note, Slice, Writer};

/// Writes the trace.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut impl Write, story: &Story) -> io::Result<()> {
    let mut w = Writer::new(out);
    w.clocks(story)?;
    processes(&mut w, story)?;
    devices(&mut w, story)?;
    owners(&mut w, story)?;
    losses(&mut w, story)
}

fn processes<W: Write>(w: &mut Writer<'_, W>, story: &Story) -> io::Result<()> {
    let mut by_process: BTreeMap<(u32, &str), Vec<&AioDrain>> = BTreeMap::new();
    for drain in &story.snapshot.aio_drains {
        by_process
            .entry((drain.tgid, drain.comm.as_str()))
            .or_default()
            .push(drain);
    }
    for ((tgid, comm), drains) in by_process {
        let process = w.process(tgid, comm)?;
        let whole = drains.iter().map(|d| drain_slice(d)).collect();
        w.slices(process, "AIO drains", whole)?;
        let contexts = drains
            .iter()
            .flat_map(|d| d.detail.iter().map(|c| context_slice(d, c)))
            .collect();
        w.slices(process, "AIO contexts", contexts)?;
    }
    Ok(())
}

fn drain_slice(drain: &AioDrain) -> Slice {
    let cause = match drain.cause {
        DrainCause::ExitAio => "exit_aio",
        DrainCause::IoDestroy => "io_destroy",
    };
    let verdict = match drain.verdict {
        DrainVerdict::Serial => "serial",
        DrainVerdict::Parallel => "parallel",
        DrainVerdict::Single => "single",
    };
    Slice {
        from_ns: drain.start_ns,
        to_ns: drain.start_ns.saturating_add(drain.wall_ns),
        category: "aio",
        name: format!("{cause}: {} contexts, {verdict}", drain.contexts),
        notes: vec![
            ("thread", Note::Number(u64::from(drain.tid))),
            ("contexts", Note::Number(drain.contexts)),
            ("projected_parallel_ns", Note::Number(drain.projected_parallel_ns)),
            ("sum_ns", Note::Number(drain.sum_ns)),
            ("uncertain", Note::Text(drain.uncertain.to_string())),
        ],
        within: Vec::new(),
    }
}

fn context_slice(drain: &AioDrain, context: &AioContext) -> Slice {
    let from_ns = drain.start_ns.saturating_add(context.start_offset_ns);
    let to_ns = from_ns.saturating_add(context.total_ns);
    let users = [
        ("users: grace period", context.users_gp_ns),
        ("users: references", context.users_refs_ns),
    ];
    let reqs = [
        ("requests: grace period", context.reqs_gp_ns),
        ("requests: in flight", context.reqs_io_ns),
    ];
    let known = |pair: &[(_, Option<u64>)]| pair.iter().all(|part| part.1.is_some());
    let mut phases: Vec<(&str, Option<u64>)> = Vec::new();
    // Without the switches only the sums of two phases are known.
    if known(&users) {
        phases.extend(users);
    } else {
        phases.push(("users", context.users_ns));
    }
    if known(&reqs) {
        phases.extend(reqs);
    } else {
        phases.push(("requests", context.reqs_ns));
    }
    let mut at = from_ns;
    let mut within = Vec::new();
    for (name, ns) in phases {
        // What follows a phase of unknown length has an unknown begin.
        let Some(ns) = ns else { break };
        let to = at.saturating_add(ns).min(to_ns);
        within.push(leaf(at, to, "aio", name));
        at = to;
    }
    Slice {
        from_ns,
        to_ns,
        category: "aio",
        name: format!("context {}", context.ctx),
        notes: vec![("drain", Note::Number(drain.id))],
        within,
    }
}

fn leaf(from_ns: u64, to_ns: u64, category: &'static str, name: &str) -> Slice {
    Slice {
        from_ns,
        to_ns,
        category,
        name: name.to_owned(),
        notes: Vec::new(),
        within: Vec::new(),
    }
}

fn devices<W: Write>(w: &mut Writer<'_, W>, story: &Story) -> io::Result<()> {
    if story.snapshot.uio_devices.is_empty() && story.waits.is_empty() {
        return Ok(());
    }
    let group = w.track(None, "UIO", None)?;
    let known = |d: &UioDevice| DeviceKey {
        minor: d.minor,
        generation: d.generation,
    };
    let mut names: BTreeMap<DeviceKey, Option<String>> = story
        .snapshot
        .uio_devices
        .iter()
        .map(|d| (known(d), d.name.clone()))
        .collect();
    for wait in &story.waits {
        names.entry(wait.slow.device).or_default();
    }
    for (key, name) in names {
        let mut title = format!("uio{}", key.minor);
        if key.generation > 0 {
            title.push_str(&format!(", registered again {} times", key.generation));
        }
        if let Some(name) = name {
            title.push_str(&format!(" ({name})"));
        }
        let track = w.track(Some(group), &title, None)?;
        let measured = story.samples.iter().any(|s| s.device(key).is_some());
        if measured {
            let utilization = w.counter(Some(track), "info_lock held", "%")?;
            let waiters = w.counter(Some(track), "threads waiting", "threads")?;
            for sample in &story.samples {
                if let Some(share) = sample.utilization(key) {
                    w.value(utilization, sample.start_ns, share * 100.0)?;
                }
                w.value(waiters, sample.start_ns, sample.mean_waiters(key))?;
            }
            if let Some(last) = story.samples.last() {
                w.value(utilization, last.end_ns, 0.0)?;
                w.value(waiters, last.end_ns, 0.0)?;
            }
        }
        let waits = story.waits.iter().filter(|wait| wait.slow.device == key);
        let slices = waits.map(operation_slice).collect();
        w.slices(track, "slow operations", slices)?;
    }
    Ok(())
}

fn operation_slice(wait: &super::story::spans::WaitSpan) -> Slice {
    let (slow, from_ns) = (&wait.slow, wait.start_ns());
    // The lock is the first thing an operation takes; what it does with it follows at once.
    let got = from_ns.saturating_add(slow.wait_ns).min(wait.end_ns);
    let gave = got.saturating_add(slow.hold_ns).min(wait.end_ns);
    let mut within = Vec::new();
    if slow.wait_ns > 0 {
        within.push(leaf(from_ns, got, "uio", "wait for info_lock"));
    }
    if slow.hold_ns > 0 {
        within.push(leaf(got, gave, "uio", "hold info_lock"));
    }
    let mut notes = vec![
        ("process", Note::Number(u64::from(slow.by.tgid))),
        ("thread", Note::Number(u64::from(slow.by.tid))),
        ("cpu", Note::Number(u64::from(slow.cpu))),
        ("driver_wait_ns", Note::Number(slow.driver_wait_ns)),
    ];
    if let Some(holder) = &slow.holder {
        let text = format!("{} ({}/{})", holder.comm, holder.tgid, holder.tid);
        notes.push(("lock_held_by", Note::Text(text)));
    }
    Slice {
        from_ns,
        to_ns: wait.end_ns,
        category: "uio",
        name: format!("{}: {}", slow.op.name(), slow.by.comm),
        notes,
        within,
    }
}

fn owners<W: Write>(w: &mut Writer<'_, W>, story: &Story) -> io::Result<()> {
    let mut by_owner: BTreeMap<&str, Vec<Slice>> = BTreeMap::new();
    let end_ns = story.snapshot.interval.end_ns;
    for span in &story.refs {
        if !story.snapshot.ref_owners.iter().any(|o| o.owner == span.owner) {
            continue;
        }
        let seen = span.killed_ns.saturating_add(span.length_ns());
        let to_ns = if span.open { end_ns.max(seen) } else { seen };
        // Events of a damaged recording may say that it was switched before it was killed.
        let gp_to = span.switched_ns.map(|ns| ns.clamp(span.killed_ns, to_ns));
        let mut within = Vec::new();
        if let Some(gp_to) = gp_to {
            within.push(leaf(span.killed_ns, gp_to, "percpu_ref", "grace period"));
            if to_ns > gp_to {
                within.push(leaf(gp_to, to_ns, "percpu_ref", "references"));
            }
        }
        let state = if span.open { ", end not seen" } else { "" };
        let notes = vec![
            ("process", Note::Number(u64::from(span.by.tgid))),
            ("thread", Note::Number(u64::from(span.by.tid))),
            ("ref", Note::Text(format!("{:#x}", span.reference.0))),
        ];
        by_owner.entry(&span.owner).or_default().push(Slice {
            from_ns: span.killed_ns,
            to_ns,
            category: "percpu_ref",
            name: format!("killed by {}{state}", span.by.comm),
            notes,
            within,
        });
    }
    if by_owner.is_empty() {
        return Ok(());
    }
    let group = w.track(None, "percpu_ref", None)?;
    for (owner, slices) in by_owner {
        w.slices(group, owner, slices)?;
    }
    Ok(())
}

fn losses<W: Write>(w: &mut Writer<'_, W>, story: &Story) -> io::Result<()> {
    let group = w.track(None, "Trace", None)?;
    let lost = w.counter(Some(group), "lost events per second", "1/s")?;
    let seen = w.counter(Some(group), "operations and events per second", "1/s")?;
    for sample in &story.samples {
        let per_second = |n: u64| n as f64 * 1e9 / sample.duration_ns() as f64;
        w.value(lost, sample.start_ns, per_second(sample.lost))?;
        w.value(seen, sample.start_ns, per_second(sample.seen))?;
    }
    if let Some(last) = story.samples.last() {
        w.value(lost, last.end_ns, 0.0)?;
        w.value(seen, last.end_ns, 0.0)?;
    }
    Ok(())
}
