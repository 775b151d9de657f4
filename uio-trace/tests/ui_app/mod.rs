//! The screens over the made-up snapshot, with keys pressed.
#![allow(dead_code, reason = "each user of this module takes a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot draw has failed")]

use crate::ui_fixture;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use uio_trace::ui::keymap::Key;
use uio_trace::ui::{App, Effect, TerminalFacts};

pub const FACTS: TerminalFacts = TerminalFacts {
    colour: true,
    unicode: true,
    dumb: false,
};
pub const SIZE: (u16, u16) = (80, 24);

pub fn app() -> App {
    let mut app = App::new(ui_fixture::meta(), FACTS, SIZE);
    app.on_snapshot(ui_fixture::rich());
    app
}

pub fn event(key: Key) -> Event {
    Event::Key(match key {
        Key::Char(c) => KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE),
        Key::Ctrl(c) => KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL),
        Key::Code(code) => KeyEvent::new(code, KeyModifiers::NONE),
    })
}

pub fn press(app: &mut App, keys: &str) -> Vec<Effect> {
    keys.chars()
        .flat_map(|c| {
            let key = match c {
                '\n' => Key::Code(KeyCode::Enter),
                '\x1b' => Key::Code(KeyCode::Esc),
                '\t' => Key::Code(KeyCode::Tab),
                '\x08' => Key::Code(KeyCode::Backspace),
                '↓' => Key::Code(KeyCode::Down),
                '↑' => Key::Code(KeyCode::Up),
                c => Key::Char(c),
            };
            app.on_input(event(key))
        })
        .collect()
}

pub fn shown(app: &App) -> String {
    let mut terminal = Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    terminal.backend().to_string()
}
