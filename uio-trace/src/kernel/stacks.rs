//! Kernel stacks of tasks, from /proc/PID/task/TID/stack.

use super::{Root, namespaces};
use crate::event::{Task, TaskStack};
use std::{
    collections::HashMap,
    io::ErrorKind,
    time::{Duration, Instant},
};

/// Most tasks looked at in one scan: a read takes some tens of microseconds.
pub const MAX_TASKS: usize = 65_536;

/// Context switches of a task until now; `None`: it runs, or is gone.
///
/// The stack of a task that runs must not be read: where a kretprobe's return address is on it, kernels since 6.1 warn in their
/// log (kernel/trace/rethook.c, rethook_find_ret_addr), and with `panic_on_warn` that is the end.
fn resting(root: &Root, tgid: u32, tid: u32) -> Option<u64> {
    let status = root.text(format!("proc/{tgid}/task/{tid}/status")).ok()?;
    let field = |name: &str| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim());
    if field("State:")?.starts_with('R') {
        return None;
    }
    let count = |name: &str| field(name)?.parse::<u64>().ok();
    count("voluntary_ctxt_switches:")?.checked_add(count("nonvoluntary_ctxt_switches:")?)
}

/// Functions of the kernel stack of a task that has been waiting for long, from the innermost outwards; empty where it runs, is
/// gone, or may not be read.
pub fn read_resting(root: &Root, tgid: u32, tid: u32) -> Vec<String> {
    resting(root, tgid, tid).map_or_else(Vec::new, |_| read(root, tgid, tid))
}

fn read(root: &Root, tgid: u32, tid: u32) -> Vec<String> {
    root.text(format!("proc/{tgid}/task/{tid}/stack"))
        .map(|text| parse(&text))
        .unwrap_or_default()
}

/// `[<0>] exit_aio+0x10b/0x160 [module]` a line; lines without a symbol are left out.
fn parse(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| {
            let function = line.split_once("] ")?.1.split(['+', ' ']).next()?;
            (!function.is_empty() && !function.starts_with("0x")).then(|| function.to_owned())
        })
        .collect()
}

/// Whether no kretprobe is set anywhere, so that no stack can have one's return on it; where that cannot be told, it is taken
/// that there are some.
pub fn without_kretprobes(root: &Root) -> bool {
    // `ffffffff815a7ef0  r  vfs_write+0x0    [FTRACE]`; `k` is a kprobe.
    root.text("sys/kernel/debug/kprobes/list").is_ok_and(|list| {
        list.lines()
            .all(|line| line.split_whitespace().nth(1) != Some("r"))
    })
}

/// All tasks that rested at one moment.
#[derive(Debug, Default)]
pub struct Glance {
    /// Context switches until then, by thread.
    resting: HashMap<u32, u64>,
    /// Those whose stacks are wanted.
    wanted: Vec<TaskStack>,
}

fn tasks(root: &Root) -> impl Iterator<Item = (u32, u32)> {
    let all = numbers(root, "proc").into_iter().flat_map(move |tgid| {
        let threads = numbers(root, &format!("proc/{tgid}/task"));
        threads.into_iter().map(move |tid| (tgid, tid))
    });
    all.take(MAX_TASKS)
}

fn stack_of(root: &Root, tgid: u32, tid: u32, frames: Vec<String>) -> TaskStack {
    let comm = root
        .text(format!("proc/{tgid}/task/{tid}/comm"))
        .unwrap_or_default();
    TaskStack {
        task: Task { tgid, tid, comm },
        frames,
        direct_files: None,
    }
}

/// A first look, for as long as `budget`: what it does not get to, [`settled`] looks at. Only while no kretprobe is set.
pub fn glance(root: &Root, budget: Duration, wanted: impl Fn(&[String]) -> bool) -> Glance {
    let until = Instant::now() + budget;
    let mut glance = Glance::default();
    for (tgid, tid) in tasks(root) {
        if Instant::now() >= until {
            break;
        }
        let Some(switches) = resting(root, tgid, tid) else {
            continue;
        };
        glance.resting.insert(tid, switches);
        let frames = read(root, tgid, tid);
        if wanted(&frames) {
            glance.wanted.push(stack_of(root, tgid, tid, frames));
        }
    }
    glance
}

