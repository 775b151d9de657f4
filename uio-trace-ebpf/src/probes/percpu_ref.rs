//! percpu_ref: kill and the end of the switch to atomic mode.
//!
//! lib/ is built without ftrace, so neither fentry nor kprobes reach these functions on stock kernels; a hardware execute
//! breakpoint does. The breakpoint programs run in NMI-like context: a ring whose lock is taken refuses, and that is counted.

use crate::{
    emit::lifecycle_at,
    kernel_read::{ReadFault, read_at},
    maps::count,
    settings::setting,
};
use aya_ebpf::{
    helpers::bpf_ktime_get_ns,
    macros::{kprobe, perf_event},
    programs::{PerfEventContext, ProbeContext},
};
use aya_log_ebpf::debug;
use uio_trace_common::{
    event::{KIND_REF_KILL, KIND_REF_SWITCHED, RefKill, RefSwitched},
    loss::{DROP_READ_FAULT, REF_KILL_RUNS, REF_SWITCH_RUNS},
};

/// First two integer arguments from the registers a breakpoint hands over.
#[inline(always)]
fn arguments(ctx: &PerfEventContext) -> (u64, u64) {
    // SAFETY: the kernel passes a valid context; reads of `regs` are checked by the verifier.
    #[cfg(bpf_target_arch = "x86_64")]
    unsafe {
        ((*ctx.ctx).regs.rdi, (*ctx.ctx).regs.rsi)
    }
    // SAFETY: as above.
    #[cfg(bpf_target_arch = "aarch64")]
    unsafe {
        ((*ctx.ctx).regs.regs[0], (*ctx.ctx).regs.regs[1])
    }
}

/// `void percpu_ref_kill_and_confirm(struct percpu_ref *ref, percpu_ref_func_t *confirm_kill)`
#[perf_event]
pub fn ref_kill_breakpoint(ctx: PerfEventContext) -> u32 {
    count(REF_KILL_RUNS);
    let (reference, confirm) = arguments(&ctx);
    if kill(reference, confirm).is_err() {
        count(DROP_READ_FAULT);
        debug!(&ctx, "kill: cannot read percpu_ref {:x}", reference);
    }
    0
}

/// The same by kprobe, for kernels with CONFIG_KPROBE_EVENTS_ON_NOTRACE or a traced lib/.
#[kprobe]
pub fn ref_kill_kprobe(ctx: ProbeContext) -> u32 {
    if let (Some(reference), Some(confirm)) = (ctx.arg(0), ctx.arg(1))
        && kill(reference, confirm).is_err()
    {
        count(DROP_READ_FAULT);
    }
    0
}

#[inline(always)]
fn kill(reference: u64, confirm: u64) -> Result<(), ReadFault> {
    // SAFETY: no arguments, no preconditions. First: the rest is ours.
    let now = unsafe { bpf_ktime_get_ns() };
    let count_ptr: u64 = read_at(reference, setting!(ref_count_ptr))?;
    let data: u64 = read_at(reference, setting!(ref_data))?;
    let release: u64 = read_at(data, setting!(data_release))?;
    lifecycle_at(
        KIND_REF_KILL,
        now,
        RefKill {
            reference,
            data,
            release,
            confirm,
            count_ptr,
        },
    );
    Ok(())
}

/// `static void percpu_ref_switch_to_atomic_rcu(struct rcu_head *rcu)`
#[perf_event]
pub fn ref_switched_breakpoint(ctx: PerfEventContext) -> u32 {
    count(REF_SWITCH_RUNS);
    let (rcu_head, _) = arguments(&ctx);
    if switched(rcu_head).is_err() {
        count(DROP_READ_FAULT);
        debug!(&ctx, "switch: cannot read percpu_ref_data of {:x}", rcu_head);
    }
    0
}

/// The same by kprobe.
#[kprobe]
pub fn ref_switched_kprobe(ctx: ProbeContext) -> u32 {
    if let Some(rcu_head) = ctx.arg(0)
        && switched(rcu_head).is_err()
    {
        count(DROP_READ_FAULT);
    }
    0
}

#[inline(always)]
fn switched(rcu_head: u64) -> Result<(), ReadFault> {
    // SAFETY: no arguments, no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    let data = rcu_head.wrapping_sub(u64::from(setting!(data_rcu)));
    let reference: u64 = read_at(data, setting!(data_ref))?;
    let release: u64 = read_at(data, setting!(data_release))?;
    let confirm: u64 = read_at(data, setting!(data_confirm))?;
    lifecycle_at(
        KIND_REF_SWITCHED,
        now,
        RefSwitched {
            reference,
            data,
            release,
            confirm,
        },
    );
    Ok(())
}
