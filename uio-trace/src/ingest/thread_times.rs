//! CPU time of threads, from `/proc/PID/task/TID/schedstat`, and the CPUs' idle time, from `/proc/stat`.

use crate::{
    event::{ThreadTime, UioBlockerReading},
    kernel::Root,
    model::{limits::MAX_THREADS, threads::IDLE},
};
use std::collections::BTreeSet;

/// The threads that others waited for, and if there are any, the idle tasks. One that is gone, or a kernel without the file
/// (CONFIG_SCHED_INFO), gives none.
pub fn of_holders(root: &Root, blockers: &[UioBlockerReading]) -> Vec<ThreadTime> {
    let holders: BTreeSet<(u32, u32)> = blockers
        .iter()
        .map(|blocker| (blocker.holder.tgid, blocker.holder.tid))
        .take(MAX_THREADS)
        .collect();
    let idle = || {
        let text = root.text("proc/stat").ok()?;
        Some(ThreadTime {
            tgid: IDLE.0,
            tid: IDLE.1,
            cpu_ns: idle_ns(&text, ticks_per_second()?)?,
            runqueue_ns: 0,
        })
    };
    let mut times: Vec<ThreadTime> = holders
        .into_iter()
        .filter_map(|(tgid, tid)| {
            let text = root.text(format!("proc/{tgid}/task/{tid}/schedstat")).ok()?;
            parse(&text).map(|(cpu_ns, runqueue_ns)| ThreadTime {
                tgid,
                tid,
                cpu_ns,
                runqueue_ns,
            })
        })
        .collect();
    if !times.is_empty() {
        times.extend(idle());
    }
    times
}

/// Ticks that times in /proc/stat are counted in.
fn ticks_per_second() -> Option<u64> {
    // SAFETY: no pointers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|ticks| *ticks > 0)
}

/// Time all CPUs were idle, with or without I/O outstanding, ns (`show_stat`, fs/proc/stat.c: fourth and fifth number of the first
/// line).
fn idle_ns(text: &str, ticks: u64) -> Option<u64> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let mut numbers = line.split_whitespace().skip(3).map(str::parse::<u64>);
    let idle = numbers.next()?.ok()?.saturating_add(numbers.next()?.ok()?);
    Some(idle.saturating_mul(1_000_000_000 / ticks))
}

/// Time on a CPU and time waiting for one, ns (`proc_pid_schedstat`, fs/proc/base.c; the third number are the turns).
fn parse(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::{idle_ns, parse};

    #[test]
    fn idle_time_is_of_all_cpus() {
        let text = "cpu  10 2 3 400 50 6 7 8 0 0\ncpu0 10 2 3 400 50 6 7 8 0 0\n";
        assert_eq!(idle_ns(text, 100), Some(4_500_000_000));
        for bad in ["", "cpu0 1 2 3 4 5", "cpu  1 2 3 4", "cpu  1 2 3 x 5"] {
            assert_eq!(idle_ns(bad, 100), None, "{bad}");
        }
    }

    #[test]
    fn the_first_two_numbers() {
        assert_eq!(parse("1234 56 7\n"), Some((1234, 56)));
        // schedstats off for good
        assert_eq!(parse("0 0 0"), Some((0, 0)));
        assert_eq!(parse(""), None);
        assert_eq!(parse("x y z"), None);
    }
}
