//! `--trigger`: `FIGURE > DURATION`, and what to look at to know that it happened.

use crate::{
    event::{Event, EventKind},
    format::{self, printable},
    model::snapshot::{InProgress, Snapshot},
};
use std::{collections::HashSet, time::Duration};
use thiserror::Error;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// `aio.drain`: a drain of a process' AIO contexts, begin to end.
    AioDrain,
    /// `uio.wait`: a wait of a UIO operation for info_lock.
    UioWait,
    /// `ref.drain`: a percpu_ref, kill to release; owners whose release is traced.
    RefDrain,
    /// `stuck`: the age of what has begun and not ended.
    Stuck,
}

impl Figure {
    const ALL: [Figure; 4] = [Figure::AioDrain, Figure::UioWait, Figure::RefDrain, Figure::Stuck];

    fn name(self) -> &'static str {
        match self {
            Figure::AioDrain => "aio.drain",
            Figure::UioWait => "uio.wait",
            Figure::RefDrain => "ref.drain",
            Figure::Stuck => "stuck",
        }
    }
}

/// One expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trigger {
    /// What is compared.
    pub figure: Figure,
    /// It must be longer than this.
    pub threshold: Duration,
    text: String,
}

/// Why an expression means nothing: a message with the expression and a caret below the spot.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("--trigger: {what}\n  {expression}\n  {}^ {advice}", " ".repeat(*.column))]
pub struct TriggerError {
    /// What is wrong.
    pub what: &'static str,
    /// The expression; printable.
    pub expression: String,
    /// Columns before the spot.
    pub column: usize,
    /// What to give there.
    pub advice: &'static str,
}

impl Trigger {
    /// Reads `aio.drain > 1s`.
    ///
    /// # Errors
    /// [`TriggerError`] with the spot.
    pub fn parse(text: &str) -> Result<Trigger, TriggerError> {
        const FIGURES: &str = "give aio.drain, uio.wait, ref.drain or stuck";
        const COMPARE: &str = "give >";
        const LENGTH: &str = "give a length of time with its unit: 500us, 10ms, 1s";
        let wrong = |what, rest: &str, advice| TriggerError {
            what,
            expression: printable(text.to_owned()),
            column: format::width(&printable(text[..text.len() - rest.len()].to_owned())),
            advice,
        };
        let begin = text.trim_start();
        let word = begin.find(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '_');
        let (name, rest) = begin.split_at(word.unwrap_or(begin.len()));
        let figure = Figure::ALL.into_iter().find(|figure| figure.name() == name);
        let Some(figure) = figure else {
            let what = if name.is_empty() {
                "a figure is missing"
            } else {
                "there is no such figure"
            };
            return Err(wrong(what, begin, FIGURES));
        };
        let rest = rest.trim_start();
        let Some(length) = rest.strip_prefix('>') else {
            return Err(wrong("figures are compared with > only", rest, COMPARE));
        };
        let length = length.trim_start();
        let threshold = humantime::parse_duration(length.trim_end())
            .map_err(|_| wrong("this is not a length of time", length, LENGTH))?;
        Ok(Trigger {
            figure,
            threshold,
            text: format!("{} > {}", figure.name(), length.trim_end()),
        })
    }

    /// The expression, with its spaces in order.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn threshold_ns(&self) -> u64 {
        u64::try_from(self.threshold.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A trigger and what it found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The trigger's expression.
    pub trigger: String,
    /// In words; printable.
    pub what: String,
}

/// Looks for what triggers name.
#[derive(Debug, Default)]
pub struct Watch {
    triggers: Vec<Trigger>,
    found: Vec<Found>,
    /// What is stuck and was told already.
    stuck: HashSet<(String, String, u32, u32)>,
}

impl Watch {
    /// For these.
    pub fn new(triggers: Vec<Trigger>) -> Watch {
        Watch {
            triggers,
            ..Watch::default()
        }
    }

    fn of(&self, figure: Figure) -> impl Iterator<Item = &Trigger> {
        self.triggers.iter().filter(move |t| t.figure == figure)
    }

    /// Sees every event: slow UIO operations, of which a snapshot keeps the longest only.
    pub fn event(&mut self, event: &Event) {
        let EventKind::UioSlow(slow) = &event.kind else {
            return;
        };
        let found: Vec<Found> = self
            .of(Figure::UioWait)
            .filter(|trigger| slow.wait_ns > trigger.threshold_ns())
            .map(|trigger| Found {
                trigger: trigger.text.clone(),
                what: printable(format!(
                    "{} of uio{} by {} ({}) waited {}",
                    slow.op.name(),
                    slow.device.minor,
                    slow.by.comm,
                    slow.by.tgid,
                    format::duration(slow.wait_ns)
                )),
            })
            .collect();
        // One is enough to keep the trace; a flood of them need not be told one by one.
        if self.found.is_empty() {
            self.found.extend(found.into_iter().take(1));
        }
    }

