//! perf events opened here rather than by aya, which keeps their descriptors to itself: of a breakpoint the hits are to be read,
//! and a kretprobe by way of tracefs is unknown to it.

use aya_obj::generated::perf_event_attr;
use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

// include/uapi/linux/perf_event.h, include/uapi/linux/hw_breakpoint.h
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_TYPE_BREAKPOINT: u32 = 5;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const PERF_EVENT_IOC_ENABLE: libc::Ioctl = 0x2400;
const PERF_EVENT_IOC_SET_BPF: libc::Ioctl = 0x4004_2408;
const HW_BREAKPOINT_X: u32 = 4;

/// An open perf event with a program on it. Dropping it detaches the program.
#[derive(Debug)]
pub struct PerfEvent(OwnedFd);

/// Attributes of an event that is counted and sampled at every hit.
fn attributes(kind: u32) -> perf_event_attr {
    // SAFETY: perf_event_attr is integers, bit fields and unions of them: zero is a value.
    let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
    attributes.type_ = kind;
    attributes.size = size_of::<perf_event_attr>() as u32;
    attributes.__bindgen_anon_1.sample_period = 1;
    // Until its program is there: a hit before that would look like one the program missed.
    attributes.set_disabled(1);
    attributes
}

impl PerfEvent {
    /// An event of the tracepoint or kprobe event with this id, which runs the program on every CPU, whichever one it is opened
    /// on (kernel/trace/bpf_trace.c).
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn tracepoint(id: u64, program: BorrowedFd<'_>) -> io::Result<PerfEvent> {
        let mut attributes = attributes(PERF_TYPE_TRACEPOINT);
        attributes.config = id;
        PerfEvent::open(&attributes, 0, program)
    }

    /// A kprobe at this address, on every CPU. `kind`: the number of the kernel's kprobe events
    /// (/sys/bus/event_source/devices/kprobe/type).
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn kprobe(kind: u32, address: u64, program: BorrowedFd<'_>) -> io::Result<PerfEvent> {
        let mut attributes = attributes(kind);
        // kprobe_func stays null: then kprobe_addr counts (kernel/trace/trace_event_perf.c).
        attributes.__bindgen_anon_4.kprobe_addr = address;
        PerfEvent::open(&attributes, 0, program)
    }

    /// An execute breakpoint on a CPU, for whatever runs there.
    ///
    /// # Errors
    /// The kernel's reason; ENOSPC: no debug register is free.
    pub fn breakpoint(address: u64, cpu: u32, program: BorrowedFd<'_>) -> io::Result<PerfEvent> {
        let mut attributes = attributes(PERF_TYPE_BREAKPOINT);
        attributes.bp_type = HW_BREAKPOINT_X;
        attributes.__bindgen_anon_3.bp_addr = address;
        attributes.__bindgen_anon_4.bp_len = size_of::<libc::c_long>() as u64;
        PerfEvent::open(&attributes, cpu, program)
    }

    fn open(attributes: &perf_event_attr, cpu: u32, program: BorrowedFd<'_>) -> io::Result<PerfEvent> {
        let cpu = i32::try_from(cpu).map_err(io::Error::other)?;
        let (pid, group): (libc::pid_t, libc::c_int) = (-1, -1);
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
        let event = PerfEvent(unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: both descriptors are open; the argument of this request is a descriptor.
        check(unsafe { libc::ioctl(fd, PERF_EVENT_IOC_SET_BPF, program.as_raw_fd()) })?;
        // SAFETY: the descriptor is open; this request takes no argument.
        check(unsafe { libc::ioctl(fd, PERF_EVENT_IOC_ENABLE, 0) })?;
        Ok(event)
    }

    /// How often it was hit, whether or not the program ran.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn hits(&self) -> io::Result<u64> {
        let mut count = [0_u8; 8];
        // SAFETY: the buffer has the eight bytes that read_format 0 gives.
        let read = unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        match usize::try_from(read) {
            Ok(8) => Ok(u64::from_ne_bytes(count)),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
