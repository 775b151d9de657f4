//! How much memory there is to be had.

use super::Root;

/// MemAvailable of /proc/meminfo, bytes: what can be used without swapping. `None`: it cannot be read.
pub fn available(root: &Root) -> Option<u64> {
    let text = root.text("proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
