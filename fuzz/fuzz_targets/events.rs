//! See ../targets.rs.
#![no_main]

#[allow(dead_code, reason = "the other targets")]
#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::event_lines(bytes));
