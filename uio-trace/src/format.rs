//! Numbers and names for people: units, counts, times, printable text of a known width. Used by every reader.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A duration in three digits and a unit: `850 ns`, `1.41 ms`, `33.4 ms`, `133 ms`, `5.20 s`, `2m 05s`, `3h 07m`.
pub fn duration(ns: u64) -> String {
    const UNITS: [(f64, &str); 4] = [(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")];
    let seconds = ns / 1_000_000_000;
    if seconds >= 100 {
        return long_duration(seconds);
    }
    if ns < 1000 {
        return format!("{ns} ns");
    }
    for (scale, unit) in &UNITS[1..] {
        let value = ns as f64 / scale;
        // 999.95 would be shown as 1000: that is 1.00 of the next unit.
        if value < 999.5 || *unit == "s" {
            return format!("{} {unit}", three_digits(value));
        }
    }
    long_duration(seconds)
}

fn long_duration(seconds: u64) -> String {
    let (d, h, m, s) = (
        seconds / 86_400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    );
    match (d, h) {
        (0, 0) => format!("{m}m {s:02}s"),
        (0, _) => format!("{h}h {m:02}m"),
        _ => format!("{d}d {h:02}h"),
    }
}

/// A value below 1000 in three digits.
fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// Seconds lost per second in three digits; empty: none is.
pub fn time_lost(per_second: f64) -> String {
    if !per_second.is_finite() || per_second <= 0.0 {
        String::new()
    } else if per_second < 0.01 {
        "< 0.01".to_string()
    } else if per_second < 1000.0 {
        three_digits(per_second)
    } else {
        format!("{per_second:.0}")
    }
}

/// A duration or `-`: not known.
pub fn duration_or_unknown(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_string(), duration)
}

/// A count with separators: `1,203`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A count in at most six characters: `1203`, `45.6k`, `7.89M`.
pub fn short_count(n: u64) -> String {
    if n < 10_000 {
        return n.to_string();
    }
    for (scale, unit) in [(1e3, "k"), (1e6, "M"), (1e9, "G")] {
        let value = n as f64 / scale;
        if value < 999.5 {
            return format!("{}{unit}", three_digits(value));
        }
    }
    format!("{}T", three_digits((n as f64 / 1e12).min(999.0)))
}

/// A share of one: `0.3 %`, `58 %`, `< 0.1 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent == 0.0 {
        "0 %".to_string()
    } else if percent < 0.1 {
        "< 0.1 %".to_string()
    } else if percent < 9.95 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

/// `1 thing`, `2 things`, `2 switches`, `2 processes`.
pub fn plural(n: u64, thing: &str) -> String {
    let ending = match (n, thing.ends_with("ch") || thing.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{} {thing}{ending}", count(n))
}

/// A kernel setting that explains grace periods (`meta.rcu`): what to call it, and its value in words.
pub fn kernel_setting(name: &str, value: &str) -> (String, String) {
    let label = match name {
        "rcu_expedited" => "grace periods expedited",
        "rcu_normal" => "expedited ones made normal",
        "nohz_full" => "CPUs without a tick",
        "cpus_online" => "CPUs online",
        "preempt" => "preemption",
        "preempt_build" => "preemption as built",
        other => match other.strip_prefix("cmdline.") {
            Some(parameter) => return (format!("boot option {parameter}"), value.to_owned()),
            None => other,
        },
    };
    let text = match (name, value) {
        ("rcu_expedited" | "rcu_normal", "0") => "no",
        ("rcu_expedited" | "rcu_normal", "1") => "yes",
        (_, value) => value,
    };
    (label.to_owned(), text.to_owned())
}

/// Text fit for a terminal and a log: control characters, escape sequences' introducers, and characters that turn the
/// direction of writing or have no width become `?`. Names of devices and processes are chosen by strangers.
pub fn printable(text: String) -> String {
    if text.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return text;
    }
    text.chars()
        .map(|c| if is_printable(c) { c } else { '?' })
        .collect()
}

fn is_printable(c: char) -> bool {
    let turns_direction = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !turns_direction && c.width().is_some_and(|w| w > 0)
}

/// Width on a terminal, columns.
pub fn width(text: &str) -> usize {
    text.width()
}

/// The longest beginning that fits `columns`; `~` marks what was cut.
pub fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_string();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used + 1 > columns {
            break;
        }
        out.push(c);
    }
    if columns > 0 {
        out.push('~');
    }
    out
}

/// Cut or padded on the right to exactly `columns`.
pub fn left(text: &str, columns: usize) -> String {
    let mut out = fit(text, columns);
    out.extend(std::iter::repeat_n(' ', columns.saturating_sub(width(&out))));
    out
}

/// Cut or padded on the left to exactly `columns`.
pub fn right(text: &str, columns: usize) -> String {
    let text = fit(text, columns);
    let mut out: String = std::iter::repeat_n(' ', columns.saturating_sub(width(&text))).collect();
    out.push_str(&text);
    out
}

