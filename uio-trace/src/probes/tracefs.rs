//! kretprobes with room for many callers.
//!
//! A kretprobe needs an instance for every call that is under way. What perf's kprobe PMU (and so aya) makes has
//! max(10, 2 x CPUs) of them (kernel/kprobes.c, register_kretprobe): eleven threads waiting for one info_lock on a small host, or
//! eleven blocked readers, and returns are missed. tracefs lets the number be chosen, but its definitions outlive their maker:
//! they are named after this process, removed at its end, and after a kill -9 by a [`janitor`] process that waits for it.

use super::perf;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Calls of one function that can be under way at once. About 100 KiB of kernel memory for each function.
pub const INSTANCES: u32 = 1024;

/// Definitions of a process are in a group of this name and its pid.
const GROUP: &str = "uio_trace_";

/// include/uapi/linux/perf_event.h
const PERF_TYPE_TRACEPOINT: u32 = 2;

/// Name of the hidden command that runs [`janitor`].
pub const JANITOR: &str = "remove-probes-of";

/// The folder tracefs is mounted at.
pub fn mount() -> Option<PathBuf> {
    ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .into_iter()
        .map(PathBuf::from)
        .find(|folder| folder.join("kprobe_events").exists())
}

/// This process's kretprobe definitions.
#[derive(Debug)]
pub struct Kretprobes {
    folder: PathBuf,
    group: String,
    janitor: Option<Child>,
}

/// One attached kretprobe. Dropping it detaches the program; [`Kretprobes::remove`] takes the definition away, too.
#[derive(Debug)]
pub struct KretprobeEvent {
    event: String,
    _perf_event: OwnedFd,
}

impl Kretprobes {
    /// Ready to define; `None`: tracefs is not mounted. Takes away what dead processes left.
    pub fn new() -> Option<Kretprobes> {
        let folder = mount()?;
        remove_groups(&folder, |pid| !Path::new(&format!("/proc/{pid}")).exists());
        Some(Kretprobes {
            folder,
            group: format!("{GROUP}{}", std::process::id()),
            janitor: None,
        })
    }

    /// Defines a kretprobe on `target` (`function` or `module:function`) and attaches a loaded program to it.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn attach(&mut self, target: &str, program: BorrowedFd<'_>) -> io::Result<KretprobeEvent> {
        self.start_janitor()?;
        let event = target.replace([':', '.'], "_");
        let group = &self.group;
        command(&self.folder, &format!("r{INSTANCES}:{group}/{event} {target}"))?;
        match self.open(&event, program) {
            Ok(perf_event) => Ok(KretprobeEvent {
                event,
                _perf_event: perf_event,
            }),
            Err(error) => {
                // Best effort: the janitor or the next start takes it away otherwise.
                let _ = command(&self.folder, &format!("-:{group}/{event}"));
                Err(error)
            }
        }
    }

    fn open(&self, event: &str, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let path = self
            .folder
            .join("events")
            .join(&self.group)
            .join(event)
            .join("id");
        let id: u64 = fs::read_to_string(path)?
            .trim()
            .parse()
            .map_err(io::Error::other)?;
        let mut attributes = perf::attributes(PERF_TYPE_TRACEPOINT);
        attributes.config = id;
        perf::attach(&attributes, program)
    }

    /// Detaches and takes the definition away.
    pub fn remove(&mut self, kretprobe: KretprobeEvent) {
        let KretprobeEvent { event, _perf_event } = kretprobe;
        drop(_perf_event);
        // When its module is gone the kernel may have taken it already.
        let _ = command(&self.folder, &format!("-:{}/{event}", self.group));
    }

    /// A process that outlives a kill -9 of this one.
    fn start_janitor(&mut self) -> io::Result<()> {
        if self.janitor.is_none() {
            // By its path where there is one, so that process lists show its name.
            let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
            let janitor = Command::new(program)
                .args([JANITOR, &std::process::id().to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                // Out of reach of the terminal's Ctrl-C.
                .process_group(0)
                .spawn()?;
            self.janitor = Some(janitor);
        }
        Ok(())
    }
}

impl Drop for Kretprobes {
    fn drop(&mut self) {
        let pid = std::process::id();
        remove_groups(&self.folder, |owner| owner == pid);
        if let Some(mut janitor) = self.janitor.take() {
            // Its end of the pipe is what it waits for; then it has nothing to do.
            drop(janitor.stdin.take());
            let _ = janitor.wait();
        }
    }
}

/// One line to kprobe_events.
fn command(folder: &Path, line: &str) -> io::Result<()> {
    let mut file: File = OpenOptions::new()
        .append(true)
        .open(folder.join("kprobe_events"))?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// Removes the definitions of all processes that `of` chooses.
fn remove_groups(folder: &Path, of: impl Fn(u32) -> bool) {
    let Ok(text) = fs::read_to_string(folder.join("kprobe_events")) else {
        return;
    };
    for (pid, name) in definitions(&text) {
        if of(pid) {
            // One that is in use stays: it belongs to a process that lives in another pid namespace.
            let _ = command(folder, &format!("-:{name}"));
        }
    }
}

/// Our definitions in kprobe_events: the pid in the group's name, and `group/event`.
fn definitions(text: &str) -> impl Iterator<Item = (u32, &str)> {
    text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let name = rest.split_whitespace().next()?;
        let pid = name.strip_prefix(GROUP)?.split_once('/')?.0.parse().ok()?;
        Some((pid, name))
    })
}

/// How long and how often the janitor tries: a definition is in use until the kernel has closed its dead maker's descriptors.
const JANITOR_TRIES: u32 = 600;
const JANITOR_PAUSE: Duration = Duration::from_millis(50);

/// The hidden command: waits until standard input ends (its parent is gone) and removes what that one left.
pub fn janitor(pid: u32) {
    let _ = io::stdin().read_to_end(&mut Vec::new());
    let Some(folder) = mount() else { return };
    for _ in 0..JANITOR_TRIES {
        remove_groups(&folder, |owner| owner == pid);
        let text = fs::read_to_string(folder.join("kprobe_events")).unwrap_or_default();
        if !definitions(&text).any(|(owner, _)| owner == pid) {
            return;
        }
        std::thread::sleep(JANITOR_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_definitions_are_found() {
        let text = "\
r1024:uio_trace_77/uio_write uio_write
r:kprobes/uio_trace_77 uio_write
p:uio_trace_x/uio_write uio_write
r1024:uio_trace_1234/uio_name_show uio:name_show
";
        let found: Vec<_> = definitions(text).collect();
        assert_eq!(
            found,
            [
                (77, "uio_trace_77/uio_write"),
                (1234, "uio_trace_1234/uio_name_show")
            ]
        );
    }
}
