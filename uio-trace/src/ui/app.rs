//! The interface as one value: input and snapshots go in, effects and frames come out.
//!
//! A driver loops over:
//! ```text
//! select {
//!     event    = terminal input            => for effect in app.on_input(event) { carry out }
//!     snapshot = model                     => app.on_snapshot(snapshot)
//!     _        = sleep(app.redraw_in(now)) => { terminal.draw(|f| app.draw(f)); app.drawn(now) }
//! }
//! ```

use super::action::Action;
use super::keymap;
use super::state::{State, TerminalFacts, Timeline};
use super::update::{self, Effect};
use super::view;
use crate::model::snapshot::{Meta, Snapshot};
use ratatui::Frame;
use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind};
use std::time::{Duration, Instant};

/// Least time between two frames: ten a second are enough for eyes, and the tool runs beside what it watches.
const FRAME_TIME: Duration = Duration::from_millis(100);

/// The interface.
#[derive(Debug)]
pub struct App {
    state: State,
    /// Something changed since the last frame.
    changed: bool,
    last_frame: Option<Instant>,
}

impl App {
    /// An interface without figures yet, for a terminal of `size` (columns, rows).
    pub fn new(meta: Meta, facts: TerminalFacts, size: (u16, u16)) -> App {
        App {
            state: State::new(meta, facts, size),
            changed: true,
            last_frame: None,
        }
    }

    /// Takes terminal input. The effects are the caller's to carry out.
    pub fn on_input(&mut self, event: Event) -> Vec<Effect> {
        let action = match event {
            // What terminals send for Alt is Esc and the key, and for Esc and a key hit soon after it the same.
            Event::Key(key) if key.kind != KeyEventKind::Release && key.modifiers == KeyModifiers::ALT => {
                let mut effects = self.on_input(Event::Key(KeyCode::Esc.into()));
                effects.extend(self.on_input(Event::Key(key.code.into())));
                return effects;
            }
            Event::Key(key) if key.kind != KeyEventKind::Release => keymap::lookup(&self.state, &key),
            Event::Resize(columns, rows) => Some(Action::Resize(columns, rows)),
            Event::Mouse(mouse) => match mouse.kind {
                MouseEventKind::Down(MouseButton::Left) => Some(Action::Click(mouse.column, mouse.row)),
                MouseEventKind::ScrollUp => Some(Action::Wheel(-1)),
                MouseEventKind::ScrollDown => Some(Action::Wheel(1)),
                _ => None,
            },
            _ => None,
        };
        match action {
            Some(action) => self.apply(action),
            None => Vec::new(),
        }
    }

    /// Applies an action, wherever it comes from.
    pub fn apply(&mut self, action: Action) -> Vec<Effect> {
        self.changed = true;
        update::update(&mut self.state, action)
    }

    /// Takes a new snapshot.
    pub fn on_snapshot(&mut self, snapshot: Snapshot) {
        self.changed = true;
        update::receive(&mut self.state, snapshot);
    }

    /// Shows a line until the next key: where a file was written, why something failed.
    pub fn set_message(&mut self, message: impl Into<String>) {
        self.changed = true;
        self.state.message = Some(message.into());
    }

    /// Tells what the tool costs, as a share of one CPU.
    pub fn set_own_cost(&mut self, share: Option<f64>) {
        if self.state.own_cost != share {
            self.changed = true;
            self.state.own_cost = share;
        }
    }

    /// Tells how much memory the tool holds, bytes.
    pub fn set_own_memory(&mut self, bytes: Option<u64>) {
        if self.state.own_memory != bytes {
            self.changed = true;
            self.state.own_memory = bytes;
        }
    }

    /// Tells how large the recording is that is written, in words.
    pub fn set_recording(&mut self, size: Option<String>) {
        if self.state.recording != size {
            self.changed = true;
            self.state.recording = size;
        }
    }

    /// Tells where a replay is.
    pub fn set_timeline(&mut self, timeline: Option<Timeline>) {
        if self.state.timeline != timeline {
            self.changed = true;
            self.state.timeline = timeline;
        }
    }

    /// Whether the screen is out of date.
    pub fn needs_redraw(&self) -> bool {
        self.changed
    }

    /// Time until a frame is due; `None`: nothing changed. Keeps to ten frames a second.
    pub fn redraw_in(&self, now: Instant) -> Option<Duration> {
        let since = self
            .last_frame
            .map_or(FRAME_TIME, |last| now.saturating_duration_since(last));
        self.changed.then(|| FRAME_TIME.saturating_sub(since))
    }

    /// Draws. Changes nothing: two frames of the same state are the same.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        view::draw(&self.state, frame.buffer_mut());
    }

    /// Notes that a frame was drawn.
    pub fn drawn(&mut self, now: Instant) {
        self.changed = false;
        self.last_frame = Some(now);
    }

    /// The state, to look at.
    pub fn state(&self) -> &State {
        &self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app() -> App {
        let meta = Meta {
            schema_version: 1,
            tool: "uio-trace".into(),
            host: "host".into(),
            kernel: "6.1".into(),
            boot_id: String::new(),
            started: "2025-01-01T00:00:00Z".into(),
            started_ns: 0,
            probes: Vec::new(),
            rcu: Default::default(),
        };
        App::new(
            meta,
            TerminalFacts {
                colour: true,
                unicode: true,
                dumb: false,
            },
            (80, 24),
        )
    }

    #[test]
    fn draws_at_most_ten_times_a_second_and_not_without_a_change() {
        let mut app = app();
        let start = Instant::now();
        assert_eq!(app.redraw_in(start), Some(Duration::ZERO));
        app.drawn(start);
        assert_eq!(app.redraw_in(start), None);
        app.set_message("changed");
        assert_eq!(
            app.redraw_in(start + Duration::from_millis(30)),
            Some(Duration::from_millis(70))
        );
        assert_eq!(
            app.redraw_in(start + Duration::from_secs(1)),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn the_same_cost_changes_nothing() {
        let mut app = app();
        app.set_own_cost(Some(0.5));
        app.drawn(Instant::now());
        app.set_own_cost(Some(0.5));
        assert!(!app.needs_redraw());
    }
}
