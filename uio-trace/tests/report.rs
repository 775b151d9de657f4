//! The text dump and the records, from a busy host's events: tests/scenario/busy.script.

// A mistake in the script ends the test: that is what panics are for here.
#![allow(clippy::expect_used, clippy::unwrap_used)]

#[path = "scenario/schema.rs"]
mod schema;
#[path = "scenario/script.rs"]
mod script;

use std::collections::BTreeMap;
use uio_trace::event::{Event, EventKind, ProbeCost, UioPresence};
use uio_trace::format::width;
use uio_trace::model::findings::evidence;
use uio_trace::model::snapshot::{Meta, Probe, ProbeState, Snapshot};
use uio_trace::model::{Config, Model, Scope};
use uio_trace::report::text::{self, Options};
use uio_trace::report::{csv, json};

fn meta() -> Meta {
    Meta {
        schema_version: json::SCHEMA_VERSION,
        tool: "uio-trace 0.1.0".to_string(),
        host: "storage-17".to_string(),
        kernel: "6.12.117-amd64".to_string(),
        boot_id: "6ad4b8a8-5f0e-4d8a-9f6d-0d8d4ff5c0de".to_string(),
        started: "2026-11-30T12:00:00.000Z".to_string(),
        started_ns: 0,
        probes: Vec::new(),
        rcu: BTreeMap::from([("CONFIG_RCU_LAZY".to_string(), "y".to_string())]),
    }
}

fn busy() -> Snapshot {
    let mut model = Model::new(Config {
        start_ns: Some(0),
        ..Config::default()
    });
    let events = script::Script::default().read(include_str!("scenario/busy.script"), true);
    events.into_iter().for_each(|e| model.apply(e));
    model.snapshot(Scope::SinceStart)
}

/// One device that is serialised, with a name of 200 bytes that is no text.
fn one_device() -> Snapshot {
    let mut model = Model::new(Config {
        start_ns: Some(0),
        cpus: Some(4),
    });
    let events = script::Script::default().read(include_str!("scenario/device.script"), true);
    for mut event in events {
        if let EventKind::UioDevices(devices) = &mut event.kind {
            let bytes = [
                b"tcm-user/0/d\xff\x1b[2J\x07\r\n\xe2\x80\xae/",
                [b'x'; 176].as_slice(),
            ]
            .concat();
            devices[0].name = Some(String::from_utf8_lossy(&bytes).into_owned());
            devices[0].parent = Some("tcm\u{9b}_user".to_owned());
        }
        model.apply(event);
    }
    model.snapshot(Scope::SinceStart)
}

fn idle() -> Snapshot {
    let mut model = Model::new(Config {
        start_ns: Some(0),
        ..Config::default()
    });
    model.apply(Event {
        ts_ns: 0,
        kind: EventKind::UioPresence(UioPresence::Absent),
    });
    model.begin_interval(10_000_000_000);
    model.snapshot(Scope::SinceStart)
}

const PLAIN: Options = Options {
    all: false,
    ascii: false,
    heading: true,
};

/// What `hist --device` prints of a device at work: verdict, evidence and what the lock is worth, on one screen.
#[test]
fn one_device_fits_a_screen() {
    let dump = text::render(&meta(), &one_device(), &PLAIN);
    assert!(
        dump.lines().count() <= 32,
        "{} lines:\n{dump}",
        dump.lines().count()
    );
    for line in dump.lines() {
        assert!(width(line) < 80, "{line}");
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
    // Wherever lines are broken.
    let words = dump.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "is serialised: callers wait",
        "times as many write",
        "the factor assumes: the threads go on as before",
        "backstore d",
        "open: at least 2 descriptors of tcmu-runner (20)",
    ] {
        assert!(words.contains(part), "{part}\n{dump}");
    }
    assert!(!dump.contains('\u{202e}'), "{dump}");
}

#[test]
fn a_dump_fits_a_ticket_and_a_terminal() {
    for (snapshot, options) in [
        (busy(), PLAIN),
        (busy(), Options { ascii: true, ..PLAIN }),
        (busy(), Options { all: true, ..PLAIN }),
        (one_device(), PLAIN),
        (one_device(), Options { all: true, ..PLAIN }),
        (idle(), PLAIN),
    ] {
        let dump = text::render(&meta(), &snapshot, &options);
        for line in dump.lines() {
            assert!(width(line) < 80, "{} columns: {line}", width(line));
            assert!(!line.chars().any(char::is_control), "control character: {line:?}");
            assert_eq!(line.trim_end(), line, "blank at the end: {line:?}");
        }
        if !options.all {
            // About 60; this host has something in every section.
            assert!(
                dump.lines().count() <= 70,
                "{} lines:\n{dump}",
                dump.lines().count()
            );
        }
        assert!(dump.is_ascii() || !options.ascii);
    }
}

