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
                let (Ok(name), Ok(version)) = (text("name"), text("version")) else {
                    continue;
                };
                if answer
                    .send((
                        life,
                        UioDeviceInfo {
                            minor: life.minor,
                            name,
                            version,
                        },
                    ))
                    .is_err()
                {
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
            }
        }
        while let Ok((life, info)) = self.answers.try_recv() {
            if let Some(known) = self.known.get_mut(&life) {
                *known = Some(info);
                changed = true;
            }
        }
        changed.then(|| self.known.values().flatten().cloned().collect())
    }
}
