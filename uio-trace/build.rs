//! Tells the crate which source revision and which BPF object it is built from.

use std::{fs, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=src/bpf/stamp");
    println!("cargo::rerun-if-changed=../.git/HEAD");
    println!("cargo::rerun-if-changed=../.git/refs/heads");
    let git = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "unknown".to_owned(), |hash| hash.trim().to_owned());
    println!("cargo::rustc-env=UIO_TRACE_GIT={git}");
    let stamp = fs::read_to_string(Path::new("src/bpf/stamp")).unwrap_or_default();
    let bpf = stamp
        .split_whitespace()
        .find(|word| word.len() >= 12 && word.bytes().all(|b| b.is_ascii_hexdigit()))
        .map_or("unknown", |hash| &hash[..12]);
    println!("cargo::rustc-env=UIO_TRACE_BPF={bpf}");
}
