//! Hardware breakpoints of this process: x86 has four debug registers on each processor, shared by all who want some.

use std::os::fd::{FromRawFd, OwnedFd};

/// Debug registers of a processor.
const REGISTERS: u64 = 4;

/// Takes those that are free on a processor, and holds them for as long as they live.
pub fn take(cpu: u32) -> Vec<OwnedFd> {
    // struct perf_event_attr up to and including config2, 72 bytes in 64-bit words.
    const TYPE_BREAKPOINT: u64 = 5;
    const SIZE: u64 = 72;
    const EXECUTE: u64 = 4;
    const FLAG_CLOEXEC: u64 = 8;
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let address = symbols
        .lines()
        .find_map(|line| {
            line.strip_suffix(" T percpu_ref_init")
                .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        })
        .unwrap_or(0);
    let mut taken = Vec::new();
    for number in 0..REGISTERS {
        let mut attributes = [0_u64; 9];
        attributes[0] = TYPE_BREAKPOINT | SIZE << 32;
        attributes[2] = 1; // sample_period
        attributes[6] = EXECUTE << 32; // wakeup_events, bp_type
        attributes[7] = address + number; // bp_addr
        attributes[8] = 8; // bp_len: sizeof(long)
        // SAFETY: the kernel reads the 72 bytes given; pid -1 and a cpu ask for that processor.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                attributes.as_ptr(),
                -1,
                cpu,
                -1,
                FLAG_CLOEXEC,
            )
        };
        if let Ok(descriptor) = i32::try_from(descriptor)
            && descriptor >= 0
        {
            // SAFETY: a new descriptor that nobody else owns.
            taken.push(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
    taken
}
