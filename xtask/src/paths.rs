//! Where things are: the workspace, and the cache that every clone shares.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The top of the workspace, found from where cargo says this package is, else from the current directory upwards.
pub fn workspace() -> Result<PathBuf> {
    if let Some(manifest) = std::env::var_os("CARGO_MANIFEST_DIR")
        && let Some(top) = Path::new(&manifest).parent()
        && is_workspace(top)
    {
        return Ok(top.to_path_buf());
    }
    let here = std::env::current_dir().context("cannot read the current directory")?;
    match here.ancestors().find(|directory| is_workspace(directory)) {
        Some(top) => Ok(top.to_path_buf()),
        None => bail!("{} is not inside a checkout of uio-trace", here.display()),
    }
}

fn is_workspace(directory: &Path) -> bool {
    directory.join("uio-trace-common/Cargo.toml").is_file() && directory.join("xtask/Cargo.toml").is_file()
}

/// The cache: $UIO_TRACE_CACHE, else $XDG_CACHE_HOME/uio-trace, else ~/.cache/uio-trace.
pub fn cache() -> Result<PathBuf> {
    let directory = if let Some(path) = non_empty("UIO_TRACE_CACHE") {
        path
    } else if let Some(path) = non_empty("XDG_CACHE_HOME") {
        path.join("uio-trace")
    } else if let Some(path) = non_empty("HOME") {
        path.join(".cache/uio-trace")
    } else {
        bail!("no place for the cache: set UIO_TRACE_CACHE");
    };
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make the cache folder {}", directory.display()))?;
    directory
        .canonicalize()
        .with_context(|| format!("cannot resolve {}", directory.display()))
}

/// Where cargo keeps the sources of crates, one folder per registry.
pub fn registry_sources() -> Vec<PathBuf> {
    let Some(home) = non_empty("CARGO_HOME").or_else(|| non_empty("HOME").map(|home| home.join(".cargo")))
    else {
        return Vec::new();
    };
    let Ok(entries) = std::fs::read_dir(home.join("registry/src")) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).collect()
}

fn non_empty(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// Removes what an interrupted step left, makes the parent, and hands over a sibling to fill and then `rename` into place.
pub fn staging_for(place: &Path) -> Result<PathBuf> {
    let name = place
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let staging = place.with_file_name(format!(".{name}.partial-{}", std::process::id()));
    if staging.exists() {
        std::fs::remove_dir_all(&staging).with_context(|| format!("cannot remove {}", staging.display()))?;
    }
    std::fs::create_dir_all(&staging).with_context(|| format!("cannot make {}", staging.display()))?;
    Ok(staging)
}

/// Moves a filled staging folder into place, whatever was there before.
pub fn install(staging: &Path, place: &Path) -> Result<()> {
    if place.exists() {
        std::fs::remove_dir_all(place).with_context(|| format!("cannot remove {}", place.display()))?;
    }
    std::fs::rename(staging, place)
        .with_context(|| format!("cannot move {} to {}", staging.display(), place.display()))
}
