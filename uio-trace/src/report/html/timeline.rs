//! How it went: utilization and waiters of devices, grace periods, losses, each over the time of the trace.

use super::svg::{self, WIDTH};
use super::text::{esc, figures, how_to_read, table};
use crate::event::DeviceKey;
use crate::format::{count, duration, percent, plural};
use crate::report::story::Story;
use crate::report::story::timeline::Sample;

const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 12.0;
const PLOT: f64 = 110.0;
const AXIS: f64 = 22.0;
/// Devices that get a line: there are as many dash patterns.
const LINES: usize = 4;
/// Rows of the table: samples are joined to at most so many stretches.
const TABLE_ROWS: usize = 24;

/// One line of a plot; a gap where there is no value.
struct Series {
    name: String,
    values: Vec<Option<f64>>,
}

pub(super) fn section(p: &mut String, story: &Story) {
    p.push_str("<section id=\"time\">\n<h2>Over time</h2>\n");
    let samples = &story.samples;
    if samples.len() < 2 {
        p.push_str("<p>The trace is one stretch of time: there is nothing to compare.</p>\n</section>\n");
        return;
    }
    let length = samples.iter().map(Sample::duration_ns).max().unwrap_or(0);
    how_to_read(
        p,
        &format!(
            "from the begin to the end of the trace, each value the mean of a stretch of up to {}. Steady: it is always \
             so. A step or a peak: look what began then.",
            duration(length)
        ),
    );
    devices(p, story);
    grace_periods(p, samples);
    losses(p, samples);
    as_table(p, story);
    p.push_str("</section>\n");
}

/// Devices by waiting, then by use.
fn busiest(story: &Story) -> Vec<(DeviceKey, String)> {
    let mut devices: Vec<_> = story
        .snapshot
        .uio_devices
        .iter()
        .filter(|d| !d.ops.is_empty())
        .collect();
    let use_of = |d: &crate::model::snapshot::UioDevice| d.utilization.unwrap_or(0.0);
    devices.sort_by(|a, b| {
        b.mean_waiters
            .total_cmp(&a.mean_waiters)
            .then(use_of(b).total_cmp(&use_of(a)))
    });
    let key = |d: &crate::model::snapshot::UioDevice| DeviceKey {
        minor: d.minor,
        generation: d.generation,
    };
    let name = |d: &crate::model::snapshot::UioDevice| match d.generation {
        0 => d.sysfs_name.clone(),
        n => format!("{} (registered again: {n})", d.sysfs_name),
    };
    devices.into_iter().map(|d| (key(d), name(d))).collect()
}

fn devices(p: &mut String, story: &Story) {
    let devices = busiest(story);
    if devices.is_empty() {
        return;
    }
    let lines = |value: &dyn Fn(&Sample, DeviceKey) -> Option<f64>| -> Vec<Series> {
        devices
            .iter()
            .take(LINES)
            .map(|(key, name)| Series {
                name: name.clone(),
                values: story.samples.iter().map(|s| value(s, *key)).collect(),
            })
            .collect()
    };
    let rest = devices.len().saturating_sub(LINES);
    let note = match rest {
        0 => String::new(),
        n => format!(
            " The {LINES} most waited for; {} left out.",
            plural(n as u64, "device")
        ),
    };
    let held = lines(&|s, key| s.utilization(key).map(|u| u * 100.0));
    let title = "Share of the time info_lock was held";
    caption(p, &format!("{title}, %.{note}"), &held);
    plot(
        p,
        "time-held",
        title,
        &story.samples,
        &held,
        Some(100.0),
        &svg::trimmed,
    );
    let waiting = lines(&|s, key| Some(s.mean_waiters(key)));
    let title = "Threads waiting for info_lock";
    caption(p, &format!("{title}, on average.{note}"), &waiting);
    plot(
        p,
        "time-waiting",
        title,
        &story.samples,
        &waiting,
        None,
        &svg::trimmed,
    );
}

fn grace_periods(p: &mut String, samples: &[Sample]) {
    let any = |s: &Sample| s.grace_period.count > 0;
    if !samples.iter().any(any) {
        return;
    }
    let value = |pick: fn(&Sample) -> u64| -> Vec<Option<f64>> {
        samples.iter().map(|s| any(s).then(|| pick(s) as f64)).collect()
    };
    let series = [
        Series {
            name: "median".into(),
            values: value(|s| s.grace_period.p50),
        },
        Series {
            name: "longest".into(),
            values: value(|s| s.grace_period.max),
        },
    ];
    let title = "Grace periods of percpu_refs, kill to switched";
    caption(p, &format!("{title}. Nothing where none ended."), &series);
    plot(p, "time-grace", title, samples, &series, None, &svg::tick);
}

fn losses(p: &mut String, samples: &[Sample]) {
    let per_second = |n: u64, s: &Sample| n as f64 * 1e9 / s.duration_ns() as f64;
    let seen = [Series {
        name: "operations and events".into(),
        values: samples.iter().map(|s| Some(per_second(s.seen, s))).collect(),
    }];
    if samples.iter().any(|s| s.seen > 0) {
        let title = "Operations and events seen per second";
        caption(p, &format!("{title}."), &seen);
        plot(p, "time-seen", title, samples, &seen, None, &rate);
    }
    if samples.iter().all(|s| s.lost == 0) {
        p.push_str("<p>Nothing was lost at any time.</p>\n");
        return;
    }
    let lost = [Series {
        name: "lost".into(),
        values: samples.iter().map(|s| Some(per_second(s.lost, s))).collect(),
    }];
    let title = "Operations and events lost per second";
    caption(
        p,
        &format!("{title}: where this is not 0, the figures are lower bounds."),
        &lost,
    );
    plot(p, "time-lost", title, samples, &lost, None, &rate);
}

