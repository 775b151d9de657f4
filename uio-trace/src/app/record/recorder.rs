//! What of the events goes into which file: all of them into one, rotating, or what led up to a trigger.

use super::{
    piece::{Piece, size},
    target::{PIECES, Target},
};
use crate::{
    config::RecordConfig,
    error::AppError,
    event::{Event, MonotonicNs},
    format,
    model::snapshot::Meta,
    recording::{Known, Mark, Ring, trigger::Found},
};
/// What a tick has brought about.
#[derive(Debug, Default)]
pub struct Tick {
    /// For the user.
    pub told: Option<String>,
    /// There is no more room.
    pub full: bool,
}

/// Writes what is to be kept.
pub struct Recorder {
    target: Target,
    meta: Meta,
    /// Bytes on disk at most.
    max_bytes: Option<u64>,
    /// All that was told, and the filter for what is told again.
    known: Known,
    ring: Option<Ring>,
    after_ns: u64,
    until_ns: MonotonicNs,
    piece: Option<Piece>,
    /// Bytes of the files that were ended.
    kept_bytes: u64,
    kept: u64,
}

impl Recorder {
    /// Begins.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn new(config: &RecordConfig, mut target: Target, meta: Meta) -> Result<Recorder, AppError> {
        let ring = config.ring.map(|length| Ring::new(ns(length), meta.started_ns));
        let piece = match ring {
            Some(_) => None,
            None => Some(Piece::begin(
                target.first(config.max_bytes.is_some())?,
                &meta,
                None,
            )?),
        };
        Ok(Recorder {
            target,
            meta,
            max_bytes: config.max_bytes,
            known: Known::default(),
            ring,
            after_ns: config.ring.map_or(0, ns),
            until_ns: 0,
            piece,
            kept_bytes: 0,
            kept: 0,
        })
    }

    /// Begins in the middle of a trace, of which `known` has been told until now; figures count from here.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn in_the_middle(
        mut target: Target,
        meta: &Meta,
        known: Known,
        now_ns: MonotonicNs,
    ) -> Result<Recorder, AppError> {
        let first = started_at(meta, now_ns, known.probes());
        let piece = Piece::begin(target.first(false)?, &first, Some((known.clone(), now_ns)))?;
        Ok(Recorder {
            target,
            meta: meta.clone(),
            max_bytes: None,
            known,
            ring: None,
            after_ns: 0,
            until_ns: 0,
            piece: Some(piece),
            kept_bytes: 0,
            kept: 0,
        })
    }

    /// What the trace has told until now.
    pub fn into_known(self) -> Known {
        self.known
    }

    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.kept_bytes + self.piece.as_ref().map_or(0, |piece| piece.bytes())
    }

    /// Takes an event.
    ///
    /// # Errors
    /// When the file cannot be written any more.
    pub fn event(&mut self, event: Event) -> Result<(), AppError> {
        let event = self.known.news(event);
        if let Some(piece) = &mut self.piece {
            piece.event(&event)?;
        }
        if let Some(ring) = &mut self.ring {
            ring.push(event);
        }
        Ok(())
    }

    /// Triggers have found something: keeps what led up to it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn found(&mut self, found: &[Found], now_ns: MonotonicNs) -> Result<Option<String>, AppError> {
        let (Some(ring), Some(first)) = (&self.ring, found.first()) else {
            return Ok(None);
        };
        let mut told = None;
        if self.piece.is_none() {
            let start_ns = ring.start_ns();
            let place = match self.kept {
                0 => self.target.first(false)?,
                _ => self.target.another()?,
            };
            told = Some(format!(
                "{}: {} ({})",
                place.0.display(),
                first.what,
                first.trigger
            ));
            let meta = started_at(&self.meta, start_ns, self.known.probes());
            let mut piece = Piece::begin(place, &meta, Some((ring.known().clone(), start_ns)))?;
            for event in ring.events() {
                piece.event(event)?;
            }
            self.piece = Some(piece);
            self.kept += 1;
        }
        if let Some(piece) = &mut self.piece {
            for found in found {
                piece.mark(&Mark {
                    ts_ns: now_ns,
                    trigger: found.trigger.clone(),
                    found: found.what.clone(),
                })?;
            }
        }
        self.until_ns = now_ns.saturating_add(self.after_ns);
        Ok(told)
    }

    /// Once a second: what is there goes into the file; files that are full or long enough are ended.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn tick(&mut self, now_ns: MonotonicNs) -> Result<Tick, AppError> {
        let mut tick = Tick::default();
        let Some(piece) = &mut self.piece else {
            return Ok(tick);
        };
        piece.flush()?;
        let bytes = piece.bytes();
        if self.ring.is_some() {
            tick.full = self.max_bytes.is_some_and(|max| self.kept_bytes + bytes >= max);
            if tick.full || now_ns >= self.until_ns {
                tick.told = self.end_piece()?;
            }
            return Ok(tick);
        }
        if self.max_bytes.is_some_and(|max| bytes >= max / u64::from(PIECES)) {
            self.end_piece()?;
            let place = self.target.rotate()?;
            let meta = started_at(&self.meta, now_ns, self.known.probes());
            self.piece = Some(Piece::begin(place, &meta, Some((self.known.clone(), now_ns)))?);
        }
        Ok(tick)
    }

    fn end_piece(&mut self) -> Result<Option<String>, AppError> {
        let Some(piece) = self.piece.take() else {
            return Ok(None);
        };
        self.kept_bytes += piece.bytes();
        piece.end().map(Some)
    }

    /// Ends all of it. What to tell the user.
    ///
    /// # Errors
    /// When the end cannot be written.
    pub fn finish(&mut self) -> Result<String, AppError> {
        let last = self.end_piece()?;
        Ok(match (self.ring.is_some(), last) {
            (false, last) => last.unwrap_or_default(),
            (true, _) if self.kept == 0 => "no trigger has found anything: nothing is kept".into(),
            (true, _) => format!(
                "{}: {} kept, {}",
                self.target.path().display(),
                format::plural(self.kept, "recording"),
                size(self.kept_bytes)
            ),
        })
    }
}

