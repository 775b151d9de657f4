//! Broken input for a bounded time, with stable Rust alone: each target of fuzz/targets.rs on mutations of good input.
//!
//! The mutations are the same on every run, only how far a run gets depends on the machine: FUZZ_SECONDS (default 3)
//! for each target. A failing input is written to a file and named; put into fuzz/cases/TARGET/ it is tried on every run.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a corpus that cannot be made is a failure

#[path = "../../fuzz/targets.rs"]
mod targets;
mod triage;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use triage::Numbers;
use uio_trace::recording::Writer;
use uio_trace::report::json;
use uio_trace_common::event as raw;
use zerocopy::{FromZeros, IntoBytes};

/// Longest input tried, bytes.
const MAX_BYTES: usize = 64 << 10;

/// Numbers at which arithmetic goes wrong.
const ODD_NUMBERS: [&str; 12] = [
    "0",
    "1",
    "-1",
    "65535",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "null",
];

/// Good input of each target, small.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    // Every 20th event, and all that are not readings.
    let events: Vec<_> = triage::events()
        .into_iter()
        .enumerate()
        .filter(|(i, e)| {
            i % 20 == 0
                || !matches!(
                    e.kind,
                    uio_trace::event::EventKind::UioReading(_) | uio_trace::event::EventKind::Counters(_)
                )
        })
        .map(|(_, e)| e)
        .collect();
    match target {
        "recording" => [(120, usize::MAX), (120, 7), (9, 3)]
            .into_iter()
            .map(|(length, flush_every)| {
                let mut writer = Writer::new(Vec::new(), &triage::meta()).unwrap();
                for (i, event) in events.iter().take(length).enumerate() {
                    writer.event(event).unwrap();
                    if i % flush_every == flush_every - 1 {
                        writer.flush().unwrap();
                    }
                }
                writer.end().unwrap()
            })
            .collect(),
        "events" => {
            let lines: Vec<Vec<u8>> = events.iter().map(|e| serde_json::to_vec(e).unwrap()).collect();
            lines.chunks(60).map(|chunk| chunk.join(&b'\n')).collect()
        }
        "decode" => (0..=20u32)
            .map(|kind| {
                let mut bytes = raw::EventHeader {
                    kind,
                    ..raw::EventHeader::new_zeroed()
                }
                .as_bytes()
                .to_vec();
                bytes.extend((0..320).map(|i| (i % 7 * 37) as u8));
                bytes
            })
            .collect(),
        "dump" => {
            let mut dump = Vec::new();
            json::write_meta(&mut dump, &triage::meta()).unwrap();
            json::write_snapshot(&mut dump, &triage::story().snapshot).unwrap();
            let mut idle = Vec::new();
            json::write_meta(&mut idle, &triage::meta()).unwrap();
            json::write_snapshot(&mut idle, &triage::idle().snapshot).unwrap();
            // Without the long drain, so that mutations hit something else, too.
            let short: Vec<&[u8]> = dump
                .split_inclusive(|b| *b == b'\n')
                .filter(|line| line.len() < 6000)
                .collect();
            vec![short.concat(), idle, dump]
        }
        other => panic!("no corpus for {other}"),
    }
}

/// Changes some of the input, somehow.
fn mutate(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], numbers: &mut Numbers) {
    let mut up_to = |n: usize| (numbers.next() >> 8) as usize % n.max(1);
    for _ in 0..=up_to(5) {
        if bytes.is_empty() {
            return;
        }
        let at = up_to(bytes.len());
        match up_to(9) {
            0 => bytes[at] ^= 1 << up_to(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'{', b'\n'][up_to(8)],
            2 => bytes.truncate(at),
            3 => {
                let end = (at + 1 + up_to(64)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let end = (at + 1 + up_to(64)).min(bytes.len());
                let again = bytes[at..end].to_vec();
                let to = up_to(bytes.len());
                bytes.splice(to..to, again);
            }
            5 => {
                let other = &corpus[up_to(corpus.len())];
                let from = up_to(other.len());
                let end = (from + 1 + up_to(256)).min(other.len());
                bytes.splice(at..at, other[from..end].iter().copied());
            }
            // A number becomes another one.
            6 | 7 => {
                let digit = |b: &u8| b.is_ascii_digit();
                let Some(from) = bytes[at..].iter().position(digit).map(|i| at + i) else {
                    continue;
                };
                let length = bytes[from..].iter().take_while(|b| digit(b)).count();
                let odd = ODD_NUMBERS[up_to(ODD_NUMBERS.len())];
                bytes.splice(from..from + length, odd.bytes());
            }
            // Lines change places.
            _ => {
                let mut lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
                let (a, b) = (up_to(lines.len()), up_to(lines.len()));
                lines.swap(a, b);
                *bytes = lines.concat();
            }
        }
    }
    bytes.truncate(MAX_BYTES);
}

/// The panic's message, if there was one.
fn fails(run: fn(&[u8]), bytes: &[u8]) -> Option<String> {
    let error = catch_unwind(AssertUnwindSafe(|| run(bytes))).err()?;
    let text = error.downcast_ref::<String>().cloned();
    Some(
        text.or_else(|| error.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_default(),
    )
}

fn cases(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/cases")
        .join(target);
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut cases: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
        .collect();
    cases.sort();
    cases
}

fn try_for_a_while(target: &str) {
    let run = targets::TARGETS
        .iter()
        .find(|t| t.0 == target)
        .expect("a target")
        .1;
    for (path, bytes) in cases(target) {
        if let Some(message) = fails(run, &bytes) {
            panic!("{}: {message}", path.display());
        }
    }
    let corpus = corpus(target);
    for good in &corpus {
        assert_eq!(fails(run, good), None, "good input fails");
    }
    let seconds = std::env::var("FUZZ_SECONDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(3);
    let ends = Instant::now() + Duration::from_secs(seconds);
    let mut numbers = Numbers(target.bytes().fold(0x9e37_79b9_7f4a_7c15, |seed, b| {
        seed.wrapping_mul(31).wrapping_add(u64::from(b))
    }));
    let mut tried = 0u64;
    while Instant::now() < ends {
        let mut bytes = corpus[numbers.next() as usize % corpus.len()].clone();
        mutate(&mut bytes, &corpus, &mut numbers);
        let began = Instant::now();
        let failed = fails(run, &bytes);
        let slow = began.elapsed() > Duration::from_secs(20);
        tried += 1;
        if failed.is_some() || slow {
            let path = triage::scratch(&format!("fuzz-{target}-{tried}"));
            std::fs::write(&path, &bytes).unwrap();
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned();
            panic!(
                "input {tried} of {target}: {}\nIt is in {}; put it into fuzz/cases/{target}/ when it is mended.\n{text:?}",
                failed.unwrap_or_else(|| "took more than 20 s".into()),
                path.display()
            );
        }
    }
    println!("{target}: {tried} inputs");
    assert!(tried >= 10, "only {tried} inputs in {seconds} s");
}

#[test]
fn recordings() {
    try_for_a_while("recording");
}

#[test]
fn events() {
    try_for_a_while("events");
}

#[test]
fn ring_entries() {
    try_for_a_while("decode");
}

#[test]
fn dumps() {
    try_for_a_while("dump");
}

/// A small recording that ends anywhere.
#[test]
fn a_recording_cut_at_every_byte() {
    let whole = &corpus("recording")[2];
    for end in 0..whole.len() {
        targets::recording_file(&whole[..end]);
    }
}
