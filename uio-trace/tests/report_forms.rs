//! The forms of a report besides HTML, and the comparison of two traces.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a report that is not as it should be is a failure

mod triage;

use std::collections::{BTreeMap, BTreeSet};
use uio_trace::format::width;
use uio_trace::model::snapshot::WhatIfVerdict;
use uio_trace::report::diff::{self, Side, dump};
use uio_trace::report::story::Story;
use uio_trace::report::story::timeline::MAX_SAMPLES;
use uio_trace::report::{folded, json, perfetto};

/// Compares with a file in tests/snapshots; BLESS=1 rewrites it.
fn assert_snapshot(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/snapshots")
        .join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name}; BLESS=1 rewrites it");
}

#[test]
fn samples_add_up_to_the_figures_of_the_model() {
    let story = triage::story();
    let device = &story.snapshot.uio_devices[0];
    let key = uio_trace::event::DeviceKey {
        minor: 0,
        generation: 0,
    };
    let samples = || story.samples.iter().filter_map(|s| s.device(key));
    let waits: u64 = device
        .ops
        .iter()
        .filter_map(|op| op.wait_ns.as_ref())
        .map(|h| h.sum)
        .sum();
    assert_eq!(samples().map(|d| d.waited_ns).sum::<u64>(), waits);
    let holds: u64 = device
        .ops
        .iter()
        .filter_map(|op| op.hold_ns.as_ref())
        .map(|h| h.sum)
        .sum();
    assert_eq!(samples().filter_map(|d| d.held_ns).sum::<u64>(), holds);
    let switched: u64 = story
        .snapshot
        .ref_owners
        .iter()
        .map(|o| o.grace_period_ns.count)
        .sum();
    assert_eq!(
        story.samples.iter().map(|s| s.grace_period.count).sum::<u64>(),
        switched
    );
    assert_eq!(
        story.samples.iter().map(|s| s.lost).sum::<u64>(),
        story.snapshot.loss.total()
    );
    assert!(story.samples.windows(2).all(|w| w[0].end_ns == w[1].start_ns));
    assert_eq!(story.samples[0].start_ns, 0);
    assert_eq!(story.samples.last().unwrap().end_ns, triage::END_NS);
}

/// However long the trace: the samples stay few, and what they sum to stays the same.
#[test]
fn a_long_trace_has_as_few_samples() {
    let hour = 3_600_000_000_000u64;
    let step = 250_000_000;
    let counters = (1..=hour / step).map(|i| uio_trace::event::Event {
        ts_ns: i * step,
        kind: uio_trace::event::EventKind::Counters(BTreeMap::from([
            ("uio_seen".to_string(), i * 10),
            ("uio_aggregated".to_string(), i * 9),
            ("slot_collision".to_string(), i),
        ])),
    });
    let story = triage::tell(triage::meta(), counters.collect(), hour);
    assert!(story.samples.len() <= MAX_SAMPLES && story.samples.len() >= MAX_SAMPLES / 4);
    assert_eq!(
        story.samples.iter().map(|s| s.seen).sum::<u64>(),
        hour / step * 10
    );
    assert!(story.samples.windows(2).all(|w| w[0].end_ns == w[1].start_ns));
}

/// A decoder of protobuf's wire format, written apart from the encoder: field number to values.
#[derive(Debug, Clone)]
enum Value {
    Varint(u64),
    Double(f64),
    Bytes(Vec<u8>),
}

impl Value {
    fn number(&self) -> u64 {
        match self {
            Value::Varint(n) => *n,
            other => panic!("not a number: {other:?}"),
        }
    }

    fn text(&self) -> String {
        match self {
            Value::Bytes(bytes) => String::from_utf8(bytes.clone()).unwrap(),
            other => panic!("not a text: {other:?}"),
        }
    }

    fn message(&self) -> Fields {
        match self {
            Value::Bytes(bytes) => fields(bytes),
            other => panic!("not a message: {other:?}"),
        }
    }

    fn double(&self) -> f64 {
        match self {
            Value::Double(d) => *d,
            other => panic!("not a double: {other:?}"),
        }
    }
}

type Fields = BTreeMap<u64, Vec<Value>>;

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let (first, rest) = bytes.split_first().expect("a varint");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return value;
        }
        shift += 7;
    }
}

