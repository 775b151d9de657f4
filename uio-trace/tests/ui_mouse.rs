//! The mouse on every screen: clicks select, open, sort and press keys; the wheel scrolls; rows stay where they are.
#![allow(clippy::unwrap_used, reason = "a test that cannot draw has failed")]

mod ui_fixture;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use std::time::Instant;
use uio_trace::model::snapshot::Snapshot;
use uio_trace::ui::state::Screen;
use uio_trace::ui::{App, Effect, TerminalFacts};

const FACTS: TerminalFacts = TerminalFacts {
    colour: true,
    unicode: true,
    dumb: false,
};
const SIZE: (u16, u16) = (100, 30);

fn app(snapshot: Snapshot) -> App {
    let mut app = App::new(ui_fixture::meta(), FACTS, SIZE);
    app.on_snapshot(snapshot);
    app
}

fn press(app: &mut App, code: KeyCode) {
    app.on_input(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
}

fn mouse(app: &mut App, kind: MouseEventKind, (column, row): (u16, u16)) -> Vec<Effect> {
    app.on_input(Event::Mouse(MouseEvent {
        kind,
        column,
        row,
        modifiers: KeyModifiers::NONE,
    }))
}

fn click(app: &mut App, place: (u16, u16)) -> Vec<Effect> {
    mouse(app, MouseEventKind::Down(MouseButton::Left), place)
}

fn lines(app: &App) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    (0..SIZE.1)
        .map(|y| (0..SIZE.0).map(|x| buffer[(x, y)].symbol()).collect())
        .collect()
}

/// Where a text stands first.
#[track_caller]
fn find(app: &App, text: &str) -> (u16, u16) {
    let lines = lines(app);
    let found = lines.iter().zip(0..).find_map(|(line, y)| {
        let at = line.find(text)?;
        Some((line[..at].chars().count() as u16, y))
    });
    found.unwrap_or_else(|| panic!("no {text:?} on:\n{}", lines.join("\n")))
}

#[test]
fn a_click_on_a_screens_name_goes_there() {
    let mut app = app(ui_fixture::rich());
    for screen in Screen::ALL.into_iter().rev() {
        let place = find(&app, &format!("{} {}", screen.index() + 1, screen.title()));
        click(&mut app, place);
        assert_eq!(app.state().screen, screen);
    }
}

#[test]
fn a_click_selects_and_a_second_one_opens() {
    for (screen, text, opened) in [
        (
            Screen::Overview,
            "block queue usage: 2",
            "Finding: block queue usage",
        ),
        (Screen::Overview, "mysqld (3307)", "In progress: exit_aio"),
        (Screen::Uio, "uio1#2", "uio1#2  igb_uio"),
        (
            Screen::Refs,
            "block queue usage",
            "blk_queue_usage_counter_release",
        ),
        (Screen::Aio, "fio (5120)", "Drain 2: fio"),
        (Screen::Probes, "uio_poll", "Probe: uio_poll"),
    ] {
        let mut app = app(ui_fixture::rich());
        app.apply(uio_trace::ui::action::Action::Go(screen));
        let place = find(&app, text);
        click(&mut app, place);
        assert!(app.state().view().detail.is_none());
        assert!(
            lines(&app)[usize::from(place.1)].contains(text),
            "{text}: the row stays under the mouse"
        );
        click(&mut app, place);
        assert!(app.state().view().detail.is_some(), "{text}");
        find(&app, opened);
        let back = find(&app, "Esc back");
        click(&mut app, back);
        assert!(app.state().view().detail.is_none());
    }
}

#[test]
fn a_click_on_a_heading_sorts_and_a_second_one_turns_the_order() {
    let mut app = app(ui_fixture::rich());
    press(&mut app, KeyCode::Char('2'));
    let ops = find(&app, " ops ");
    click(&mut app, (ops.0 + 1, ops.1));
    find(&app, "by ops ▼");
    assert!(find(&app, "uio0  ").1 < find(&app, "uio1#2").1);
    let ops = find(&app, "ops▼");
    click(&mut app, ops);
    find(&app, "by ops ▲");
    assert!(find(&app, "uio0  ").1 > find(&app, "uio1#2").1);
}

#[test]
fn rows_do_not_move_under_the_mouse() {
    let mut app = app(ui_fixture::large(400, 3));
    press(&mut app, KeyCode::Char('2'));
    for _ in 0..5 {
        press(&mut app, KeyCode::PageDown);
    }
    let before = lines(&app);
    for y in [6, 20, 4, 12] {
        click(&mut app, (4, y));
        let after = lines(&app);
        for (y, (was, is)) in before.iter().zip(&after).enumerate().skip(3).take(20) {
            let name = |line: &str| line.chars().skip(2).take(8).collect::<String>();
            assert_eq!(name(was), name(is), "line {y}");
        }
        assert!(
            after[usize::from(y)].starts_with('▸'),
            "{}",
            after[usize::from(y)]
        );
    }
}

#[test]
fn the_wheel_scrolls_lists_details_and_help() {
    let mut app = app(ui_fixture::large(400, 3));
    press(&mut app, KeyCode::Char('2'));
    for _ in 0..11 {
        mouse(&mut app, MouseEventKind::ScrollDown, (5, 5));
    }
    assert_eq!(app.state().selected(), Some(30));
    // 25 rows below the heading; the selected one came in at the bottom.
    find(&app, "7–31 of 400, by waiting ▼");
    mouse(&mut app, MouseEventKind::ScrollUp, (5, 5));
    assert_eq!(app.state().selected(), Some(27));
    press(&mut app, KeyCode::Char('4'));
    press(&mut app, KeyCode::Enter);
    mouse(&mut app, MouseEventKind::ScrollDown, (5, 5));
    assert_eq!(app.state().view().detail.as_ref().unwrap().cursor, 3);
    press(&mut app, KeyCode::Char('?'));
    mouse(&mut app, MouseEventKind::ScrollDown, (5, 5));
    assert_eq!(app.state().help, Some(3));
}

#[test]
fn a_click_in_a_waterfall_selects_the_context() {
    let mut app = app(ui_fixture::rich());
    press(&mut app, KeyCode::Char('4'));
    press(&mut app, KeyCode::Enter);
    let place = find(&app, "0x7f3a10012000");
    click(&mut app, place);
    assert_eq!(app.state().view().detail.as_ref().unwrap().cursor, 2);
    find(&app, "in flight 49.0 ms");
}

#[test]
fn movements_and_clicks_on_nothing_change_nothing() {
    let mut app = app(ui_fixture::rich());
    app.drawn(Instant::now());
    assert_eq!(mouse(&mut app, MouseEventKind::Moved, (5, 5)), []);
    assert!(!app.needs_redraw());
    let before = lines(&app);
    click(&mut app, (SIZE.0 - 1, SIZE.1 - 1));
    click(&mut app, (SIZE.0 + 50, SIZE.1 + 50));
    assert_eq!(before, lines(&app));
}

#[test]
fn m_leaves_the_mouse_to_the_terminal() {
    let mut app = app(ui_fixture::rich());
    let key = |c| Event::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
    assert_eq!(app.on_input(key('m')), [Effect::Mouse(false)]);
    assert_eq!(app.on_input(key('m')), [Effect::Mouse(true)]);
}
