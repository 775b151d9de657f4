//! One stream of events from everything there is to read: rings, maps, sysfs, the probes' own state.

use super::{
    cgroup::CgroupWatch,
    device,
    filter::{self, Filter},
    preflight,
};
use crate::{
    config::TraceConfig,
    error::AppError,
    event::{Event, EventKind, KernelPtr, RefState, TaskStack, UioPresence, UioSeriesReading},
    ingest::{
        blockers, clock, counters,
        kill_stacks::KillStacks,
        openers::Openers,
        ring::RingReader,
        running::RunningReader,
        series::SeriesReader,
        symbols::SymbolSource,
        sysfs::UioSysfs,
        thread_times,
        undisturbed::Undisturbed,
        waiters::{self, Scan},
    },
    kernel::{
        KernelFacts, Root, disks, namespaces,
        offsets::{LockKind, UIO_DEVICE_MAX},
        privileges,
        stacks::{self, Glance},
    },
    model::{
        limits::MAX_UIO_DEVICES,
        questions::Questions,
        snapshot::{Probe, ProbeState, UioLock},
    },
    probes::{
        module_btf,
        session::{Session, SessionConfig, Statistics, Wanted},
    },
    say::{passing, say},
};
use std::{
    collections::{BTreeSet, HashSet},
    io::IsTerminal,
    time::Duration,
};
use tokio::time::{Interval, MissedTickBehavior, interval};
use uio_trace_common::loss;

/// How often the uio module, sysfs and online CPUs are looked at: a module that comes is attached within this time.
const HOUSEKEEPING: Duration = Duration::from_millis(50);

/// Every how many of those rounds sysfs and online CPUs are looked at, too: that reads several files.
const LOOK_EVERY: u32 = 8;

/// Passes BPF messages to standard error.
struct StderrLog;

impl log::Log for StderrLog {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        if !std::io::stderr().is_terminal() || !std::io::stdout().is_terminal() {
            say(format_args!("bpf: {} {}", record.level(), record.args()));
        }
    }
    fn flush(&self) {}
}

/// The running trace.
pub struct Tracer {
    session: Session,
    lifecycle: RingReader,
    slow: RingReader,
    series: SeriesReader,
    sysfs: UioSysfs,
    openers: Openers,
    symbols: SymbolSource,
    kill_stacks: KillStacks,
    statistics: Option<Statistics>,
    filter: Filter,
    cgroup: Option<CgroupWatch>,
    log: Option<aya_log::EbpfLogger<StderrLog>>,
    housekeeping: Interval,
    decoded: u64,
    rejected: u64,
    pending: Vec<Event>,
    rounds: u32,
    root: Root,
    /// Release functions whose tracing was asked for.
    releases: HashSet<KernelPtr>,
    /// Devices that were looked into.
    looked_into: BTreeSet<KernelPtr>,
    /// A look found a percpu_ref in one.
    found_ref: bool,
    scan: Scan,
    running: RunningReader,
    /// Why kernel stacks cannot be read.
    stacks: Result<(), String>,
    /// /proc numbers processes as the kernel does.
    hosts_pids: bool,
    /// The kernel may take the CPU from this thread in the middle of a system call.
    preempts: bool,
}

/// How long the last figures wait for the scan of all tasks, which looks twice; with many thousands it takes longer.
const SCAN_PATIENCE: Duration = Duration::from_millis(1500);

/// Release functions remembered as asked for; a kernel has a few dozen.
const RELEASES_MAX: usize = 1024;

/// Before there are screens: they come after some seconds.
fn tell_progress(tried: usize, of: usize) {
    passing(format_args!("attaching probes: {tried} of {of}"));
}