fn fields(mut bytes: &[u8]) -> Fields {
    let mut all = Fields::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => Value::Varint(varint(&mut bytes)),
            1 => {
                let (value, rest) = bytes.split_at(8);
                bytes = rest;
                Value::Double(f64::from_le_bytes(value.try_into().unwrap()))
            }
            2 => {
                let (value, rest) = {
                    let n = varint(&mut bytes) as usize;
                    bytes.split_at(n)
                };
                bytes = rest;
                Value::Bytes(value.to_vec())
            }
            wire => panic!("wire type {wire}"),
        };
        all.entry(tag >> 3).or_default().push(value);
    }
    all
}

fn only<'a>(fields: &'a Fields, number: u64, what: &str) -> &'a Value {
    let values = fields
        .get(&number)
        .unwrap_or_else(|| panic!("no {what} in {fields:?}"));
    assert_eq!(values.len(), 1, "{what}");
    &values[0]
}

fn packets(story: &Story) -> Vec<Fields> {
    let mut out = Vec::new();
    perfetto::write(&mut out, story).unwrap();
    std::fs::write(triage::scratch("triage.perfetto-trace"), &out).unwrap();
    let trace = fields(&out);
    assert_eq!(trace.keys().collect::<Vec<_>>(), [&1], "only packets");
    trace[&1].iter().map(Value::message).collect()
}

