//! What the interface knows: the snapshot, where the user is, and what the terminal can do. Only
//! [`super::update`] changes it.

use super::view::uio::DeviceRow;
use crate::model::snapshot::{Meta, Snapshot};
use std::sync::Arc;

/// Smallest terminal in which the screens are usable: columns, rows.
pub const MINIMUM_SIZE: (u16, u16) = (60, 15);

/// Rows above the body (header) and below it (hints).
pub const HEADER_ROWS: u16 = 2;
/// The last line.
pub const FOOTER_ROWS: u16 = 1;

/// The screens, in the order of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    /// Findings and what is in progress.
    Overview,
    /// UIO devices.
    Uio,
    /// percpu_ref owners.
    Refs,
    /// AIO drains.
    Aio,
    /// Probes and losses.
    Probes,
}

impl Screen {
    /// All of them.
    pub const ALL: [Screen; 5] = [
        Screen::Overview,
        Screen::Uio,
        Screen::Refs,
        Screen::Aio,
        Screen::Probes,
    ];

    /// Position in [`Screen::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// In the header.
    pub fn title(self) -> &'static str {
        match self {
            Screen::Overview => "Overview",
            Screen::Uio => "UIO",
            Screen::Refs => "Refs",
            Screen::Aio => "AIO",
            Screen::Probes => "Probes",
        }
    }
}

/// What the terminal can do, from the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalFacts {
    /// Colours are wanted (no NO_COLOR) and to be expected.
    pub colour: bool,
    /// The locale's encoding is UTF-8, and the terminal has the signs.
    pub unicode: bool,
    /// Cannot place the cursor (TERM=dumb or none): no interface here, only text.
    pub dumb: bool,
}

impl TerminalFacts {
    /// Asks `var` for LC_ALL, LC_CTYPE, LANG, NO_COLOR and TERM.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> TerminalFacts {
        let set = |name: &str| var(name).filter(|value| !value.is_empty());
        let locale = set("LC_ALL")
            .or_else(|| set("LC_CTYPE"))
            .or_else(|| set("LANG"))
            .unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let term = set("TERM").unwrap_or_default();
        TerminalFacts {
            colour: set("NO_COLOR").is_none() && !term.starts_with("vt1") && !term.ends_with("-m"),
            // The Linux console's font has a few hundred signs; most of ours are not among them.
            unicode: (locale.contains("utf-8") || locale.contains("utf8")) && term != "linux",
            dumb: term.is_empty() || term == "dumb",
        }
    }

    /// Of this process.
    pub fn from_env() -> TerminalFacts {
        Self::from_vars(|name| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()))
    }
}

/// Identity of a row. Rows move when figures change; the selection follows the identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowId {
    /// A finding: name and subject.
    Finding(String, String),
    /// Something in progress: subject, owner, process, thread, and when it began (CLOCK_MONOTONIC, ns; `None`: before
    /// the trace).
    InProgress(String, String, u32, u32, Option<u64>),
    /// A UIO device: minor and generation.
    Device(u32, u32),
    /// A percpu_ref owner: release symbol.
    Owner(String),
    /// A drain's number.
    Drain(u64),
    /// A probe: subject and hook.
    Probe(String, String),
}

/// The selected row. The position tells rows with the same identity apart, and where to stay when the row is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Which.
    pub id: RowId,
    /// Where it is in the list.
    pub position: usize,
    /// The list has it. If not, it is waited for: no other row is selected in its place.
    pub listed: bool,
}

/// The part of a drain's time that its waterfall shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Zoom {
    /// The whole divided by two to the power of this.
    pub power: u8,
    /// Begin of the part, from the drain's begin, ns.
    pub from_ns: u64,
}

/// An opened row.
#[derive(Debug, Clone)]
pub struct Detail {
    /// Which.
    pub id: RowId,
    /// The last snapshot that had it: a drain leaves the bounded list while somebody looks at it.
    pub snapshot: Arc<Snapshot>,
    /// The shown snapshot no longer has it.
    pub left: bool,
    /// Selected operation or context, or first line of a text.
    pub cursor: usize,
    /// First visible operation or context, if the selected one is then in view.
    pub top: usize,
    /// Of a drain's waterfall.
    pub zoom: Zoom,
    /// Page of the long form, from 1; 0: the short form, which has the most important in one page.
    pub page: usize,
}

impl Detail {
    /// A row as of a snapshot that has it.
    pub fn new(id: RowId, snapshot: Arc<Snapshot>) -> Detail {
        Detail {
            id,
            snapshot,
            left: false,
            cursor: 0,
            top: 0,
            zoom: Zoom::default(),
            page: 0,
        }
    }
}

/// How a screen's list is shown.
#[derive(Debug, Clone, Default)]
pub struct TableView {
    /// Column sorted by.
    pub sort_column: usize,
    /// Largest first.
    pub descending: bool,
    /// Only rows with this text; empty: all.
    pub filter: String,
    /// The selected row.
    pub selection: Option<Selection>,
    /// First visible row, if the selected one is then in view.
    pub top: usize,
    /// The opened row.
    pub detail: Option<Detail>,
    /// Positions in the snapshot's list, filtered and sorted.
    pub order: Vec<usize>,
    /// Rows before filtering.
    pub total: usize,
}

