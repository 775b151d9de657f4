//! Many processes, each of which exits with an AIO context.

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::clock::monotonic_ns;

/// How many.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Processes in all.
    #[arg(long, default_value_t = 100)]
    pub count: u32,
    /// At a time.
    #[arg(long, default_value_t = 64)]
    pub at_once: u32,
}

/// Runs them.
pub fn run(options: &Options) -> Result<Value> {
    let start = monotonic_ns();
    let (mut begun, mut ended) = (0, 0);
    while ended < options.count {
        while begun < options.count && begun - ended < options.at_once {
            // SAFETY: one thread; the child makes two system calls and ends.
            match unsafe { libc::fork() } {
                0 => exit_with_context(),
                child if child < 0 => bail!("fork: {}", std::io::Error::last_os_error()),
                _ => begun += 1,
            }
        }
        let mut status = 0;
        // SAFETY: `status` is a valid place for the result.
        let child = unsafe { libc::waitpid(-1, &mut status, 0) };
        if child < 0 || status != 0 {
            bail!("a process could not set its context up (status {status})");
        }
        ended += 1;
    }
    Ok(json!({
        "workload": "aio-storm",
        "tgid": std::process::id(),
        "count": ended,
        "wall_ns": monotonic_ns() - start,
    }))
}

fn exit_with_context() -> ! {
    let mut id: u64 = 0;
    // SAFETY: io_setup writes the new context's id to `id`; _exit ends the process at once.
    unsafe {
        let made = libc::syscall(libc::SYS_io_setup, 1, &mut id);
        libc::_exit(i32::from(made != 0))
    }
}
