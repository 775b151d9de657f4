//! What the numbers beside a finding are: unit and meaning of each. The part of docs/json.md about them is made from
//! [`EVIDENCE`], and the screens write a number as its unit asks for.

use crate::format::{count, duration, percent};
use serde_json::Value;

/// In what a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds; the name ends in `_ns`.
    Nanoseconds,
    /// Milliseconds; the name ends in `_ms`.
    Milliseconds,
    /// So many.
    Count,
    /// Threads on average.
    Threads,
    /// A share, 0 to 1.
    Share,
    /// So many times as much.
    Times,
    /// So many in a second.
    PerSecond,
    /// No number.
    Text,
}

impl Unit {
    /// For the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Milliseconds => "ms",
            Unit::Count => "count",
            Unit::Threads => "threads",
            Unit::Share => "share, 0 to 1",
            Unit::Times => "times",
            Unit::PerSecond => "per second",
            Unit::Text => "text",
        }
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Evidence {
    /// Key in the record.
    pub name: &'static str,
    /// In what its number is.
    pub unit: Unit,
    /// What it is, and of which findings where that is not plain.
    pub meaning: &'static str,
}

const fn row(name: &'static str, unit: Unit, meaning: &'static str) -> Evidence {
    Evidence { name, unit, meaning }
}

/// All keys, by name. A row a line, so that it can be read as the table it is.
#[rustfmt::skip]
pub const EVIDENCE: &[Evidence] = &[
    row("age_ns", Unit::Nanoseconds, "for how long the drain or operation has been under way; null: since before the trace"),
    row("aio_drains", Unit::Count, "AIO drains that ended"),
    row("assumes", Unit::Text, "what the bounds of the gain rest on (`what_if.assumptions`); null: nothing"),
    row("contended", Unit::Count, "operations but reads that waited for info_lock"),
    row("contexts", Unit::Count, "AIO contexts of those drains"),
    row("cpus", Unit::Count, "CPUs that came online"),
    row("descriptors", Unit::Count, "open file descriptors of the device"),
    row("drains", Unit::Count, "drains of that process the finding is about"),
    row("driver_wait_ns", Unit::Nanoseconds, "waits for a driver's own locks, added up"),
    row("driver_waits", Unit::Count, "those waits"),
    row("gain_high", Unit::Times, "the most that the throughput without info_lock is of the present one; null: refused"),
    row("gain_low", Unit::Times, "the least of it; null: refused"),
    row("kills_already_dead", Unit::Count, "kills of percpu_refs that were dead"),
    row("latency_ns", Unit::Nanoseconds, "time in operations but reads, entry to exit, added up"),
    row("longest_ns", Unit::Nanoseconds, "the longest of those drains"),
    row("lost", Unit::Count, "operations and events lost"),
    row("mean_waiters", Unit::Threads, "threads waiting for info_lock on average"),
    row("oldest_ns", Unit::Nanoseconds, "age of the oldest drain or percpu_ref; null: since before the trace"),
    row("ops", Unit::Count, "operations but reads"),
    row("other_share", Unit::Share, "part of the waiting that is behind another kind of operation"),
    row("per_second", Unit::PerSecond, "those switches in a second"),
    row("phase_ns", Unit::Nanoseconds, "part of `wall_ns` that the named phase took; `aio_exit_slow`: all of it"),
    row("projected_parallel_ns", Unit::Nanoseconds, "what the drains would take together"),
    row("ref_kills", Unit::Count, "kills of percpu_refs, the tool's own left out"),
    row("references", Unit::Count, "references left of the oldest percpu_ref; null: not known"),
    row("refs", Unit::Count, "percpu_refs killed and not gone"),
    row("refused", Unit::Count, "operations that failed since the unregistration began"),
    row("released_early", Unit::Count, "percpu_refs released before their switch had finished"),
    row("saved_ns", Unit::Nanoseconds, "`wall_ns` less `projected_parallel_ns`"),
    row("seen_ns", Unit::Nanoseconds, "for how long it has been seen to wait, at least; `uio_unregister_stuck` of an unregistration whose begin was seen: since then"),
    row("switches", Unit::Count, "switches of percpu_refs to atomic mode"),
    row("tasks", Unit::Count, "tasks that wait so"),
    row("uio_ops", Unit::Count, "operations on UIO devices"),
    row("uncertain", Unit::Count, "open drains and percpu_refs whose end may be among the lost"),
    row("unseen_at_most_ms", Unit::Milliseconds, "for how long such a CPU is not followed, at most"),
    row("utilization", Unit::Share, "part of the time info_lock was held"),
    row("wait_ns", Unit::Nanoseconds, "waits for info_lock of operations but reads, added up; `uio_stuck`: the longest that lasts; `uio_unregister_waited`: the longest of an unregistration"),
    row("wait_p99_ns", Unit::Nanoseconds, "99th percentile of the waits, of the kind of operation where it is largest"),
    row("waiters", Unit::Count, "operations that wait so"),
    row("wall_ns", Unit::Nanoseconds, "time in which at least one of those drains was under way"),
];