/// Where a replay is in its recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// From the recording's begin, ns.
    pub position_ns: u64,
    /// Of the recording, ns.
    pub length_ns: u64,
    /// Stopped.
    pub paused: bool,
    /// Recorded seconds per second.
    pub speed: f64,
    /// What else is to be said: where it ends, what is missing.
    pub note: String,
}

/// Everything the screens are drawn from.
#[derive(Debug)]
pub struct State {
    /// The terminal.
    pub facts: TerminalFacts,
    /// Its size: columns, rows.
    pub size: (u16, u16),
    /// Host, kernel, start.
    pub meta: Meta,
    /// The newest snapshot.
    pub live: Option<Arc<Snapshot>>,
    /// The one the display was frozen at.
    pub frozen: Option<Arc<Snapshot>>,
    /// Operations and events per second, of the newest snapshot.
    pub rate: Option<f64>,
    /// CPU time the tool costs, as a share of one CPU; `None`: not known.
    pub own_cost: Option<f64>,
    /// Memory it holds, bytes; `None`: not known.
    pub own_memory: Option<u64>,
    /// Clicks and the wheel come to the screens, not to the terminal's own selection of text.
    pub mouse: bool,
    /// Size in words of the recording that is written; `None`: none is.
    pub recording: Option<String>,
    /// Of a replay; `None`: a running trace.
    pub timeline: Option<Timeline>,
    /// The screen shown.
    pub screen: Screen,
    /// Each screen's list.
    pub views: [TableView; 5],
    /// The overview's findings, filtered: positions in the snapshot's list.
    pub findings: Vec<usize>,
    /// The UIO screen's rows, made once for each snapshot because they merge histograms.
    pub devices: Vec<DeviceRow>,
    /// percpu_refs of the tool itself are shown.
    pub show_own: bool,
    /// First line of the help, when it is shown.
    pub help: Option<usize>,
    /// While a filter is typed: what it was before.
    pub filter_before: Option<String>,
    /// What the last action brought about.
    pub message: Option<String>,
}

impl State {
    /// Before the first snapshot.
    pub fn new(meta: Meta, facts: TerminalFacts, size: (u16, u16)) -> State {
        let mut state = State {
            facts,
            size,
            meta,
            live: None,
            frozen: None,
            rate: None,
            own_cost: None,
            own_memory: None,
            mouse: true,
            recording: None,
            timeline: None,
            screen: Screen::Overview,
            views: Default::default(),
            findings: Vec::new(),
            devices: Vec::new(),
            show_own: false,
            help: None,
            filter_before: None,
            message: None,
        };
        for screen in Screen::ALL {
            let (column, descending) = super::arrange::default_sort(screen);
            let view = &mut state.views[screen.index()];
            view.sort_column = column;
            view.descending = descending;
        }
        state
    }

    /// The snapshot the screens show.
    pub fn shown(&self) -> Option<&Arc<Snapshot>> {
        self.frozen.as_ref().or(self.live.as_ref())
    }

    /// The selected row's place, when the list has it.
    pub fn selected(&self) -> Option<usize> {
        let selection = self.view().selection.as_ref();
        selection.filter(|s| s.listed).map(|s| s.position)
    }

    /// The current screen's list.
    pub fn view(&self) -> &TableView {
        &self.views[self.screen.index()]
    }

    /// The current screen's list, to change it.
    pub fn view_mut(&mut self) -> &mut TableView {
        &mut self.views[self.screen.index()]
    }

    /// Whether there is room for the screens.
    pub fn large_enough(&self) -> bool {
        self.size.0 >= MINIMUM_SIZE.0 && self.size.1 >= MINIMUM_SIZE.1
    }

    /// Rows between header and hints.
    pub fn body_rows(&self) -> u16 {
        self.size.1.saturating_sub(HEADER_ROWS + self.footer_rows())
    }

    /// Rows below the body.
    pub fn footer_rows(&self) -> u16 {
        FOOTER_ROWS + u16::from(self.timeline.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(vars: &[(&str, &str)]) -> TerminalFacts {
        TerminalFacts::from_vars(|name| {
            vars.iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| (*v).to_owned())
        })
    }

    #[test]
    fn the_locale_decides_about_signs() {
        assert!(facts(&[("LANG", "de_DE.UTF-8"), ("TERM", "xterm")]).unicode);
        assert!(facts(&[("LANG", "C"), ("LC_CTYPE", "C.utf8")]).unicode);
        assert!(!facts(&[("LANG", "en_US.UTF-8"), ("LC_ALL", "C")]).unicode);
        assert!(facts(&[("LANG", "en_US.UTF-8"), ("LC_ALL", "")]).unicode);
        assert!(!facts(&[]).unicode);
        assert!(!facts(&[("LANG", "C.UTF-8"), ("TERM", "linux")]).unicode);
    }

    #[test]
    fn no_color_and_term_decide_about_colour() {
        assert!(facts(&[("TERM", "xterm")]).colour);
        assert!(facts(&[("TERM", "xterm"), ("NO_COLOR", "")]).colour);
        assert!(!facts(&[("TERM", "xterm"), ("NO_COLOR", "1")]).colour);
        assert!(!facts(&[("TERM", "vt100")]).colour);
        assert!(facts(&[("TERM", "dumb")]).dumb);
        assert!(facts(&[]).dumb);
        assert!(!facts(&[("TERM", "screen")]).dumb);
    }
}
