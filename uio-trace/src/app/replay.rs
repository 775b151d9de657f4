//! `replay`: the screens of `top` over a recording, with its time.
//!
//! Events go to the model in the order of the file, as far as the replay's clock has come. Now and then the model is
//! kept with the place in the file it stands for; going back takes the last one before, and reads on from there.

use super::{
    filter::Filter,
    signals::Stop,
    top::{self, Live},
};
use crate::{
    cli::ReplayArgs,
    config::TraceConfig,
    error::AppError,
    event::{Event, MonotonicNs},
    model::{
        self, Model,
        snapshot::{Meta, Snapshot},
    },
    recording::{self, GapReason, Place, Reader, Record, RecordingError},
    ui::{self, action::Control, state::Timeline},
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{IsTerminal, Seek, SeekFrom},
    path::PathBuf,
    time::{Duration, Instant},
};

/// How often the screens follow the clock.
const REFRESH: Duration = Duration::from_millis(200);
/// Longest stretch of reading between two looks at the keys.
const READ_MAX: Duration = Duration::from_millis(150);
/// Speeds, in the order of the keys.
const SPEEDS: [f64; 10] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
/// Index of 1x.
const NORMAL: usize = 3;
/// A step of the small keys.
const STEP_NS: u64 = 10_000_000_000;
/// Models kept to go back to.
const KEPT: u64 = 32;

/// Shows a recording until the user quits.
///
/// # Errors
/// Usage without a terminal; a file that is no recording; what ended it other than well.
pub async fn run(args: &ReplayArgs) -> Result<(), AppError> {
    let mut replay = Replay::open(args.file.clone(), args.all)?;
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(AppError::Usage(
            "replay needs a terminal for input and output: run it on one, without pipes".into(),
        ));
    }
    if ui::TerminalFacts::from_env().dumb {
        return Err(AppError::Usage(
            "this terminal cannot show screens (TERM is dumb or not set): use another one".into(),
        ));
    }
    let mut stop = Stop::new()?;
    let meta = replay.meta().clone();
    top::show(&mut replay, meta, &mut stop).await
}

/// A model and where in the recording it stands.
#[derive(Debug)]
struct Kept {
    at_ns: MonotonicNs,
    place: Place,
    model: Model,
}

/// A recording that is being replayed.
#[derive(Debug)]
pub struct Replay {
    path: PathBuf,
    meta: Meta,
    reader: Reader<File>,
    /// Read but not yet due, and the place before it.
    pending: Option<Event>,
    place: Place,
    /// The latest time handed over.
    reached_ns: MonotonicNs,
    first_ns: MonotonicNs,
    last_ns: MonotonicNs,
    over: bool,
    clock: Clock,
    /// The clock's time is not reached yet: it waits until it is read.
    behind: bool,
    kept: Vec<Kept>,
    /// What is missing, by its offset in the file: going back meets it again.
    gaps: BTreeMap<u64, u64>,
    unknown: BTreeMap<(u64, usize), u64>,
    not_ended: bool,
    filter: Filter,
}

/// The replay's time.
#[derive(Debug)]
struct Clock {
    speed: usize,
    paused: bool,
    /// Recorded time at `since`.
    at_ns: MonotonicNs,
    since: Instant,
}

impl Clock {
    fn now_ns(&self, now: Instant) -> MonotonicNs {
        if self.paused {
            return self.at_ns;
        }
        let real = now.saturating_duration_since(self.since).as_nanos() as f64;
        self.at_ns.saturating_add((real * SPEEDS[self.speed]) as u64)
    }

    fn set(&mut self, at_ns: MonotonicNs, now: Instant) {
        (self.at_ns, self.since) = (at_ns, now);
    }
}

fn failed(path: &std::path::Path, error: RecordingError) -> AppError {
    match error {
        RecordingError::Open { .. } => AppError::Failed(error.to_string()),
        _ => AppError::Failed(format!("{}: {error}", path.display())),
    }
}

