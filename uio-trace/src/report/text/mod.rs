//! The text dump: under 80 columns, units in every header, what matters first, short enough for one ticket.
//!
//! Order: host and stretch of time, findings, what is under way, UIO, AIO, percpu_refs, slow operations, losses. A
//! section without rows says so in its line. Rows beyond the limits are counted, with the flag that shows them.

mod aio;
mod refs;
mod uio;

use crate::format::{
    count, duration, fit, kernel_setting, parse_rfc3339, percent, plural, printable, rfc3339, time_lost,
    width,
};
use crate::model::costs;
use crate::model::findings as diagnoses;
use crate::model::snapshot::{Cost, InProgress, Meta, Probe, ProbeState, Severity, Snapshot};
use crate::report::story::Story;

/// Columns of a line, at most.
pub const COLUMNS: usize = 79;

/// What is shown, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// All rows, and the tool's own BPF trampolines.
    pub all: bool,
    /// Only ASCII characters: bars of `#`.
    pub ascii: bool,
    /// The lines about host, kernel and probes: once, at the top of the first dump.
    pub heading: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            all: false,
            ascii: false,
            heading: true,
        }
    }
}

impl Options {
    /// As the locale has it: ASCII unless its character set is UTF-8.
    pub fn from_env() -> Options {
        // The first that is set and not empty decides (locale(7)).
        let set = |name: &&str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(set)
            .unwrap_or_default()
            .to_lowercase();
        Options {
            ascii: !(locale.contains("utf-8") || locale.contains("utf8")),
            ..Options::default()
        }
    }
}

/// Rows shown of each kind unless all are asked for: together about 60 lines.
struct Limits {
    findings: usize,
    in_progress: usize,
    devices: usize,
    histograms: usize,
    drains: usize,
    owners: usize,
    slow_ops: usize,
    probes: usize,
}

const FEW: Limits = Limits {
    findings: 4,
    in_progress: 3,
    devices: 2,
    histograms: 1,
    drains: 3,
    owners: 3,
    slow_ops: 2,
    probes: 2,
};

const ALL: Limits = Limits {
    findings: usize::MAX,
    in_progress: usize::MAX,
    devices: usize::MAX,
    histograms: usize::MAX,
    drains: usize::MAX,
    owners: usize::MAX,
    slow_ops: usize::MAX,
    probes: usize::MAX,
};

/// The dump.
pub fn render(meta: &Meta, snapshot: &Snapshot, options: &Options) -> String {
    let mut page = Page {
        text: String::new(),
        ascii: options.ascii,
        limits: if options.all { ALL } else { FEW },
    };
    if options.heading {
        head(&mut page, meta, snapshot);
    }
    stretch(&mut page, meta, snapshot);
    findings(&mut page, snapshot);
    in_progress(&mut page, &snapshot.in_progress);
    uio::section(&mut page, snapshot);
    aio::section(&mut page, snapshot);
    refs::section(&mut page, snapshot, options.all);
    uio::slow_ops(&mut page, snapshot);
    program_costs(&mut page, snapshot);
    losses(&mut page, snapshot);
    page.text
}

/// The dump of a report: remarks about its source come first.
pub fn render_story(story: &Story, options: &Options) -> String {
    let mut page = Page {
        text: String::new(),
        ascii: options.ascii,
        limits: FEW,
    };
    for remark in &story.remarks {
        page.paragraph("", &format!("note: {remark}"), 2);
    }
    page.text + &render(&story.meta, &story.snapshot, options)
}

/// The text so far.
struct Page {
    text: String,
    ascii: bool,
    limits: Limits,
}

impl Page {
    /// A line: cut to [`COLUMNS`], no trailing blanks. Every line of the dump goes through here, and so does the last
    /// check that no name brings control characters.
    fn line(&mut self, text: &str) {
        let text = fit(printable(text.to_string()).trim_end(), COLUMNS);
        if self.ascii {
            self.text
                .extend(text.chars().map(|c| if c.is_ascii() { c } else { '?' }));
        } else {
            self.text.push_str(&text);
        }
        self.text.push('\n');
    }

