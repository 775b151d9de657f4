//! How long a frame takes with many rows. Prints the times; `cargo test --release` for figures that mean something.
#![allow(clippy::unwrap_used, reason = "a test that cannot draw has failed")]

mod ui_fixture;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::time::{Duration, Instant};
use uio_trace::ui::action::Action;
use uio_trace::ui::state::Screen;
use uio_trace::ui::{App, TerminalFacts};

/// Aim of a frame in a release build; a debug build on a busy machine gets much more.
const LIMIT: Duration = if cfg!(debug_assertions) {
    Duration::from_millis(500)
} else {
    Duration::from_millis(5)
};
const FRAMES: u32 = 50;

#[test]
fn a_frame_of_a_thousand_devices_and_ten_thousand_drains() {
    let facts = TerminalFacts {
        colour: true,
        unicode: true,
        dumb: false,
    };
    let size = (200, 60);
    let mut app = App::new(ui_fixture::meta(), facts, size);
    let snapshot = ui_fixture::large(1_000, 10_000);
    let begin = Instant::now();
    app.on_snapshot(snapshot);
    println!("taking a snapshot: {:?}", begin.elapsed());

    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    for screen in Screen::ALL {
        app.apply(Action::Go(screen));
        app.apply(Action::PageDown);
        app.apply(Action::PageDown);
        let times: Vec<Duration> = (0..FRAMES)
            .map(|_| {
                app.apply(Action::Down);
                let begin = Instant::now();
                terminal.draw(|frame| app.draw(frame)).unwrap();
                begin.elapsed()
            })
            .collect();
        // The fastest: what the frame costs, not what else the machine does.
        let best = times.iter().min().copied().unwrap_or_default();
        let mean = times.iter().sum::<Duration>() / FRAMES;
        println!("{}: best {best:?}, mean {mean:?}", screen.title());
        assert!(best < LIMIT, "{}: {best:?}", screen.title());
    }
}
