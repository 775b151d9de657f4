//! Capabilities of this process.

use super::Root;
use std::io;

/// include/uapi/linux/capability.h
const CAP_CHOWN: u32 = 0;
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_KILL: u32 = 5;
const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_NICE: u32 = 23;
const CAP_SYS_RESOURCE: u32 = 24;
const CAP_SYSLOG: u32 = 34;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// What a running trace still needs: attaching to a uio module that comes later, symbols and stacks of /proc, reading maps
/// undisturbed, files that belong to the user who called sudo, and a command that runs as that user.
const KEPT: [u32; 13] = [
    CAP_CHOWN,
    CAP_DAC_OVERRIDE,
    CAP_DAC_READ_SEARCH,
    CAP_KILL,
    CAP_SETGID,
    CAP_SETUID,
    CAP_SYS_PTRACE,
    CAP_SYS_ADMIN,
    CAP_SYS_NICE,
    CAP_SYS_RESOURCE,
    CAP_SYSLOG,
    CAP_PERFMON,
    CAP_BPF,
];

/// `struct __user_cap_header_struct`
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: libc::c_int,
}

/// `struct __user_cap_data_struct`: the low and the high halves follow each other.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// _LINUX_CAPABILITY_VERSION_3
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Gives up every capability that a running trace does not need, for this thread and those it starts from now on.
///
/// # Errors
/// The kernel's reason.
pub fn drop_unneeded() -> io::Result<()> {
    let mut header = CapabilityHeader {
        version: CAPABILITY_VERSION,
        pid: 0,
    };
    let mut data = [CapabilityData::default(); 2];
    // SAFETY: version 3 takes a header and two data elements, which live through the call.
    if unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for (half, data) in (0_u32..).zip(&mut data) {
        let kept = KEPT
            .iter()
            .filter(|capability| *capability / 32 == half)
            .fold(0, |mask, capability| mask | 1 << (capability % 32));
        data.effective &= kept;
        data.permitted &= kept;
        data.inheritable = 0;
    }
    // SAFETY: as above.
    if unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Effective capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Privileges {
    effective: u64,
}

impl Privileges {
    /// From /proc/self/status; none if that is not readable.
    pub fn read(root: &Root) -> Privileges {
        let effective = root
            .text("proc/self/status")
            .ok()
            .and_then(|status| {
                let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
                u64::from_str_radix(line.trim(), 16).ok()
            })
            .unwrap_or(0);
        Privileges { effective }
    }

    fn has(self, capability: u32) -> bool {
        self.effective >> capability & 1 != 0
    }

    /// What tracing needs and this process lacks, as the kernel names it. CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON;
    /// breakpoints on kernel addresses need CAP_SYS_ADMIN itself (kernel/events/hw_breakpoint.c, hw_breakpoint_parse).
    pub fn missing(self) -> Vec<&'static str> {
        let mut missing = Vec::new();
        if self.has(CAP_SYS_ADMIN) {
            return missing;
        }
        if !self.has(CAP_BPF) {
            missing.push("CAP_BPF");
        }
        if !self.has(CAP_PERFMON) {
            missing.push("CAP_PERFMON");
        }
        if !self.has(CAP_SYSLOG) {
            missing.push("CAP_SYSLOG");
        }
        missing.push("CAP_SYS_ADMIN");
        missing
    }

    /// Without these nothing at all can be traced.
    pub fn cannot_trace(self) -> bool {
        !(self.has(CAP_SYS_ADMIN) || self.has(CAP_BPF) && self.has(CAP_PERFMON))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_only_what_a_trace_needs() {
        let kept = std::thread::spawn(|| {
            drop_unneeded().unwrap();
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let mask = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                u64::from_str_radix(line.trim(), 16).unwrap()
            };
            mask("CapEff:") | mask("CapPrm:")
        });
        let all = KEPT.iter().fold(0_u64, |mask, capability| mask | 1 << capability);
        assert_eq!(kept.join().unwrap() & !all, 0);
    }

    #[test]
    fn root_has_all_and_nobody_none() {
        let root = Privileges {
            effective: 0x1ff_ffff_ffff,
        };
        assert!(root.missing().is_empty() && !root.cannot_trace());
        let nobody = Privileges { effective: 0 };
        assert!(nobody.cannot_trace());
        assert_eq!(
            nobody.missing(),
            ["CAP_BPF", "CAP_PERFMON", "CAP_SYSLOG", "CAP_SYS_ADMIN"]
        );
        let bpf = Privileges {
            effective: 1 << CAP_BPF | 1 << CAP_PERFMON | 1 << CAP_SYSLOG,
        };
        assert!(!bpf.cannot_trace(), "all but the breakpoints");
        assert_eq!(bpf.missing(), ["CAP_SYS_ADMIN"]);
    }
}