#[test]
fn the_dump_says_what_it_says() {
    for (name, snapshot, expected) in [
        ("busy.txt", busy(), include_str!("scenario/busy.txt")),
        ("idle.txt", idle(), include_str!("scenario/idle.txt")),
    ] {
        let dump = text::render(&meta(), &snapshot, &PLAIN);
        if std::env::var_os("BLESS").is_some() {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/scenario")
                .join(name);
            std::fs::write(path, &dump).expect("written");
        } else {
            assert_eq!(dump, expected, "{name}; BLESS=1 rewrites it");
        }
    }
}

/// What the ranking is by, and what the signs before the texts mean.
#[test]
fn findings_say_what_time_is_lost() {
    let (snapshot, all) = (busy(), Options { all: true, ..PLAIN });
    let dump = text::render(&meta(), &snapshot, &all);
    assert!(
        dump.contains("FINDINGS, most time lost first; !! critical, ! warning, - for information"),
        "{dump}"
    );
    let words = dump.split_whitespace().collect::<Vec<_>>().join(" ");
    let lost = snapshot.findings.iter().filter(|f| f.cost > 0.0).count();
    assert!(lost > 2);
    assert_eq!(words.matches("[lost: ").count(), lost, "{dump}");
    assert!(words.contains("mean 10.0 ms [lost: 0.50 s per second]"), "{dump}");
}

