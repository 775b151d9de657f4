//! `hist`: figures as text or JSON, at the end or each interval.

use super::{
    meta,
    signals::{self, Stop},
    tracer::Tracer,
};
use crate::{
    config::HistConfig,
    error::AppError,
    ingest::clock,
    kernel::Root,
    model::{
        self, Model, Scope,
        snapshot::{Meta, Probe, ProbeState, Snapshot},
    },
    report,
    say::say,
    stdout,
};
use std::io::Write;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Longest time between two readings of the kernel's histograms: their 32-bit counts must not wrap twice, and samples over
/// time tell pauses of a load (model::whatif).
const READ_AT_LEAST: Duration = Duration::from_millis(500);

/// Runs until a signal, `--duration`, or COUNT intervals.
///
/// # Errors
/// What ended it other than well.
pub async fn run(config: HistConfig) -> Result<(), AppError> {
    stdout::check()?;
    let root = Root::system();
    let mut tracer = Tracer::start(&root, &config.trace)?;
    tracer.give_up_privileges();
    // Not before: until there is something to print, a signal ends the process at once, which detaches everything.
    let mut stop = Stop::new()?;
    let meta = meta::meta(&root, tracer.facts(), tracer.probes());
    let mut model = Model::new(model::Config::of(&meta));
    let mut out = Output {
        config: &config,
        meta,
        printed: 0,
    };
    out.begin()?;

    let started = Instant::now();
    let ends = config.duration.map(|duration| started + duration);
    let mut next = config.interval.map(|interval| started + interval);
    let mut next_read = started + READ_AT_LEAST;
    let mut left = config.count;
    loop {
        let wake = [next, ends, Some(next_read)]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(next_read);
        tokio::select! {
            biased;
            () = stop.requested() => break,
            () = sleep_until(wake) => {}
            stepped = tracer.step(|event| model.apply(event)) => {
                stepped?;
                out.probes(&tracer)?;
                continue;
            }
        }
        let now = Instant::now();
        if next.is_some_and(|at| at <= now) {
            tracer.answer(model.questions(clock::monotonic_ns()));
            tracer.catch_up(|event| model.apply(event))?;
            out.print(&tracer, model.snapshot(Scope::Interval))?;
            model.begin_interval(clock::monotonic_ns());
            left = left.map(|left| left - 1);
            if left == Some(0) {
                return finish(tracer);
            }
            next = next
                .zip(config.interval)
                .map(|(at, interval)| mark_after(at, interval, Instant::now()));
        }
        if ends.is_some_and(|at| at <= now) {
            break;
        }
        if next_read <= now {
            tracer.answer(model.questions(clock::monotonic_ns()));
            tracer.catch_up(|event| model.apply(event))?;
            next_read = now + READ_AT_LEAST;
        }
    }
    signals::end_at_once_from_now();
    tracer.answer(model.questions(clock::monotonic_ns()));
    tracer.catch_up(|event| model.apply(event))?;
    model.finish(clock::monotonic_ns());
    let scope = if config.interval.is_some() {
        Scope::Interval
    } else {
        Scope::SinceStart
    };
    out.print(&tracer, model.snapshot(scope))?;
    finish(tracer)
}

/// When the next interval ends. Fixed marks, not "interval after printing": a slow reader must not stretch time. Missed ones are
/// skipped, also those that were missed while the last one was read and printed: else a row of a few ms would follow.
fn mark_after(at: Instant, interval: Duration, now: Instant) -> Instant {
    let mut next = at + interval;
    while next <= now {
        next += interval;
    }
    next
}

/// Results are out; takes the probes back.
fn finish(tracer: Tracer) -> Result<(), AppError> {
    signals::end_at_once_from_now();
    say("detaching");
    drop(tracer);
    Ok(())
}

/// Where dumps go.
struct Output<'a> {
    config: &'a HistConfig,
    meta: Meta,
    printed: u64,
}

