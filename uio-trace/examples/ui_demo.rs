//! The interface over made-up figures, in a real terminal: `cargo run --example ui_demo [rich|empty|hostile|large|panic]`.
//! `panic` panics after a second: the terminal must be as it was, with the message below.

#[path = "../tests/ui_fixture/mod.rs"]
mod ui_fixture;

use std::io;
use std::time::Instant;
use uio_trace::model::snapshot::Snapshot;
use uio_trace::ui::run::{Executor, Source, TerminalInput, run};
use uio_trace::ui::terminal::Guard;
use uio_trace::ui::{App, Effect, TerminalFacts};

/// A snapshot each second; waits and ages wander a little.
struct Demo {
    kind: String,
    begin: Instant,
    shown: Option<u64>,
}

impl Source for Demo {
    fn poll(&mut self) -> Option<Snapshot> {
        let second = self.begin.elapsed().as_secs();
        if self.shown == Some(second) {
            return None;
        }
        self.shown = Some(second);
        let mut snapshot = match self.kind.as_str() {
            "panic" if second > 0 => panic!("as asked"),
            "empty" => ui_fixture::empty(),
            "hostile" => ui_fixture::hostile(),
            "large" => ui_fixture::large(1_000, 10_000),
            _ => ui_fixture::rich_at((296 + second) * 1_000_000_000),
        };
        for (i, device) in snapshot.uio_devices.iter_mut().enumerate() {
            device.mean_waiters += ((second * 7 + i as u64 * 3) % 5) as f64 / 20.0;
        }
        Some(snapshot)
    }
}

struct ShowOnly;

impl Executor for ShowOnly {
    fn carry_out(&mut self, effect: Effect) -> Option<String> {
        match effect {
            Effect::WriteSnapshot(snapshot) => Some(format!(
                "would write a snapshot with {} devices",
                snapshot.uio_devices.len()
            )),
            Effect::Mouse(on) => uio_trace::ui::terminal::mouse(on).err().map(|e| e.to_string()),
            Effect::CountCosts => Some("would begin or end to count what the programs cost".into()),
            Effect::Record => Some("would begin or end a recording".into()),
            Effect::Quit | Effect::Repaint | Effect::Control(_) => None,
        }
    }
}

fn main() -> io::Result<()> {
    let facts = TerminalFacts::from_env();
    if facts.dumb {
        println!("this terminal cannot place the cursor");
        return Ok(());
    }
    let (_guard, mut terminal) = Guard::enter()?;
    let size = terminal.size()?;
    let mut app = App::new(ui_fixture::meta(), facts, (size.width, size.height));
    app.set_own_cost(Some(0.003));
    app.set_own_memory(Some(14 << 20));
    let kind = std::env::args().nth(1).unwrap_or_default();
    let mut source = Demo {
        kind,
        begin: Instant::now(),
        shown: None,
    };
    run(
        &mut app,
        &mut terminal,
        &mut TerminalInput,
        &mut source,
        &mut ShowOnly,
    )
}
