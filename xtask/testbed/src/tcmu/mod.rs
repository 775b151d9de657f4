//! A disk served by this program through TCMU, as tcmu-runner serves one, and a SCSI device of tcm_loop in front of it: the set-up
//! that "uio: Replace mutex info_lock with percpu_ref" (2022) was measured on. Commands come by the ring in /dev/uioN's
//! memory; several threads take them, and each, when it has answered one, writes 4 bytes to /dev/uioN. That write is what
//! runs tcmu's completion handler, under info_lock. The threads count their writes themselves.

pub mod reader;
mod ring;
mod scsi;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::clock::wait_until;
use crate::device::minor_of;
use crate::kernel_modules::load;
use ring::{Command, Ring};
use scsi::{Answer, CHECK_CONDITION, Disk, GOOD, sense};

pub use scsi::pattern;

/// The UIO device's name, and the backstore's.
pub const NAME: &str = "tcm-user/0/served/served//memory";
const BACKSTORE: &str = "/sys/kernel/config/target/core/user_0/served";
const LOOP: &str = "/sys/kernel/config/target/loopback/naa.5001405000000001";
const NEXUS: &str = "naa.5001405000000002";
const LIMIT: Duration = Duration::from_secs(30);
/// How often the thread that waits for commands looks whether it shall end, ms.
const LOOK_MS: i32 = 100;

/// The disk, its handler and the SCSI device; taken down when dropped.
pub struct Served {
    handler: Option<Handler>,
    disk: PathBuf,
}

impl Served {
    /// Sets up a disk of `mebibytes` that `threads` threads serve.
    pub fn set_up(mebibytes: u64, threads: usize) -> Result<Served> {
        for module in ["target_core_user", "tcm_loop", "sd_mod"] {
            load(module)?;
        }
        let memory = Disk::new(mebibytes << 20);
        std::fs::create_dir_all(BACKSTORE).context("cannot make the backstore")?;
        // nl_reply_supported=-1: the kernel does not wait for an answer to its netlink message
        let control = format!(
            "dev_size={},dev_config=served//memory,nl_reply_supported=-1",
            memory.bytes()
        );
        set(&Path::new(BACKSTORE).join("control"), &control)?;
        set(&Path::new(BACKSTORE).join("enable"), "1")?;
        let minor = minor_of(NAME)?;
        let node = format!("/dev/uio{minor}");
        wait_until("the device node", LIMIT, || Path::new(&node).exists())?;
        let mut served = Served {
            handler: Some(Handler::start(minor, memory, threads)?),
            disk: PathBuf::new(),
        };
        // From here on the kernel asks the handler what it is.
        let port = Path::new(LOOP).join("tpgt_1");
        std::fs::create_dir_all(&port).with_context(|| format!("cannot make {}", port.display()))?;
        set(&port.join("nexus"), NEXUS)?;
        let unit = port.join("lun/lun_0");
        std::fs::create_dir_all(&unit).with_context(|| format!("cannot make {}", unit.display()))?;
        std::os::unix::fs::symlink(BACKSTORE, unit.join("served")).context("cannot link the unit")?;
        wait_until("the disk", LIMIT, || {
            disk().is_some_and(|disk| {
                served.disk = disk;
                size_of(&served.disk) > 0 && File::open(&served.disk).is_ok()
            })
        })?;
        Ok(served)
    }

    /// The block device.
    pub fn disk(&self) -> &Path {
        &self.disk
    }

    /// The block layer's count of reads from the disk that are done, and of those that were merged into others.
    pub fn reads(&self) -> Result<(u64, u64)> {
        let name = self.disk.file_name().unwrap_or_default();
        let path = Path::new("/sys/block").join(name).join("stat");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
        let both = numbers.next().zip(numbers.next());
        both.with_context(|| format!("no counts in {}", path.display()))
    }

    /// Waits until no thread of the handler has a command; how many writes it has done then.
    pub fn settled(&self) -> Result<u64> {
        let handler = self.handler.as_ref().context("there is no handler")?;
        wait_until("that the handler is idle", LIMIT, || {
            handler.shared.busy.load(Ordering::SeqCst) == 0
        })?;
        Ok(handler.shared.writes.load(Ordering::SeqCst))
    }

    /// Takes everything down; the first failure is told. Returns how many writes the handler did in all.
    pub fn take_down(mut self) -> Result<u64> {
        self.remove()
    }

    fn remove(&mut self) -> Result<u64> {
        let port = Path::new(LOOP).join("tpgt_1");
        let mut result = Ok(());
        let mut note = |done: std::io::Result<()>, what: &str| {
            if let (Err(error), true) = (done, result.is_ok()) {
                result = Err(anyhow::Error::new(error).context(format!("cannot remove {what}")));
            }
        };
        // The unlinking still sends commands, so the handler goes after it.
        note(std::fs::remove_file(port.join("lun/lun_0/served")), "the link");
        note(std::fs::remove_dir(port.join("lun/lun_0")), "the unit");
        note(std::fs::remove_dir(&port), "the port");
        note(std::fs::remove_dir(LOOP), "the loop");
        let ended = self.handler.take().map_or(Ok(0), Handler::stop);
        note(std::fs::remove_dir(BACKSTORE), "the backstore");
        result?;
        ended
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.handler.is_some() {
            // What is served is over because something else failed; that is told.
            let _ = self.remove();
        }
    }
}

