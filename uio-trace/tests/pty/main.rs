//! `top` on a real terminal: it is afterwards what it was before, however the program ends.
//!
//! The loop under test is the program's own (`app::top::show`), over made-up events, since the kernel the tests run on may
//! refuse tracing. Each test opens a pseudo-terminal and runs [`child`] of this same file in it.
#![allow(clippy::unwrap_used, reason = "a test without a terminal has failed")]

mod made_up;

use made_up::{MODE, PATIENCE, run_as_child};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uio_trace::event::{Event, EventKind, UioDeviceInfo, UioPresence};
use uio_trace::model::snapshot::Meta;
use uio_trace::model::{Config, Model, Scope};
use uio_trace::recording::{self, Record, Writer};

/// An end must come within this.
const QUIT: Duration = Duration::from_secs(5);
const SIZE: (u16, u16) = (80, 24);

/// Not a test by itself: what the tests run in their terminals.
#[test]
fn child() {
    run_as_child();
}

/// A pseudo-terminal, and what is on it.
struct Terminal {
    master: Option<Arc<File>>,
    slave: OwnedFd,
    before: libc::termios,
    screen: Arc<Mutex<vt100::Parser>>,
    ending: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

fn attributes(fd: RawFd) -> libc::termios {
    // SAFETY: all zeros is a value of this struct of integers.
    let mut found = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is a termios for the call to fill.
    assert_eq!(unsafe { libc::tcgetattr(fd, &raw mut found) }, 0);
    found
}

impl Terminal {
    fn open((columns, rows): (u16, u16)) -> Terminal {
        // Not openpty(3), which cannot close on exec: a child must not keep another test's terminal open.
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        // SAFETY: plain flags; the result is checked.
        let master = unsafe { libc::posix_openpt(flags) };
        assert!(master >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: a new descriptor that nobody else owns.
        let master = unsafe { File::from_raw_fd(master) };
        // SAFETY: an open pseudo-terminal; unlocked, its other side can be asked for.
        let slave = unsafe {
            assert_eq!(libc::unlockpt(master.as_raw_fd()), 0);
            libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags)
        };
        assert!(slave >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: a new descriptor that nobody else owns.
        let slave = unsafe { OwnedFd::from_raw_fd(slave) };
        set_size(&master, columns, rows);

        // Not what a terminal usually is: "as before" must not be "sane".
        let mut unusual = attributes(slave.as_raw_fd());
        unusual.c_cc[libc::VERASE] = 8;
        unusual.c_lflag &= !libc::ECHOK;
        unusual.c_iflag |= libc::IXANY;
        // SAFETY: an open terminal and whole attributes.
        let set = unsafe { libc::tcsetattr(slave.as_raw_fd(), libc::TCSANOW, &raw const unusual) };
        assert_eq!(set, 0);

        let master = Arc::new(master);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(cells(rows), cells(columns), 0)));
        let ending = Arc::new(AtomicBool::new(false));
        let reader = std::thread::spawn({
            let (master, screen, ending) = (master.clone(), screen.clone(), ending.clone());
            move || read(&master, &screen, &ending)
        });
        Terminal {
            master: Some(master),
            before: attributes(slave.as_raw_fd()),
            slave,
            screen,
            ending,
            reader: Some(reader),
        }
    }

