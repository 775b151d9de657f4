//! Running one guest under QEMU: start it, watch its console, end it when it hangs.
//!
//! Serial ports: the first is the console; the second takes the guest's results to a file, so that kernel
//! messages cannot tear a verdict apart; the third, for interactive guests, brings terminal sizes in.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::verdict::{Ended, Outcome, hang_marker};
use crate::process::describe;

/// How a guest is to be run.
#[derive(Debug, Clone)]
pub struct Guest {
    /// For files and messages.
    pub name: String,
    /// Boot image.
    pub image: PathBuf,
    /// The initramfs file.
    pub initramfs: PathBuf,
    /// Processors.
    pub smp: u32,
    /// Memory in MiB.
    pub memory: u32,
    /// Count instructions instead of time: one processor, a clock that is the instruction count.
    pub icount: bool,
    /// Translate all processors in one thread. Under QEMU 7.2 with a thread each, a processor can run code that another one has
    /// just patched away: the kernel's own text patching (ftrace, kprobes) under load then ends in an oops at address 0.
    pub one_thread: bool,
    /// Use KVM rather than translation.
    pub kvm: bool,
    /// Console and results files go here.
    pub folder: PathBuf,
    /// The longest it may run.
    pub limit: Duration,
    /// The longest it may say nothing.
    pub silence: Duration,
    /// Show the console as it comes.
    pub verbose: bool,
    /// More for the kernel's command line.
    pub append: String,
}

impl Guest {
    /// Where the guest's results appear.
    pub fn results_file(&self) -> PathBuf {
        self.folder.join(format!("{}.results", self.name))
    }

    /// Where the console is kept.
    pub fn console_file(&self) -> PathBuf {
        self.folder.join(format!("{}.console", self.name))
    }

    /// Where the socket for terminal sizes is, in an interactive guest.
    pub fn control_socket(&self) -> PathBuf {
        self.folder.join(format!("{}.control", self.name))
    }

    fn command(&self, interactive: bool) -> Command {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.args(["-m", &self.memory.to_string()]);
        if self.icount {
            command.args(["-accel", "tcg", "-smp", "1", "-icount", "shift=0,sleep=off"]);
        } else {
            let accelerator = match (self.kvm, self.one_thread) {
                (true, _) => "kvm",
                (false, true) => "tcg,thread=single",
                (false, false) => "tcg,thread=multi",
            };
            command.args(["-accel", accelerator, "-smp", &self.smp.to_string()]);
        }
        let processor = if self.kvm { "host" } else { "max,la57=off" };
        command.args(["-cpu", processor]);
        command
            .arg("-kernel")
            .arg(&self.image)
            .arg("-initrd")
            .arg(&self.initramfs);
        // A clocksource read through I/O ports would cost more than what is measured; the translated TSC is sound.
        let quiet = if self.verbose || interactive {
            "loglevel=3"
        } else {
            "loglevel=5"
        };
        let line = format!(
            "console=ttyS0 rdinit=/init panic=-1 oops=panic tsc=reliable {quiet} {}",
            self.append
        );
        command.args(["-append", &line]);
        // signal=off: an interactive guest gets Ctrl-C as a key
        let signals = if interactive {
            "stdio,id=console,signal=off"
        } else {
            "stdio,id=console"
        };
        command.args(["-chardev", signals, "-serial", "chardev:console"]);
        command.args(["-serial", &format!("file:{}", self.results_file().display())]);
        if interactive {
            let socket = self.control_socket().display().to_string();
            command.args([
                "-chardev",
                &format!("socket,id=control,path={socket},server=on,wait=off"),
            ]);
            command.args(["-serial", "chardev:control"]);
        }
        command
    }