impl Tracer {
    /// Loads and attaches. The first events (probes, uio's presence, devices) are pending afterwards.
    ///
    /// # Errors
    /// Not permitted, this kernel cannot, or a failure; each a sentence for the user.
    pub fn start(root: &Root, config: &TraceConfig) -> Result<Tracer, AppError> {
        let hosts_pids = namespaces::pids_are_the_hosts(root);
        if config.pid.is_some() && !hosts_pids {
            return Err(AppError::Usage(format!("--pid: {}", namespaces::NOT_THE_HOSTS)));
        }
        preflight::rings_fit(root, config.ring_bytes)?;
        let facts = KernelFacts::read(root);
        preflight::may_trace(&facts)?;
        if let Some(pid) = config.pid
            && !root.join(format!("proc/{pid}")).exists()
        {
            return Err(AppError::Usage(format!("--pid {pid}: there is no such process")));
        }
        let mut cgroup = CgroupWatch::start(root, config)?;
        let filter = Filter::new(config);
        device::check(root, &filter, config)?;
        let session_config = SessionConfig {
            slow_ns: u64::try_from(config.slow.as_nanos()).unwrap_or(u64::MAX),
            wanted: Wanted {
                tgid: config.pid,
                comm: config.comm.as_deref().and_then(filter::kernels_name),
                cgroup: cgroup.is_some(),
            },
            bpf_log: config.bpf_log,
            ring_bytes: config.ring_bytes,
            hold_uio: config.hold_uio,
            progress: config.screens.then_some(tell_progress),
        };
        let stacks = stacks::readable(root);
        let first_look = if stacks.is_ok() {
            waiters::before_attaching(root)
        } else {
            Glance::default()
        };
        let mut session = match Session::start(root.clone(), facts, &session_config) {
            Ok(session) => session,
            Err(error) => {
                return Err(preflight::load_failed(&KernelFacts::read(root), &error));
            }
        };
        preflight::can_trace(session.facts(), &session.probes())?;
        if let Some(cgroup) = &mut cgroup {
            cgroup.hand_over(&mut session)?;
        }

        let ring_error = |e: std::io::Error| AppError::Failed(format!("waiting on a BPF ring failed: {e}"));
        let lifecycle = RingReader::new(session.take_ring("LIFECYCLE")?).map_err(ring_error)?;
        let slow = RingReader::new(session.take_ring("SLOW")?).map_err(ring_error)?;
        let log = if config.bpf_log {
            Some(session.bpf_log(StderrLog)?)
        } else {
            None
        };
        let kill_stacks = KillStacks::new(session.take_stacks("KILL_STACKS")?);
        let running = RunningReader::new(&session)?;
        let mut housekeeping = interval(HOUSEKEEPING);
        housekeeping.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let now = clock::monotonic_ns();
        let symbols = SymbolSource::new(root.clone(), session.facts().symbols.clone(), now);
        let preempts = module_btf::preempts(root, &session.facts().version).is_some();
        let mut tracer = Tracer {
            session,
            preempts,
            lifecycle,
            slow,
            series: SeriesReader::default(),
            sysfs: UioSysfs::start(root.clone()),
            openers: Openers::start(root.clone()),
            symbols,
            kill_stacks,
            statistics: None,
            filter,
            cgroup,
            log,
            housekeeping,
            decoded: 0,
            rejected: 0,
            pending: Vec::new(),
            rounds: 0,
            root: root.clone(),
            releases: HashSet::new(),
            looked_into: BTreeSet::new(),
            found_ref: false,
            // After attaching: what begins to wait from now on is seen by its events.
            scan: if stacks.is_ok() {
                Scan::start(root.clone(), first_look)
            } else {
                Scan::none()
            },
            running,
            stacks,
            hosts_pids,
        };
        tracer.tell_probes();
        tracer.tell_presence(tracer.session.uio_attached());
        if config.cost
            && let Err(reason) = tracer.count_costs(true)
        {
            say(format_args!("--cost: {reason}; going on without"));
        }
        Ok(tracer)
    }

    /// Gives up the capabilities that a running trace does not need.
    pub fn give_up_privileges(&self) {
        if let Err(error) = privileges::drop_unneeded() {
            // Tracing goes on: it only keeps more than it needs.
            say(format_args!(
                "capabilities that are not needed could not be given up: {error}"
            ));
        }
    }

    /// The kernel.
    pub fn facts(&self) -> &KernelFacts {
        self.session.facts()
    }

    /// Probes now.
    pub fn probes(&self) -> Vec<Probe> {
        let mut rows = self.session.probes();
        rows.push(stacks_row(&self.stacks));
        rows.extend(self.cgroup.as_ref().map(CgroupWatch::row));
        rows
    }

    /// The probes when they are not those of before.
    pub fn changed_probes(&self, before: &[Probe]) -> Option<Vec<Probe>> {
        let now = self.probes();
        (now != before).then_some(now)
    }

