//! Loading and unloading kernel modules in a guest.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::clock::wait_until;
use crate::device::Testbed;

/// Where the harness puts the testbed's own modules.
const TESTBED: &str = "/lib/uio_testbed.ko";
const REF_TESTBED: &str = "/lib/ref_testbed.ko";

/// What `uio` the testbed's devices are registered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uio {
    /// The kernel's own.
    Stock,
    /// The kernel's own with a percpu_ref in place of info_lock.
    Converted,
    /// The same without type information.
    ConvertedPlain,
}

impl Uio {
    fn file(self) -> Option<&'static str> {
        match self {
            Uio::Stock => None,
            Uio::Converted => Some("/lib/uio_converted.ko"),
            Uio::ConvertedPlain => Some("/lib/uio_converted_plain.ko"),
        }
    }
}

/// Whether this guest has the testbed's module (its kernel's headers could be built against).
pub fn have_testbed() -> bool {
    std::path::Path::new(TESTBED).exists()
}

/// Loads a module, given as a name and, after spaces, parameters.
pub fn load(module: &str) -> Result<()> {
    let mut words = module.split_whitespace();
    let name = words.next().context("an empty module name")?;
    if name == "uio_testbed" {
        let parameters: Vec<&str> = words.collect();
        return load_testbed(Uio::Stock, &parameters.join(" "));
    }
    if name == "ref_testbed" {
        return run(Command::new("insmod").arg(REF_TESTBED).args(words));
    }
    run(Command::new("modprobe").arg(name).args(words))
}

/// Loads the testbed's UIO devices, and the `uio` they are registered with unless there is one.
pub fn load_testbed(uio: Uio, parameters: &str) -> Result<()> {
    match uio.file() {
        None => run(Command::new("modprobe").arg("uio"))?,
        Some(file) => run(Command::new("insmod").arg(file))?,
    }
    run(Command::new("insmod")
        .arg(TESTBED)
        .args(parameters.split_whitespace()))
}

/// Another `uio` under the testbed's devices; returns when they are there.
pub fn swap(uio: Uio) -> Result<()> {
    for module in ["uio_testbed", "uio"] {
        if is_loaded(module) {
            unload(module)?;
        }
    }
    load_testbed(uio, "devices=2")?;
    let device = Testbed::find(0)?;
    wait_until("the device node", Duration::from_secs(10), || {
        std::path::Path::new(&device.node()).exists()
    })
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
