//! `--cgroup`: where the cgroup is that the user names, and which one a process is in. cgroup v2 only: the kernel's question
//! "is this task in that cgroup or below" (bpf_current_task_under_cgroup) knows no other hierarchy.

use super::Root;
use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};
use thiserror::Error;

/// Why a name is none of a cgroup; each a sentence behind `--cgroup NAME: `.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CgroupError {
    /// No hierarchy of v2 is mounted.
    #[error(
        "no cgroup v2 hierarchy is mounted here (see /proc/self/mountinfo), and those of v1 cannot be asked for; \
         mount -t cgroup2 none /sys/fs/cgroup/unified, or boot with systemd.unified_cgroup_hierarchy=1"
    )]
    NoHierarchy,
    /// Not a path from the top.
    #[error("give the whole path, below {mount} or as in /proc/PID/cgroup, without '.' and '..'")]
    NotAPath {
        /// Where cgroup v2 is mounted.
        mount: String,
    },
    /// A path into another hierarchy.
    #[error("that is not below {mount}, where cgroup v2 is mounted")]
    Elsewhere {
        /// Where cgroup v2 is mounted.
        mount: String,
    },
    /// A level of the path is missing.
    #[error("there is no cgroup {level} in {parent}")]
    Missing {
        /// The first level that is not there.
        level: String,
        /// The last folder that is.
        parent: String,
    },
    /// Something else is there.
    #[error("{place} is no cgroup but a file of one")]
    File {
        /// The place.
        place: String,
    },
    /// It cannot be looked at.
    #[error("{place} cannot be looked at: {cause}")]
    Unreadable {
        /// The place.
        place: String,
        /// The system's reason.
        cause: String,
    },
}

/// Where a hierarchy is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    /// The folder.
    at: PathBuf,
    /// Which of its cgroups is shown there: `/` unless it is a part that was mounted.
    shows: String,
}

/// Of the mounts of cgroup v2 the first that shows all of it, else the first (proc_pid_mountinfo(5)).
fn hierarchy(mountinfo: &str) -> Option<Mount> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut words = mount.split(' ').skip(3);
        let (shows, at) = (words.next()?, words.next()?);
        (filesystem.split(' ').next()? == "cgroup2").then(|| Mount {
            at: PathBuf::from(at),
            shows: shows.to_owned(),
        })
    });
    let mut mounts: Vec<Mount> = mounts.collect();
    let whole = mounts.iter().position(|mount| mount.shows == "/").unwrap_or(0);
    (!mounts.is_empty()).then(|| mounts.swap_remove(whole))
}

/// A cgroup that was there when it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Its folder.
    folder: PathBuf,
    /// Its path as in `/proc/PID/cgroup`.
    name: String,
    /// Tells it from a later one of the same name.
    inode: u64,
}

impl Cgroup {
    /// The cgroup of a path below the mount point, or of one as in `/proc/PID/cgroup` (`0::` before it or not).
    ///
    /// # Errors
    /// [`CgroupError`]: there is none, and why not.
    pub fn find(root: &Root, named: &str) -> Result<Cgroup, CgroupError> {
        let mountinfo = root.text("proc/self/mountinfo").unwrap_or_default();
        let mount = hierarchy(&mountinfo).ok_or(CgroupError::NoHierarchy)?;
        let at = mount.at.display().to_string();
        let named = Path::new(named.strip_prefix("0::").unwrap_or(named));
        let plain = |part: &Component| matches!(part, Component::RootDir | Component::Normal(_));
        if !named.is_absolute() || !named.components().all(|part| plain(&part)) {
            return Err(CgroupError::NotAPath { mount: at });
        }
        let below = match named.strip_prefix(&mount.at) {
            Ok(below) => below,
            // A cgroup has no other place in the file system.
            Err(_) if named.starts_with("/sys/fs/cgroup") => {
                return Err(CgroupError::Elsewhere { mount: at });
            }
            Err(_) => match named.strip_prefix(&mount.shows) {
                Ok(below) => below,
                Err(_) => return Err(CgroupError::Elsewhere { mount: at }),
            },
        };
        let mut place = mount.at.clone();
        let mut inode = look(root, &place)?;
        for level in below.components() {
            let parent = place.display().to_string();
            place.push(level);
            inode = match look(root, &place) {
                Err(CgroupError::Missing { level, .. }) => {
                    return Err(CgroupError::Missing { level, parent });
                }
                other => other?,
            };
        }
        let name = Path::new(&mount.shows).join(below);
        Ok(Cgroup {
            folder: place,
            name: name.to_string_lossy().trim_end_matches('/').to_owned(),
            inode,
        })
    }