    fn blank(&mut self) {
        self.text.push('\n');
    }

    /// A text of any length, broken at blanks; lines after the first are indented as far as `indent`.
    fn paragraph(&mut self, first: &str, text: &str, indent: usize) {
        let mut line = first.to_string();
        let mut words = 0;
        for word in text.split(' ') {
            if words > 0 && width(&line) + 1 + width(word) > COLUMNS {
                self.line(&line);
                line = " ".repeat(indent);
                words = 0;
            }
            if words > 0 {
                line.push(' ');
            }
            line.push_str(word);
            words += 1;
        }
        self.line(&line);
    }

    /// Says what is left out.
    fn more(&mut self, shown: usize, total: usize) {
        if total > shown {
            self.line(&format!("  and {} more (--all)", count((total - shown) as u64)));
        }
    }

    /// A bar of up to `columns` for `part` of `whole`; anything above nothing shows.
    fn bar(&self, part: u64, whole: u64, columns: usize) -> String {
        // Eighths of a column.
        let eighths = (part as f64 / whole.max(1) as f64 * columns as f64 * 8.0).round() as usize;
        let eighths = if part > 0 { eighths.max(1) } else { 0 };
        if self.ascii {
            return "#".repeat(eighths.div_ceil(8));
        }
        let mut bar = "\u{2588}".repeat(eighths / 8);
        let rest = [
            "", "\u{258f}", "\u{258e}", "\u{258d}", "\u{258c}", "\u{258b}", "\u{258a}", "\u{2589}",
        ];
        bar.push_str(rest.get(eighths % 8).copied().unwrap_or(""));
        bar
    }
}

fn head(page: &mut Page, meta: &Meta, snapshot: &Snapshot) {
    page.paragraph(
        "",
        &format!("{} on {}, Linux {}", meta.tool, meta.host, meta.kernel),
        2,
    );
    let off = |p: &&Probe| p.state == ProbeState::Failed;
    let probes = if snapshot.probes.is_empty() {
        &meta.probes
    } else {
        &snapshot.probes
    };
    // What is not traced at all is said, with its reason, by its finding and its section.
    let told = |p: &&Probe| diagnoses::not_traced(snapshot, &p.subject).is_some() && p.required;
    let mut failed: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for probe in probes.iter().filter(off).filter(|p| !told(p)) {
        let reason = probe.reason.as_deref().unwrap_or("unknown reason");
        // Several hooks often fail for the same reason: it is said once.
        match failed.iter_mut().find(|f| f.0 == reason && f.1 == probe.gives) {
            Some(same) => same.2.push(&probe.hook),
            None => failed.push((reason, &probe.gives, vec![&probe.hook])),
        }
    }
    for (reason, gives, hooks) in failed.iter().take(page.limits.probes) {
        let gives = match *gives {
            "" => String::new(),
            gives => format!(" (no {gives})"),
        };
        page.paragraph(
            "",
            &format!("not traced: {}: {reason}{gives}", hooks.join(", ")),
            2,
        );
    }
    page.more(page.limits.probes.min(failed.len()), failed.len());
    rcu(page, meta);
}

/// Columns of a setting's value unless all is shown: a list of CPUs can be long.
const SETTING_COLUMNS: usize = 24;

/// Settings that explain grace periods; without those that are off, unless all is shown.
fn rcu(page: &mut Page, meta: &Meta) {
    let all = page.limits.probes == ALL.probes;
    let settings: Vec<String> = meta
        .rcu
        .iter()
        .map(|(name, value)| kernel_setting(name, value))
        .filter(|(_, text)| all || !matches!(text.as_str(), "no" | "none"))
        .map(|(label, text)| match all {
            true => format!("{label}: {text}"),
            false => format!("{label}: {}", fit(&text, SETTING_COLUMNS)),
        })
        .collect();
    if !settings.is_empty() {
        page.paragraph("", &format!("RCU and CPUs: {}", settings.join("; ")), 2);
    }
}

