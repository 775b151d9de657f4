//! Roles and how they look: ANSI 16 colours at most, none with NO_COLOR, signs from ASCII when the locale is not
//! UTF-8. Nothing is told by colour alone.

use super::phases::Phase;
use super::state::TerminalFacts;
use crate::model::snapshot::{DrainVerdict, Finding, ProbeState, Severity};
use ratatui::style::{Color, Modifier, Style};

/// What a piece of the screen is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Text.
    Plain,
    /// Less important text.
    Dim,
    /// Important text.
    Strong,
    /// Heading of a panel.
    Title,
    /// Column headings.
    Heading,
    /// Heading of the column sorted by.
    SortedHeading,
    /// Rules and axes.
    Rule,
    /// The selected row.
    Selected,
    /// The current screen's name.
    CurrentTab,
    /// What the filter found in a row.
    Match,
    /// A key in the hints.
    Key,
    /// Works as it should.
    Good,
    /// Costs time, or is missing.
    Warning,
    /// Stuck, lost or failed.
    Critical,
    /// A bar of a histogram of waits.
    WaitBar,
    /// A bar of any other histogram.
    Bar,
    /// A phase of a drain.
    Phase(Phase),
}

/// Signs.
#[derive(Debug)]
pub struct Symbols {
    /// Horizontal rule.
    pub rule: &'static str,
    /// Vertical rule between neighbours.
    pub divider: &'static str,
    /// Tick on a horizontal axis.
    pub tick: &'static str,
    /// Stands for what was cut off.
    pub ellipsis: &'static str,
    /// Largest first.
    pub descending: &'static str,
    /// Smallest first.
    pub ascending: &'static str,
    /// Before the selected row.
    pub cursor: &'static str,
    /// Bars: an eighth to a whole cell, or whole cells only.
    pub bar: &'static [&'static str],
    /// Columns of a plot: an eighth to a whole cell, or as many steps as ASCII has.
    pub column: &'static [&'static str],
    /// Joins two words that belong together.
    pub to: &'static str,
}

const UNICODE: Symbols = Symbols {
    rule: "─",
    divider: "│",
    tick: "┬",
    ellipsis: "…",
    descending: "▼",
    ascending: "▲",
    cursor: "▸",
    bar: &["▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"],
    column: &["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
    to: "–",
};

const ASCII: Symbols = Symbols {
    rule: "-",
    divider: "|",
    tick: "+",
    ellipsis: "~",
    descending: "v",
    ascending: "^",
    cursor: ">",
    bar: &[".", "#"],
    column: &["_", "-", "=", "#"],
    to: "-",
};

/// How roles look on this terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    /// Colours.
    pub colour: bool,
    /// Signs beyond ASCII.
    pub unicode: bool,
}

impl Theme {
    /// For a terminal.
    pub fn new(facts: &TerminalFacts) -> Theme {
        Theme {
            colour: facts.colour,
            unicode: facts.unicode,
        }
    }

    /// The signs to use.
    pub fn symbols(&self) -> &'static Symbols {
        if self.unicode { &UNICODE } else { &ASCII }
    }

    /// A phase's fill. The four differ in shape too, for screens without colour.
    pub fn fill(&self, phase: Phase) -> &'static str {
        match (phase, self.unicode) {
            (Phase::UsersGracePeriod, true) => "░",
            (Phase::UsersRefs, true) => "▓",
            (Phase::ReqsGracePeriod, true) => "▒",
            (Phase::ReqsIo, true) => "█",
            (Phase::Users, true) => "▄",
            (Phase::Reqs, true) => "▀",
            (Phase::Unknown, true) => "·",
            (Phase::UsersGracePeriod, false) => "-",
            (Phase::UsersRefs, false) => "+",
            (Phase::ReqsGracePeriod, false) => "=",
            (Phase::ReqsIo, false) => "#",
            (Phase::Users, false) => "u",
            (Phase::Reqs, false) => "r",
            (Phase::Unknown, false) => "?",
        }
    }

    /// Style of a role.
    pub fn style(&self, role: Role) -> Style {
        let plain = Style::new();
        let styled = match role {
            Role::Plain => plain,
            // DIM rather than a grey: several 16-colour palettes draw "bright black" as the background.
            Role::Dim | Role::Rule => plain.add_modifier(Modifier::DIM),
            Role::Strong => plain.add_modifier(Modifier::BOLD),
            Role::Title => plain.fg(Color::Cyan).add_modifier(Modifier::BOLD),
            Role::Heading => plain.add_modifier(Modifier::BOLD),
            Role::SortedHeading => plain.add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            Role::Selected | Role::CurrentTab => plain.add_modifier(Modifier::REVERSED),
            Role::Key => plain.fg(Color::Cyan).add_modifier(Modifier::BOLD),
            Role::Match => plain
                .fg(Color::Yellow)
                .add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            Role::Good => plain.fg(Color::Green),
            Role::Warning => plain.fg(Color::Yellow),
            Role::Critical => plain.fg(Color::Red).add_modifier(Modifier::BOLD),
            Role::WaitBar => plain.fg(Color::Yellow),
            Role::Bar => plain.fg(Color::Cyan),
            Role::Phase(Phase::UsersGracePeriod | Phase::Users) => plain.fg(Color::Blue),
            Role::Phase(Phase::UsersRefs) => plain.fg(Color::Yellow),
            Role::Phase(Phase::ReqsGracePeriod) => plain.fg(Color::Cyan),
            Role::Phase(Phase::ReqsIo | Phase::Reqs) => plain.fg(Color::Magenta),
            Role::Phase(Phase::Unknown) => plain.add_modifier(Modifier::DIM),
        };
        if self.colour {
            styled
        } else {
            Style {
                fg: None,
                bg: None,
                ..styled
            }
        }
    }
}

/// Word and role of a finding's severity. That nothing was found is a result, too.
pub fn severity(finding: &Finding) -> (&'static str, Role) {
    match finding.severity {
        Severity::Info if finding.id == "nothing_here" => ("OK", Role::Good),
        Severity::Info => ("info", Role::Dim),
        Severity::Warning => ("WARN", Role::Warning),
        Severity::Critical => ("CRIT", Role::Critical),
    }
}

/// Word and role of a probe's state. A failed probe that nothing requires is a lesser matter.
pub fn probe_state(state: ProbeState, required: bool) -> (&'static str, Role) {
    match (state, required) {
        (ProbeState::Attached, _) => ("attached", Role::Good),
        (ProbeState::Waiting, _) => ("waiting", Role::Plain),
        (ProbeState::Failed, true) => ("FAILED", Role::Critical),
        (ProbeState::Failed, false) => ("failed", Role::Warning),
        (ProbeState::NotNeeded, _) => ("not needed", Role::Dim),
    }
}

/// Word and role of a verdict.
pub fn verdict(verdict: DrainVerdict) -> (&'static str, Role) {
    match verdict {
        DrainVerdict::Serial => ("serial", Role::Warning),
        DrainVerdict::Parallel => ("parallel", Role::Good),
        DrainVerdict::Single => ("single", Role::Plain),
    }
}