/// Numbers are those of protos/perfetto/trace in the published schema.
#[test]
fn a_perfetto_trace_is_what_its_schema_says() {
    let story = triage::story();
    let packets = packets(&story);
    let clocks = only(&packets[0], 6, "clock_snapshot").message();
    assert_eq!(
        only(&clocks, 2, "primary_trace_clock").number(),
        3,
        "BUILTIN_CLOCK_MONOTONIC"
    );
    let mut tracks: BTreeMap<u64, (String, Option<u64>, bool)> = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<(u64, String)>> = BTreeMap::new();
    let mut slices: Vec<(u64, u64, u64, String)> = Vec::new();
    let mut counters: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for packet in &packets {
        assert_eq!(only(packet, 10, "trusted_packet_sequence_id").number(), 1);
        if let Some(descriptor) = packet.get(&60) {
            let descriptor = descriptor[0].message();
            let uuid = only(&descriptor, 1, "uuid").number();
            let name = only(&descriptor, 2, "name").text();
            let parent = descriptor.get(&5).map(|p| p[0].number());
            assert!(
                parent.is_none_or(|p| tracks.contains_key(&p)),
                "a parent comes first"
            );
            if let Some(process) = descriptor.get(&3) {
                let process = process[0].message();
                assert!(only(&process, 1, "pid").number() > 0);
                assert_eq!(only(&process, 6, "process_name").text(), name);
            }
            let is_counter = descriptor.contains_key(&8);
            assert!(
                tracks.insert(uuid, (name, parent, is_counter)).is_none(),
                "uuid twice"
            );
        }
        let Some(event) = packet.get(&11) else { continue };
        let event = event[0].message();
        let at = only(packet, 8, "timestamp").number();
        assert_eq!(only(packet, 58, "timestamp_clock_id").number(), 3);
        let track = only(&event, 11, "track_uuid").number();
        let (_, _, is_counter) = &tracks[&track];
        assert!(
            last.insert(track, at).is_none_or(|before| before <= at),
            "time goes on"
        );
        match only(&event, 9, "type").number() {
            1 => open
                .entry(track)
                .or_default()
                .push((at, only(&event, 23, "name").text())),
            2 => {
                let (from, name) = open.get_mut(&track).and_then(Vec::pop).expect("an open slice");
                slices.push((track, from, at, name));
            }
            4 => {
                assert!(is_counter);
                counters
                    .entry(track)
                    .or_default()
                    .push(only(&event, 44, "double_counter_value").double());
            }
            other => panic!("event type {other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "every slice ends: {open:?}");
    let name = |uuid: u64| tracks[&uuid].0.as_str();
    let path = |uuid: u64| {
        let mut names = vec![name(uuid)];
        let mut at = uuid;
        while let Some(parent) = tracks[&at].1 {
            names.push(name(parent));
            at = parent;
        }
        names.reverse();
        names.join("/")
    };
    let of = |wanted: &str| slices.iter().filter(|s| path(s.0) == wanted).collect::<Vec<_>>();
    // The drain of four contexts: as long as the model says, contexts one after another on one track.
    let drain = &story
        .snapshot
        .aio_drains
        .iter()
        .find(|d| d.comm == "postgres")
        .unwrap();
    let whole = of("postgres/AIO drains");
    assert_eq!(whole.len(), 1);
    assert_eq!(
        (whole[0].1, whole[0].2 - whole[0].1),
        (drain.start_ns, drain.wall_ns)
    );
    assert_eq!(whole[0].3, "io_destroy: 4 contexts, serial");
    let contexts = of("postgres/AIO contexts");
    assert_eq!(contexts.iter().map(|s| s.0).collect::<BTreeSet<_>>().len(), 1);
    let phase = |name: &str| {
        contexts
            .iter()
            .filter(|s| s.3 == name)
            .map(|s| s.2 - s.1)
            .sum::<u64>()
    };
    let all = |pick: fn(&uio_trace::model::snapshot::AioContext) -> Option<u64>| -> u64 {
        drain.detail.iter().filter_map(pick).sum()
    };
    assert_eq!(phase("users: grace period"), all(|c| c.users_gp_ns));
    assert_eq!(phase("users: references"), all(|c| c.users_refs_ns));
    assert_eq!(phase("requests: grace period"), all(|c| c.reqs_gp_ns));
    assert_eq!(phase("requests: in flight"), all(|c| c.reqs_io_ns));
    // 64 at the same time need as many tracks.
    let lanes: BTreeSet<u64> = of("fio/AIO contexts").iter().map(|s| s.0).collect();
    assert_eq!(lanes.len(), 64);
    assert_eq!(of("UIO/uio0 (tcm-user/0/disk0)/slow operations").len(), 4 * 3);
    assert!(
        of("UIO/uio0 (tcm-user/0/disk0)/slow operations")
            .iter()
            .any(|s| s.3 == "wait for info_lock")
    );
    let cgroups = of("percpu_ref/cgroup subsystem state");
    assert_eq!(
        cgroups.iter().filter(|s| s.3.starts_with("killed by")).count(),
        46
    );
    assert_eq!(
        cgroups.iter().filter(|s| s.3.ends_with("end not seen")).count(),
        1
    );
    let counter = |wanted: &str| {
        let uuid = tracks.keys().find(|u| path(**u) == wanted).unwrap();
        &counters[uuid]
    };
    let held = counter("UIO/uio0 (tcm-user/0/disk0)/info_lock held");
    assert_eq!(held.len(), story.samples.len() + 1);
    assert!(held.iter().all(|v| (0.0..=100.0).contains(v)) && held.iter().any(|v| *v > 90.0));
    assert!(counter("Trace/lost events per second").iter().any(|v| *v > 0.0));
}

#[test]
fn folded_stacks_are_lines_of_frames_and_nanoseconds() {
    let render = |story: &Story| {
        let mut out = Vec::new();
        folded::write(&mut out, story).unwrap();
        String::from_utf8(out).unwrap()
    };
    let text = render(&triage::story());
    assert_snapshot("report_folded.txt", &text);
    for text in [text, render(&triage::hostile())] {
        for line in text.lines() {
            let (stack, weight) = line.rsplit_once(' ').unwrap();
            assert!(weight.parse::<u64>().unwrap() > 0);
            assert!(stack.split(';').all(|frame| !frame.trim().is_empty()), "{line}");
            let depth = stack.split(';').count();
            let root = stack.split(';').next().unwrap();
            assert_eq!(
                Some(depth),
                [("uio_wait", 5), ("aio_drain", 4), ("percpu_ref", 3)]
                    .iter()
                    .find(|r| r.0 == root)
                    .map(|r| r.1),
                "{line}"
            );
            assert!(!line.chars().any(char::is_control));
        }
        assert_eq!(
            text.lines()
                .map(|l| l.rsplit_once(' ').unwrap().0)
                .collect::<BTreeSet<_>>()
                .len(),
            text.lines().count()
        );
    }
    assert_eq!(render(&triage::idle()), "");
}

fn side(story: Story) -> Side {
    let mut side = Side::new(story.meta, story.remarks);
    side.add(&story.snapshot);
    side
}

fn before_and_after() -> (Side, Side) {
    (
        side(triage::story()),
        side(triage::tell(
            triage::meta(),
            triage::mended_events(),
            triage::END_NS,
        )),
    )
}

#[test]
fn a_comparison_names_what_changed() {
    let (before, after) = before_and_after();
    let comparison = diff::compare(&before, &after);
    let sides = [("before.uiotrace", &before), ("after.uiotrace", &after)];
    let text = diff::text::render(sides, &comparison, false);
    let all = diff::text::render(sides, &comparison, true);
    assert_snapshot("diff.txt", &text);
    for line in text.lines().chain(all.lines()) {
        assert!(width(line) < 80, "{line}");
        assert_eq!(line.trim_end(), line);
    }
    let verdicts = ["better", "worse", "mixed", "alike", "noise", "few", "gone", "new"];
    let row = |l: &&str| {
        l.strip_prefix("  ")
            .and_then(|l| l.split(' ').next())
            .is_some_and(|v| verdicts.contains(&v))
    };
    assert_eq!(all.lines().filter(row).count(), comparison.rows.len());
    // The same against itself: nothing beyond noise, whatever the sizes.
    let summary = diff::compare(&before, &before).summary();
    assert_eq!(
        (summary.better, summary.worse, summary.mixed, summary.one_sided),
        (0, 0, 0, 0)
    );
}

/// Projections of both sides stand beside each other: the range without info_lock, and draining together.
#[test]
fn projections_are_compared_where_both_sides_have_one() {
    let (low, high) = (2.8, 3.8);
    let mut story = triage::story();
    let device = &mut story.snapshot.uio_devices[0].what_if;
    (device.low, device.high, device.verdict) = (Some(low), Some(high), WhatIfVerdict::Range);
    let mut mended = story.clone();
    let device = &mut mended.snapshot.uio_devices[0].what_if;
    (device.low, device.high) = (Some(1.0), Some(1.05));
    device.verdict = WhatIfVerdict::NothingToGain;
    // By hand, of the four contexts of triage's script: the last one is longest, with the middle of all first grace periods (31 ms),
    // its references (5 ms), and its second grace period and requests (32 and 50 ms).
    let together_ns = 118e6;
    let comm = "postgres";
    for drain in &mut mended.snapshot.aio_drains {
        drain.projected_parallel_ns /= 2;
    }
    let (before, after) = (side(story.clone()), side(mended));
    let comparison = diff::compare(&before, &after);
    let row = comparison
        .rows
        .iter()
        .find(|row| row.metric == diff::Metric::ProjectedParallel && row.name == comm)
        .unwrap();
    assert_eq!(
        (row.before.mean, row.after.mean),
        (Some(together_ns), Some(together_ns / 2.0))
    );
    let device = comparison.devices.iter().find(|d| d.name == "uio0").unwrap();
    let gain = |shares: &Option<diff::Shares>| shares.as_ref().and_then(|s| s.gain.clone()).unwrap();
    assert_eq!((gain(&device.before).low, gain(&device.before).high), (low, high));
    assert_eq!((gain(&device.after).low, gain(&device.after).high), (1.0, 1.05));
    let sides = [("before", &before), ("after", &after)];
    let text = diff::text::render(sides, &comparison, true);
    let line = format!("    without info_lock write x{low:.1} to x{high:.1}, then nothing to gain");
    assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    assert!(text.contains("destroy together"), "{text}");

    // Of several intervals all that was projected; one that is refused says nothing.
    let mut dump = Side::new(story.meta.clone(), Vec::new());
    for (low, high, verdict) in [
        (Some(1.5), Some(2.0), WhatIfVerdict::Range),
        (None, None, WhatIfVerdict::Refused),
        (Some(1.8), Some(2.6), WhatIfVerdict::Range),
    ] {
        let mut snapshot = story.snapshot.clone();
        let device = &mut snapshot.uio_devices[0].what_if;
        (device.low, device.high, device.verdict) = (low, high, verdict);
        dump.add(&snapshot);
    }
    let comparison = diff::compare(&before, &dump);
    let device = comparison.devices.iter().find(|d| d.name == "uio0").unwrap();
    let gain = gain(&device.after);
    assert_eq!((gain.low, gain.high, gain.intervals), (1.5, 2.6, 2));
    assert_eq!(gain.op.as_deref(), Some("write"));

    // Where one side refuses there is nothing to compare.
    let mut refused = story.clone();
    let device = &mut refused.snapshot.uio_devices[0].what_if;
    (device.low, device.high, device.verdict) = (None, None, WhatIfVerdict::Refused);
    let refused = side(refused);
    let comparison = diff::compare(&before, &refused);
    let text = diff::text::render([("before", &before), ("after", &refused)], &comparison, true);
    assert!(!text.contains("    without info_lock write x2.8"), "{text}");
}

#[test]
fn a_comparison_as_records() {
    let (before, after) = before_and_after();
    let comparison = diff::compare(&before, &after);
    let mut out = Vec::new();
    diff::write_json(&mut out, [("a", &before), ("b", &after)], &comparison).unwrap();
    let records: Vec<serde_json::Value> = String::from_utf8(out)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |kind: &str| records.iter().filter(|r| r["type"] == kind).collect::<Vec<_>>();
    assert_eq!(of("diff_side").len(), 2);
    assert_eq!(of("diff_row").len(), comparison.rows.len());
    assert_eq!(records.last().unwrap()["type"], "diff_summary");
    let wait = of("diff_row")
        .into_iter()
        .find(|r| r["name"] == "uio0" && r["metric"] == "wait")
        .unwrap();
    assert_eq!(wait["verdict"], "better");
    assert_eq!(wait["after"]["mean"], 0.0);
    // Every field is described.
    let page = include_str!("../../docs/report.md");
    for record in &records {
        for field in record.as_object().unwrap().keys().filter(|f| *f != "type") {
            assert!(
                page.contains(&format!("`{field}`")),
                "{field} is not in docs/report.md"
            );
        }
    }
}

/// A dump of the same trace makes the same side as the trace, however it was cut into intervals.
#[test]
fn a_dump_compares_like_its_trace() {
    let story = triage::story();
    let mut whole = Vec::new();
    json::write_meta(&mut whole, &story.meta).unwrap();
    json::write_snapshot(&mut whole, &story.snapshot).unwrap();
    let mut pieces = Vec::new();
    json::write_meta(&mut pieces, &story.meta).unwrap();
    let mut model = uio_trace::model::Model::new(uio_trace::model::Config {
        start_ns: Some(0),
        ..uio_trace::model::Config::default()
    });
    let mut next = 5_000_000_000;
    for event in triage::events() {
        if event.ts_ns > next {
            json::write_snapshot(&mut pieces, &model.snapshot(uio_trace::model::Scope::Interval)).unwrap();
            model.begin_interval(next);
            next += 5_000_000_000;
        }
        model.apply(event);
    }
    model.finish(triage::END_NS);
    json::write_snapshot(&mut pieces, &model.snapshot(uio_trace::model::Scope::Interval)).unwrap();
    let original = side(triage::story());
    for dump in [whole, pieces] {
        let read = dump::read(dump.as_slice()).unwrap();
        let comparison = diff::compare(&original, &read);
        assert!(!comparison.rows.is_empty());
        for row in &comparison.rows {
            assert_eq!(
                (row.before.n, row.before.mean),
                (row.after.n, row.after.mean),
                "{row:?}"
            );
        }
    }
}

#[test]
fn damaged_dumps_are_refused_or_their_rest_is_left_out() {
    let story = triage::story();
    let mut dump = Vec::new();
    json::write_meta(&mut dump, &story.meta).unwrap();
    let meta_only = dump.len();
    json::write_snapshot(&mut dump, &story.snapshot).unwrap();
    let first_interval = dump.len();
    json::write_snapshot(&mut dump, &story.snapshot).unwrap();
    let read = |bytes: &[u8]| dump::read(bytes);
    let error = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert!(error(b"").contains("empty"));
    assert!(error(b"\0\x01\x02").contains("neither a recording nor a dump"));
    assert!(error(b"{\"a\": 1}\n").contains("neither"));
    assert!(error(b"[1, 2]\n").contains("neither"));
    assert!(error(&dump[..meta_only]).contains("no whole interval"));
    // Cut anywhere in the second interval: the first one counts, and it is said.
    for end in [first_interval + 20, first_interval + 2000, dump.len() - 10] {
        let side = read(&dump[..end]).unwrap();
        assert_eq!(side.remarks.len(), 1, "{end}");
        assert_eq!(side.duration_ns, story.snapshot.interval.duration_ns);
    }
    assert!(read(&dump).unwrap().remarks.is_empty());
    // In the middle a line that is no record is damage.
    let text = String::from_utf8(dump.clone()).unwrap();
    let damaged = text.replacen("\"type\":\"ref_owner\"", "\"type\":\u{1b}[2J\"ref_owner\"", 1);
    let message = error(damaged.as_bytes());
    assert!(
        message.starts_with("line ") && !message.contains('\u{1b}'),
        "{message}"
    );
    let newer = text.replacen("\"schema_version\":1", "\"schema_version\":2", 1);
    assert!(
        error(newer.as_bytes()).contains("newer"),
        "{}",
        error(newer.as_bytes())
    );
    let unknown = text.replacen("\"type\":\"slow_op\"", "\"type\":\"of_the_future\"", 1);
    let side = read(unknown.as_bytes()).unwrap();
    assert_eq!(side.remarks, ["1 record of a later version skipped"]);
}