/// RFC 3339 in UTC, milliseconds: `2026-11-30T12:00:00.000Z`, from nanoseconds since 1970.
pub fn rfc3339(unix_ns: u64) -> String {
    let (seconds, ms) = (unix_ns / 1_000_000_000, unix_ns / 1_000_000 % 1000);
    let (year, month, day) = date(seconds / 86_400);
    let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{ms:03}Z")
}

/// Nanoseconds since 1970 of an RFC 3339 time in UTC (`Z`); `None` if it is not one.
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut ymd = date.splitn(3, '-').map(|n| n.parse::<u64>().ok());
    let (year, month, day) = (ymd.next()??, ymd.next()??, ymd.next()??);
    let mut hms = time.splitn(3, ':');
    let (hour, minute) = (hms.next()?.parse::<u64>().ok()?, hms.next()?.parse::<u64>().ok()?);
    let (second, fraction) = match hms.next()?.split_once('.') {
        Some((second, fraction)) => (second.parse::<u64>().ok()?, fraction),
        None => (0, ""),
    };
    let second = if fraction.is_empty() {
        time.rsplit(':').next()?.parse().ok()?
    } else {
        second
    };
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let nanos: u64 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// Days since 1970-01-01 to year, month, day in the Gregorian calendar (Howard Hinnant, "chrono-compatible low-level
/// date algorithms": years begin in March, 400 of them are 146,097 days).
fn date(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let doe = z % 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (
        yoe + era * 400 + u64::from(month <= 2),
        month,
        doy - (153 * mp + 2) / 5 + 1,
    )
}

/// The inverse of [`date`].
fn days(year: u64, month: u64, day: u64) -> u64 {
    let y = if month <= 2 { year - 1 } else { year };
    let (era, yoe) = (y / 400, y % 400);
    let mp = (month + 9) % 12;
    let doy = (153 * mp + 2) / 5 + day - 1;
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_and_a_unit() {
        let table = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (1_406_000, "1.41 ms"),
            (33_400_000, "33.4 ms"),
            (132_900_000, "133 ms"),
            (999_600_000, "1.00 s"),
            (5_200_000_000, "5.20 s"),
            (99_960_000_000, "100 s"),
            (125_000_000_000, "2m 05s"),
            (11_240_000_000_000, "3h 07m"),
            (u64::MAX, "213503d 23h"),
        ];
        for (ns, text) in table {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn time_lost_is_never_shown_as_nothing() {
        for (lost, text) in [
            (0.0, ""),
            (f64::NAN, ""),
            (0.001, "< 0.01"),
            (0.08, "0.08"),
            (2.94, "2.94"),
            (63.97, "64.0"),
            (1024.4, "1024"),
        ] {
            assert_eq!(time_lost(lost), text);
        }
    }

    #[test]
    fn counts_and_shares() {
        assert_eq!(
            (count(0).as_str(), count(1203).as_str(), count(1_000_000).as_str()),
            ("0", "1,203", "1,000,000")
        );
        assert_eq!(
            (short_count(9_999).as_str(), short_count(45_600).as_str()),
            ("9999", "45.6k")
        );
        assert_eq!(short_count(u64::MAX), "999T");
        assert_eq!(
            (percent(0.0).as_str(), percent(0.0004).as_str()),
            ("0 %", "< 0.1 %")
        );
        assert_eq!(
            (percent(0.003).as_str(), percent(0.58).as_str()),
            ("0.3 %", "58 %")
        );
        assert_eq!(
            (plural(1, "context").as_str(), plural(2, "context").as_str()),
            ("1 context", "2 contexts")
        );
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        assert_eq!(printable("tcm-user/0/x".into()), "tcm-user/0/x");
        assert_eq!(printable("a\x1b[2Jb\r\n\u{9b}c".into()), "a?[2Jb???c");
        assert_eq!(printable("\u{202e}txt\u{200b}".into()), "?txt?");
        assert_eq!(printable("\u{78c1}\u{76d8}".into()), "\u{78c1}\u{76d8}");
    }

    #[test]
    fn cells_have_their_width() {
        assert_eq!(left("ab", 4), "ab  ");
        assert_eq!(right("ab", 4), "  ab");
        assert_eq!(left("abcdef", 4), "abc~");
        for columns in 0..8 {
            assert_eq!(width(&left("\u{78c1}\u{76d8}\u{78c1}", columns)), columns);
        }
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        let ns = 1_796_040_000_123_000_000;
        assert_eq!(rfc3339(ns), "2026-11-30T12:00:00.123Z");
        for text in [
            "2026-11-30T12:00:00.123Z",
            "2024-02-29T23:59:59.000Z",
            "2100-03-01T00:00:00.500Z",
        ] {
            assert_eq!(parse_rfc3339(text).map(rfc3339).as_deref(), Some(text));
        }
        assert_eq!(
            parse_rfc3339("2026-11-30T12:00:00Z").map(rfc3339).as_deref(),
            Some("2026-11-30T12:00:00.000Z")
        );
        for bad in [
            "",
            "2026-11-30",
            "2026-13-30T12:00:00Z",
            "x-1-1T0:0:0Z",
            "2026-11-30T12:00:00+01:00",
        ] {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
    }
}
