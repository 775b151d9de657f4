//! Every key of the keymap, on every screen, through [`App`].
#![allow(clippy::unwrap_used, reason = "a test that cannot draw has failed")]

mod ui_app;
mod ui_fixture;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ui_app::{FACTS, SIZE, app, event, press, shown};
use uio_trace::ui::action::Action;
use uio_trace::ui::keymap::{KEYMAP, Key, Place};
use uio_trace::ui::state::Screen;
use uio_trace::ui::{App, Effect};

/// Brings the app to where a binding holds; `None`: it cannot hold on this screen.
fn arrange(place: Place, screen: Screen) -> Option<App> {
    let mut app = app();
    app.apply(Action::Go(screen));
    match place {
        Place::Refs if screen != Screen::Refs => return None,
        Place::Drain if screen != Screen::Aio => return None,
        Place::Finding if screen != Screen::Overview => return None,
        Place::Probes if screen != Screen::Probes => return None,
        Place::Panels if !matches!(screen, Screen::Uio | Screen::Refs | Screen::Aio) => return None,
        Place::Detail | Place::Drain | Place::Finding | Place::Panels => drop(press(&mut app, "↓\n")),
        Place::Filter => drop(press(&mut app, "/a")),
        Place::Help => drop(press(&mut app, "?")),
        Place::Always | Place::Everywhere | Place::Rows | Place::List | Place::Refs | Place::Probes => {}
    }
    Some(app)
}

/// What must be seen after a binding's key, beyond that nothing breaks.
fn check(action: Action, place: Place, before: &App, app: &App, effects: &[Effect]) {
    let (was, is) = (before.state(), app.state());
    let text = shown(app);
    match action {
        Action::Quit => assert_eq!(effects, [Effect::Quit]),
        Action::Repaint => assert_eq!(effects, [Effect::Repaint]),
        Action::Record => assert_eq!(effects, [Effect::Record]),
        Action::CountCosts => assert_eq!(effects, [Effect::CountCosts]),
        Action::WriteSnapshot => {
            assert_eq!(effects, [Effect::WriteSnapshot(is.shown().unwrap().clone())]);
        }
        Action::Go(screen) => {
            assert_eq!(is.screen, screen);
            assert!(is.help.is_none());
        }
        Action::NextScreen => assert_eq!(is.screen.index(), (was.screen.index() + 1) % 5),
        Action::PreviousScreen => assert_eq!((is.screen.index() + 1) % 5, was.screen.index()),
        Action::Help => {
            assert!(
                text.contains("Help") && text.contains("freeze the display"),
                "{text}"
            );
        }
        Action::Freeze => assert!(text.contains("FROZEN 12:34:56Z"), "{text}"),
        Action::Open => {
            assert!(is.view().detail.is_some());
            assert!(text.contains("Esc back"), "{text}");
        }
        Action::Follow => assert_eq!(is.screen, Screen::Uio),
        Action::More => assert!(text.contains(" page 1 of "), "{text}"),
        Action::Back if place == Place::Help => assert!(is.help.is_none()),
        Action::Back => assert!(is.view().detail.is_none()),
        Action::FilterBegin => assert!(text.contains("filter: "), "{text}"),
        Action::FilterAccept => {
            assert!(is.filter_before.is_none());
            assert_eq!(is.view().filter, "a");
            assert!(text.contains("with \"a\""), "{text}");
        }
        Action::FilterCancel => {
            assert!(is.filter_before.is_none());
            assert_eq!(is.view().filter, "");
        }
        Action::FilterErase | Action::FilterEraseAll => assert_eq!(is.view().filter, ""),
        Action::FilterInsert(c) => assert!(is.view().filter.ends_with(c)),
        Action::SortNext => assert_ne!(is.view().sort_column, was.view().sort_column),
        Action::SortReverse => assert_ne!(is.view().descending, was.view().descending),
        Action::ToggleOwn => assert!(text.contains("BPF trampoline"), "{text}"),
        Action::Up | Action::Down | Action::PageUp | Action::PageDown | Action::Top | Action::Bottom => {
            assert!(is.view().selection.is_some());
        }
        Action::ToggleMouse => {
            assert_eq!(effects, [Effect::Mouse(false)]);
            assert!(text.contains("the mouse selects text again"), "{text}");
        }
        Action::ZoomIn => assert!(text.contains("0 ns to 202 ms, * critical"), "{text}"),
        // Nothing is closer than the whole yet.
        Action::ZoomOut | Action::ZoomAll | Action::Earlier | Action::Later => {
            assert!(text.contains("─ * critical ─"), "{text}");
        }
        // Not from keys, or only in a replay.
        Action::Replay(..)
        | Action::Resize(..)
        | Action::SortBy(_)
        | Action::Click(..)
        | Action::Wheel(_) => {}
    }
    let quiet = matches!(
        action,
        Action::Quit
            | Action::Repaint
            | Action::Record
            | Action::WriteSnapshot
            | Action::ToggleMouse
            | Action::CountCosts
    );
    assert!(quiet || effects.is_empty(), "{action:?}: {effects:?}");
}

