//! AIO contexts: who drains them, and the two releases each of them goes through.
//!
//! `free_ioctx_users` and `free_ioctx_reqs` run in RCU or interrupt context, where `current` is whoever was interrupted;
//! the task is known from `kill_ioctx`, which only the one that will wait calls.

use crate::{
    emit::{lifecycle, lifecycle_at},
    inflight::current_tid,
    kernel_read::{ReadFault, read_at, read_text},
    maps::{AIO_WAITERS, AioWaiter},
    settings::setting,
};
use aya_ebpf::{
    helpers::bpf_ktime_get_ns,
    macros::{fentry, fexit, kprobe, kretprobe},
    programs::{FEntryContext, FExitContext, ProbeContext, RetProbeContext},
};
use uio_trace_common::{
    event::{
        AioKill, AioLastRequest, AioRelease, ExitAio, FILE_NAME, IoDestroy, KIND_AIO_KILL,
        KIND_AIO_LAST_REQUEST, KIND_AIO_REQS_RELEASED, KIND_AIO_USERS_RELEASED, KIND_EXIT_AIO_BEGIN,
        KIND_EXIT_AIO_END, KIND_IO_DESTROY_BEGIN, KIND_IO_DESTROY_END,
    },
    uio::INFLIGHT_BITS,
};

#[inline(always)]
fn waiter(tid: u32) -> Option<&'static mut AioWaiter> {
    let slot = AIO_WAITERS.get_ptr_mut(tid & ((1 << INFLIGHT_BITS) - 1))?;
    // SAFETY: a live map value of plain integers.
    Some(unsafe { &mut *slot })
}

/// Return of `void exit_aio(struct mm_struct *mm)`: every exiting mm comes here, nearly all without contexts, so the entry is
/// not traced: the first `kill_ioctx` outside of io_destroy(2), microseconds after it, tells as much.
#[fexit]
pub fn exit_aio_exit(_ctx: FExitContext) -> i32 {
    exit_end();
    0
}

/// Return of `exit_aio` by kretprobe.
#[kretprobe]
pub fn exit_aio_kretprobe(_ctx: RetProbeContext) -> u32 {
    exit_end();
    0
}

#[inline(always)]
fn exit_end() {
    let tid = current_tid();
    if let Some(slot) = waiter(tid)
        && slot.tid == tid
        && slot.mm != 0
    {
        let mm = slot.mm;
        slot.tid = 0;
        slot.mm = 0;
        lifecycle(KIND_EXIT_AIO_END, ExitAio { mm });
    }
}

/// Offset of the first system call argument in the `struct pt_regs` a system call function gets.
#[cfg(bpf_target_arch = "x86_64")]
const SYSCALL_ARG0: u32 = 112;
/// Offset of the first system call argument in the `struct pt_regs` a system call function gets.
#[cfg(bpf_target_arch = "aarch64")]
const SYSCALL_ARG0: u32 = 0;

/// `long __x64_sys_io_destroy(const struct pt_regs *regs)` (`__arm64_sys_io_destroy`)
#[fentry]
pub fn io_destroy_entry(ctx: FEntryContext) -> i32 {
    destroy_begin(ctx.arg(0));
    0
}

/// Return of `io_destroy(2)`; the value follows the one argument (`bpf_get_func_ret` needs 5.17).
#[fexit]
pub fn io_destroy_exit(ctx: FExitContext) -> i32 {
    destroy_end(ctx.arg(1));
    0
}

/// `io_destroy(2)` by kprobe.
#[kprobe]
pub fn io_destroy_kprobe(ctx: ProbeContext) -> u32 {
    if let Some(regs) = ctx.arg(0) {
        destroy_begin(regs);
    }
    0
}

/// Return of `io_destroy(2)` by kretprobe.
#[kretprobe]
pub fn io_destroy_kretprobe(ctx: RetProbeContext) -> u32 {
    destroy_end(ctx.ret());
    0
}

#[inline(always)]
fn destroy_begin(regs: u64) {
    let user_id = read_at(regs, SYSCALL_ARG0).unwrap_or(0);
    let tid = current_tid();
    if let Some(slot) = waiter(tid) {
        // 0 for the mm: contexts this thread kills until it returns are not killed by exit_aio.
        slot.tid = tid;
        slot.mm = 0;
    }
    lifecycle(KIND_IO_DESTROY_BEGIN, IoDestroy { user_id, ret: 0 });
}

#[inline(always)]
fn destroy_end(ret: i64) {
    let tid = current_tid();
    if let Some(slot) = waiter(tid)
        && slot.tid == tid
    {
        slot.tid = 0;
    }
    lifecycle(KIND_IO_DESTROY_END, IoDestroy { user_id: 0, ret });
}

/// `static int kill_ioctx(struct mm_struct *mm, struct kioctx *ctx, struct ctx_rq_wait *wait)`, called by io_destroy(2), by
/// exit_aio, and by a failed io_setup(2) (without a wait).
#[fentry]
pub fn kill_ioctx_entry(ctx: FEntryContext) -> i32 {
    kill(ctx.arg(0), ctx.arg(1), ctx.arg(2));
    0
}

/// `kill_ioctx` by kprobe.
#[kprobe]
pub fn kill_ioctx_kprobe(ctx: ProbeContext) -> u32 {
    if let (Some(mm), Some(kioctx), Some(wait)) = (ctx.arg(0), ctx.arg(1), ctx.arg(2)) {
        kill(mm, kioctx, wait);
    }
    0
}