/// The tasks whose stack is wanted and who have not run for `rest`. Of those who have not run since the first look either, no
/// stack is read again; of others only after that rest.
pub fn settled(
    root: &Root,
    rest: Duration,
    glance: Glance,
    wanted: impl Fn(&[String]) -> bool,
) -> Vec<TaskStack> {
    let Glance {
        resting: before,
        wanted: mut found,
    } = glance;
    let since: Vec<(u32, u32, u64)> = tasks(root)
        .filter_map(|(tgid, tid)| Some((tgid, tid, resting(root, tgid, tid)?)))
        .filter(|(_, tid, switches)| before.get(tid) != Some(switches))
        .collect();
    std::thread::sleep(rest);
    found.retain(|stack| {
        let Task { tgid, tid, .. } = stack.task;
        before.get(&tid).copied() == resting(root, tgid, tid)
    });
    for (tgid, tid, switches) in since {
        if resting(root, tgid, tid) != Some(switches) {
            continue;
        }
        let frames = read(root, tgid, tid);
        if wanted(&frames) {
            found.push(stack_of(root, tgid, tid, frames));
        }
    }
    found
}

/// Entries of a folder that are numbers, ascending.
pub(super) fn numbers(root: &Root, folder: &str) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(root.join(folder)) else {
        return Vec::new();
    };
    let mut numbers: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Whether stacks of others can be read.
