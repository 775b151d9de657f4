//! The screens in tmux: what works in a terminal works in tmux's, and the pane is afterwards what it was before.
//!
//! Two programs of this file run in it, in a server of their own without configuration: the interface over the figures
//! of the views' tests, and the program's own loop over made-up events.
#![allow(clippy::unwrap_used, reason = "a test without a terminal has failed")]

mod made_up;
mod ui_fixture;

use made_up::{MODE, PATIENCE};
use std::io;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use uio_trace::model::snapshot::Snapshot;
use uio_trace::ui::run::{Executor, Source, TerminalInput, run};
use uio_trace::ui::terminal::Guard;
use uio_trace::ui::{App, Effect, TerminalFacts};

/// Set in what runs inside tmux.
const INSIDE: &str = "UIO_TRACE_TMUX_TEST";

struct Once(Option<Snapshot>);

impl Source for Once {
    fn poll(&mut self) -> Option<Snapshot> {
        self.0.take()
    }
}

struct NoEffects;

impl Executor for NoEffects {
    fn carry_out(&mut self, _: Effect) -> Option<String> {
        None
    }
}

/// Not a test by itself: the interface over the figures of the views' tests.
#[test]
fn inside() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    let (guard, mut terminal) = Guard::enter().unwrap();
    let size = terminal.size().unwrap();
    let facts = TerminalFacts::from_env();
    let mut app = App::new(ui_fixture::meta(), facts, (size.width, size.height));
    let mut source = Once(Some(ui_fixture::rich()));
    let ended = run(
        &mut app,
        &mut terminal,
        &mut TerminalInput,
        &mut source,
        &mut NoEffects,
    );
    drop(guard);
    ended.unwrap();
}

/// Not a test by itself either: the program's own loop.
#[test]
fn child() {
    made_up::run_as_child();
}

/// A server with one pane, in which a shell runs the screens between two looks at the terminal's attributes.
struct Tmux {
    socket: String,
    folder: PathBuf,
}

impl Tmux {
    fn start(name: &str, (columns, rows): (u16, u16), test: &str, environment: &str) -> Tmux {
        let id = format!("uio-trace-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(&id);
        std::fs::create_dir(&folder).unwrap();
        let tmux = Tmux { socket: id, folder };
        let exe = std::env::current_exe().unwrap();
        let file = |name: &str| tmux.folder.join(name).display().to_string();
        // The last command keeps the pane, to be looked at.
        let script = format!(
            "stty -g > '{}'; {environment} RUST_BACKTRACE=0 LC_ALL=C.UTF-8 '{}' --exact {test} --nocapture --test-threads=1; \
             stty -g > '{}'; exec cat",
            file("before"),
            exe.display(),
            file("after"),
        );
        let size = [columns.to_string(), rows.to_string()];
        tmux.run(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &size[0],
            "-y",
            &size[1],
            &script,
        ]);
        tmux
    }

    fn output(&self, arguments: &[&str]) -> io::Result<Output> {
        Command::new("tmux")
            .args(["-L", &self.socket])
            .args(arguments)
            .env_remove("TMUX")
            .env_remove("NO_COLOR")
            .env("LC_ALL", "C.UTF-8")
            .output()
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        let output = self
            .output(arguments)
            .unwrap_or_else(|e| panic!("tmux is needed for this test (apt-get install tmux): {e}"));
        assert!(output.status.success(), "tmux {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// Modes of the pane: alternate screen, cursor, mouse.
    fn modes(&self) -> String {
        self.run(&[
            "display-message",
            "-p",
            "#{alternate_on} #{cursor_flag} #{mouse_standard_flag}",
        ])
        .trim()
        .to_owned()
    }

    #[track_caller]
    fn wait(&self, what: &str, wanted: impl Fn() -> bool) {
        let begin = Instant::now();
        while !wanted() {
            assert!(begin.elapsed() < PATIENCE, "no {what} on:\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    fn shows(&self, text: &str) {
        self.wait(text, || self.screen().contains(text));
    }

    /// The terminal's attributes, main screen, cursor, no mouse.
    #[track_caller]
    fn is_as_before(&self) {
        self.wait("end", || !self.attributes("after").is_empty());
        assert!(!self.attributes("before").is_empty());
        assert_eq!(self.attributes("before"), self.attributes("after"));
        self.wait("main screen, cursor, no mouse", || self.modes() == "0 1 0");
    }

    fn attributes(&self, when: &str) -> String {
        std::fs::read_to_string(self.folder.join(when)).unwrap_or_default()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.output(&["kill-server"]);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn the_screens_work_and_leave_the_pane_as_it_was() {
    let tmux = Tmux::start("screens", (100, 30), "inside", &format!("{INSIDE}=1"));
    tmux.shows("CRIT uio0 (tcm-user/0/disk0) is serialised");
    assert_eq!(tmux.modes(), "1 0 1");
    for (keys, text) in [
        (&["2"][..], "UIO devices"),
        (&["3"], "percpu_refs"),
        (&["4"], "AIO drains"),
        (&["Enter"], "Together, projected"),
        (&["+"], "0 ns to 202 ms"),
        (&["Escape"], "AIO drains"),
        (&["5"], "Losses"),
        (&["Space"], "FROZEN"),
        (&["/", "kill"], "filter: kill"),
        (&["Enter"], "2 of 12 with \"kill\""),
        (&["?"], "Help"),
    ] {
        tmux.keys(keys);
        tmux.shows(text);
    }
    // Bars and rules are one column wide here, too: the right end of every heading is where it should be.
    tmux.keys(&["4"]);
    tmux.shows("AIO drains");
    let screen = tmux.screen();
    let heading = screen.lines().find(|line| line.contains("AIO drains")).unwrap();
    assert_eq!(heading.chars().count(), 100, "{screen}");
    tmux.run(&["resize-window", "-x", "60", "-y", "15"]);
    tmux.wait("a heading of 60 columns", || {
        let screen = tmux.screen();
        let heading = screen.lines().find(|line| line.contains("AIO drains"));
        heading.is_some_and(|line| line.chars().count() == 60)
    });
    tmux.keys(&["q"]);
    tmux.is_as_before();
}

/// The process that the pane's shell runs now.
fn pid_of_child(tmux: &Tmux) -> String {
    let shell = tmux.run(&["display-message", "-p", "#{pane_pid}"]);
    let path = format!("/proc/{0}/task/{0}/children", shell.trim());
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

#[test]
fn whatever_ends_the_program_the_pane_is_as_it_was() {
    for end in ["q", "INT", "TERM", "HUP", "panic"] {
        let mode = if end == "panic" { "panic" } else { "''" };
        let tmux = Tmux::start(end, (80, 24), "child", &format!("{MODE}={mode}"));
        match end {
            // By itself, after its first figures.
            "panic" => {}
            "q" => {
                tmux.shows("made-up-host");
                tmux.keys(&["q"]);
            }
            signal => {
                tmux.shows("made-up-host");
                let killed = Command::new("kill")
                    .args(["-s", signal, &pid_of_child(&tmux)])
                    .status();
                assert!(killed.unwrap().success());
            }
        }
        tmux.is_as_before();
        let last_words = if end == "panic" { "as asked" } else { "detaching" };
        tmux.shows(last_words);
    }
}
