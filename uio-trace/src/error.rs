//! What ends the program, and with which exit code.

use thiserror::Error;

/// An end other than success. The text tells what failed, on what, why, and what to do next.
#[derive(Debug, Error)]
pub enum AppError {
    /// Something failed: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// The command line means nothing: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// This user may not: exit code 3.
    #[error("{0}")]
    NotPermitted(String),
    /// This kernel cannot: exit code 4.
    #[error("{0}")]
    Kernel(String),
    /// The command that was to be run: its own status, or 126 or 127 with why it could not be started.
    #[error("{}", message.as_deref().unwrap_or("the command failed"))]
    Command {
        /// `None`: it has said itself what it had to say.
        message: Option<String>,
        /// The exit code.
        status: u8,
    },
    /// Who read our output went away: nothing to say, exit code 0.
    #[error("output closed")]
    OutputClosed,
}

impl AppError {
    /// Whether there is something to tell.
    pub fn is_told(&self) -> bool {
        !matches!(
            self,
            AppError::OutputClosed | AppError::Command { message: None, .. }
        )
    }

    /// The exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            AppError::Failed(_) => 1,
            AppError::Usage(_) => 2,
            AppError::NotPermitted(_) => 3,
            AppError::Kernel(_) => 4,
            AppError::Command { status, .. } => *status,
            AppError::OutputClosed => 0,
        }
    }
}

/// A failed write: closed by its reader, or really failed.
impl From<std::io::Error> for AppError {
    fn from(error: std::io::Error) -> AppError {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            AppError::OutputClosed
        } else {
            AppError::Failed(format!("writing to standard output failed: {error}"))
        }
    }
}

impl From<crate::probes::session::SessionError> for AppError {
    fn from(error: crate::probes::session::SessionError) -> AppError {
        AppError::Failed(error.to_string())
    }
}
