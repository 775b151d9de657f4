//! Capabilities of this process.

use super::Root;

/// include/uapi/linux/capability.h
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYSLOG: u32 = 34;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

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