    /// Starts QEMU so that it cannot outlive this process.
    fn spawn(&self, mut command: Command) -> Result<Child> {
        std::fs::create_dir_all(&self.folder)
            .with_context(|| format!("cannot make {}", self.folder.display()))?;
        File::create(self.results_file())
            .with_context(|| format!("cannot make {}", self.results_file().display()))?;
        let parent = std::process::id();
        // SAFETY: prctl, setpriority and getppid are async-signal-safe, and the closure touches no memory of the parent.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // Tests compare times: a processor taken away in the middle of a measure is noise. Only root may,
                // and without it the tests are noisier, not wrong.
                libc::setpriority(libc::PRIO_PROCESS, 0, -15);
                if libc::getppid() as u32 != parent {
                    return Err(std::io::Error::other("the harness is gone"));
                }
                Ok(())
            });
        }
        command
            .spawn()
            .with_context(|| format!("cannot start `{}`", describe(&command)))
    }

    /// Runs the guest to its end, showing each result line through `report` as it comes.
    pub fn watch(&self, report: &mut dyn FnMut(&str)) -> Result<Outcome> {
        let mut command = self.command(false);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = Running(self.spawn(command)?);
        let console = child.0.stdout.take().context("QEMU has no stdout")?;
        let errors = child.0.stderr.take().context("QEMU has no stderr")?;
        let lines = read_lines(console, errors);
        let mut log = File::create(self.console_file())
            .with_context(|| format!("cannot make {}", self.console_file().display()))?;
        let mut results = Tail::open(&self.results_file())?;
        let mut console_lines = Vec::new();

        let start = Instant::now();
        let mut last_sign = start;
        let ended = loop {
            match lines.recv_timeout(Duration::from_millis(200)) {
                Ok(line) => {
                    last_sign = Instant::now();
                    log.write_all(&line).context("cannot write the console file")?;
                    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                    if self.verbose {
                        println!("{text}");
                    }
                    if let Some(marker) = hang_marker(&text) {
                        // What follows a marker tells why: give it a moment before the end.
                        self.drain(&lines, &mut log);
                        break Ended::Hang(marker.to_owned());
                    }
                    console_lines.push(text);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break Ended::Off,
            }
            for line in results.new_lines()? {
                last_sign = Instant::now();
                report(&line);
            }
            if start.elapsed() > self.limit {
                break Ended::Limit(self.limit);
            }
            if last_sign.elapsed() > self.silence {
                break Ended::Silent(self.silence);
            }
        };
        child.end();
        for line in results.new_lines()? {
            report(&line);
        }
        let keep = console_lines.len().saturating_sub(40);
        Ok(Outcome {
            ended,
            lines: results.all,
            console_tail: console_lines.split_off(keep),
            took: start.elapsed(),
        })
    }

    fn drain(&self, lines: &Receiver<Vec<u8>>, log: &mut File) {
        let until = Instant::now() + Duration::from_secs(3);
        while let Ok(line) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if log.write_all(&line).is_err() {
                return;
            }
            if self.verbose {
                println!("{}", String::from_utf8_lossy(&line).trim_end());
            }
        }
    }

    /// Starts the guest on this terminal; the caller waits for it.
    pub fn attach(&self) -> Result<Running> {
        if self.control_socket().exists() {
            std::fs::remove_file(self.control_socket()).context("cannot remove the old control socket")?;
        }
        Ok(Running(self.spawn(self.command(true))?))
    }
}

/// A running QEMU, killed when dropped.
pub struct Running(Child);

impl Running {
    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.try_wait().context("cannot wait for QEMU")?.is_some())
    }

    fn end(&mut self) {
        // Errors mean that it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Both outputs of QEMU as lines; the channel closes when both are at their end.
fn read_lines(console: impl Read + Send + 'static, errors: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    let streams: [Box<dyn Read + Send>; 2] = [Box::new(console), Box::new(errors)];
    for stream in streams {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            loop {
                let mut line = Vec::new();
                match reader.read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {
                        if sender.send(line).is_err() {
                            return;
                        }
                    }
                }
            }
        });
    }
    receiver
}

/// A file that another process appends to.
struct Tail {
    file: File,
    partial: Vec<u8>,
    all: Vec<String>,
}

impl Tail {
    fn open(path: &Path) -> Result<Tail> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Tail {
            file,
            partial: Vec::new(),
            all: Vec::new(),
        })
    }

    /// Complete lines that came since the last call.
    fn new_lines(&mut self) -> Result<Vec<String>> {
        // A read at the end of the file leaves the position where it was: the next one goes on from there.
        self.file
            .read_to_end(&mut self.partial)
            .context("cannot read the results")?;
        let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let rest = self.partial.split_off(end + 1);
        let complete = std::mem::replace(&mut self.partial, rest);
        let lines: Vec<String> = String::from_utf8_lossy(&complete)
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        self.all.extend(lines.iter().cloned());
        Ok(lines)
    }
}
