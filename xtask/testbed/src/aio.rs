//! AIO contexts by raw system calls, torn down by exit (together) or by io_destroy (one after another), each
//! timed by a clock outside the tool.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::clock::monotonic_ns;
use crate::shared::SharedWords;

/// What to set up and how to end it.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// How many contexts.
    #[arg(long, default_value_t = 1)]
    pub contexts: usize,
    /// A child process exits with them.
    #[arg(long, conflicts_with = "destroy", required_unless_present_any = ["destroy", "hold"])]
    pub exit: bool,
    /// The child exits when a grace period has just ended, and the parent sleeps meanwhile, so that no processor is busy; the
    /// parent's clock then has its wake in it.
    #[arg(long, requires = "exit")]
    pub calm: bool,
    /// Wait with them to be killed.
    #[arg(long, conflicts_with_all = ["destroy", "exit"])]
    pub hold: bool,
    /// io_destroy for each.
    #[arg(long)]
    pub destroy: bool,
    /// Reads in flight in each context at its end.
    #[arg(long, default_value_t = 0, requires = "file")]
    pub in_flight: usize,
    /// Its process's name.
    #[arg(long)]
    pub comm: Option<String>,
    /// Where they read from, with O_DIRECT.
    #[arg(long)]
    pub file: Option<String>,
}

/// Runs the workload.
pub fn run(options: &Options) -> Result<Value> {
    if options.exit {
        by_exit(options)
    } else if options.hold {
        hold(options)
    } else {
        by_destroy(options)
    }
}

/// struct iocb of linux/aio_abi.h, little endian.
#[repr(C)]
#[derive(Debug, Default)]
struct ControlBlock {
    data: u64,
    key: u32,
    flags: u32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    more_flags: u32,
    event_descriptor: u32,
}

const READ: u16 = 0;
const BLOCK: usize = 4096;

/// Contexts with their reads; the buffers must outlive the reads.
pub struct Contexts {
    ids: Vec<u64>,
    /// When the last read of each was submitted, ns.
    submitted_ns: Vec<u64>,
    buffers: Vec<Vec<u8>>,
    file: Option<std::fs::File>,
}

impl Contexts {
    /// As io_setup(2) gave them.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Submits the reads of the context with this index.
    pub fn submit(&mut self, index: usize, reads: usize) -> Result<()> {
        let id = *self.ids.get(index).context("no such context")?;
        if let Some(file) = &self.file {
            for number in 0..reads {
                self.buffers.push(submit_read(id, file.as_raw_fd(), number)?);
            }
        }
        self.submitted_ns.push(monotonic_ns());
        Ok(())
    }
}

fn set_up(options: &Options) -> Result<Contexts> {
    let mut contexts = make(options.contexts, options.in_flight, options.file.as_deref())?;
    for index in 0..options.contexts {
        contexts.submit(index, options.in_flight)?;
    }
    Ok(contexts)
}

/// Contexts without reads, each with room for so many, of this file.
pub fn make(count: usize, reads: usize, file: Option<&str>) -> Result<Contexts> {
    let file = match file {
        Some(path) => Some(
            std::fs::OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_DIRECT)
                .open(path)
                .with_context(|| format!("cannot open {path}"))?,
        ),
        None => None,
    };
    let mut contexts = Contexts {
        ids: Vec::new(),
        submitted_ns: Vec::new(),
        buffers: Vec::new(),
        file,
    };
    for _ in 0..count {
        let mut id: u64 = 0;
        let events = reads.max(1);
        // SAFETY: io_setup writes the new context's id to `id`, which must be zero before.
        if unsafe { libc::syscall(libc::SYS_io_setup, events, &mut id) } != 0 {
            bail!("io_setup: {}", std::io::Error::last_os_error());
        }
        contexts.ids.push(id);
    }
    Ok(contexts)
}

