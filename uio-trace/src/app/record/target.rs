//! The files of `record`: claimed before tracing begins, so that what cannot be written is said at once.
//!
//! FILE is the newest of a rotating recording, FILE.1 the one before, and so on. With triggers FILE is the first kept,
//! FILE.2 the second.

use crate::{app::owned_file, error::AppError};
use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Files of a rotating recording, the one that is written included.
pub const PIECES: u32 = 4;

/// Where recordings go.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    force: bool,
    /// The file of the claim, until a recording begins in it.
    claimed: Option<(PathBuf, File)>,
}

/// `FILE.3`
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

fn cannot(path: &Path, cause: &io::Error) -> AppError {
    let advice = match cause.kind() {
        io::ErrorKind::NotFound => "; make its folder first",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room, or name another FILE",
        _ => "; name another FILE with -o",
    };
    AppError::Failed(format!("{} cannot be written: {cause}{advice}", path.display()))
}

/// Whether the file is still the one of that name.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |meta: fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(file), Ok(there)) => id(file) == id(there),
        _ => false,
    }
}

/// Only files are replaced, never devices, folders or links.
fn may_replace(path: &Path, force: bool) -> Result<bool, AppError> {
    let Ok(there) = fs::symlink_metadata(path) else {
        return Ok(false);
    };
    if !there.is_file() {
        return Err(AppError::Usage(format!(
            "{} is not a file: name another one with -o",
            path.display()
        )));
    }
    if !force {
        return Err(AppError::Usage(format!(
            "{} exists: name another FILE, or replace it with --force",
            path.display()
        )));
    }
    Ok(true)
}

impl Target {
    /// Makes sure of the file. What is there under its name stays until the recording begins.
    ///
    /// # Errors
    /// It is there and `force` is not set, or it cannot be written.
    pub fn claim(path: &Path, force: bool, rotating: bool) -> Result<Target, AppError> {
        let replaced = may_replace(path, force)?;
        if rotating {
            for number in 1..PIECES {
                may_replace(&numbered(path, number), force)?;
            }
        }
        let place = if replaced {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".new-{}", std::process::id()));
            name.into()
        } else {
            path.to_owned()
        };
        let file = owned_file::create_new(&place).map_err(|cause| cannot(path, &cause))?;
        Ok(Target {
            path: path.to_owned(),
            force,
            claimed: Some((place, file)),
        })
    }

    /// The name the user gave.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of the first recording.
    ///
    /// # Errors
    /// When it cannot take the place of the one before.
    pub fn first(&mut self, rotating: bool) -> Result<(PathBuf, File), AppError> {
        let Some((place, file)) = self.claimed.take() else {
            return self.another();
        };
        if place != self.path {
            fs::rename(&place, &self.path).map_err(|cause| cannot(&self.path, &cause))?;
        }
        if rotating && self.force {
            for number in 1..PIECES {
                let _ = fs::remove_file(numbered(&self.path, number));
            }
        }
        Ok((self.path.clone(), file))
    }

    /// Writes the whole file; only then it takes the place of the one before.
    ///
    /// # Errors
    /// When it cannot be written, or who ran meanwhile has removed or replaced it. Nothing of it is left then.
    pub fn fill(mut self, bytes: &[u8]) -> Result<(), AppError> {
        let (place, mut file) = match self.claimed.take() {
            Some(claimed) => claimed,
            None => self.another()?,
        };
        let mut write = || {
            file.write_all(bytes)?;
            file.sync_all()?;
            if !is_at(&file, &place) {
                return Err(io::Error::other("it was removed or replaced meanwhile"));
            }
            if place != self.path {
                fs::rename(&place, &self.path)?;
            }
            Ok(())
        };
        let written = write();
        written.map_err(|cause| {
            if is_at(&file, &place) {
                let _ = fs::remove_file(&place);
            }
            cannot(&self.path, &cause)
        })
    }

    /// FILE becomes FILE.1, FILE.1 becomes FILE.2, the last one goes; gives a new FILE.
    ///
    /// # Errors
    /// When names cannot be changed or the file not be made.
    pub fn rotate(&mut self) -> Result<(PathBuf, File), AppError> {
        for number in (1..PIECES).rev() {
            let from = match number {
                1 => self.path.clone(),
                _ => numbered(&self.path, number - 1),
            };
            match fs::rename(&from, numbered(&self.path, number)) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cannot(&from, &cause)),
                _ => {}
            }
        }
        let file = owned_file::create_new(&self.path).map_err(|cause| cannot(&self.path, &cause))?;
        Ok((self.path.clone(), file))
    }

    /// The next free of FILE.2, FILE.3, ...
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn another(&mut self) -> Result<(PathBuf, File), AppError> {
        let mut number = 2;
        loop {
            let path = numbered(&self.path, number);
            match owned_file::create_new(&path) {
                Ok(file) => return Ok((path, file)),
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists && number < u32::MAX => {
                    number += 1
                }
                Err(cause) => return Err(cannot(&path, &cause)),
            }
        }
    }
}

