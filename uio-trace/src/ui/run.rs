//! A loop that drives an [`App`] without an async runtime: for recordings, demonstrations and tests. Terminal, input
//! and source of snapshots are parameters.

use super::app::App;
use super::terminal::repaint;
use super::update::Effect;
use crate::model::snapshot::Snapshot;
use ratatui::Terminal;
use ratatui::backend::Backend;
use ratatui::crossterm::event::{self, Event};
use std::io;
use std::time::{Duration, Instant};

/// Where input comes from.
pub trait Input {
    /// The next event, after at most `patience`.
    fn next(&mut self, patience: Duration) -> io::Result<Option<Event>>;
}

/// The terminal's own input.
#[derive(Debug, Default)]
pub struct TerminalInput;

impl Input for TerminalInput {
    fn next(&mut self, patience: Duration) -> io::Result<Option<Event>> {
        if event::poll(patience)? {
            event::read().map(Some)
        } else {
            Ok(None)
        }
    }
}

/// Where snapshots come from.
pub trait Source {
    /// A new one, if there is one. Does not block.
    fn poll(&mut self) -> Option<Snapshot>;
}

/// What carries out effects other than quitting; returns a line to show.
pub trait Executor {
    /// Carries one out.
    fn carry_out(&mut self, effect: Effect) -> Option<String>;
}

/// How long to wait for a key when nothing is to be drawn.
const PATIENCE: Duration = Duration::from_millis(100);

/// Runs until the user quits.
pub fn run<B>(
    app: &mut App,
    terminal: &mut Terminal<B>,
    input: &mut impl Input,
    source: &mut impl Source,
    executor: &mut impl Executor,
) -> io::Result<()>
where
    B: Backend,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    run_by(app, terminal, input, source, executor, Instant::now)
}

/// The same by a clock of the caller's.
pub fn run_by<B>(
    app: &mut App,
    terminal: &mut Terminal<B>,
    input: &mut impl Input,
    source: &mut impl Source,
    executor: &mut impl Executor,
    clock: impl Fn() -> Instant,
) -> io::Result<()>
where
    B: Backend,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    loop {
        if let Some(snapshot) = source.poll() {
            app.on_snapshot(snapshot);
        }
        let now = clock();
        let due = app.redraw_in(now);
        if due.is_some_and(|due| due.is_zero()) {
            terminal.draw(|frame| app.draw(frame)).map_err(io::Error::other)?;
            app.drawn(now);
        }
        let Some(event) = input.next(due.filter(|d| !d.is_zero()).unwrap_or(PATIENCE))? else {
            continue;
        };
        for effect in app.on_input(event) {
            match effect {
                Effect::Quit => return Ok(()),
                Effect::Repaint => repaint(terminal).map_err(io::Error::other)?,
                other => {
                    if let Some(message) = executor.carry_out(other) {
                        app.set_message(message);
                    }
                }
            }
        }
    }
}
