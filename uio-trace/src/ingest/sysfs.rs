//! What /sys/class/uio shows. Reading `name` takes the device's info_lock, so it is read once per device, and by a thread of
//! its own: a device whose lock is never released must not stop the tool.

use crate::{event::UioDeviceInfo, kernel::Root};
use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

/// A device folder: a re-registered minor has another inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Life {
    minor: u32,
    inode: u64,
}

/// Follows /sys/class/uio.
pub struct UioSysfs {
    root: Root,
    ask: Sender<(Life, PathBuf)>,
    answers: Receiver<(Life, UioDeviceInfo)>,
    /// `None`: asked for.
    known: BTreeMap<Life, Option<UioDeviceInfo>>,
}

impl UioSysfs {
    /// Starts the reading thread; it ends with this value.
    pub fn start(root: Root) -> UioSysfs {
        let (ask, questions) = channel::<(Life, PathBuf)>();
        let (answer, answers) = channel();
        thread::spawn(move || {
            for (life, folder) in questions {
                let text = |file: &str| {
                    std::fs::read_to_string(folder.join(file)).map(|s| s.trim_end_matches('\n').to_owned())
                };
                let info = UioDeviceInfo {
                    minor: life.minor,
                    name: text("name").ok(),
                    version: text("version").ok(),
                };
                if answer.send((life, info)).is_err() {
                    return;
                }
            }
        });
        UioSysfs {
            root,
            ask,
            answers,
            known: BTreeMap::new(),
        }
    }

    /// Devices there are now and whose names are known; `None`: nothing changed since the last call.
    pub fn poll(&mut self) -> Option<Vec<UioDeviceInfo>> {
        let mut lives = Vec::new();
        if let Ok(folder) = std::fs::read_dir(self.root.join("sys/class/uio")) {
            for entry in folder.flatten() {
                let minor = entry
                    .file_name()
                    .to_str()
                    .and_then(|n| n.strip_prefix("uio")?.parse().ok());
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
        for (life, path) in lives {
            if !self.known.contains_key(&life) && self.ask.send((life, path)).is_ok() {
                self.known.insert(life, None);
                changed = true;
            }
        }
        while let Ok((life, info)) = self.answers.try_recv() {
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
    use std::{fs, time::Duration};

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
}
