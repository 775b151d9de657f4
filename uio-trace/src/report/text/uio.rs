//! UIO devices: a table, the wait beside the hold of the busiest, slow operations one by one.

use super::Page;
use crate::format::{duration, fit, left, percent, plural, right, short_count};
use crate::model::findings;
use crate::model::snapshot::{Histogram, Snapshot, UioDevice, UioLock, UioOpFigures, WhatIfVerdict};

pub(super) fn section(page: &mut Page, snapshot: &Snapshot) {
    let mut devices: Vec<&UioDevice> = snapshot.uio_devices.iter().collect();
    page.blank();
    if devices.is_empty() {
        match (findings::not_traced(snapshot, "uio"), snapshot.uio_present) {
            (Some(why), _) => page.paragraph("UIO: ", &format!("not traced: {why}"), 2),
            (None, Some(true)) => page.line("UIO: no devices"),
            (None, Some(false)) => page.line("UIO: the driver is not loaded"),
            (None, None) => page.line("UIO: whether the driver is loaded is not known"),
        }
        return;
    }
    // The stable sort keeps the minors' order among the idle ones.
    devices.sort_by(|a, b| {
        b.mean_waiters
            .total_cmp(&a.mean_waiters)
            .then(ops(b).cmp(&ops(a)))
    });
    page.line(&format!(
        "UIO: {}, most waited for first",
        plural(devices.len() as u64, "device")
    ));
    page.line("                                     latency    wait of those     hold");
    page.line("  op          count  err waited     p50     p99     p50     p99     p50     p99");
    let shown = page.limits.devices.min(devices.len());
    for device in devices.iter().take(shown) {
        page.line(&format!(" {}", title(device)));
        identity(page, snapshot, device);
        device.ops.iter().for_each(|op| page.line(&row(op)));
        blockers(page, device);
        if let Some(unregister) = &device.unregister {
            page.paragraph("    ", &unregister.sentence(), 6);
        }
        what_if(page, snapshot, device);
    }
    page.more(shown, devices.len());
    for device in devices.iter().take(shown.min(page.limits.histograms)) {
        histograms(page, device);
    }
}

fn ops(device: &UioDevice) -> u64 {
    device.ops.iter().map(|o| o.count).sum()
}

/// Columns of a device's name in its title.
const NAME_COLUMNS: usize = 32;

fn title(device: &UioDevice) -> String {
    let name = device
        .name
        .as_deref()
        .map_or_else(|| "name unknown".to_string(), |n| fit(n, NAME_COLUMNS));
    let generation = match device.generation {
        0 => String::new(),
        n => format!(", generation {n}"),
    };
    let gone = if device.gone_ns.is_some() { ", gone" } else { "" };
    let held = match (device.lock, device.utilization) {
        (UioLock::PercpuRef, _) => "a percpu_ref, no lock".to_string(),
        (_, Some(share)) => format!("info_lock held {}", percent(share)),
        (_, None) => "info_lock held ?".to_string(),
    };
    let (sysfs, waiters) = (&device.sysfs_name, device.mean_waiters);
    format!("{sysfs} ({name}){generation}{gone}: {held}, {waiters:.2} waiting")
}

/// Whose device it is and who has it open, when it is the only one or all is shown.
fn identity(page: &mut Page, snapshot: &Snapshot, device: &UioDevice) {
    if snapshot.uio_devices.len() > 1 && page.limits.devices != usize::MAX {
        return;
    }
    let mut parts = Vec::new();
    match (&device.driver, &device.parent) {
        (Some(driver), Some(parent)) => parts.push(format!("driver {driver} at {parent}")),
        (None, Some(parent)) => parts.push(format!("of {parent}")),
        _ => {}
    }
    if let Some(b) = &device.backstore {
        parts.push(format!(
            "backstore {} of HBA {}",
            fit(&b.name, NAME_COLUMNS),
            b.hba
        ));
    }
    parts.push(opened(device));
    page.paragraph("    ", &parts.join("; "), 6);
}

/// `2 descriptors of tcmu-runner (2201)`.
fn opened(device: &UioDevice) -> String {
    let Some(open) = &device.open else {
        return "open: not known".to_owned();
    };
    let processes: Vec<String> = open
        .processes
        .iter()
        .map(|p| format!("{} ({})", p.comm, p.tgid))
        .collect();
    let whose = match processes.is_empty() {
        true => String::new(),
        false => format!(" of {}", processes.join(", ")),
    };
    let least = if open.complete { "" } else { "at least " };
    format!("open: {least}{}{whose}", plural(open.descriptors, "descriptor"))
}

/// An operation in ten columns; the longest kernel name has twelve.
fn op_name(op: &str) -> &str {
    match op {
        "version_show" => "vers_show",
        op => op,
    }
}

fn row(op: &UioOpFigures) -> String {
    let pick = |h: Option<&Histogram>, pick: fn(&Histogram) -> u64| match h {
        None => "?".to_string(),
        Some(h) if h.count == 0 => "-".to_string(),
        Some(h) => duration(pick(h)),
    };
    // Of reads the hold is not defined: they sleep outside the lock.
    let none = Histogram::default();
    let hold = if op.op == "read" {
        Some(&none)
    } else {
        op.hold_ns.as_ref()
    };
    let times = [Some(&op.latency_ns), op.wait_ns.as_ref(), hold].map(|h| {
        format!(
            "{} {}",
            right(&pick(h, |h| h.p50), 7),
            right(&pick(h, |h| h.p99), 7)
        )
    });
    format!(
        "  {} {} {} {} {}",
        left(op_name(&op.op), 10),
        right(&short_count(op.count), 6),
        right(&short_count(op.errors.values().sum()), 4),
        right(&short_count(op.contended), 6),
        times.join(" "),
    )
}

