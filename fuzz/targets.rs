//! What must hold for any bytes: no panic, no endless loop, and what was understood can be told in every form.
//!
//! Used twice: by cargo-fuzz (fuzz_targets/) with coverage, and by `uio-trace/tests/fuzz.rs` for a bounded time with stable
//! Rust.

use std::io::sink;
use uio_trace::event::Event;
use uio_trace::ingest::decode;
use uio_trace::model::snapshot::Meta;
use uio_trace::recording::{self, Reader, Record};
use uio_trace::report::diff::{self, dump};
use uio_trace::report::story::StoryBuilder;
use uio_trace::report::{folded, html, json, perfetto, text};

/// Events taken of one input: a few bytes can stand for many.
const MAX_EVENTS: usize = 2000;

/// Name and function of a target.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 4] = [
    ("recording", recording_file),
    ("events", event_lines),
    ("decode", ring_entry),
    ("dump", json_dump),
];

fn nameless() -> Meta {
    Meta {
        schema_version: json::SCHEMA_VERSION,
        tool: String::new(),
        host: String::new(),
        kernel: String::new(),
        boot_id: String::new(),
        started: "2026-11-30T12:00:00Z".into(),
        started_ns: 0,
        probes: Vec::new(),
        rcu: Default::default(),
    }
}

/// Every form of the report.
fn tell(builder: StoryBuilder) {
    let end_ns = builder.now_ns();
    let story = builder.finish(end_ns, Vec::new(), |_| {});
    let options = text::Options {
        all: true,
        ..text::Options::default()
    };
    let page = text::render_story(&story, &options);
    assert!(
        !page.chars().any(|c| c.is_control() && c != '\n'),
        "the text has control characters"
    );
    let done = html::write(&mut sink(), &story)
        .and_then(|()| perfetto::write(&mut sink(), &story))
        .and_then(|()| folded::write(&mut sink(), &story))
        .and_then(|()| json::write_snapshot(&mut sink(), &story.snapshot));
    assert!(done.is_ok(), "a form could not be written: {done:?}");
}

/// The bytes are a file.
pub fn recording_file(bytes: &[u8]) {
    let Ok(reader) = Reader::new(bytes) else { return };
    let mut builder: Option<StoryBuilder> = None;
    let (mut events, mut missing) = (0, 0u64);
    for record in reader {
        let Ok(record) = record else { break };
        match record {
            Record::Meta(meta) if builder.is_none() => builder = Some(StoryBuilder::new(*meta)),
            Record::Event(event) if events < MAX_EVENTS => {
                events += 1;
                builder
                    .get_or_insert_with(|| StoryBuilder::new(nameless()))
                    .apply(event);
            }
            Record::Gap(gap) => {
                missing = missing.saturating_add(gap.missing());
                if let Some(builder) = &mut builder {
                    builder.apply(recording::missing(missing, builder.now_ns()));
                }
            }
            _ => {}
        }
    }
    if let Some(builder) = builder {
        tell(builder);
    }
}

/// The bytes are what a recording holds, unpacked and without checksums: an event a line. So the fuzzer gets past those.
pub fn event_lines(bytes: &[u8]) {
    let mut builder = StoryBuilder::new(nameless());
    let events = bytes
        .split(|b| *b == b'\n')
        .filter_map(|line| serde_json::from_slice::<Event>(line).ok());
    events.take(MAX_EVENTS).for_each(|event| builder.apply(event));
    tell(builder);
}

/// The bytes are an entry of a ring. What is decoded can be recorded and read back.
pub fn ring_entry(bytes: &[u8]) {
    let Ok(event) = decode::decode(bytes) else { return };
    let line = serde_json::to_vec(&event).unwrap_or_default();
    let back = serde_json::from_slice::<Event>(&line);
    assert_eq!(back.ok().as_ref(), Some(&event), "not the same after recording");
    let mut builder = StoryBuilder::new(nameless());
    builder.apply(event);
    tell(builder);
}

/// The bytes are a dump for `diff`, compared with itself and with nothing.
pub fn json_dump(bytes: &[u8]) {
    let side = match dump::read(bytes) {
        Ok(side) => side,
        Err(error) => {
            let message = error.to_string();
            assert!(
                !message.chars().any(char::is_control),
                "the message has control characters: {message:?}"
            );
            return;
        }
    };
    let none = diff::Side::default();
    for (a, b) in [(&side, &side), (&side, &none), (&none, &side)] {
        let comparison = diff::compare(a, b);
        let sides = [("a", a), ("b", b)];
        let page = diff::text::render(sides, &comparison, true);
        assert!(
            !page.chars().any(|c| c.is_control() && c != '\n'),
            "the text has control characters"
        );
        assert!(diff::write_json(&mut sink(), sides, &comparison).is_ok());
    }
}
