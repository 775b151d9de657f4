//! Files are made as the user who called sudo would make them: his, never through a link, never over another one.

use std::{fs::File, io, os::unix::fs::fchown, path::Path};

/// A new file at a place where none is.
///
/// # Errors
/// It is there already, or cannot be made.
pub fn create_new(path: &Path) -> io::Result<File> {
    // Never through a link or over a file that is there: this may run as root in a folder others write to.
    let file = File::options().write(true).create_new(true).open(path)?;
    let owner = |name: &str| std::env::var(name).ok().and_then(|id| id.parse::<u32>().ok());
    if let (Some(uid), Some(gid)) = (owner("SUDO_UID"), owner("SUDO_GID"))
        && let Err(error) = fchown(&file, Some(uid), Some(gid))
    {
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(file)
}
