//! `report` and `diff` as a user meets them: files in, files out, and what is said when that cannot be.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a program that cannot be started is a failure

mod triage;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use uio_trace::event::Event;
use uio_trace::model::{Config, Model, Scope};
use uio_trace::recording::{Mark, Writer, frame};
use uio_trace::report::{json, text};

const PROGRAM: &str = env!("CARGO_BIN_EXE_uio-trace");

struct Ended {
    code: i32,
    out: Vec<u8>,
    err: String,
}

impl Ended {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }
}

fn run(folder: &Path, arguments: &[&str]) -> Ended {
    let output = Command::new(PROGRAM)
        .args(arguments)
        .current_dir(folder)
        .env("LC_ALL", "C.UTF-8")
        .env_remove("SUDO_UID")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: output.stdout,
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A folder with `triage.uiotrace` and `mended.uiotrace`.
fn folder(name: &str) -> PathBuf {
    let folder = triage::scratch(&format!("report-cli-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    record(&folder.join("triage.uiotrace"), triage::events());
    record(&folder.join("mended.uiotrace"), triage::mended_events());
    folder
}

/// In many frames, as a recording over time has them.
fn record(path: &Path, events: Vec<Event>) {
    let mut writer = Writer::new(File::create(path).unwrap(), &triage::meta()).unwrap();
    for (i, event) in events.iter().enumerate() {
        writer.event(event).unwrap();
        if i % 50 == 49 {
            writer.flush().unwrap();
        }
    }
    writer.end().unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn every_form_is_that_of_the_model() {
    let folder = folder("forms");
    let mut model = Model::new(Config {
        start_ns: Some(0),
        ..Config::default()
    });
    triage::events().into_iter().for_each(|e| model.apply(e));
    model.finish(model.now_ns());
    let snapshot = model.snapshot(Scope::SinceStart);
    let plain = run(&folder, &["report", "triage.uiotrace"]);
    assert_eq!((plain.code, plain.err.as_str()), (0, ""));
    let options = text::Options::default();
    assert_eq!(plain.text(), text::render(&triage::meta(), &snapshot, &options));
    let records = run(&folder, &["report", "triage.uiotrace", "--json"]);
    assert_eq!(records.text(), json::render(&triage::meta(), &snapshot).unwrap());
    let page = run(&folder, &["report", "triage.uiotrace", "--html"]);
    assert!(page.text().starts_with("<!DOCTYPE html>") && page.text().ends_with("</html>\n"));
    assert!(page.text().contains("storage-17"));
    let folded = run(&folder, &["report", "triage.uiotrace", "--folded"]);
    assert_eq!(folded.text(), include_str!("snapshots/report_folded.txt"));
    let trace = run(&folder, &["report", "triage.uiotrace", "--perfetto"]);
    assert_eq!(trace.code, 0);
    // Field 1, a message: every packet of a trace begins so.
    assert_eq!(trace.out.first(), Some(&0x0a));
}

#[test]
fn a_part_of_a_recording() {
    let folder = folder("part");
    let part = run(&folder, &["report", "triage.uiotrace", "--comm", "postgres"]);
    assert!(part.text().contains("postgres (42"), "{}", part.text());
    assert!(!part.text().contains("mysqld"));
    // A part says that it is one; the whole does not.
    let unwrapped = part.text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        unwrapped.contains("only what was asked for is looked at (--comm postgres)"),
        "{unwrapped}"
    );
    let nobody = run(
        &folder,
        &["report", "triage.uiotrace", "--json", "--comm", "nobody"],
    );
    assert!(nobody.text().contains("\"id\":\"filtered\""));
    assert!(!nobody.text().contains("\"id\":\"nothing_here\""));
    let whole = run(&folder, &["report", "triage.uiotrace", "--json"]);
    assert!(!whole.text().contains("\"id\":\"filtered\""));
    let device = run(&folder, &["report", "triage.uiotrace", "--device", "igb_uio"]);
    assert!(device.text().contains("uio1 (igb_uio)") && !device.text().contains("uio0"));
    let slow = run(&folder, &["report", "triage.uiotrace", "--slow", "5ms"]);
    assert_eq!(slow.code, 2);
    assert!(slow.err.contains("as it was recorded"), "{}", slow.err);
}

#[test]
fn a_dash_is_standard_input_and_output() {
    let folder = folder("dash");
    let plain = run(&folder, &["report", "triage.uiotrace", "--json"]);
    let output = Command::new(PROGRAM)
        .args(["report", "-", "--json", "-o", "-"])
        .current_dir(&folder)
        .stdin(File::open(folder.join("triage.uiotrace")).unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, plain.out);
    assert!(!folder.join("-").exists());
    let empty = run(&folder, &["report", "-"]);
    assert_eq!(empty.code, 1);
    assert!(empty.err.contains("-: it is empty"), "{}", empty.err);
    let node = run(&folder, &["report", "triage.uiotrace", "--device", "/dev/uio1"]);
    assert!(node.text().contains("uio1 (igb_uio)") && !node.text().contains("uio0"));
}

/// An option that does nothing would be taken for one that has found nothing.
#[test]
fn what_has_no_effect_on_a_recording_is_refused() {
    let folder = folder("no-effect");
    for option in [
        &["--hold-uio"][..],
        &["--cost"],
        &["--bpf-log"],
        &["--slow", "5ms"],
        &["--ring-kib", "64"],
    ] {
        let ended = run(&folder, &[&["report", "triage.uiotrace"][..], option].concat());
        assert_eq!(ended.code, 2, "{}", ended.err);
        let says = format!("{} has no effect on a recording", option[0]);
        assert!(ended.err.contains(&says) && ended.out.is_empty(), "{}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    }
    let nope = run(&folder, &["report", "triage.uiotrace", "--device", "nope"]);
    assert_eq!(nope.code, 2, "{}", nope.err);
    for says in [
        "--device nope: no such UIO device in triage.uiotrace",
        "uio1 (igb_uio)",
    ] {
        assert!(nope.err.contains(says), "{}", nope.err);
    }
    assert!(nope.out.is_empty());
}

#[test]
fn files_are_whole_and_none_is_overwritten() {
    let folder = folder("files");
    let before = names(&folder);
    let html = ["report", "triage.uiotrace", "--html", "-o", "r.html"];
    let first = run(&folder, &html);
    assert_eq!(first.code, 0, "{}", first.err);
    assert!(first.err.contains("written: r.html") && first.out.is_empty());
    let page = fs::read(folder.join("r.html")).unwrap();
    assert!(page.ends_with(b"</html>\n"));
    let again = run(&folder, &["report", "mended.uiotrace", "--html", "-o", "r.html"]);
    assert_eq!(again.code, 2);
    assert!(
        again.err.contains("r.html exists") && again.err.contains("--force"),
        "{}",
        again.err
    );
    assert_eq!(fs::read(folder.join("r.html")).unwrap(), page);
    let forced = run(
        &folder,
        &["report", "mended.uiotrace", "--html", "-o", "r.html", "--force"],
    );
    assert_eq!(forced.code, 0, "{}", forced.err);
    assert_ne!(fs::read(folder.join("r.html")).unwrap(), page);
    // Not a folder, nor below something that is none; and an input that is also the output.
    for (out, why, code) in [
        (".", "is a folder", 2),
        ("none/r.html", "no folder none", 1),
        ("triage.uiotrace", "is what is read", 2),
    ] {
        let ended = run(&folder, &["report", "triage.uiotrace", "-o", out]);
        assert_eq!(ended.code, code, "{out}");
        assert!(ended.err.contains(why), "{out}: {}", ended.err);
    }
    // What is read is never replaced, under whatever name.
    fs::hard_link(folder.join("mended.uiotrace"), folder.join("same")).unwrap();
    let read = fs::read(folder.join("mended.uiotrace")).unwrap();
    for args in [
        &["report", "mended.uiotrace"][..],
        &["diff", "triage.uiotrace", "mended.uiotrace"],
    ] {
        let ended = run(&folder, &[args, &["--force", "-o", "same"]].concat());
        assert_eq!(ended.code, 2, "{}", ended.err);
        assert!(ended.err.contains("is what is read"), "{}", ended.err);
    }
    assert_eq!(fs::read(folder.join("mended.uiotrace")).unwrap(), read);
    fs::remove_file(folder.join("same")).unwrap();
    for full in [&["-o", "/dev/full"][..], &[]] {
        let mut command = Command::new(PROGRAM);
        command
            .args(["report", "triage.uiotrace", "--html"])
            .args(full)
            .current_dir(&folder);
        command.stdout(File::options().write(true).open("/dev/full").unwrap());
        let output = command.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("No space left"), "{message}");
    }
    let left: Vec<String> = names(&folder)
        .into_iter()
        .filter(|n| !before.contains(n))
        .collect();
    assert_eq!(left, ["r.html"]);
}

/// What a full disk leaves: nothing. A file system of 64 KiB is one, where mounting is allowed.
#[test]
fn a_full_disk_leaves_nothing() {
    let folder = folder("full");
    let disk = folder.join("disk");
    fs::create_dir(&disk).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=64k none disk && {PROGRAM} report triage.uiotrace --html -o disk/r.html; \
         echo code $?; ls -A disk | wc -l"
    );
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .current_dir(&folder)
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if err.contains("unshare:") || err.contains("mount:") {
        // No user namespaces here: a limit on the size of files ends it the same way.
        let script = format!(
            "trap '' XFSZ; ulimit -f 64; {PROGRAM} report triage.uiotrace --html -o disk/r.html; echo code $?; \
             ls -A disk | wc -l"
        );
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(&folder)
            .output()
            .unwrap();
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert_eq!(
            out.split_whitespace().collect::<Vec<_>>(),
            ["code", "1", "0"],
            "{err}"
        );
        assert!(err.contains("disk/r.html cannot be written"), "{err}");
        return;
    }
    assert_eq!(
        out.split_whitespace().collect::<Vec<_>>(),
        ["code", "1", "0"],
        "{err}"
    );
    assert!(
        err.contains("disk/r.html cannot be written: No space left"),
        "{err}"
    );
}

#[test]
fn what_is_no_recording_is_named() {
    let folder = folder("bad");
    let good = fs::read(folder.join("triage.uiotrace")).unwrap();
    let newer = [
        &frame::file_header_of(frame::MAJOR + 1, 0)[..],
        &good[frame::FILE_HEADER_BYTES..],
    ]
    .concat();
    fs::write(folder.join("newer"), newer).unwrap();
    fs::write(folder.join("empty"), b"").unwrap();
    fs::write(folder.join("text"), "hello\n".repeat(1000)).unwrap();
    fs::write(folder.join("header"), &good[..frame::FILE_HEADER_BYTES]).unwrap();
    for (file, why) in [
        ("newer", "use a newer uio-trace"),
        ("empty", "it is empty"),
        ("text", "not a recording"),
        ("header", "no readable record"),
        ("none", "No such file"),
        (".", "directory"),
    ] {
        for command in ["report", "diff"] {
            let arguments: &[&str] = if command == "diff" {
                &["diff", "triage.uiotrace", file]
            } else {
                &["report", file, "--html", "-o", "out.html"]
            };
            let ended = run(&folder, arguments);
            assert_eq!(ended.code, 1, "{command} {file}: {}", ended.err);
            let why = if command == "diff" && file == "text" {
                "neither a recording nor a dump"
            } else {
                why
            };
            assert!(ended.err.contains(why), "{command} {file}: {}", ended.err);
            assert!(ended.err.contains(file), "{command} {file}: {}", ended.err);
            assert!(ended.out.is_empty());
        }
    }
    assert!(!folder.join("out.html").exists());
}

/// Cut before its first reading: nothing has told of the driver, and the kernel's counts were never read.
#[test]
fn a_recording_without_a_reading_calls_nothing_absent() {
    let folder = folder("unread");
    // The first frame is whole, the second has one event and is cut.
    let mut writer = Writer::new(Vec::new(), &triage::meta()).unwrap();
    writer.flush().unwrap();
    writer.event(&triage::events()[0]).unwrap();
    writer.flush().unwrap();
    let whole = writer.end().unwrap();
    let header = frame::HEADER_BYTES;
    let first = frame::Header::parse(&whole[frame::FILE_HEADER_BYTES..]).unwrap();
    let second = frame::FILE_HEADER_BYTES + header + first.stored as usize;
    fs::write(folder.join("unread"), &whole[..second + header + 4]).unwrap();
    let text = run(&folder, &["report", "unread"]);
    assert_eq!(text.code, 0, "{}", text.err);
    let words = text.text().split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "checked: whether uio is loaded is not known",
        "UIO: whether the driver is loaded is not known",
        "1 lost of an unknown number seen",
    ] {
        assert!(words.contains(expected), "'{expected}' is not in: {words}");
    }
    assert!(!words.contains("not loaded"), "{words}");
    let page = run(&folder, &["report", "unread", "--html"]);
    for expected in [
        "Whether the uio driver was loaded is not known.",
        "1 of an unknown number of operations and events were lost",
    ] {
        assert!(page.text().contains(expected), "{expected}");
    }
    let records = run(&folder, &["report", "unread", "--json"]);
    assert!(
        records.text().contains("\"uio_present\":null"),
        "{}",
        records.text()
    );
}

#[test]
fn damaged_recordings_tell_what_they_can_and_say_so() {
    let folder = folder("damaged");
    let good = fs::read(folder.join("triage.uiotrace")).unwrap();
    let cut = &good[..good.len() * 2 / 3];
    fs::write(folder.join("cut"), cut).unwrap();
    let ended = run(&folder, &["report", "cut"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(
        ended.text().starts_with("note: the recording is cut off"),
        "{}",
        ended.text()
    );
    let page = run(&folder, &["report", "cut", "--html"]);
    assert!(page.text().contains("the recording is cut off"));
    let records = run(&folder, &["report", "cut", "--json"]);
    assert!(
        records.err.contains("the recording is cut off"),
        "{}",
        records.err
    );
    assert!(
        records
            .text()
            .lines()
            .all(|l| serde_json::from_str::<serde_json::Value>(l).is_ok())
    );
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x10;
    fs::write(folder.join("flipped"), flipped).unwrap();
    let ended = run(&folder, &["report", "flipped"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(
        ended
            .text()
            .starts_with("note: the recording is damaged in 1 place"),
        "{}",
        ended.text()
    );
    assert!(ended.text().contains("recording_gap"), "{}", ended.text());
    let ended = run(&folder, &["diff", "triage.uiotrace", "flipped"]);
    assert!(ended.text().contains("damaged in 1 place"), "{}", ended.text());
}

#[test]
fn triggers_are_remarks() {
    let folder = folder("marks");
    let mut writer = Writer::new(File::create(folder.join("marked")).unwrap(), &triage::meta()).unwrap();
    for event in triage::events() {
        writer.event(&event).unwrap();
    }
    let mark = Mark {
        ts_ns: 9_660_000_000,
        trigger: "aio.drain > 500ms".into(),
        found: "fio (1234) waited 660 ms".into(),
    };
    writer.mark(&mark).unwrap();
    writer.end().unwrap();
    let ended = run(&folder, &["report", "marked"]);
    let expected = "note: trigger 'aio.drain > 500ms' at 2026-11-30T12:00:09.660Z: fio (1234)";
    assert!(ended.text().starts_with(expected), "{}", ended.text());
}

#[test]
fn a_comparison_of_recordings_and_dumps() {
    let folder = folder("diff");
    let plain = run(&folder, &["diff", "triage.uiotrace", "mended.uiotrace"]);
    assert_eq!((plain.code, plain.err.as_str()), (0, ""));
    let expected = include_str!("snapshots/diff.txt")
        .replace("before.uiotrace", "triage.uiotrace")
        .replace("after.uiotrace", "mended.uiotrace");
    assert_eq!(plain.text(), expected);
    for name in ["triage", "mended"] {
        let records = run(
            &folder,
            &["report", &format!("{name}.uiotrace"), "--json", "-o", name],
        );
        assert_eq!(records.code, 0, "{}", records.err);
    }
    let dumps = run(&folder, &["diff", "triage", "mended"]);
    assert_eq!(dumps.text(), expected.replace(".uiotrace", ""));
    let mixed = run(
        &folder,
        &["diff", "triage", "mended.uiotrace", "--json", "-o", "d.json"],
    );
    assert_eq!(mixed.code, 0, "{}", mixed.err);
    let written = fs::read_to_string(folder.join("d.json")).unwrap();
    assert!(
        written
            .lines()
            .last()
            .unwrap()
            .starts_with("{\"type\":\"diff_summary\"")
    );
}

#[test]
fn the_command_line_is_checked() {
    let folder = folder("usage");
    for arguments in [
        &["report"][..],
        &["report", "triage.uiotrace", "--html", "--json"],
        &["report", "triage.uiotrace", "--live", "1"],
        &["report", "--live", "never"],
        &["report", "--live", "0"],
        &["report", "triage.uiotrace", "--force"],
        &["report", "triage.uiotrace", "other"],
        &["diff", "triage.uiotrace"],
    ] {
        let ended = run(&folder, arguments);
        assert_eq!(ended.code, 2, "{arguments:?}: {}", ended.err);
        assert!(!ended.err.is_empty() && ended.out.is_empty());
    }
}

/// Whether this kernel can be traced or not: what `hist` says, `report --live` says, too.
#[test]
fn a_live_report_ends_as_hist_does() {
    let folder = folder("live");
    let hist = run(&folder, &["hist", "--duration", "0.5"]);
    let live = run(&folder, &["report", "--live", "0.5", "-o", "live.txt"]);
    assert_eq!(live.code, hist.code, "{}", live.err);
    if hist.code == 0 {
        let text = fs::read_to_string(folder.join("live.txt")).unwrap();
        assert!(text.contains("FINDINGS"), "{text}");
    } else {
        assert_eq!(live.err, hist.err);
        assert!(!folder.join("live.txt").exists());
    }
}
