//! UIO devices as sysfs shows them, and the settings and counts of the testbed module's own.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// A device of the testbed module.
#[derive(Debug, Clone)]
pub struct Testbed {
    /// `uio_testbed0`
    pub name: String,
    /// Its number: uioN.
    pub minor: u32,
    folder: PathBuf,
}

/// What the module counted.
#[derive(Debug, Clone, Copy)]
pub struct Truth {
    /// irqcontrol calls.
    pub calls: u64,
    /// Those that failed.
    pub failed: u64,
    /// Nanoseconds in them.
    pub held_ns: u64,
    /// Nanoseconds from the writers' stamps to irqcontrol, summed.
    pub arrival_ns: u64,
}

/// Settings that are 0 between tests.
const NUMBERS: [&str; 9] = [
    "hold_us",
    "spread",
    "slow_us",
    "slow_every",
    "slow_tid",
    "open_us",
    "inner_us",
    "interrupt_us",
    "fail_every",
];

/// Puts all settings of a device back to what they are between tests, also when a test fails.
pub struct Settings {
    device: Testbed,
    restored: bool,
}

impl Settings {
    /// Of this device.
    pub fn of(device: &Testbed) -> Settings {
        Settings {
            device: device.clone(),
            restored: false,
        }
    }

    /// Now; a failure is told.
    pub fn restore(mut self) -> Result<()> {
        self.restored = true;
        self.all()
    }

    fn all(&self) -> Result<()> {
        NUMBERS.iter().try_for_each(|name| self.device.set(name, 0))
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        if !self.restored {
            // The test has failed already.
            let _ = self.all();
        }
    }
}

impl Testbed {
    /// The device with this index. By its place in sysfs: reading names would be operations of their own.
    pub fn find(index: u32) -> Result<Testbed> {
        let name = format!("uio_testbed{index}");
        let folder = PathBuf::from("/sys/devices").join(&name);
        let entries =
            std::fs::read_dir(folder.join("uio")).with_context(|| format!("{name} is not registered"))?;
        let minor = entries
            .flatten()
            .find_map(|entry| entry.file_name().to_str()?.strip_prefix("uio")?.parse().ok())
            .with_context(|| format!("{name} has no number"))?;
        Ok(Testbed { folder, name, minor })
    }

    /// Its device node.
    pub fn node(&self) -> String {
        format!("/dev/uio{}", self.minor)
    }

    /// Sets how long and in what way irqcontrol stays busy.
    pub fn set_hold(&self, us: u64, spin: bool) -> Result<()> {
        self.write("hold_us", &us.to_string())?;
        self.write("mode", if spin { "spin" } else { "sleep" })
    }

    /// Lets every k-th call fail (0: none).
    pub fn set_failure(&self, every: u64, errno: i32) -> Result<()> {
        self.write("fail_errno", &errno.to_string())?;
        self.write("fail_every", &every.to_string())
    }

    /// Registers or unregisters it; returns when the kernel has done so.
    pub fn set_registered(&self, registered: bool) -> Result<()> {
        self.write("registered", if registered { "1" } else { "0" })
    }

    /// How long the last registering or unregistering took, ns.
    pub fn register_ns(&self) -> Result<u64> {
        self.number("register_ns")
    }

    /// Zeroes the counts.
    pub fn reset(&self) -> Result<()> {
        self.write("reset", "1")
    }

    /// Reads the counts.
    pub fn truth(&self) -> Result<Truth> {
        Ok(Truth {
            calls: self.number("calls")?,
            failed: self.number("failed")?,
            held_ns: self.number("held_ns")?,
            arrival_ns: self.number("arrival_ns")?,
        })
    }

    /// A setting of the module ([`NUMBERS`]).
    pub fn set(&self, name: &str, value: u64) -> Result<()> {
        self.write(name, &value.to_string())
    }

    /// What it is called when it is registered the next time.
    pub fn rename(&self, name: &[u8]) -> Result<()> {
        std::fs::write(self.folder.join("device_name"), name).context("cannot rename the device")
    }

    /// A count of the module.
    pub fn number(&self, name: &str) -> Result<u64> {
        let path = self.folder.join(name);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        text.trim()
            .parse()
            .with_context(|| format!("{} is no number", path.display()))
    }

    /// The time each of the last `count` calls took, sorted.
    pub fn sorted_samples(&self, count: u64) -> Result<Vec<u64>> {
        let number = self.name.trim_start_matches("uio_testbed");
        let path = PathBuf::from("/sys/kernel/debug/uio_testbed").join(number);
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut samples: Vec<u64> = bytes
            .chunks_exact(4)
            .take(usize::try_from(count)?)
            .map(|word| u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]])))
            .collect();
        samples.sort_unstable();
        Ok(samples)
    }

    fn write(&self, name: &str, value: &str) -> Result<()> {
        let path = self.folder.join(name);
        std::fs::write(&path, value).with_context(|| format!("cannot write {value} to {}", path.display()))
    }
}

/// The number of the UIO device with this name.
pub fn minor_of(name: &str) -> Result<u32> {
    let entries = std::fs::read_dir("/sys/class/uio").context("there is no UIO device")?;
    for entry in entries.flatten() {
        let found = std::fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if found.trim() == name {
            let node = entry.file_name().to_string_lossy().into_owned();
            return node
                .trim_start_matches("uio")
                .parse()
                .with_context(|| format!("{node} has no number"));
        }
    }
    anyhow::bail!("no UIO device is named {name}")
}

/// The name of the device that [`make_tcmu`] makes.
pub const TCMU_NAME: &str = "tcm-user/0/testbed/testbed//x";

/// Makes a TCMU device without a back end: a UIO device whose writes run tcmu's completion handler. For kernels
/// that the testbed module was not built for. Returns its number.
pub fn make_tcmu() -> Result<u32> {
    crate::kernel_modules::load("target_core_user")?;
    let folder = PathBuf::from("/sys/kernel/config/target/core/user_0/testbed");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // nl_reply_supported=-1: nobody will answer the netlink message
    for (name, value) in [
        (
            "control",
            "dev_size=16777216,dev_config=testbed//x,nl_reply_supported=-1",
        ),
        ("enable", "1"),
    ] {
        std::fs::write(folder.join(name), value)
            .with_context(|| format!("cannot set {name} of the TCMU device"))?;
    }
    minor_of(TCMU_NAME)
}
