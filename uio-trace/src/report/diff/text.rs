//! The comparison as text: what got worse and better first, under 80 columns.

use super::statistics::Verdict;
use super::{Comparison, DeviceRow, Gain, Measured, Metric, Row, Shares, Side};
use crate::format::{count, duration, fit, left, percent, plural, printable, right, short_count, width};
use crate::model::whatif::WORTHLESS;

/// Columns of a line, at most.
const COLUMNS: usize = 79;

/// The page.
pub fn render(sides: [(&str, &Side); 2], comparison: &Comparison, all: bool) -> String {
    let mut page = String::new();
    for (which, (file, side)) in ["before", "after"].into_iter().zip(sides) {
        head(&mut page, which, file, side);
    }
    other_kernel(&mut page, sides);
    let summary = comparison.summary();
    line(&mut page, "");
    let verdicts = [
        (summary.worse, "worse"),
        (summary.better, "better"),
        (summary.mixed, "mixed"),
        (summary.alike, "alike"),
        (summary.noise, "no more than noise"),
        (summary.too_few, "with too few values"),
        (summary.one_sided, "on one side only"),
    ];
    let verdicts: Vec<String> = verdicts
        .iter()
        .filter(|v| v.0 > 0)
        .map(|(n, what)| format!("{} {what}", count(*n)))
        .collect();
    let compared = if verdicts.is_empty() {
        "Nothing to compare: neither side has an operation, a ref or a drain".to_owned()
    } else {
        format!(
            "Of {}: {}",
            plural(comparison.rows.len() as u64, "row"),
            verdicts.join(", ")
        )
    };
    paragraph(&mut page, &compared);
    let shown = |row: &Row| {
        let plain = matches!(
            row.difference.verdict,
            Verdict::Alike | Verdict::Noise | Verdict::TooFew
        );
        all || !plain
    };
    for (subject, title) in [
        ("uio", "UIO operations"),
        ("aio", "AIO drains by process"),
        ("percpu_ref", "percpu_refs by owner"),
    ] {
        section(&mut page, comparison, subject, title, &shown);
    }
    let hidden = comparison.rows.iter().filter(|row| !shown(row)).count();
    if hidden > 0 {
        line(&mut page, "");
        line(
            &mut page,
            &format!(
                "{} without a difference not shown (--all)",
                plural(hidden as u64, "row")
            ),
        );
    }
    page
}

fn line(page: &mut String, text: &str) {
    page.push_str(&fit(printable(text.to_owned()).trim_end(), COLUMNS));
    page.push('\n');
}

/// Broken at blanks, lines after the first indented.
fn paragraph(page: &mut String, text: &str) {
    let mut current = String::new();
    for word in text.split(' ') {
        if !current.trim().is_empty() && width(&current) + 1 + width(word) > COLUMNS {
            line(page, &current);
            current = " ".to_owned();
        }
        if !current.is_empty() {
            current.push(' ');
        }
        current.push_str(word);
    }
    line(page, &current);
}

fn head(page: &mut String, which: &str, file: &str, side: &Side) {
    let from = match &side.meta {
        Some(meta) => format!("{}, Linux {}, {}", meta.host, meta.kernel, meta.started),
        None => "host and kernel not known".to_owned(),
    };
    line(
        page,
        &format!("{} {}", left(which, 6), printable(file.to_owned())),
    );
    line(page, &format!("       {from}, {}", duration(side.duration_ns)));
    line(
        page,
        &format!("       {} seen, {} lost", count(side.seen), count(side.lost)),
    );
    for remark in side.all_remarks() {
        paragraph(page, &format!("  note: {remark}"));
    }
}

/// Two kernels, or two hosts, may differ for reasons of their own.
fn other_kernel(page: &mut String, sides: [(&str, &Side); 2]) {
    let [Some(a), Some(b)] = sides.map(|(_, side)| side.meta.as_ref()) else {
        return;
    };
    let mut differs = Vec::new();
    if a.host != b.host {
        differs.push("hosts");
    }
    if a.kernel != b.kernel {
        differs.push("kernels");
    }
    if !a.rcu.is_empty() && !b.rcu.is_empty() && a.rcu != b.rcu {
        differs.push("RCU settings");
    }
    if !differs.is_empty() {
        paragraph(
            page,
            &format!("note: the two differ in {}", differs.join(" and ")),
        );
    }
}