impl Replay {
    /// Opens a recording; `all` shows the recording tool's own refs, too.
    ///
    /// # Errors
    /// It cannot be opened, or is no recording.
    pub fn open(path: PathBuf, all: bool) -> Result<Replay, AppError> {
        let fail = |error| failed(&path, error);
        let mut reader = recording::read(&path).map_err(fail)?;
        let extent = recording::extent(&path).map_err(fail)?;
        let mut meta = None;
        let mut place = reader.place();
        while meta.is_none() {
            match reader.next().transpose().map_err(fail)? {
                Some(Record::Meta(found)) => meta = Some(*found),
                Some(Record::Event(_)) | None => break,
                Some(_) => {}
            }
            place = reader.place();
        }
        let known = meta.is_some();
        // The frame with it is damaged or cut off: the events say enough.
        let meta = meta.unwrap_or_else(|| Meta {
            schema_version: 1,
            tool: "unknown".into(),
            host: "unknown host".into(),
            kernel: "unknown kernel".into(),
            boot_id: "unknown".into(),
            started: "unknown".into(),
            started_ns: extent.first_ns,
            probes: Vec::new(),
            rcu: BTreeMap::new(),
        });
        let first_ns = meta.started_ns;
        let mut replay = Replay {
            reader,
            pending: None,
            place,
            reached_ns: first_ns,
            first_ns,
            last_ns: extent.last_ns.max(first_ns),
            over: false,
            clock: Clock {
                speed: NORMAL,
                paused: false,
                at_ns: first_ns,
                since: Instant::now(),
            },
            behind: false,
            kept: Vec::new(),
            gaps: BTreeMap::new(),
            unknown: BTreeMap::new(),
            not_ended: false,
            filter: Filter::new(&TraceConfig {
                all,
                ..TraceConfig::default()
            }),
            path,
            meta,
        };
        if !known {
            replay.reopen(Place::begin())?;
        }
        let begin = Kept {
            at_ns: first_ns,
            place: replay.place,
            model: Model::new(model::Config::of(&replay.meta)),
        };
        replay.kept.push(begin);
        Ok(replay)
    }

    /// Host, kernel and begin.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    fn reopen(&mut self, place: Place) -> Result<(), AppError> {
        let open = |cause| RecordingError::Open {
            path: self.path.clone(),
            cause,
        };
        let reader = File::open(&self.path)
            .and_then(|mut file| file.seek(SeekFrom::Start(place.offset())).map(|_| file))
            .map_err(open)
            .and_then(|file| Reader::resume(file, place));
        self.reader = reader.map_err(|error| failed(&self.path, error))?;
        (self.place, self.pending, self.over) = (place, None, false);
        // Those behind the place will be met and told again.
        self.gaps.split_off(&place.after_begin());
        Ok(())
    }

    /// The next event, without taking it.
    fn peek(&mut self) -> Result<Option<&Event>, AppError> {
        while self.pending.is_none() && !self.over {
            let place = self.reader.place();
            let record = self.reader.next().transpose();
            match record.map_err(|error| failed(&self.path, error))? {
                None => self.over = true,
                Some(Record::Event(event)) => {
                    (self.place, self.pending) = (place, Some(event));
                }
                Some(Record::Gap(gap)) => {
                    self.not_ended |= gap.reason != GapReason::Damaged;
                    if gap.missing() > 0 && self.gaps.insert(gap.offset, gap.missing()).is_none() {
                        (self.place, self.pending) = (place, Some(self.missing()));
                    }
                }
                Some(Record::Unknown { records }) => {
                    self.unknown.insert(place.key(), records);
                }
                Some(Record::Meta(_) | Record::Mark(_) | Record::End) => {}
            }
        }
        Ok(self.pending.as_ref())
    }

    /// Tells the model of all that is missing up to here.
    fn missing(&self) -> Event {
        recording::missing(self.gaps.values().sum(), self.reached_ns)
    }

    /// Hands over what is due, or as much of it as can be read in the time there is.
    fn advance(
        &mut self,
        to_ns: MonotonicNs,
        time: Duration,
        mut sink: impl FnMut(Event),
    ) -> Result<(), AppError> {
        let begin = Instant::now();
        let mut handed = 0_u32;
        while self.peek()?.is_some_and(|event| event.ts_ns <= to_ns) {
            if let Some(event) = self.pending.take() {
                self.place = self.reader.place();
                self.reached_ns = self.reached_ns.max(event.ts_ns);
                sink(event);
            }
            handed = handed.wrapping_add(1);
            if handed.is_multiple_of(256) && begin.elapsed() > time {
                break;
            }
        }
        Ok(())
    }

    /// Goes to a time.
    fn seek(&mut self, to_ns: MonotonicNs, model: &mut Model) -> Result<(), AppError> {
        let to_ns = to_ns.clamp(self.first_ns, self.last_ns);
        if to_ns < self.reached_ns {
            let before = self.kept.iter().rev().find(|kept| kept.at_ns <= to_ns);
            if let Some(kept) = before.or(self.kept.first()) {
                *model = kept.model.clone();
                self.reached_ns = kept.at_ns;
                let place = kept.place;
                self.reopen(place)?;
            }
        }
        self.clock.set(to_ns, Instant::now());
        Ok(())
    }
}

