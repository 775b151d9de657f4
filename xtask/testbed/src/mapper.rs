//! A device-mapper device over another one: one that can be suspended, so that what is read from it waits until it is resumed, as
//! behind a multipath device that queues; or one that answers late. By ioctls (linux/dm-ioctl.h), since guests have no dmsetup.

use std::fs::File;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, bail};

/// struct dm_ioctl, version 4.
#[repr(C)]
#[derive(Clone)]
struct Header {
    version: [u32; 3],
    data_size: u32,
    data_start: u32,
    target_count: u32,
    open_count: i32,
    flags: u32,
    event_nr: u32,
    padding: u32,
    dev: u64,
    name: [u8; 128],
    uuid: [u8; 129],
    data: [u8; 7],
}

/// struct dm_target_spec, and its parameters.
#[repr(C)]
#[derive(Clone)]
struct Target {
    sector_start: u64,
    length: u64,
    status: i32,
    next: u32,
    kind: [u8; 16],
    parameters: [u8; 64],
}

#[repr(C)]
#[derive(Clone)]
struct Request {
    header: Header,
    target: Target,
}

const DEV_CREATE: u64 = 3;
const DEV_REMOVE: u64 = 4;
const DEV_SUSPEND: u64 = 6;
const TABLE_LOAD: u64 = 9;
const SUSPEND: u32 = 1 << 1;
const SKIP_LOCKFS: u32 = 1 << 10;
const NO_FLUSH: u32 = 1 << 11;

/// The device; removed when dropped.
pub struct Mapped {
    control: File,
    name: &'static str,
    minor: u64,
}

impl Mapped {
    /// Maps the first `sectors` of `device`.
    pub fn new(name: &'static str, device: &str, sectors: u64) -> Result<Mapped> {
        Mapped::of(name, ("linear", &format!("{device} 0")), sectors)
    }

    /// The first `sectors` of `device`, whose reads are answered `delay_ms` later (Documentation/admin-guide/device-mapper/delay.rst:
    /// device, offset and delay of reads, then of writes).
    pub fn delayed(name: &'static str, device: &str, sectors: u64, delay_ms: u64) -> Result<Mapped> {
        let parameters = format!("{device} 0 {delay_ms} {device} 0 0");
        Mapped::of(name, ("delay", &parameters), sectors)
    }

    fn of(name: &'static str, (kind, parameters): (&str, &str), sectors: u64) -> Result<Mapped> {
        let control = File::options()
            .read(true)
            .write(true)
            .open("/dev/mapper/control")
            .context("no device mapper")?;
        let mut mapped = Mapped {
            control,
            name,
            minor: 0,
        };
        let made = mapped.request(DEV_CREATE, 0, None)?;
        // Low byte and bits 20 to 31 of the old encoding.
        mapped.minor = (made.header.dev & 0xff) | ((made.header.dev >> 12) & !0xff);
        mapped.request(TABLE_LOAD, 0, Some((sectors, kind, parameters)))?;
        mapped.resume()?;
        Ok(mapped)
    }

    /// Its file.
    pub fn path(&self) -> String {
        format!("/dev/dm-{}", self.minor)
    }

    /// From now on I/O waits; what is in flight is not waited for.
    pub fn suspend(&self) -> Result<()> {
        self.request(DEV_SUSPEND, SUSPEND | SKIP_LOCKFS | NO_FLUSH, None)
            .map(drop)
    }

    /// What waits goes on.
    pub fn resume(&self) -> Result<()> {
        self.request(DEV_SUSPEND, 0, None).map(drop)
    }

    fn request(&self, number: u64, flags: u32, table: Option<(u64, &str, &str)>) -> Result<Request> {
        let size = u32::try_from(size_of::<Request>())?;
        let mut request = Request {
            header: Header {
                version: [4, 0, 0],
                data_size: size,
                data_start: u32::try_from(size_of::<Header>())?,
                target_count: u32::from(table.is_some()),
                open_count: 0,
                flags,
                event_nr: 0,
                padding: 0,
                dev: 0,
                name: [0; 128],
                uuid: [0; 129],
                data: [0; 7],
            },
            target: Target {
                sector_start: 0,
                length: 0,
                status: 0,
                next: 0,
                kind: [0; 16],
                parameters: [0; 64],
            },
        };
        copy(&mut request.header.name, self.name);
        if let Some((sectors, kind, parameters)) = table {
            request.target.length = sectors;
            copy(&mut request.target.kind, kind);
            copy(&mut request.target.parameters, parameters);
        }
        // _IOWR(0xfd, number, struct dm_ioctl)
        let code = (3 << 30) | ((size_of::<Header>() as u64) << 16) | (0xfd << 8) | number;
        // SAFETY: the kernel reads and writes `data_size` bytes, which is the whole request.
        let result = unsafe { libc::ioctl(self.control.as_raw_fd(), code as _, &raw mut request) };
        if result < 0 {
            bail!(
                "device mapper request {number} for {}: {}",
                self.name,
                std::io::Error::last_os_error()
            );
        }
        Ok(request)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // One that stays suspended would keep whoever reads it for ever.
        let _ = self.resume();
        let _ = self.request(DEV_REMOVE, 0, None);
    }
}

fn copy(to: &mut [u8], text: &str) {
    for (to, from) in to.iter_mut().zip(text.bytes()) {
        *to = from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_have_the_kernels_sizes() {
        assert_eq!(size_of::<Header>(), 312);
        assert_eq!(size_of::<Target>() - 64, 40);
    }
}
