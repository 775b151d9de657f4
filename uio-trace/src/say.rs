//! Lines for people on standard error.

use std::io::Write;

/// Names that users and files give may have anything in them; a terminal must not take it for commands.
fn harmless(text: &str) -> String {
    let shown = |c: char| if c.is_control() && c != '\n' { '?' } else { c };
    text.chars().map(shown).collect()
}

/// `uio-trace: ` and the text. A failure is of no consequence: whoever read it is gone, or the terminal is (where `eprintln!`
/// would panic in the middle of detaching).
pub fn say(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "uio-trace: {}", harmless(&text.to_string()));
}

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn nothing_is_a_command_for_the_terminal() {
        assert_eq!(harmless("a\u{1b}[31mb\r\nc\u{9b}"), "a?[31mb?\nc?");
    }
}
