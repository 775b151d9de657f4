//! Who has UIO devices open, from /proc/PID/fd.

use super::Root;
use crate::event::{UioOpen, UioOpener};
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

/// Most processes with a device open that are listed.
const MAX_FOUND: usize = 256;

/// Descriptors of UIO devices in all processes; what is not finished `within` is left out, and said. Links are read, not
/// followed: a look at the file itself may hang.
pub fn scan(root: &Root, within: Duration) -> UioOpen {
    let until = Instant::now() + within;
    let mut open = UioOpen {
        openers: Vec::new(),
        complete: true,
    };
    for tgid in super::stacks::numbers(root, "proc") {
        if Instant::now() >= until || open.openers.len() >= MAX_FOUND {
            open.complete = false;
            break;
        }
        let folder = format!("proc/{tgid}/fd");
        match std::fs::read_dir(root.join(&folder)) {
            Ok(entries) => {
                let links = entries
                    .flatten()
                    .filter_map(|e| std::fs::read_link(e.path()).ok());
                for device in links.filter_map(|link| device(&link)) {
                    count(&mut open.openers, tgid, device);
                }
            }
            // It has ended meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(_) => open.complete = false,
        }
    }
    for opener in &mut open.openers {
        let comm = std::fs::read(root.join(format!("proc/{}/comm", opener.tgid))).unwrap_or_default();
        opener.comm = String::from_utf8_lossy(&comm).trim_end().to_owned();
    }
    // With hidepid only one's own processes are there to be seen.
    open.complete &= root.join("proc/1").exists();
    open
}

/// Descriptors of a process looked at for direct I/O.
const MAX_LOOKED_AT: usize = 1024;
/// Files of a process named that are open for direct I/O.
const MAX_DIRECT: usize = 8;

/// Files a process has open for direct I/O (`O_DIRECT`), each once: what asynchronous requests can be on that do not end at once.
/// `None`: they cannot be seen, or are too many to be looked at. Links are read, not followed.
pub fn direct_files(root: &Root, tgid: u32) -> Option<Vec<String>> {
    let descriptors = std::fs::read_dir(root.join(format!("proc/{tgid}/fdinfo"))).ok()?;
    let mut found: Vec<String> = Vec::new();
    for (looked_at, entry) in descriptors.flatten().enumerate() {
        if looked_at >= MAX_LOOKED_AT {
            return None;
        }
        let info = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|octal| i32::from_str_radix(octal.trim(), 8).ok());
        if flags.is_none_or(|flags| flags & libc::O_DIRECT == 0) {
            continue;
        }
        let link = root.join(format!("proc/{tgid}/fd")).join(entry.file_name());
        let Ok(path) = std::fs::read_link(link) else {
            continue;
        };
        let path: String = path
            .to_string_lossy()
            .chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect();
        // Pipes have a meaning of their own for the flag.
        if path.starts_with('/') && !found.contains(&path) && found.len() < MAX_DIRECT {
            found.push(path);
        }
    }
    found.sort_unstable();
    Some(found)
}

/// Minor of a link to a UIO device, and whether the device's node is gone.
fn device(link: &Path) -> Option<(u32, bool)> {
    let text = link.to_str()?;
    let (path, deleted) = match text.strip_suffix(" (deleted)") {
        Some(path) => (path, true),
        None => (text, false),
    };
    let (_, minor) = path.rsplit_once("/dev/uio")?;
    Some((minor.parse().ok()?, deleted))
}

fn count(openers: &mut Vec<UioOpener>, tgid: u32, (minor, deleted): (u32, bool)) {
    let same = |o: &&mut UioOpener| (o.tgid, o.minor, o.deleted) == (tgid, minor, deleted);
    match openers.iter_mut().find(same) {
        Some(opener) => opener.descriptors += 1,
        None => openers.push(UioOpener {
            minor,
            deleted,
            tgid,
            comm: String::new(),
            descriptors: 1,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_open_for_direct_io_are_named_once() {
        let root = std::env::temp_dir().join(format!("uio-trace-direct-{}", std::process::id()));
        for folder in ["proc/7/fd", "proc/7/fdinfo"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let direct = format!(
            "pos:\t0\nflags:\t{:o}\nmnt_id:\t1\n",
            libc::O_DIRECT | libc::O_RDWR
        );
        for (number, (target, info)) in [
            ("/dev/sdb", direct.as_str()),
            ("/data/a\u{1b}b", &direct),
            ("/dev/sdb", &direct),
            ("/var/log/x", "flags:\t0100002\n"),
            ("pipe:[5]", &direct),
        ]
        .into_iter()
        .enumerate()
        {
            fs::write(root.join(format!("proc/7/fdinfo/{number}")), info).unwrap();
            symlink(target, root.join(format!("proc/7/fd/{number}"))).unwrap();
        }
        let found = direct_files(&Root::at(&root), 7);
        assert_eq!(found.unwrap(), ["/data/a\u{fffd}b", "/dev/sdb"]);
        assert_eq!(direct_files(&Root::at(&root), 8), None);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn descriptors_are_counted_by_process_and_device() {
        let top = std::env::temp_dir().join(format!("uio-trace-descriptors-{}", std::process::id()));
        for (tgid, comm) in [("1", "init"), ("20", "tcmu-runner"), ("21", "a\u{1b}b")] {
            fs::create_dir_all(top.join(format!("proc/{tgid}/fd"))).unwrap();
            fs::write(top.join(format!("proc/{tgid}/comm")), format!("{comm}\n")).unwrap();
        }
        for (place, target) in [
            ("20/fd/3", "/dev/uio0"),
            ("20/fd/4", "/dev/uio0"),
            ("20/fd/5", "/dev/uio12"),
            ("20/fd/6", "/home/uio0"),
            ("20/fd/7", "/dev/uiox"),
            ("20/fd/8", "socket:[1]"),
            ("21/fd/0", "/run/box/dev/uio0 (deleted)"),
        ] {
            symlink(target, top.join("proc").join(place)).unwrap();
        }
        let root = Root::at(&top);
        let open = scan(&root, Duration::from_secs(60));
        let rows: Vec<(u32, bool, u32, &str, u64)> = open
            .openers
            .iter()
            .map(|o| (o.minor, o.deleted, o.tgid, o.comm.as_str(), o.descriptors))
            .collect();
        assert!(open.complete);
        assert_eq!(rows.len(), 3);
        assert!(rows.contains(&(0, false, 20, "tcmu-runner", 2)));
        assert!(rows.contains(&(12, false, 20, "tcmu-runner", 1)));
        assert!(rows.contains(&(0, true, 21, "a\u{1b}b", 1)));
        // No time, or processes that are hidden: not known to be all.
        assert!(!scan(&root, Duration::ZERO).complete);
        fs::remove_dir_all(top.join("proc/1")).unwrap();
        assert!(!scan(&root, Duration::from_secs(60)).complete);
        // A folder that cannot be read.
        fs::create_dir_all(top.join("proc/1")).unwrap();
        fs::write(top.join("proc/1/fd"), "").unwrap();
        assert!(!scan(&root, Duration::from_secs(60)).complete);
        fs::remove_dir_all(&top).unwrap();
    }
}
