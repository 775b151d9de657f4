//! CMD: found, run as the user who called sudo, ended with its own status.

use crate::error::AppError;
use std::{
    ffi::{CString, OsStr, OsString},
    io,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt, process::CommandExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
};

/// As shells say that a command is not there.
const NOT_FOUND: u8 = 127;
/// As shells say that it is there and cannot be run.
const NOT_EXECUTABLE: u8 = 126;
/// As shells say that a signal ended it: this and its number.
const SIGNALLED: u8 = 128;

fn refused(name: &OsStr, status: u8, why: &str) -> AppError {
    AppError::Command {
        message: Some(format!(
            "{}: {why}",
            crate::format::printable(name.to_string_lossy().into_owned())
        )),
        status,
    }
}

/// Where CMD is, searched as a shell does.
///
/// # Errors
/// [`AppError::Command`] with 127 or 126.
pub fn find(name: &OsStr) -> Result<PathBuf, AppError> {
    let missing = "there is no such command: give its path, or a name that is in PATH";
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match path.metadata() {
            Err(_) => Err(refused(name, NOT_FOUND, missing)),
            Ok(meta) if executable(&meta) => Ok(path),
            Ok(_) => Err(refused(
                name,
                NOT_EXECUTABLE,
                "it is not executable: see chmod(1)",
            )),
        };
    }
    let mut there = false;
    let search = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    for folder in std::env::split_paths(&search).filter(|_| !name.is_empty()) {
        let path = folder.join(name);
        match path.metadata() {
            Ok(meta) if executable(&meta) => return Ok(path),
            Ok(_) => there = true,
            Err(_) => {}
        }
    }
    Err(if there {
        refused(name, NOT_EXECUTABLE, "it is not executable: see chmod(1)")
    } else {
        refused(name, NOT_FOUND, missing)
    })
}

fn executable(meta: &std::fs::Metadata) -> bool {
    meta.is_file() && meta.permissions().mode() & 0o111 != 0
}

/// The user who called sudo.
#[derive(Debug, Clone, PartialEq, Eq)]
struct User {
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
    name: Option<String>,
    home: Option<String>,
}

impl User {
    /// From what sudo left in the environment; `None`: nobody else than who runs this.
    ///
    /// Names, homes and groups are read from the files themselves: a static binary has no name service. Who is known
    /// only to a directory service keeps uid and gid, and has no further groups.
    fn invoking(var: impl Fn(&str) -> Option<String>, passwd: &str, group: &str) -> Option<User> {
        let number = |name: &str| var(name)?.parse::<u32>().ok();
        let (uid, gid) = (number("SUDO_UID")?, number("SUDO_GID")?);
        let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
        let entry = passwd
            .lines()
            .map(fields)
            .find(|entry| entry.get(2).and_then(|id| id.parse().ok()) == Some(uid));
        let name = entry.as_ref().and_then(|entry| entry.first().cloned());
        let mut groups = vec![gid];
        for entry in group.lines().map(fields) {
            let member = |list: &String| list.split(',').any(|member| Some(member) == name.as_deref());
            if let (Some(id), true) = (
                entry.get(2).and_then(|id| id.parse().ok()),
                entry.get(3).is_some_and(member),
            ) && !groups.contains(&id)
            {
                groups.push(id);
            }
        }
        Some(User {
            uid,
            gid,
            groups,
            home: entry.and_then(|entry| entry.get(5).cloned()),
            name,
        })
    }
}

/// Starts CMD with this process' own input, output and errors.
///
/// # Errors
/// [`AppError::Command`] with 127 or 126.
pub fn start(path: &Path, command: &[OsString]) -> Result<Child, AppError> {
    let name = command.first().map_or(OsStr::new(""), |name| name);
    let mut process = Command::new(path);
    process.args(command.iter().skip(1));
    process.arg0(name);
    // SAFETY: no arguments, cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let user = User::invoking(
        |name| std::env::var(name).ok(),
        &text("/etc/passwd"),
        &text("/etc/group"),
    );
    if let Some(user) = user.filter(|_| root) {
        if let Some(name) = &user.name {
            process.env("USER", name).env("LOGNAME", name);
        }
        if let Some(home) = &user.home {
            process.env("HOME", home);
        }
        for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND"] {
            process.env_remove(name);
        }
        let drop_to = move || {
            // SAFETY: system calls alone, on memory that was made before the fork.
            let refused = unsafe {
                libc::setgroups(user.groups.len(), user.groups.as_ptr()) != 0
                    || libc::setgid(user.gid) != 0
                    || libc::setuid(user.uid) != 0
            };
            if refused {
                Err(io::Error::last_os_error())
            } else {
                Ok(())
            }
        };
        // SAFETY: `drop_to` allocates nothing and takes no lock.
        unsafe { process.pre_exec(drop_to) };
    }
    process.spawn().map_err(|cause| match cause.kind() {
        io::ErrorKind::NotFound => refused(name, NOT_FOUND, &format!("it cannot be started: {cause}")),
        _ => refused(name, NOT_EXECUTABLE, &format!("it cannot be started: {cause}")),
    })
}

/// The status to end with, as shells have it.
pub fn status(ended: ExitStatus) -> u8 {
    match (ended.code(), ended.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => SIGNALLED.wrapping_add(signal as u8),
        (None, None) => SIGNALLED,
    }
}

/// Passes a signal on, unless CMD has it already: the terminal sends its own to all of its foreground processes.
pub fn forward(child: &Child, signal: libc::c_int) {
    if matches!(signal, libc::SIGINT | libc::SIGQUIT) && in_foreground() {
        return;
    }
    // SAFETY: a child that has not been waited for, so its id is its own.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
}

/// Whether this process is in its terminal's foreground.
fn in_foreground() -> bool {
    let Ok(path) = CString::new("/dev/tty") else {
        return false;
    };
    // SAFETY: a string that ends with a zero; the descriptor is closed below.
    unsafe {
        let terminal = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY);
        if terminal < 0 {
            return false;
        }
        let foreground = libc::tcgetpgrp(terminal) == libc::getpgrp();
        libc::close(terminal);
        foreground
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_invoking_user_has_his_own_groups() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nana:x:1000:1000::/home/ana:/bin/sh\n";
        let group = "root:x:0:\ndisk:x:6:ana\nvideo:x:44:bo,ana\nana:x:1000:ana\nxana:x:7:xana\n";
        let var = |name: &str| match name {
            "SUDO_UID" | "SUDO_GID" => Some("1000".to_owned()),
            _ => None,
        };
        let user = User::invoking(var, passwd, group).unwrap();
        assert_eq!(user.groups, [1000, 6, 44]);
        assert_eq!(
            (user.name.as_deref(), user.home.as_deref()),
            (Some("ana"), Some("/home/ana"))
        );
        let stranger = User::invoking(var, "", group).unwrap();
        assert_eq!((stranger.uid, stranger.groups), (1000, vec![1000]));
        assert_eq!(User::invoking(|_| None, passwd, group), None);
    }
}
