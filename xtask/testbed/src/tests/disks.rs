//! Disks that answer after a known time.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::clock::wait_until;
use crate::kernel_modules;
use crate::mapper::Mapped;

const LIMIT: Duration = Duration::from_secs(60);

/// A disk whose reads take a known time; gone when dropped.
pub(super) struct Disk {
    /// As sysfs names it.
    pub(super) name: String,
    /// Its time for a read, ns.
    pub(super) read_ns: u64,
    keeps: Keeps,
}

/// What a disk is made of.
enum Keeps {
    NullBlk,
    Delay(Option<Mapped>),
    Scsi(SlowDisk),
}

impl Disk {
    /// null_blk, by a timer for each request (Documentation/block/null_blk.rst).
    pub(super) fn null_blk(read_ns: u64) -> Result<Disk> {
        if kernel_modules::is_loaded("null_blk") {
            kernel_modules::unload("null_blk")?;
        }
        // Room for all reads: one that has to wait for a place takes longer.
        kernel_modules::load(&format!(
            "null_blk nr_devices=1 queue_mode=2 irqmode=2 hw_queue_depth=256 completion_nsec={read_ns}"
        ))?;
        Ok(Disk {
            name: "nullb0".to_owned(),
            read_ns,
            keeps: Keeps::NullBlk,
        })
    }

    /// dm-delay over a disk in memory.
    pub(super) fn delayed(read_ns: u64) -> Result<Disk> {
        kernel_modules::load("brd rd_nr=1 rd_size=16384")?;
        kernel_modules::load("dm_delay")?;
        let mapped = Mapped::delayed("testbed-delay", "/dev/ram0", 32_768, read_ns / 1_000_000)?;
        let path = mapped.path();
        Ok(Disk {
            name: path.trim_start_matches("/dev/").to_owned(),
            read_ns,
            keeps: Keeps::Delay(Some(mapped)),
        })
    }

    /// scsi_debug with its delay set in ns.
    pub(super) fn scsi(read_ns: u64) -> Result<Disk> {
        let disk = SlowDisk::new()?;
        // The scan for partitions may still be under way.
        wait_until("scsi_debug to take its delay", LIMIT, || {
            std::fs::write("/sys/bus/pseudo/drivers/scsi_debug/ndelay", read_ns.to_string()).is_ok()
        })?;
        Ok(Disk {
            name: SlowDisk::NAME.to_owned(),
            read_ns,
            keeps: Keeps::Scsi(disk),
        })
    }

    /// Its file.
    pub(super) fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        match &mut self.keeps {
            Keeps::NullBlk => {
                let _ = kernel_modules::unload("null_blk");
            }
            Keeps::Delay(mapped) => {
                *mapped = None;
                let _ = kernel_modules::unload("brd");
            }
            Keeps::Scsi(disk) => {
                let _ = disk.set_delay(0);
            }
        }
    }
}

/// A SCSI disk in memory whose commands can be made to take long while it is in use.
pub(super) struct SlowDisk;

impl SlowDisk {
    /// As sysfs names it.
    pub(super) const NAME: &str = "sda";

    /// It answers at once.
    pub(super) fn new() -> Result<SlowDisk> {
        kernel_modules::load("sd_mod")?;
        kernel_modules::load("scsi_debug delay=0 dev_size_mb=8")?;
        let disk = SlowDisk;
        let timeout = format!("/sys/block/{}/device/timeout", SlowDisk::NAME);
        // Found by a scan that goes on after loading; the first reads come from looking for partitions.
        let scheduler = format!("/sys/block/{}/queue/scheduler", SlowDisk::NAME);
        wait_until("the SCSI disk", LIMIT, || {
            std::path::Path::new(&scheduler).exists()
        })?;
        // Seconds after which SCSI gives a command up: not while a test waits for it.
        std::fs::write(&timeout, "300").with_context(|| format!("cannot set {timeout}"))?;
        Ok(disk)
    }

    /// From now on a command takes so long.
    pub(super) fn set_delay(&self, jiffies: u32) -> Result<()> {
        // Refused while commands are under way.
        wait_until("scsi_debug to take its delay", LIMIT, || {
            std::fs::write("/sys/bus/pseudo/drivers/scsi_debug/delay", jiffies.to_string()).is_ok()
        })
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        let _ = kernel_modules::unload("scsi_debug");
    }
}