fn stretch(page: &mut Page, meta: &Meta, snapshot: &Snapshot) {
    let interval = &snapshot.interval;
    let at = |ns: u64| {
        let started = parse_rfc3339(&meta.started)?;
        Some(rfc3339(
            started.saturating_add(ns).saturating_sub(meta.started_ns),
        ))
    };
    let length = duration(interval.duration_ns);
    match (at(interval.start_ns), at(interval.end_ns)) {
        (Some(from), Some(to)) => page.line(&format!("{from} to {to} ({length})")),
        _ => page.line(&format!("started {}, {length}", meta.started)),
    }
}

fn findings(page: &mut Page, snapshot: &Snapshot) {
    page.blank();
    page.line("FINDINGS, most time lost first; !! critical, ! warning, - for information");
    let shown = page.limits.findings.min(snapshot.findings.len());
    for f in snapshot.findings.iter().take(shown) {
        let mark = match f.severity {
            Severity::Critical => "  !! ",
            Severity::Warning => "  !  ",
            Severity::Info => "  -  ",
        };
        let lost = match time_lost(f.cost) {
            none if none.is_empty() => none,
            lost => format!(" [lost: {lost} s per second]"),
        };
        page.paragraph(mark, &format!("{}{lost}", f.text), 5);
    }
    page.more(shown, snapshot.findings.len());
}

fn in_progress(page: &mut Page, rows: &[InProgress]) {
    if rows.is_empty() {
        return;
    }
    page.blank();
    page.line(&format!("UNDER WAY: {}, longest first", count(rows.len() as u64)));
    let shown = page.limits.in_progress.min(rows.len());
    for p in rows.iter().take(shown) {
        let age = p.age_ns.map_or_else(
            || format!("for more than {}", duration(p.seen_ns)),
            |ns| format!("for {}", duration(ns)),
        );
        let uncertain = if p.uncertain { " (its end may be lost)" } else { "" };
        let text = format!(
            "{} ({}) {} {age}: {}; {}{uncertain}",
            p.comm, p.tgid, p.owner, p.phase, p.detail
        );
        page.paragraph("  ", &text, 4);
        if let Some(stack) = &p.stack {
            page.line(&format!("    in {}", stack.join(" < ")));
        }
    }
    page.more(shown, rows.len());
}

/// What the programs took, the most costly hooks first; only where it was asked for.
fn program_costs(page: &mut Page, snapshot: &Snapshot) {
    let Some(total) = costs::share(&snapshot.probes) else {
        return;
    };
    let mut hooks: Vec<(&Probe, Cost)> = snapshot
        .probes
        .iter()
        .filter_map(|probe| Some((probe, probe.cost.filter(|cost| cost.hits > 0)?)))
        .collect();
    hooks.sort_by_key(|(_, cost)| std::cmp::Reverse(cost.run_ns));
    let shown: Vec<String> = hooks
        .iter()
        .take(4)
        .map(|(probe, cost)| {
            format!(
                "{} {} hits of {}",
                probe.hook,
                count(cost.hits),
                duration(cost.each_ns().unwrap_or(0))
            )
        })
        .collect();
    let most = match shown.is_empty() {
        true => String::new(),
        false => format!("; most by {}", shown.join(", ")),
    };
    page.blank();
    let text = format!(
        "this tool's programs in the kernel took {} of one CPU{most}",
        percent(total)
    );
    page.paragraph("OWN COST ", &text, 9);
}

fn losses(page: &mut Page, snapshot: &Snapshot) {
    let loss = &snapshot.loss;
    page.blank();
    let mut text = format!(
        "{} lost of {} seen; {} aggregated, {} sent, {} decoded",
        count(loss.total()),
        if loss.seen_known() {
            count(loss.seen)
        } else {
            "an unknown number".to_owned()
        },
        count(loss.aggregated),
        count(loss.submitted),
        count(loss.decoded),
    );
    for (reason, n) in &loss.dropped {
        text.push_str(&format!("; {reason} {}", count(*n)));
    }
    if loss.uncertain > 0 {
        text.push_str(&format!(
            "; {} uncertain",
            plural(loss.uncertain, "open interval")
        ));
    }
    page.paragraph("LOSSES ", &text, 7);
}
