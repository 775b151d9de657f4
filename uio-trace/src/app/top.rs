//! `top`: the live screens.

use super::{
    meta,
    own_cost::{self, OwnCost},
    owned_file,
    record::LiveRecording,
    signals::{self, Stop},
    tracer::Tracer,
};
use crate::{
    config::TraceConfig,
    error::AppError,
    event::Event,
    ingest::clock,
    kernel::Root,
    model::{
        self, Model, Scope,
        snapshot::{Meta, Snapshot},
    },
    report,
    say::{passed, passing, say},
    ui::{
        self,
        action::{Action, Control},
        state::Timeline,
        terminal::Screen,
        update::Effect,
    },
};
use ratatui::crossterm::event as input_event;
use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    mem::ManuallyDrop,
    path::PathBuf,
    time::{Duration, Instant},
};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval, sleep},
};

/// How often figures are renewed.
const REFRESH: Duration = Duration::from_secs(1);

/// Runs until the user quits or a signal asks for it.
///
/// # Errors
/// What ended it other than well; without a terminal, usage.
pub async fn run(config: TraceConfig) -> Result<(), AppError> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(AppError::Usage(
            "top needs a terminal for input and output; use: uio-trace hist (text) or uio-trace hist --json"
                .into(),
        ));
    }
    if ui::TerminalFacts::from_env().dumb {
        let term = match std::env::var("TERM") {
            Ok(term) => format!("TERM={term}"),
            Err(_) => "TERM is not set".into(),
        };
        return Err(AppError::Usage(format!(
            "this terminal ({term}) cannot show screens; use: uio-trace hist 1"
        )));
    }
    let root = Root::system();
    passing("reading what this kernel allows");
    let started = Tracer::start(
        &root,
        &TraceConfig {
            screens: true,
            ..config.clone()
        },
    );
    passed();
    let mut tracer = started?;
    tracer.give_up_privileges();
    // Not before: until the terminal is taken over, a signal ends the process at once, which detaches everything.
    let mut stop = Stop::new()?;
    let meta = meta::meta(&root, tracer.facts(), tracer.probes());
    let ended = show(&mut tracer, meta, &mut stop).await;
    say("detaching");
    drop(tracer);
    ended
}

/// What the screens show: the running trace, or a made-up one where the screens are the subject.
pub trait Live {
    /// Waits for the next thing to happen and hands its events over. Cancel-safe.
    fn step(&mut self, sink: impl FnMut(Event)) -> impl Future<Output = Result<(), AppError>>;

    /// Hands over everything that is there now. Before a snapshot.
    ///
    /// # Errors
    /// When it cannot be read any more.
    fn catch_up(&mut self, sink: impl FnMut(Event)) -> Result<(), AppError>;

    /// Looks at what the model asks about; the answers come with the next events. A recording has no more to tell.
    fn ask(&mut self, _model: &mut Model) {}

    /// Whatever needs more privileges than a running trace has been done.
    fn give_up_privileges(&self) {}

    /// Begins or ends to count what the programs in the kernel cost. What to tell the user.
    fn toggle_costs(&mut self) -> String {
        "nothing runs in the kernel here".into()
    }

    /// Leaves out of a snapshot what was not asked for.
    fn shape(&self, snapshot: &mut Snapshot);

    /// How often figures are renewed.
    fn refresh(&self) -> Duration {
        REFRESH
    }

    /// The time line of a recording; a running trace has none.
    fn timeline(&self) -> Option<Timeline> {
        None
    }

    /// Carries out what a key of the time line asks for; going back sets the model back.
    ///
    /// # Errors
    /// When the recording cannot be read.
    fn control(&mut self, _control: Control, _model: &mut Model) -> Result<(), AppError> {
        Ok(())
    }

    /// Sees the model after all that [`Live::catch_up`] has handed over.
    fn caught_up(&mut self, _model: &Model) {}
}

impl Live for Tracer {
    fn step(&mut self, sink: impl FnMut(Event)) -> impl Future<Output = Result<(), AppError>> {
        Tracer::step(self, sink)
    }

    fn catch_up(&mut self, sink: impl FnMut(Event)) -> Result<(), AppError> {
        Tracer::catch_up(self, sink)
    }

    fn ask(&mut self, model: &mut Model) {
        Tracer::answer(self, model.questions(clock::monotonic_ns()));
    }

    fn give_up_privileges(&self) {
        Tracer::give_up_privileges(self);
    }

    fn toggle_costs(&mut self) -> String {
        let on = !self.counts_costs();
        match self.count_costs(on) {
            Err(reason) => reason,
            Ok(()) if on => "counting what the programs cost, until c is pressed again or the end".into(),
            Ok(()) => "what the programs cost is counted no longer".into(),
        }
    }

    fn shape(&self, snapshot: &mut Snapshot) {
        self.filter().shape(snapshot);
    }
}

