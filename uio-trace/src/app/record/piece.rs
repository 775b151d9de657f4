//! One file of a recording while it is written: whole up to the last frame, whatever fails.

use crate::{
    error::AppError,
    event::{Event, MonotonicNs},
    format,
    model::snapshot::Meta,
    recording::{Known, Mark, Writer},
};
use std::{fs::File, path::PathBuf};

/// A file that is being written.
pub(super) struct Piece {
    path: PathBuf,
    writer: Writer<File>,
    /// What its absolute figures count from; `None`: from the begin of the trace.
    base: Option<(Known, MonotonicNs)>,
}

impl Piece {
    /// Begins a file. Where even its begin cannot be written, no file stays.
    pub(super) fn begin(
        (path, file): (PathBuf, File),
        meta: &Meta,
        base: Option<(Known, MonotonicNs)>,
    ) -> Result<Piece, AppError> {
        let writer = match Writer::new(file, meta) {
            Ok(writer) => writer,
            Err(error) => {
                let _ = std::fs::remove_file(&path);
                return Err(AppError::Failed(format!(
                    "{}: {error}; nothing is kept",
                    path.display()
                )));
            }
        };
        let mut piece = Piece { path, writer, base };
        let told = piece.base.as_ref().map(|(known, start_ns)| known.tell(*start_ns));
        for event in told.into_iter().flatten() {
            let written = piece.writer.event(&event);
            piece.check(written)?;
        }
        Ok(piece)
    }

    /// Bytes written.
    pub(super) fn bytes(&self) -> u64 {
        self.writer.bytes()
    }

    /// Takes an event; its absolute figures count from the begin of the file.
    pub(super) fn event(&mut self, event: &Event) -> Result<(), AppError> {
        let written = match &self.base {
            Some((known, start_ns)) => self.writer.event(&known.since(event.clone(), *start_ns)),
            None => self.writer.event(event),
        };
        self.check(written)
    }

    /// Notes what a trigger has found.
    pub(super) fn mark(&mut self, mark: &Mark) -> Result<(), AppError> {
        let written = self.writer.mark(mark);
        self.check(written)
    }

    /// What was taken goes to the file.
    pub(super) fn flush(&mut self) -> Result<(), AppError> {
        let written = self.writer.flush();
        self.check(written)
    }

    /// After a failure: what is whole stays, without half a frame behind it.
    fn check(&self, written: Result<(), crate::recording::RecordingError>) -> Result<(), AppError> {
        written.map_err(|error| {
            let _ = self.writer.output().set_len(self.writer.bytes());
            AppError::Failed(format!(
                "{}: {error}; what it holds until then can be replayed",
                self.path.display()
            ))
        })
    }

    /// Ends it well. The sentence for the user.
    pub(super) fn end(self) -> Result<String, AppError> {
        let (path, length) = (self.path, self.writer.bytes());
        let events = self.writer.events();
        let end = |writer: Writer<File>| {
            let output = writer.output().try_clone();
            let result = writer.end().and_then(|file| {
                // A network's file system may refuse only now.
                file.sync_all()
                    .map_err(|cause| crate::recording::RecordingError::Io {
                        what: "writing the recording",
                        cause,
                    })?;
                Ok(file.metadata().map_or(length, |meta| meta.len()))
            });
            if let (Err(_), Ok(output)) = (&result, output) {
                let _ = output.set_len(length);
            }
            result
        };
        match end(self.writer) {
            Ok(bytes) => Ok(format!(
                "{}: {}, {}",
                path.display(),
                format::plural(events, "event"),
                size(bytes)
            )),
            Err(error) => Err(AppError::Failed(format!(
                "{}: {error}; what it holds until then can be replayed",
                path.display()
            ))),
        }
    }
}

/// `1.2 MiB`
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format::plural(bytes, "byte"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_target_is_one_sentence_and_no_file() {
        let folder = std::env::temp_dir().join(format!("uio-trace-piece-full-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let meta = Meta {
            schema_version: 1,
            tool: "uio-trace".into(),
            host: "h".into(),
            kernel: "k".into(),
            boot_id: String::new(),
            started: "2026-01-01T00:00:00Z".into(),
            started_ns: 1_000_000_000,
            probes: Vec::new(),
            rcu: Default::default(),
        };
        let path = folder.join("a");
        std::fs::write(&path, "").unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let Err(error) = Piece::begin((path.clone(), full), &meta, None) else {
            panic!("written to a full disk")
        };
        assert_eq!(error.exit_code(), 1);
        let text = error.to_string();
        assert!(
            text.contains("No space left") && text.lines().count() == 1,
            "{text}"
        );
        assert!(!path.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