fn ns(length: std::time::Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

/// The record at the top of a file that begins later than the trace.
fn started_at(
    meta: &Meta,
    start_ns: MonotonicNs,
    probes: Option<&Vec<crate::model::snapshot::Probe>>,
) -> Meta {
    let later = start_ns.saturating_sub(meta.started_ns);
    let started = format::parse_rfc3339(&meta.started).map(|ns| format::rfc3339(ns.saturating_add(later)));
    Meta {
        started: started.unwrap_or_else(|| meta.started.clone()),
        started_ns: start_ns,
        probes: probes.cloned().unwrap_or_else(|| meta.probes.clone()),
        ..meta.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventKind, KernelPtr, Task};
    use crate::recording::{Record, read};
    use std::path::Path;
    use std::path::PathBuf;
    use std::time::Duration;

    const SECOND: u64 = 1_000_000_000;

    fn meta() -> Meta {
        Meta {
            schema_version: 1,
            tool: "uio-trace".into(),
            host: "h".into(),
            kernel: "k".into(),
            boot_id: String::new(),
            started: "2026-01-01T00:00:00Z".into(),
            started_ns: SECOND,
            probes: Vec::new(),
            rcu: Default::default(),
        }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("uio-trace-recorder-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        folder
    }

    fn start(folder: &Path, config: RecordConfig) -> Recorder {
        let config = RecordConfig {
            file: folder.join("a"),
            ..config
        };
        let target = Target::claim(&config.file, false, config.rotates()).unwrap();
        Recorder::new(&config, target, meta()).unwrap()
    }

    fn event(ts_ns: u64, kind: EventKind) -> Event {
        Event { ts_ns, kind }
    }

    fn symbol() -> Event {
        let kind = EventKind::Symbol {
            addr: KernelPtr(1),
            name: "free_ioctx_users".into(),
            module: None,
        };
        event(SECOND, kind)
    }

    /// A kill whose name does not pack: numbers that look random.
    fn kill(n: u64) -> Event {
        let noise = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let kind = EventKind::RefKill {
            by: Task {
                tgid: noise as u32,
                tid: (noise >> 32) as u32,
                comm: format!("{noise:x}"),
            },
            reference: KernelPtr(noise),
            release: KernelPtr(1),
            confirm: None,
            already_atomic: false,
            already_dead: false,
            references: None,
            stack: None,
        };
        event(SECOND + n * 1_000_000, kind)
    }

    fn records(path: &Path) -> Vec<Record> {
        read(path).unwrap().map(Result::unwrap).collect()
    }

    fn events(records: &[Record]) -> Vec<&Event> {
        let mut events = Vec::new();
        for record in records {
            if let Record::Event(event) = record {
                events.push(event);
            }
        }
        events
    }

    #[test]
    fn rotating_keeps_the_latest_within_the_size_and_each_file_is_whole() {
        let folder = folder("rotating");
        let max = 400 << 10;
        let mut recorder = start(
            &folder,
            RecordConfig {
                max_bytes: Some(max),
                ..RecordConfig::default()
            },
        );
        recorder.event(symbol()).unwrap();
        for n in 0..40_000 {
            recorder.event(kill(n)).unwrap();
            if n % 500 == 0 {
                recorder.tick(SECOND + n * 1_000_000).unwrap();
            }
        }
        recorder.finish().unwrap();
        let paths = ["a.3", "a.2", "a.1", "a"].map(|name| folder.join(name));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), paths.len());
        let total: u64 = paths.iter().map(|path| path.metadata().unwrap().len()).sum();
        assert!(total < max + (64 << 10) && total > max / 2, "{total} of {max}");
        let mut kept = Vec::new();
        for path in &paths {
            let records = records(path);
            assert!(matches!(&records[0], Record::Meta(meta) if meta.started_ns > SECOND));
            assert_eq!(records.last(), Some(&Record::End));
            let events = events(&records);
            assert!(
                matches!(events[0].kind, EventKind::Symbol { .. }),
                "each knows the symbols"
            );
            kept.extend(events[1..].iter().map(|event| event.ts_ns));
        }
        let expected: Vec<u64> = (0..40_000).map(|n| SECOND + n * 1_000_000).collect();
        assert!(expected.ends_with(&kept), "the latest, without a hole");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    fn found() -> Found {
        Found {
            trigger: "aio.drain > 1s".into(),
            what: "2 contexts of a (1) drained in 2 s".into(),
        }
    }

    #[test]
    fn a_trigger_keeps_what_was_before_and_comes_after_and_then_it_goes_on() {
        let folder = folder("ring");
        let mut recorder = start(
            &folder,
            RecordConfig {
                ring: Some(Duration::from_secs(3)),
                ..RecordConfig::default()
            },
        );
        recorder.event(symbol()).unwrap();
        for second in 2..=60 {
            let now = second * SECOND;
            recorder.event(event(now, EventKind::Tick)).unwrap();
            if [20, 22, 50].contains(&second) {
                recorder.found(&[found()], now).unwrap();
            }
            recorder.tick(now).unwrap();
        }
        assert!(recorder.finish().unwrap().contains("2 recordings kept"));
        // The second trigger fell into the time after the first and made it longer.
        for (name, first, last, marks) in [("a", 17, 25, 2), ("a.2", 47, 53, 1)] {
            let records = records(&folder.join(name));
            let ticks: Vec<u64> = events(&records)
                .iter()
                .filter(|event| event.kind == EventKind::Tick)
                .map(|event| event.ts_ns / SECOND)
                .collect();
            assert_eq!(ticks, (first..=last).collect::<Vec<_>>(), "{name}");
            let Record::Meta(meta) = &records[0] else {
                panic!("{:?}", records[0])
            };
            assert_eq!(meta.started_ns, (first - 1) * SECOND);
            let started = format::rfc3339(1_767_225_600 * SECOND + (first - 2) * SECOND);
            assert_eq!(meta.started, started);
            let count = records.iter().filter(|r| matches!(r, Record::Mark(_))).count();
            assert_eq!(count, marks, "{name}");
            assert!(
                events(&records)
                    .iter()
                    .any(|e| matches!(e.kind, EventKind::Symbol { .. }))
            );
            assert_eq!(records.last(), Some(&Record::End));
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn without_a_trigger_nothing_stays() {
        let folder = folder("quiet");
        let mut recorder = start(
            &folder,
            RecordConfig {
                ring: Some(Duration::from_secs(3)),
                ..RecordConfig::default()
            },
        );
        recorder.event(symbol()).unwrap();
        recorder.tick(SECOND).unwrap();
        assert!(recorder.finish().unwrap().contains("nothing is kept"));
        drop(recorder);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn triggers_stop_at_the_size() {
        let folder = folder("size");
        let mut recorder = start(
            &folder,
            RecordConfig {
                ring: Some(Duration::from_secs(1)),
                max_bytes: Some(20 << 10),
                ..RecordConfig::default()
            },
        );
        let mut full = false;
        for n in 0..20_000 {
            recorder.event(kill(n)).unwrap();
            if n % 500 == 0 {
                recorder.found(&[found()], n * 1_000_000).unwrap();
                full = recorder.tick(n * 1_000_000).unwrap().full;
                if full {
                    break;
                }
            }
        }
        assert!(full);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
