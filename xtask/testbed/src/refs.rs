//! Causes of percpu_ref traffic, one by one, and processes that cause none.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::clock::{monotonic_ns, wait_until};

/// Forks processes that exit at once; none ever had an AIO context.
pub fn exit_without_aio(count: u32) -> Result<Value> {
    let start = monotonic_ns();
    for _ in 0..count {
        // SAFETY: one thread; the child calls _exit and nothing else.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        if child < 0 {
            bail!("fork: {}", std::io::Error::last_os_error());
        }
        let mut status = 0;
        // SAFETY: `status` is a valid place for the result.
        unsafe { libc::waitpid(child, &mut status, 0) };
    }
    Ok(json!({ "workload": "noaio-exit", "count": count, "wall_ns": monotonic_ns() - start }))
}

/// Makes and removes a cgroup; returns once the kernel has let go of it.
pub fn cgroup_cycle(count: u32, cpu: Option<usize>) -> Result<Value> {
    if let Some(cpu) = cpu {
        // SAFETY: a set of processors is plain words; the calls read and write only it.
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
        };
        if set != 0 {
            bail!("processor {cpu}: {}", std::io::Error::last_os_error());
        }
    }
    let root = std::path::Path::new("/sys/fs/cgroup");
    for number in 0..count {
        let folder = root.join(format!("testbed-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        std::fs::remove_dir(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let dying = || {
        let text = std::fs::read_to_string(root.join("cgroup.stat")).unwrap_or_default();
        text.lines().any(|line| line == "nr_dying_descendants 0")
    };
    wait_until("removed cgroups to go", Duration::from_secs(120), dying)?;
    Ok(json!({ "workload": "cgroup-cycle", "count": count }))
}

/// Makes and closes an io_uring.
pub fn iouring_close(count: u32) -> Result<Value> {
    for _ in 0..count {
        // struct io_uring_params is 120 bytes; all zeroes asks for the defaults
        let mut parameters = [0_u64; 15];
        // SAFETY: the kernel reads and writes the 120 bytes of the parameters.
        let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 8, parameters.as_mut_ptr()) };
        if ring < 0 {
            bail!("io_uring_setup: {}", std::io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and is not used again.
        unsafe { libc::close(i32::try_from(ring)?) };
    }
    Ok(json!({ "workload": "iouring-close", "count": count }))
}

/// Changes a block device's scheduler back and forth: each change freezes its queue.
pub fn elevator(device: &str, count: u32) -> Result<Value> {
    let path = format!("/sys/block/{device}/queue/scheduler");
    for number in 0..count {
        let now = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let next = if now.contains("[none]") {
            "mq-deadline"
        } else {
            "none"
        };
        std::fs::write(&path, next)
            .with_context(|| format!("cannot set {path} to {next} (change {number})"))?;
    }
    Ok(json!({ "workload": "elevator", "count": count }))
}