impl Output<'_> {
    /// Says that tracing runs: JSON readers get their meta record at once, people a line on standard error.
    fn begin(&self) -> Result<(), AppError> {
        if self.config.json {
            let mut out = stdout::lock()?;
            report::json::write_meta(&mut out, &self.meta)?;
            out.flush()?;
        } else if self.config.csv {
            let mut out = stdout::lock()?;
            report::csv::write_header(&mut out)?;
            out.flush()?;
        } else {
            let how = match (self.config.interval, self.config.duration) {
                (Some(_), _) => "".to_owned(),
                (None, Some(duration)) => {
                    format!(
                        "; results in {}, Ctrl-C for them now",
                        humantime::format_duration(duration)
                    )
                }
                (None, None) => "; Ctrl-C for the results".to_owned(),
            };
            say(format_args!("tracing{how}"));
        }
        Ok(())
    }

    /// Says what changed when probes were attached or went, as with the uio module: JSON readers get the meta record anew.
    fn probes(&mut self, tracer: &Tracer) -> Result<(), AppError> {
        let Some(probes) = tracer.changed_probes(&self.meta.probes) else {
            return Ok(());
        };
        let before = working(&self.meta.probes);
        self.meta.probes = probes;
        if self.config.json {
            let mut out = stdout::lock()?;
            report::json::write_meta(&mut out, &self.meta)?;
            out.flush()?;
        } else if before != working(&self.meta.probes) {
            say(attached(&self.meta.probes));
        }
        Ok(())
    }

    fn print(&mut self, tracer: &Tracer, mut snapshot: Snapshot) -> Result<(), AppError> {
        tracer.filter().shape(&mut snapshot);
        let mut out = stdout::lock()?;
        if self.config.json {
            report::json::write_snapshot(&mut out, &snapshot)?;
        } else if self.config.csv {
            report::csv::write_snapshot(&mut out, &snapshot)?;
        } else {
            let options = report::text::Options {
                all: self.config.trace.all,
                heading: self.printed == 0,
                ..report::text::Options::from_env()
            };
            out.write_all(report::text::render(&self.meta, &snapshot, &options).as_bytes())?;
        }
        self.printed += 1;
        out.flush()?;
        Ok(())
    }
}

/// Probes that are attached.
fn working(probes: &[Probe]) -> usize {
    probes.iter().filter(|p| p.state == ProbeState::Attached).count()
}

/// How many probes are attached, and why the others are not. What is not needed is not missed.
fn attached(probes: &[Probe]) -> String {
    let missed = |p: &&Probe| matches!(p.state, ProbeState::Waiting | ProbeState::Failed);
    let mut reasons: Vec<(&str, u64)> = Vec::new();
    for probe in probes.iter().filter(missed) {
        let reason = probe.reason.as_deref().unwrap_or("unknown reason");
        match reasons.iter_mut().find(|(same, _)| *same == reason) {
            Some((_, n)) => *n += 1,
            None => reasons.push((reason, 1)),
        }
    }
    reasons.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let all = working(probes) + probes.iter().filter(missed).count();
    let mut text = format!("{} of {all} probes are attached", working(probes));
    for (reason, n) in reasons {
        text.push_str(&format!("; {n} not: {reason}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_attached_has_its_reason() {
        let probe = |state, reason: Option<&str>| Probe {
            subject: "uio".into(),
            hook: "h".into(),
            state,
            method: None,
            reason: reason.map(str::to_owned),
            gives: String::new(),
            required: true,
            cost: None,
            late_cpus: Vec::new(),
        };
        let unloaded = Some(crate::probes::plan::UNLOADED);
        let probes = [
            probe(ProbeState::Attached, None),
            probe(ProbeState::Failed, Some("lockdown")),
            probe(ProbeState::NotNeeded, Some("another one is in use")),
            probe(ProbeState::Waiting, unloaded),
            probe(ProbeState::Waiting, unloaded),
        ];
        assert_eq!(
            attached(&probes),
            "1 of 4 probes are attached; 2 not: module uio was unloaded, and is attached when it appears again; \
             1 not: lockdown"
        );
        assert_eq!(attached(&probes[..1]), "1 of 1 probes are attached");
    }

    #[test]
    fn marks_that_were_missed_are_skipped() {
        let begin = Instant::now();
        let ms = Duration::from_millis;
        let after = |at: u64, now: u64| mark_after(begin + ms(at), ms(500), begin + ms(now)) - begin;
        assert_eq!(after(500, 501), ms(1000));
        // Reading took until the mark behind the next one.
        assert_eq!(after(500, 1083), ms(1500));
        assert_eq!(after(500, 1500), ms(2000));
    }
}
