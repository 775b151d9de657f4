//! CPU time of threads, from `/proc/PID/task/TID/schedstat`.

use crate::{
    event::{ThreadTime, UioBlockerReading},
    kernel::Root,
    model::limits::MAX_THREADS,
};
use std::collections::BTreeSet;

/// The threads that others waited for. One that is gone, or a kernel without the file (CONFIG_SCHED_INFO), gives none.
pub fn of_holders(root: &Root, blockers: &[UioBlockerReading]) -> Vec<ThreadTime> {
    let holders: BTreeSet<(u32, u32)> = blockers
        .iter()
        .map(|blocker| (blocker.holder.tgid, blocker.holder.tid))
        .take(MAX_THREADS)
        .collect();
    holders
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
        .collect()
}

/// Time on a CPU and time waiting for one, ns (`proc_pid_schedstat`, fs/proc/base.c; the third number are the turns).
fn parse(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_first_two_numbers() {
        assert_eq!(parse("1234 56 7\n"), Some((1234, 56)));
        // schedstats off for good
        assert_eq!(parse("0 0 0"), Some((0, 0)));
        assert_eq!(parse(""), None);
        assert_eq!(parse("x y z"), None);
    }
}
