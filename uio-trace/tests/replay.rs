//! Replaying: at every moment the figures are those of the live trace at that moment, however one came there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot make its recording has failed"
)]

#[path = "recorded/mod.rs"]
mod recorded;

use recorded::{events, meta, recording, scratch};
use std::path::{Path, PathBuf};
use uio_trace::app::record::{record, target::Target};
use uio_trace::app::replay::Replay;
use uio_trace::app::signals::Stop;
use uio_trace::app::top::Live;
use uio_trace::config::RecordConfig;
use uio_trace::error::AppError;
use uio_trace::event::Event;
use uio_trace::model::snapshot::Snapshot;
use uio_trace::model::{Config, Model, Scope};
use uio_trace::recording::{Record, read};
use uio_trace::report::json;
use uio_trace::ui::action::Control;

const SECOND: u64 = 1_000_000_000;

fn model() -> Model {
    Model::new(Config {
        start_ns: Some(0),
        ..Config::default()
    })
}

fn shown(model: &Model) -> String {
    json::render(&meta(), &model.snapshot(Scope::SinceStart)).unwrap()
}

/// What a live trace showed at a time.
fn live_at(events: &[Event], ns: u64) -> String {
    let mut model = model();
    let until = |event: &&Event| event.ts_ns <= ns;
    events
        .iter()
        .take_while(until)
        .cloned()
        .for_each(|event| model.apply(event));
    shown(&model)
}

/// Reads until the replay is where its clock is.
fn settle(replay: &mut Replay, model: &mut Model) {
    let mut before = None;
    loop {
        replay.catch_up(|event| model.apply(event)).unwrap();
        replay.caught_up(model);
        let now = model.now_ns();
        if before.replace(now) == Some(now) {
            return;
        }
    }
}