#[inline(always)]
fn kill(mm: u64, ctx: u64, wait: u64) {
    // SAFETY: no arguments, no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    let tid = current_tid();
    if wait != 0
        && let Some(slot) = waiter(tid)
        && slot.tid == 0
    {
        slot.tid = tid;
        slot.mm = mm;
        lifecycle_at(KIND_EXIT_AIO_BEGIN, now, ExitAio { mm });
    }
    let user_id = read_at(ctx, setting!(kioctx_user_id)).unwrap_or(0);
    lifecycle_at(
        KIND_AIO_KILL,
        now,
        AioKill {
            mm,
            ctx,
            wait,
            users: ctx.wrapping_add(u64::from(setting!(kioctx_users))),
            reqs: ctx.wrapping_add(u64::from(setting!(kioctx_reqs))),
            user_id,
        },
    );
}

#[inline(always)]
fn users_released(reference: u64) {
    let ctx = reference.wrapping_sub(u64::from(setting!(kioctx_users)));
    lifecycle(KIND_AIO_USERS_RELEASED, AioRelease { ctx, reference });
}

#[inline(always)]
fn reqs_released(reference: u64) {
    let ctx = reference.wrapping_sub(u64::from(setting!(kioctx_reqs)));
    lifecycle(KIND_AIO_REQS_RELEASED, AioRelease { ctx, reference });
}

/// `static void free_ioctx_users(struct percpu_ref *ref)`
#[fentry]
pub fn free_ioctx_users_entry(ctx: FEntryContext) -> i32 {
    users_released(ctx.arg(0));
    0
}

/// `free_ioctx_users` by kprobe.
#[kprobe]
pub fn free_ioctx_users_kprobe(ctx: ProbeContext) -> u32 {
    if let Some(reference) = ctx.arg(0) {
        users_released(reference);
    }
    0
}

/// `static void free_ioctx_reqs(struct percpu_ref *ref)`
#[fentry]
pub fn free_ioctx_reqs_entry(ctx: FEntryContext) -> i32 {
    reqs_released(ctx.arg(0));
    0
}

/// `free_ioctx_reqs` by kprobe.
#[kprobe]
pub fn free_ioctx_reqs_kprobe(ctx: ProbeContext) -> u32 {
    if let Some(reference) = ctx.arg(0) {
        reqs_released(reference);
    }
    0
}

/// Registers that a called function leaves as they are, so that they still hold what its caller needs afterwards.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
fn kept_registers(ctx: &ProbeContext) -> [u64; 6] {
    // SAFETY: the kernel passes a valid context; its loads are checked by the verifier.
    unsafe {
        let regs = &*ctx.regs;
        [regs.rbx, regs.rbp, regs.r12, regs.r13, regs.r14, regs.r15]
    }
}
/// Registers that a called function leaves as they are, so that they still hold what its caller needs afterwards.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
fn kept_registers(ctx: &ProbeContext) -> [u64; 10] {
    // SAFETY: the kernel passes a valid context; its loads are checked by the verifier.
    unsafe {
        let r = &(*ctx.regs).regs;
        [
            r[19], r[20], r[21], r[22], r[23], r[24], r[25], r[26], r[27], r[28],
        ]
    }
}

/// `free_ioctx_reqs` once more, for the request that gave the last reference back. Its caller is `iocb_destroy()` (fs/aio.c,
/// inlined into what completes a request), which frees the request afterwards and so keeps its address in a register. Which of
/// them it is, the request itself tells: it leads back to this context. Where the switch gave the last reference back, none does.
#[kprobe]
pub fn free_ioctx_reqs_request(ctx: ProbeContext) -> u32 {
    let Some(reference) = ctx.arg::<u64>(0) else {
        return 0;
    };
    let kioctx = reference.wrapping_sub(u64::from(setting!(kioctx_reqs)));
    for candidate in kept_registers(&ctx) {
        if read_at(candidate, setting!(kiocb_ctx)).is_ok_and(|of: u64| of == kioctx) {
            if let Ok(request) = last_request(kioctx, candidate) {
                lifecycle(KIND_AIO_LAST_REQUEST, request);
            }
            break;
        }
    }
    0
}

/// `S_IFMT` and `S_IFBLK`, include/uapi/linux/stat.h.
const FILE_TYPE: u16 = 0o170_000;
const BLOCK_DEVICE: u16 = 0o060_000;

#[inline(always)]
fn last_request(kioctx: u64, kiocb: u64) -> Result<AioLastRequest, ReadFault> {
    let file: u64 = read_at(kiocb, setting!(kiocb_file))?;
    let inode: u64 = read_at(file, setting!(file_f_inode))?;
    let mode: u16 = read_at(inode, setting!(inode_i_mode))?;
    let device = if mode & FILE_TYPE == BLOCK_DEVICE {
        read_at(inode, setting!(inode_i_rdev))?
    } else {
        read_at(read_at(inode, setting!(inode_i_sb))?, setting!(super_s_dev))?
    };
    let dentry: u64 = read_at(file, setting!(file_dentry))?;
    let mut name = [0; FILE_NAME];
    read_text(read_at(dentry, setting!(dentry_name))?, &mut name)?;
    Ok(AioLastRequest {
        ctx: kioctx,
        inode: read_at(inode, setting!(inode_i_ino))?,
        device,
        mode: u32::from(mode),
        name,
    })
}
