//! The terminal in front of the harness: its size, raw mode with its restoration, and changes of size.

use std::io::IsTerminal;
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

/// Whether someone sits in front of both ends.
pub fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Rows and columns; 24 by 80 where that is not known.
pub fn size() -> (u16, u16) {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ writes one winsize.
    let result = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) };
    if result == 0 && size.ws_row > 0 && size.ws_col > 0 {
        (size.ws_row, size.ws_col)
    } else {
        (24, 80)
    }
}

static RESIZED: AtomicBool = AtomicBool::new(false);
static ENDED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_resize(_: libc::c_int) {
    RESIZED.store(true, Ordering::Relaxed);
}

extern "C" fn note_end(_: libc::c_int) {
    ENDED.store(true, Ordering::Relaxed);
}

/// Whether SIGTERM or SIGHUP asked this process to end while the terminal was raw.
pub fn asked_to_end() -> bool {
    ENDED.load(Ordering::Relaxed)
}

/// The terminal in raw mode; every key goes to the guest. Restored when dropped.
pub struct Raw {
    before: libc::termios,
}

impl Raw {
    /// Enters raw mode. SIGTERM and SIGHUP are noted instead of ending this process with the terminal raw.
    pub fn enter() -> Result<Raw> {
        let mut settings = MaybeUninit::<libc::termios>::uninit();
        // SAFETY: tcgetattr fills the settings, which are used only if it succeeded; the handlers only store
        // to atomics.
        unsafe {
            if libc::tcgetattr(libc::STDIN_FILENO, settings.as_mut_ptr()) != 0 {
                return Err(std::io::Error::last_os_error()).context("cannot read the terminal's settings");
            }
            let before = settings.assume_init();
            let mut raw = before;
            libc::cfmakeraw(&mut raw);
            let noted: extern "C" fn(libc::c_int) = note_end;
            libc::signal(libc::SIGTERM, noted as libc::sighandler_t);
            libc::signal(libc::SIGHUP, noted as libc::sighandler_t);
            let resized: extern "C" fn(libc::c_int) = note_resize;
            libc::signal(libc::SIGWINCH, resized as libc::sighandler_t);
            if libc::tcsetattr(libc::STDIN_FILENO, libc::TCSADRAIN, &raw) != 0 {
                return Err(std::io::Error::last_os_error()).context("cannot set the terminal");
            }
            Ok(Raw { before })
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: the settings were read from this terminal.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSADRAIN, &self.before) };
        // Leave the alternate screen, show the cursor, plain colours, no mouse: the guest may have ended in the middle.
        println!("\x1b[?1049l\x1b[?25h\x1b[0m\x1b[?1006l\x1b[?1000l\r");
    }
}

/// Sends every new size of the terminal into the guest's control port, until this process ends.
pub fn forward_size(socket: PathBuf) {
    std::thread::spawn(move || {
        let mut stream: Option<UnixStream> = None;
        loop {
            // A signal handler may only set a flag, so it is looked at often enough to seem immediate.
            std::thread::sleep(Duration::from_millis(150));
            if !RESIZED.swap(false, Ordering::Relaxed) {
                continue;
            }
            if stream.is_none() {
                stream = UnixStream::connect(&socket).ok();
            }
            let (rows, columns) = size();
            let line = format!("{rows} {columns}\n");
            let sent = stream.as_mut().is_some_and(|stream| {
                use std::io::Write;
                stream.write_all(line.as_bytes()).is_ok()
            });
            if !sent {
                stream = None;
            }
        }
    });
}
