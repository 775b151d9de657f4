//! Running uio-trace in a guest and reading its records.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The tool's place in a guest.
pub const PROGRAM: &str = "/bin/uio-trace";
/// Attaching translates and verifies every program; under emulation that takes a while.
const ATTACH_LIMIT: Duration = Duration::from_secs(240);
/// After a signal: the results, then detaching.
const END_LIMIT: Duration = Duration::from_secs(60);

/// The kernel counts the time that BPF programs run while this is there.
pub struct ProgramTimes(());

impl ProgramTimes {
    const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

    /// Switches it on.
    pub fn count() -> Result<ProgramTimes> {
        std::fs::write(Self::SWITCH, "1").with_context(|| format!("cannot write {}", Self::SWITCH))?;
        Ok(ProgramTimes(()))
    }
}

impl Drop for ProgramTimes {
    fn drop(&mut self) {
        // The guest ends soon, and counting on harms no later test.
        let _ = std::fs::write(Self::SWITCH, "0");
    }
}

/// A running `uio-trace hist --json`.
pub struct Tool {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
    records: Records,
}

/// What it printed, record by record.
#[derive(Debug, Clone, Default)]
pub struct Records {
    all: Vec<Value>,
}

/// How it ended.
#[derive(Debug)]
pub struct Ended {
    /// Its records.
    pub records: Records,
    /// Exit code; 128 + signal when killed.
    pub code: i32,
}

impl Tool {
    /// Starts it and waits for its first record: from then on everything is attached and counted.
    pub fn start(arguments: &[&str]) -> Result<Tool> {
        let mut command = Command::new(PROGRAM);
        command.args(["hist", "--json"]).args(arguments);
        Tool::start_as(command)
    }

    /// Starts it by a command line of its own, which prints JSON, and waits for its first record.
    pub fn start_as(command: Command) -> Result<Tool> {
        let mut tool = Tool::spawn(command)?;
        tool.wait_for("its meta record", ATTACH_LIMIT, |record| record["type"] == "meta")?;
        Ok(tool)
    }

    fn spawn(mut command: Command) -> Result<Tool> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // The runner may be killed; what it traces with must not stay.
        // SAFETY: prctl is async-signal-safe and touches no memory.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {PROGRAM}"))?;
        let stdout = child.stdout.take().context("no stdout")?;
        let stderr = child.stderr.take().context("no stderr")?;
        Ok(Tool {
            child,
            lines: lines_of(stdout),
            errors: lines_of(stderr),
            records: Records::default(),
        })
    }

    /// What it has printed so far.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The way its probe on a function is attached (`kprobe+kretprobe`), as the first record says.
    pub fn method(&self, hook: &str) -> Option<&str> {
        let probes = self.records.of("meta").next()?["probes"].as_array()?;
        let probe = probes.iter().find(|probe| probe["hook"] == hook)?;
        probe["method"].as_str()
    }

    /// Time its BPF programs have run so far, ns, by the kernel's own count ([`ProgramTimes`] must be there).
    pub fn programs_ns(&self) -> Result<u64> {
        Ok(self.programs("run_time_ns:")?.values().sum())
    }

    /// How often each of its BPF programs has run, by the program's id; counted as the times are.
    pub fn program_runs(&self) -> Result<BTreeMap<u64, u64>> {
        self.programs("run_cnt:")
    }

    /// A number that the kernel keeps of each of its BPF programs, by the program's id.
    fn programs(&self, number: &str) -> Result<BTreeMap<u64, u64>> {
        let folder = format!("/proc/{}/fdinfo", self.pid());
        let mut numbers = BTreeMap::new();
        for entry in std::fs::read_dir(&folder).with_context(|| folder.clone())? {
            // A descriptor may be closed meanwhile.
            let Ok(text) = std::fs::read_to_string(entry?.path()) else {
                continue;
            };
            let field = |name: &str| -> Option<u64> {
                let line = text.lines().find_map(|line| line.strip_prefix(name))?;
                line.trim().parse().ok()
            };
            if let (Some(id), Some(value)) = (field("prog_id:"), field(number)) {
                numbers.insert(id, value);
            }
        }
        if numbers.is_empty() {
            bail!("{folder} has no BPF program");
        }
        Ok(numbers)
    }

    /// Reads records until one satisfies the condition.
    pub fn wait_for(
        &mut self,
        what: &str,
        limit: Duration,
        mut found: impl FnMut(&Value) -> bool,
    ) -> Result<()> {
        let until = Instant::now() + limit;
        loop {
            match self
                .lines
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(line) => {
                    let record = parse(&line)?;
                    let is_found = found(&record);
                    self.records.all.push(record);
                    if is_found {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => bail!(
                    "uio-trace did not print {what} in {} s{}",
                    limit.as_secs(),
                    self.said()
                ),
                Err(RecvTimeoutError::Disconnected) => bail!("uio-trace ended before {what}{}", self.said()),
            }
        }
    }

    /// Reads records until the condition holds for all of them together.
    pub fn wait_until(
        &mut self,
        what: &str,
        limit: Duration,
        holds: impl Fn(&Records) -> bool,
    ) -> Result<()> {
        let until = Instant::now() + limit;
        while !holds(&self.records) {
            self.wait_for(what, until.saturating_duration_since(Instant::now()), |_| true)?;
        }
        Ok(())
    }

    /// What it wrote to stderr, for messages.
    fn said(&mut self) -> String {
        // It may be about to say more.
        let mut text = String::new();
        while let Ok(line) = self.errors.recv_timeout(Duration::from_millis(300)) {
            text.push_str("; ");
            text.push_str(&line);
        }
        text
    }

    /// Ends it by a signal and takes the records it prints then.
    pub fn end(mut self, signal: i32) -> Result<Ended> {
        let pid = i32::try_from(self.child.id())?;
        // SAFETY: the child has not been waited for, so the pid is still its own.
        unsafe { libc::kill(pid, signal) };
        let until = Instant::now() + END_LIMIT;
        loop {
            match self
                .lines
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(line) => self.records.all.push(parse(&line)?),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => bail!(
                    "uio-trace did not end in {} s{}",
                    END_LIMIT.as_secs(),
                    self.said()
                ),
            }
        }
        let status = self.child.wait().context("cannot wait for uio-trace")?;
        let code = status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ok(Ended {
            records: std::mem::take(&mut self.records),
            code,
        })
    }

    /// Takes the records until it ends by itself, and expects success.
    pub fn end_of_itself(mut self) -> Result<Records> {
        while let Ok(line) = self.lines.recv_timeout(END_LIMIT) {
            self.records.all.push(parse(&line)?);
        }
        let status = self.child.wait().context("cannot wait for uio-trace")?;
        if !status.success() {
            bail!("uio-trace ended with {status}{}", self.said());
        }
        Ok(std::mem::take(&mut self.records))
    }

    /// Ends it by SIGINT, as a user does, and expects success.
    pub fn finish(mut self) -> Result<Records> {
        let errors = std::mem::replace(&mut self.errors, channel().1);
        let ended = self.end(libc::SIGINT)?;
        if ended.code != 0 {
            let said: Vec<String> = errors.try_iter().collect();
            bail!(
                "uio-trace ended with {} after SIGINT: {}",
                ended.code,
                said.join("; ")
            );
        }
        Ok(ended.records)
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // After end() this finds no process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn parse(line: &str) -> Result<Value> {
    serde_json::from_str(line).with_context(|| format!("not a JSON record: {line}"))
}

