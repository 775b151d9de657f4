//! `report`: what a recording tells, or a trace made for it, in one of five forms.

use super::{
    device,
    filter::Filter,
    meta,
    signals::{self, Stop},
    tracer::Tracer,
};
use crate::{
    config::{ReportConfig, ReportForm, ReportSource, is_stream},
    error::AppError,
    event::Event,
    format::rfc3339,
    ingest::clock,
    kernel::Root,
    model::snapshot::{Meta, Snapshot},
    recording::{self, GapReason, Record},
    report::{
        self,
        story::{Story, StoryBuilder},
    },
    say::say,
};
use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Points that a line over time should have, about.
const POINTS: u32 = 240;

/// Runs.
///
/// # Errors
/// What ended it other than well.
pub async fn run(config: ReportConfig) -> Result<(), AppError> {
    if config.form == ReportForm::Perfetto && config.target.path.is_none() && std::io::stdout().is_terminal()
    {
        return Err(AppError::Usage(
            "a Perfetto trace is not for a terminal: give -o FILE, or redirect the output".into(),
        ));
    }
    let inputs: &[&Path] = match &config.source {
        ReportSource::File(path) => &[path],
        ReportSource::Live(_) => &[],
    };
    config.target.check(inputs)?;
    match &config.source {
        ReportSource::File(path) => {
            let mut filter = Filter::new(&config.trace);
            let story = from_file(path, &mut filter)?;
            deliver(&config, &story)
        }
        ReportSource::Live(duration) => live(&config, *duration).await,
    }
}

/// The story of a recording.
///
/// # Errors
/// [`AppError::Failed`] with the file and what is wrong with it; [`AppError::Usage`] for a device that it has not.
pub fn from_file(path: &Path, filter: &mut Filter) -> Result<Story, AppError> {
    // An error on opening names the file already.
    let reader = if is_stream(path) {
        std::io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|cause| AppError::Failed(format!("standard input cannot be read: {cause}")))
            .map(|input| recording::Reader::new(File::from(input)))?
    } else {
        recording::read(path)
    };
    let reader = reader.map_err(|error| match error {
        recording::RecordingError::Open { .. } => AppError::Failed(error.to_string()),
        other => AppError::Failed(format!("{}: {other}", path.display())),
    })?;
    let mut told = Told::default();
    let mut devices = device::Recorded::new(filter);
    let mut builder: Option<StoryBuilder> = None;
    for record in reader {
        let record = record.map_err(|error| AppError::Failed(format!("{}: {error}", path.display())))?;
        match record {
            Record::Meta(meta) => {
                if builder.is_none() {
                    told.meta = Some((*meta).clone());
                    builder = Some(StoryBuilder::new(*meta));
                }
            }
            Record::Event(event) => {
                if let Some(devices) = &mut devices {
                    devices.look(&event);
                }
                let builder = builder.get_or_insert_with(|| {
                    told.nameless = true;
                    StoryBuilder::new(nameless(event.ts_ns))
                });
                if let Some(event) = filter.pass(event) {
                    builder.apply(event);
                }
            }
            other => told.take(other, builder.as_mut()),
        }
    }
    let builder = builder.ok_or_else(|| {
        AppError::Failed(format!(
            "{}: the recording has no readable record; nothing can be told of it",
            path.display()
        ))
    })?;
    let end_ns = builder.now_ns();
    let mut remarks = told.remarks();
    if let Some(devices) = devices {
        remarks.extend(devices.judge(filter, &path.display().to_string())?);
    }
    Ok(builder.finish(end_ns, remarks, |snapshot| filter.shape(snapshot)))
}

/// What stands in for the first record when it is damaged.
fn nameless(started_ns: u64) -> Meta {
    Meta {
        schema_version: meta::SCHEMA_VERSION,
        tool: "uio-trace".into(),
        host: "unknown host".into(),
        kernel: "unknown".into(),
        boot_id: "unknown".into(),
        started: "unknown".into(),
        started_ns,
        probes: Vec::new(),
        rcu: Default::default(),
    }
}

/// What a reader of the report must know of the recording.
#[derive(Debug, Default)]
struct Told {
    meta: Option<Meta>,
    nameless: bool,
    gaps: u64,
    missing: u64,
    cut: bool,
    not_ended: bool,
    unknown: u64,
    marks: Vec<String>,
    more_marks: u64,
}

/// Triggers named one by one.
const MARKS: usize = 5;

