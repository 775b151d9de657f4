//! `cargo xtask bpf`: builds the BPF object that is checked in beside the user-space crate, and its stamp.
//!
//! sources -> (toolchain: compiler and linker from the cache) -> object per architecture, debug information
//! stripped -> uio-trace/src/bpf/. The object is the same, byte for byte, on every machine: see `stage`.

mod stage;
mod stamp;
mod toolchain;

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::paths;
use crate::process::{cargo, progress, run, run_quiet};
use stamp::Stamp;
use toolchain::Toolchain;

/// The architectures of the traced machine (register layout of a probe's context).
pub const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// Arguments of `cargo xtask bpf`.
#[derive(Debug, Args)]
pub struct BpfArgs {
    /// Only compare the sources with the stamp; needs no toolchain.
    #[arg(long, conflicts_with = "compare")]
    check: bool,
    /// Build and compare with the checked-in object, without replacing it.
    #[arg(long)]
    compare: bool,
}

/// The verb.
pub fn main(arguments: &BpfArgs) -> Result<()> {
    let top = paths::workspace()?;
    if arguments.check {
        return check(&top);
    }
    if arguments.compare {
        return compare(&top);
    }
    let built = build(&top)?;
    let place = object_folder(&top);
    std::fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    for (architecture, object) in &built.objects {
        let target = place.join(object_name(architecture));
        std::fs::write(&target, object).with_context(|| format!("cannot write {}", target.display()))?;
        println!("{} ({} bytes)", target.display(), object.len());
    }
    built.stamp.write(&place.join("stamp"))
}

/// Fails with one sentence when the checked-in object was not built from these sources.
pub fn check(top: &Path) -> Result<()> {
    let place = object_folder(top);
    let recorded = Stamp::read(&place.join("stamp"))?;
    let mut objects = Vec::new();
    for architecture in ARCHITECTURES {
        let path = place.join(object_name(architecture));
        let object = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        objects.push((architecture.to_owned(), object));
    }
    match recorded.difference(&Stamp::of_sources(top)?, &objects) {
        None => {
            println!("the BPF object is up to date");
            Ok(())
        }
        Some(what) => {
            bail!("the BPF object is stale: {what}; run `cargo xtask bpf` and commit uio-trace/src/bpf")
        }
    }
}

/// Builds afresh and fails when the result is not the checked-in object.
pub fn compare(top: &Path) -> Result<()> {
    check(top)?;
    let built = build(top)?;
    for (architecture, object) in &built.objects {
        let path = object_folder(top).join(object_name(architecture));
        let recorded = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if *object != recorded {
            let fresh = top.join("target").join(object_name(architecture));
            std::fs::create_dir_all(top.join("target")).context("cannot make the target folder")?;
            std::fs::write(&fresh, object).with_context(|| format!("cannot write {}", fresh.display()))?;
            bail!(
                "a fresh build of the {architecture} BPF object differs from the checked-in one (fresh: {})",
                fresh.display()
            );
        }
    }
    println!("a fresh build gives the checked-in BPF object");
    Ok(())
}

struct Built {
    objects: Vec<(String, Vec<u8>)>,
    stamp: Stamp,
}

fn build(top: &Path) -> Result<Built> {
    let cache = paths::cache()?;
    let _turn = one_at_a_time(&cache)?;
    let toolchain = toolchain::provide(&cache)?;
    let mut stamp = Stamp::of_sources(top)?;
    stamp.set_tools(&toolchain.compiler_version()?, &toolchain.linker_version()?);
    let mut objects = Vec::new();
    for architecture in ARCHITECTURES {
        progress(format!("building the BPF object for {architecture}"));
        let object = build_one(top, &toolchain, architecture)?;
        stamp.set_object(architecture, &object);
        objects.push((architecture.to_owned(), object));
    }
    Ok(Built { objects, stamp })
}

/// Every clone on this machine builds in the same staged copy: a second one waits until this is dropped, else it would
/// compile a mixture of both.
fn one_at_a_time(cache: &Path) -> Result<File> {
    let path = cache.join("bpf-build.lock");
    let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    if file.try_lock().is_err() {
        progress("waiting for another build of the BPF object on this machine");
        file.lock()
            .with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

fn build_one(top: &Path, toolchain: &Toolchain, architecture: &str) -> Result<Vec<u8>> {
    let stage = stage::fill(top, toolchain)?;
    let target = top.join("uio-trace-ebpf/target");
    let mut command = cargo(&stage);
    command.args([
        "build",
        "--locked",
        "--release",
        "-Zbuild-std=core",
        "--target",
        "bpfel-unknown-none",
    ]);
    command
        .args(["--bin", "uio-trace-ebpf"])
        .arg("--target-dir")
        .arg(&target);
    toolchain.apply(&mut command, &rust_flags(&stage, toolchain, architecture));
    run(&mut command)?;
    let linked = target.join("bpfel-unknown-none/release/uio-trace-ebpf");
    let stripped = target.join(object_name(architecture));
    // The verifier and aya need BTF and BTF.ext only; DWARF would be the greater part of the checked-in file.
    run_quiet(
        toolchain
            .objcopy()
            .arg("--strip-debug")
            .arg(&linked)
            .arg(&stripped),
    )?;
    let object = std::fs::read(&stripped).with_context(|| format!("cannot read {}", stripped.display()))?;
    refuse_paths_of_this_machine(top, &object)?;
    Ok(object)
}

/// Flags of the compiler, one per element. The remaps keep this machine's paths out of the object.
fn rust_flags(stage: &Path, toolchain: &Toolchain, architecture: &str) -> Vec<String> {
    let mut flags = vec![format!("--cfg=bpf_target_arch=\"{architecture}\"")];
    flags.extend(stamp::FLAGS.iter().map(|flag| (*flag).to_owned()));
    let mut remap =
        |from: &Path, to: &str| flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    // A later remap wins: the general one first.
    remap(stage, "/uio-trace");
    for registry in paths::registry_sources() {
        remap(&registry, "/crates");
    }
    for source in toolchain.source_roots() {
        remap(&source, "/rust");
    }
    flags
}

/// A path of the machine in the object would make it differ from every other machine's, and publish a home folder.
fn refuse_paths_of_this_machine(top: &Path, object: &[u8]) -> Result<()> {
    let mut unwanted: Vec<PathBuf> = vec![top.to_path_buf(), paths::cache()?];
    unwanted.extend(paths::registry_sources());
    for path in unwanted {
        let needle = path.to_string_lossy().into_owned().into_bytes();
        if object.windows(needle.len()).any(|window| window == needle) {
            bail!(
                "the BPF object contains the path {} of this machine",
                path.display()
            );
        }
    }
    Ok(())
}

fn object_folder(top: &Path) -> PathBuf {
    top.join("uio-trace/src/bpf")
}

fn object_name(architecture: &str) -> String {
    format!("uio-trace.{architecture}.o")
}
