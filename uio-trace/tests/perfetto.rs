//! The Perfetto trace of a report against the schema that Perfetto publishes, and against the JSON report of the same
//! recording. `perfetto/check.py` judges; it sees only the two files.
#![allow(clippy::expect_used, clippy::unwrap_used)] // what cannot be made or started is a failure

mod recorded;
mod triage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use uio_trace::event::{Event, EventKind};
use uio_trace::model::snapshot::Meta;
use uio_trace::recording::Writer;

const PROGRAM: &str = env!("CARGO_BIN_EXE_uio-trace");

/// Debian's: another one in PATH may have packages of its own.
const PYTHON: &str = "/usr/bin/python3";

/// The folder with the Python packages: named by `cargo xtask test`, or where that has put them.
fn modules() -> PathBuf {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let folder = set("UIO_TRACE_PERFETTO_SCHEMA").or_else(|| {
        let cache = set("UIO_TRACE_CACHE")
            .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("uio-trace")))
            .or_else(|| set("HOME").map(|home| home.join(".cache/uio-trace")));
        cache.map(|cache| cache.join("perfetto-schema"))
    });
    let wanted = include_str!("perfetto/requirements.txt");
    let has = |folder: &PathBuf| {
        fs::read_to_string(folder.join("requirements.txt")).is_ok_and(|installed| installed == wanted)
    };
    folder.filter(has).unwrap_or_else(|| {
        panic!(
            "Perfetto's schema is not there: this test reads a trace with the Python packages of \
             uio-trace/tests/perfetto/requirements.txt. `cargo xtask test --host` puts them into the cache"
        )
    })
}

/// Whether a trace is right, and what is said of it.
fn check(trace: &Path, report: &Path, more: &[&str]) -> (bool, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/perfetto/check.py");
    let output = Command::new(PYTHON)
        .args(["-I", "-B"])
        .arg(script)
        .arg(modules())
        .args([trace, report])
        .args(more)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| {
            panic!("{PYTHON} cannot be started ({error}); on Debian: apt-get install python3 (cargo xtask test does so)")
        });
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.success(), said)
}

