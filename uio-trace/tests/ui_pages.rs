//! Details that do not fit, page by page.
#![allow(clippy::unwrap_used, reason = "a test that cannot draw has failed")]

mod ui_app;
mod ui_fixture;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ui_app::{FACTS, app, press};
use uio_trace::ui::App;
use uio_trace::ui::action::Action;

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
