//! `top`: the live screens.

use super::{
    meta,
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
        questions::Questions,
        snapshot::{Meta, Snapshot},
    },
    report,
    say::say,
    ui::{self, action::Action, terminal::Screen, update::Effect},
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
    let mut tracer = Tracer::start(&root, &config)?;
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

    /// Looks at what the model asks about; the answers come with the next events.
    fn answer(&mut self, questions: Questions) {
        drop(questions);
    }

    /// Leaves out of a snapshot what was not asked for.
    fn shape(&self, snapshot: &mut Snapshot);
}

impl Live for Tracer {
    fn step(&mut self, sink: impl FnMut(Event)) -> impl Future<Output = Result<(), AppError>> {
        Tracer::step(self, sink)
    }

    fn catch_up(&mut self, sink: impl FnMut(Event)) -> Result<(), AppError> {
        Tracer::catch_up(self, sink)
    }

    fn answer(&mut self, questions: Questions) {
        Tracer::answer(self, questions);
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
    let ended = watch(live, meta, &mut screen, stop).await;
    drop(guard);
    signals::end_at_once_from_now();
    ended
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
    screen: &mut Screen,
    stop: &mut Stop,
) -> Result<(), AppError> {
    let drawing = |e: io::Error| AppError::Failed(format!("drawing on the terminal failed: {e}"));
    let size = screen.size().map_err(drawing)?;
    let mut model = Model::new(model::Config {
        start_ns: Some(meta.started_ns),
    });
    let mut app = ui::App::new(
        meta.clone(),
        ui::state::TerminalFacts::from_env(),
        (size.width, size.height),
    );
    let mut input = input();
    let mut refresh = interval(REFRESH);
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
                        Effect::Repaint => screen.clear().map_err(drawing)?,
                        Effect::WriteSnapshot(snapshot) => {
                            let message = match write_snapshot(&meta, &snapshot) {
                                Ok(path) => format!("written: {}", path.display()),
                                Err(error) => format!("snapshot not written: {error}"),
                            };
                            app.set_message(message);
                        }
                    }
                }
            }
            _ = refresh.tick() => {
                live.answer(model.questions(clock::monotonic_ns()));
                live.catch_up(|event| model.apply(event))?;
                let mut snapshot = model.snapshot(Scope::SinceStart);
                live.shape(&mut snapshot);
                app.on_snapshot(snapshot);
                app.set_own_cost(cost.share());
            }
            () = sleep(due.unwrap_or(Duration::MAX / 4)), if due.is_some() => {
                let size = screen.size().map_err(drawing)?;
                if (size.width, size.height) != app.state().size {
                    app.apply(Action::Resize(size.width, size.height));
                }
                screen.draw(|frame| app.draw(frame)).map_err(drawing)?;
                app.drawn(Instant::now());
            }
            stepped = live.step(|event| model.apply(event)) => stepped?,
        }
    }
}

/// A JSON snapshot in the current folder, owned by whoever called sudo.
fn write_snapshot(meta: &Meta, snapshot: &model::snapshot::Snapshot) -> io::Result<PathBuf> {
    let path = PathBuf::from(format!(
        "uio-trace-{}-{}.json",
        meta.host.replace('/', "_"),
        meta::rfc3339_now().replace(':', "")
    ));
    // Never through a link or over a file that is there: this may run as root in a folder others write to.
    let mut file = File::options().write(true).create_new(true).open(&path)?;
    let owner = |name: &str| std::env::var(name).ok().and_then(|id| id.parse::<u32>().ok());
    if let (Some(uid), Some(gid)) = (owner("SUDO_UID"), owner("SUDO_GID")) {
        std::os::unix::fs::fchown(&file, Some(uid), Some(gid))?;
    }
    report::json::write_meta(&mut file, meta)?;
    report::json::write_snapshot(&mut file, snapshot)?;
    file.flush()?;
    Ok(path)
}

/// CPU time of this process as a share of wall time. The programs' own time in the kernel is not part of it.
#[derive(Default)]
struct OwnCost {
    last: Option<(u64, u64)>,
}

impl OwnCost {
    fn share(&mut self) -> Option<f64> {
        let mut usage = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `usage` is a valid timespec for the call to fill; the clock always exists.
        if unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut usage) } != 0 {
            return None;
        }
        let cpu = usage.tv_sec as u64 * 1_000_000_000 + usage.tv_nsec as u64;
        let wall = clock::monotonic_ns();
        let (last_cpu, last_wall) = self.last.replace((cpu, wall))?;
        Some((cpu - last_cpu) as f64 / (wall - last_wall).max(1) as f64)
    }
}
