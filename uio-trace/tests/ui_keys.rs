//! Every key of the keymap, on every screen, through [`App`].
#![allow(clippy::unwrap_used, reason = "a test that cannot draw has failed")]

mod ui_fixture;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use uio_trace::ui::action::Action;
use uio_trace::ui::keymap::{KEYMAP, Key, Place};
use uio_trace::ui::state::{RowId, Screen};
use uio_trace::ui::{App, Effect, TerminalFacts};

const FACTS: TerminalFacts = TerminalFacts {
    colour: true,
    unicode: true,
    dumb: false,
};
const SIZE: (u16, u16) = (80, 24);

fn app() -> App {
    let mut app = App::new(ui_fixture::meta(), FACTS, SIZE);
    app.on_snapshot(ui_fixture::rich());
    app
}

fn event(key: Key) -> Event {
    Event::Key(match key {
        Key::Char(c) => KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE),
        Key::Ctrl(c) => KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL),
        Key::Code(code) => KeyEvent::new(code, KeyModifiers::NONE),
    })
}

fn press(app: &mut App, keys: &str) -> Vec<Effect> {
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

fn shown(app: &App) -> String {
    let mut terminal = Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    terminal.backend().to_string()
}

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
fn the_selection_follows_its_row() {
    let mut app = app();
    press(&mut app, "2↓");
    let selected = |app: &App| app.state().view().selection.clone().unwrap();
    assert_eq!(selected(&app).id, RowId::Device(0, 0));
    assert_eq!(selected(&app).position, 0);
    // uio1 becomes the most contended: the rows change places, the selection stays with uio0.
    let mut next = ui_fixture::rich();
    next.uio_devices[1].mean_waiters = 9.0;
    app.on_snapshot(next);
    assert_eq!(selected(&app).id, RowId::Device(0, 0));
    assert_eq!(selected(&app).position, 1);
    // uio0 disappears: nothing is selected in its place, and Enter opens nothing.
    let mut next = ui_fixture::rich();
    next.uio_devices.remove(0);
    app.on_snapshot(next.clone());
    assert_eq!(selected(&app).id, RowId::Device(0, 0));
    assert_eq!(app.state().selected(), None);
    press(&mut app, "\n");
    assert!(app.state().view().detail.is_none());
    assert!(shown(&app).contains("no longer listed"));
    // It is back: it is selected again.
    app.on_snapshot(ui_fixture::rich());
    assert_eq!(app.state().selected(), Some(0));
    // Gone for good: the next row down is the one that is now where it was.
    app.on_snapshot(next);
    press(&mut app, "↓");
    assert_eq!(selected(&app).id, RowId::Device(1, 2));
    app.on_snapshot(ui_fixture::empty());
    assert_eq!(app.state().selected(), None);
}

#[test]
fn from_a_finding_to_what_it_is_about() {
    for (downs, screen, title) in [
        (1, Screen::Uio, "uio0  tcm-user/0/disk0"),
        (2, Screen::Refs, "block queue usage"),
        (3, Screen::Aio, "Drain 1: postgres"),
        // In progress: a ref leads to its owner, a drain that has not ended nowhere.
        (5, Screen::Refs, "block queue usage"),
        (4, Screen::Overview, "there is no row for this"),
    ] {
        let mut app = app();
        press(&mut app, &"↓".repeat(downs));
        press(&mut app, "\n\n");
        assert_eq!(app.state().screen, screen);
        assert!(shown(&app).contains(title), "{}", shown(&app));
        if screen != Screen::Overview {
            press(&mut app, "\x1b");
            assert!(app.state().selected().is_some(), "back in its list, on its row");
        }
    }
}

#[test]
fn a_filter_that_hides_the_selected_row_selects_no_other() {
    let mut app = app();
    press(&mut app, "4↓↓/postgres");
    assert_eq!(app.state().selected(), None);
    press(&mut app, "\x1b");
    let selection = app.state().view().selection.clone().unwrap();
    assert!(
        selection.listed && selection.id == RowId::Drain(2),
        "{selection:?}"
    );
}

#[test]
fn rows_with_the_same_identity_are_told_apart_by_their_place() {
    let mut snapshot = ui_fixture::rich();
    snapshot.findings.clear();
    snapshot.in_progress = vec![snapshot.in_progress[1].clone(); 5];
    let mut app = app();
    app.on_snapshot(snapshot.clone());
    press(&mut app, "↓↓↓");
    assert_eq!(app.state().view().selection.as_ref().unwrap().position, 2);
    app.on_snapshot(snapshot);
    assert_eq!(app.state().view().selection.as_ref().unwrap().position, 2);
}

#[test]
fn frozen_means_frozen_and_the_losses_stay_live() {
    let mut app = app();
    press(&mut app, "2 ");
    let mut next = ui_fixture::rich_at(300_000_000_000);
    next.uio_devices.clear();
    next.loss.dropped.insert("ring_full".into(), 1_000);
    app.on_snapshot(next);
    let text = shown(&app);
    assert!(
        text.contains("tcm-user/0/disk0") && text.contains("FROZEN 12:34:56Z"),
        "{text}"
    );
    assert!(text.contains("12:35:00Z") && text.contains("lost 1002"), "{text}");
    let effects = press(&mut app, "w");
    assert!(matches!(&effects[..], [Effect::WriteSnapshot(s)] if s.uio_devices.len() == 3));
    press(&mut app, " ");
    let text = shown(&app);
    assert!(
        !text.contains("FROZEN") && text.contains("no UIO device exists"),
        "{text}"
    );
}

#[test]
fn an_opened_drain_stays_when_it_leaves_the_list() {
    let mut app = app();
    press(&mut app, "4↓\n");
    let mut next = ui_fixture::rich();
    next.aio_drains.remove(0);
    app.on_snapshot(next);
    let text = shown(&app);
    assert!(
        text.contains("Drain 1: postgres") && text.contains("no longer listed"),
        "{text}"
    );
    app.on_snapshot(ui_fixture::rich());
    assert!(!shown(&app).contains("no longer listed"));
}

#[test]
fn a_detail_is_kept_while_other_screens_are_looked_at() {
    let mut app = app();
    press(&mut app, "4↓\n35");
    assert!(app.state().view().detail.is_none());
    press(&mut app, "4");
    assert!(shown(&app).contains("Drain 1"));
}

#[test]
fn an_operations_row_chooses_the_histograms() {
    let mut app = app();
    press(&mut app, "2\n");
    assert!(shown(&app).contains("Wait for info_lock: all"));
    press(&mut app, "↓↓");
    assert!(shown(&app).contains("Wait for info_lock: poll"));
    press(&mut app, "GGG");
    assert!(shown(&app).contains("Wait for info_lock: release"));
    assert!(shown(&app).contains("none waited"));
}

#[test]
fn the_selected_operation_is_followed() {
    let mut app = app();
    press(&mut app, "2\n↓↓");
    assert!(shown(&app).contains("Wait for info_lock: poll"));
    // A read for the first time: its row comes before that of poll.
    let mut next = ui_fixture::rich();
    let read = next.uio_devices[1].ops[1].clone();
    next.uio_devices[0].ops.insert(1, read);
    app.on_snapshot(next);
    assert!(
        shown(&app).contains("Wait for info_lock: poll"),
        "{}",
        shown(&app)
    );
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
fn the_rate_is_that_of_the_newest_stretch() {
    let mut app = app();
    assert_eq!(app.state().rate.map(|r| r.round()), Some(4792.0));
    let mut next = ui_fixture::rich_at(297_500_000_000);
    next.loss.seen = ui_fixture::rich().loss.seen + 50;
    app.on_snapshot(next);
    assert_eq!(app.state().rate, Some(50.0));
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
fn the_pages_of_a_long_detail_are_what_a_tall_terminal_shows() {
    for (keys, rows) in [("2\n", 60), ("3\n", 37), ("4\n", 26)] {
        let small = (60, 15);
        let lines = |app: &App, size: (u16, u16)| -> Vec<String> {
            let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
            terminal.draw(|frame| app.draw(frame)).unwrap();
            let shown = terminal.backend().to_string();
            shown.lines().map(str::to_owned).collect()
        };
        let mut app = app();
        app.apply(Action::Resize(60, rows + 3));
        press(&mut app, keys);
        let tall = lines(&app, (60, rows + 3));
        // Header, then the detail, then the keys.
        let whole = &tall[2..usize::from(rows) + 2];
        app.apply(Action::Resize(small.0, small.1));
        let short_form = lines(&app, small);
        let mut seen = vec![false; whole.len()];
        let pages = (rows - 1).div_ceil(11);
        for page in 1..=pages {
            press(&mut app, "v");
            let now = lines(&app, small);
            assert!(
                now[2].contains(&format!(" page {page} of {pages} ")),
                "{}",
                now.join("\n")
            );
            let body = &now[3..14];
            let at = whole.windows(body.len()).position(|part| part == body);
            let at = at.unwrap_or_else(|| panic!("not of the whole:\n{}", now.join("\n")));
            seen[at..at + body.len()].fill(true);
        }
        assert!(seen[1..].iter().all(|seen| *seen), "{keys:?}: {seen:?}");
        press(&mut app, "v");
        assert_eq!(lines(&app, small), short_form, "after the last page");
        // Where all of it is in view there is nothing to turn to.
        app.apply(Action::Resize(60, rows + 3));
        press(&mut app, "v");
        let now = lines(&app, (60, rows + 3));
        assert_eq!(&now[2..usize::from(rows) + 2], whole);
        assert!(
            now.last()
                .is_some_and(|line| line.contains("all of it is in view"))
        );
    }
}

#[test]
fn what_the_gain_rests_on_is_to_be_read_in_the_smallest_terminal() {
    let snapshot = ui_fixture::rich();
    let assumptions = snapshot.uio_devices[0].what_if.assumptions.clone();
    assert!(!assumptions.is_empty());
    let mut app = app();
    app.apply(Action::Resize(60, 15));
    press(&mut app, "2\nv");
    let mut terminal = Terminal::new(TestBackend::new(60, 15)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    let shown = terminal.backend().to_string();
    let words: Vec<&str> = shown.split_whitespace().filter(|word| *word != "\"").collect();
    let shown = words.join(" ").replace('"', "").replace("  ", " ");
    for assumption in assumptions {
        assert!(shown.contains(&assumption), "{assumption}: {shown}");
    }
}

#[test]
fn every_function_of_every_killers_stack_is_to_be_read_in_the_smallest_terminal() {
    let mut snapshot = ui_fixture::rich();
    let owner = &mut snapshot.ref_owners[0];
    let stack = owner.kill_stacks[0].clone();
    owner.kill_stacks = (0..5)
        .map(|i| {
            let mut stack = stack.clone();
            stack.frames = (0..20).map(|n| format!("function_{i}_{n:02}")).collect();
            stack
        })
        .collect();
    let name = owner.owner.clone();
    let mut app = App::new(ui_fixture::meta(), FACTS, (60, 15));
    app.on_snapshot(snapshot);
    press(&mut app, "3\n");
    let mut pages = String::new();
    loop {
        press(&mut app, "v");
        if app.state().view().detail.as_ref().unwrap().page == 0 {
            break;
        }
        let mut terminal = Terminal::new(TestBackend::new(60, 15)).unwrap();
        terminal.draw(|frame| app.draw(frame)).unwrap();
        pages += &terminal.backend().to_string();
    }
    assert!(pages.contains(&name), "{pages}");
    for i in 0..5 {
        for n in 0..20 {
            let function = format!("function_{i}_{n:02}");
            assert!(pages.contains(&function), "{function}:\n{pages}");
        }
    }
}

#[test]
fn from_the_pages_of_a_drain_a_movement_leads_to_the_selected_context() {
    let mut app = app();
    app.apply(Action::Resize(60, 15));
    press(&mut app, "4\nvv");
    assert_eq!(app.state().view().detail.as_ref().unwrap().page, 2);
    press(&mut app, "↓");
    let mut terminal = Terminal::new(TestBackend::new(60, 15)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    let shown = terminal.backend().to_string();
    assert!(shown.contains("▸ 0x7f3a10009000"), "{shown}");
    // Of a device the operation chooses the histograms, wherever they are seen.
    press(&mut app, "2\nvv↓");
    assert_eq!(app.state().view().detail.as_ref().unwrap().page, 2);
}

#[test]
fn an_operation_is_chosen_by_a_click_on_a_page_too() {
    let mut app = app();
    app.apply(Action::Resize(60, 15));
    press(&mut app, "2\n");
    let place = |app: &App| {
        let mut terminal = Terminal::new(TestBackend::new(60, 15)).unwrap();
        terminal.draw(|frame| app.draw(frame)).unwrap();
        let shown = terminal.backend().to_string();
        shown.lines().position(|line| line.contains("  release  "))
    };
    let row = loop {
        press(&mut app, "v");
        assert_ne!(app.state().view().detail.as_ref().unwrap().page, 0, "not found");
        if let Some(row) = place(&app) {
            break row as u16;
        }
    };
    app.apply(Action::Click(5, row));
    assert_eq!(app.state().view().detail.as_ref().unwrap().cursor, 5 - 1);
    // The heading above belongs to no operation.
    app.apply(Action::Click(5, 2));
    assert_eq!(app.state().view().detail.as_ref().unwrap().cursor, 5 - 1);
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
