//! Opening perf events for BPF programs where aya has no way.

use aya_obj::generated::perf_event_attr;
use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// include/uapi/linux/perf_event.h
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const PERF_EVENT_IOC_ENABLE: libc::Ioctl = 0x2400;
const PERF_EVENT_IOC_SET_BPF: libc::Ioctl = 0x4004_2408;

/// Attributes of an event of this type that runs its program every time.
pub fn attributes(kind: u32) -> perf_event_attr {
    // SAFETY: perf_event_attr is integers, bit fields and unions of them: zero is a value.
    let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
    attributes.type_ = kind;
    attributes.size = size_of::<perf_event_attr>() as u32;
    attributes.__bindgen_anon_1.sample_period = 1;
    attributes
}

/// Opens a kprobe or tracepoint event and attaches the program to it, for all processes and CPUs: such an event runs its program
/// on every CPU, whichever one it is opened on (kernel/trace/bpf_trace.c). Closing it detaches.
///
/// # Errors
/// The kernel's reason.
pub fn attach(attributes: &perf_event_attr, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (pid, cpu, group): (libc::pid_t, libc::c_int, libc::c_int) = (-1, 0, -1);
    // SAFETY: the attributes live through the call and name their own size; the others are integers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attributes),
            pid,
            cpu,
            group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let fd = i32::try_from(fd)
        .ok()
        .filter(|fd| *fd >= 0)
        .ok_or_else(io::Error::last_os_error)?;
    // SAFETY: a new descriptor that nobody else owns.
    let event = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: both descriptors are open; the argument of this request is a descriptor.
    check(unsafe { libc::ioctl(fd, PERF_EVENT_IOC_SET_BPF, program.as_raw_fd()) })?;
    // SAFETY: the descriptor is open; this request takes no argument.
    check(unsafe { libc::ioctl(fd, PERF_EVENT_IOC_ENABLE, 0) })?;
    Ok(event)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
