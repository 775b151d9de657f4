//! Scenarios: events in, expected parts of the snapshot out. One file each in tests/scenarios/.
//!
//! A file is a list of `[[step]]`: `begin_interval` (a time), `events` (tests/scenario/script.rs), `finish` (a time),
//! then the snapshot of `scope` is compared with `[step.expect]` (tests/scenario/expect.rs).

// A mistake in a scenario file ends the test: that is what panics are for here.
#![allow(clippy::expect_used, clippy::unwrap_used)]

#[path = "scenario/expect.rs"]
mod expect;
#[path = "scenario/script.rs"]
mod script;

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use uio_trace::model::{Config, Model, Scope};
use uio_trace::report::json;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    /// What it shows.
    #[allow(dead_code)] // for the reader of the file
    about: String,
    /// CPUs online.
    cpus: Option<u32>,
    step: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    begin_interval: Option<String>,
    #[serde(default)]
    events: String,
    /// Keep the order of the lines instead of sorting by time.
    #[serde(default)]
    as_written: bool,
    finish: Option<String>,
    #[serde(default)]
    interval: bool,
    /// Tables whose unexpected rows do not matter here.
    #[serde(default)]
    ignore: Vec<String>,
    /// Findings that must not be there.
    #[serde(default)]
    no_finding: Vec<String>,
    #[serde(default)]
    expect: BTreeMap<String, Vec<Value>>,
}

fn run(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("the scenario");
    let scenario: Scenario = toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut model = Model::new(Config {
        start_ns: Some(0),
        cpus: scenario.cpus,
    });
    let mut script = script::Script::default();
    let mut differences = Vec::new();
    let ns = |t: &str| script::duration(t).unwrap_or_else(|| panic!("{}: {t}", path.display()));
    for (i, step) in scenario.step.iter().enumerate() {
        if let Some(t) = &step.begin_interval {
            model.begin_interval(ns(t));
        }
        script
            .read(&step.events, !step.as_written)
            .into_iter()
            .for_each(|e| model.apply(e));
        if let Some(t) = &step.finish {
            model.finish(ns(t));
        }
        let snapshot = model.snapshot(if step.interval {
            Scope::Interval
        } else {
            Scope::SinceStart
        });
        assert!(!snapshot.findings.is_empty(), "{}: no finding", path.display());
        let mut out = Vec::new();
        json::write_snapshot(&mut out, &snapshot).expect("JSON");
        let mut actual: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for line in String::from_utf8(out).expect("UTF-8").lines() {
            let record: Value = serde_json::from_str(line).expect("a record");
            let kind = record["type"].as_str().expect("type").to_string();
            actual.entry(kind).or_default().push(record);
        }
        // The order of the findings is part of what they say.
        let first = actual.get("finding").and_then(|all| all.first()).cloned();
        actual.insert("first_finding".to_owned(), first.into_iter().collect());
        let none = Vec::new();
        let closed = expect::CLOSED.iter().map(|n| n.to_string());
        let tables: std::collections::BTreeSet<String> = closed.chain(step.expect.keys().cloned()).collect();
        for name in tables {
            let expected = step.expect.get(&name).unwrap_or(&none);
            let rows = actual.get(&name).unwrap_or(&none);
            let closed = expect::CLOSED.contains(&name.as_str()) && !step.ignore.contains(&name);
            let found = expect::table(&name, expected, rows, closed);
            differences.extend(found.into_iter().map(|d| format!("step {}: {d}", i + 1)));
        }
        for id in &step.no_finding {
            if snapshot.findings.iter().any(|f| f.id == *id) {
                differences.push(format!("step {}: finding {id} is there", i + 1));
            }
        }
    }
    differences
}

#[test]
fn every_scenario_ends_as_it_says() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .expect("tests/scenarios")
        .map(|entry| entry.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "toml"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    let mut failures = Vec::new();
    for path in &paths {
        for difference in run(path) {
            failures.push(format!(
                "{}: {difference}",
                path.file_name().unwrap().to_string_lossy()
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The comparison itself must not let a missing or an extra row pass.
#[test]
fn a_missing_or_extra_row_is_a_difference() {
    let row = |n: u64| serde_json::json!({ "type": "aio_drain", "contexts": n });
    let part = |n: u64| serde_json::json!({ "contexts": n });
    assert!(expect::table("t", &[part(1), part(2)], &[row(2), row(1)], true).is_empty());
    assert_eq!(expect::table("t", &[part(1), part(1)], &[row(1)], true).len(), 1);
    assert_eq!(expect::table("t", &[part(1)], &[row(1), row(2)], true).len(), 1);
    assert_eq!(expect::table("t", &[part(3)], &[row(1)], true).len(), 2);
    assert!(expect::mismatch(&"~1ms".into(), &1_050_000.into(), "x").is_none());
    assert!(expect::mismatch(&"~1ms".into(), &1_100_000.into(), "x").is_some());
}
