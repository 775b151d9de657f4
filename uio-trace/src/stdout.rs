//! Standard output, and whether there is one.
//!
//! Where a caller has closed it (`>&-`), Rust's runtime opens /dev/null in its place before `main`, and all that is written is
//! lost with every sign of success. So it is looked at before that, by a function that the program names in `.init_array`.

use crate::error::AppError;
use std::{
    io::{self, StdoutLock},
    sync::atomic::{AtomicBool, Ordering},
};

/// It was closed when the program was started.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Looks whether there is a standard output. To be called before Rust's runtime is: it uses none of it.
pub extern "C" fn look() {
    // SAFETY: a system call on a number, which changes nothing.
    let closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } < 0;
    CLOSED.store(closed, Ordering::Relaxed);
}

/// Whether results can be written there; to be asked before anything is traced for them.
///
/// # Errors
/// [`AppError::Failed`]: it is closed.
pub fn check() -> Result<(), AppError> {
    if CLOSED.load(Ordering::Relaxed) {
        return Err(AppError::Failed(
            "standard output is closed, results would be lost: redirect it to a file, or to /dev/null if they are not wanted"
                .into(),
        ));
    }
    Ok(())
}

/// Standard output, to write to.
///
/// # Errors
/// As [`check`].
pub fn lock() -> Result<StdoutLock<'static>, AppError> {
    check()?;
    Ok(io::stdout().lock())
}
