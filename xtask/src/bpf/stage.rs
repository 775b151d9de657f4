//! A copy of the BPF side's sources, laid out so that the build does not depend on where anything is.
//!
//! Cargo hashes the place of every package into its symbols: relative to the workspace for packages inside it,
//! else the absolute path. So the copy's workspace is the toolchain's own folder in the cache, which contains
//! all three: the BPF crate, the crate shared with user space, and the source of `core`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::toolchain::Toolchain;

/// How the BPF crate names the shared one, and how the copy does.
const SHARED: (&str, &str) = ("path = \"../uio-trace-common\"", "path = \"uio-trace-common\"");

/// Brings the copy up to date and returns its folder. Files that did not change keep their time, so cargo
/// rebuilds only what it must.
pub fn fill(top: &Path, toolchain: &Toolchain) -> Result<PathBuf> {
    let stage = toolchain.folder();
    let source = top.join("uio-trace-ebpf");
    let manifest = read(&source.join("Cargo.toml"))?;
    let manifest = String::from_utf8(manifest).context("uio-trace-ebpf/Cargo.toml is not text")?;
    if !manifest.contains(SHARED.0) {
        bail!("uio-trace-ebpf/Cargo.toml does not contain `{}`", SHARED.0);
    }
    write_changed(
        &stage.join("Cargo.toml"),
        manifest.replace(SHARED.0, SHARED.1).as_bytes(),
    )?;
    write_changed(&stage.join("Cargo.lock"), &read(&source.join("Cargo.lock"))?)?;
    mirror(&source.join("src"), &stage.join("src"))?;
    let shared = top.join("uio-trace-common");
    write_changed(
        &stage.join("uio-trace-common/Cargo.toml"),
        &read(&shared.join("Cargo.toml"))?,
    )?;
    mirror(&shared.join("src"), &stage.join("uio-trace-common/src"))?;
    Ok(stage.to_path_buf())
}

/// Makes `to` contain what `from` contains, and nothing else.
fn mirror(from: &Path, to: &Path) -> Result<()> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(from)
        .with_context(|| format!("cannot read {}", from.display()))?
        .flatten()
    {
        names.insert(entry.file_name());
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            mirror(&entry.path(), &target)?;
        } else {
            write_changed(&target, &read(&entry.path())?)?;
        }
    }
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in std::fs::read_dir(to)
        .with_context(|| format!("cannot read {}", to.display()))?
        .flatten()
    {
        if names.contains(&entry.file_name()) {
            continue;
        }
        let path = entry.path();
        let removed = if path.is_dir() {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

fn write_changed(path: &Path, content: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|present| present == content) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    }
    std::fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
