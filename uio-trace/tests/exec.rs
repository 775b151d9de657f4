//! `exec` with a real command and made-up events, since the kernel the tests run on may refuse tracing.
//!
//! What it starts is followed by perf events, which need no privilege; a sandbox may refuse them all the same.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot run a command has failed"
)]

#[path = "recorded/mod.rs"]
#[allow(dead_code, reason = "another test's file")]
mod recorded;

use recorded::{meta, scratch};
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;
use uio_trace::app::exec::{command, follow};
use uio_trace::app::record::target::Target;
use uio_trace::app::top::Live;
use uio_trace::config::ExecConfig;
use uio_trace::error::AppError;
use uio_trace::event::{Event, EventKind, KernelPtr, Task};
use uio_trace::ingest::family::Family;
use uio_trace::kernel::Root;
use uio_trace::model::snapshot::Snapshot;

/// Signals are for the whole process, so there is one run at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// At the end of CMD: a drain of each process whose number it has written down, and one of a stranger.
struct MadeUp {
    folder: PathBuf,
    /// Sent to this process once CMD says that it is ready.
    signal: Option<libc::c_int>,
    /// The trace fails once CMD says that it is ready.
    fails: bool,
}

const STRANGER: u32 = 1;

impl Live for MadeUp {
    async fn step(&mut self, _sink: impl FnMut(Event)) -> Result<(), AppError> {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if self.folder.join("ready").exists() {
            if let Some(signal) = self.signal.take() {
                // SAFETY: to this process, which has a handler for it.
                unsafe { libc::kill(libc::getpid(), signal) };
            }
            if self.fails {
                return Err(AppError::Failed("the made-up ring cannot be read".into()));
            }
        }
        Ok(())
    }

    fn catch_up(&mut self, mut sink: impl FnMut(Event)) -> Result<(), AppError> {
        // Once, when all of them are written.
        if !self.folder.join("ready").exists() {
            return Ok(());
        }
        let Ok(numbers) = std::fs::read_to_string(self.folder.join("pids")) else {
            return Ok(());
        };
        let pids = numbers.lines().map(|line| line.parse().unwrap());
        for (n, tgid) in pids.chain([STRANGER]).enumerate() {
            let n = n as u64 + 1;
            let by = Task {
                tgid,
                tid: tgid,
                comm: "made-up".into(),
            };
            let (mm, ctx) = (KernelPtr(n), KernelPtr(n * 0x1000));
            let kinds = [
                EventKind::ExitAioBegin { by: by.clone(), mm },
                EventKind::AioKill {
                    by: by.clone(),
                    mm,
                    ctx,
                    wait: Some(KernelPtr(n)),
                    users: ctx,
                    reqs: KernelPtr(ctx.0 + 24),
                    user_id: n,
                },
                EventKind::AioUsersReleased { ctx },
                EventKind::AioReqsReleased { ctx },
                EventKind::ExitAioEnd { by, mm },
            ];
            for (step, kind) in kinds.into_iter().enumerate() {
                let ts_ns = n * 1_000_000 + step as u64 * 1000;
                sink(Event { ts_ns, kind });
            }
        }
        Ok(())
    }

    fn shape(&self, _snapshot: &mut Snapshot) {}
}

