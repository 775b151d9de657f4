//! Distributions on a logarithmic time axis, one below the other, from log-linear buckets.

use super::svg::{self, Log, WIDTH};
use super::text::{figures, table, words};
use crate::format::{count, duration, plural, short_count};
use crate::model::snapshot::Histogram;

/// One distribution of a plot.
pub(super) struct Row<'a> {
    /// What the values are.
    pub name: &'a str,
    /// CSS class of its bars.
    pub class: &'a str,
    /// The values.
    pub histogram: &'a Histogram,
}

const LEFT: f64 = 150.0;
const RIGHT: f64 = 20.0;
const ROW: f64 = 92.0;
const BARS: f64 = 62.0;
const TOP: f64 = 18.0;
const AXIS: f64 = 24.0;

/// The plot, and its figures as a table. Rows without values are left out; without any, a sentence says so.
pub(super) fn draw(p: &mut String, id: &str, title: &str, rows: &[Row<'_>]) {
    let rows: Vec<&Row<'_>> = rows.iter().filter(|row| row.histogram.count > 0).collect();
    let bounds = rows.iter().filter_map(|row| {
        let buckets = &row.histogram.buckets;
        Some((buckets.first()?.lo, buckets.last()?.hi))
    });
    let Some((lo, hi)) = bounds.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else {
        return;
    };
    let scale = Log::new(lo, hi, LEFT, WIDTH - LEFT - RIGHT);
    let height = TOP + ROW * rows.len() as f64 + AXIS;
    let bottom = height - AXIS;
    let desc: Vec<String> = rows.iter().map(|row| sentence(row)).collect();
    svg::plot(p, id, height, title, &desc.join(" "), |p| {
        let ticks = scale.ticks();
        for ns in &ticks {
            let x = scale.x(*ns);
            svg::line(p, (x, TOP), (x, bottom), "grid");
            svg::label(p, x, bottom + 16.0, "soft mid", &svg::tick(*ns));
        }
        for (i, row) in rows.iter().enumerate() {
            bars(p, row, &scale, TOP + ROW * i as f64);
        }
        svg::line(p, (LEFT, bottom), (WIDTH - RIGHT, bottom), "axis");
    });
    as_table(p, title, &rows);
}

fn sentence(row: &Row<'_>) -> String {
    let h = row.histogram;
    format!(
        "{}: {}, half of them below {}, 99 of 100 below {}, the longest {}.",
        row.name,
        plural(h.count, "value"),
        duration(h.p50),
        duration(h.p99),
        duration(h.max)
    )
}

fn bars(p: &mut String, row: &Row<'_>, scale: &Log, top: f64) {
    let h = row.histogram;
    let base = top + ROW - 6.0;
    svg::label(p, 0.0, base - 44.0, "", row.name);
    svg::label(p, 0.0, base - 28.0, "soft", &plural(h.count, "value"));
    svg::label(
        p,
        0.0,
        base - 12.0,
        "soft",
        &format!("mean {}", duration(h.mean())),
    );
    // Buckets differ in width on this scale: the area of a bar, not its height, is its number of values.
    let width = |lo: u64, hi: u64| (scale.x(hi as f64) - scale.x(lo as f64)).max(1.5);
    let dense = |b: &crate::model::snapshot::Bucket| b.count as f64 / width(b.lo, b.hi);
    let highest = h.buckets.iter().map(dense).fold(0.0, f64::max);
    for bucket in &h.buckets {
        let tall = (dense(bucket) / highest * BARS).max(1.0);
        let tip = format!(
            "{}: {} to {}: {}",
            row.name,
            duration(bucket.lo),
            duration(bucket.hi),
            plural(bucket.count, "value")
        );
        svg::bar(
            p,
            (scale.x(bucket.lo as f64), base - tall),
            (width(bucket.lo, bucket.hi), tall),
            row.class,
            &tip,
        );
    }
    svg::line(p, (LEFT, base), (WIDTH - RIGHT, base), "axis");
    let mut free_from = LEFT;
    for (name, ns) in [("p50", h.p50), ("p99", h.p99), ("max", h.max)] {
        let x = scale.x(ns as f64);
        let text = format!("{name} {}", duration(ns));
        // About 6.5 units a character. A label without room is in the table below.
        let half = text.len() as f64 * 3.25;
        let at = x.clamp(LEFT + half, WIDTH - RIGHT - half);
        if at - half < free_from {
            continue;
        }
        svg::line(p, (x, base - BARS - 6.0), (x, base), "mark");
        svg::label(p, at, base - BARS - 10.0, "soft mid", &text);
        free_from = at + half + 6.0;
    }
}

fn as_table(p: &mut String, title: &str, rows: &[&Row<'_>]) {
    p.push_str("<details><summary>The same as a table</summary>\n");
    let columns = [
        words("values"),
        figures("number"),
        figures("mean"),
        figures("p50"),
        figures("p90"),
        figures("p99"),
        figures("p99.9"),
        figures("longest"),
    ];
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let h = row.histogram;
            let mut cells = vec![row.name.to_owned(), count(h.count)];
            cells.extend([h.mean(), h.p50, h.p90, h.p99, h.p999, h.max].map(duration));
            cells
        })
        .collect();
    table(p, title, &columns, &cells);
    let by_power: Vec<_> = rows.iter().map(|row| row.histogram.log2_rows()).collect();
    let all = || by_power.iter().flatten().filter(|row| row.1 > 0).map(|row| row.0);
    if let (Some(from), Some(to)) = (all().min(), all().max()) {
        let names = ["at least", "first", "second", "third"];
        let mut columns = vec![figures("at least")];
        columns.extend(names.iter().skip(1).take(rows.len()).map(|name| figures(name)));
        let cells: Vec<Vec<String>> = (from..=to)
            .map(|power| {
                let n = |rows: &Vec<(u32, u64)>| rows.iter().find(|r| r.0 == power).map_or(0, |r| r.1);
                let mut cells = vec![duration(1 << power)];
                cells.extend(by_power.iter().map(|rows| short_count(n(rows))));
                cells
            })
            .collect();
        let order: Vec<&str> = rows.iter().map(|row| row.name).collect();
        let caption = format!("Values by power of two; {}", order.join(", "));
        table(p, &caption, &columns, &cells);
    }
    p.push_str("</details>\n");
}