    /// Sees the figures of the time since the last call, and gives what was found since then.
    pub fn look(&mut self, snapshot: &Snapshot) -> Vec<Found> {
        let mut found = std::mem::take(&mut self.found);
        for trigger in self.of(Figure::AioDrain) {
            let long = |wall_ns: u64| wall_ns > trigger.threshold_ns();
            found.extend(
                snapshot
                    .aio_drains
                    .iter()
                    .filter(|d| long(d.wall_ns))
                    .map(|drain| Found {
                        trigger: trigger.text.clone(),
                        what: format!(
                            "{} contexts of {} ({}) drained in {}",
                            drain.contexts,
                            drain.comm,
                            drain.tgid,
                            format::duration(drain.wall_ns)
                        ),
                    }),
            );
        }
        for trigger in self.of(Figure::RefDrain) {
            let long = |max: u64| max > trigger.threshold_ns();
            found.extend(
                snapshot
                    .ref_owners
                    .iter()
                    .filter(|r| long(r.drain_ns.max))
                    .map(|owner| Found {
                        trigger: trigger.text.clone(),
                        what: format!(
                            "{}: released {} after the kill",
                            owner.owner,
                            format::duration(owner.drain_ns.max)
                        ),
                    }),
            );
        }
        let key = |p: &InProgress| (p.subject.clone(), p.owner.clone(), p.tgid, p.tid);
        let mut stuck = HashSet::new();
        for trigger in self.of(Figure::Stuck) {
            // What began before the trace is at least as old as the trace; what may have ended is no reason.
            let age = |p: &InProgress| {
                p.age_ns
                    .unwrap_or(snapshot.interval.end_ns - snapshot.interval.start_ns)
            };
            let long = |p: &&InProgress| !p.uncertain && age(p) > trigger.threshold_ns();
            for open in snapshot.in_progress.iter().filter(long) {
                if stuck.insert(key(open)) && !self.stuck.contains(&key(open)) {
                    found.push(Found {
                        trigger: trigger.text.clone(),
                        what: format!(
                            "{} of {} ({}) has waited {} for {}",
                            open.owner,
                            open.comm,
                            open.tgid,
                            format::duration(age(open)),
                            open.phase
                        ),
                    });
                }
            }
        }
        self.stuck = stuck;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read() {
        for (text, figure, ms) in [
            ("aio.drain > 1s", Figure::AioDrain, 1000),
            ("uio.wait>10ms", Figure::UioWait, 10),
            ("  ref.drain  >  500ms ", Figure::RefDrain, 500),
            ("stuck > 1m 5s", Figure::Stuck, 65_000),
        ] {
            let trigger = Trigger::parse(text).unwrap();
            assert_eq!(
                (trigger.figure, trigger.threshold),
                (figure, Duration::from_millis(ms)),
                "{text}"
            );
        }
        assert_eq!(Trigger::parse(" stuck>5s ").unwrap().text(), "stuck > 5s");
    }

    #[test]
    fn an_error_points_at_the_spot() {
        for (text, column, what) in [
            ("", 0, "a figure is missing"),
            ("  > 1s", 2, "a figure is missing"),
            ("aio.drian > 1s", 0, "no such figure"),
            ("aio.drain", 9, "with > only"),
            ("aio.drain < 1s", 10, "with > only"),
            ("aio.drain >= 1s", 11, "length of time"),
            ("aio.drain > 1", 12, "length of time"),
            ("aio.drain > ", 12, "length of time"),
            ("aio.drain > 1s or stuck > 5s", 12, "length of time"),
            ("\u{78c1}\u{1b}[2J > 1s", 0, "a figure is missing"),
        ] {
            let error = Trigger::parse(text).unwrap_err();
            assert_eq!(error.column, column, "{text}");
            assert!(error.what.contains(what), "{text}: {error}");
            assert!(!error.to_string().contains('\u{1b}'));
        }
        let error = Trigger::parse("aio.drain = 1s").unwrap_err().to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines[1], "  aio.drain = 1s");
        assert_eq!(lines[2], "            ^ give >");
    }
}
