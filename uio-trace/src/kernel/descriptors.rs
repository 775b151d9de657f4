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
