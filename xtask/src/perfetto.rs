//! What the test of Perfetto traces reads them with: the schema that Perfetto publishes, from its Python package.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::{progress, run_quiet};
use crate::{apt, paths};

/// Where the test finds the folder; without it, it looks into the cache.
pub const VARIABLE: &str = "UIO_TRACE_PERFETTO_SCHEMA";

/// The part of the cache.
pub const PART: &str = "perfetto-schema";

/// The packages with their hashes, in the folder of the test. A copy beside the packages says which are there.
const REQUIREMENTS: &str = "uio-trace/tests/perfetto/requirements.txt";

/// Puts the packages into the cache, unless they are there. Returns their folder.
pub fn provide(top: &Path) -> Result<PathBuf> {
    let list = top.join(REQUIREMENTS);
    let wanted = std::fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let place = paths::cache()?.join(PART);
    apt::ensure_installed(&["python3"])?;
    if std::fs::read_to_string(place.join("requirements.txt")).is_ok_and(|installed| installed == wanted) {
        return Ok(place);
    }
    apt::ensure_installed(&["python3-pip"])?;
    progress("downloading the schema of Perfetto's traces (Python packages perfetto and protobuf, 1 MB)");
    let staging = paths::staging_for(&place)?;
    run_quiet(
        Command::new("/usr/bin/python3")
            .args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input"])
            .args(["--no-deps", "--only-binary", ":all:", "--require-hashes"])
            .arg("--target")
            .arg(&staging)
            .arg("-r")
            .arg(&list)
            .env("PIP_ROOT_USER_ACTION", "ignore"),
    )
    .context(
        "the Python packages perfetto and protobuf cannot be had, so no Perfetto trace can be checked against the \
         schema; is the registry that pip uses within reach?",
    )?;
    std::fs::write(staging.join("requirements.txt"), wanted)
        .with_context(|| format!("cannot write into {}", staging.display()))?;
    paths::install(&staging, &place)?;
    Ok(place)
}
