//! The terminal is taken over by [`Guard::enter`] and given back exactly once, whatever happens: when the guard is
//! dropped, when the program panics, or when a signal handler calls [`restore`].

use ratatui::Terminal;
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::crossterm::{ExecutableCommand, cursor, terminal};
use ratatui::layout::Rect;
use std::io::{self, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// The terminal with its backend.
pub type Screen = Terminal<CrosstermBackend<Stdout>>;

static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// Holds the terminal in raw mode on its alternate screen.
#[derive(Debug)]
pub struct Guard(());

impl Guard {
    /// Takes the terminal over. On an error it is left as it was.
    pub fn enter() -> io::Result<(Guard, Screen)> {
        // Before anything is changed, so that there is no moment in which a panic would leave it changed.
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                before(panic);
            }));
        });
        TAKEN.store(true, Ordering::SeqCst);
        let guard = Guard(());
        terminal::enable_raw_mode()?;
        io::stdout()
            .execute(terminal::EnterAlternateScreen)?
            .execute(cursor::Hide)?;
        mouse(true)?;
        let screen = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok((guard, screen))
    }
}

/// Makes the next frame draw everything on a cleared screen. Not by ratatui's `clear`, which asks the terminal where its
/// cursor is: the answer would go to whoever reads the input.
pub fn repaint<B: Backend>(terminal: &mut Terminal<B>) -> Result<(), B::Error> {
    let size = terminal.size()?;
    terminal.resize(Rect::new(0, 0, size.width, size.height))
}

/// Asks the terminal for the mouse, or leaves it to it. Buttons and wheel only (mode 1000), with places beyond column
/// 223 (mode 1006, xterm's control sequences): every movement, which crossterm's own command asks for, would wake the
/// tool for nothing.
pub fn mouse(on: bool) -> io::Result<()> {
    let sequence = if on {
        "\x1b[?1000h\x1b[?1006h"
    } else {
        "\x1b[?1006l\x1b[?1000l"
    };
    let mut out = io::stdout();
    out.write_all(sequence.as_bytes())?;
    out.flush()
}

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back, if it is taken. Errors are of no use here: there is nowhere left to show them.
pub fn restore() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = io::stdout();
    let _ = mouse(false);
    let _ = out
        .execute(terminal::LeaveAlternateScreen)
        .and_then(|out| out.execute(cursor::Show));
    let _ = terminal::disable_raw_mode();
    let _ = out.flush();
}
