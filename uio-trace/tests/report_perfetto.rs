//! The Perfetto trace of a report, decoded field by field.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a report that is not as it should be is a failure

mod triage;

use std::collections::{BTreeMap, BTreeSet};
use uio_trace::report::perfetto;
use uio_trace::report::story::Story;

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
