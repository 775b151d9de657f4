//! `top` on a real terminal: it is afterwards what it was before, however the program ends.
//!
//! The loop under test is the program's own (`app::top::show`), over made-up events, since the kernel the tests run on may
//! refuse tracing. Each test opens a pseudo-terminal and runs [`child`] of this same file in it.
#![allow(clippy::unwrap_used, reason = "a test without a terminal has failed")]

#[path = "../made_up/mod.rs"]
mod made_up;
mod terminal;

use made_up::{MODE, run_as_child};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use terminal::{SIZE, Terminal, click, ended, place, signal};
use uio_trace::event::{Event, EventKind, UioDeviceInfo, UioPresence};
use uio_trace::model::snapshot::Meta;
use uio_trace::model::{Config, Model, Scope};
use uio_trace::recording::{self, Record, Writer};

/// Not a test by itself: what the tests run in their terminals.
#[test]
fn child() {
    run_as_child();
}

#[test]
fn q_quits() {
    let terminal = Terminal::open(SIZE);
    let mut child = terminal.start("");
    terminal.shows("made-up-host");
    terminal.press("2");
    terminal.shows("made-up ");
    let raw = terminal.attributes().c_lflag;
    assert_eq!(
        raw & (libc::ICANON | libc::ECHO),
        0,
        "keys come one by one and unseen"
    );
    terminal.press("q");
    assert_eq!(ended(&mut child).code(), Some(0));
    terminal.is_as_before();
}

#[test]
fn ctrl_c_quits() {
    let terminal = Terminal::open(SIZE);
    let mut child = terminal.start("");
    terminal.shows("made-up-host");
    terminal.press("\x03");
    assert_eq!(ended(&mut child).code(), Some(0));
    terminal.is_as_before();
}

#[test]
fn a_tiny_terminal_says_so_and_may_grow() {
    let terminal = Terminal::open((20, 5));
    let mut child = terminal.start("");
    terminal.shows("60x15");
    terminal.resize(SIZE);
    terminal.shows("made-up-host");
    terminal.resize((20, 5));
    terminal.shows("60x15");
    terminal.press("q");
    assert_eq!(ended(&mut child).code(), Some(0));
    terminal.is_as_before();
}

#[test]
fn signals_end_it_well() {
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let terminal = Terminal::open(SIZE);
        let mut child = terminal.start("");
        terminal.shows("made-up-host");
        signal(&child, number);
        assert_eq!(ended(&mut child).code(), Some(0), "signal {number}");
        terminal.is_as_before();
    }
}

#[test]
fn a_signal_while_detaching_ends_it_at_once() {
    let terminal = Terminal::open(SIZE);
    let mut child = terminal.start("slow to detach");
    terminal.shows("made-up-host");
    terminal.press("q");
    terminal.wait("detaching", |screen| {
        !screen.alternate_screen() && screen.contents().contains("detaching")
    });
    // As any terminal does now, since it is no longer raw.
    terminal.press("\x03");
    assert_eq!(ended(&mut child).signal(), Some(libc::SIGINT));
    terminal.is_as_before();
}

#[test]
fn a_panic_leaves_the_terminal_and_its_message() {
    let terminal = Terminal::open(SIZE);
    let mut child = terminal.start("panic");
    terminal.wait("message", |screen| {
        !screen.alternate_screen() && screen.contents().contains("as asked")
    });
    assert_eq!(ended(&mut child).code(), Some(101));
    terminal.is_as_before();
}

#[test]
fn an_error_is_told_after_the_screens() {
    let terminal = Terminal::open(SIZE);
    let mut child = terminal.start("fail");
    terminal.wait("message", |screen| {
        !screen.alternate_screen()
            && screen
                .contents()
                .contains("uio-trace: the made-up map cannot be read")
    });
    assert_eq!(ended(&mut child).code(), Some(1));
    terminal.is_as_before();
}