impl Live for Replay {
    async fn step(&mut self, _sink: impl FnMut(Event)) -> Result<(), AppError> {
        // Time alone moves a replay on, and `catch_up` looks at it.
        std::future::pending().await
    }

    fn catch_up(&mut self, sink: impl FnMut(Event)) -> Result<(), AppError> {
        let due_ns = if self.behind {
            self.clock.at_ns
        } else {
            self.clock.now_ns(Instant::now())
        };
        self.advance(due_ns, READ_MAX, sink)?;
        let behind = self.pending.as_ref().is_some_and(|event| event.ts_ns <= due_ns);
        // It goes no faster than it can be read: the time for that does not count.
        if behind || self.behind {
            self.clock.set(due_ns, Instant::now());
        } else if self.over {
            self.clock.set(due_ns.min(self.last_ns), Instant::now());
        }
        self.behind = behind;
        Ok(())
    }

    fn shape(&self, snapshot: &mut Snapshot) {
        self.filter.shape(snapshot);
    }

    fn refresh(&self) -> Duration {
        REFRESH
    }

    fn timeline(&self) -> Option<Timeline> {
        let since = |ns: MonotonicNs| ns.saturating_sub(self.first_ns);
        let reading = self
            .pending
            .as_ref()
            .is_some_and(|event| event.ts_ns <= self.clock.at_ns);
        let position_ns = if reading {
            self.reached_ns
        } else {
            self.clock.now_ns(Instant::now())
        };
        let unknown: u64 = self.unknown.values().sum();
        let missing: u64 = self.gaps.values().sum();
        let mut notes = Vec::new();
        if self.over {
            notes.push(if self.not_ended {
                "end, cut off".to_owned()
            } else {
                "end".to_owned()
            });
        }
        if missing > 0 {
            notes.push(format!("{missing} or more missing"));
        }
        if unknown > 0 {
            notes.push(format!("{unknown} not known"));
        }
        Some(Timeline {
            position_ns: since(position_ns.min(self.last_ns)),
            length_ns: since(self.last_ns),
            paused: self.clock.paused,
            speed: SPEEDS[self.clock.speed],
            note: notes.join(", "),
        })
    }

    fn control(&mut self, control: Control, model: &mut Model) -> Result<(), AppError> {
        let now = Instant::now();
        let at_ns = self.clock.now_ns(now).min(self.last_ns);
        let tenth = (self.last_ns - self.first_ns) / 10;
        match control {
            Control::Pause => {
                // At the end there is nothing to go on with but the begin.
                if self.over && at_ns >= self.last_ns {
                    self.seek(self.first_ns, model)?;
                    self.clock.paused = false;
                } else {
                    self.clock.set(at_ns, now);
                    self.clock.paused = !self.clock.paused;
                }
            }
            Control::Slower | Control::Faster => {
                self.clock.set(at_ns, now);
                self.clock.speed = match control {
                    Control::Slower => self.clock.speed.saturating_sub(1),
                    _ => (self.clock.speed + 1).min(SPEEDS.len() - 1),
                };
            }
            Control::Back => self.seek(at_ns.saturating_sub(STEP_NS), model)?,
            Control::Forward => self.seek(at_ns.saturating_add(STEP_NS), model)?,
            Control::FarBack => self.seek(at_ns.saturating_sub(tenth), model)?,
            Control::FarForward => self.seek(at_ns.saturating_add(tenth), model)?,
        }
        Ok(())
    }

    fn caught_up(&mut self, model: &Model) {
        let apart = ((self.last_ns - self.first_ns) / KEPT).max(1);
        let last = self.kept.last().map_or(0, |kept| kept.at_ns);
        if self.reached_ns >= last.saturating_add(apart) {
            self.kept.push(Kept {
                at_ns: self.reached_ns,
                place: self.place,
                model: model.clone(),
            });
        }
    }
}