    fn spawn(&self, command: &mut Command) -> Child {
        let stdio = || self.slave.try_clone().unwrap();
        command.stdin(stdio()).stdout(stdio()).stderr(stdio());
        // SAFETY: both calls are async-signal-safe; the terminal is descriptor 0 by then.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            })
        };
        command.spawn().unwrap()
    }

    /// The screens, over made-up events.
    fn start(&self, mode: &str) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(MODE, mode)
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            // With one, the end of a panic is long in coming.
            .env("RUST_BACKTRACE", "0")
            .env_remove("NO_COLOR")
            .current_dir(std::env::temp_dir());
        self.spawn(&mut command)
    }

    fn parser(&self) -> MutexGuard<'_, vt100::Parser> {
        self.screen.lock().unwrap()
    }

    /// Waits until the screen is as wanted.
    #[track_caller]
    fn wait(&self, what: &str, wanted: impl Fn(&vt100::Screen) -> bool) {
        let begin = Instant::now();
        while !wanted(self.parser().screen()) {
            let shown = self.parser().screen().contents();
            assert!(begin.elapsed() < PATIENCE, "no {what} on:\n{shown}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for a text on the screens.
    #[track_caller]
    fn shows(&self, text: &str) {
        self.wait(text, |screen| {
            screen.alternate_screen() && screen.contents().contains(text)
        });
    }

    fn press(&self, keys: &str) {
        self.master
            .as_ref()
            .unwrap()
            .as_ref()
            .write_all(keys.as_bytes())
            .unwrap();
    }

    fn resize(&self, (columns, rows): (u16, u16)) {
        self.parser().screen_mut().set_size(cells(rows), cells(columns));
        set_size(self.master.as_ref().unwrap(), columns, rows);
    }

    /// The terminal is as if nothing had been: attributes, main screen, cursor.
    #[track_caller]
    fn is_as_before(&self) {
        let (before, after) = (&self.before, attributes(self.slave.as_raw_fd()));
        assert_eq!(before.c_iflag, after.c_iflag);
        assert_eq!(before.c_oflag, after.c_oflag);
        assert_eq!(before.c_cflag, after.c_cflag);
        assert_eq!(before.c_lflag, after.c_lflag);
        assert_eq!(before.c_cc, after.c_cc);
        self.wait("main screen with a cursor", |screen| {
            !screen.alternate_screen()
                && !screen.hide_cursor()
                && screen.mouse_protocol_mode() == vt100::MouseProtocolMode::None
        });
    }

    /// Nobody is at the terminal any more.
    fn hang_up(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.master = None;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.hang_up();
    }
}

fn cells(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).unwrap()
}

fn set_size(terminal: &File, columns: u16, rows: u16) {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: an open terminal and a whole winsize.
    let set = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    assert_eq!(set, 0);
}

/// What the terminal prints, to its screen.
fn read(master: &File, screen: &Mutex<vt100::Parser>, ending: &AtomicBool) {
    let mut bytes = [0; 4096];
    while !ending.load(Ordering::SeqCst) {
        let mut poll = libc::pollfd {
            fd: master.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one whole pollfd.
        if unsafe { libc::poll(&raw mut poll, 1, 20) } > 0 {
            let mut master = master;
            match master.read(&mut bytes) {
                Ok(count) => screen.lock().unwrap().process(&bytes[..count]),
                Err(_) => return,
            }
        }
    }
}

fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: a child that has not been waited for, so its id is its own.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
}

/// Waits for the end, which must come soon.
#[track_caller]
fn ended(child: &mut Child) -> ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begin.elapsed() > QUIT {
            let _ = child.kill();
            let _ = child.wait();
            panic!("still running after {QUIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn q_quits() {
    let terminal = Terminal::open(SIZE);
    let mut child = terminal.start("");
    terminal.shows("made-up-host");
    terminal.press("2");
    terminal.shows("made-up ");
    let raw = attributes(terminal.slave.as_raw_fd()).c_lflag;
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

/// Presses an SGR mouse button (xterm: mode 1006), places from 1.
fn click(terminal: &Terminal, column: u16, row: u16) {
    terminal.press(&format!("\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m"));
}

/// Place of a text on the screen, from 1.
#[track_caller]
fn place(terminal: &Terminal, text: &str) -> (u16, u16) {
    terminal.shows(text);
    let parser = terminal.parser();
    let rows: Vec<String> = parser.screen().rows(0, SIZE.0).collect();
    let found = rows.iter().zip(1..).find_map(|(row, y)| {
        let at = row.find(text)?;
        Some((row[..at].chars().count() as u16 + 1, y))
    });
    found.unwrap()
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
