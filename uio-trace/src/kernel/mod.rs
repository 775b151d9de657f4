//! What this kernel is: asked, never guessed from a version.
//!
//! Everything is read below a path root, so that tests pass a recorded kernel.

pub mod btf;
pub mod cgroups;
pub mod cpus;
pub mod descriptors;
pub mod disks;
pub mod lockdown;
pub mod memory;
pub mod namespaces;
pub mod offsets;
pub mod privileges;
pub mod rcu;
pub mod stacks;
pub mod symbols;

use btf::Btf;
use lockdown::Lockdown;
use privileges::Privileges;
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use symbols::Symbols;

/// The root all kernel files are read below: `/` on a real host.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Root {
    /// The running system.
    pub fn system() -> Root {
        Root(PathBuf::from("/"))
    }

    /// A recorded one.
    pub fn at(path: impl Into<PathBuf>) -> Root {
        Root(path.into())
    }

    /// A file of it; `path` without leading slash.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// A file's text, trimmed.
    ///
    /// # Errors
    /// As `std::fs::read_to_string`.
    pub fn text(&self, path: impl AsRef<Path>) -> io::Result<String> {
        std::fs::read_to_string(self.join(path)).map(|s| s.trim().to_owned())
    }
}

/// What was found out about the kernel, once at start.
#[derive(Debug)]
pub struct KernelFacts {
    /// `uname -r`
    pub release: String,
    /// `uname -v`: carries PREEMPT_RT, PREEMPT_DYNAMIC.
    pub version: String,
    /// vmlinux BTF, or why there is none.
    pub btf: Result<Arc<Btf>, String>,
    /// Kernel symbols. Shared: reading them costs the kernel more than everything else read here.
    pub symbols: Arc<Symbols>,
    /// Lockdown mode.
    pub lockdown: Lockdown,
    /// What this process may do.
    pub privileges: Privileges,
    /// Settings that explain grace periods.
    pub rcu: std::collections::BTreeMap<String, String>,
}

impl KernelFacts {
    /// Reads all of it. What cannot be read is in the facts as missing, with the reason.
    pub fn read(root: &Root) -> KernelFacts {
        // Both take long and neither needs the other.
        let (symbols, btf) = std::thread::scope(|scope| {
            let symbols = scope.spawn(|| Symbols::read(root));
            let btf = read_btf(&root.join("sys/kernel/btf/vmlinux"), None).map(Arc::new);
            (symbols.join().unwrap_or_default(), btf)
        });
        KernelFacts {
            release: root
                .text("proc/sys/kernel/osrelease")
                .unwrap_or_else(|_| "unknown".into()),
            version: root
                .text("proc/sys/kernel/version")
                .unwrap_or_else(|_| "unknown".into()),
            btf,
            symbols: Arc::new(symbols),
            lockdown: Lockdown::read(root),
            privileges: Privileges::read(root),
            rcu: rcu::read(root),
        }
    }
}

/// Reads BTF from a file; a module's needs vmlinux's as its base.
///
/// # Errors
/// A sentence: file, cause.
pub fn read_btf(path: &Path, base: Option<&Arc<Btf>>) -> Result<Btf, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Btf::parse(bytes, base).map_err(|e| format!("{}: {e}", path.display()))
}