/// Runs a script in the folder; its status and the records of the report.
fn run(script: &str, live: &mut MadeUp) -> Option<(u8, Vec<serde_json::Value>)> {
    let _alone = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if Family::watch(&Root::system()).is_err() {
        return None;
    }
    let report = live.folder.join("report");
    let script = format!("cd '{}'; {script}", live.folder.display());
    let config = ExecConfig {
        output: Some(report.clone()),
        json: true,
        command: ["sh", "-c", &script].map(OsString::from).into(),
        ..ExecConfig::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let status = runtime
        .block_on(async {
            let target = Target::claim(&report, false, false)?;
            let path = command::find(&config.command[0])?;
            follow(live, &meta(), &config, &path, Some(target)).await
        })
        .unwrap();
    let text = std::fs::read_to_string(&report).unwrap();
    let records = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    std::fs::remove_file(&report).unwrap();
    Some((status, records))
}

fn made_up(folder: &Path) -> MadeUp {
    MadeUp {
        folder: folder.to_owned(),
        signal: None,
        fails: false,
    }
}

#[test]
fn the_report_is_of_the_command_and_all_that_it_started() {
    let folder = scratch("exec-report");
    // Itself, a child, and one whose parent ended before it said its number.
    let script = "echo $$ >> pids; sh -c 'echo $$ >> pids'; \
        sh -c 'sh -c \"sleep 0.2; echo \\$\\$ >> pids; echo > ready\" &'; \
        for n in $(seq 1000); do [ -e ready ] && exit 7; sleep 0.02; done";
    let Some((status, records)) = run(script, &mut made_up(&folder)) else {
        return;
    };
    assert_eq!(status, 7);
    let drains = records.iter().filter(|record| record["type"] == "aio_drain");
    let of: Vec<u64> = drains.map(|drain| drain["tgid"].as_u64().unwrap()).collect();
    let pids = std::fs::read_to_string(folder.join("pids")).unwrap();
    let pids: Vec<u64> = pids.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(pids.len(), 3);
    assert_eq!(of, pids, "and none of the stranger");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn it_ends_as_the_command_does() {
    let folder = scratch("exec-status");
    for (script, expected) in [
        ("exit 0", 0),
        ("exit 255", 255),
        ("kill -9 $$", 137),
        ("kill -15 $$", 143),
    ] {
        if let Some((status, records)) = run(script, &mut made_up(&folder)) {
            assert_eq!(status, expected, "{script}");
            assert_eq!(records[0]["type"], "meta");
            assert_eq!(records.last().unwrap()["type"], "loss");
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn signals_reach_the_command() {
    for (number, name) in [
        (libc::SIGTERM, "TERM"),
        (libc::SIGHUP, "HUP"),
        (libc::SIGUSR1, "USR1"),
    ] {
        let folder = scratch("exec-signals");
        let mut live = MadeUp {
            signal: Some(number),
            ..made_up(&folder)
        };
        let script = format!("trap 'exit 5' {name}; echo > ready; for n in $(seq 1000); do sleep 0.02; done");
        if let Some((status, _)) = run(&script, &mut live) {
            assert_eq!(status, 5, "{name}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn a_trace_that_fails_does_not_end_the_command() {
    let folder = scratch("exec-fails");
    let mut live = MadeUp {
        fails: true,
        ..made_up(&folder)
    };
    let wait = "echo > ready; sleep 0.3; echo > late; exit";
    if let Some((status, _)) = run(&format!("{wait} 3"), &mut live) {
        assert_eq!(status, 3);
        assert!(folder.join("late").exists());
        assert_eq!(
            run(&format!("{wait} 0"), &mut live).unwrap().0,
            1,
            "the report is not whole"
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Set: [`lost_child`] is one, and this is the command's script.
const LOST: &str = "UIO_TRACE_EXEC_TEST_LOST";
/// A report: standard output, which is this device.
const FULL: &str = "/dev/full";
/// What [`lost_child`] ends with where nothing can be followed.
const REFUSED: i32 = 99;

/// Not a test by itself: `exec -o report` (or -) of a command that may do something to the report's file.
#[test]
fn lost_child() {
    let Some(script) = std::env::var_os(LOST) else {
        return;
    };
    if Family::watch(&Root::system()).is_err() {
        std::process::exit(REFUSED);
    }
    let folder = PathBuf::from(std::env::var_os("FOLDER").unwrap());
    let mut report = std::env::var_os("REPORT").map(PathBuf::from).unwrap();
    if report == Path::new(FULL) {
        // What runs the test writes to standard output, too, until here.
        let full = std::fs::File::options().write(true).open(FULL).unwrap();
        // SAFETY: two descriptors that are open.
        unsafe { libc::dup2(full.as_raw_fd(), libc::STDOUT_FILENO) };
        report = "-".into();
    }
    let config = ExecConfig {
        output: Some(report.clone()),
        json: true,
        command: vec!["sh".into(), "-c".into(), script],
        ..ExecConfig::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let status = runtime.block_on(async {
        let target = match config.to_standard_output() {
            true => None,
            false => Some(Target::claim(&report, false, false).unwrap()),
        };
        let path = command::find(&config.command[0]).unwrap();
        follow(&mut made_up(&folder), &meta(), &config, &path, target)
            .await
            .unwrap()
    });
    std::process::exit(i32::from(status));
}

/// Status, standard output and standard error of [`lost_child`]; `None`: nothing can be followed here.
fn lost(name: &str, report: &str, script: &str) -> Option<(i32, String, String)> {
    let folder = scratch(name);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lost_child", "--nocapture", "--test-threads=1"])
        .current_dir(&folder)
        .env(LOST, script)
        .env("FOLDER", &folder)
        .env("REPORT", report)
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code != REFUSED).then(|| (code, text(output.stdout), text(output.stderr)))
}

/// CMD has run, and does not run again for its report.
#[test]
fn a_report_that_cannot_be_written_goes_to_standard_error() {
    for (script, status) in [("rm report", 1), ("rm report; exit 4", 4)] {
        let Some((code, _, err)) = lost("exec-lost", "report", script) else {
            return;
        };
        assert_eq!(code, status, "{err}");
        assert!(err.contains("\"type\":\"loss\""), "{err}");
        let last = err.lines().last().unwrap();
        assert!(
            last.contains("report cannot be written: it was removed") && last.contains("above"),
            "{last}"
        );
    }
    let (code, out, err) = lost("exec-out", "-", "echo of CMD").unwrap();
    assert_eq!(code, 0, "{err}");
    let cmd = out.find("of CMD\n").unwrap();
    assert!(out[cmd..].contains("\"type\":\"loss\""), "{out}");
    assert!(!err.contains("\"type\""), "{err}");
    let (code, _, err) = lost("exec-full", FULL, "true").unwrap();
    assert_eq!(code, 1, "{err}");
    assert!(
        err.contains("\"type\":\"loss\"") && err.contains("No space left"),
        "{err}"
    );
}

/// Set: [`child`] is one.
const CHILD: &str = "UIO_TRACE_EXEC_TEST";

/// Not a test by itself: runs `id` as `exec` would.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let script = "id -u; id -g; id -G; echo sudo=$SUDO_UID; exit 9";
    let command = ["sh", "-c", script].map(OsString::from);
    let path = command::find(&command[0]).unwrap();
    let ended = command::start(&path, &command).unwrap().wait().unwrap();
    std::process::exit(i32::from(command::status(ended)));
}

#[test]
fn the_command_runs_as_the_user_who_called_sudo() {
    // SAFETY: no arguments, cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .env("SUDO_UID", "54321")
        .env("SUDO_GID", "12345")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(9), "{text}");
    let dropped = text.contains("54321\n12345\n12345\nsudo=\n");
    assert_eq!(dropped, root, "{text}");
}