impl Records {
    /// Records of a type.
    pub fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> + 'a {
        self.all.iter().filter(move |record| record["type"] == kind)
    }

    /// Of a dump.
    pub fn read(text: &str) -> Result<Records> {
        let all: Result<Vec<Value>> = text.lines().map(parse).collect();
        Ok(Records { all: all? })
    }

    /// The records as they came.
    pub fn all(&self) -> &[Value] {
        &self.all
    }

    /// Rows of one UIO device, by its driver's name.
    pub fn device<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Value> + 'a {
        self.of("uio_device").filter(move |record| record["name"] == name)
    }

    /// The figures of one operation of one device; Null when there are none.
    pub fn operation<'a>(&'a self, device: &'a str, operation: &str) -> &'a Value {
        self.device(device)
            .filter_map(|record| record["ops"].as_array())
            .flatten()
            .find(|figures| figures["op"] == operation)
            .unwrap_or(&Value::Null)
    }

    /// The row of a probe in the first record; Null when there is none.
    pub fn probe<'a>(&'a self, hook: &str) -> &'a Value {
        self.of("meta")
            .filter_map(|record| record["probes"].as_array())
            .flatten()
            .find(|probe| probe["hook"] == hook)
            .unwrap_or(&Value::Null)
    }

    /// A number of an operation summed over all intervals.
    pub fn operation_sum(&self, device: &str, operation: &str, number: &str) -> u64 {
        self.device(device)
            .filter_map(|record| record["ops"].as_array())
            .flatten()
            .filter(|figures| figures["op"] == operation)
            .filter_map(|figures| figures[number].as_u64())
            .sum()
    }

    /// Drains of one process.
    pub fn drains(&self, tgid: u64) -> Vec<&Value> {
        self.of("aio_drain")
            .filter(|record| record["tgid"].as_u64() == Some(tgid))
            .collect()
    }

    /// A number of the owners whose release symbol begins with `release`, summed over all intervals. A symbol
    /// may carry its module's name after it.
    pub fn owner_sum(&self, release: &str, number: &str) -> u64 {
        self.of("ref_owner")
            .filter(|record| {
                record["release"].as_str().and_then(|name| name.split(' ').next()) == Some(release)
            })
            .filter_map(|record| {
                if number.contains('/') {
                    record.pointer(number)
                } else {
                    record.get(number)
                }
            })
            .filter_map(Value::as_u64)
            .sum()
    }

    /// The last loss record.
    pub fn loss(&self) -> &Value {
        self.of("loss").last().unwrap_or(&Value::Null)
    }
}
