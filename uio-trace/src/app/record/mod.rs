//! `record`: the decoded events into a file, for `replay` here or elsewhere.

mod live;
mod piece;
mod recorder;
pub mod target;

use super::{
    meta,
    signals::{self, Stop},
    top::Live,
    tracer::Tracer,
};
use crate::{
    config::RecordConfig,
    error::AppError,
    event::Event,
    kernel::Root,
    model::{self, Model, Scope, snapshot::Meta},
    recording::trigger::Watch,
    say::say,
};
pub use live::LiveRecording;
pub(super) use piece::size;
use recorder::Recorder;
use std::time::Duration;
use target::Target;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

/// How often readings are taken and a frame is written.
const EVERY: Duration = Duration::from_secs(1);

/// Runs until a signal, `--duration`, or, with triggers, until `--max-size` is used up.
///
/// # Errors
/// What ended it other than well.
pub async fn run(config: RecordConfig) -> Result<(), AppError> {
    // Before the trace: what cannot be written is said at once, and where tracing fails no file stays.
    let target = Target::claim(&config.file, config.force, config.rotates())?;
    let root = Root::system();
    let mut tracer = Tracer::start(&root, &config.trace)?;
    tracer.give_up_privileges();
    let mut stop = Stop::new()?;
    let meta = meta::meta(&root, tracer.facts(), tracer.probes());
    let ended = record(&mut tracer, meta, &config, target, &mut stop).await;
    say("detaching");
    drop(tracer);
    ended
}

/// Records what is live until it is to end.
///
/// # Errors
/// When the trace or the file fail.
pub async fn record(
    live: &mut impl Live,
    meta: Meta,
    config: &RecordConfig,
    target: Target,
    stop: &mut Stop,
) -> Result<(), AppError> {
    let mut model = Model::new(model::Config::of(&meta));
    let mut watch = Watch::new(config.triggers.clone());
    let meta_ns = meta.started_ns;
    let mut recorder = Recorder::new(config, target, meta)?;
    say(if config.ring.is_some() {
        format!(
            "waiting for a trigger, to record to {}; Ctrl-C ends it",
            config.file.display()
        )
    } else {
        format!("recording to {}; Ctrl-C ends it", config.file.display())
    });
    let started = Instant::now();
    let ends = config.duration.map(|duration| started + duration);
    let mut every = interval_at(started + EVERY, EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut events: Vec<Event> = Vec::new();
    let (mut over, mut now_ns) = (false, meta_ns);
    while !over {
        let mut due = false;
        tokio::select! {
            biased;
            () = stop.requested() => over = true,
            () = sleep_until(ends.unwrap_or(started)), if ends.is_some() => over = true,
            _ = every.tick() => due = true,
            stepped = live.step(|event| events.push(event)) => stepped?,
        }
        if over {
            signals::end_at_once_from_now();
        }
        if over || due {
            live.ask(&mut model);
            live.catch_up(|event| events.push(event))?;
        }
        for event in events.drain(..) {
            now_ns = now_ns.max(event.ts_ns);
            if config.ring.is_some() {
                watch.event(&event);
            }
            // Also where no trigger looks at it: the model knows what to ask about.
            model.apply(event.clone());
            recorder.event(event)?;
        }
        if !over && !due {
            continue;
        }
        if config.ring.is_some() {
            let found = watch.look(&model.snapshot(Scope::Interval));
            model.begin_interval(now_ns);
            if let Some(told) = recorder.found(&found, now_ns)? {
                say(told);
            }
        }
        let tick = recorder.tick(now_ns)?;
        if let Some(told) = tick.told {
            say(told);
        }
        if tick.full {
            say("--max-size is used up");
            over = true;
        }
    }
    say(recorder.finish()?);
    Ok(())
}
