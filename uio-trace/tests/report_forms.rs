//! What the forms of a report are made from: samples over time, and folded stacks.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a report that is not as it should be is a failure

mod snapshot_file;
mod triage;

use snapshot_file::assert_snapshot;
use std::collections::{BTreeMap, BTreeSet};
use uio_trace::report::folded;
use uio_trace::report::story::Story;
use uio_trace::report::story::timeline::MAX_SAMPLES;

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
