//! What a scenario expects of a snapshot, and how it differs.
//!
//! An expected row is a part of a record: every field it names must be there and match. Every expected row must match
//! another actual row, and tables of [`CLOSED`] may have no row beside those.

use super::script::duration;
use serde_json::Value;

/// Tables in which an unexpected row is a failure, unless the step ignores the table.
pub const CLOSED: [&str; 4] = ["uio_device", "ref_owner", "aio_drain", "in_progress"];

/// Differences between a table's expected rows and the actual ones, in words.
pub fn table(name: &str, expected: &[Value], actual: &[Value], closed: bool) -> Vec<String> {
    let mut differences = Vec::new();
    let mut free: Vec<&Value> = actual.iter().collect();
    for row in expected {
        match free.iter().position(|a| mismatch(row, a, name).is_none()) {
            Some(i) => {
                free.remove(i);
            }
            None => {
                let why: Vec<String> = free.iter().filter_map(|a| mismatch(row, a, name)).collect();
                differences.push(format!(
                    "{name}: no row matches {row}; candidates fail at: {}",
                    why.join("; ")
                ));
            }
        }
    }
    if closed {
        differences.extend(free.iter().map(|a| format!("{name}: unexpected row {a}")));
    }
    differences
}

/// Where `actual` fails `expected`; `None`: it matches.
pub fn mismatch(expected: &Value, actual: &Value, at: &str) -> Option<String> {
    let fail = || Some(format!("{at} is {actual}, expected {expected}"));
    match (expected, actual) {
        (Value::Object(e), Value::Object(a)) => e.iter().find_map(|(k, v)| match a.get(k) {
            Some(actual) => mismatch(v, actual, &format!("{at}.{k}")),
            None => Some(format!("{at}.{k} is missing")),
        }),
        (Value::Array(e), Value::Array(a)) => {
            if e.len() != a.len() {
                return Some(format!("{at} has {} items, expected {}", a.len(), e.len()));
            }
            e.iter()
                .zip(a)
                .enumerate()
                .find_map(|(i, (e, a))| mismatch(e, a, &format!("{at}[{i}]")))
        }
        (Value::String(e), Value::Number(a)) => {
            let a = a.as_f64()?;
            if number_matches(e, a).unwrap_or(false) {
                None
            } else {
                fail()
            }
        }
        (Value::String(e), Value::Null) if e == "null" => None,
        (Value::String(e), Value::String(a)) => match e.strip_prefix("*") {
            Some(part) if a.contains(part) => None,
            None if e == a => None,
            _ => fail(),
        },
        (Value::Number(e), Value::Number(a)) => {
            let (e, a) = (e.as_f64()?, a.as_f64()?);
            if (e - a).abs() <= 1e-9 * e.abs().max(1.0) {
                None
            } else {
                fail()
            }
        }
        (e, a) if e == a => None,
        _ => fail(),
    }
}

/// `33ms`, `>=0.9`, `<=1s`, `~1ms` (within a bucket's 6.25 %).
fn number_matches(expected: &str, actual: f64) -> Option<bool> {
    let value = |text: &str| duration(text).map(|ns| ns as f64).or_else(|| text.parse().ok());
    Some(if let Some(e) = expected.strip_prefix(">=") {
        actual >= value(e)?
    } else if let Some(e) = expected.strip_prefix("<=") {
        actual <= value(e)?
    } else if let Some(e) = expected.strip_prefix('~') {
        (actual - value(e)?).abs() <= 0.0625 * value(e)? + 1.0
    } else {
        actual == value(expected)?
    })
}