/// A folder of a test's own, left there for who wants to look.
fn folder(name: &str) -> PathBuf {
    let folder = triage::scratch(&format!("perfetto-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn record(path: &Path, meta: &Meta, events: &[Event]) {
    let mut writer = Writer::new(fs::File::create(path).unwrap(), meta).unwrap();
    for few in events.chunks(50) {
        few.iter().for_each(|event| writer.event(event).unwrap());
        writer.flush().unwrap();
    }
    writer.end().unwrap();
}

/// The trace and the JSON report that the program makes of a recording.
fn reports(recording: &Path, part: &[&str]) -> (PathBuf, PathBuf) {
    let made = |form: &str, ending: &str| {
        let out = recording.with_extension(ending);
        let output = Command::new(PROGRAM)
            .arg("report")
            .arg(recording)
            .arg(form)
            .args(part)
            .arg("--force")
            .arg("-o")
            .arg(&out)
            .env_remove("SUDO_UID")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{form} {part:?}: {said}");
        out
    };
    (made("--perfetto", "pftrace"), made("--json", "json"))
}

/// Judges the trace of some events; what was said of it.
fn judged(name: &str, meta: &Meta, events: &[Event], part: &[&str]) -> String {
    let folder = folder(name);
    let recording = folder.join("made.uiotrace");
    record(&recording, meta, events);
    let (trace, report) = reports(&recording, part);
    let (right, said) = check(&trace, &report, &[]);
    assert!(right, "{name}: {said}");
    said
}

/// Of such events the schema, the tracks and the slices are right; the figures need not be those of the report.
fn valid(name: &str, meta: &Meta, events: &[Event]) {
    let recording = folder(name).join("made.uiotrace");
    record(&recording, meta, events);
    let (trace, report) = reports(&recording, &[]);
    let (_, said) = check(&trace, &report, &[]);
    let wrong: Vec<&str> = said
        .lines()
        .filter(|line| !line.starts_with("report: "))
        .collect();
    assert!(
        wrong.len() == 1 && wrong[0].contains(" figures compared"),
        "{name}: {said}"
    );
}

#[test]
fn traces_are_of_the_schema_and_say_what_the_report_says() {
    let whole = judged("triage", &triage::meta(), &triage::events(), &[]);
    // Not by finding nothing to look at.
    assert!(whole.contains(" 941 slices"), "{whole}");
    judged("mended", &triage::meta(), &triage::mended_events(), &[]);
    judged("empty", &triage::meta(), &[], &[]);
    // Its counts are read before its end: the report's means are of the time until then, the trace's of all of it.
    valid("every-kind", &recorded::meta(), &recorded::events());
}

#[test]
fn traces_of_a_part_say_what_the_report_of_that_part_says() {
    for (name, part) in [
        ("by-name", &["--comm", "postgres"][..]),
        ("by-process", &["-p", "1234"]),
        ("by-device", &["--device", "igb_uio"]),
        ("by-owner", &["--owner", "cgroup"]),
    ] {
        judged(name, &triage::meta(), &triage::events(), part);
    }
}

/// All release functions have one name there, and none of the hooks has it: whose ends are seen is not known.
#[test]
fn traces_with_hostile_names_are_of_the_schema() {
    valid("hostile", &triage::hostile_meta(), &triage::hostile_events());
}

/// Begun while the host was up for long; and with times that no clock gives, as a damaged recording may have them.
#[test]
fn traces_with_odd_times_are_of_the_schema() {
    let later = |by_ns: u64| {
        let mut events = triage::events();
        events
            .iter_mut()
            .for_each(|e| e.ts_ns = e.ts_ns.saturating_add(by_ns));
        events
    };
    let month_ns = 31 * 86_400 * 1_000_000_000;
    let meta = Meta {
        started_ns: month_ns,
        ..triage::meta()
    };
    judged("later", &meta, &later(month_ns), &[]);
    valid(
        "beyond",
        &triage::meta(),
        &later(i64::MAX as u64 - 10_000_000_000),
    );
    valid("end-of-time", &triage::meta(), &later(u64::MAX - 10_000_000_000));
    // What is seen of a ref before it was killed.
    let mut early = triage::events();
    for event in &mut early {
        if matches!(event.kind, EventKind::RefSwitched { .. }) {
            event.ts_ns /= 2;
        }
    }
    valid("switched-early", &triage::meta(), &early);
}

/// That the judge can say no: to each of many damaged traces, for the right reason.
#[test]
fn damaged_traces_are_refused() {
    let folder = folder("damaged");
    let recording = folder.join("made.uiotrace");
    record(&recording, &triage::meta(), &triage::events());
    let (trace, report) = reports(&recording, &[]);
    let (right, said) = check(&trace, &report, &["--mutations"]);
    assert!(right, "{said}");
    assert!(
        said.contains("mutations, ") && said.contains(" refused for what they are"),
        "{said}"
    );

    let whole = fs::read(&trace).unwrap();
    // By hand, a packet of sequence 1: field 9999; an end on the first track, which has no slice.
    let unknown = [0x0a, 0x06, 0x50, 0x01, 0xf8, 0xf0, 0x04, 0x01];
    let end = [
        0x0a, 0x0d, 0x50, 0x01, 0x40, 0x05, 0xd0, 0x03, 0x03, 0x5a, 0x04, 0x48, 0x02, 0x58, 0x01,
    ];
    for (name, bytes, complaint) in [
        ("unknown", [&whole[..], &unknown].concat(), "schema: "),
        ("end", [&whole[..], &end].concat(), "misplaced_end_event: "),
        ("cut", whole[..whole.len() - 1].to_vec(), "schema: not a Trace"),
        ("none", Vec::new(), "report: "),
    ] {
        let damaged = folder.join(format!("{name}.pftrace"));
        fs::write(&damaged, bytes).unwrap();
        let (right, said) = check(&damaged, &report, &[]);
        assert!(!right && said.starts_with(complaint), "{name}: {said}");
    }
    // Another recording's report.
    record(&recording, &triage::meta(), &triage::mended_events());
    let (_, other) = reports(&recording, &[]);
    let before = folder.join("before.pftrace");
    fs::write(&before, whole).unwrap();
    let (right, said) = check(&before, &other, &[]);
    assert!(!right && said.starts_with("report: "), "{said}");
}
