//! Threads that write to UIO devices, each write timed by the writer's own clock: the independent measure of
//! latency and, together with the module's hold times, of waiting.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::clock::{monotonic_ns, percentile, thread_cpu_ns};

/// What to write, and how much.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Device nodes; the threads are dealt out over them in turn.
    #[arg(long, value_delimiter = ',', required = true)]
    pub device: Vec<String>,
    /// Writers.
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Writes of each thread.
    #[arg(long, conflicts_with = "seconds")]
    pub count: Option<u64>,
    /// Or for how long.
    #[arg(long)]
    pub seconds: Option<f64>,
    /// At most so many writes a second and thread.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Each thread opens the device itself.
    #[arg(long)]
    pub own_fd: bool,
    /// Also count the writes that took longer than this, microseconds.
    #[arg(long)]
    pub longer_than_us: Option<u64>,
    /// Its process's name.
    #[arg(long)]
    pub comm: Option<String>,
    /// Pin thread n to processor n, so that the measure does not contain migrations.
    #[arg(long)]
    pub pin: bool,
    /// Threads of real-time priority: nothing else (the tool's own user side, a writer that was just woken) runs
    /// between a write and the look at the clock after it.
    #[arg(long)]
    pub fifo: bool,
}

struct Writer {
    device: String,
    latencies: Vec<u64>,
    errors: BTreeMap<String, u64>,
    start_ns: u64,
    end_ns: u64,
    cpu_ns: u64,
    cpus: Vec<u64>,
}

/// Runs the threads to their end.
pub fn run(options: &Options) -> Result<Value> {
    if options.threads == 0 || (options.count.is_none() && options.seconds.is_none()) {
        bail!("give --threads above 0 and --count or --seconds");
    }
    let shared: Vec<Arc<File>> = options
        .device
        .iter()
        .map(|device| open(device).map(Arc::new))
        .collect::<Result<_>>()?;
    let barrier = Arc::new(Barrier::new(options.threads));
    let mut threads = Vec::new();
    for index in 0..options.threads {
        let place = index % options.device.len();
        let device = options.device[place].clone();
        let file = if options.own_fd {
            Arc::new(open(&device)?)
        } else {
            shared[place].clone()
        };
        let (barrier, options) = (barrier.clone(), options.clone());
        threads.push(std::thread::spawn(move || {
            write(index, device, &file, &barrier, &options)
        }));
    }
    let mut writers = Vec::new();
    for thread in threads {
        writers.push(thread.join().map_err(|_| anyhow::anyhow!("a writer panicked"))?);
    }
    Ok(summary(&writers, options.longer_than_us))
}

fn open(device: &str) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(device)
        .with_context(|| format!("cannot open {device}"))
}

fn write(index: usize, device: String, file: &File, barrier: &Barrier, options: &Options) -> Writer {
    if options.pin {
        pin(index);
    }
    if options.fifo {
        let priority = libc::sched_param { sched_priority: 10 };
        // SAFETY: `priority` is a valid sched_param; without the privilege nothing happens.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) };
    }
    let mut latencies =
        Vec::with_capacity(usize::try_from(options.count.unwrap_or(1 << 16)).unwrap_or(1 << 16));
    let mut errors = BTreeMap::new();
    let mut cpus = Vec::new();
    let limit = options.seconds.map(|seconds| (seconds * 1e9) as u64);
    let period = options
        .rate
        .map(|rate| Duration::from_secs_f64(1.0 / rate.max(0.001)));
    barrier.wait();
    let cpu_before = thread_cpu_ns();
    let start_ns = monotonic_ns();
    let mut before = start_ns;
    loop {
        if options.count.is_some_and(|count| latencies.len() as u64 >= count) {
            break;
        }
        if limit.is_some_and(|limit| before.wrapping_sub(start_ns) >= limit) {
            break;
        }
        before = monotonic_ns();
        // What is written is the stamp that the testbed module tells the way to the lock from; 0 and 1 are none.
        let value = (before as u32).max(2).to_ne_bytes();
        // SAFETY: the descriptor is open and the buffer has the four bytes that uio_write() takes.
        let written = unsafe { libc::write(file.as_raw_fd(), value.as_ptr().cast(), value.len()) };
        let after = monotonic_ns();
        latencies.push(after - before);
        if written != 4 {
            let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            *errors.entry(errno_name(error)).or_insert(0) += 1;
        }
        // SAFETY: sched_getcpu takes no argument.
        let cpu = unsafe { libc::sched_getcpu() };
        count_cpu(&mut cpus, cpu);
        if let Some(period) = period {
            std::thread::sleep(period);
        }
    }
    Writer {
        device,
        latencies,
        errors,
        start_ns,
        end_ns: monotonic_ns(),
        cpu_ns: thread_cpu_ns() - cpu_before,
        cpus,
    }
}