    /// Its folder, opened for the kernel to know it by.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open(&self, root: &Root) -> io::Result<std::fs::File> {
        std::fs::File::open(below(root, &self.folder))
    }

    /// Its path as in `/proc/PID/cgroup`.
    pub fn name(&self) -> &str {
        if self.name.is_empty() { "/" } else { &self.name }
    }

    /// The cgroup that has its place now: itself, a later one, or `None`.
    pub fn now(&self, root: &Root) -> Option<Cgroup> {
        look(root, &self.folder).ok().map(|inode| Cgroup {
            inode,
            ..self.clone()
        })
    }

    /// Whether a task is in it or below. One that is gone is not.
    pub fn has(&self, root: &Root, tid: u32) -> bool {
        let Ok(text) = root.text(format!("proc/{tid}/cgroup")) else {
            return false;
        };
        let of_v2 = text.lines().find_map(|line| line.strip_prefix("0::"));
        of_v2
            .and_then(|path| path.strip_prefix(&self.name))
            .is_some_and(|rest| self.name.is_empty() || rest.is_empty() || rest.starts_with('/'))
    }
}

/// `place` below the path root.
fn below(root: &Root, place: &Path) -> PathBuf {
    root.join(place.strip_prefix("/").unwrap_or(place))
}

/// The inode of a cgroup's folder.
fn look(root: &Root, place: &Path) -> Result<u64, CgroupError> {
    let shown = || place.display().to_string();
    match std::fs::metadata(below(root, place)) {
        Ok(found) if found.is_dir() => Ok(found.ino()),
        Ok(_) => Err(CgroupError::File { place: shown() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(CgroupError::Missing {
            level: place
                .file_name()
                .map_or_else(shown, |name| name.to_string_lossy().into_owned()),
            parent: String::new(),
        }),
        Err(error) => Err(CgroupError::Unreadable {
            place: shown(),
            cause: error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "\
24 30 0:22 / /proc rw,nosuid shared:13 - proc proc rw
35 25 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const HYBRID: &str = "\
35 25 0:30 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
36 35 0:31 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory
37 35 0:32 / /sys/fs/cgroup/unified rw shared:11 - cgroup2 cgroup2 rw\n";
    const V1: &str = "36 35 0:31 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n";
    const PART: &str = "37 35 0:32 /docker/abc /sys/fs/cgroup ro,nosuid master:11 - cgroup2 cgroup2 rw\n";

    /// A path root with these mounts and folders.
    struct Made(PathBuf);

    impl Made {
        fn new(name: &str, mountinfo: &str, folders: &[&str]) -> Made {
            let root = std::env::temp_dir().join(format!("uio-trace-cgroups-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&root);
            std::fs::create_dir_all(root.join("proc/self")).unwrap();
            std::fs::write(root.join("proc/self/mountinfo"), mountinfo).unwrap();
            for folder in folders {
                std::fs::create_dir_all(root.join(folder)).unwrap();
            }
            Made(root)
        }

        fn root(&self) -> Root {
            Root::at(&self.0)
        }

        fn said(&self, named: &str) -> String {
            Cgroup::find(&self.root(), named).unwrap_err().to_string()
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn by_its_place_and_as_in_proc() {
        let made = Made::new("named", UNIFIED, &["sys/fs/cgroup/system.slice/db.service"]);
        for named in [
            "/sys/fs/cgroup/system.slice/db.service",
            "/sys/fs/cgroup/system.slice/db.service/",
            "/system.slice/db.service",
            "0::/system.slice/db.service",
        ] {
            let found = Cgroup::find(&made.root(), named).unwrap();
            assert_eq!(found.name(), "/system.slice/db.service", "{named}");
            assert_eq!(found.folder, Path::new("/sys/fs/cgroup/system.slice/db.service"));
            assert!(found.open(&made.root()).is_ok());
        }
        for named in ["/", "0::/", "/sys/fs/cgroup", "/sys/fs/cgroup/"] {
            assert_eq!(Cgroup::find(&made.root(), named).unwrap().name(), "/", "{named}");
        }
    }

    #[test]
    fn the_level_that_is_missing_is_named() {
        let made = Made::new("missing", UNIFIED, &["sys/fs/cgroup/a/b"]);
        std::fs::write(made.0.join("sys/fs/cgroup/a/cgroup.procs"), "").unwrap();
        assert_eq!(made.said("/a/x/y"), "there is no cgroup x in /sys/fs/cgroup/a");
        assert_eq!(made.said("/x/b"), "there is no cgroup x in /sys/fs/cgroup");
        assert_eq!(
            made.said("/sys/fs/cgroup/a/b/c"),
            "there is no cgroup c in /sys/fs/cgroup/a/b"
        );
        assert_eq!(
            made.said("/a/cgroup.procs"),
            "/sys/fs/cgroup/a/cgroup.procs is no cgroup but a file of one"
        );
        for bad in ["a/b", "", "0::", "/a/../b", "./a"] {
            assert!(
                made.said(bad)
                    .starts_with("give the whole path, below /sys/fs/cgroup"),
                "{bad}"
            );
        }
    }

    #[test]
    fn hierarchies_are_told_apart() {
        let hybrid = Made::new(
            "hybrid",
            HYBRID,
            &["sys/fs/cgroup/memory/a", "sys/fs/cgroup/unified/a"],
        );
        let found = Cgroup::find(&hybrid.root(), "/a").unwrap();
        assert_eq!(found.folder, Path::new("/sys/fs/cgroup/unified/a"));
        assert_eq!(
            hybrid.said("/sys/fs/cgroup/memory/a"),
            "that is not below /sys/fs/cgroup/unified, where cgroup v2 is mounted"
        );
        let old = Made::new("v1", V1, &["sys/fs/cgroup/memory/a"]);
        assert_eq!(Cgroup::find(&old.root(), "/a"), Err(CgroupError::NoHierarchy));
        // A part of the hierarchy, as a container has it: names in /proc begin with that part's own.
        let part = Made::new("part", PART, &["sys/fs/cgroup/sub"]);
        for named in ["/sys/fs/cgroup/sub", "/docker/abc/sub"] {
            let found = Cgroup::find(&part.root(), named).unwrap();
            assert_eq!(found.name(), "/docker/abc/sub");
            assert_eq!(found.folder, Path::new("/sys/fs/cgroup/sub"));
        }
    }

    #[test]
    fn who_is_in_it_or_below() {
        let made = Made::new("members", UNIFIED, &["sys/fs/cgroup/a/b", "proc/7"]);
        let group = Cgroup::find(&made.root(), "/a").unwrap();
        let top = Cgroup::find(&made.root(), "/").unwrap();
        for (text, inside) in [
            ("0::/a\n", true),
            ("0::/a/b\n", true),
            ("12:memory:/x\n0::/a\n", true),
            ("0::/ab\n", false),
            ("0::/\n", false),
            ("12:memory:/a\n0::/x\n", false),
        ] {
            std::fs::write(made.0.join("proc/7/cgroup"), text).unwrap();
            assert_eq!(group.has(&made.root(), 7), inside, "{text:?}");
            assert!(top.has(&made.root(), 7), "{text:?}");
        }
        assert!(!group.has(&made.root(), 8));
    }

    #[test]
    fn a_later_one_of_the_same_name_is_another() {
        let made = Made::new("later", UNIFIED, &["sys/fs/cgroup/a"]);
        let group = Cgroup::find(&made.root(), "/a").unwrap();
        assert_eq!(group.now(&made.root()).as_ref(), Some(&group));
        // Beside it, so that the file system cannot give the same inode out again.
        let (old, new) = (made.0.join("sys/fs/cgroup/a"), made.0.join("sys/fs/cgroup/new"));
        std::fs::create_dir(&new).unwrap();
        std::fs::remove_dir(&old).unwrap();
        assert_eq!(group.now(&made.root()), None);
        std::fs::rename(&new, &old).unwrap();
        let later = group.now(&made.root()).unwrap();
        assert_ne!(later, group);
        assert_eq!(later.name(), "/a");
    }
}
