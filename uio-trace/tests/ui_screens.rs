//! The screens as text at fixed sizes, from a fixed snapshot, compared with the files under `tests/snapshots`.
//!
//! `UPDATE_SNAPSHOTS=1 cargo test -p uio-trace --test ui_screens` rewrites the files; the difference is then read in
//! review, as code is.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot read its own files has failed"
)]

mod ui_fixture;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use std::path::PathBuf;
use uio_trace::model::snapshot::{Cost, ProbeState, Snapshot};
use uio_trace::ui::{App, TerminalFacts};

const SIZES: [(u16, u16); 4] = [(60, 15), (80, 24), (120, 40), (200, 60)];
const FULL: TerminalFacts = TerminalFacts {
    colour: true,
    unicode: true,
    dumb: false,
};
const PLAIN: TerminalFacts = TerminalFacts {
    colour: false,
    unicode: false,
    dumb: false,
};

/// Keys that lead to a page of a long detail.
const PAGES: [(&str, &[KeyCode]); 4] = [
    (
        "uio_detail_page1",
        &[KeyCode::Char('2'), KeyCode::Enter, KeyCode::Char('v')],
    ),
    (
        "uio_detail_page2",
        &[
            KeyCode::Char('2'),
            KeyCode::Enter,
            KeyCode::Char('v'),
            KeyCode::Char('v'),
        ],
    ),
    (
        "refs_detail_page3",
        &[
            KeyCode::Char('3'),
            KeyCode::Down,
            KeyCode::Down,
            KeyCode::Down,
            KeyCode::Enter,
            KeyCode::Char('v'),
            KeyCode::Char('v'),
            KeyCode::Char('v'),
        ],
    ),
    (
        "aio_detail_serial_page1",
        &[KeyCode::Char('4'), KeyCode::Enter, KeyCode::Char('v')],
    ),
];

/// Keys that lead to a screen, and the name of its files.
const SCREENS: [(&str, &[KeyCode]); 11] = [
    ("overview", &[KeyCode::Char('1')]),
    ("uio", &[KeyCode::Char('2')]),
    ("uio_detail", &[KeyCode::Char('2'), KeyCode::Enter, KeyCode::Down]),
    ("refs", &[KeyCode::Char('3')]),
    (
        "refs_detail",
        &[
            KeyCode::Char('3'),
            KeyCode::Down,
            KeyCode::Down,
            KeyCode::Down,
            KeyCode::Enter,
        ],
    ),
    ("aio", &[KeyCode::Char('4'), KeyCode::Down]),
    (
        "aio_detail_serial",
        &[KeyCode::Char('4'), KeyCode::Enter, KeyCode::Down],
    ),
    (
        "aio_detail_parallel",
        &[KeyCode::Char('4'), KeyCode::Down, KeyCode::Down, KeyCode::Enter],
    ),
    ("probes", &[KeyCode::Char('5')]),
    ("finding_detail", &[KeyCode::Char('1'), KeyCode::Enter]),
    ("help", &[KeyCode::Char('?')]),
];

