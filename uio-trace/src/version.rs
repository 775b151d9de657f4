//! What `--version` and `meta.tool` name: tool, source revision, BPF object.

/// Version, git hash and hash of the BPF object. Set by the build script.
pub const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (git ",
    env!("UIO_TRACE_GIT"),
    ", bpf ",
    env!("UIO_TRACE_BPF"),
    ")"
);