fn submit_read(context: u64, descriptor: i32, number: usize) -> Result<Vec<u8>> {
    // O_DIRECT wants an aligned buffer: twice the size always contains one.
    let mut buffer = vec![0_u8; 2 * BLOCK];
    let aligned = (buffer.as_mut_ptr() as usize).next_multiple_of(BLOCK);
    let mut block = ControlBlock {
        opcode: READ,
        descriptor: u32::try_from(descriptor)?,
        buffer: aligned as u64,
        bytes: BLOCK as u64,
        offset: i64::try_from(number * BLOCK)?,
        ..ControlBlock::default()
    };
    let mut list = [&raw mut block];
    // SAFETY: the control block is copied by io_submit; the buffer it points to is returned and kept alive.
    let submitted = unsafe { libc::syscall(libc::SYS_io_submit, context, 1, list.as_mut_ptr()) };
    if submitted != 1 {
        bail!("io_submit: {}", std::io::Error::last_os_error());
    }
    Ok(buffer)
}

/// Says that the contexts are there, and waits for a signal that ends the process.
fn hold(options: &Options) -> Result<Value> {
    let _contexts = set_up(options)?;
    println!(
        "{}",
        json!({ "workload": "aio-hold", "tgid": std::process::id() })
    );
    loop {
        // SAFETY: returns after a signal that has a handler; there is none.
        unsafe { libc::pause() };
    }
}

/// The words a child and its parent share.
const READY: usize = 0;
const GO: usize = 1;
const EXITS_AT: usize = 2;
/// When the last read of each context was submitted.
const SUBMITTED: usize = 8;
/// Contexts of which that is told.
const SUBMITTED_MAX: usize = 64;
const READY_OK: u64 = 1;
const READY_FAILED: u64 = 2;

/// From just before the child's exit_group to the parent's return from waitpid, and the same of a child that has as many
/// mappings and no contexts: what exit takes besides exit_aio. Each context has its ring mapped.
fn by_exit(options: &Options) -> Result<Value> {
    let none = Options {
        contexts: 0,
        ..options.clone()
    };
    let mut others = (0..5)
        .map(|_| exit_of_child(&none, options.contexts))
        .collect::<Result<Vec<Exit>>>()?;
    others.sort_by_key(|exit| exit.exit_ns);
    let Exit {
        child,
        exit_ns,
        exits_at_ns,
        submitted_ns,
    } = exit_of_child(options, 0)?;
    Ok(json!({
        "workload": "aio-exit",
        "tgid": child,
        "contexts": options.contexts,
        "exit_ns": exit_ns,
        "exits_at_ns": exits_at_ns,
        "submitted_ns": submitted_ns,
        "exit_without_contexts_ns": others[others.len() / 2].exit_ns,
    }))
}

/// The exit of a child.
struct Exit {
    child: i32,
    /// How long it took.
    exit_ns: u64,
    /// When it began.
    exits_at_ns: u64,
    /// When the last read of each context was submitted, of the first [`SUBMITTED_MAX`].
    submitted_ns: Vec<u64>,
}

const PAGE: usize = 4096;
/// A context's ring: two pages.
const RING: usize = 2 * PAGE;

