//! `exec`: traces a command and what it starts, and reports when it has ended.

pub mod command;

use super::{filter::Filter, meta, record::target::Target, signals, top::Live, tracer::Tracer};
use crate::{
    config::ExecConfig,
    error::AppError,
    event::Event,
    format,
    ingest::{clock, family::Family},
    kernel::{Root, namespaces},
    model::{
        self, Model, Scope,
        snapshot::{Meta, Snapshot},
    },
    report,
    say::say,
    stdout,
};
use std::{
    io::Write,
    path::Path,
    process::{Child, ExitStatus},
    time::Duration,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{MissedTickBehavior, interval},
};

/// Longest time between two readings of the kernel's histograms: their 32-bit counts must not wrap twice.
const READ_AT_LEAST: Duration = Duration::from_secs(60);

/// Runs CMD and reports on it. It ends as CMD did.
///
/// # Errors
/// CMD's own status other than 0; what kept it from being started or traced.
pub async fn run(config: ExecConfig) -> Result<(), AppError> {
    let name = config.command.first().cloned().unwrap_or_default();
    let path = command::find(&name)?;
    // Before CMD runs, which may take long and cannot be taken back.
    let target = match config.output.as_deref() {
        Some(_) if config.to_standard_output() => {
            stdout::check()?;
            None
        }
        Some(file) => Some(Target::claim(file, config.force, false)?),
        None => None,
    };
    let root = Root::system();
    if !namespaces::pids_are_the_hosts(&root) {
        return Err(AppError::Usage(format!("exec: {}", namespaces::NOT_THE_HOSTS)));
    }
    let mut tracer = Tracer::start(&root, &config.trace)?;
    let meta = meta::meta(&root, tracer.facts(), tracer.probes());
    let ended = follow(&mut tracer, &meta, &config, &path, target).await;
    signals::end_at_once_from_now();
    say("detaching");
    drop(tracer);
    match ended? {
        0 => Ok(()),
        status => Err(AppError::Command {
            message: None,
            status,
        }),
    }
}

/// The signals that are passed on to CMD.
struct Forwarded([(libc::c_int, Signal); 6]);

impl Forwarded {
    fn new() -> Result<Forwarded, AppError> {
        let listen = |kind: SignalKind| Ok::<_, AppError>((kind.as_raw_value(), handler(kind)?));
        Ok(Forwarded([
            listen(SignalKind::interrupt())?,
            listen(SignalKind::quit())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
            listen(SignalKind::user_defined1())?,
            listen(SignalKind::user_defined2())?,
        ]))
    }

