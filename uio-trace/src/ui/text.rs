//! Foreign text made safe to show and measured in terminal columns.
//!
//! Names come from drivers, `comm`s and user programs: they may hold escape sequences, wide characters or
//! characters that no terminal agrees on. Everything drawn passes [`clean`] first.

use std::borrow::Cow;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// `text` with every character that a terminal might obey, or measure differently from us, replaced.
pub fn clean(text: &str, unicode: bool) -> Cow<'_, str> {
    if text.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(
        text.chars()
            .filter_map(|c| {
                if c.is_control() || reorders(c) {
                    Some(if unicode { '\u{fffd}' } else { '?' })
                } else if !unicode && !c.is_ascii() {
                    Some(ascii(c))
                } else if c.width() == Some(0) {
                    // Combining marks, joiners, variation selectors: terminals disagree about their width. The
                    // base characters stay.
                    None
                } else {
                    Some(c)
                }
            })
            .collect(),
    )
}

/// Characters that change the order in which a terminal shows a line.
fn reorders(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Stand-in for a character outside ASCII.
fn ascii(c: char) -> char {
    match c {
        'µ' | 'μ' => 'u',
        '–' | '—' => '-',
        _ => '?',
    }
}

/// Columns that `text` takes.
pub fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
}

/// `text` cut to `max` columns, with `ellipsis` (one column) where something is missing.
pub fn fit<'a>(text: &'a str, max: usize, ellipsis: &str) -> Cow<'a, str> {
    if width(text) <= max {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let columns = c.width().unwrap_or(0);
        if used + columns + 1 > max {
            break;
        }
        used += columns;
        out.push(c);
    }
    if max > 0 {
        out.push_str(ellipsis);
    }
    Cow::Owned(out)
}

/// The words of a text. A figure and its unit are one: `604 us` is not broken.
pub fn words(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = Vec::new();
    let mut from = 0;
    let mut figure = false;
    for word in text.split_whitespace() {
        let at = word.as_ptr().addr() - text.as_ptr().addr();
        let end = at + word.len();
        let bare = word.trim_end_matches([',', ';', '.', ':', ')']);
        let unit = matches!(bare, "ns" | "us" | "µs" | "ms" | "s" | "%");
        match words.last_mut() {
            Some(last) if figure && unit => *last = &text[from..end],
            _ => {
                from = at;
                words.push(word);
            }
        }
        figure = word.ends_with(|c: char| c.is_ascii_digit());
    }
    words
}

/// `text` in lines of at most `max` columns, broken at spaces where there are any.
pub fn wrap(text: &str, max: usize) -> Vec<String> {
    let max = max.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in words(text) {
        let columns = width(word);
        if used > 0 && used + 1 + columns > max {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        if used + columns <= max {
            line.push_str(word);
            used += columns;
            continue;
        }
        for c in word.chars() {
            let columns = c.width().unwrap_or(0);
            if used > 0 && used + columns > max {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            line.push(c);
            used += columns;
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_and_reordering_lose_their_power() {
        assert_eq!(
            clean("a\x1b[31mb\n\u{9b}2J", true),
            "a\u{fffd}[31mb\u{fffd}\u{fffd}2J"
        );
        assert_eq!(clean("a\x1bb\u{202e}c", false), "a?b?c");
        assert_eq!(clean("µs 日本", false), "us ??");
        assert_eq!(clean("plain", true), "plain");
    }

    #[test]
    fn joiners_and_marks_do_not_count() {
        let family = clean("👩\u{200d}👧e\u{301}", true).into_owned();
        assert_eq!(family, "👩👧e");
        assert_eq!(width(&family), 5);
    }

    #[test]
    fn cutting_respects_wide_characters() {
        assert_eq!(fit("日本語", 6, "…"), "日本語");
        assert_eq!(fit("日本語", 5, "…"), "日本…");
        assert_eq!(fit("日本語", 4, "…"), "日…");
        assert_eq!(fit("日本語", 1, "…"), "…");
        assert_eq!(fit("abc", 0, "…"), "");
    }

    #[test]
    fn wrapping_breaks_at_spaces_and_cuts_long_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrap("日本語", 4), ["日本", "語"]);
        assert!(wrap("", 5).is_empty());
        assert_eq!(wrap("mean 604 us, p99 3 s.", 9), ["mean", "604 us,", "p99 3 s."]);
        assert_eq!(wrap("5 is s", 3), ["5", "is", "s"]);
    }
}