fn section(
    page: &mut String,
    comparison: &Comparison,
    subject: &str,
    title: &str,
    shown: &impl Fn(&Row) -> bool,
) {
    let rows: Vec<&Row> = comparison
        .rows
        .iter()
        .filter(|row| row.subject == subject && shown(row))
        .collect();
    if rows.is_empty() {
        return;
    }
    line(page, "");
    line(
        page,
        &format!(
            "{} {} {}",
            left(title, 24),
            right("before", 23),
            right("after", 23)
        ),
    );
    let columns = format!("{} {} {}", right("mean", 7), right("p99", 7), right("n", 6));
    line(page, &format!("{} {columns} {columns}  change", left("", 25)));
    let mut names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    names.dedup();
    for name in names {
        match comparison
            .devices
            .iter()
            .find(|d| subject == "uio" && d.name == name)
        {
            Some(device) => device_line(page, device),
            None => line(page, &format!("  {name}")),
        }
        for row in rows.iter().filter(|row| row.name == name) {
            one(page, row);
        }
    }
}

fn device_line(page: &mut String, device: &DeviceRow) {
    let name = match (&device.driver_name_before, &device.driver_name_after) {
        (Some(a), Some(b)) if a == b => format!("{} ({})", device.name, fit(a, 26)),
        (Some(a), Some(b)) => format!(
            "{} ({}, then {}: not the same)",
            device.name,
            fit(a, 18),
            fit(b, 18)
        ),
        (Some(one), None) | (None, Some(one)) => format!("{} ({})", device.name, fit(one, 26)),
        (None, None) => device.name.clone(),
    };
    line(page, &format!("  {name}"));
    if let (Some(a), Some(b)) = (&device.before, &device.after) {
        let held = |s: &Shares| s.held.map_or_else(|| "?".into(), percent);
        line(
            page,
            &format!(
                "    lock held {}, then {}; threads waiting {:.2}, then {:.2}",
                held(a),
                held(b),
                a.waiting,
                b.waiting
            ),
        );
        gain_line(page, a, b);
    }
}

/// What was to be gained without info_lock, where that is projected of both.
fn gain_line(page: &mut String, before: &Shares, after: &Shares) {
    let (Some(a), Some(b)) = (&before.gain, &after.gain) else {
        return;
    };
    let gain = |gain: &Gain| {
        if gain.high <= WORTHLESS {
            return "nothing to gain".to_owned();
        }
        let op = gain.op.as_deref().unwrap_or("operations");
        format!("{op} x{:.1} to x{:.1}", gain.low, gain.high)
    };
    let (a, b) = (gain(a), gain(b));
    line(page, &format!("    without info_lock {a}, then {b}"));
}

fn one(page: &mut String, row: &Row) {
    let verdict = match row.difference.verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Mixed => "mixed",
        Verdict::Alike => "alike",
        Verdict::Noise => "noise",
        Verdict::TooFew => "few",
        Verdict::OnlyBefore => "gone",
        Verdict::OnlyAfter => "new",
    };
    let metric = match row.metric {
        Metric::Wait => "wait",
        Metric::Hold => "hold",
        Metric::Latency => "latency",
        Metric::Throughput => "per second",
        Metric::GracePeriod => "grace period",
        Metric::Drain => "kill to end",
        Metric::DrainWall => "drain",
        Metric::Context => "context",
        Metric::ProjectedParallel => "together",
    };
    let what = match &row.op {
        Some(op) => format!("{op} {metric}"),
        None => metric.to_owned(),
    };
    let side = |m: &Measured| {
        let value = |v: Option<f64>| match v {
            None => "-".to_owned(),
            Some(v) if row.metric == Metric::Throughput => rate(v),
            Some(v) => duration(v as u64),
        };
        format!(
            "{} {} {}",
            right(&value(m.mean), 7),
            right(&value(m.p99), 7),
            right(&short_count(m.n), 6)
        )
    };
    line(
        page,
        &format!(
            "  {} {} {} {} {}",
            left(verdict, 6),
            left(&what, 16),
            side(&row.before),
            side(&row.after),
            right(&row.difference.change.map_or_else(|| "-".into(), change), 6),
        ),
    );
}

fn rate(value: f64) -> String {
    if value < 100.0 {
        format!("{value:.1}")
    } else {
        short_count(value as u64)
    }
}

/// `+5 %`, `-99 %`, `x12`.
fn change(share: f64) -> String {
    if share >= 9.995 {
        format!("x{}", short_count((share + 1.0).round() as u64))
    } else {
        format!("{:+.0} %", share * 100.0)
    }
}