impl Told {
    fn take(&mut self, record: Record, builder: Option<&mut StoryBuilder>) {
        match record {
            Record::Mark(mark) => {
                if self.marks.len() >= MARKS {
                    self.more_marks += 1;
                    return;
                }
                let at = self.meta.as_ref().and_then(|meta| {
                    let started = crate::format::parse_rfc3339(&meta.started)?;
                    Some(rfc3339(
                        started.saturating_add(mark.ts_ns).saturating_sub(meta.started_ns),
                    ))
                });
                let at = at.map_or_else(String::new, |at| format!(" at {at}"));
                self.marks
                    .push(format!("trigger '{}'{at}: {}", mark.trigger, mark.found));
            }
            Record::Gap(gap) => {
                match gap.reason {
                    GapReason::NotEnded => self.not_ended = true,
                    GapReason::CutOff => self.cut = true,
                    GapReason::Damaged => self.gaps += 1,
                }
                self.missing = self.missing.saturating_add(gap.missing());
                if let Some(builder) = builder.filter(|_| gap.missing() > 0) {
                    builder.apply(recording::missing(self.missing, builder.now_ns()));
                }
            }
            Record::Unknown { records } => self.unknown = self.unknown.saturating_add(records),
            Record::Meta(_) | Record::Event(_) | Record::End => {}
        }
    }

    fn remarks(self) -> Vec<String> {
        let mut remarks = self.marks;
        if self.more_marks > 0 {
            remarks.push(format!("and {} more triggers", self.more_marks));
        }
        if self.nameless {
            remarks
                .push("the first record of the recording is damaged: host and kernel are not known".into());
        }
        if self.gaps > 0 {
            remarks.push(format!(
                "the recording is damaged in {}: at least {} missing, counts and times are lower bounds",
                crate::format::plural(self.gaps, "place"),
                match self.missing {
                    1 => "1 event is".to_owned(),
                    n => format!("{} events are", crate::format::count(n)),
                }
            ));
        }
        if self.cut {
            remarks.push("the recording is cut off: what came after its last whole frame is missing".into());
        }
        if self.not_ended {
            remarks.push(
                "the recording was not ended: its writer was killed, had no room, or still writes; later events may \
                 be missing"
                    .into(),
            );
        }
        if self.unknown > 0 {
            remarks.push(format!(
                "{} of a later version skipped",
                crate::format::plural(self.unknown, "record")
            ));
        }
        remarks
    }
}

async fn live(config: &ReportConfig, duration: Duration) -> Result<(), AppError> {
    let root = Root::system();
    let mut tracer = Tracer::start(&root, &config.trace)?;
    tracer.give_up_privileges();
    let mut stop = Stop::new()?;
    let mut builder = StoryBuilder::new(meta::meta(&root, tracer.facts(), tracer.probes()));
    say(format_args!(
        "tracing; report in {}, Ctrl-C for it now",
        humantime::format_duration(duration)
    ));
    let ends = Instant::now() + duration;
    let every = (duration / POINTS).clamp(Duration::from_millis(250), Duration::from_secs(60));
    let mut next_read = Instant::now() + every;
    loop {
        tokio::select! {
            biased;
            () = stop.requested() => break,
            () = sleep_until(ends.min(next_read)) => {}
            stepped = tracer.step(|event: Event| builder.apply(event)) => {
                stepped?;
                continue;
            }
        }
        let now = Instant::now();
        if ends <= now {
            break;
        }
        tracer.answer(builder.questions(clock::monotonic_ns()));
        tracer.catch_up(|event| builder.apply(event))?;
        next_read = now + every;
    }
    signals::end_at_once_from_now();
    tracer.answer(builder.questions(clock::monotonic_ns()));
    tracer.catch_up(|event| builder.apply(event))?;
    let shape = |snapshot: &mut Snapshot| tracer.filter().shape(snapshot);
    let story = builder.finish(clock::monotonic_ns(), Vec::new(), shape);
    let delivered = deliver(config, &story);
    say("detaching");
    drop(tracer);
    delivered
}

fn deliver(config: &ReportConfig, story: &Story) -> Result<(), AppError> {
    // The page and the text say it themselves.
    if !matches!(config.form, ReportForm::Text | ReportForm::Html) {
        for remark in &story.remarks {
            say(remark);
        }
    }
    config.target.write(|mut out| match config.form {
        ReportForm::Text => {
            let options = report::text::Options {
                all: config.trace.all,
                ..report::text::Options::from_env()
            };
            out.write_all(report::text::render_story(story, &options).as_bytes())
        }
        ReportForm::Json => {
            report::json::write_meta(&mut out, &story.meta)?;
            report::json::write_snapshot(&mut out, &story.snapshot)
        }
        ReportForm::Html => report::html::write(&mut out, story),
        ReportForm::Perfetto => report::perfetto::write(&mut out, story),
        ReportForm::Folded => report::folded::write(&mut out, story),
    })?;
    if let Some(path) = &config.target.path {
        say(format_args!("written: {}", path.display()));
    }
    Ok(())
}