/// Nothing of tool, host and kernel is cut; of the settings those that are off, and long values, are for `--all`.
#[test]
fn the_head_names_the_kernel_in_full() {
    let mut meta = meta();
    meta.tool = "uio-trace 0.1.0 (git 0123456789ab, bpf 0123456789ab)".to_owned();
    meta.host = "storage-17.rack-4.example.com".to_owned();
    meta.kernel = "6.1.0-22-cloud-amd64-with-a-flavour-of-its-own".to_owned();
    let cpus = "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30";
    meta.rcu = [
        ("rcu_expedited", "0"),
        ("rcu_normal", "1"),
        ("nohz_full", "none"),
        ("cmdline.rcu_nocbs", cpus),
        ("CONFIG_HZ", "250"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let head = |options: &Options| {
        let dump = text::render(&meta, &idle(), options);
        assert!(dump.lines().all(|line| width(line) < 80), "{dump}");
        dump.split("FINDINGS").next().unwrap().to_owned()
    };
    let few = head(&PLAIN);
    for part in [&meta.tool, &meta.host, &meta.kernel] {
        assert!(few.contains(part.as_str()), "{part}: {few}");
    }
    let settings = few.lines().skip_while(|line| !line.starts_with("RCU"));
    let settings: Vec<&str> = settings.take_while(|line| !line.starts_with("20")).collect();
    assert_eq!(
        settings,
        [
            "RCU and CPUs: CONFIG_HZ: 250; boot option rcu_nocbs: 0,2,4,6,8,10,12,14,16,1~;",
            "  expedited ones made normal: yes"
        ]
    );
    let all = head(&Options { all: true, ..PLAIN });
    let all = all.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [cpus, "grace periods expedited: no", "CPUs without a tick: none"] {
        assert!(all.contains(part), "{part}: {all}");
    }
}

#[test]
fn own_trampolines_are_only_shown_when_asked_for() {
    let all = Options { all: true, ..PLAIN };
    assert!(!text::render(&meta(), &busy(), &PLAIN).contains("BPF trampoline"));
    assert!(text::render(&meta(), &busy(), &all).contains("BPF trampoline"));
}

#[test]
fn csv_has_a_row_per_device_and_operation() {
    let snapshot = busy();
    let mut out = Vec::new();
    csv::write_header(&mut out).unwrap();
    csv::write_snapshot(&mut out, &snapshot).unwrap();
    let text = String::from_utf8(out).unwrap();
    let columns = csv::HEADER.split(',').count();
    assert_eq!(
        text.lines().count(),
        1 + snapshot.uio_devices.iter().map(|d| d.ops.len()).sum::<usize>()
    );
    for line in text.lines() {
        let outside_quotes: usize = line
            .split('"')
            .step_by(2)
            .map(|part| part.matches(',').count())
            .sum();
        assert_eq!(outside_quotes + 1, columns, "{line}");
    }
}

/// The busy host with what two of its hooks cost.
fn counted() -> Snapshot {
    let mut model = Model::new(Config {
        start_ns: Some(0),
        ..Config::default()
    });
    let events = script::Script::default().read(include_str!("scenario/busy.script"), true);
    events.into_iter().for_each(|e| model.apply(e));
    let probe = |hook: &str| Probe {
        subject: "uio".into(),
        hook: hook.into(),
        state: ProbeState::Attached,
        method: Some("kprobe+kretprobe".into()),
        reason: None,
        gives: String::new(),
        required: false,
        cost: None,
        late_cpus: Vec::new(),
    };
    let row = |hook: &str, hits, run_ns| ProbeCost {
        subject: "uio".into(),
        hook: hook.into(),
        hits,
        run_ns,
        missed: 2,
    };
    let begin = model.now_ns();
    for (ts_ns, kind) in [
        (
            begin,
            EventKind::Probes(vec![probe("uio_write"), probe("uio_poll"), probe("uio_read")]),
        ),
        (
            begin,
            EventKind::ProbeCosts(Some(vec![row("uio_write", 0, 0), row("uio_poll", 0, 0)])),
        ),
        // 100 ms of 10 s: 1 %; and 0.5 %.
        (
            begin + 10_000_000_000,
            EventKind::ProbeCosts(Some(vec![
                row("uio_write", 50_000, 100_000_000),
                row("uio_poll", 1_000, 50_000_000),
            ])),
        ),
    ] {
        model.apply(Event { ts_ns, kind });
    }
    model.snapshot(Scope::SinceStart)
}

#[test]
fn what_the_programs_cost_is_said_where_it_is_counted() {
    let dump = text::render(&meta(), &counted(), &PLAIN);
    let words: Vec<&str> = dump.split_whitespace().collect();
    let expected = "OWN COST this tool's programs in the kernel took 1.5 % of one CPU; most by uio_write 50,000 hits of 2.00 us, uio_poll 1,000 hits of 50.0 us";
    assert!(words.join(" ").contains(expected), "{dump}");
    assert!(dump.lines().all(|line| width(line) <= text::COLUMNS), "{dump}");
    assert!(!text::render(&meta(), &busy(), &PLAIN).contains("COST"));
    let records = json::render(&meta(), &counted()).unwrap();
    let records: Vec<serde_json::Value> = records
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|record: &serde_json::Value| record["type"] == "probe_cost")
        .collect();
    // uio_read was not counted: that is no 0.
    assert_eq!(records.len(), 2);
    assert_eq!(records[0]["hits"], 50_000);
    assert_eq!(records[0]["counted_ns"], 10_000_000_000_u64);
}

#[test]
fn records_fit_their_schema() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../docs/records.schema.json")).unwrap();
    let mut types = std::collections::BTreeSet::new();
    for snapshot in [busy(), idle(), counted()] {
        for line in json::render(&meta(), &snapshot).unwrap().lines() {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            let kind = record["type"].as_str().unwrap().to_string();
            let one = schema
                .pointer(&format!("/$defs/{kind}"))
                .expect("a described type");
            assert_eq!(schema::mismatch(&schema, one, &record, &kind), None);
            types.insert(kind);
        }
    }
    // Every described record occurs, so nothing is described that is not tested.
    for one in schema["oneOf"].as_array().unwrap() {
        let kind = one["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
        assert!(types.contains(kind), "no {kind} in the sample");
    }
    let wrong = serde_json::json!({ "type": "loss", "seen": -1 });
    assert!(schema::mismatch(&schema, &schema["$defs"]["loss"], &wrong, "loss").is_some());
}

#[test]
fn every_field_is_described() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../docs/records.schema.json")).unwrap();
    let page = include_str!("../../docs/json.md");
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        for field in definition["properties"].as_object().unwrap().keys() {
            assert!(
                page.contains(&format!("`{field}`")) || field == "type",
                "{name}.{field} is not in docs/json.md"
            );
        }
    }
}