impl Drop for Target {
    /// Nothing was recorded: no empty file stays.
    fn drop(&mut self) {
        if let Some((place, file)) = self.claimed.take()
            && is_at(&file, &place)
        {
            let _ = fs::remove_file(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("uio-trace-target-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_claim_without_a_recording_leaves_everything_as_it_was() {
        let folder = folder("claim");
        let path = folder.join("a");
        drop(Target::claim(&path, false, false).unwrap());
        assert!(names(&folder).is_empty());
        fs::write(&path, "before").unwrap();
        assert!(matches!(
            Target::claim(&path, false, false),
            Err(AppError::Usage(_))
        ));
        drop(Target::claim(&path, true, false).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        assert_eq!(names(&folder), ["a"]);
        let mut target = Target::claim(&path, true, false).unwrap();
        target.first(false).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
        assert_eq!(names(&folder), ["a"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_cannot_be_written_whole_leaves_everything_as_it_was() {
        let folder = folder("fill");
        let path = folder.join("a");
        fs::write(&path, "before").unwrap();
        let mut full = Target::claim(&path, true, false).unwrap();
        let (place, _) = full.claimed.take().unwrap();
        fs::remove_file(&place).unwrap();
        full.claimed = Some((place, File::options().write(true).open("/dev/full").unwrap()));
        let error = full.fill(b"after").unwrap_err();
        assert!(error.to_string().contains("No space left"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        // Removed, and made anew by somebody else: that one stays.
        let gone = Target::claim(&folder.join("b"), false, false).unwrap();
        fs::remove_file(folder.join("b")).unwrap();
        let error = gone.fill(b"after").unwrap_err().to_string();
        assert!(
            error.contains("b cannot be written: it was removed or replaced"),
            "{error}"
        );
        let other = Target::claim(&folder.join("c"), false, false).unwrap();
        fs::write(folder.join("other"), "theirs").unwrap();
        fs::rename(folder.join("other"), folder.join("c")).unwrap();
        assert!(other.fill(b"after").is_err());
        assert_eq!(fs::read_to_string(folder.join("c")).unwrap(), "theirs");
        Target::claim(&path, true, false).unwrap().fill(b"after").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after");
        assert_eq!(names(&folder), ["a", "c"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn links_folders_and_devices_are_not_replaced() {
        let folder = folder("links");
        std::os::unix::fs::symlink("/etc/hostname", folder.join("link")).unwrap();
        for path in [folder.join("link"), folder.clone(), PathBuf::from("/dev/null")] {
            let error = Target::claim(&path, true, false).unwrap_err();
            assert!(error.to_string().contains("is not a file"), "{error}");
        }
        let error = Target::claim(&folder.join("no/such"), false, false).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().contains("folder"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn rotation_keeps_the_latest_and_numbers_count_on() {
        let folder = folder("rotate");
        let mut target = Target::claim(&folder.join("a"), false, true).unwrap();
        let (first, _) = target.first(true).unwrap();
        fs::write(&first, "0").unwrap();
        for n in 1..6 {
            let (path, _) = target.rotate().unwrap();
            fs::write(path, n.to_string()).unwrap();
        }
        assert_eq!(names(&folder), ["a", "a.1", "a.2", "a.3"]);
        let texts = ["a", "a.1", "a.2", "a.3"].map(|name| fs::read_to_string(folder.join(name)).unwrap());
        assert_eq!(texts, ["5", "4", "3", "2"]);
        assert!(Target::claim(&folder.join("b"), false, true).is_ok());
        assert_eq!(target.another().unwrap().0, folder.join("a.4"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
