//! PID 1: mounts, modules, the job, its exit status, power off.

use std::ffi::CString;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::job::Job;
use crate::{kernel_modules, report};

const MOUNTS: [(&str, &str); 9] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("devpts", "/dev/pts"),
    ("tmpfs", "/tmp"),
    ("tracefs", "/sys/kernel/tracing"),
    ("debugfs", "/sys/kernel/debug"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("bpf", "/sys/fs/bpf"),
];

/// Never returns: the machine is powered off.
pub fn main() -> ! {
    let status = match bring_up().and_then(|job| run(&job)) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("init: {error:#}");
            report::line(&format!("UIO-TRACE-TEST guest FAILED {error:#}"));
            1
        }
    };
    report::line(&format!("UIO-TRACE-EXIT {status}"));
    // SAFETY: both calls take no memory; reboot with this command does not return in PID 1.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    std::process::abort()
}

fn bring_up() -> Result<Job> {
    for (kind, place) in MOUNTS {
        mount(kind, place)?;
    }
    // SAFETY: PID 1 has no other thread yet that could read the environment.
    unsafe {
        std::env::set_var("PATH", "/bin:/sbin:/usr/bin:/usr/sbin");
        std::env::set_var("HOME", "/root");
    }
    report::make_port_raw();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    report::line(&format!("UIO-TRACE-UP {}", release.trim()));
    let _ = std::fs::write("/proc/sys/kernel/hostname", "guest");
    let installed = Command::new("/bin/busybox")
        .args(["--install", "-s", "/bin"])
        .status();
    if !installed.is_ok_and(|status| status.success()) {
        bail!("busybox cannot install its names");
    }
    // Named by the tests of TCMU; a kernel may have it built in.
    if kernel_modules::load("configfs").is_ok() || std::path::Path::new("/sys/kernel/config").exists() {
        let _ = mount("configfs", "/sys/kernel/config");
    }
    loopback_up();
    let job = Job::read()?;
    for module in &job.modules {
        if module.starts_with("uio_testbed") && !kernel_modules::have_testbed() {
            continue;
        }
        kernel_modules::load(module)?;
    }
    Ok(job)
}

/// So that a listener on 127.0.0.1 can be reached.
fn loopback_up() {
    let _ = Command::new("ifconfig")
        .args(["lo", "127.0.0.1", "up"])
        .stderr(Stdio::null())
        .status();
}

fn mount(kind: &str, place: &str) -> Result<()> {
    let _ = std::fs::create_dir_all(place);
    let kind_c = CString::new(kind)?;
    let place_c = CString::new(place)?;
    // SAFETY: all strings end in NUL and live through the call; no data argument.
    let result = unsafe {
        libc::mount(
            kind_c.as_ptr(),
            place_c.as_ptr(),
            kind_c.as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    let error = std::io::Error::last_os_error();
    // The kernel may have mounted /dev by itself.
    if result != 0 && error.raw_os_error() != Some(libc::EBUSY) {
        return Err(error).with_context(|| format!("cannot mount {kind} on {place}"));
    }
    Ok(())
}

/// Runs the job's command, reaping whatever else ends meanwhile; its exit status, 128 + signal when killed.
fn run(job: &Job) -> Result<i32> {
    let (program, arguments) = job.command.split_first().context("the job has no command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    match &job.terminal {
        Some((rows, columns, kind)) => give_terminal(&mut command, *rows, *columns, kind)?,
        None => {
            command.stdin(Stdio::null());
        }
    }
    let child = command
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let child = i32::try_from(child.id())?;
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the result.
        let ended = unsafe { libc::waitpid(-1, &mut status, 0) };
        if ended == child {
            return Ok(if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                128 + libc::WTERMSIG(status)
            });
        }
        if ended < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD) {
            bail!("the job's process is gone");
        }
    }
}

/// A session of its own on the serial console, of the size of the terminal that shows it.
fn give_terminal(command: &mut Command, rows: u16, columns: u16, kind: &str) -> Result<()> {
    // Kernel messages would be drawn over the screen.
    let _ = std::fs::write("/proc/sys/kernel/printk", "1");
    let open = || {
        std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/ttyS0")
    };
    let terminal = open().context("cannot open the console")?;
    set_size(&terminal, rows, columns);
    command.env("TERM", kind).env("LANG", "C.UTF-8");
    command
        .stdin(terminal.try_clone()?)
        .stdout(terminal.try_clone()?)
        .stderr(terminal.try_clone()?);
    // SAFETY: setsid and ioctl are async-signal-safe; descriptor 0 is the terminal by then.
    unsafe {
        command.pre_exec(|| {
            if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    std::thread::spawn(move || follow_size(&terminal));
    Ok(())
}

/// New sizes of the terminal in front of the harness come as lines `ROWS COLUMNS` on the third port.
fn follow_size(terminal: &std::fs::File) {
    let Ok(control) = std::fs::File::open("/dev/ttyS2") else {
        return;
    };
    for line in BufReader::new(control).lines().map_while(Result::ok) {
        let mut numbers = line
            .split_whitespace()
            .filter_map(|word| word.parse::<u16>().ok());
        if let (Some(rows), Some(columns)) = (numbers.next(), numbers.next()) {
            set_size(terminal, rows, columns);
        }
    }
}

fn set_size(terminal: &std::fs::File, rows: u16, columns: u16) {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the descriptor is open and `size` is what TIOCSWINSZ reads.
    unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &size) };
}
