//! The screens' own recordings: begun and ended by a key, in the middle of a trace.

use super::{piece::size, recorder::Recorder, target::Target};
use crate::{
    app::meta::rfc3339_now,
    error::AppError,
    event::{Event, MonotonicNs},
    model::snapshot::Meta,
    recording::Known,
};
use std::path::PathBuf;

/// Sees every event, and writes those between two presses of the key.
pub struct LiveRecording {
    meta: Meta,
    /// What a file that begins now must tell first; while one is written, its recorder keeps that.
    known: Known,
    recorder: Option<Recorder>,
    now_ns: MonotonicNs,
    failed: Option<AppError>,
}

impl LiveRecording {
    /// Of the trace that this record is about.
    pub fn new(meta: Meta) -> LiveRecording {
        LiveRecording {
            now_ns: meta.started_ns,
            meta,
            known: Known::default(),
            recorder: None,
            failed: None,
        }
    }

    /// Takes an event in.
    pub fn event(&mut self, event: &Event) {
        self.now_ns = self.now_ns.max(event.ts_ns);
        let Some(recorder) = &mut self.recorder else {
            self.known.learn(event);
            return;
        };
        if let Err(error) = recorder.event(event.clone()) {
            self.fail(error);
        }
    }

    fn fail(&mut self, error: AppError) {
        if let Some(recorder) = self.recorder.take() {
            self.known = recorder.into_known();
        }
        self.failed = Some(error);
    }

    /// The key was hit: begins a file in the current folder, or ends the one that is written. What to tell the user.
    pub fn toggle(&mut self) -> String {
        match self.end() {
            Some(told) => told,
            None => self.begin().map_or_else(
                |error| format!("not recorded: {error}"),
                |path| format!("recording to {}; r ends it", path.display()),
            ),
        }
    }

    fn begin(&mut self) -> Result<PathBuf, AppError> {
        let name = format!(
            "uio-trace-{}-{}.rec",
            self.meta.host.replace('/', "_"),
            rfc3339_now().replace(':', "")
        );
        let target = Target::claim(name.as_ref(), false, false)?;
        let path = target.path().to_owned();
        self.recorder = Some(Recorder::in_the_middle(
            target,
            &self.meta,
            self.known.clone(),
            self.now_ns,
        )?);
        Ok(path)
    }

    /// Ends the file that is written, if one is. What to tell the user.
    pub fn end(&mut self) -> Option<String> {
        let mut recorder = self.recorder.take()?;
        let told = match recorder.finish() {
            Ok(told) => format!("recorded: {told}"),
            Err(error) => format!("recorded in part: {error}"),
        };
        self.known = recorder.into_known();
        Some(told)
    }

    /// Once a second: what is there goes to the disk. When the file cannot be written any more, it is ended and the reason
    /// given, once.
    pub fn tick(&mut self) -> Option<String> {
        if let Some(recorder) = &mut self.recorder
            && let Err(error) = recorder.tick(self.now_ns)
        {
            self.fail(error);
        }
        self.failed
            .take()
            .map(|error| format!("recording has ended: {error}"))
    }

    /// Size of the file that is written, in words.
    pub fn shown(&self) -> Option<String> {
        self.recorder.as_ref().map(|recorder| size(recorder.bytes()))
    }
}
