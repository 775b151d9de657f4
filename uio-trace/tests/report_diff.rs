//! The comparison of two traces.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a report that is not as it should be is a failure

mod snapshot_file;
mod triage;

use snapshot_file::assert_snapshot;
use uio_trace::format::width;
use uio_trace::model::snapshot::WhatIfVerdict;
use uio_trace::report::diff::{self, Side, dump};
use uio_trace::report::json;
use uio_trace::report::story::Story;

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