/// A file for mappings like those of contexts' rings. The parent keeps it open, so that its pages stay when the child exits:
/// the kernel frees rings later, too.
fn ring_file(count: usize) -> Result<OwnedFd> {
    // SAFETY: a name that is NUL-terminated, and no flags.
    let file = unsafe { libc::memfd_create(c"rings".as_ptr(), 0) };
    if file < 0 {
        bail!("memfd: {}", std::io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    // SAFETY: the descriptor is open.
    if unsafe { libc::ftruncate(file.as_raw_fd(), (2 * RING * count) as libc::off_t) } != 0 {
        bail!("memfd: {}", std::io::Error::last_os_error());
    }
    Ok(file)
}

/// Makes the mappings, with their pages in use.
fn map_like_rings(file: &OwnedFd, count: usize) -> Result<()> {
    for index in 0..count {
        // With a gap in the file, so that the kernel does not make one of two.
        let offset = (2 * RING * index) as libc::off_t;
        let (protection, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                RING,
                protection,
                shared,
                file.as_raw_fd(),
                offset,
            )
        };
        if at == libc::MAP_FAILED {
            bail!("mmap: {}", std::io::Error::last_os_error());
        }
        // SAFETY: both pages are inside the mapping.
        unsafe {
            at.cast::<u8>().write_volatile(1);
            at.cast::<u8>().add(PAGE).write_volatile(1);
        }
    }
    Ok(())
}

/// A child that sets up and exits.
fn exit_of_child(options: &Options, mappings: usize) -> Result<Exit> {
    let words = SharedWords::new()?;
    let rings = ring_file(mappings)?;
    // SAFETY: this process has one thread, so the child may run any code.
    let child = unsafe { libc::fork() };
    if child < 0 {
        bail!("fork: {}", std::io::Error::last_os_error());
    }
    if child == 0 {
        exit_with_contexts(options, (&rings, mappings), &words);
    }
    while words.word(READY).load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    words.word(GO).store(1, Ordering::Release);
    // Asked again and again rather than waited for: a sleeping parent would add the time of its own waking.
    let mut status = 0;
    let flags = if options.calm { 0 } else { libc::WNOHANG };
    let ended = loop {
        // SAFETY: `status` is a valid place for the result.
        let ended = unsafe { libc::waitpid(child, &mut status, flags) };
        if ended != 0 {
            break ended;
        }
        std::hint::spin_loop();
    };
    let reaped_at = monotonic_ns();
    if ended != child || words.word(READY).load(Ordering::Acquire) == READY_FAILED {
        bail!("the child could not set its contexts up (try a higher /proc/sys/fs/aio-max-nr)");
    }
    let exits_at_ns = words.word(EXITS_AT).load(Ordering::Acquire);
    let told = 0..options.contexts.min(SUBMITTED_MAX);
    Ok(Exit {
        child,
        exit_ns: reaped_at - exits_at_ns,
        exits_at_ns,
        submitted_ns: told
            .map(|index| words.word(SUBMITTED + index).load(Ordering::Acquire))
            .collect(),
    })
}

fn exit_with_contexts(options: &Options, rings: (&OwnedFd, usize), words: &SharedWords) -> ! {
    let contexts = map_like_rings(rings.0, rings.1).and_then(|()| set_up(options));
    if let Ok(contexts) = &contexts {
        for (index, at) in contexts.submitted_ns.iter().take(SUBMITTED_MAX).enumerate() {
            words.word(SUBMITTED + index).store(*at, Ordering::Release);
        }
    }
    let ready = if contexts.is_ok() { READY_OK } else { READY_FAILED };
    words.word(READY).store(ready, Ordering::Release);
    while words.word(GO).load(Ordering::Acquire) == 0 {
        std::hint::spin_loop();
    }
    if options.calm {
        wait_for_grace_periods();
    }
    words.word(EXITS_AT).store(monotonic_ns(), Ordering::Release);
    // SAFETY: ends the process at once, without destructors that would free the buffers of reads in flight.
    unsafe { libc::_exit(0) }
}

/// io_destroy(2): returns when the context's reads are done.
pub fn destroy(id: u64) -> Result<()> {
    // SAFETY: plain integers. The kernel refuses what is no context of this process; the buffers of its reads are their owner's
    // to keep, who outlives the call.
    if unsafe { libc::syscall(libc::SYS_io_destroy, id) } != 0 {
        bail!("io_destroy: {}", std::io::Error::last_os_error());
    }
    Ok(())
}

/// Waits for grace periods, until what other processes have left to RCU is done: membarrier(2) with this command is
/// synchronize_rcu (kernel/sched/membarrier.c).
fn wait_for_grace_periods() {
    const GLOBAL: libc::c_long = 1;
    for _ in 0..4 {
        // SAFETY: integers only.
        unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) };
    }
}

fn by_destroy(options: &Options) -> Result<Value> {
    // Reads are submitted just before their context is destroyed: all are in flight then.
    let mut contexts = make(options.contexts, options.in_flight, options.file.as_deref())?;
    let mut times = Vec::with_capacity(contexts.ids.len());
    let start = monotonic_ns();
    for index in 0..options.contexts {
        contexts.submit(index, options.in_flight)?;
        let id = contexts.ids[index];
        let before = monotonic_ns();
        destroy(id)?;
        times.push(monotonic_ns() - before);
    }
    let wall = monotonic_ns() - start;
    Ok(json!({
        "workload": "aio-destroy",
        "tgid": std::process::id(),
        "contexts": options.contexts,
        "wall_ns": wall,
        "destroy_ns": times,
        "submitted_ns": contexts.submitted_ns,
    }))
}
