//! Where a report goes: standard output, or a file that is either whole or not there.
//!
//! A file is written under another name in its folder and gets its own when it is complete. It belongs to whoever
//! called sudo, not to root.

use super::owned_file;
use crate::{error::AppError, stdout};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where to, and whether a file that is there may go.
#[derive(Debug, Clone, Default)]
pub struct Target {
    /// File; `None`: standard output.
    pub path: Option<PathBuf>,
    /// Replace a file that is there.
    pub force: bool,
}

impl Target {
    /// Whether it can be written to, as far as that can be told before there is anything to write: so that nobody traces
    /// for a minute in vain.
    ///
    /// # Errors
    /// [`AppError::Usage`]: the file exists, or is one of the `inputs`, which no --force replaces: it would be gone when it is needed;
    /// [`AppError::Failed`]: its folder does not exist, or standard output is closed.
    pub fn check(&self, inputs: &[&Path]) -> Result<(), AppError> {
        let Some(path) = &self.path else {
            return stdout::check();
        };
        let file = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino(), meta.is_file()));
        if let Ok(there @ (_, _, true)) = file(path)
            && inputs
                .iter()
                .any(|input| file(input).is_ok_and(|input| input == there))
        {
            return Err(AppError::Usage(format!(
                "{} exists, and is what is read: give another name with -o",
                path.display()
            )));
        }
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_dir() => Err(AppError::Usage(format!(
                "{} is a folder: name a file in it",
                path.display()
            ))),
            Ok(meta) if meta.is_file() && !self.force => Err(exists(path)),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = folder(path);
                if folder.is_dir() {
                    Ok(())
                } else {
                    Err(AppError::Failed(format!(
                        "{} cannot be written: there is no folder {}",
                        path.display(),
                        folder.display()
                    )))
                }
            }
            Err(error) => Err(failed(path, &error)),
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// [`AppError::Failed`] with file and reason; then nothing of it is left under its name.
    pub fn write(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), AppError> {
        let Some(path) = &self.path else {
            let mut out = BufWriter::new(stdout::lock()?);
            write(&mut out)?;
            out.flush()?;
            return Ok(());
        };
        self.check(&[])?;
        // A link, a device or a pipe stays what it is, and what it leads to is written.
        let special = match fs::metadata(path) {
            Ok(meta) => {
                let kind = meta.file_type();
                kind.is_char_device() || kind.is_block_device() || kind.is_fifo()
            }
            Err(_) => false,
        };
        let done = if special {
            let open = File::options().write(true).open(path);
            open.and_then(|file| {
                let mut out = BufWriter::new(file);
                write(&mut out)?;
                out.flush()
            })
        } else {
            self.write_beside(path, write)
        };
        done.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(path),
            _ => failed(path, &error),
        })
    }

    fn write_beside(
        &self,
        path: &Path,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::other("that is no file name"))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.part", std::process::id()));
        let part = Part(folder(path).join(hidden));
        let file = owned_file::create_new(&part.0)?;
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        // A full disk or quota may be told as late as here.
        file.sync_all()?;
        if self.force {
            return fs::rename(&part.0, path);
        }
        match fs::hard_link(&part.0, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                // A file system without links: a file that came meanwhile would be replaced, so look again.
                if fs::symlink_metadata(path).is_ok() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                fs::rename(&part.0, path)
            }
            linked => linked,
        }
    }
}

/// A file under its provisional name; gone when it is dropped, unless it got another.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn exists(path: &Path) -> AppError {
    AppError::Usage(format!(
        "{} exists and is left as it is: give another name, or --force to replace it",
        path.display()
    ))
}

fn failed(path: &Path, error: &io::Error) -> AppError {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return AppError::OutputClosed;
    }
    AppError::Failed(format!("{} cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("uio-trace-output-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = scratch("whole");
        let mut target = Target {
            path: Some(folder.join("report.html")),
            force: false,
        };
        let failing = target.write(|out| {
            out.write_all(b"half")?;
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        });
        let message = failing.unwrap_err().to_string();
        assert!(
            message.contains("report.html") && message.contains("No space left"),
            "{message}"
        );
        assert_eq!(names(&folder), [""; 0]);

        target.write(|out| out.write_all(b"first")).unwrap();
        let again = target
            .write(|out| out.write_all(b"second"))
            .unwrap_err()
            .to_string();
        assert!(again.contains("exists") && again.contains("--force"), "{again}");
        assert_eq!(fs::read(folder.join("report.html")).unwrap(), b"first");

        target.force = true;
        target.write(|out| out.write_all(b"third")).unwrap();
        assert_eq!(fs::read(folder.join("report.html")).unwrap(), b"third");
        let _ = target.write(|_| Err(io::Error::other("no")));
        assert_eq!(fs::read(folder.join("report.html")).unwrap(), b"third");
        assert_eq!(names(&folder), ["report.html"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_appears_meanwhile_is_left_alone() {
        let folder = scratch("race");
        let path = folder.join("out");
        let target = Target {
            path: Some(path.clone()),
            force: false,
        };
        let error = target.write(|out| {
            fs::write(&path, b"theirs")?;
            out.write_all(b"ours")
        });
        assert!(error.unwrap_err().to_string().contains("exists"));
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        assert_eq!(names(&folder), ["out"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_device_stays_a_device() {
        let target = Target {
            path: Some("/dev/full".into()),
            force: true,
        };
        let error = target.write(|out| out.write_all(b"x")).unwrap_err().to_string();
        assert!(
            error.contains("/dev/full") && error.contains("No space left"),
            "{error}"
        );
        assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());
    }
}
