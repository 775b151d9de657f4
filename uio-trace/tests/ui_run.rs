//! Every key of every screen through the run loop: a made-up terminal, input and clock; the buffer is what is judged.
#![allow(clippy::unwrap_used, reason = "a test that cannot draw has failed")]

mod ui_fixture;

use ratatui::Terminal;
use ratatui::backend::{Backend, ClearType, TestBackend, WindowSize};
use ratatui::buffer::{Buffer, Cell};
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Position, Size};
use ratatui::style::Modifier;
use std::cell::{Cell as Shared, RefCell};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};
use uio_trace::model::snapshot::Snapshot;
use uio_trace::ui::action::Action;
use uio_trace::ui::keymap::{Binding, KEYMAP, Key, Place};
use uio_trace::ui::run::{Executor, Input, Source, run_by};
use uio_trace::ui::state::Screen;
use uio_trace::ui::{App, Effect, TerminalFacts};

const FACTS: TerminalFacts = TerminalFacts {
    colour: true,
    unicode: true,
    dumb: false,
};
const SIZE: (u16, u16) = (100, 30);

/// A terminal that the test looks at while the loop draws on it.
#[derive(Clone)]
struct Seen(Rc<RefCell<TestBackend>>, Rc<Shared<u32>>);

impl Seen {
    fn buffer(&self) -> Buffer {
        self.0.borrow().buffer().clone()
    }
}

impl Backend for Seen {
    type Error = <TestBackend as Backend>::Error;

    fn draw<'a, I>(&mut self, content: I) -> Result<(), Self::Error>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        self.0.borrow_mut().draw(content)
    }
    fn hide_cursor(&mut self) -> Result<(), Self::Error> {
        self.0.borrow_mut().hide_cursor()
    }
    fn show_cursor(&mut self) -> Result<(), Self::Error> {
        self.0.borrow_mut().show_cursor()
    }
    fn get_cursor_position(&mut self) -> Result<Position, Self::Error> {
        self.0.borrow_mut().get_cursor_position()
    }
    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> Result<(), Self::Error> {
        self.0.borrow_mut().set_cursor_position(position)
    }
    fn clear(&mut self) -> Result<(), Self::Error> {
        self.0.borrow_mut().clear()
    }
    fn clear_region(&mut self, clear_type: ClearType) -> Result<(), Self::Error> {
        self.0.borrow_mut().clear_region(clear_type)
    }
    fn size(&self) -> Result<Size, Self::Error> {
        self.0.borrow().size()
    }
    fn window_size(&mut self) -> Result<WindowSize, Self::Error> {
        self.0.borrow_mut().window_size()
    }
    fn flush(&mut self) -> Result<(), Self::Error> {
        // Once for each frame.
        self.1.set(self.1.get() + 1);
        self.0.borrow_mut().flush()
    }
}

/// Presses a key each time the screen shows what the one before brought about, and keeps what was seen.
struct Keys {
    left: std::vec::IntoIter<Event>,
    screen: Seen,
    seen: Vec<Buffer>,
    frames: Vec<u32>,
    clock: Rc<Shared<Instant>>,
}

/// As the loop waits when nothing is to be drawn.
const PATIENCE: Duration = Duration::from_millis(100);

impl Input for Keys {
    fn next(&mut self, patience: Duration) -> io::Result<Option<Event>> {
        if patience < PATIENCE {
            // A frame is due after this time.
            self.clock.set(self.clock.get() + patience);
            return Ok(None);
        }
        self.seen.push(self.screen.buffer());
        self.frames.push(self.screen.1.get());
        // Time passes between two keys, so that a frame that is wrongly left out is not drawn by accident.
        self.clock.set(self.clock.get() + Duration::from_millis(1));
        self.left
            .next()
            .map(Some)
            .ok_or_else(|| io::Error::other("all keys are pressed and the loop still runs"))
    }
}

struct Once(Option<Snapshot>);

impl Source for Once {
    fn poll(&mut self) -> Option<Snapshot> {
        self.0.take()
    }
}

#[derive(Default)]
struct Told(Vec<Effect>);

impl Executor for Told {
    fn carry_out(&mut self, effect: Effect) -> Option<String> {
        self.0.push(effect);
        Some("carried out".into())
    }
}

fn event(key: Key) -> Event {
    Event::Key(match key {
        Key::Char(c) => KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE),
        Key::Ctrl(c) => KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL),
        Key::Code(code) => KeyEvent::new(code, KeyModifiers::NONE),
    })
}

/// What was on the screen before each of the keys, and the effects. The last key must end the loop.
fn drive(keys: &[Key]) -> (Vec<Buffer>, Vec<Effect>) {
    let (seen, effects, _) = drive_counting(keys);
    (seen, effects)
}