fn rate(value: f64) -> String {
    if value >= 10_000.0 {
        crate::format::short_count(value as u64)
    } else {
        svg::trimmed(value)
    }
}

fn caption(p: &mut String, text: &str, series: &[Series]) {
    p.push_str(&format!("<figure>\n<figcaption>{}</figcaption>\n", esc(text)));
    if series.len() < 2 {
        return;
    }
    p.push_str("<ul class=\"keys\">");
    for (i, one) in series.iter().enumerate() {
        p.push_str(&format!(
            "<li><svg class=\"key\" viewBox=\"0 0 30 12\" aria-hidden=\"true\"><path class=\"s s{}\" d=\"M0 6H30\"/></svg>{}</li>",
            i + 1,
            esc(&one.name)
        ));
    }
    p.push_str("</ul>\n");
}

/// Lines as steps: a value holds for the whole of its stretch. Ends the figure that [`caption`] began.
fn plot(
    p: &mut String,
    id: &str,
    title: &str,
    samples: &[Sample],
    series: &[Series],
    top: Option<f64>,
    unit: &dyn Fn(f64) -> String,
) {
    let values = || series.iter().flat_map(|s| s.values.iter().flatten());
    let max = top.unwrap_or_else(|| values().copied().fold(0.0, f64::max));
    let ticks = svg::steps(max, 3);
    let most = ticks.last().copied().unwrap_or(1.0);
    let start = samples.first().map_or(0, |s| s.start_ns);
    let end = samples.last().map_or(0, |s| s.end_ns);
    let span = end.saturating_sub(start).max(1) as f64;
    let width = WIDTH - LEFT - RIGHT;
    let x = |ns: u64| LEFT + ns.saturating_sub(start) as f64 / span * width;
    let y = |value: f64| TOP + PLOT - (value / most).clamp(0.0, 1.0) * PLOT;
    let desc: Vec<String> = series
        .iter()
        .filter_map(|s| {
            let known = || s.values.iter().flatten().copied();
            known().next()?;
            let (lo, hi) = (known().fold(f64::MAX, f64::min), known().fold(0.0, f64::max));
            Some(format!("{}: between {} and {}.", s.name, unit(lo), unit(hi)))
        })
        .collect();
    svg::plot(p, id, TOP + PLOT + AXIS, title, &desc.join(" "), |p| {
        for tick in &ticks {
            svg::line(p, (LEFT, y(*tick)), (WIDTH - RIGHT, y(*tick)), "grid");
            svg::label(p, LEFT - 8.0, y(*tick) + 4.0, "soft end", &unit(*tick));
        }
        for ns in svg::steps(span, 8).into_iter().filter(|ns| *ns <= span) {
            let at = LEFT + ns / span * width;
            svg::line(p, (at, TOP + PLOT), (at, TOP + PLOT + 4.0), "axis");
            svg::label(p, at, TOP + PLOT + 17.0, "soft mid", &svg::tick(ns));
        }
        svg::line(p, (LEFT, TOP + PLOT), (WIDTH - RIGHT, TOP + PLOT), "axis");
        for (i, one) in series.iter().enumerate() {
            let mut path = String::new();
            let mut drawing = false;
            for (sample, value) in samples.iter().zip(&one.values) {
                let Some(value) = value else {
                    drawing = false;
                    continue;
                };
                let (from, to) = (x(sample.start_ns), x(sample.end_ns));
                if drawing {
                    path.push_str(&format!("V{:.1}H{to:.1}", y(*value)));
                } else {
                    path.push_str(&format!("M{from:.1} {:.1}H{to:.1}", y(*value)));
                }
                drawing = true;
            }
            if !path.is_empty() {
                p.push_str(&format!("<path class=\"s s{}\" d=\"{path}\"/>\n", i % LINES + 1));
            }
        }
    });
    p.push_str("</figure>\n");
}

/// The busiest device, grace periods and losses in a few rows.
fn as_table(p: &mut String, story: &Story) {
    let device = busiest(story).into_iter().next();
    let step = story.samples.len().div_ceil(TABLE_ROWS).max(1);
    let start = story.samples.first().map_or(0, |s| s.start_ns);
    let rows: Vec<Vec<String>> = story
        .samples
        .chunks(step)
        .filter_map(|chunk| {
            let mut samples = chunk.iter().cloned();
            let mut joined = samples.next()?;
            samples.for_each(|next| joined.join(next));
            let (held, waiting) = match &device {
                Some((key, _)) => (
                    joined.utilization(*key).map_or_else(|| "-".into(), percent),
                    format!("{:.2}", joined.mean_waiters(*key)),
                ),
                None => ("-".into(), "-".into()),
            };
            let gp = &joined.grace_period;
            let known = |ns: u64| if gp.count > 0 { duration(ns) } else { "-".into() };
            Some(vec![
                svg::tick(joined.start_ns.saturating_sub(start) as f64),
                held,
                waiting,
                count(gp.count),
                known(gp.p50),
                known(gp.max),
                count(joined.seen),
                count(joined.lost),
            ])
        })
        .collect();
    let columns = [
        figures("from"),
        figures("lock held"),
        figures("waiting"),
        figures("grace periods"),
        figures("median"),
        figures("longest"),
        figures("seen"),
        figures("lost"),
    ];
    let caption = match device {
        Some((_, name)) => format!("Over time; lock and waiting are those of {name}"),
        None => "Over time".to_owned(),
    };
    p.push_str("<details><summary>The same as a table</summary>\n");
    table(p, &caption, &columns, &rows);
    p.push_str("</details>\n");
}
