//! `cargo xtask clean-cache`: removes what was downloaded and built outside the workspace.

use anyhow::{Context, Result};

use crate::{paths, perfetto};

/// The verb.
pub fn main() -> Result<()> {
    let cache = paths::cache()?;
    for part in [
        "apt",
        "bpf-toolchain",
        "debs",
        "kernels",
        perfetto::PART,
        "testbed",
    ] {
        let path = cache.join(part);
        if path.exists() {
            std::fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            println!("removed {}", path.display());
        }
    }
    // An answer that is found again.
    let _ = std::fs::remove_file(cache.join("kvm-probe"));
    Ok(())
}