#[test]
fn a_terminal_that_goes_away_ends_it() {
    let mut terminal = Terminal::open(SIZE);
    let mut child = terminal.start("");
    terminal.shows("made-up-host");
    terminal.hang_up();
    // The signal or the failed read, whichever is first; not a panic over a message nobody can read.
    let code = ended(&mut child).code();
    assert!(matches!(code, Some(0 | 1)), "{code:?}");
}

#[test]
fn w_writes_what_is_shown() {
    let (terminal, folder, mut command) = in_a_folder("snapshot");
    let mut child = terminal.spawn(&mut command);
    terminal.press("2");
    terminal.shows("made-up ");
    terminal.press("w");
    terminal.shows("written: uio-trace-made-up-host-");
    terminal.press("q");
    assert_eq!(ended(&mut child).code(), Some(0));
    let files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|f| f.unwrap().path())
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let text = std::fs::read_to_string(&files[0]).unwrap();
    let types: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|record| record["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(types.first().map(String::as_str), Some("meta"));
    assert!(types.iter().any(|t| t == "uio_device"), "{types:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A terminal, and the screens to be started in a folder of their own.
fn in_a_folder(name: &str) -> (Terminal, PathBuf, Command) {
    let folder = std::env::temp_dir().join(format!("uio-trace-pty-{name}-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(MODE, "")
        .env("TERM", "xterm")
        .current_dir(&folder);
    (Terminal::open(SIZE), folder, command)
}

/// Writes counted in the recordings of a folder, by the order of their names.
fn recorded_writes(folder: &Path) -> Vec<u64> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|f| f.unwrap().path())
        .collect();
    files.sort();
    let writes = |path: &PathBuf| {
        let records: Vec<Record> = recording::read(path).unwrap().map(Result::unwrap).collect();
        let Some(Record::Meta(meta)) = records.first() else {
            panic!("no meta record")
        };
        let mut model = Model::new(Config::of(meta));
        for record in &records {
            if let Record::Event(event) = record {
                model.apply(event.clone());
            }
        }
        assert!(matches!(records.last(), Some(Record::End)), "not ended");
        let devices = model.snapshot(Scope::SinceStart).uio_devices;
        assert_eq!(devices[0].name.as_deref(), Some("made-up"));
        devices[0].ops.iter().map(|op| op.count).sum()
    };
    files.iter().map(writes).collect()
}

#[test]
fn a_key_records_from_here_on() {
    let (terminal, folder, mut command) = in_a_folder("record");
    let mut child = terminal.spawn(&mut command);
    terminal.press("2");
    // Not the first thousand: the file counts from where it begins.
    terminal.wait("three seconds", |screen| {
        let contents = screen.contents();
        (3..100).any(|n| contents.contains(&format!(" {n}000 ")) || contents.contains(&format!(" {n}.0k ")))
    });
    terminal.press("r");
    terminal.shows("recording to uio-trace-made-up-host-");
    terminal.shows("REC ");
    let begin = std::time::SystemTime::now();
    terminal.wait("two seconds of recording", |_| {
        begin
            .elapsed()
            .is_ok_and(|passed| passed > Duration::from_millis(2500))
    });
    terminal.press("r");
    terminal.shows("recorded: uio-trace-made-up-host-");
    terminal.wait("the end of the recording", |screen| {
        !screen.contents().contains("REC ")
    });
    // A second one is ended with the screens.
    terminal.press("r");
    terminal.shows("REC ");
    terminal.press("q");
    assert_eq!(ended(&mut child).code(), Some(0));
    let writes = recorded_writes(&folder);
    assert_eq!(writes.len(), 2);
    assert!((2000..=4000).contains(&writes[0]), "{writes:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn every_screen_freeze_filter_sort_and_help() {
    let terminal = Terminal::open(SIZE);
    let mut child = terminal.start("");
    for (key, text) in [
        ("1", "Findings"),
        ("2", "UIO devices"),
        ("3", "percpu_refs"),
        ("4", "AIO drains"),
        ("5", "Losses"),
        ("?", "Help"),
        ("\x1b", "Losses"),
        ("2", "1, by waiting"),
        ("/", "filter: "),
        ("nothing", "No row contains the filter's text."),
        ("\x15", "made-up "),
        ("made", "filter: made"),
        ("\r", "1 of 1 with \"made\""),
        ("s", "by wait now"),
        (" ", "FROZEN"),
        ("\x1b", "1, by wait now"),
        ("\x1b[B\r", "Esc back"),
        ("m", "the mouse selects text again"),
        ("\x0c", "Esc back"),
    ] {
        terminal.press(key);
        terminal.shows(text);
    }
    terminal.press("q");
    assert_eq!(ended(&mut child).code(), Some(0));
    terminal.is_as_before();
}

#[test]
fn the_mouse_selects_opens_and_goes() {
    let terminal = Terminal::open(SIZE);
    let mut child = terminal.start("");
    terminal.shows("made-up-host");
    terminal.wait("mouse mode", |screen| {
        screen.mouse_protocol_mode() == vt100::MouseProtocolMode::PressRelease
            && screen.mouse_protocol_encoding() == vt100::MouseProtocolEncoding::Sgr
    });
    let (x, y) = place(&terminal, "2 UIO");
    click(&terminal, x, y);
    terminal.shows("UIO devices");
    let (x, y) = place(&terminal, "made-up ");
    click(&terminal, x, y);
    terminal.wait("cursor", |screen| screen.contents().contains("\u{25b8} uio0"));
    click(&terminal, x, y);
    let (x, y) = place(&terminal, "Esc back");
    click(&terminal, x, y);
    terminal.shows("UIO devices");
    terminal.press("q");
    assert_eq!(ended(&mut child).code(), Some(0));
    terminal.is_as_before();
}

#[test]
fn a_resize_storm_ends_in_the_last_size() {
    let terminal = Terminal::open(SIZE);
    let mut child = terminal.start("");
    terminal.shows("made-up-host");
    for step in 0..60_u16 {
        terminal.resize((20 + step * 37 % 281, 3 + step * 23 % 78));
        if step % 7 == 0 {
            terminal.press(["2", "4", "\t", "j", "1", "?", "\x1b"][usize::from(step / 7) % 7]);
        }
    }
    terminal.press("2");
    terminal.resize((300, 80));
    terminal.wait("the screen in 300x80", |screen| {
        let rows: Vec<String> = screen.rows(0, 300).collect();
        rows.get(2)
            .is_some_and(|row| row.trim_end().chars().count() == 300)
            && rows.get(79).is_some_and(|row| row.contains("Enter open"))
    });
    terminal.press("q");
    assert_eq!(ended(&mut child).code(), Some(0));
    terminal.is_as_before();
}

/// Of a process, user and system, in clock ticks (proc_pid_stat(5), fields 14 and 15).
fn cpu_ticks(child: &Child) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11..13].iter().map(|n| n.parse::<u64>().unwrap()).sum()
}

#[test]
fn idle_screens_cost_less_than_a_hundredth_of_a_cpu() {
    // A debug build draws some ten times as slowly as what users run.
    const SHARE: f64 = if cfg!(debug_assertions) { 0.05 } else { 0.01 };
    let terminal = Terminal::open(SIZE);
    let mut child = terminal.start("");
    terminal.shows("made-up-host");
    let clock = || {
        terminal
            .parser()
            .screen()
            .contents()
            .lines()
            .next()
            .map(str::to_owned)
    };
    let (begin, before) = (Instant::now(), cpu_ticks(&child));
    // Five renewals of the figures, however long they take.
    for _ in 0..5 {
        let shown = clock();
        terminal.wait("next second", |screen| {
            screen.contents().lines().next().map(str::to_owned) != shown
        });
    }
    // SAFETY: sysconf only reads.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let used = (cpu_ticks(&child) - before) as f64 / per_second;
    let share = used / begin.elapsed().as_secs_f64();
    println!("{used} s of CPU in {:?}: {:.2} %", begin.elapsed(), share * 100.0);
    assert!(share < SHARE, "{share}");
    terminal.press("q");
    assert_eq!(ended(&mut child).code(), Some(0));
    terminal.is_as_before();
}

/// A recording of a minute, with another device each second.
fn minute() -> PathBuf {
    let path = std::env::temp_dir().join(format!("uio-trace-pty-{:?}.rec", std::thread::current().id()));
    let meta = Meta {
        schema_version: 1,
        tool: "uio-trace".into(),
        host: "recorded-host".into(),
        kernel: "6.1".into(),
        boot_id: String::new(),
        started: "2026-01-01T00:00:00Z".into(),
        started_ns: 0,
        probes: Vec::new(),
        rcu: BTreeMap::new(),
    };
    let mut writer = Writer::new(File::create(&path).unwrap(), &meta).unwrap();
    for second in 1..=60_u32 {
        let device = UioDeviceInfo {
            minor: second % 2,
            name: Some(format!("at-second-{second}")),
            version: None,
            ..UioDeviceInfo::default()
        };
        let kinds = [
            EventKind::UioPresence(UioPresence::Present),
            EventKind::UioDevices(vec![device]),
            EventKind::Tick,
        ];
        for kind in kinds {
            let ts_ns = u64::from(second) * 1_000_000_000;
            writer.event(&Event { ts_ns, kind }).unwrap();
        }
        writer.flush().unwrap();
    }
    writer.end().unwrap();
    path
}

#[test]
fn a_recording_is_replayed_with_pause_seek_and_speed() {
    let path = minute();
    let terminal = Terminal::open(SIZE);
    let mut command = Command::new(env!("CARGO_BIN_EXE_uio-trace"));
    command
        .arg("replay")
        .arg(&path)
        .env("TERM", "xterm-256color")
        .env("LC_ALL", "C.UTF-8");
    let mut child = terminal.spawn(&mut command);
    terminal.shows("recorded-host");
    terminal.shows("of 1:00  1x");
    terminal.press("p");
    terminal.shows("paused");
    terminal.press("2");
    // Six seconds each; the clock ran a moment before.
    terminal.press(">>>>>");
    terminal.shows("00:00:30Z  0:30 of 1:00");
    terminal.shows(" 30, by waiting");
    terminal.press(".");
    terminal.shows("00:00:40Z  0:40 of 1:00");
    terminal.shows(" 40, by waiting");
    terminal.press(",,");
    terminal.shows("00:00:20Z  0:20 of 1:00");
    terminal.shows(" 20, by waiting");
    terminal.press("[[[[");
    terminal.shows("0.1x");
    terminal.press("]]]]]]]]]]");
    terminal.shows("100x");
    terminal.press("p");
    terminal.shows("00:01:00Z  1:00 of 1:00");
    terminal.shows(" end");
    terminal.shows(" 60, by waiting");
    terminal.press("?");
    terminal.shows("a tenth of the recording back");
    terminal.press("q");
    assert_eq!(ended(&mut child).code(), Some(0));
    terminal.is_as_before();
    std::fs::remove_file(&path).unwrap();
}

/// The program itself, before it traces anything.
#[test]
fn a_terminal_without_a_cursor_gets_text() {
    for term in [Some("dumb"), None] {
        let terminal = Terminal::open(SIZE);
        let mut command = Command::new(env!("CARGO_BIN_EXE_uio-trace"));
        match term {
            Some(term) => command.env("TERM", term),
            None => command.env_remove("TERM"),
        };
        let mut child = terminal.spawn(&mut command);
        assert_eq!(ended(&mut child).code(), Some(2), "{term:?}");
        terminal.wait("advice", |screen| {
            let text = screen.contents().replace('\n', "");
            text.contains("uio-trace hist 1") && text.contains("TERM")
        });
        assert!(!terminal.parser().screen().alternate_screen());
        terminal.is_as_before();
    }
}
