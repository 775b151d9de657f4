//! Threads that do different operations on one UIO device, each timed by the caller's own clock; alone first, so that what they
//! take without anybody else is known.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::clock::monotonic_ns;

/// What to do.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// The device's number.
    #[arg(long)]
    pub minor: u32,
    /// Kinds of operations, a thread each: write, poll, fault, open, name, version, read.
    #[arg(long, value_delimiter = ',', required = true)]
    pub ops: Vec<String>,
    /// For how long.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Microseconds between two operations of a thread.
    #[arg(long, default_value_t = 300)]
    pub pause_us: u64,
    /// Real-time priority: nothing runs between an operation and the look at the clock after it.
    #[arg(long)]
    pub fifo: bool,
}

/// Number of operations of one kind, and the sum of their times.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    count: u64,
    sum_ns: u64,
}

/// By the tool's names of operations.
type Tallies = std::collections::BTreeMap<&'static str, Tally>;

fn add(tallies: &mut Tallies, op: &'static str, since_ns: u64) {
    let took = monotonic_ns() - since_ns;
    let tally = tallies.entry(op).or_default();
    tally.count += 1;
    tally.sum_ns += took;
}

const PAGE: usize = 4096;
const PAGES: usize = 64;

/// The device's memory, mapped; pages come in by faults.
struct Mapping {
    start: *mut u8,
    touched: usize,
}

impl Mapping {
    fn new(file: &File, tallies: &mut Tallies) -> Result<Mapping> {
        let before = monotonic_ns();
        // SAFETY: a new mapping at a place the kernel chooses; the result is checked.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGES * PAGE,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            bail!("cannot map the device: {}", std::io::Error::last_os_error());
        }
        add(tallies, "mmap", before);
        Ok(Mapping {
            start: start.cast(),
            touched: 0,
        })
    }

    /// The next page; false: all have been touched.
    fn touch(&mut self, tallies: &mut Tallies) -> bool {
        if self.touched == PAGES {
            return false;
        }
        let before = monotonic_ns();
        // SAFETY: inside of the mapping.
        unsafe { self.start.add(self.touched * PAGE).read_volatile() };
        add(tallies, "fault", before);
        self.touched += 1;
        true
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nothing refers to any more.
        unsafe { libc::munmap(self.start.cast(), PAGES * PAGE) };
    }
}

/// One thread's operations until `end_ns`.
fn repeat(options: &Options, op: &str, end_ns: u64) -> Result<Tallies> {
    let node = format!("/dev/uio{}", options.minor);
    let open = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(&node)
            .with_context(|| format!("cannot open {node}"))
    };
    let attribute = |name: &str| {
        let path = format!("/sys/class/uio/uio{}/{name}", options.minor);
        File::open(&path).with_context(|| format!("cannot open {path}"))
    };
    if options.fifo {
        let priority = libc::sched_param { sched_priority: 10 };
        // SAFETY: `priority` is a valid sched_param; without the privilege nothing happens.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) };
    }
    let mut tallies = Tallies::new();
    let mut mapping = None;
    let path = CString::new(node.as_str())?;
    let file = match op {
        "name" | "version" => attribute(op)?,
        _ => open()?,
    };
    loop {
        let before = monotonic_ns();
        if before >= end_ns {
            return Ok(tallies);
        }
        match op {
            "write" => {
                let stamp = (before as u32).max(2).to_ne_bytes();
                let written = file.write_at(&stamp, 0).context("a write")?;
                add(&mut tallies, "write", before);
                if written != stamp.len() {
                    bail!("a write of {written} bytes");
                }
            }
            "read" => {
                let mut count = [0; 4];
                file.read_at(&mut count, 0).context("a read")?;
                add(&mut tallies, "read", before);
            }
            "poll" => {
                let mut asked = libc::pollfd {
                    fd: file.as_raw_fd(),
                    events: libc::POLLIN,
                    revents: 0,
                };
                // SAFETY: one pollfd; returns at once.
                unsafe { libc::poll(&mut asked, 1, 0) };
                add(&mut tallies, "poll", before);
            }
            "fault" => {
                let mapped = match mapping.as_mut() {
                    Some(mapped) => mapped,
                    None => mapping.insert(Mapping::new(&file, &mut tallies)?),
                };
                if !mapped.touch(&mut tallies) {
                    mapping = None;
                }
            }
            "open" => {
                // SAFETY: a path that ends with NUL; the result is checked.
                let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR) };
                add(&mut tallies, "open", before);
                if fd < 0 {
                    bail!("cannot open {node}: {}", std::io::Error::last_os_error());
                }
                let before = monotonic_ns();
                // SAFETY: opened above, and nobody else has it.
                unsafe { libc::close(fd) };
                add(&mut tallies, "release", before);
            }
            "name" | "version" => {
                let mut text = [0; 256];
                file.read_at(&mut text, 0).context("an attribute")?;
                let op = if op == "name" { "name_show" } else { "version_show" };
                add(&mut tallies, op, before);
            }
            other => bail!("there is no operation {other}"),
        }
        std::thread::sleep(Duration::from_micros(options.pause_us));
    }
}

/// Runs the threads to their end. Operations that set a thread up (its own open and close) are not in the figures.
pub fn run(options: &Options) -> Result<Value> {
    let end_ns = monotonic_ns() + (options.seconds * 1e9) as u64;
    let threads: Vec<_> = options
        .ops
        .iter()
        .map(|op| {
            let (options, op) = (options.clone(), op.clone());
            std::thread::spawn(move || repeat(&options, &op, end_ns))
        })
        .collect();
    let mut all = Tallies::new();
    for thread in threads {
        let tallies = thread
            .join()
            .map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        for (op, tally) in tallies {
            let sum = all.entry(op).or_default();
            sum.count += tally.count;
            sum.sum_ns += tally.sum_ns;
        }
    }
    let set_up = options
        .ops
        .iter()
        .filter(|op| !matches!(op.as_str(), "name" | "version"))
        .count();
    let ops: serde_json::Map<String, Value> = all
        .into_iter()
        .map(|(op, tally)| {
            let figures = json!({ "count": tally.count, "latency_ns": tally.sum_ns });
            (op.to_owned(), figures)
        })
        .collect();
    Ok(json!({
        "workload": "uio-mix",
        "tgid": std::process::id(),
        // opens, and later releases, of threads that only set themselves up
        "set_up": set_up,
        "ops": ops,
    }))
}
