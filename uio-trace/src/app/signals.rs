//! SIGINT, SIGTERM and SIGHUP end a run well; a second one ends it at once.

use crate::error::AppError;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask for an end.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Stop {
    /// # Errors
    /// When handlers cannot be installed.
    pub fn new() -> Result<Stop, AppError> {
        let listen = |kind| {
            signal(kind).map_err(|e| AppError::Failed(format!("signal handlers could not be installed: {e}")))
        };
        Ok(Stop {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for one.
    pub async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP have their default effect: they end the process at once, and the kernel
/// detaches everything with its descriptors.
pub fn end_at_once_from_now() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: SIG_DFL is a valid disposition for these signals.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