/// Unloads TCMU and tcm_loop, so that `uio` can be exchanged; a device without a handler goes, too.
pub fn unload() -> Result<()> {
    let target = Path::new("/sys/kernel/config/target");
    // Folders that hold references on the modules; not all need be there, and what stays is told by rmmod.
    for folder in ["core/user_0/testbed", "core/user_0", "loopback"] {
        let _ = std::fs::remove_dir(target.join(folder));
    }
    for module in ["tcm_loop", "target_core_user"] {
        if crate::kernel_modules::is_loaded(module) {
            crate::kernel_modules::unload(module)?;
        }
    }
    Ok(())
}

fn set(path: &Path, value: &str) -> Result<()> {
    std::fs::write(path, value).with_context(|| format!("cannot write {value} to {}", path.display()))
}

/// The node of the disk with our vendor name, if it is there.
fn disk() -> Option<PathBuf> {
    for entry in std::fs::read_dir("/sys/block").ok()?.flatten() {
        let vendor = std::fs::read_to_string(entry.path().join("device/vendor")).unwrap_or_default();
        let node = Path::new("/dev").join(entry.file_name());
        if vendor.trim() == "TESTBED" && node.exists() {
            return Some(node);
        }
    }
    None
}

fn size_of(disk: &Path) -> u64 {
    let name = disk.file_name().unwrap_or_default();
    let size = Path::new("/sys/block").join(name).join("size");
    let text = std::fs::read_to_string(size).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

struct Shared {
    device: File,
    ring: Ring,
    disk: Disk,
    end: AtomicBool,
    writes: AtomicU64,
    /// Workers that have a command or look for one.
    busy: AtomicU64,
    /// How often there may be something new, for the workers that wait.
    news: Mutex<u64>,
    changed: Condvar,
}

struct Handler {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Handler {
    fn start(minor: u32, disk: Disk, threads: usize) -> Result<Handler> {
        let size = format!("/sys/class/uio/uio{minor}/maps/map0/size");
        let size = std::fs::read_to_string(&size).with_context(|| format!("cannot read {size}"))?;
        let size = usize::from_str_radix(size.trim().trim_start_matches("0x"), 16)
            .with_context(|| format!("{size} is no size"))?;
        let node = format!("/dev/uio{minor}");
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&node)
            .with_context(|| format!("cannot open {node}"))?;
        let shared = Arc::new(Shared {
            ring: Ring::map(&device, size)?,
            device,
            disk,
            end: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            news: Mutex::new(0),
            changed: Condvar::new(),
        });
        let mut all = Vec::new();
        for index in 0..=threads.max(1) {
            let shared = shared.clone();
            let name = if index == 0 { "tcmu-waiter" } else { "tcmu-worker" };
            let body = move || {
                let done = if index == 0 { shared.wait() } else { shared.work() };
                shared.stop();
                done
            };
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
            all.push(thread.context("cannot start a thread")?);
        }
        Ok(Handler { shared, threads: all })
    }

    fn stop(self) -> Result<u64> {
        self.shared.stop();
        for thread in self.threads {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a thread of the handler panicked"))??;
        }
        Ok(self.shared.writes.load(Ordering::SeqCst))
    }
}

impl Shared {
    fn stop(&self) {
        self.end.store(true, Ordering::SeqCst);
        self.tell();
    }

    fn tell(&self) {
        *self.news.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Waits for the kernel to say that there are commands, and wakes the workers.
    fn wait(&self) -> Result<()> {
        while !self.end.load(Ordering::SeqCst) {
            let mut poll = libc::pollfd {
                fd: self.device.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one valid pollfd, as is said.
            let ready = unsafe { libc::poll(&raw mut poll, 1, LOOK_MS) };
            if ready > 0 {
                let mut count = [0; 4];
                match (&self.device).read(&mut count) {
                    Ok(_) => self.tell(),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error).context("cannot read the UIO device"),
                }
            }
        }
        Ok(())
    }

    /// Answers commands until the end.
    fn work(&self) -> Result<()> {
        let mut seen = 0;
        while !self.end.load(Ordering::SeqCst) {
            self.busy.fetch_add(1, Ordering::SeqCst);
            let found = self.serve_one();
            self.busy.fetch_sub(1, Ordering::SeqCst);
            if found? {
                continue;
            }
            let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
            while *news == seen && !self.end.load(Ordering::SeqCst) {
                news = self.changed.wait(news).unwrap_or_else(PoisonError::into_inner);
            }
            seen = *news;
        }
        Ok(())
    }

    /// Takes a command, answers it and tells the kernel; whether there was one.
    fn serve_one(&self) -> Result<bool> {
        let Some(command) = self.ring.take()? else {
            return Ok(false);
        };
        self.answer(&command)?;
        (&self.device)
            .write_all(&1_u32.to_ne_bytes())
            .context("cannot write to the UIO device")?;
        self.writes.fetch_add(1, Ordering::SeqCst);
        Ok(true)
    }

    fn answer(&self, command: &Command) -> Result<()> {
        match self.disk.answer(&command.cdb) {
            Answer::Done => {}
            Answer::Data(data) => {
                self.ring.put(command, &data)?;
            }
            Answer::Write(at, length) => self.disk.store(at, &self.ring.get(command, length)?),
            Answer::Sense(key, code) => {
                return self.ring.complete(command, CHECK_CONDITION, &sense(key, code));
            }
        }
        self.ring.complete(command, GOOD, &[])
    }
}