/// The same, with the number of frames drawn before each key.
fn drive_counting(keys: &[Key]) -> (Vec<Buffer>, Vec<Effect>, Vec<u32>) {
    let screen = Seen(
        Rc::new(RefCell::new(TestBackend::new(SIZE.0, SIZE.1))),
        Rc::default(),
    );
    let clock = Rc::new(Shared::new(Instant::now()));
    let mut input = Keys {
        left: keys.iter().copied().map(event).collect::<Vec<_>>().into_iter(),
        screen: screen.clone(),
        seen: Vec::new(),
        frames: Vec::new(),
        clock: clock.clone(),
    };
    let mut terminal = Terminal::new(screen).unwrap();
    let mut app = App::new(ui_fixture::meta(), FACTS, SIZE);
    let mut told = Told::default();
    let mut source = Once(Some(ui_fixture::rich()));
    run_by(
        &mut app,
        &mut terminal,
        &mut input,
        &mut source,
        &mut told,
        || clock.get(),
    )
    .unwrap();
    assert_eq!(input.left.len(), 0, "the last key ends the loop");
    (input.seen, told.0, input.frames)
}

fn text(buffer: &Buffer) -> String {
    let line = |y| {
        (0..SIZE.0)
            .map(move |x| buffer[(x, y)].symbol())
            .collect::<String>()
            + "\n"
    };
    (0..SIZE.1).map(line).collect()
}

/// The screen's name that is shown as the current one.
fn current(buffer: &Buffer) -> String {
    let reversed = |x: &u16| buffer[(*x, 1)].modifier.contains(Modifier::REVERSED);
    let name: String = (0..SIZE.0)
        .filter(reversed)
        .map(|x| buffer[(x, 1)].symbol())
        .collect();
    name.trim().to_owned()
}

/// Rows with the selection's cursor.
fn cursors(buffer: &Buffer) -> Vec<u16> {
    (0..SIZE.1).filter(|y| buffer[(0, *y)].symbol() == "▸").collect()
}

/// Keys that lead to where a binding holds; `None`: it holds nowhere on this screen.
fn way(place: Place, screen: Screen) -> Option<Vec<Key>> {
    let down = Key::Code(KeyCode::Down);
    let mut keys = vec![Key::Char(char::from(b'1' + screen.index() as u8))];
    match place {
        Place::Drain if screen != Screen::Aio => return None,
        Place::Finding if screen != Screen::Overview => return None,
        Place::Refs if screen != Screen::Refs => return None,
        Place::Probes if screen != Screen::Probes => return None,
        Place::Panels if !matches!(screen, Screen::Uio | Screen::Refs | Screen::Aio) => return None,
        Place::Detail | Place::Drain | Place::Finding | Place::Panels => {
            keys.extend([down, Key::Code(KeyCode::Enter)])
        }
        Place::Filter => keys.extend([Key::Char('/'), Key::Char('a')]),
        Place::Help => keys.push(Key::Char('?')),
        Place::List | Place::Rows => keys.push(down),
        Place::Always | Place::Everywhere | Place::Refs | Place::Probes => {}
    }
    Some(keys)
}

