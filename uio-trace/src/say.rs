//! Lines for people on standard error.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// A line that passes is on the terminal.
static PASSING: AtomicBool = AtomicBool::new(false);

/// Back to the begin of the line, and erase it.
const ERASE: &str = "\r\x1b[K";

/// Names that users and files give may have anything in them; a terminal must not take it for commands.
fn harmless(text: &str) -> String {
    let shown = |c: char| if c.is_control() && c != '\n' { '?' } else { c };
    text.chars().map(shown).collect()
}

/// `uio-trace: ` and the text. A failure is of no consequence: whoever read it is gone, or the terminal is (where `eprintln!`
/// would panic in the middle of detaching).
pub fn say(text: impl std::fmt::Display) {
    passed();
    let _ = writeln!(std::io::stderr(), "uio-trace: {}", harmless(&text.to_string()));
}

/// A line that the next one replaces; only on a terminal.
pub fn passing(text: impl std::fmt::Display) {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        PASSING.store(true, Ordering::Relaxed);
        let _ = write!(err, "{}", passing_line(&text.to_string())).and_then(|()| err.flush());
    }
}

/// Takes the line that passes away, if there is one.
pub fn passed() {
    if PASSING.swap(false, Ordering::Relaxed) {
        let _ = write!(std::io::stderr(), "{ERASE}");
    }
}

fn passing_line(text: &str) -> String {
    format!("{ERASE}uio-trace: {}", harmless(text))
}

#[cfg(test)]
mod tests {
    use super::{harmless, passing_line};

    #[test]
    fn a_passing_line_stays_in_its_line() {
        assert_eq!(passing_line("3 of 26"), "\r\x1b[Kuio-trace: 3 of 26");
    }

    #[test]
    fn nothing_is_a_command_for_the_terminal() {
        assert_eq!(harmless("a\u{1b}[31mb\r\nc\u{9b}"), "a?[31mb?\nc?");
    }
}
