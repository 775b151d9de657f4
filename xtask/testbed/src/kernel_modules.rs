//! Loading and unloading kernel modules in a guest.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Where the harness puts the testbed's own modules.
const TESTBED: &str = "/lib/uio_testbed.ko";
const REF_TESTBED: &str = "/lib/ref_testbed.ko";

/// Whether this guest has the testbed's module (its kernel's headers could be built against).
pub fn have_testbed() -> bool {
    std::path::Path::new(TESTBED).exists()
}

/// Loads a module, given as a name and, after spaces, parameters.
pub fn load(module: &str) -> Result<()> {
    let mut words = module.split_whitespace();
    let name = words.next().context("an empty module name")?;
    if name == "uio_testbed" {
        run(Command::new("modprobe").arg("uio"))?;
        return run(Command::new("insmod").arg(TESTBED).args(words));
    }
    if name == "ref_testbed" {
        return run(Command::new("insmod").arg(REF_TESTBED).args(words));
    }
    run(Command::new("modprobe").arg(name).args(words))
}

/// Unloads a module.
pub fn unload(name: &str) -> Result<()> {
    run(Command::new("rmmod").arg(name))
}

/// Whether a module is loaded.
pub fn is_loaded(name: &str) -> bool {
    std::path::Path::new("/sys/module").join(name).exists()
}

fn run(command: &mut Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