    /// The filter, for what is shown.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    fn tell(&mut self, kind: EventKind) {
        self.pending.push(Event {
            ts_ns: clock::monotonic_ns(),
            kind,
        });
    }

    /// What has been waiting since before the trace. Those tasks are still there, so /proc says which cgroup they are in.
    fn tell_waiting(&mut self, mut found: Vec<TaskStack>) {
        if let Some(cgroup) = &self.cgroup {
            found.retain(|stack| cgroup.has(stack.task.tid));
        }
        self.tell(EventKind::Waiting(found));
    }

    fn tell_probes(&mut self) {
        let probes = self.probes();
        self.tell(EventKind::Probes(probes));
    }

    /// Begins or ends to count what the programs cost.
    ///
    /// # Errors
    /// Why it cannot be counted, in a sentence.
    pub fn count_costs(&mut self, on: bool) -> Result<(), String> {
        if !on {
            self.statistics = None;
            self.tell(EventKind::ProbeCosts(None));
        } else if self.statistics.is_none() {
            self.statistics = Some(Statistics::keep()?);
            // What it counts from.
            self.tell_costs();
        }
        Ok(())
    }

    /// Whether what the programs cost is counted.
    pub fn counts_costs(&self) -> bool {
        self.statistics.is_some()
    }

    fn tell_costs(&mut self) {
        if self.counts_costs() {
            let costs = self.session.costs();
            self.tell(EventKind::ProbeCosts(Some(costs)));
        }
    }

    fn tell_presence(&mut self, present: bool) {
        let presence = if present {
            UioPresence::Present
        } else {
            UioPresence::Absent
        };
        let lock = match self.session.uio_lock() {
            Some(LockKind::Mutex | LockKind::AssumedMutex) => UioLock::Mutex,
            Some(LockKind::PercpuRef) => UioLock::PercpuRef,
            None => UioLock::Unknown,
        };
        self.tell(EventKind::UioLockKind(lock));
        self.tell(EventKind::UioPresence(presence));
    }

    /// Waits for the next thing to happen and hands its events over. Cancel-safe.
    ///
    /// # Errors
    /// When a ring or map cannot be read any more.
    pub async fn step(&mut self, mut sink: impl FnMut(Event)) -> Result<(), AppError> {
        let failed = |e: std::io::Error| AppError::Failed(format!("reading a BPF ring failed: {e}"));
        if self.pending.is_empty() {
            tokio::select! {
                batch = self.lifecycle.next() => {
                    let batch = batch.map_err(failed)?;
                    self.take(batch, &mut sink);
                }
                batch = self.slow.next() => {
                    let batch = batch.map_err(failed)?;
                    self.take(batch, &mut sink);
                }
                _ = self.housekeeping.tick() => {
                    let everything = self.rounds.is_multiple_of(LOOK_EVERY);
                    self.rounds = self.rounds.wrapping_add(1);
                    self.look_around(everything)?;
                }
            }
        }
        for event in std::mem::take(&mut self.pending) {
            if let Some(event) = self.filter.pass(event) {
                sink(event);
            }
        }
        Ok(())
    }

    fn take(&mut self, batch: crate::ingest::ring::Batch, sink: &mut impl FnMut(Event)) {
        let kill_stacks = &mut self.kill_stacks;
        let (symbols, filter, releases) = (&mut self.symbols, &mut self.filter, &mut self.releases);
        let (looked_into, found_ref) = (&self.looked_into, &mut self.found_ref);
        let traced = &mut self.session.releases;
        let root = &self.root;
        let counts = batch.decode(|mut event, outside| {
            if let EventKind::AioLastRequest { file, .. } = &mut event.kind {
                file.disk = disks::name(root, &file.device);
            }
            symbols.before(&event, &mut *sink);
            kill_stacks.before(&event, |address| symbols.function(address), &mut *sink);
            if let EventKind::RefLooked { reference, state, .. } = &event.kind
                && *state != RefState::Gone
                && let Some(idev) = looked_into.range(..*reference).next_back()
                && reference.0 - idev.0 < UIO_DEVICE_MAX.into()
            {
                *found_ref = true;
            }
            if let EventKind::RefKill { release, .. } | EventKind::RefLooked { release, .. } = &event.kind
                && !releases.contains(release)
                && releases.len() < RELEASES_MAX
                && let Some(symbol) = symbols.name(*release)
            {
                releases.insert(*release);
                traced.want(release.0, &symbol);
            }
            if let Some(event) = filter.pass_from(event, outside) {
                sink(event);
            }
        });
        self.decoded += counts.decoded;
        self.rejected += counts.rejected;
    }

    fn look_around(&mut self, everything: bool) -> Result<(), AppError> {
        let mut changes = self.session.follow_uio()?;
        changes.probes |= self.session.releases.poll();
        if everything {
            changes.probes |= self.session.follow_cpus();
        }
        if everything && let Some(cgroup) = &mut self.cgroup {
            changes.probes |= cgroup.follow(&mut self.session);
        }
        if let Some(found) = self.scan.take(Duration::ZERO) {
            self.tell_waiting(found);
        }
        if let Some(present) = changes.uio {
            self.looked_into.clear();
            self.tell_presence(present);
        }
        if changes.probes {
            self.tell_probes();
        }
        // A module that came or went changes the devices at once.
        if (everything || changes.uio.is_some())
            && let Some(devices) = self.sysfs.poll()
        {
            self.openers.devices_changed();
            self.tell(EventKind::UioDevices(devices));
        }
        if everything
            && self.hosts_pids
            && let Some(open) = self.openers.poll(std::time::Instant::now())
        {
            self.tell(EventKind::UioOpen(open));
        }
        if let Some(log) = &mut self.log {
            log.flush();
        }
        Ok(())
    }

    /// Looks at what the model asks about. The answers are handed over by the next [`Tracer::catch_up`] or [`Tracer::step`].
    pub fn answer(&mut self, questions: Questions) {
        if self.session.look_at(&questions.refs) {
            self.tell_probes();
        }
        // Also when there are none: then nobody is where the last ones said.
        if self.stacks.is_ok() {
            let stacks = waiters::stacks_of(&self.root, questions.tasks);
            self.tell(EventKind::Stacks(stacks));
        }
    }

    /// Devices seen for the first time: do they have info_lock?
    fn look_into_new(&mut self, readings: &[UioSeriesReading], sink: &mut impl FnMut(Event)) {
        let mut looked = false;
        for reading in readings {
            if self.looked_into.len() < MAX_UIO_DEVICES && self.looked_into.insert(reading.idev) {
                looked = true;
                if self.session.look_into(reading.idev) {
                    self.tell_probes();
                }
            }
        }
        if looked {
            let answers = self.lifecycle.drain();
            self.take(answers, sink);
        }
        if std::mem::take(&mut self.found_ref) && self.session.uio_has_ref() {
            self.tell_presence(true);
        }
    }

    /// Everything that is there now: rings to their end, histograms, counters. Before a snapshot.
    ///
    /// # Errors
    /// When a map cannot be read any more.
    pub fn catch_up(&mut self, mut sink: impl FnMut(Event)) -> Result<(), AppError> {
        let undisturbed = Undisturbed::begin(self.preempts);
        // Counters first: what is counted as submitted here is in the rings by the time they are drained.
        let mut counts = counters::read(&self.session)?;
        drop(undisturbed);
        loop {
            let (lifecycle, slow) = (self.lifecycle.drain(), self.slow.drain());
            if lifecycle.is_empty() && slow.is_empty() {
                break;
            }
            self.take(lifecycle, &mut sink);
            self.take(slow, &mut sink);
        }
        counts.insert("decoded".into(), self.decoded);
        counts.insert("decode_error".into(), self.rejected);
        if let Some(found) = self.scan.take(SCAN_PATIENCE) {
            self.tell_waiting(found);
        }
        self.look_around(true)?;
        let undisturbed = Undisturbed::begin(self.preempts);
        let readings = self.series.read(&self.session)?;
        let blockers = blockers::read(&self.session)?;
        drop(undisturbed);
        // Counted into histograms: the series themselves say how many, so the hot path need not count twice.
        let aggregated = readings.iter().map(|reading| reading.count).sum();
        counts.insert(loss::name(loss::UIO_AGGREGATED).into(), aggregated);
        self.look_into_new(&readings, &mut sink);
        self.tell(EventKind::UioReading(readings));
        let times = thread_times::of_holders(&self.root, &blockers);
        if !times.is_empty() {
            self.tell(EventKind::ThreadTimes(times));
        }
        self.tell(EventKind::UioBlockers(blockers));
        self.tell(EventKind::Counters(counts));
        self.tell_costs();
        if self.session.uio_attached()
            && let Some(rows) = self
                .running
                .read(&self.root, clock::monotonic_ns(), self.hosts_pids)
        {
            self.tell(EventKind::UioRunning(rows));
        }
        self.tell(EventKind::Tick);
        for event in std::mem::take(&mut self.pending) {
            if let Some(event) = self.filter.pass(event) {
                sink(event);
            }
        }
        Ok(())
    }
}

/// Whether kernel stacks are read, as a row among the probes.
pub fn stacks_row(readable: &Result<(), String>) -> Probe {
    Probe {
        subject: "percpu_ref".into(),
        hook: "/proc/PID/stack".into(),
        state: if readable.is_ok() {
            ProbeState::Attached
        } else {
            ProbeState::Failed
        },
        method: readable.is_ok().then(|| "read".into()),
        reason: readable.as_ref().err().cloned(),
        gives: "what has been waiting since before the trace, and stacks of what hangs".into(),
        required: false,
        cost: None,
        late_cpus: Vec::new(),
    }
}