fn press(app: &mut App, code: KeyCode) {
    app.on_input(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
}

fn app(facts: TerminalFacts, size: (u16, u16), snapshot: Snapshot) -> App {
    let mut app = App::new(ui_fixture::meta(), facts, size);
    app.set_own_cost(Some(0.003));
    app.set_own_memory(Some(14 << 20));
    app.on_snapshot(snapshot);
    app
}

fn buffer(app: &App, size: (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    terminal.backend().buffer().clone()
}

/// The text, without spaces at the ends of lines. The cell after a wide character is not part of it.
fn text(buffer: &Buffer) -> String {
    let mut lines = Vec::new();
    for y in buffer.area.top()..buffer.area.bottom() {
        let mut line = String::new();
        let mut skip = 0;
        for x in buffer.area.left()..buffer.area.right() {
            let symbol = buffer[(x, y)].symbol();
            if skip > 0 {
                skip -= 1;
                continue;
            }
            skip = unicode_width::UnicodeWidthStr::width(symbol).saturating_sub(1);
            line.push_str(symbol);
        }
        lines.push(line.trim_end().to_owned());
    }
    lines.join("\n") + "\n"
}

fn compare(name: &str, shown: &str, failures: &mut Vec<String>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/snapshots")
        .join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, shown).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    if expected != shown {
        failures.push(format!("{}:\n{shown}", path.display()));
    }
}

#[test]
fn every_screen_at_every_size() {
    let mut failures = Vec::new();
    for size in SIZES {
        for (name, keys) in SCREENS {
            let mut app = app(FULL, size, ui_fixture::rich());
            for key in keys {
                press(&mut app, *key);
            }
            let name = format!("{name}_{}x{}", size.0, size.1);
            compare(&name, &text(&buffer(&app, size)), &mut failures);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The busy host's hooks with what they cost: one is known not to be counted.
fn counted() -> Snapshot {
    let mut snapshot = ui_fixture::rich();
    let attached = snapshot
        .probes
        .iter_mut()
        .filter(|p| p.state == ProbeState::Attached);
    for (n, probe) in (1..).zip(attached.skip(1)) {
        probe.cost = Some(Cost {
            hits: 1_000 * n,
            run_ns: 1_500_000 * n,
            missed: n / 4,
            counted_ns: 10_000_000_000,
        });
    }
    snapshot
}

#[test]
fn what_the_programs_cost_is_shown_where_it_is_counted() {
    let mut failures = Vec::new();
    for size in SIZES {
        let mut app = app(FULL, size, counted());
        press(&mut app, KeyCode::Char('5'));
        let name = format!("probes_counted_{}x{}", size.0, size.1);
        compare(&name, &text(&buffer(&app, size)), &mut failures);
    }
    // By hand: 1.5 us each, 1 + 2 + ... thousand hits in 10 s.
    let n = counted().probes.iter().filter(|p| p.cost.is_some()).count();
    let percent = (n * (n + 1) / 2) as f64 * 1.5e6 / 1e10 * 100.0;
    let mut app = app(FULL, (120, 40), counted());
    press(&mut app, KeyCode::Char('5'));
    let shown = text(&buffer(&app, (120, 40)));
    assert!(
        shown.contains(&format!("cost 0.3 + {percent:.1} %")),
        "{percent}\n{shown}"
    );
    assert!(
        shown.contains(&format!("{percent:.1} % of one CPU, counted")),
        "{shown}"
    );
    assert!(shown.contains("1.50 µs"), "{shown}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn pages_of_long_details_in_the_smallest_terminal() {
    let mut failures = Vec::new();
    for (name, keys) in PAGES {
        let mut app = app(FULL, SIZES[0], ui_fixture::rich());
        for key in keys {
            press(&mut app, *key);
        }
        compare(name, &text(&buffer(&app, SIZES[0])), &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn without_utf8_every_screen_is_ascii_and_without_colour() {
    let mut failures = Vec::new();
    let size = (80, 24);
    for (name, keys) in SCREENS {
        let mut app = app(PLAIN, size, ui_fixture::hostile());
        for key in keys {
            press(&mut app, *key);
        }
        let buffer = buffer(&app, size);
        let shown = text(&buffer);
        assert!(shown.is_ascii(), "{name}:\n{shown}");
        for cell in buffer.content() {
            assert_eq!(
                (cell.fg, cell.bg),
                (ratatui::style::Color::Reset, ratatui::style::Color::Reset)
            );
        }
        compare(&format!("{name}_ascii"), &shown, &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn nothing_here_is_said_on_every_screen() {
    let mut failures = Vec::new();
    let size = (80, 24);
    for (key, name) in [
        ('1', "overview"),
        ('2', "uio"),
        ('3', "refs"),
        ('4', "aio"),
        ('5', "probes"),
    ] {
        let mut app = app(FULL, size, ui_fixture::empty());
        press(&mut app, KeyCode::Char(key));
        compare(
            &format!("{name}_empty"),
            &text(&buffer(&app, size)),
            &mut failures,
        );
        if name == "overview" {
            // That there is nothing is a row of its own.
            continue;
        }
        // Opening a row where there is none changes nothing.
        press(&mut app, KeyCode::Enter);
        press(&mut app, KeyCode::Down);
        assert!(app.state().view().detail.is_none());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn hostile_names_stay_in_their_cells() {
    for size in SIZES {
        for (name, keys) in SCREENS {
            let mut app = app(FULL, size, ui_fixture::hostile());
            for key in keys {
                press(&mut app, *key);
            }
            let shown = text(&buffer(&app, size));
            for line in shown.lines() {
                assert!(
                    !line.chars().any(|c| c.is_control() || c == '\u{202e}'),
                    "{name}: {line:?}"
                );
                let width = unicode_width::UnicodeWidthStr::width(line);
                assert!(width <= usize::from(size.0), "{name}: {width} columns: {line}");
            }
        }
    }
}

#[test]
fn figures_stand_in_their_columns_whatever_the_names() {
    let size = (120, 40);
    let mut app = app(FULL, size, ui_fixture::hostile());
    press(&mut app, KeyCode::Char('2'));
    let buffer = buffer(&app, size);
    // Right ends of the figures: the same cells are followed by a gap in the heading and in each row.
    let end = |y: u16, word: &str| -> u16 {
        let line: Vec<&str> = (0..size.0).map(|x| buffer[(x, y)].symbol()).collect();
        let starts = (0..line.len()).find(|x| line[*x..].concat().starts_with(word));
        starts.map_or(0, |x| (x + word.chars().count()) as u16)
    };
    assert_eq!(end(3, "held %"), end(4, "97.2"));
    assert!(end(3, "held %") > 0);
    assert_eq!(end(3, "ops"), end(4, "1.42M"));
}

#[test]
fn what_is_sorted_by_is_shown_in_the_smallest_terminal() {
    for key in ['2', '3', '4', '5'] {
        let size = (60, 15);
        let mut app = app(FULL, size, ui_fixture::rich());
        press(&mut app, KeyCode::Char(key));
        for _ in 0..20 {
            press(&mut app, KeyCode::Char('s'));
            let shown = text(&buffer(&app, size));
            let headings = shown.lines().nth(3).unwrap_or_default();
            assert!(headings.contains(['▼', '▲']), "{shown}");
        }
    }
}

#[test]
fn severity_is_visible_without_colour() {
    let app = app(PLAIN, (80, 24), ui_fixture::rich());
    let shown = text(&buffer(&app, (80, 24)));
    assert!(
        shown.contains("CRIT uio0") && shown.contains("WARN postgres"),
        "{shown}"
    );
}

#[test]
fn a_terminal_that_is_too_small_gets_one_line() {
    for (size, expected) in [
        ((20, 5), "needs 60x15"),
        ((59, 30), "uio-trace needs a terminal of 60x15; this one is 59x30"),
        (
            (200, 14),
            "uio-trace needs a terminal of 60x15; this one is 200x14",
        ),
        ((24, 2), "too small: 60x15 needed"),
        ((12, 1), "needs 60x15"),
    ] {
        let app = app(FULL, size, ui_fixture::rich());
        let shown = text(&buffer(&app, size));
        let first = shown.lines().next().unwrap_or_default();
        assert_eq!(first, expected);
        assert_eq!(shown.trim_end().lines().count(), 1, "{shown}");
    }
}

/// Draws at all sizes up to 120x40 that `take` takes; a frame is never blank.
fn resize_storm(facts: TerminalFacts, snapshot: &Snapshot, take: impl Fn(u16, u16) -> bool) {
    for (name, keys) in SCREENS.into_iter().chain(PAGES) {
        let mut app = app(facts, (1, 1), snapshot.clone());
        for key in keys {
            press(&mut app, *key);
        }
        for (width, height) in (1..=40).flat_map(|height| (1..=120).map(move |width| (width, height))) {
            if !take(width, height) {
                continue;
            }
            app.on_input(Event::Resize(width, height));
            let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
            uio_trace::ui::view::draw(app.state(), &mut buffer);
            let blank = buffer.content().iter().all(|cell| cell.symbol() == " ");
            assert!(!blank, "{name} at {width}x{height} shows nothing");
        }
    }
}

#[test]
fn no_size_panics() {
    // Every size in a release build; in a debug build, where a frame takes long, all small ones and every seventh.
    let take = |width: u16, height: u16| {
        !cfg!(debug_assertions) || (width <= 66 && height <= 20) || (width * 3 + height).is_multiple_of(7)
    };
    resize_storm(FULL, &ui_fixture::rich(), take);
}

#[test]
fn large_terminals_are_filled() {
    for (name, keys) in SCREENS {
        let mut app = app(FULL, (1, 1), ui_fixture::hostile());
        for key in keys {
            press(&mut app, *key);
        }
        for size in [(300, 80), (300, 15), (60, 80), (500, 200)] {
            app.on_input(Event::Resize(size.0, size.1));
            let shown = text(&buffer(&app, size));
            let last = shown.lines().last().unwrap_or_default();
            assert!(last.contains("q quit"), "{name} at {size:?}:\n{shown}");
        }
    }
}

#[test]
fn no_size_panics_with_hostile_names_or_nothing() {
    let near = |width: u16, height: u16| (58..=64).contains(&width) || (14..=16).contains(&height);
    let sample = |width: u16, height: u16| near(width, height) || (width * 7 + height * 3).is_multiple_of(23);
    resize_storm(PLAIN, &ui_fixture::hostile(), sample);
    resize_storm(FULL, &ui_fixture::empty(), sample);
}

#[test]
fn drawing_changes_nothing() {
    for (name, keys) in SCREENS {
        let mut app = app(FULL, (80, 24), ui_fixture::rich());
        for key in keys {
            press(&mut app, *key);
        }
        let before = format!("{:?}", app.state());
        let first = buffer(&app, (80, 24));
        assert_eq!(first, buffer(&app, (80, 24)), "{name}");
        assert_eq!(before, format!("{:?}", app.state()), "{name}");
    }
}

#[test]
fn the_selected_row_is_marked_by_sign_and_reversed() {
    let mut app = app(PLAIN, (80, 24), ui_fixture::rich());
    press(&mut app, KeyCode::Char('3'));
    press(&mut app, KeyCode::Down);
    let buffer = buffer(&app, (80, 24));
    assert_eq!(buffer[(0, 4)].symbol(), ">");
    assert!(buffer[(10, 4)].modifier.contains(Modifier::REVERSED));
    assert!(!buffer[(10, 5)].modifier.contains(Modifier::REVERSED));
}

/// Column where a bar begins and where it ends, of a line between `from` and `to`.
fn bar(buffer: &Buffer, y: u16, from: u16, to: u16) -> Option<(u16, u16)> {
    let filled = |x: &u16| ["░", "▓", "▒", "█"].contains(&buffer[(*x, y)].symbol());
    let mut columns = (from..to).filter(filled);
    let first = columns.next()?;
    Some((first, columns.next_back().unwrap_or(first)))
}

#[test]
fn five_hundred_contexts_are_a_staircase_beside_a_block() {
    const CONTEXTS: u64 = 512;
    const MS: u64 = 1_000_000;
    let size = (100, 30);
    let serial = (0..CONTEXTS)
        .map(|i| ui_fixture::context(i, i * 20 * MS, [8 * MS, MS, 8 * MS, 3 * MS], true))
        .collect();
    let mut snapshot = ui_fixture::rich();
    snapshot.aio_drains = vec![ui_fixture::drain(
        1,
        "db",
        77,
        uio_trace::model::snapshot::DrainVerdict::Serial,
        serial,
    )];
    let mut app = app(FULL, size, snapshot);
    press(&mut app, KeyCode::Char('4'));
    press(&mut app, KeyCode::Enter);
    let buffer = buffer(&app, size);
    let shown = text(&buffer);
    let heading = shown.lines().position(|line| line.contains("As it was")).unwrap() as u16;
    let right = shown
        .lines()
        .nth(usize::from(heading))
        .and_then(|line| line.find("Together").map(|at| line[..at].chars().count() as u16))
        .unwrap();
    let rows: Vec<u16> = (heading + 1..)
        .take_while(|y| !shown.lines().nth(usize::from(*y)).unwrap().contains("Waterfall"))
        .collect();
    assert!(rows.len() >= 6, "{shown}");
    let steps: Vec<(u16, u16)> = rows
        .iter()
        .map(|y| bar(&buffer, *y, 0, right - 3).expect("a step in each row"))
        .collect();
    assert!(
        steps.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1),
        "{shown}"
    );
    assert_eq!(steps[0].0, 1, "{shown}");
    assert!(steps.last().is_some_and(|last| last.1 >= right - 6), "{shown}");
    // Together they take 20 ms of 10 s: one column, in every row the same.
    let block: Vec<_> = rows.iter().map(|y| bar(&buffer, *y, right - 2, size.0)).collect();
    assert!(
        block
            .iter()
            .all(|b| *b == block[0] && b.is_some_and(|(from, to)| from == to)),
        "{shown}"
    );
    // The last context comes into view, and its figures below.
    press(&mut app, KeyCode::End);
    let shown = text(&self::buffer(&app, size));
    assert!(shown.contains("▸*0x7f3a111f7000"), "{shown}");
    assert!(shown.contains("from 10.2 s"), "{shown}");
}
