//! What /sys/class/uio shows. Reading `name` takes the device's info_lock, so it is read once per device, and by a thread for
//! that device alone: one whose lock is never released must neither stop the tool nor hide the others' names.

use crate::{event::UioDeviceInfo, kernel::Root};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

/// How long new devices may take to tell their names before the others go on without.
const PATIENCE: Duration = Duration::from_millis(100);

/// A device folder: a re-registered minor has another inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Life {
    minor: u32,
    inode: u64,
}

/// An attribute without its last newline. A driver may call its device anything: what is no UTF-8 is replaced.
fn text(folder: &Path, file: &str) -> Option<String> {
    let bytes = std::fs::read(folder.join(file)).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned())
}

fn read(minor: u32, folder: &Path) -> UioDeviceInfo {
    UioDeviceInfo {
        minor,
        name: text(folder, "name"),
        version: text(folder, "version"),
        driver: target(folder, "device/driver"),
        parent: target(folder, "device"),
    }
}

/// Last part of where a link leads.
fn target(folder: &Path, link: &str) -> Option<String> {
    let target = std::fs::read_link(folder.join(link)).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// N of `uioN`.
fn minor_of(file_name: &OsStr) -> Option<u32> {
    file_name.to_str()?.strip_prefix("uio")?.parse().ok()
}

/// Minors of the devices there are, ascending; `None`: uio is not there.
pub fn minors(root: &Root) -> Option<Vec<u32>> {
    let folder = std::fs::read_dir(root.join("sys/class/uio")).ok()?;
    let mut minors: Vec<u32> = folder
        .flatten()
        .filter_map(|entry| minor_of(&entry.file_name()))
        .collect();
    minors.sort_unstable();
    Some(minors)
}

/// The names of these devices, as far as they can be read within `patience`.
pub fn names(root: &Root, minors: &[u32], patience: Duration) -> Vec<UioDeviceInfo> {
    let (send, receive) = channel();
    for &minor in minors {
        let (send, folder) = (send.clone(), root.join(format!("sys/class/uio/uio{minor}")));
        // One each: a device that never answers must not hide the others.
        thread::spawn(move || send.send((minor, text(&folder, "name"))));
    }
    drop(send);
    let until = Instant::now() + patience;
    let mut names = BTreeMap::new();
    while let Ok((minor, name)) = receive.recv_timeout(until.saturating_duration_since(Instant::now())) {
        names.insert(minor, name);
    }
    let info = |&minor: &u32| UioDeviceInfo {
        minor,
        name: names.remove(&minor).flatten(),
        version: None,
        ..UioDeviceInfo::default()
    };
    minors.iter().map(info).collect()
}

/// Follows /sys/class/uio.
pub struct UioSysfs {
    root: Root,
    answer: Sender<(Life, UioDeviceInfo)>,
    answers: Receiver<(Life, UioDeviceInfo)>,
    /// `None`: asked for.
    known: BTreeMap<Life, Option<UioDeviceInfo>>,
}

impl UioSysfs {
    /// Nothing is read yet.
    pub fn start(root: Root) -> UioSysfs {
        let (answer, answers) = channel();
        UioSysfs {
            root,
            answer,
            answers,
            known: BTreeMap::new(),
        }
    }

    /// Devices there are now and whose names are known; `None`: nothing changed since the last call.
    pub fn poll(&mut self) -> Option<Vec<UioDeviceInfo>> {
        let mut lives = Vec::new();
        if let Ok(folder) = std::fs::read_dir(self.root.join("sys/class/uio")) {
            for entry in folder.flatten() {
                let minor = minor_of(&entry.file_name());
                if let (Some(minor), Ok(metadata)) = (minor, std::fs::metadata(entry.path())) {
                    lives.push((
                        Life {
                            minor,
                            inode: metadata.ino(),
                        },
                        entry.path(),
                    ));
                }
            }
        }
        let before = self.known.len();
        self.known.retain(|life, _| lives.iter().any(|(l, _)| l == life));
        let mut changed = self.known.len() != before;
        let mut asked = BTreeSet::new();
        for (life, path) in lives {
            if !self.known.contains_key(&life) {
                let answer = self.answer.clone();
                thread::spawn(move || answer.send((life, read(life.minor, &path))));
                self.known.insert(life, None);
                asked.insert(life);
            }
        }
        changed |= !asked.is_empty();
        // Names come at once unless somebody holds the lock: a trace that ends right after has them, too.
        let until = Instant::now() + PATIENCE;
        loop {
            let patience = match asked.is_empty() {
                true => Duration::ZERO,
                false => until.saturating_duration_since(Instant::now()),
            };
            let Ok((life, info)) = self.answers.recv_timeout(patience) else {
                break;
            };
            asked.remove(&life);
            if let Some(known) = self.known.get_mut(&life) {
                *known = Some(info);
                changed = true;
            }
        }
        // Also those whose name is still being read: a device that is not listed is taken for gone.
        changed.then(|| {
            let unread = |life: &Life| UioDeviceInfo {
                minor: life.minor,
                name: None,
                version: None,
                ..UioDeviceInfo::default()
            };
            self.known
                .iter()
                .map(|(life, info)| info.clone().unwrap_or_else(|| unread(life)))
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn one_that_never_answers_hides_nobody() {
        let root = std::env::temp_dir().join(format!("uio-trace-sysfs-held-{}", std::process::id()));
        let class = root.join("sys/class/uio");
        for minor in 0..20 {
            fs::create_dir_all(class.join(format!("uio{minor}"))).unwrap();
            fs::write(class.join(format!("uio{minor}/name")), "disk\n").unwrap();
        }
        // Nobody ever writes to it: reading its name does not return, as under a lock that is held.
        fs::remove_file(class.join("uio0/name")).unwrap();
        let path = std::ffi::CString::new(class.join("uio0/name").to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        let mut sysfs = UioSysfs::start(Root::at(&root));
        let first = sysfs.poll().unwrap();
        let named = first.iter().filter(|d| d.name.is_some()).count();
        assert_eq!((first.len(), named), (20, 19));
        // It is not waited for again.
        let begin = Instant::now();
        assert_eq!(sysfs.poll(), None);
        assert!(begin.elapsed() < PATIENCE);
        fs::remove_dir_all(&root).unwrap();
    }

    /// A device whose name cannot be read (here: there is none) is listed all the same, without holding up the others.
    #[test]
    fn a_device_is_listed_before_its_name_is_known() {
        let root = std::env::temp_dir().join(format!("uio-trace-sysfs-{}", std::process::id()));
        let class = root.join("sys/class/uio");
        fs::create_dir_all(class.join("uio0")).unwrap();
        fs::create_dir_all(class.join("uio7")).unwrap();
        fs::write(class.join("uio7/name"), "disk\n").unwrap();
        fs::write(class.join("uio7/version"), "1\n").unwrap();
        let mut sysfs = UioSysfs::start(Root::at(&root));
        let mut last = sysfs.poll().unwrap();
        assert_eq!(
            last.iter().map(|d| d.minor).collect::<Vec<_>>(),
            [0, 7],
            "both at once"
        );
        for _ in 0..500 {
            if last[1].name.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
            last = sysfs.poll().unwrap_or(last);
        }
        assert_eq!(
            (last[0].name.as_deref(), last[1].name.as_deref()),
            (None, Some("disk"))
        );
        fs::remove_dir_all(class.join("uio0")).unwrap();
        let left = sysfs.poll().unwrap();
        assert_eq!(left.iter().map(|d| d.minor).collect::<Vec<_>>(), [7]);
        fs::remove_dir_all(&root).unwrap();
    }

    /// Any bytes are a name; names are read one by one, and what is not there has none.
    #[test]
    fn a_name_may_be_no_text() {
        let root = std::env::temp_dir().join(format!("uio-trace-sysfs-names-{}", std::process::id()));
        let class = root.join("sys/class/uio");
        fs::create_dir_all(class.join("uio3")).unwrap();
        fs::create_dir_all(class.join("uio1")).unwrap();
        fs::create_dir_all(class.join("uiox")).unwrap();
        fs::write(class.join("uio3/name"), b"a\xff\x1b[2Jb\n").unwrap();
        let at = Root::at(&root);
        let minors = minors(&at).unwrap();
        assert_eq!(minors, [1, 3]);
        let names: Vec<Option<String>> = names(&at, &minors, Duration::from_secs(20))
            .into_iter()
            .map(|d| d.name)
            .collect();
        assert_eq!(names, [None, Some("a\u{fffd}\u{1b}[2Jb".to_owned())]);
        assert_eq!(super::minors(&Root::at(root.join("nowhere"))), None);
        fs::remove_dir_all(&root).unwrap();
    }
}