///
/// # Errors
/// What is in the way, and how to allow it.
pub fn readable(root: &Root) -> Result<(), String> {
    if !namespaces::pids_are_the_hosts(root) {
        return Err(namespaces::NOT_THE_HOSTS.to_owned());
    }
    let error = match root.text("proc/1/stack") {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    Err(match error.kind() {
        ErrorKind::PermissionDenied => {
            "/proc/1/stack: permission denied; CAP_SYS_ADMIN (root) is needed".to_owned()
        }
        ErrorKind::NotFound if !root.join("proc/1").exists() => {
            "processes of others are hidden (/proc is mounted with hidepid); be root or in the group of its gid= option"
                .to_owned()
        }
        ErrorKind::NotFound => "this kernel shows no stacks (CONFIG_STACKTRACE is off)".to_owned(),
        _ => format!("/proc/1/stack: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A folder that is removed at the end.
    struct Fixture(std::path::PathBuf);

    impl Fixture {
        fn new(name: &str, files: &[(&str, &str)]) -> Fixture {
            let folder = std::env::temp_dir().join(format!("uio-trace-stacks-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = folder.join(path);
                std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
                std::fs::write(path, text).unwrap();
            }
            Fixture(folder)
        }
        fn root(&self) -> Root {
            Root::at(&self.0)
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const HANGING: &str = "[<0>] exit_aio+0x10b/0x160\n[<0>] mmput+0x4d/0x130\n[<0>] tcm_fn+0x1/0x2 [tcm]\n\
                           [<0>] 0xffffffffc0a1\n";

    const SLEEPS: &str =
        "State:\tD (disk sleep)\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t1\n";
    const RUNS: &str = "State:\tR (running)\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t1\n";

    #[test]
    fn stacks_of_what_runs_are_left_alone() {
        let files = [
            ("proc/7/task/8/stack", HANGING),
            ("proc/7/task/8/status", RUNS),
            ("proc/7/task/9/stack", HANGING),
            ("proc/7/task/9/status", SLEEPS),
        ];
        let fixture = Fixture::new("runs", &files);
        let read = |tid| read_resting(&fixture.root(), 7, tid).len();
        assert_eq!((read(8), read(9)), (0, 3));
        let root = fixture.root();
        assert_eq!(resting(&root, 7, 9), Some(4));
        // It has run meanwhile: what it waits for now began after the trace.
        let glance = glance(&root, Duration::from_secs(9), |_| true);
        assert_eq!(glance.wanted.len(), 1);
        let changes =
            std::thread::spawn(move || settled(&root, Duration::from_millis(400), glance, |_| true));
        std::thread::sleep(Duration::from_millis(100));
        std::fs::write(fixture.0.join("proc/7/task/9/status"), SLEEPS.replace('3', "4")).unwrap();
        assert!(changes.join().unwrap().is_empty());
    }

    #[test]
    fn functions_are_read_without_offsets_and_modules() {
        assert_eq!(parse(HANGING), ["exit_aio", "mmput", "tcm_fn"]);
        assert_eq!(parse("[<ffffffff81234567>] do_wait+0x1/0x2\n"), ["do_wait"]);
        assert_eq!(parse(""), [] as [&str; 0]);
    }

    #[test]
    fn every_thread_is_looked_at_and_the_wanted_ones_are_named() {
        let fixture = Fixture::new(
            "all",
            &[
                ("proc/1/stack", ""),
                ("proc/7/task/7/stack", "[<0>] do_nanosleep+0x1/0x2\n"),
                ("proc/7/task/7/status", SLEEPS),
                ("proc/7/task/8/stack", HANGING),
                ("proc/7/task/8/status", RUNS),
                ("proc/7/task/9/stack", HANGING),
                ("proc/7/task/9/status", SLEEPS),
                ("proc/7/task/9/comm", "worker\n"),
                ("proc/self/task/1/stack", HANGING),
            ],
        );
        let (root, second) = (fixture.root(), Duration::from_secs(1));
        let hangs = |frames: &[String]| frames.iter().any(|f| f == "exit_aio");
        // With a first look or without one.
        for first in [Glance::default(), glance(&root, second, hangs)] {
            let found = settled(&root, Duration::ZERO, first, hangs);
            assert_eq!(found.len(), 1);
            assert_eq!(
                (found[0].task.tgid, found[0].task.tid, found[0].task.comm.as_str()),
                (7, 9, "worker")
            );
        }
        assert!(glance(&root, Duration::ZERO, hangs).resting.is_empty());
        assert_eq!(readable(&fixture.root()), Ok(()));
    }

    #[test]
    fn a_stack_seen_at_first_is_not_read_again() {
        let files = [
            ("proc/7/task/9/stack", HANGING),
            ("proc/7/task/9/status", SLEEPS),
            ("proc/7/task/9/comm", "worker"),
        ];
        let fixture = Fixture::new("again", &files);
        let first = glance(&fixture.root(), Duration::from_secs(9), |_| true);
        std::fs::remove_file(fixture.0.join("proc/7/task/9/stack")).unwrap();
        let found = settled(&fixture.root(), Duration::ZERO, first, |f| !f.is_empty());
        assert_eq!(found[0].frames, ["exit_aio", "mmput", "tcm_fn"]);
    }

    #[test]
    fn kretprobes_are_seen_in_the_kernels_list() {
        let list = |text: &str| {
            let fixture = Fixture::new("kprobes", &[("sys/kernel/debug/kprobes/list", text)]);
            without_kretprobes(&fixture.root())
        };
        assert!(list(""));
        assert!(list("ffffffff815a7ef0  k  vfs_write+0x0    [FTRACE]\n"));
        assert!(!list(
            "ffffffff815a7ef0  k  a+0x0\nffffffff815a7ef0  r  vfs_write+0x0    [DISABLED]\n"
        ));
        assert!(!without_kretprobes(&Root::at("/nonexistent")));
    }

    #[test]
    fn what_is_in_the_way_is_said() {
        let hidden = Fixture::new("hidepid", &[("proc/2/stack", "")]);
        assert!(readable(&hidden.root()).unwrap_err().contains("hidepid"));
        let none = Fixture::new("none", &[("proc/1/comm", "init")]);
        assert!(readable(&none.root()).unwrap_err().contains("CONFIG_STACKTRACE"));
    }
}
