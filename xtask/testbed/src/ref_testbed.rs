//! The refs of the testbed's module (xtask/testbed/module/ref_testbed.c).

use std::collections::HashMap;

use anyhow::{Context, Result};

use crate::kernel_modules;

const FOLDER: &str = "/sys/devices/ref_testbed";

/// Their owner's release symbol.
pub const RELEASE: &str = "ref_testbed_release";

/// The module, loaded for as long as this lives.
pub struct RefTestbed(());

impl RefTestbed {
    /// Loads it.
    pub fn load() -> Result<RefTestbed> {
        kernel_modules::load("ref_testbed")?;
        Ok(RefTestbed(()))
    }

    /// One command.
    pub fn command(&self, command: &str) -> Result<()> {
        std::fs::write(format!("{FOLDER}/command"), command)
            .with_context(|| format!("ref_testbed refuses: {command}"))
    }

    /// The kernel's exit_aio() called so often for this process, which has no AIO context; ns in all.
    pub fn exit_aio(&self, calls: u64) -> Result<u64> {
        Self::timed("exit_aio", calls)
    }

    /// A ref killed and made live again so often; ns that the calls of percpu_ref_kill() took in all.
    pub fn kills(&self, calls: u64) -> Result<u64> {
        Self::timed("kill", calls)
    }

    fn timed(what: &str, calls: u64) -> Result<u64> {
        let path = format!("{FOLDER}/{what}");
        std::fs::write(&path, calls.to_string()).with_context(|| format!("cannot write {path}"))?;
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        text.trim()
            .parse()
            .with_context(|| format!("{path} is no number"))
    }

    /// A moment or number of a slot, by name.
    pub fn state(&self, slot: u32, name: &str) -> Result<u64> {
        let text =
            std::fs::read_to_string(format!("{FOLDER}/state")).context("cannot read ref_testbed's state")?;
        let slot = slot.to_string();
        let fields: HashMap<&str, &str> = text
            .lines()
            .find(|line| line.split(' ').next() == Some(&slot))
            .with_context(|| format!("ref_testbed has no slot {slot}: {text}"))?
            .split(' ')
            .filter_map(|field| field.split_once('='))
            .collect();
        fields
            .get(name)
            .and_then(|value| value.parse().ok())
            .with_context(|| format!("no {name} in {text}"))
    }
}

impl Drop for RefTestbed {
    fn drop(&mut self) {
        // A failure shows in the next load.
        let _ = kernel_modules::unload("ref_testbed");
    }
}
