//! Tells the crate which source revision and which BPF object it is built from.

use std::{env, fs, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=src/bpf/stamp");
    // A path that is not there (a worktree, an unpacked archive) would mean a rebuild every time.
    for path in ["../.git/HEAD", "../.git/refs/heads"] {
        if Path::new(path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let git = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "unknown".to_owned(), |hash| hash.trim().to_owned());
    println!("cargo::rustc-env=UIO_TRACE_GIT={git}");
    let stamp = fs::read_to_string(Path::new("src/bpf/stamp")).unwrap_or_default();
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let bpf = stamp
        .lines()
        .find_map(|line| line.strip_prefix(&format!("object {architecture} = ")))
        .and_then(|hash| hash.get(..12))
        .unwrap_or("unknown");
    println!("cargo::rustc-env=UIO_TRACE_BPF={bpf}");
}