fn count_cpu(cpus: &mut Vec<u64>, cpu: i32) {
    if let Ok(cpu) = usize::try_from(cpu) {
        if cpus.len() <= cpu {
            cpus.resize(cpu + 1, 0);
        }
        cpus[cpu] += 1;
    }
}

fn pin(index: usize) {
    let online = std::thread::available_parallelism().map_or(1, usize::from);
    // SAFETY: cpu_set_t is plain data for which all zeroes is the empty set; the macros stay inside it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(index % online, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set);
    }
}

/// The symbol of an errno, as the tool prints it.
pub fn errno_name(errno: i32) -> String {
    let name = match errno {
        libc::EPERM => "EPERM",
        libc::EINTR => "EINTR",
        libc::EIO => "EIO",
        libc::EAGAIN => "EAGAIN",
        libc::EBUSY => "EBUSY",
        libc::EINVAL => "EINVAL",
        libc::ENODEV => "ENODEV",
        libc::ETIMEDOUT => "ETIMEDOUT",
        libc::ENOSYS => "ENOSYS",
        other => return other.to_string(),
    };
    name.to_owned()
}

fn summary(writers: &[Writer], longer_than_us: Option<u64>) -> Value {
    let start = writers.iter().map(|writer| writer.start_ns).min().unwrap_or(0);
    let end = writers.iter().map(|writer| writer.end_ns).max().unwrap_or(0);
    let mut devices: Vec<&str> = writers.iter().map(|writer| writer.device.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    let of_device = |device: &str| {
        let mine: Vec<&Writer> = writers.iter().filter(|writer| writer.device == device).collect();
        let mut latencies: Vec<u64> = mine
            .iter()
            .flat_map(|writer| writer.latencies.iter().copied())
            .collect();
        latencies.sort_unstable();
        let longer = longer_than_us.map(|us| {
            let place = latencies.partition_point(|latency| *latency <= us * 1000);
            let longer = &latencies[place..];
            json!({ "count": longer.len(), "sum_ns": longer.iter().sum::<u64>() })
        });
        let mut errors: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, count) in mine.iter().flat_map(|writer| &writer.errors) {
            *errors.entry(name).or_insert(0) += count;
        }
        json!({
            "device": device,
            "writes": latencies.len(),
            "errors": errors,
            "longer": longer,
            // each thread's own time from its first to its last write, added up
            "thread_ns": mine.iter().map(|writer| writer.end_ns - writer.start_ns).sum::<u64>(),
            // and CPU time in it
            "cpu_ns": mine.iter().map(|writer| writer.cpu_ns).sum::<u64>(),
            "latency_ns": {
                "sum": latencies.iter().sum::<u64>(),
                "min": latencies.first(),
                "max": latencies.last(),
                "p50": percentile(&latencies, 0.50),
                "p98_5": percentile(&latencies, 0.985),
                "p99": percentile(&latencies, 0.99),
                "p99_5": percentile(&latencies, 0.995),
            },
        })
    };
    json!({
        "workload": "uio-write",
        "wall_ns": end - start,
        "devices": devices.iter().map(|device| of_device(device)).collect::<Vec<Value>>(),
        "threads": writers.iter().map(|writer| json!({
            "device": writer.device,
            "writes": writer.latencies.len(),
            "wall_ns": writer.end_ns - writer.start_ns,
            "cpus": writer.cpus,
        })).collect::<Vec<Value>>(),
    })
}
