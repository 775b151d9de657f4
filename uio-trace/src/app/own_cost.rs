//! What the tool itself costs: CPU time and memory of this process. The programs' own time in the kernel is not part
//! of it.

use crate::ingest::clock;

/// CPU time of this process as a share of wall time.
#[derive(Debug, Default)]
pub struct OwnCost {
    last: Option<(u64, u64)>,
}

impl OwnCost {
    /// Share of one CPU since the last call; `None` at the first.
    pub fn share(&mut self) -> Option<f64> {
        let cpu = cpu_ns()?;
        let wall = clock::monotonic_ns();
        let (last_cpu, last_wall) = self.last.replace((cpu, wall))?;
        Some(cpu.saturating_sub(last_cpu) as f64 / wall.saturating_sub(last_wall).max(1) as f64)
    }
}

/// CPU time of this process so far, ns.
fn cpu_ns() -> Option<u64> {
    let mut usage = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `usage` is a valid timespec for the call to fill; the clock always exists.
    if unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut usage) } != 0 {
        return None;
    }
    Some(usage.tv_sec as u64 * 1_000_000_000 + usage.tv_nsec as u64)
}

/// Memory of this process that is in RAM, bytes (proc_pid_statm(5), second field, in pages).
pub fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: sysconf only reads.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    pages.checked_mul(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_in_memory_and_uses_time() {
        assert!(resident_bytes().is_some_and(|bytes| bytes > 100_000 && bytes < 1 << 40));
        let mut cost = OwnCost::default();
        assert_eq!(cost.share(), None);
        let before = cpu_ns();
        let mut sum = 0_u64;
        while cpu_ns() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(cost.share().is_some_and(|share| share > 0.0 && share < 1024.0));
    }
}
