//! The testbed's kernel modules, built for one kernel from Debian's headers, which are unpacked, not installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::converted_uio;
use super::kernels::Kernel;
use crate::apt::{self, Apt};
use crate::paths;
use crate::process::{capture, progress, run_quiet};

const SOURCES: [&str; 3] = ["uio_testbed.c", "ref_testbed.c", "Kbuild"];
/// What they are built into.
const MODULES: [&str; 2] = ["uio_testbed.ko", "ref_testbed.ko"];
/// `uio` with a percpu_ref in place of info_lock, with type information and without.
const CONVERTED: [&str; 2] = ["uio_converted.ko", "uio_converted_plain.ko"];

/// The built modules for this kernel; from the cache when neither kernel nor source changed.
pub fn provide(cache: &Path, kernel: &Kernel) -> Result<Vec<PathBuf>> {
    let source = paths::workspace()?.join("xtask/testbed/module");
    let mut hash = Sha256::new();
    for name in SOURCES {
        let path = source.join(name);
        hash.update(std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?);
    }
    // What edits the kernel's source is part of the source.
    hash.update(include_bytes!("converted_uio.rs"));
    let hash = hash.finalize();
    let mark: String = hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let place = cache.join("testbed").join(format!("{}_{mark}", kernel.release));
    let converted = if kernel.spec.source.is_some() {
        &CONVERTED[..]
    } else {
        &[]
    };
    let modules: Vec<PathBuf> = MODULES
        .iter()
        .chain(converted)
        .map(|name| place.join(name))
        .collect();
    if !modules.iter().all(|module| module.exists()) {
        build(cache, kernel, &source, &place)
            .with_context(|| format!("cannot build the testbed modules for {}", kernel.release))?;
    }
    Ok(modules)
}

fn build(cache: &Path, kernel: &Kernel, source: &Path, place: &Path) -> Result<()> {
    progress(format!("building the testbed modules for {}", kernel.release));
    // pahole writes the module's BTF
    apt::ensure_installed(&["build-essential", "pahole", "libelf1", "bc"])?;
    let apt = kernel.spec.apt(cache)?;
    let headers = format!("linux-headers-{}", kernel.release);
    let mut packages = vec![headers.clone()];
    packages.extend(header_parts(&apt, &headers)?);
    let staging = paths::staging_for(place)?;
    let root = staging.join("root");
    let names: Vec<&str> = packages.iter().map(String::as_str).collect();
    apt.unpack(&names, &cache.join("debs"), &root)?;

    let tree = root.join("usr/src").join(&headers);
    relocate(&root, &tree)?;
    let work = staging.join("module");
    std::fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    for name in SOURCES {
        std::fs::copy(source.join(name), work.join(name)).with_context(|| format!("cannot copy {name}"))?;
    }
    make(&tree, &work)?;
    for name in MODULES {
        copy(&work.join(name), &staging.join(name))?;
    }
    if let Some(version) = kernel.spec.source {
        let work = work.join("converted");
        std::fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
        converted_uio::write_source(cache, kernel.spec, version, &work)?;
        make(&tree, &work)?;
        let [typed, plain] = CONVERTED.map(|name| staging.join(name));
        copy(&work.join("uio.ko"), &typed)?;
        let mut strip = Command::new("objcopy");
        strip.args(["--remove-section", ".BTF"]).arg(&typed).arg(&plain);
        run_quiet(&mut strip)?;
    }
    for folder in [root, work] {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    paths::install(&staging, place)
}

/// Builds the modules of a folder with a Kbuild.
fn make(tree: &Path, work: &Path) -> Result<()> {
    let mut make = Command::new("make");
    make.arg("-C").arg(tree).arg(format!("M={}", work.display()));
    // The package asks for the compiler that built the kernel; this system's own is what is installed.
    make.args(["CC=gcc", "modules"]);
    run_quiet(&mut make)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to)
        .map(drop)
        .with_context(|| format!("the build left no {}", from.display()))
}

/// The common headers and the build tools a headers package depends on.
fn header_parts(apt: &Apt, headers: &str) -> Result<Vec<String>> {
    let parts: Vec<String> = apt
        .dependencies(headers)?
        .into_iter()
        .filter(|name| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-"))
        .collect();
    if parts.len() < 2 {
        bail!("{headers} does not depend on common headers and build tools");
    }
    Ok(parts)
}

/// The package's Makefile includes the common one by its installed path.
fn relocate(root: &Path, tree: &Path) -> Result<()> {
    let makefile = tree.join("Makefile");
    let text =
        std::fs::read_to_string(&makefile).with_context(|| format!("cannot read {}", makefile.display()))?;
    let moved = text.replace("/usr/src/", &format!("{}/usr/src/", root.display()));
    std::fs::write(&makefile, moved).with_context(|| format!("cannot write {}", makefile.display()))?;
    // A first look at whether the tools run here at all: a newer suite's want a newer C library.
    let modpost = tree.join("scripts/mod/modpost");
    capture(Command::new(&modpost).arg("-h"))
        .or_else(|error| {
            if error.to_string().contains("GLIBC") {
                Err(error)
            } else {
                Ok(String::new())
            }
        })
        .map(drop)
        .context("the kernel's build tools do not run on this system")
}
