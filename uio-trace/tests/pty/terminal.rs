//! A pseudo-terminal with a screen behind it, and programs in it.

use crate::made_up::{MODE, PATIENCE};
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// An end must come within this.
const QUIT: Duration = Duration::from_secs(5);
/// Size of a terminal where it does not matter: columns, rows.
pub const SIZE: (u16, u16) = (80, 24);

/// A pseudo-terminal, and what is on it.
pub struct Terminal {
    master: Option<Arc<File>>,
    slave: OwnedFd,
    before: libc::termios,
    screen: Arc<Mutex<vt100::Parser>>,
    ending: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

fn attributes(fd: RawFd) -> libc::termios {
    // SAFETY: all zeros is a value of this struct of integers.
    let mut found = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is a termios for the call to fill.
    assert_eq!(unsafe { libc::tcgetattr(fd, &raw mut found) }, 0);
    found
}

impl Terminal {
    pub fn open((columns, rows): (u16, u16)) -> Terminal {
        // Not openpty(3), which cannot close on exec: a child must not keep another test's terminal open.
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        // SAFETY: plain flags; the result is checked.
        let master = unsafe { libc::posix_openpt(flags) };
        assert!(master >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: a new descriptor that nobody else owns.
        let master = unsafe { File::from_raw_fd(master) };
        // SAFETY: an open pseudo-terminal; unlocked, its other side can be asked for.
        let slave = unsafe {
            assert_eq!(libc::unlockpt(master.as_raw_fd()), 0);
            libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags)
        };
        assert!(slave >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: a new descriptor that nobody else owns.
        let slave = unsafe { OwnedFd::from_raw_fd(slave) };
        set_size(&master, columns, rows);

        // Not what a terminal usually is: "as before" must not be "sane".
        let mut unusual = attributes(slave.as_raw_fd());
        unusual.c_cc[libc::VERASE] = 8;
        unusual.c_lflag &= !libc::ECHOK;
        unusual.c_iflag |= libc::IXANY;
        // SAFETY: an open terminal and whole attributes.
        let set = unsafe { libc::tcsetattr(slave.as_raw_fd(), libc::TCSANOW, &raw const unusual) };
        assert_eq!(set, 0);

        let master = Arc::new(master);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(cells(rows), cells(columns), 0)));
        let ending = Arc::new(AtomicBool::new(false));
        let reader = std::thread::spawn({
            let (master, screen, ending) = (master.clone(), screen.clone(), ending.clone());
            move || read(&master, &screen, &ending)
        });
        Terminal {
            master: Some(master),
            before: attributes(slave.as_raw_fd()),
            slave,
            screen,
            ending,
            reader: Some(reader),
        }
    }

    pub fn spawn(&self, command: &mut Command) -> Child {
        let stdio = || self.slave.try_clone().unwrap();
        command.stdin(stdio()).stdout(stdio()).stderr(stdio());
        // SAFETY: both calls are async-signal-safe; the terminal is descriptor 0 by then.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            })
        };
        command.spawn().unwrap()
    }

    /// The screens, over made-up events.
    pub fn start(&self, mode: &str) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(MODE, mode)
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            // With one, the end of a panic is long in coming.
            .env("RUST_BACKTRACE", "0")
            .env_remove("NO_COLOR")
            .current_dir(std::env::temp_dir());
        self.spawn(&mut command)
    }

    pub fn parser(&self) -> MutexGuard<'_, vt100::Parser> {
        self.screen.lock().unwrap()
    }

    /// Waits until the screen is as wanted.
    #[track_caller]
    pub fn wait(&self, what: &str, wanted: impl Fn(&vt100::Screen) -> bool) {
        let begin = Instant::now();
        while !wanted(self.parser().screen()) {
            let shown = self.parser().screen().contents();
            assert!(begin.elapsed() < PATIENCE, "no {what} on:\n{shown}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for a text on the screens.
    #[track_caller]
    pub fn shows(&self, text: &str) {
        self.wait(text, |screen| {
            screen.alternate_screen() && screen.contents().contains(text)
        });
    }

    pub fn press(&self, keys: &str) {
        self.master
            .as_ref()
            .unwrap()
            .as_ref()
            .write_all(keys.as_bytes())
            .unwrap();
    }

    pub fn resize(&self, (columns, rows): (u16, u16)) {
        self.parser().screen_mut().set_size(cells(rows), cells(columns));
        set_size(self.master.as_ref().unwrap(), columns, rows);
    }

    /// Its attributes now.
    pub fn attributes(&self) -> libc::termios {
        attributes(self.slave.as_raw_fd())
    }

    /// The terminal is as if nothing had been: attributes, main screen, cursor.
    #[track_caller]
    pub fn is_as_before(&self) {
        let (before, after) = (&self.before, self.attributes());
        assert_eq!(before.c_iflag, after.c_iflag);
        assert_eq!(before.c_oflag, after.c_oflag);
        assert_eq!(before.c_cflag, after.c_cflag);
        assert_eq!(before.c_lflag, after.c_lflag);
        assert_eq!(before.c_cc, after.c_cc);
        self.wait("main screen with a cursor", |screen| {
            !screen.alternate_screen()
                && !screen.hide_cursor()
                && screen.mouse_protocol_mode() == vt100::MouseProtocolMode::None
        });
    }

    /// Nobody is at the terminal any more.
    pub fn hang_up(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.master = None;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.hang_up();
    }
}

fn cells(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).unwrap()
}

fn set_size(terminal: &File, columns: u16, rows: u16) {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: an open terminal and a whole winsize.
    let set = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    assert_eq!(set, 0);
}

/// What the terminal prints, to its screen.
fn read(master: &File, screen: &Mutex<vt100::Parser>, ending: &AtomicBool) {
    let mut bytes = [0; 4096];
    while !ending.load(Ordering::SeqCst) {
        let mut poll = libc::pollfd {
            fd: master.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one whole pollfd.
        if unsafe { libc::poll(&raw mut poll, 1, 20) } > 0 {
            let mut master = master;
            match master.read(&mut bytes) {
                Ok(count) => screen.lock().unwrap().process(&bytes[..count]),
                Err(_) => return,
            }
        }
    }
}

pub fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: a child that has not been waited for, so its id is its own.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
}

/// Waits for the end, which must come soon.
#[track_caller]
pub fn ended(child: &mut Child) -> ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begin.elapsed() > QUIT {
            let _ = child.kill();
            let _ = child.wait();
            panic!("still running after {QUIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Presses an SGR mouse button (xterm: mode 1006), places from 1.
pub fn click(terminal: &Terminal, column: u16, row: u16) {
    terminal.press(&format!("\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m"));
}

/// Place of a text on the screen, from 1.
#[track_caller]
pub fn place(terminal: &Terminal, text: &str) -> (u16, u16) {
    terminal.shows(text);
    let parser = terminal.parser();
    let rows: Vec<String> = parser.screen().rows(0, SIZE.0).collect();
    let found = rows.iter().zip(1..).find_map(|(row, y)| {
        let at = row.find(text)?;
        Some((row[..at].chars().count() as u16 + 1, y))
    });
    found.unwrap()
}