/// What is known of a key.
pub fn of(name: &str) -> Option<&'static Evidence> {
    EVIDENCE.iter().find(|row| row.name == name)
}

/// Two or three digits that matter.
fn rounded(value: f64) -> String {
    if !value.is_finite() {
        "-".to_owned()
    } else if value.abs() < 100.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.0}")
    }
}

/// Label and number for people: rounded, with its unit. Null is `-`.
pub fn words(name: &str, value: &Value) -> (String, String) {
    let unit = of(name).map(|row| row.unit);
    let label = match unit {
        Some(Unit::Nanoseconds) => name.strip_suffix("_ns"),
        Some(Unit::Milliseconds) => name.strip_suffix("_ms"),
        _ => None,
    };
    let label = label.unwrap_or(name).replace('_', " ");
    let text = match (unit, value, value.as_u64(), value.as_f64()) {
        (_, Value::Null, ..) => "-".to_owned(),
        (_, Value::String(text), ..) => text.clone(),
        (Some(Unit::Nanoseconds), _, Some(ns), _) => duration(ns),
        (Some(Unit::Milliseconds), _, Some(ms), _) => duration(ms.saturating_mul(1_000_000)),
        (Some(Unit::Share), _, _, Some(share)) => percent(share),
        (Some(Unit::Threads), _, _, Some(threads)) => format!("{} threads", rounded(threads)),
        (Some(Unit::Times), _, _, Some(times)) => format!("{} times", rounded(times)),
        (Some(Unit::PerSecond), _, _, Some(rate)) => format!("{} per second", rounded(rate)),
        (_, _, Some(n), _) => count(n),
        (_, _, _, Some(number)) => rounded(number),
        (_, other, ..) => other.to_string(),
    };
    (label, text)
}

/// The table as Markdown, for docs/json.md.
pub fn markdown() -> String {
    let mut page = String::from("| key of `evidence` | unit | meaning |\n|---|---|---|\n");
    for row in EVIDENCE {
        page += &format!("| `{}` | {} | {} |\n", row.name, row.unit.name(), row.meaning);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn units_are_those_of_the_names() {
        assert!(EVIDENCE.is_sorted_by_key(|row| row.name));
        for pair in EVIDENCE.windows(2) {
            assert_ne!(pair[0].name, pair[1].name);
        }
        for row in EVIDENCE {
            let name = row.name;
            assert_eq!(name.ends_with("_ns"), row.unit == Unit::Nanoseconds, "{name}");
            assert_eq!(name.ends_with("_ms"), row.unit == Unit::Milliseconds, "{name}");
            assert_eq!(
                name.ends_with("_share"),
                row.unit == Unit::Share && name != "utilization"
            );
            assert!(!row.meaning.is_empty());
        }
    }

    #[test]
    fn numbers_are_rounded_and_have_a_unit() {
        for (name, value, label, text) in [
            ("wait_ns", json!(123_456_789), "wait", "123 ms"),
            ("unseen_at_most_ms", json!(500), "unseen at most", "500 ms"),
            ("utilization", json!(0.791_234_567_8), "utilization", "79 %"),
            ("mean_waiters", json!(2.941_234), "mean waiters", "2.94 threads"),
            ("gain_low", json!(1.412_345), "gain low", "1.41 times"),
            ("gain_low", json!(null), "gain low", "-"),
            ("per_second", json!(1234.567), "per second", "1235 per second"),
            ("ops", json!(123_456_789), "ops", "123,456,789"),
            ("assumes", json!("a; b"), "assumes", "a; b"),
            (
                "of_a_later_version",
                json!(0.123_456),
                "of a later version",
                "0.12",
            ),
        ] {
            assert_eq!(words(name, &value), (label.to_owned(), text.to_owned()));
        }
    }
}