/// Behind whom, behind what, and which other locks: at most two lines.
fn blockers(page: &mut Page, device: &UioDevice) {
    if let Some(first) = device.blockers.first() {
        let doing = first
            .op
            .as_deref()
            .map_or_else(String::new, |op| format!(" in {op}"));
        let more = match device.blockers.len() - 1 {
            0 => String::new(),
            n => format!("; {n} more"),
        };
        page.line(&format!(
            "    most wait behind {} ({}/{}){doing}: {}, {}{more}",
            first.comm,
            first.tgid,
            first.tid,
            plural(first.count, "wait"),
            duration(first.wait_ns),
        ));
    }
    let mut parts = Vec::new();
    if device.driver_waits > 0 {
        let (n, ns) = (
            plural(device.driver_waits, "wait"),
            duration(device.driver_wait_ns),
        );
        parts.push(format!("locks of the driver: {n}, {ns}"));
    }
    // One pair is what the line above says.
    if device.waits_by_op.len() > 1 {
        parts.extend(device.waits_by_op.iter().map(|pair| {
            let holder = pair.holder.as_deref().unwrap_or("another");
            format!("{} behind {holder} {}", pair.waiter, duration(pair.wait_ns))
        }));
    }
    if let Some(line) = whole_parts(&parts) {
        page.line(&line);
    }
}

/// What would be gained without info_lock, unless a finding says it; with what that rests on when there is room.
fn what_if(page: &mut Page, snapshot: &Snapshot, device: &UioDevice) {
    let said = &device.what_if;
    let alone = snapshot.uio_devices.len() == 1 || page.limits.devices == usize::MAX;
    let news = alone || said.verdict != WhatIfVerdict::NothingToGain;
    let waits = device.ops.iter().any(|op| op.contended > 0);
    if waits && news && !snapshot.findings.iter().any(|f| f.text.ends_with(&said.text)) {
        page.paragraph("    ", &said.text, 6);
    }
    if alone && !said.assumptions.is_empty() {
        let text = format!("the factor assumes: {}", said.assumptions.join("; "));
        page.paragraph("    ", &text, 6);
    }
}

/// As many parts as one line holds whole, the first in any case.
fn whole_parts(parts: &[String]) -> Option<String> {
    const COLUMNS: usize = 78;
    let mut line = format!("    {}", parts.first()?);
    for part in &parts[1..] {
        if line.len() + 2 + part.len() > COLUMNS {
            break;
        }
        line.push_str("; ");
        line.push_str(part);
    }
    Some(line)
}

/// Wait beside hold, a row for each power of two, all operations but reads together.
fn histograms(page: &mut Page, device: &UioDevice) {
    let ops = || device.ops.iter().filter(|o| o.op != "read");
    let waits = log2(ops().filter_map(|o| o.wait_ns.as_ref()));
    let holds = log2(ops().filter_map(|o| o.hold_ns.as_ref()));
    let all = || waits.iter().chain(&holds).map(|r| r.0);
    let (Some(from), Some(to)) = (all().min(), all().max()) else {
        return;
    };
    let most = |rows: &[(u32, u64)]| rows.iter().map(|r| r.1).max().unwrap_or(0);
    let (most_waits, most_holds) = (most(&waits), most(&holds));
    page.blank();
    page.line(&format!(
        "  {} {}  {}",
        right("at least", 9),
        left(&format!("waits for the lock of {}", device.sysfs_name), 32),
        "holds"
    ));
    let of = |rows: &[(u32, u64)], e: u32| rows.iter().find(|r| r.0 == e).map_or(0, |r| r.1);
    let mut empty = 0;
    for exponent in from..=to {
        let (wait, hold) = (of(&waits, exponent), of(&holds, exponent));
        empty = if wait + hold == 0 { empty + 1 } else { 0 };
        // A long way without values is one line.
        if empty > 0 {
            if empty == 1 {
                page.line("        ...");
            }
            continue;
        }
        page.line(&format!(
            "  {} {} {} {} {}",
            right(&duration(1 << exponent), 9),
            right(&short_count(wait), 6),
            left(&page.bar(wait, most_waits, 24), 25),
            right(&short_count(hold), 6),
            page.bar(hold, most_holds, 24),
        ));
    }
}

/// Counts of several distributions by power of two.
fn log2<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Vec<(u32, u64)> {
    let mut rows: Vec<(u32, u64)> = Vec::new();
    for (exponent, n) in histograms.flat_map(Histogram::log2_rows) {
        match rows.iter_mut().find(|r| r.0 == exponent) {
            Some(row) => row.1 += n,
            None => rows.push((exponent, n)),
        }
    }
    rows.retain(|r| r.1 > 0);
    rows
}

pub(super) fn slow_ops(page: &mut Page, snapshot: &Snapshot) {
    if snapshot.slow_ops.is_empty() {
        return;
    }
    page.blank();
    page.line("SLOW UIO operations, longest first");
    page.line("  device  op          latency     wait     hold thread; lock held by");
    let shown = page.limits.slow_ops.min(snapshot.slow_ops.len());
    for s in snapshot.slow_ops.iter().take(shown) {
        page.line(&format!(
            "  {} {} {} {} {} {} ({}/{}); {}",
            left(&s.sysfs_name, 7),
            left(&s.op, 10),
            right(&duration(s.latency_ns), 8),
            right(&duration(s.wait_ns), 8),
            right(&duration(s.hold_ns), 8),
            s.comm,
            s.tgid,
            s.tid,
            s.holder.as_deref().unwrap_or("-"),
        ));
    }
    page.more(shown, snapshot.slow_ops.len());
}
