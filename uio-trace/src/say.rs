//! Lines for people on standard error.

use std::io::Write;

/// `uio-trace: ` and the text. A failure is of no consequence: whoever read it is gone, or the terminal is (where `eprintln!`
/// would panic in the middle of detaching).
pub fn say(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "uio-trace: {text}");
}