fn write(name: &str, bytes: &[u8]) -> (PathBuf, PathBuf) {
    let folder = scratch(name);
    let path = folder.join("recording");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

/// A paused replay and its model.
fn paused(path: &Path) -> (Replay, Model) {
    let mut replay = Replay::open(path.to_owned(), true).unwrap();
    let mut model = model();
    replay.control(Control::Pause, &mut model).unwrap();
    (replay, model)
}

#[test]
fn back_and_forth_the_figures_are_those_of_that_moment() {
    let events = events();
    let (folder, path) = write("back-and-forth", &recording(&events));
    let (mut replay, mut model) = paused(&path);
    let tenth = events.last().unwrap().ts_ns / 10;
    let mut tenths = 0_i64;
    let random = "3141592653589793238462643383279502884197".bytes();
    for (turn, digit) in random.enumerate() {
        let (control, step) = match (turn % 3, digit % 2) {
            (0, _) | (1, 0) => (Control::FarForward, 1),
            _ => (Control::FarBack, -1),
        };
        for _ in 0..digit % 4 {
            replay.control(control, &mut model).unwrap();
            tenths = (tenths + step).clamp(0, 10);
            settle(&mut replay, &mut model);
            let timeline = replay.timeline().unwrap();
            // The clock ran a moment before it was paused.
            let at = timeline.position_ns;
            assert!(
                at.abs_diff(tenths as u64 * tenth) < SECOND / 10,
                "{at} after {tenths} tenths"
            );
            assert_eq!(
                shown(&model),
                live_at(&events, at),
                "turn {turn}, {tenths} tenths"
            );
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn damage_is_shown_as_a_loss_and_only_from_there_on() {
    let events = events();
    let mut bytes = recording(&events);
    // A byte in the middle of what a frame holds; of a damaged header not even the number of events would be known.
    let whole = |bytes: &[u8]| {
        let records = uio_trace::recording::Reader::new(bytes)
            .unwrap()
            .map(Result::unwrap);
        records
            .into_iter()
            .any(|r| matches!(r, Record::Gap(gap) if gap.records == Some(4)))
    };
    let middle = (bytes.len() / 2..bytes.len()).find(|at| {
        let mut damaged = bytes.clone();
        damaged[*at] ^= 1;
        whole(&damaged)
    });
    bytes[middle.unwrap()] ^= 1;
    let (folder, path) = write("damage", &bytes);
    let (mut replay, mut model) = paused(&path);
    let lost = |model: &Model| {
        let loss = model.snapshot(Scope::SinceStart).loss;
        loss.dropped.get("recording_gap").copied().unwrap_or(0)
    };
    for _ in 0..2 {
        settle(&mut replay, &mut model);
        assert_eq!(lost(&model), 0);
        assert_eq!(replay.timeline().unwrap().note, "");
        for _ in 0..11 {
            replay.control(Control::FarForward, &mut model).unwrap();
        }
        settle(&mut replay, &mut model);
        assert_eq!(lost(&model), 4, "a frame's events");
        let note = replay.timeline().unwrap().note;
        assert_eq!(note, "end, 4 or more missing");
        for _ in 0..11 {
            replay.control(Control::FarBack, &mut model).unwrap();
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn without_its_first_frame_or_its_end_it_is_shown_all_the_same() {
    let events = events();
    let mut bytes = recording(&events);
    bytes[70] ^= 1;
    bytes.truncate(bytes.len() - 10);
    let (folder, path) = write("headless", &bytes);
    let (mut replay, mut model) = paused(&path);
    assert_eq!(replay.meta().host, "unknown host");
    for _ in 0..11 {
        replay.control(Control::FarForward, &mut model).unwrap();
    }
    settle(&mut replay, &mut model);
    assert_eq!(model.now_ns(), events.last().unwrap().ts_ns);
    let note = replay.timeline().unwrap().note;
    assert!(note.starts_with("end, cut off"), "{note}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_empty_recording_has_an_end() {
    let (folder, path) = write("empty", &recording(&[]));
    let (mut replay, mut model) = paused(&path);
    settle(&mut replay, &mut model);
    let timeline = replay.timeline().unwrap();
    assert_eq!((timeline.position_ns, timeline.length_ns), (0, 0));
    assert_eq!(timeline.note, "end");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A trace that hands over its events bit by bit, and keeps what it handed over.
struct MadeUp {
    left: std::vec::IntoIter<Event>,
    handed: Vec<Event>,
}

impl Live for MadeUp {
    async fn step(&mut self, mut sink: impl FnMut(Event)) -> Result<(), AppError> {
        match self.left.next() {
            Some(event) => {
                self.handed.push(event.clone());
                sink(event);
                Ok(())
            }
            None => std::future::pending().await,
        }
    }

    fn catch_up(&mut self, mut sink: impl FnMut(Event)) -> Result<(), AppError> {
        for event in self.left.by_ref() {
            self.handed.push(event.clone());
            sink(event);
        }
        Ok(())
    }

    fn shape(&self, _snapshot: &mut Snapshot) {}
}

#[test]
fn what_is_recorded_is_what_was_live() {
    let folder = scratch("live");
    let config = RecordConfig {
        file: folder.join("a"),
        duration: Some(std::time::Duration::from_millis(50)),
        ..RecordConfig::default()
    };
    let mut live = MadeUp {
        left: events().into_iter(),
        handed: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime
        .block_on(async {
            let mut stop = Stop::new()?;
            let target = Target::claim(&config.file, false, false)?;
            record(&mut live, meta(), &config, target, &mut stop).await
        })
        .unwrap();
    assert_eq!(live.handed.len(), events().len());
    let mut replayed = model();
    let mut end = false;
    for record in read(&config.file).unwrap() {
        match record.unwrap() {
            Record::Event(event) => replayed.apply(event),
            Record::Meta(found) => assert_eq!(*found, meta()),
            Record::End => end = true,
            other => panic!("{other:?}"),
        }
    }
    assert!(end);
    assert_eq!(shown(&replayed), live_at(&live.handed, u64::MAX));
    std::fs::remove_dir_all(&folder).unwrap();
}