fn judge(binding: &Binding, screen: Screen, before: &Buffer, after: &Buffer, effects: &[Effect]) {
    let (was, is) = (text(before), text(after));
    let changed = was != is;
    let title = |index: usize| {
        let screen = Screen::ALL[index % Screen::ALL.len()];
        format!("{} {}", screen.index() + 1, screen.title())
    };
    match binding.action {
        Action::Quit => unreachable!("ends the loop"),
        Action::Go(to) => assert_eq!(current(after), title(to.index())),
        Action::NextScreen => assert_eq!(current(after), title(screen.index() + 1)),
        Action::PreviousScreen => assert_eq!(current(after), title(screen.index() + 4)),
        Action::Help => assert!(
            is.contains("─ Help ") && is.contains("freeze the display"),
            "{is}"
        ),
        Action::Freeze => assert!(is.contains("FROZEN 12:34:56Z"), "{is}"),
        Action::Record => {
            assert_eq!(effects, [Effect::Record]);
            assert!(is.contains("carried out"), "{is}");
        }
        Action::CountCosts => {
            assert_eq!(effects, [Effect::CountCosts]);
            assert!(is.contains("carried out"), "{is}");
        }
        Action::WriteSnapshot => {
            assert!(matches!(effects, [Effect::WriteSnapshot(_)]));
            assert!(is.contains("carried out"), "{is}");
        }
        Action::ToggleMouse => {
            assert_eq!(effects, [Effect::Mouse(false)]);
            assert!(is.contains("carried out"), "{is}");
        }
        // The terminal is cleared and the same screen drawn again.
        Action::Repaint => assert!(!changed, "{is}"),
        // The first row is selected already: what moves up stays there.
        Action::Up | Action::PageUp | Action::Top => assert_eq!(cursors(after), cursors(before)),
        Action::Down | Action::PageDown | Action::Bottom => {
            let (from, to) = (cursors(before), cursors(after));
            assert_eq!((from.len(), to.len()), (1, 1), "{is}");
            assert!(to[0] > from[0], "{is}");
        }
        Action::Open => assert!(is.contains("Esc back") && !was.contains("Esc back"), "{is}"),
        Action::Follow => {
            assert_eq!(current(after), "2 UIO");
            assert!(is.contains("─ uio0  tcm-user/0/disk0 ─"), "{is}");
        }
        Action::Back if binding.place == Place::List => {
            assert_eq!((cursors(before).len(), cursors(after).len()), (1, 0));
        }
        Action::Back => assert!(was.contains("Esc back") && !is.contains("Esc back"), "{is}"),
        // All of a drain is in view.
        Action::More if screen == Screen::Aio => assert!(is.contains("all of it is in view"), "{is}"),
        Action::More => assert!(is.contains(" page 1 of ") && !was.contains(" page 1 of "), "{is}"),
        Action::FilterBegin => assert!(is.contains(" filter: "), "{is}"),
        Action::FilterAccept => assert!(is.contains("with \"a\"") && !is.contains(" filter: a"), "{is}"),
        Action::FilterCancel => assert!(!is.contains("with \"a\"") && !is.contains(" filter: "), "{is}"),
        Action::FilterErase | Action::FilterEraseAll => {
            assert!(was.contains(" filter: a") && !is.contains(" filter: a"), "{is}");
        }
        Action::SortNext | Action::SortReverse => {
            let order = |text: &str| {
                text.split(", by ")
                    .nth(1)
                    .and_then(|rest| Some(rest.split_once('─')?.0.to_owned()))
            };
            assert_ne!(order(&was), order(&is), "{is}");
        }
        Action::ToggleOwn => assert!(
            is.contains("BPF trampoline") && !was.contains("BPF trampoline"),
            "{is}"
        ),
        Action::ZoomIn => assert!(is.contains("0 ns to 202 ms"), "{is}"),
        // The whole is shown already.
        Action::ZoomOut | Action::ZoomAll | Action::Earlier | Action::Later => assert!(!changed, "{is}"),
        Action::FilterInsert(_)
        | Action::Replay(..)
        | Action::Resize(..)
        | Action::SortBy(_)
        | Action::Click(..)
        | Action::Wheel(_) => unreachable!("bound to no key"),
    }
}

fn every_key_on(screen: Screen) {
    for binding in KEYMAP {
        let Some(way) = way(binding.place, screen) else {
            continue;
        };
        for key in binding.keys {
            let mut keys = way.clone();
            keys.push(*key);
            if binding.action == Action::Quit {
                let (seen, effects) = drive(&keys);
                assert_eq!(seen.len(), keys.len());
                assert_eq!(effects, []);
                continue;
            }
            // Leaves wherever the key has led.
            keys.push(Key::Ctrl('c'));
            let (seen, effects) = drive(&keys);
            assert_eq!(seen.len(), keys.len());
            let [.., before, after] = &seen[..] else {
                panic!("two keys at least");
            };
            judge(binding, screen, before, after, &effects);
        }
    }
}

#[test]
fn every_key_on_the_overview() {
    every_key_on(Screen::Overview);
}

#[test]
fn every_key_on_uio() {
    every_key_on(Screen::Uio);
}

#[test]
fn every_key_on_refs() {
    every_key_on(Screen::Refs);
}

#[test]
fn every_key_on_aio() {
    every_key_on(Screen::Aio);
}

#[test]
fn every_key_on_probes() {
    every_key_on(Screen::Probes);
}

#[test]
fn a_zoomed_waterfall_moves_and_follows_the_cursor() {
    let keys: Vec<Key> = [
        Key::Char('4'),
        Key::Code(KeyCode::Down),
        Key::Code(KeyCode::Enter),
        Key::Char('+'),
        Key::Char('+'),
        Key::Code(KeyCode::Right),
        Key::Code(KeyCode::Left),
        Key::Code(KeyCode::End),
        Key::Char('-'),
        Key::Char('0'),
        Key::Char('q'),
    ]
    .into();
    let (seen, _) = drive(&keys);
    let shown: Vec<String> = seen.iter().skip(4).map(text).collect();
    for (screen, expected) in shown.iter().zip([
        "0 ns to 202 ms, * critical",
        "0 ns to 101 ms, * critical",
        "25.2 ms to 126 ms, * critical",
        "0 ns to 101 ms, * critical",
        // The last context, which was out of view.
        "293 ms to 394 ms, * critical",
        "202 ms to 404 ms, * critical",
        "─ * critical ─",
    ]) {
        assert!(screen.contains(expected), "no {expected} on:\n{screen}");
    }
}

#[test]
fn nothing_is_drawn_when_nothing_changed() {
    // Not bound to anything; then a key that is, then again nothing.
    let keys = [
        Key::Char('z'),
        Key::Code(KeyCode::F(9)),
        Key::Char('2'),
        Key::Char('z'),
        Key::Char('q'),
    ];
    let (_, _, frames) = drive_counting(&keys);
    assert_eq!(frames, [1, 1, 1, 2, 2]);
}
