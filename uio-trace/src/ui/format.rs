//! Figures in columns: three significant digits and a unit, in a width that is known beforehand. What is the same for
//! every reader is in [`crate::format`]; here the micro sign depends on the terminal and units are padded, so that
//! right-aligned figures line up.

/// Three significant digits.
fn three(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// A duration, at most 7 columns; the unit takes two, so that right-aligned figures line up.
pub fn duration(ns: u64, unicode: bool) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let seconds = ns / 1_000_000_000;
    let micro = if unicode { "µs" } else { "us" };
    match ns {
        0 => "0 ns".into(),
        1..1_000 => format!("{ns} ns"),
        1_000..999_500 => format!("{} {micro}", three(ns as f64 / 1e3)),
        999_500..999_500_000 => format!("{} ms", three(ns as f64 / 1e6)),
        _ if seconds < 100 => format!("{} s ", three(ns as f64 / 1e9)),
        _ if seconds < HOUR => format!("{}m{:02}s", seconds / MINUTE, seconds % MINUTE),
        _ if seconds < DAY => format!("{}h{:02}m", seconds / HOUR, seconds % HOUR / MINUTE),
        _ => format!("{}d{:02}h", seconds / DAY, seconds % DAY / HOUR),
    }
}

/// A duration inside a sentence.
pub fn duration_inline(ns: u64, unicode: bool) -> String {
    duration(ns, unicode).trim_end().to_owned()
}

/// The microseconds of a sentence made elsewhere, in this terminal's way: `604 us` is `604 µs` where it can be shown.
pub fn micro(text: &str, unicode: bool) -> String {
    if !unicode {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 4);
    let mut rest = text;
    while let Some(at) = rest.find(" us") {
        let (before, after) = (&rest[..at], &rest[at + 3..]);
        let figure = before.ends_with(|c: char| c.is_ascii_digit());
        let ends = !after.starts_with(|c: char| c.is_alphanumeric());
        out.push_str(before);
        out.push_str(if figure && ends { " µs" } else { " us" });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// A stretch of time in whole seconds, minutes, hours: for what is not a measurement.
pub fn stretch(ns: u64, unicode: bool) -> String {
    match ns {
        1_000_000_000..100_000_000_000 => format!("{} s", (ns + 500_000_000) / 1_000_000_000),
        _ => duration_inline(ns, unicode),
    }
}

/// A count, at most 5 columns.
pub fn count(n: u64) -> String {
    const UNITS: [&str; 6] = ["k", "M", "G", "T", "P", "E"];
    if n < 10_000 {
        return n.to_string();
    }
    let mut value = n as f64;
    let mut unit = "";
    for u in UNITS {
        value /= 1e3;
        unit = u;
        if value < 999.5 {
            break;
        }
    }
    format!("{}{unit}", three(value))
}

/// A rate, without "per second".
pub fn rate(per_second: f64) -> String {
    if per_second.is_finite() && per_second > 0.0 {
        if per_second < 10.0 {
            three(per_second)
        } else {
            count(per_second as u64)
        }
    } else {
        "0".into()
    }
}

/// A share as a percentage, without the sign.
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        "-".into()
    } else if share >= 0.9995 {
        format!("{:.0}", share * 100.0)
    } else {
        format!("{:.1}", share * 100.0)
    }
}

/// `part` of `whole` as a percentage, without the sign.
pub fn percent_of(part: u64, whole: u64) -> String {
    if whole == 0 {
        "-".into()
    } else {
        percent(part as f64 / whole as f64)
    }
}

/// UTC time of day, given that `started` (RFC 3339, UTC) was `elapsed_ns` ago.
pub fn time_of_day(started: &str, elapsed_ns: u64) -> Option<String> {
    let now = crate::format::rfc3339(crate::format::parse_rfc3339(started)?.checked_add(elapsed_ns)?);
    let (_, time) = now.split_once('T')?;
    time.get(..8).map(|time| format!("{time}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (9_996, "10.0 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (200_123, "200 µs"),
            (412_000_000, "412 ms"),
            (999_600_000, "1.00 s "),
            (99_900_000_000, "99.9 s "),
            (100_000_000_000, "1m40s"),
            (3_600_000_000_000, "1h00m"),
            (90_000_000_000_000, "1d01h"),
        ] {
            assert_eq!(duration(ns, true), text);
        }
        assert_eq!(duration(1_500, false), "1.50 us");
    }

    #[test]
    fn microseconds_of_a_sentence() {
        assert_eq!(micro("mean 604 us, p99 3 us", true), "mean 604 µs, p99 3 µs");
        assert_eq!(micro("tell us 5 used us", true), "tell us 5 used us");
        assert_eq!(micro("604 us", false), "604 us");
        assert_eq!(stretch(50_400_000_000, true), "50 s");
        assert_eq!(stretch(296_000_000_000, true), "4m56s");
    }

    #[test]
    fn counts_and_percentages() {
        assert_eq!(count(9_999), "9999");
        assert_eq!(count(12_345), "12.3k");
        assert_eq!(count(999_999), "1.00M");
        assert_eq!(count(u64::MAX), "18.4E");
        assert_eq!(percent(0.972), "97.2");
        assert_eq!(percent(1.0), "100");
        assert_eq!(percent_of(1, 0), "-");
        assert_eq!(rate(0.5), "0.50");
        assert_eq!(rate(f64::NAN), "0");
    }

    #[test]
    fn time_of_day_wraps_and_refuses() {
        assert_eq!(
            time_of_day("2025-01-02T23:59:58.500Z", 1_600_000_000).as_deref(),
            Some("00:00:00Z")
        );
        assert_eq!(
            time_of_day("2025-01-02T03:04:05Z", 0).as_deref(),
            Some("03:04:05Z")
        );
        assert_eq!(time_of_day("yesterday", 0), None);
        assert_eq!(time_of_day("T1:2", 0), None);
    }
}
