//! The compiler and linker of the BPF side, kept in the cache; the user's own Rust is not touched.
//!
//! aya's BPF side needs `core` built for bpfel-unknown-none: a compiler with its library's source, and a
//! bpf-linker that speaks the same LLVM. Debian's rustc-web (built for its browsers) comes with matching
//! source and a system LLVM, so both are one `apt-get download` and one `cargo install` away.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::apt::{self, Apt};
use crate::paths;
use crate::process::{capture, cargo, progress, run_quiet};

const LINKER_VERSION: &str = "0.13.0";
/// The LLVM of both compiler and linker.
const LLVM: &str = "22";

/// A usable compiler and linker.
pub struct Toolchain {
    folder: PathBuf,
    root: PathBuf,
    linker: PathBuf,
}

/// Makes the toolchain in the cache if it is not there; as root, installs the LLVM packages it needs.
pub fn provide(cache: &Path) -> Result<Toolchain> {
    let llvm = format!("llvm-{LLVM}-dev");
    let polly = format!("libpolly-{LLVM}-dev");
    apt::ensure_installed(&[
        "build-essential",
        &llvm,
        &polly,
        "libzstd-dev",
        "zlib1g-dev",
        "libxml2-dev",
    ])?;
    let folder = cache.join("bpf-toolchain");
    let toolchain = Toolchain {
        root: folder.join("root"),
        linker: folder.join("linker"),
        folder: folder.clone(),
    };
    if !toolchain
        .compiler_version()
        .is_ok_and(|version| version.contains("LLVM"))
    {
        provide_compiler(cache, &toolchain)?;
    }
    if !toolchain
        .linker_version()
        .is_ok_and(|version| version.contains(LINKER_VERSION))
    {
        provide_linker(&folder, &toolchain)?;
    }
    Ok(toolchain)
}

fn provide_compiler(cache: &Path, toolchain: &Toolchain) -> Result<()> {
    let system = Apt::system()?;
    // The library's package carries the compiler's version in its name.
    let version = system.candidate("rustc-web")?;
    let short: Vec<&str> = version.split('.').take(2).collect();
    let library = format!("libstd-rust-web-{}", short.join("."));
    let staging = paths::staging_for(&toolchain.root)?;
    let packages = [
        "rustc-web",
        library.as_str(),
        "libstd-rust-web-dev",
        "rust-web-src",
    ];
    system.unpack(&packages, &cache.join("debs"), &staging)?;
    paths::install(&staging, &toolchain.root)?;
    let version = toolchain.compiler_version()?;
    if !version.contains(&format!("LLVM {LLVM}")) {
        bail!(
            "the compiler apt offers ({version}) is not built with LLVM {LLVM}: compiler and linker must agree"
        );
    }
    Ok(())
}

fn provide_linker(folder: &Path, toolchain: &Toolchain) -> Result<()> {
    progress(format!(
        "building bpf-linker {LINKER_VERSION} (about two minutes, once)"
    ));
    let feature = format!("llvm-{LLVM}");
    let mut install = cargo(folder);
    install.args([
        "install",
        "bpf-linker",
        "--version",
        LINKER_VERSION,
        "--locked",
        "--no-default-features",
    ]);
    install
        .args(["--features", &feature, "--root"])
        .arg(&toolchain.linker);
    // Its build script asks the first llvm-config of PATH where LLVM is.
    let path = std::env::var("PATH").unwrap_or_default();
    install.env("PATH", format!("/usr/lib/llvm-{LLVM}/bin:{path}"));
    install.env_remove("RUSTFLAGS").env_remove("CARGO_TARGET_DIR");
    run_quiet(&mut install).context("cannot build bpf-linker")
}

impl Toolchain {
    /// The folder that contains compiler, linker and the sources of `core`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn rustc(&self) -> PathBuf {
        self.root.join("usr/bin/rustc")
    }

    /// Where the compiler's own shared library is: it was not installed where the loader looks.
    fn library_path(&self) -> String {
        let own = self.root.join("usr/lib/x86_64-linux-gnu");
        match std::env::var("LD_LIBRARY_PATH") {
            Ok(others) if !others.is_empty() => format!("{}:{others}", own.display()),
            _ => own.display().to_string(),
        }
    }

    /// `rustc 1.96.0 LLVM 22.1.8`
    pub fn compiler_version(&self) -> Result<String> {
        let text = capture(
            Command::new(self.rustc())
                .arg("-vV")
                .env("LD_LIBRARY_PATH", self.library_path()),
        )?;
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        let (Some(release), Some(llvm)) = (field("release:"), field("LLVM version:")) else {
            bail!("cannot read the compiler's version from {text:?}");
        };
        Ok(format!("rustc {release} LLVM {llvm}"))
    }

    /// `bpf-linker 0.13.0`
    pub fn linker_version(&self) -> Result<String> {
        let version = capture(Command::new(self.linker.join("bin/bpf-linker")).arg("--version"))?;
        Ok(version.trim().to_owned())
    }

    /// llvm-objcopy of the same LLVM.
    pub fn objcopy(&self) -> Command {
        Command::new(format!("/usr/lib/llvm-{LLVM}/bin/llvm-objcopy"))
    }

    /// Every name under which the source of `core` appears.
    pub fn source_roots(&self) -> Vec<PathBuf> {
        let named = self.root.join("usr/lib/rustlib/src/rust");
        let mut roots = vec![named.clone()];
        if let Ok(real) = named.canonicalize() {
            roots.push(real);
        }
        roots
    }

    /// Makes a cargo command use this compiler and linker with these flags.
    pub fn apply(&self, command: &mut Command, flags: &[String]) {
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env("RUSTC", self.rustc())
            .env("LD_LIBRARY_PATH", self.library_path())
            .env("PATH", format!("{}:{path}", self.linker.join("bin").display()))
            // -Zbuild-std on a released compiler
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
            .env_remove("RUSTFLAGS")
            .env_remove("RUSTC_WRAPPER")
            .env_remove("CARGO_TARGET_DIR");
    }
}
