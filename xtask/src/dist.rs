//! `cargo xtask dist`: one static binary that runs on any x86-64 Linux.

use std::process::Command;

use anyhow::{Context, Result};

use crate::process::run_quiet;
use crate::{bpf, paths, vm};

/// The verb.
pub fn main() -> Result<()> {
    let top = paths::workspace()?;
    bpf::check(&top)?;
    let built = vm::build_static(&top, "uio-trace")?;
    let folder = top.join("target/dist");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let place = folder.join("uio-trace");
    run_quiet(
        Command::new("objcopy")
            .arg("--strip-debug")
            .arg(&built)
            .arg(&place),
    )?;
    let size = std::fs::metadata(&place).map(|meta| meta.len()).unwrap_or(0);
    println!("{} ({:.1} MB)", place.display(), size as f64 / 1e6);
    Ok(())
}
