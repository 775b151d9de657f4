//! What runs in a guest. As PID 1 it brings the guest up and runs its job; otherwise it is a workload that
//! measures itself, or the runner that compares what uio-trace says with those measures.

mod aio;
mod aio_threads;
mod bench;
mod bench_aio;
mod bench_uio_2022;
mod bench_what_if;
mod bpf_programs;
mod breakpoints;
mod clock;
mod demo;
mod device;
mod init;
mod job;
mod kernel_modules;
mod mapper;
mod ref_testbed;
mod refs;
mod report;
mod shared;
mod storm;
mod tcmu;
mod tests;
mod tool;
mod uio_mix;
mod uio_write;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "testbed", about = "Workloads and tests for uio-trace's guests")]
struct Cli {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Threads that write to UIO devices; one JSON line with their own measures.
    UioWrite(uio_write::Options),
    /// Threads that do different operations on one UIO device; one JSON line with their own measures.
    UioMix(uio_mix::Options),
    /// AIO contexts torn down by exit or one by one; one JSON line with own measures.
    Aio(aio::Options),
    /// AIO contexts destroyed by several threads at a time.
    AioThreads(aio_threads::Options),
    /// Processes without AIO that come and go.
    NoaioExit {
        /// How many.
        #[arg(long, default_value_t = 1000)]
        count: u32,
    },
    /// Processes that exit with an AIO context each, some at a time.
    AioStorm(storm::Options),
    /// A cgroup made and removed.
    CgroupCycle {
        /// How often.
        #[arg(long, default_value_t = 1)]
        count: u32,
        /// Only on this processor.
        #[arg(long)]
        cpu: Option<usize>,
    },
    /// An io_uring made and closed.
    IouringClose {
        /// How often.
        #[arg(long, default_value_t = 1)]
        count: u32,
    },
    /// The I/O scheduler of a block device changed, which freezes its queue.
    Elevator {
        /// The block device's name.
        #[arg(long, default_value = "nullb0")]
        device: String,
        /// How often.
        #[arg(long, default_value_t = 1)]
        count: u32,
    },
    /// A load with something on every screen, until killed.
    Demo,
    /// The tests.
    GuestTests(tests::Options),
    /// What tracing costs, in instructions of a guest whose clock counts them.
    Bench(bench::Options),
    /// AIO contexts destroyed one by one, and together.
    BenchAio(bench_aio::Options),
    /// What the tool projects without info_lock, and what is measured without it.
    BenchWhatIf(bench_what_if::Options),
    /// fio on a disk served through TCMU, with info_lock and without.
    #[command(name = "bench-uio-2022")]
    BenchUio2022(bench_uio_2022::Options),
}

fn main() -> ExitCode {
    if std::process::id() == 1 {
        init::main();
    }
    match run(Cli::parse().role) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The name process lists show: what this process does. The program's file is the same for all of them.
fn set_name(role: &Role) -> Result<()> {
    let asked;
    let name = match role {
        Role::UioWrite(uio_write::Options { comm: Some(comm), .. })
        | Role::Aio(aio::Options { comm: Some(comm), .. }) => {
            asked = std::ffi::CString::new(comm.as_str())?;
            asked.as_c_str()
        }
        Role::UioWrite(_) => c"uio-writer",
        Role::UioMix(_) => c"uio-mixer",
        Role::Aio(options) if options.destroy => c"aio-destroyer",
        Role::Aio(options) if options.hold => c"aio-holder",
        Role::Aio(_) => c"aio-exiter",
        Role::AioThreads(_) => c"aio-threads",
        Role::AioStorm(_) => c"aio-storm",
        Role::CgroupCycle { .. } => c"cgroup-cycler",
        Role::IouringClose { .. } => c"iouring-closer",
        Role::Elevator { .. } => c"elevator",
        _ => return Ok(()),
    };
    // SAFETY: the name is NUL-terminated; the kernel cuts it to its 15 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    Ok(())
}

fn run(role: Role) -> Result<ExitCode> {
    set_name(&role)?;
    match role {
        Role::UioWrite(options) => println!("{}", uio_write::run(&options)?),
        Role::UioMix(options) => println!("{}", uio_mix::run(&options)?),
        Role::Aio(options) => println!("{}", aio::run(&options)?),
        Role::AioThreads(options) => println!("{}", aio_threads::run(&options)?),
        Role::NoaioExit { count } => println!("{}", refs::exit_without_aio(count)?),
        Role::AioStorm(options) => println!("{}", storm::run(&options)?),
        Role::CgroupCycle { count, cpu } => println!("{}", refs::cgroup_cycle(count, cpu)?),
        Role::IouringClose { count } => println!("{}", refs::iouring_close(count)?),
        Role::Elevator { device, count } => println!("{}", refs::elevator(&device, count)?),
        Role::Demo => demo::run()?,
        Role::GuestTests(options) => return tests::run(&options),
        Role::Bench(options) => bench::run(&options)?,
        Role::BenchAio(options) => bench_aio::run(&options)?,
        Role::BenchWhatIf(options) => bench_what_if::run(&options)?,
        Role::BenchUio2022(options) => bench_uio_2022::run(&options)?,
    }
    Ok(ExitCode::SUCCESS)
}
