//! The static binaries that guests run, built from this workspace.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::initramfs::Programs;
use crate::process::{cargo, progress, run, run_quiet};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds the testbed and the tool, both static: a guest has no C library.
pub fn build(top: &Path) -> Result<Programs> {
    progress("building the testbed and uio-trace, static");
    let testbed = build_static(top, "uio-testbed")?;
    let tool = build_static(top, "uio-trace")?;
    let stripped = |path: &Path| -> Result<PathBuf> {
        let target = path.with_extension("stripped");
        run_quiet(
            std::process::Command::new("objcopy")
                .arg("--strip-debug")
                .arg(path)
                .arg(&target),
        )?;
        Ok(target)
    };
    Ok(Programs {
        testbed: stripped(&testbed)?,
        tool: Some(stripped(&tool)?),
    })
}

/// A release build of one package's binary of the same name, linked statically.
pub fn build_static(top: &Path, package: &str) -> Result<PathBuf> {
    let mut command = cargo(top);
    command.args(["build", "--release", "--package", package, "--target", TARGET]);
    // A folder of its own: other flags than a plain build's, which must not throw each other's results away.
    let target = top.join("target/static");
    command.arg("--target-dir").arg(&target);
    command
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static")
        .env_remove("RUSTFLAGS");
    run(&mut command)?;
    let binary = target.join(TARGET).join("release").join(package);
    binary
        .canonicalize()
        .with_context(|| format!("the build left no {}", binary.display()))
}
