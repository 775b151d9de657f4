//! Waits for info_lock behind another kind of operation, and unregistrations that wait for it.

use super::uio::subject;
use super::{finding, wall_ns, with};
use crate::format::{count, duration, percent, plural};
use crate::model::snapshot::{Finding, InProgress, OpPair, Severity, Snapshot, UioDevice};

/// Share of the waiting behind another kind of operation that names it.
pub const OTHER_KIND_SHARE: f64 = 0.5;
/// An unregistration that waited this long for info_lock, ns, is worth a line.
pub const SLOW_UNREGISTER_NS: u64 = 100_000_000;
/// Waiting for longer than this, ns, is critical.
const CRITICAL_UNREGISTER_NS: u64 = 5_000_000_000;

/// Waits behind another kind of operation.
pub(super) struct OtherKind {
    /// Their share of the waiting whose holder is known.
    pub share: f64,
    /// The largest of them with the thread.
    pub text: String,
}

/// `Some` when most of the waiting is behind another kind of operation than that which waits.
pub(super) fn other_kind(device: &UioDevice) -> Option<OtherKind> {
    let all = device
        .waits_by_op
        .iter()
        .fold(0u64, |sum, pair| sum.saturating_add(pair.wait_ns));
    let other = || {
        let differs = |pair: &&OpPair| pair.holder.as_ref() != Some(&pair.waiter);
        device.waits_by_op.iter().filter(differs)
    };
    let wait_ns = other().fold(0u64, |sum, pair| sum.saturating_add(pair.wait_ns));
    let share = wait_ns as f64 / all.max(1) as f64;
    let first = other().next().filter(|_| share >= OTHER_KIND_SHARE)?;
    let text = format!("{}{}", pair(first), thread(device, first.holder.as_deref()));
    Some(OtherKind { share, text })
}

fn pair(pair: &OpPair) -> String {
    format!(
        "{} behind {} {} in {}",
        pair.waiter,
        pair.holder.as_deref().unwrap_or("the driver's own use of it"),
        duration(pair.wait_ns),
        plural(pair.count, "wait"),
    )
}

/// The thread most waited for while it did this.
fn thread(device: &UioDevice, op: Option<&str>) -> String {
    let holder = device.blockers.iter().find(|b| b.op.as_deref() == op);
    holder.map_or_else(String::new, |b| {
        format!(", most of it by {} ({}/{})", b.comm, b.tgid, b.tid)
    })
}

/// An unregistration that is over and waited for long.
pub(super) fn slow_unregister(snapshot: &Snapshot, device: &UioDevice) -> Option<Finding> {
    let op = device.ops.iter().find(|op| op.op == "unregister")?;
    let wait = op
        .wait_ns
        .as_ref()
        .filter(|wait| wait.max >= SLOW_UNREGISTER_NS)?;
    let behind = device.waits_by_op.iter().find(|pair| pair.waiter == "unregister");
    let behind = behind.map_or_else(String::new, |pair| {
        let holder = pair.holder.as_deref();
        format!(
            ", behind {}{}",
            holder.unwrap_or("the driver's own use of it"),
            thread(device, holder),
        )
    });
    let subject = subject(device);
    let text = format!(
        "{subject}: unregistering waited {} for info_lock, {} of its {}{behind}",
        duration(wait.max),
        percent(wait.sum as f64 / op.latency_ns.sum.max(1) as f64),
        duration(op.latency_ns.max),
    );
    let cost = wait.sum as f64 / wall_ns(snapshot);
    let f = finding("uio_unregister_waited", Severity::Warning, subject, text, cost);
    Some(with(f, [("wait_ns", wait.max.into())]))
}

/// A device that is unregistered while somebody has it open: its operations fail, and its memory stays.
pub(super) fn gone_open(device: &UioDevice) -> Option<Finding> {
    device.gone_ns?;
    let open = device.open.as_ref().filter(|open| open.descriptors > 0)?;
    let subject = subject(device);
    let first = open.processes.first();
    let whose = first.map_or_else(String::new, |p| format!(" of {} ({})", p.comm, p.tgid));
    let more = match open.processes.len() {
        0 | 1 => String::new(),
        n => format!(" and {}", plural(n as u64 - 1, "other process")),
    };
    let text = format!(
        "{subject} is unregistered and still open: {}{whose}{more}",
        plural(open.descriptors, "descriptor"),
    );
    let f = finding("uio_gone_open", Severity::Warning, subject, text, 0.0);
    Some(with(f, [("descriptors", open.descriptors.into())]))
}

/// Operations that failed because their device was being, or had been, unregistered.
pub(super) fn refused(device: &UioDevice) -> Option<Finding> {
    let refused: Vec<_> = device.ops.iter().filter(|op| op.refused > 0).collect();
    let sum: u64 = refused.iter().map(|op| op.refused).sum();
    let kinds: Vec<String> = refused
        .iter()
        .map(|op| {
            let errors: Vec<&str> = op.errors.keys().map(String::as_str).collect();
            format!("{} {} ({})", op.op, count(op.refused), errors.join(", "))
        })
        .collect();
    if sum == 0 {
        return None;
    }
    let subject = subject(device);
    let text = format!(
        "{subject}: {} failed since its unregistration began: {}",
        plural(sum, "operation"),
        kinds.join(", "),
    );
    let f = finding("uio_refused", Severity::Warning, subject, text, 0.0);
    Some(with(f, [("refused", sum.into())]))
}

/// Is this an unregistration that waits for info_lock?
pub(super) fn unregisters(row: &InProgress) -> bool {
    row.subject == "uio_lock"
        && row
            .stack
            .iter()
            .flatten()
            .any(|function| function.starts_with("uio_unregister_device"))
}

/// Unregistrations that wait now: one finding each.
pub(super) fn stuck_unregister(snapshot: &Snapshot, findings: &mut Vec<Finding>) {
    for row in snapshot.in_progress.iter().filter(|row| unregisters(row)) {
        let subject = format!("{} ({})", row.comm, row.tgid);
        // Nobody else's wait says which device it is; with one device in use there is no choice.
        let mut held = snapshot.uio_devices.iter().filter(|d| !d.blockers.is_empty());
        let holder = match (held.next().and_then(|d| d.blockers.first()), held.next()) {
            (Some(b), None) => format!("; others wait behind {} ({}/{})", b.comm, b.tgid, b.tid),
            _ => String::new(),
        };
        let text = format!(
            "{subject} has waited in uio_unregister_device for info_lock for more than {}: somebody holds it and does not \
             let go{holder}",
            duration(row.seen_ns),
        );
        let severity = if row.seen_ns >= CRITICAL_UNREGISTER_NS {
            Severity::Critical
        } else {
            Severity::Warning
        };
        let f = finding("uio_unregister_stuck", severity, subject, text, 1.0);
        findings.push(with(f, [("seen_ns", row.seen_ns.into())]));
    }
}