/// Takes the terminal over, shows what is live until the user quits or a signal asks for it, and gives the terminal back.
/// Afterwards such a signal ends the process at once.
///
/// # Errors
/// When terminal or trace fail.
pub async fn show(live: &mut impl Live, meta: Meta, stop: &mut Stop) -> Result<(), AppError> {
    let (guard, screen) = ui::terminal::Guard::enter()
        .map_err(|e| AppError::Failed(format!("the terminal could not be taken over: {e}")))?;
    // Never dropped: ratatui's drop shows the cursor, which the guard does, and panics when the terminal is gone.
    let mut screen = ManuallyDrop::new(screen);
    let mut seen = Seen {
        model: Model::new(model::Config::of(&meta)),
        recording: live
            .timeline()
            .is_none()
            .then(|| LiveRecording::new(meta.clone())),
    };
    let ended = watch(live, meta, &mut seen, &mut screen, stop).await;
    let recorded = seen.recording.as_mut().and_then(LiveRecording::end);
    drop(guard);
    signals::end_at_once_from_now();
    if let Some(told) = recorded {
        say(told);
    }
    ended
}

/// Who is told of an event.
struct Seen {
    model: Model,
    /// `None`: what is shown is a recording.
    recording: Option<LiveRecording>,
}

impl Seen {
    fn take(&mut self, event: Event) {
        if let Some(recording) = &mut self.recording {
            recording.event(&event);
        }
        self.model.apply(event);
    }
}

/// Terminal input, read by a thread of its own: reading blocks.
fn input() -> mpsc::UnboundedReceiver<input_event::Event> {
    let (send, receive) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = input_event::read() {
            if send.send(event).is_err() {
                return;
            }
        }
    });
    receive
}

async fn watch(
    live: &mut impl Live,
    meta: Meta,
    seen: &mut Seen,
    screen: &mut Screen,
    stop: &mut Stop,
) -> Result<(), AppError> {
    let drawing = |e: io::Error| AppError::Failed(format!("drawing on the terminal failed: {e}"));
    let size = screen.size().map_err(drawing)?;
    let mut app = ui::App::new(
        meta.clone(),
        ui::state::TerminalFacts::from_env(),
        (size.width, size.height),
    );
    let mut input = input();
    let mut refresh = interval(live.refresh());
    refresh.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut cost = OwnCost::default();
    loop {
        let due = app.redraw_in(Instant::now());
        tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            event = input.recv() => {
                let Some(event) = event else {
                    return Err(AppError::Failed("the terminal is gone".into()));
                };
                for effect in app.on_input(event) {
                    match effect {
                        Effect::Quit => return Ok(()),
                        Effect::Repaint => ui::terminal::repaint(screen).map_err(drawing)?,
                        Effect::Mouse(on) => ui::terminal::mouse(on).map_err(drawing)?,
                        Effect::WriteSnapshot(snapshot) => {
                            let message = match write_snapshot(&meta, &snapshot) {
                                Ok(path) => format!("written: {}", path.display()),
                                Err(error) => format!("snapshot not written: {error}"),
                            };
                            app.set_message(message);
                        }
                        Effect::Record => {
                            if let Some(recording) = &mut seen.recording {
                                app.set_message(recording.toggle());
                                app.set_recording(recording.shown());
                            }
                        }
                        Effect::CountCosts => {
                            app.set_message(live.toggle_costs());
                            refresh.reset_immediately();
                        }
                        Effect::Control(control) => {
                            live.control(control, &mut seen.model)?;
                            refresh.reset_immediately();
                        }
                    }
                }
            }
            _ = refresh.tick() => {
                live.ask(&mut seen.model);
                live.catch_up(|event| seen.take(event))?;
                live.caught_up(&seen.model);
                if let Some(recording) = &mut seen.recording {
                    if let Some(told) = recording.tick() {
                        app.set_message(told);
                    }
                    app.set_recording(recording.shown());
                }
                let mut snapshot = seen.model.snapshot(Scope::SinceStart);
                live.shape(&mut snapshot);
                app.on_snapshot(snapshot);
                let timeline = live.timeline();
                // What replaying costs says nothing about the traced host.
                app.set_own_cost(cost.share().filter(|_| timeline.is_none()));
                app.set_own_memory(own_cost::resident_bytes().filter(|_| timeline.is_none()));
                app.set_timeline(timeline);
            }
            () = sleep(due.unwrap_or(Duration::MAX / 4)), if due.is_some() => {
                let size = screen.size().map_err(drawing)?;
                if (size.width, size.height) != app.state().size {
                    app.apply(Action::Resize(size.width, size.height));
                }
                screen.draw(|frame| app.draw(frame)).map_err(drawing)?;
                app.drawn(Instant::now());
            }
            stepped = live.step(|event| seen.take(event)) => stepped?,
        }
    }
}

/// A JSON snapshot in the current folder, owned by whoever called sudo.
fn write_snapshot(meta: &Meta, snapshot: &Snapshot) -> io::Result<PathBuf> {
    let path = PathBuf::from(format!(
        "uio-trace-{}-{}.json",
        meta.host.replace('/', "_"),
        meta::rfc3339_now().replace(':', "")
    ));
    let mut file = owned_file::create_new(&path)?;
    let written = fill(&mut file, meta, snapshot);
    if written.is_err() {
        // Half a snapshot must not be taken for a whole one.
        let _ = std::fs::remove_file(&path);
    }
    written.map(|()| path)
}

fn fill(file: &mut File, meta: &Meta, snapshot: &Snapshot) -> io::Result<()> {
    let mut out = io::BufWriter::new(file);
    report::json::write_meta(&mut out, meta)?;
    report::json::write_snapshot(&mut out, snapshot)?;
    out.flush()
}
