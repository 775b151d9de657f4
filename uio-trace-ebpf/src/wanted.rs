//! `--pid`, `--comm`, `--cgroup`: whose doings are traced. Without a filter the verifier removes all of it: it knows that
//! `filters` is 0.

use crate::{maps::CGROUP, settings::setting};
use aya_ebpf::helpers::generated;
use uio_trace_common::offsets::{FILTER_CGROUP, FILTER_COMM, FILTER_PID};

/// Whether `current` is somebody whom the filters leave out. `pid_tgid`: as `bpf_get_current_pid_tgid` gives it.
#[inline(always)]
pub fn unwanted(pid_tgid: u64) -> bool {
    let filters = setting!(filters);
    if filters == 0 {
        return false;
    }
    (filters & FILTER_PID != 0 && (pid_tgid >> 32) as u32 != setting!(target_tgid))
        || (filters & FILTER_COMM != 0 && other_name())
        || outside()
}

/// Whether `current` is not in the cgroup of `--cgroup`, nor below it. A process that exits still is in its cgroup when its AIO
/// contexts are drained: `do_exit` calls `exit_mm` long before `cgroup_exit` (kernel/exit.c).
#[inline(always)]
pub fn outside() -> bool {
    setting!(filters) & FILTER_CGROUP != 0 && CGROUP.current_task_under_cgroup(0) != Ok(true)
}

/// Whether the name of `current` is another one; all 16 bytes are compared, the kernel fills it up with zeros.
#[inline(always)]
fn other_name() -> bool {
    let mut name = [0u64; 2];
    // SAFETY: 16 writable bytes; the helper takes any alignment.
    let failed = unsafe { generated::bpf_get_current_comm(name.as_mut_ptr().cast(), 16) } != 0;
    failed || name != [setting!(target_comm_low), setting!(target_comm_high)]
}
