//! The program as a user meets it: exit codes, and what it says when it cannot do what was asked.
//!
//! The kernel the tests run on may refuse tracing or allow it: what `check` ends with decides what is expected of `hist`.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot start the program has failed"
)]

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_uio-trace");

const DONE: i32 = 0;
const FAILED: i32 = 1;
const USAGE: i32 = 2;
const NOT_PERMITTED: i32 = 3;
const KERNEL: i32 = 4;

/// How a run ended.
#[derive(Debug)]
struct Ended {
    code: i32,
    out: String,
    err: String,
}

fn end(command: &mut Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn run(arguments: &[&str]) -> Ended {
    end(Command::new(PROGRAM).args(arguments))
}

impl Ended {
    /// Exit code and what standard error must say; never a panic.
    #[track_caller]
    fn expect(self, code: i32, says: &[&str]) -> Ended {
        assert_eq!(self.code, code, "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        assert!(
            self.err.is_empty() || self.err.starts_with("uio-trace: "),
            "{self:?}"
        );
        for text in says {
            assert!(self.err.contains(text), "'{text}' is not in: {self:?}");
        }
        self
    }

    /// Exactly one line on standard error.
    #[track_caller]
    fn one_sentence(self) -> Ended {
        assert_eq!(self.err.trim_end().lines().count(), 1, "{self:?}");
        self
    }
}

/// Whether this machine, as this user, can be traced, in the program's own judgement.
fn can_trace() -> bool {
    run(&["check"]).code == DONE
}

#[test]
fn what_the_command_line_does_not_know_is_a_usage_error() {
    run(&["--bogus"]).expect(USAGE, &["--bogus", "--help"]);
    run(&["nosuch"]).expect(USAGE, &["nosuch", "--help"]);
    run(&["hist", "1", "2", "3"]).expect(USAGE, &["'3'", "--help"]);
    run(&["check", "--pid", "1"]).expect(USAGE, &["--pid"]);
}

#[test]
fn a_wrong_value_is_answered_with_what_to_give() {
    const TIMES: [&str; 3] = ["seconds", "500ms", "5m"];
    for text in ["abc", "1 fortnight", "-", ""] {
        run(&["hist", text]).expect(USAGE, &["INTERVAL"]).one_sentence();
        run(&["hist", text]).expect(USAGE, &TIMES);
        run(&["hist", "--slow", text])
            .expect(USAGE, &["--slow"])
            .one_sentence();
        run(&["top", "--slow", text]).expect(USAGE, &TIMES);
        run(&["hist", "--duration", text])
            .expect(USAGE, &["--duration"])
            .one_sentence();
    }
    run(&["hist", "0"])
        .expect(USAGE, &["INTERVAL", "give 10ms"])
        .one_sentence();
    run(&["hist", "--duration", "0"])
        .expect(USAGE, &["--duration", "give"])
        .one_sentence();
    run(&["hist", "--duration", "999y"])
        .expect(USAGE, &["--duration", "year"])
        .one_sentence();
    run(&["hist", "1", "0"]).expect(USAGE, &["COUNT", "1 or more"]);
    for text in ["abc", "0", "-1", "99999999999"] {
        run(&["hist", &format!("--pid={text}")])
            .expect(USAGE, &["--pid", text, "give the number of a process"]);
    }
    run(&["hist", "--ring-kib", "3"])
        .expect(USAGE, &["--ring-kib", "power of two"])
        .one_sentence();
}

/// They would be options of `top`, and silently not hold for the command.
#[test]
fn options_before_a_command_are_not_lost() {
    run(&["--pid", "1", "hist"]).expect(USAGE, &["--pid", "hist"]);
}

#[test]
fn top_without_a_terminal_names_what_works() {
    run(&["top"])
        .expect(USAGE, &["terminal", "uio-trace hist"])
        .one_sentence();
    run(&[])
        .expect(USAGE, &["terminal", "uio-trace hist"])
        .one_sentence();
}

#[test]
fn help_and_version() {
    let help = run(&["--help"]).expect(DONE, &[]);
    for text in [
        "top",
        "hist",
        "check",
        "--pid",
        "Exit codes",
        "4 this kernel cannot",
    ] {
        assert!(help.out.contains(text), "'{text}' is not in {}", help.out);
    }
    let help = run(&["hist", "--help"]).expect(DONE, &[]);
    for text in ["INTERVAL", "COUNT", "--json", "--duration", "--slow"] {
        assert!(help.out.contains(text), "'{text}' is not in {}", help.out);
    }
    let version = run(&["--version"]).expect(DONE, &[]).out;
    assert!(
        version.starts_with(concat!("uio-trace ", env!("CARGO_PKG_VERSION"))),
        "{version}"
    );
    let stamp = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/bpf/stamp")).unwrap();
    let key = format!("object {} = ", std::env::consts::ARCH);
    let object = stamp.lines().find_map(|line| line.strip_prefix(&key)).unwrap();
    assert!(version.contains(&format!("bpf {}", &object[..12])), "{version}");
}

/// One clear sentence where the kernel cannot, results where it can.
#[test]
fn this_kernel_can_or_says_why_not() {
    let check = run(&["check"]);
    assert!(check.out.starts_with("uio-trace "), "{check:?}");
    for text in ["kernel ", "BTF: ", "lockdown: ", "capabilities"] {
        assert!(check.out.contains(text), "'{text}' is not in {check:?}");
    }
    let hist = run(&["hist", "--duration", "0.2"]);
    match check.code {
        DONE => {
            let hist = hist.expect(DONE, &[]);
            assert!(hist.out.contains("LOSSES"), "{hist:?}");
        }
        // It asks before it tries, so both say the same.
        code @ (NOT_PERMITTED | KERNEL) => {
            let check = check.expect(code, &[]).one_sentence();
            let hist = hist.expect(code, &[]).one_sentence();
            assert!(hist.out.is_empty(), "{hist:?}");
            if code == KERNEL {
                assert_eq!(hist.err, check.err);
                assert!(hist.err.contains("kernel"), "{hist:?}");
            }
        }
        _ => panic!("{check:?}"),
    }
}

#[test]
fn check_as_json_is_one_record() {
    let check = run(&["check", "--json"]);
    assert_eq!(check.out.lines().count(), 1, "{check:?}");
    let record: serde_json::Value = serde_json::from_str(&check.out).unwrap();
    assert_eq!(record["type"], "meta");
    assert_eq!(record["schema_version"], 1);
    for field in ["host", "kernel", "lockdown", "probes", "missing_capabilities"] {
        assert!(!record[field].is_null(), "{field}: {record}");
    }
}

/// The program where any user can start it: the build folder may be in root's own home.
struct Copied(PathBuf);

impl Copied {
    fn new() -> Copied {
        let folder = std::env::temp_dir().join(format!("uio-trace-cli-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        fs::copy(PROGRAM, folder.join("uio-trace")).unwrap();
        fs::set_permissions(folder.join("uio-trace"), Permissions::from_mode(0o755)).unwrap();
        Copied(folder)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn without_privileges_it_names_them_and_the_command_that_works() {
    let copied = Copied::new();
    let program = copied.0.join("uio-trace");
    let nobody = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments);
        // SAFETY: geteuid takes no argument and cannot fail.
        if unsafe { libc::geteuid() } == 0 {
            command.uid(65534).gid(65534);
        }
        end(&mut command)
    };
    if nobody(&["check"]).code == DONE {
        // Not root, and allowed all the same: nothing to see here.
        return;
    }
    let sudo = format!("sudo {} hist 1 --comm 'two words'", program.display());
    let hist = nobody(&["hist", "1", "--comm", "two words"]).one_sentence();
    hist.expect(NOT_PERMITTED, &["CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN", &sudo]);
    let check = nobody(&["check"])
        .one_sentence()
        .expect(NOT_PERMITTED, &["CAP_BPF", "sudo "]);
    assert!(check.out.contains("capabilities missing: CAP_BPF"), "{check:?}");
    // A mistake on the command line is told first: sudo would not help.
    nobody(&["hist", "x"]).expect(USAGE, &["INTERVAL"]);
}

/// A pipe whose reader is gone, as after `| head -0`.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    for arguments in [&["check"][..], &["check", "--json"], &["--help"], &["--version"]] {
        let ended = end(Command::new(PROGRAM)
            .args(arguments)
            .env("RUST_BACKTRACE", "1")
            .stdout(closed()));
        assert_eq!(ended.expect(DONE, &[]).err, "", "{arguments:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    for arguments in [&["check"][..], &["check", "--json"], &["--help"], &["--version"]] {
        let ended = end(Command::new(PROGRAM).args(arguments).stdout(full()));
        let ended = ended.one_sentence();
        ended.expect(
            FAILED,
            &["writing to standard output failed", "No space left on device"],
        );
    }
}

/// A command line, run with a standard output that is closed, as a shell's `>&-` has it.
fn without_output(arguments: &[&str]) -> Ended {
    let mut command = Command::new(PROGRAM);
    command.args(arguments);
    // SAFETY: a system call alone.
    unsafe {
        command.pre_exec(|| {
            libc::close(libc::STDOUT_FILENO);
            Ok(())
        })
    };
    end(&mut command)
}

#[test]
fn a_closed_output_is_a_failure() {
    for arguments in [
        &["check"][..],
        &["check", "--json"],
        &["--version"],
        &["--help"],
        &["hist", "--duration", "0.2"],
        &["hist", "1", "1", "--json"],
        &["report", "/nonexistent"],
        &["report", "--live", "0.2"],
        &["diff", "/nonexistent", "/nonexistent"],
    ] {
        without_output(arguments)
            .one_sentence()
            .expect(FAILED, &["standard output is closed", "lost"]);
    }
    // Who writes no result there does not need it.
    without_output(&["report", "/nonexistent", "-o", "/dev/null"]).expect(FAILED, &["No such file"]);
    without_output(&["record", "-o", "/no/such"]).expect(FAILED, &["/no/such cannot be written"]);
    // Results that are not wanted are something else, whichever way /dev/null was opened.
    for (read, write) in [(true, true), (false, true)] {
        let null = OpenOptions::new().read(read).write(write).open("/dev/null");
        end(Command::new(PROGRAM).arg("--version").stdout(null.unwrap())).expect(DONE, &[]);
    }
}

/// Nobody to complain to: the exit code still tells.
#[test]
fn a_lost_standard_error_does_not_change_the_exit_code() {
    let hist = ["hist", "--duration", "0.2"];
    let code = run(&hist).code;
    for stderr in [closed(), full().into()] {
        let status = Command::new(PROGRAM)
            .args(hist)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .status();
        assert_eq!(status.unwrap().code(), Some(code));
    }
    let status = Command::new(PROGRAM).arg("--bogus").stderr(full()).status();
    assert_eq!(status.unwrap().code(), Some(USAGE));
}

/// `--pid` and `--device` of something that is not there; only told where tracing is possible at all.
#[test]
fn asked_for_things_must_exist() {
    if !can_trace() {
        return;
    }
    let gone = Path::new("/proc/4194304");
    if !gone.exists() {
        run(&["hist", "--duration", "1", "--pid", "4194304"])
            .expect(USAGE, &["--pid 4194304", "no such process"]);
    }
}

/// `--cgroup` of something that is not there says so before anything is traced, whatever this kernel allows; where the tool may
/// not trace at all, that comes first.
#[test]
fn a_cgroup_must_exist() {
    run(&["report", "/nonexistent", "--cgroup", "/a"]).expect(USAGE, &["--cgroup", "record"]);
    let asked = |path: &str| run(&["hist", "--duration", "1", "--cgroup", path]);
    if asked("/").code == NOT_PERMITTED {
        return;
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    if !mounts.contains(" - cgroup2 ") {
        asked("/no-such-cgroup/x").expect(KERNEL, &["--cgroup /no-such-cgroup/x: no cgroup v2 hierarchy"]);
        return;
    }
    asked("/no-such-cgroup/x").expect(
        USAGE,
        &["--cgroup /no-such-cgroup/x: there is no cgroup no-such-cgroup in /sys/fs/cgroup"],
    );
    asked("no-such-cgroup").expect(USAGE, &["give the whole path, below /sys/fs/cgroup"]);
}

#[test]
fn words_that_are_no_text_are_a_usage_error() {
    use std::os::unix::ffi::OsStrExt;
    let word = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    end(Command::new(PROGRAM).arg(word)).expect(USAGE, &["--help"]);
    end(Command::new(PROGRAM).args(["hist", "--comm"]).arg(word)).expect(USAGE, &["--help"]);
}

/// A folder of this test's own.
fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("uio-trace-cli-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    folder
}

#[test]
fn record_says_at_once_what_it_cannot_write() {
    let folder = scratch("record");
    let there = folder.join("there");
    fs::write(&there, "before").unwrap();
    let file = |path: &Path| path.to_str().unwrap().to_owned();
    run(&["record", "-o", &file(&there)])
        .expect(USAGE, &["there exists", "--force"])
        .one_sentence();
    assert_eq!(fs::read_to_string(&there).unwrap(), "before");
    run(&["record", "-o", &file(&folder.join("no/such"))])
        .expect(FAILED, &["no/such", "cannot be written", "folder"])
        .one_sentence();
    run(&["record", "--force", "-o", "/dev/full"])
        .expect(USAGE, &["/dev/full is not a file"])
        .one_sentence();
    run(&["record"]).expect(USAGE, &["--output"]);
    run(&["record", "-o", "-"])
        .expect(USAGE, &["-o -", "./-"])
        .one_sentence();
    if !can_trace() {
        for arguments in [
            vec!["record", "-o", "new"],
            vec!["record", "--force", "-o", "there"],
            vec!["record", "-o", "new", "--trigger", "stuck > 5s"],
        ] {
            let ended = end(Command::new(PROGRAM).args(&arguments).current_dir(&folder));
            assert!([NOT_PERMITTED, KERNEL].contains(&ended.code), "{ended:?}");
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left");
        assert_eq!(fs::read_to_string(&there).unwrap(), "before");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_trigger_that_means_nothing_is_shown_with_its_spot() {
    let ended = run(&["record", "-o", "/no/such/file", "--trigger", "aio.drain < 1s"]);
    let ended = ended.expect(USAGE, &["--trigger"]);
    let lines: Vec<&str> = ended.err.lines().collect();
    assert_eq!(lines[1], "  aio.drain < 1s");
    assert_eq!(lines[2], "            ^ give >");
    let ring = ["record", "-o", "f", "--ring-seconds", "5"];
    run(&ring).expect(USAGE, &["--trigger"]);
    let ring = [
        "record",
        "-o",
        "f",
        "--ring-seconds",
        "0",
        "--trigger",
        "stuck > 1s",
    ];
    run(&ring).expect(USAGE, &["--ring-seconds 0"]).one_sentence();
    for size in ["abc", "1K", "-5"] {
        run(&["record", "-o", "f", &format!("--max-size={size}")])
            .expect(USAGE, &["--max-size", size])
            .one_sentence();
    }
}

#[test]
fn replay_says_what_a_file_is_not_and_where_to_run() {
    let folder = scratch("replay");
    let path = folder.join("a");
    let replay = || run(&["replay", path.to_str().unwrap()]);
    replay().expect(FAILED, &["No such file"]).one_sentence();
    fs::write(&path, "").unwrap();
    replay().expect(FAILED, &["it is empty"]).one_sentence();
    fs::write(&path, "{}\n").unwrap();
    replay().expect(FAILED, &["not a recording"]).one_sentence();
    use uio_trace::recording::frame::{file_header, file_header_of};
    fs::write(&path, file_header_of(9, 0)).unwrap();
    replay()
        .expect(FAILED, &["version 9.0", "newer uio-trace"])
        .one_sentence();
    // A recording, if a short one: what is missing is the terminal.
    fs::write(&path, file_header()).unwrap();
    replay().expect(USAGE, &["terminal"]).one_sentence();
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn exec_answers_as_a_shell_does_when_the_command_cannot_be_run() {
    let folder = scratch("exec");
    run(&["exec", "--", "no-such-command-here"])
        .expect(127, &["no-such-command-here", "PATH"])
        .one_sentence();
    run(&["exec", "--", "/no/such/command"])
        .expect(127, &["no such command"])
        .one_sentence();
    run(&["exec", "--", "/"])
        .expect(126, &["not executable"])
        .one_sentence();
    run(&["exec", "--", ""])
        .expect(127, &["no such command"])
        .one_sentence();
    run(&["exec"]).expect(USAGE, &["CMD"]);
    run(&["exec", "--pid", "1", "--", "true"])
        .expect(USAGE, &["--pid"])
        .one_sentence();
    let there = folder.join("there");
    fs::write(&there, "before").unwrap();
    fs::set_permissions(&there, Permissions::from_mode(0o644)).unwrap();
    run(&["exec", "--", there.to_str().unwrap()])
        .expect(126, &["not executable"])
        .one_sentence();
    run(&["exec", "-o", there.to_str().unwrap(), "--", "true"])
        .expect(USAGE, &["exists", "--force"])
        .one_sentence();
    assert_eq!(fs::read_to_string(&there).unwrap(), "before");
    let unwritten = folder.join("no/such");
    let ran = folder.join("ran");
    let touch = ["--", "touch", ran.to_str().unwrap()];
    run(&[&["exec", "-o", unwritten.to_str().unwrap()][..], &touch].concat())
        .expect(FAILED, &["no/such cannot be written"])
        .one_sentence();
    without_output(&[&["exec", "-o", "-"][..], &touch].concat())
        .expect(FAILED, &["standard output is closed"]);
    assert!(!ran.exists(), "the command has run all the same");
    fs::remove_dir_all(&folder).unwrap();
}
