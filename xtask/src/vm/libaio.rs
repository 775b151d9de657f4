//! The test programs of libaio, unchanged, from the source package of this system's release: one program for each case, static.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::apt::{self, Apt};
use crate::paths;
use crate::process::{progress, run_quiet};

/// The cases taken. Not 6, 11, 14 and 23, which read and write for long, 18 (100,000 contexts, 100 threads) and 20 (131,000 contexts):
/// minutes under translation. Not 8 and 10, which want file systems of their own.
const CASES: [u32; 13] = [2, 3, 4, 5, 7, 12, 13, 15, 16, 17, 19, 21, 22];
/// Where they are in a guest: `bin/libaio-CASE`.
const PREFIX: &str = "libaio-";

/// The programs; built once.
pub fn provide(cache: &Path) -> Result<Vec<PathBuf>> {
    apt::ensure_installed(&["build-essential"])?;
    let place = cache.join("libaio");
    let programs: Vec<PathBuf> = CASES
        .iter()
        .map(|case| place.join(format!("{PREFIX}{case}")))
        .collect();
    if !programs.iter().all(|program| program.exists()) {
        build(cache, &place).context("cannot build the test programs of libaio")?;
    }
    Ok(programs)
}

fn build(cache: &Path, place: &Path) -> Result<()> {
    let archive = Apt::sources(cache)?.download_source("libaio", &cache.join("debs"))?;
    progress("building the test programs of libaio");
    let staging = paths::staging_for(place)?;
    let tree = staging.join("source");
    std::fs::create_dir_all(&tree).with_context(|| format!("cannot make {}", tree.display()))?;
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&archive).arg("-C").arg(&tree);
    run_quiet(tar.arg("--strip-components=1"))?;
    run_quiet(
        Command::new("make")
            .arg("-C")
            .arg(tree.join("src"))
            .arg("libaio.a"),
    )?;
    let harness = tree.join("harness");
    let mut make = Command::new("make");
    // A newer compiler than upstream's warns of more, and a guest has no C library.
    make.arg("-C")
        .arg(&harness)
        .args(["CFLAGS=-I../src -O2 -w", "LIBAIO=../src/libaio.a -static"]);
    make.args(CASES.map(|case| format!("cases/{case}.p")));
    run_quiet(&mut make)?;
    for case in CASES {
        let from = harness.join(format!("cases/{case}.p"));
        std::fs::copy(&from, staging.join(format!("{PREFIX}{case}")))
            .with_context(|| format!("the build left no {}", from.display()))?;
    }
    std::fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    paths::install(&staging, place)
}