#[test]
fn every_key_on_every_screen() {
    for screen in Screen::ALL {
        for binding in KEYMAP {
            for key in binding.keys {
                let (Some(before), Some(mut app)) =
                    (arrange(binding.place, screen), arrange(binding.place, screen))
                else {
                    continue;
                };
                let effects = app.on_input(event(*key));
                check(binding.action, binding.place, &before, &app, &effects);
            }
        }
    }
}

#[test]
fn every_key_is_in_the_help() {
    let mut app = App::new(ui_fixture::meta(), FACTS, (200, 60));
    app.apply(Action::Help);
    let mut terminal = Terminal::new(TestBackend::new(200, 60)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    let text = terminal.backend().to_string();
    for binding in KEYMAP {
        assert!(text.contains(binding.text), "{}", binding.text);
        for key in binding.keys {
            assert!(text.contains(&key.name()), "{}", key.name());
        }
    }
}

#[test]
fn a_key_release_is_not_a_key() {
    let mut app = app();
    let mut key = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
    key.kind = KeyEventKind::Release;
    assert!(app.on_input(Event::Key(key)).is_empty());
}

#[test]
fn letters_typed_into_a_filter_are_letters() {
    let mut app = app();
    press(&mut app, "4/q?fio");
    assert_eq!(app.state().view().filter, "q?fio");
    press(&mut app, "\x08\x08\x08\x08\x08");
    press(&mut app, "FIO\n");
    let text = shown(&app);
    assert!(
        text.contains("1 of 3 with \"FIO\"") && text.contains("fio (5120)"),
        "{text}"
    );
    assert!(!text.contains("postgres (4242"), "{text}");
    press(&mut app, "\x1b");
    assert!(shown(&app).contains("postgres (4242"));
    press(&mut app, "/nobody\n");
    assert!(shown(&app).contains("No row contains the filter's text."));
    assert_eq!(press(&mut app, "\n"), []);
}

#[test]
fn ctrl_c_leaves_even_a_filter() {
    let mut app = app();
    press(&mut app, "/x");
    assert_eq!(app.on_input(event(Key::Ctrl('c'))), [Effect::Quit]);
}

#[test]
fn messages_last_until_the_next_key() {
    let mut app = app();
    app.set_message("wrote /tmp/x.json");
    assert!(shown(&app).contains("wrote /tmp/x.json"));
    app.on_snapshot(ui_fixture::rich());
    assert!(shown(&app).contains("wrote /tmp/x.json"));
    press(&mut app, "1");
    assert!(!shown(&app).contains("wrote /tmp/x.json"));
}

#[test]
fn before_the_first_snapshot_nothing_breaks() {
    for screen in Screen::ALL {
        for binding in KEYMAP {
            for key in binding.keys {
                let mut app = App::new(ui_fixture::meta(), FACTS, SIZE);
                app.apply(Action::Go(screen));
                assert!(shown(&app).contains("Waiting for the first figures"));
                app.on_input(event(*key));
                shown(&app);
            }
        }
    }
}

#[test]
fn movement_in_help_and_details_stays_within_them() {
    let mut app = app();
    press(&mut app, "?");
    press(&mut app, "kG");
    assert!(
        shown(&app).contains("began before the trace"),
        "the end is in view"
    );
    let last = app.state().help;
    press(&mut app, "j");
    assert_eq!(app.state().help, last);
    press(&mut app, "g\x1b");
    assert_eq!(app.state().help, None);
    assert_eq!(app.state().view().selection, None, "the list below did not move");
    press(&mut app, "4\nG");
    assert_eq!(app.state().view().detail.as_ref().unwrap().cursor, 3);
    press(&mut app, "jk");
    assert_eq!(app.state().view().detail.as_ref().unwrap().cursor, 2);
    for _ in 0..3 {
        app.on_input(event(Key::Code(KeyCode::PageUp)));
    }
    assert_eq!(app.state().view().detail.as_ref().unwrap().cursor, 0);
}

#[test]
fn escape_and_a_key_that_come_as_one_are_two() {
    let mut app = app();
    press(&mut app, "?");
    assert!(app.state().help.is_some());
    app.on_input(Event::Key(KeyEvent::new(KeyCode::Char('4'), KeyModifiers::ALT)));
    assert!(app.state().help.is_none());
    assert_eq!(app.state().screen, Screen::Aio);
}