    async fn next(&mut self) -> libc::c_int {
        std::future::poll_fn(|context| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

fn handler(kind: SignalKind) -> Result<Signal, AppError> {
    signal(kind).map_err(|e| AppError::Failed(format!("signal handlers could not be installed: {e}")))
}

/// Starts CMD, traces it until it ends, and reports. CMD's status.
///
/// # Errors
/// CMD cannot be started, or what it starts not be followed. Once it runs, it is not given up: what fails then is said.
pub async fn follow(
    live: &mut impl Live,
    meta: &Meta,
    config: &ExecConfig,
    path: &Path,
    target: Option<Target>,
) -> Result<u8, AppError> {
    let mut model = Model::new(model::Config::of(meta));
    let mut forwarded = Forwarded::new()?;
    let mut ends = handler(SignalKind::child())?;
    let mut family = Family::watch(&Root::system()).map_err(|cause| {
        AppError::Failed(format!(
            "what CMD starts cannot be followed, perf_event_open(2) failed: {cause}; see /proc/sys/kernel/perf_event_paranoid"
        ))
    })?;
    let mut filter = Filter::new(&config.trace);
    let mut child = command::start(path, &config.command)?;
    family.adopt(child.id());
    // Not before: a program that gains capabilities by being executed loses the events that tell of its children
    // (fs/exec.c, begin_new_exec), and CMD has its user's own in any case.
    live.give_up_privileges();
    let mut read = interval(READ_AT_LEAST);
    read.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut events = Vec::new();
    // What failed of the trace; CMD goes on without it, and what was seen until then is reported.
    let mut failed: Option<u8> = None;
    let ended = loop {
        if let Some(ended) = waited(&mut child)? {
            break ended;
        }
        let mut result = Ok(());
        tokio::select! {
            biased;
            number = forwarded.next() => command::forward(&child, number),
            _ = ends.recv() => {}
            _ = read.tick(), if failed.is_none() => {
                live.ask(&mut model);
                result = live.catch_up(|event| events.push(event));
            }
            stepped = live.step(|event| events.push(event)), if failed.is_none() => result = stepped,
        }
        take(&mut events, &mut family, &mut filter, &mut model);
        if let Err(error) = result {
            say(format_args!("the trace has failed, CMD goes on: {error}"));
            failed = Some(error.exit_code());
        }
    };
    if failed.is_none() {
        live.ask(&mut model);
        if let Err(error) = live.catch_up(|event| events.push(event)) {
            say(format_args!("the end of the trace is missing: {error}"));
            failed = Some(error.exit_code());
        }
        take(&mut events, &mut family, &mut filter, &mut model);
    }
    model.finish(clock::monotonic_ns());
    let mut snapshot = model.snapshot(Scope::SinceStart);
    live.shape(&mut snapshot);
    let status = command::status(ended);
    say(summary(ended, &family));
    if let Err(error) = write(meta, &snapshot, config, target) {
        say(&error);
        failed = Some(error.exit_code());
    }
    // CMD's own failure is what its caller waits for.
    Ok(match failed {
        Some(code) if status == 0 => code,
        _ => status,
    })
}

fn waited(child: &mut Child) -> Result<Option<ExitStatus>, AppError> {
    child
        .try_wait()
        .map_err(|cause| AppError::Failed(format!("waiting for CMD failed: {cause}")))
}

/// Hands the model what is of CMD. The processes are looked at after the events were taken: then all of theirs are known.
fn take(events: &mut Vec<Event>, family: &mut Family, filter: &mut Filter, model: &mut Model) {
    family.update();
    for event in events.drain(..) {
        if let Some(event) = filter.pass_of(event, |task| family.contains(task.tgid)) {
            model.apply(event);
        }
    }
}

fn summary(ended: ExitStatus, family: &Family) -> String {
    use std::os::unix::process::ExitStatusExt;
    let how = match (ended.code(), ended.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    };
    let mut text = format!("CMD {how}; {} traced", format::plural(family.seen(), "process"));
    if family.running() > 0 {
        text += &format!(", {} of them still run", family.running());
    }
    if family.lost() > 0 {
        text += &format!(", {} forks may have been missed", family.lost());
    }
    text
}

/// The report, to FILE, standard output or standard error; to the last where that fails.
fn write(
    meta: &Meta,
    snapshot: &Snapshot,
    config: &ExecConfig,
    target: Option<Target>,
) -> Result<(), AppError> {
    let text = if config.json {
        report::json::render(meta, snapshot)?
    } else {
        let options = report::text::Options {
            all: config.trace.all,
            ..report::text::Options::from_env()
        };
        report::text::render(meta, snapshot, &options)
    };
    let to_standard_error = || std::io::stderr().lock().write_all(text.as_bytes());
    let written = match target {
        Some(target) => target.fill(text.as_bytes()),
        None if config.to_standard_output() => to_standard_output(&text),
        None => {
            return to_standard_error()
                .map_err(|cause| AppError::Failed(format!("writing to standard error failed: {cause}")));
        }
    };
    // CMD does not run again for it.
    written.map_err(|error| match to_standard_error() {
        Ok(()) => AppError::Failed(format!("{error}; the report is on standard error, above")),
        Err(_) => error,
    })
}

fn to_standard_output(text: &str) -> Result<(), AppError> {
    let mut out = stdout::lock()?;
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    // Not as elsewhere: that its reader went away does not make it well written.
    written.map_err(|cause| AppError::Failed(format!("writing to standard output failed: {cause}")))
}
