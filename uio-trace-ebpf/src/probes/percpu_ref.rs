//! percpu_ref: kill, the end of the switch to atomic mode, release, and a look at a ref on demand.
//!
//! lib/ is built without ftrace, so neither fentry nor kprobes reach these functions on stock kernels; a hardware execute
//! breakpoint does. The breakpoint programs run in NMI-like context: a ring whose lock is taken refuses, and that is counted.

use crate::{
    emit::{lifecycle, lifecycle_at},
    kernel_read::{ReadFault, read_at},
    maps::{KILL_STACKS, KILLS, count},
    settings::setting,
};
use aya_ebpf::{
    helpers::bpf_ktime_get_ns,
    macros::{kprobe, perf_event, raw_tracepoint},
    programs::{PerfEventContext, ProbeContext, RawTracePointContext, tracing::StackIdContext},
};
use aya_log_ebpf::debug;
use uio_trace_common::{
    event::{
        KIND_REF_KILL, KIND_REF_LOOK, KIND_REF_RELEASED, KIND_REF_SWITCHED, RefKill, RefLook, RefReleased,
        RefSwitched, STACK_NOT_WANTED,
    },
    loss::{DROP_READ_FAULT, REF_KILL_RUNS, REF_SWITCH_RUNS},
    offsets::MAX_SUMMED_CPUS,
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
    if kill(&ctx, reference, confirm).is_err() {
        count(DROP_READ_FAULT);
        debug!(&ctx, "kill: cannot read percpu_ref {:x}", reference);
    }
    0
}

/// The same by kprobe, for kernels with CONFIG_KPROBE_EVENTS_ON_NOTRACE or a traced lib/.
#[kprobe]
pub fn ref_kill_kprobe(ctx: ProbeContext) -> u32 {
    if let (Some(reference), Some(confirm)) = (ctx.arg(0), ctx.arg(1))
        && kill(&ctx, reference, confirm).is_err()
    {
        count(DROP_READ_FAULT);
    }
    0
}

/// Kills of an owner (on each CPU) whose stack is taken in any case, and then every how many.
const STACKS_FIRST: u64 = 16;
const STACKS_EVERY: u64 = 64;

/// The killer's kernel stack. To unwind it costs as much as all the rest, so of an owner with many kills only some have it.
#[inline(always)]
fn stack(ctx: &impl StackIdContext, release: u64) -> i64 {
    let nth = match KILLS.get_ptr_mut(&release) {
        // SAFETY: a per-CPU value; a breakpoint's program that comes in between can lose a count, never corrupt it.
        Some(kills) => unsafe {
            *kills += 1;
            *kills
        },
        None => {
            let _ = KILLS.insert(&release, &0, 0);
            0
        }
    };
    if nth >= STACKS_FIRST && nth % STACKS_EVERY != 0 {
        return STACK_NOT_WANTED;
    }
    match ctx.get_stackid(&KILL_STACKS, 0) {
        Ok(id) => id,
        Err(error) => error.into(),
    }
}

#[inline(always)]
fn kill(ctx: &impl StackIdContext, reference: u64, confirm: u64) -> Result<(), ReadFault> {
    // SAFETY: no arguments, no preconditions. First: the rest is ours.
    let now = unsafe { bpf_ktime_get_ns() };
    let count_ptr: u64 = read_at(reference, setting!(ref_count_ptr))?;
    let data: u64 = read_at(reference, setting!(ref_data))?;
    let release: u64 = read_at(data, setting!(data_release))?;
    let count = read_at(data, setting!(data_count)).unwrap_or(0);
    lifecycle_at(
        KIND_REF_KILL,
        now,
        RefKill {
            reference,
            data,
            release,
            confirm,
            count_ptr,
            count,
            stack: stack(ctx, release),
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
    let count_ptr: u64 = read_at(reference, setting!(ref_count_ptr))?;
    let (counted, count) = match references(data, count_ptr) {
        Some(count) => (1, count),
        None => (0, 0),
    };
    lifecycle_at(
        KIND_REF_SWITCHED,
        now,
        RefSwitched {
            reference,
            data,
            release,
            confirm,
            count_ptr,
            count,
            counted,
        },
    );
    Ok(())
}

/// Flags in `percpu_count_ptr`: `__PERCPU_REF_FLAG_BITS` of them, include/linux/percpu-refcount.h.
const COUNT_PTR_FLAGS: u64 = 3;
/// `PERCPU_COUNT_BIAS`, lib/percpu-refcount.c.
const COUNT_BIAS: u64 = 1 << 63;

/// The references of a ref whose grace period is over, as `percpu_ref_switch_to_atomic_rcu` is about to sum them up: no CPU
/// counts in its own counter any more, the atomic count goes on.
#[inline(always)]
fn references(data: u64, count_ptr: u64) -> Option<u64> {
    let (table, cpus) = (setting!(per_cpu_offset), setting!(possible_cpus));
    if table == 0 || cpus == 0 || cpus > MAX_SUMMED_CPUS {
        return None;
    }
    let counters = count_ptr & !COUNT_PTR_FLAGS;
    let mut sum: u64 = read_at(data, setting!(data_count)).ok()?;
    for cpu in 0..MAX_SUMMED_CPUS {
        if cpu >= cpus {
            break;
        }
        let area: u64 = read_at(table, cpu * 8).ok()?;
        let counter: u64 = read_at(counters.wrapping_add(area), 0).ok()?;
        sum = sum.wrapping_add(counter);
    }
    Some(sum.wrapping_sub(COUNT_BIAS))
}

/// Any release function, `void (percpu_ref_func_t)(struct percpu_ref *ref)`: its ref's last reference is gone.
#[kprobe]
pub fn ref_release_kprobe(ctx: ProbeContext) -> u32 {
    if let Some(reference) = ctx.arg(0)
        && released(reference).is_err()
    {
        count(DROP_READ_FAULT);
    }
    0
}

#[inline(always)]
fn released(reference: u64) -> Result<(), ReadFault> {
    // SAFETY: no arguments, no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    let data: u64 = read_at(reference, setting!(ref_data))?;
    let release: u64 = read_at(data, setting!(data_release))?;
    let confirm: u64 = read_at(data, setting!(data_confirm))?;
    lifecycle_at(
        KIND_REF_RELEASED,
        now,
        RefReleased {
            reference,
            release,
            confirm,
        },
    );
    Ok(())
}

/// Attached to nothing: user space runs it (BPF_PROG_TEST_RUN) with the address of a ref that has been dying for long, and it
/// sends what that memory says. In the ring the answer has its place among the ref's events.
#[raw_tracepoint]
pub fn ref_look(ctx: RawTracePointContext) -> i32 {
    send_look(ctx.arg(0));
    0
}

/// Sends what the memory of a ref says.
#[inline(always)]
pub fn send_look(reference: u64) {
    let data = read_at(reference, setting!(ref_data)).unwrap_or(0);
    lifecycle(
        KIND_REF_LOOK,
        RefLook {
            reference,
            back: read_at(data, setting!(data_ref)).unwrap_or(0),
            release: read_at(data, setting!(data_release)).unwrap_or(0),
            count_ptr: read_at(reference, setting!(ref_count_ptr)).unwrap_or(0),
            count: read_at(data, setting!(data_count)).unwrap_or(0),
        },
    );
}