/// The code that makes findings, without its tests.
fn makers_of_findings() -> Vec<String> {
    let room = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![room.join("app/filter.rs")];
    let folder = std::fs::read_dir(room.join("model/findings")).unwrap();
    files.extend(folder.map(|entry| entry.unwrap().path()));
    assert!(files.len() >= 7, "{files:?}");
    files
        .iter()
        .filter(|file| !file.ends_with("evidence.rs"))
        .map(|file| std::fs::read_to_string(file).unwrap())
        .map(|text| text.split("#[cfg(test)]").next().unwrap().to_owned())
        .collect()
}

/// First string after each `call`, blanks and line ends left out.
fn first_strings<'a>(source: &'a str, call: &'a str) -> impl Iterator<Item = &'a str> {
    source
        .split(call)
        .skip(1)
        .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
}

#[test]
fn every_finding_is_described() {
    let page = include_str!("../../docs/json.md");
    let mut ids = 0;
    for source in makers_of_findings() {
        for id in first_strings(&source, "finding(") {
            assert!(
                page.contains(&format!("`{id}`")),
                "finding {id} is not in docs/json.md"
            );
            ids += 1;
        }
    }
    assert!(ids > 25, "{ids}");
}

/// Evidence is a pair of a key and its number: `("key", number.into())`.
#[test]
fn every_key_of_the_evidence_is_in_the_table() {
    let mut used = std::collections::BTreeSet::new();
    for source in makers_of_findings() {
        let ends = source.match_indices(".into())").map(|(at, _)| at);
        for begin in ends.filter_map(|end| source[..end].rfind("(\"")) {
            let key = source[begin + 2..].split('"').next().unwrap().to_owned();
            if source[begin + 2 + key.len()..].starts_with("\", ") {
                used.insert(key);
            }
        }
    }
    let table: Vec<&str> = evidence::EVIDENCE.iter().map(|row| row.name).collect();
    assert_eq!(used.iter().map(String::as_str).collect::<Vec<_>>(), table);
}

/// docs/json.md has the table as it is: UPDATE_SNAPSHOTS=1 puts it there.
#[test]
fn the_page_has_the_table_of_evidence() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/json.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let table = evidence::markdown();
    let head = table.split_inclusive('\n').next().unwrap();
    let begin = page.find(head).expect("the table's head");
    let end = begin + page[begin..].find("\n\n").expect("its end") + 1;
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, format!("{}{table}{}", &page[..begin], &page[end..])).unwrap();
    } else {
        assert_eq!(page[begin..end], table, "UPDATE_SNAPSHOTS=1 rewrites it");
    }
}

/// A snapshot whose refs cannot be traced here, for one reason at two hooks.
fn without_refs() -> Snapshot {
    let probe = |subject: &str, hook: &str, reason: Option<&str>| Probe {
        subject: subject.into(),
        hook: hook.into(),
        state: match reason {
            Some(_) => ProbeState::Failed,
            None => ProbeState::Attached,
        },
        method: None,
        reason: reason.map(str::to_owned),
        gives: String::new(),
        required: true,
        cost: None,
        late_cpus: Vec::new(),
    };
    let full = Some("no free debug register");
    let mut model = Model::new(Config {
        start_ns: Some(0),
        ..Config::default()
    });
    let kind = EventKind::Probes(vec![
        probe("uio", "uio_write", None),
        probe("aio", "kill_ioctx", None),
        probe("percpu_ref", "percpu_ref_kill_and_confirm", full),
        probe("percpu_ref", "percpu_ref_switch_to_atomic_rcu", full),
    ]);
    model.apply(Event {
        ts_ns: 1_000_000_000,
        kind,
    });
    model.snapshot(Scope::SinceStart)
}

#[test]
fn refs_that_are_not_traced_are_not_called_idle() {
    let dump = text::render(&meta(), &without_refs(), &PLAIN);
    let section = "percpu_ref: not traced: percpu_ref_kill_and_confirm: no free debug register";
    assert!(dump.contains(section), "{dump}");
    assert!(!dump.contains("none killed"), "{dump}");
    assert!(dump.contains("AIO: no context drained"), "{dump}");
    // Once as a finding, once where its rows would be.
    let words: Vec<&str> = dump.split_whitespace().collect();
    let told = words.join(" ").matches("no free debug register").count();
    assert_eq!(told, 2, "{dump}");
}
