//! Every key, once: what it does, where, and what the help says. The help screen and the hints in the last line are
//! made from [`KEYMAP`], so they cannot disagree with what the keys do.

use super::action::{Action, Control};
use super::state::{RowId, Screen, State};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A key as the table names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A letter, digit or sign (with Shift already applied).
    Char(char),
    /// With Ctrl held down.
    Ctrl(char),
    /// A key without a letter.
    Code(KeyCode),
}

impl Key {
    /// Whether the terminal's event is this key.
    pub fn is(self, event: &KeyEvent) -> bool {
        let ctrl = event.modifiers.contains(KeyModifiers::CONTROL);
        let alt = event.modifiers.contains(KeyModifiers::ALT);
        match self {
            Key::Char(c) => event.code == KeyCode::Char(c) && !ctrl && !alt,
            Key::Ctrl(c) => event.code == KeyCode::Char(c) && ctrl && !alt,
            Key::Code(code) => event.code == code && !alt,
        }
    }

    /// Name for the help.
    pub fn name(self) -> String {
        match self {
            Key::Char(' ') => "Space".into(),
            Key::Char(c) => c.to_string(),
            Key::Ctrl(c) => format!("Ctrl-{}", c.to_ascii_uppercase()),
            Key::Code(code) => match code {
                KeyCode::BackTab => "Shift-Tab".into(),
                KeyCode::PageUp => "PgUp".into(),
                KeyCode::PageDown => "PgDn".into(),
                KeyCode::F(n) => format!("F{n}"),
                other => format!("{other:?}"),
            },
        }
    }
}

/// Where a binding holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Always, also while a filter is typed.
    Always,
    /// Everywhere but in a line that is being typed.
    Everywhere,
    /// Where there are rows or lines: in lists, details and the help.
    Rows,
    /// In a screen's list.
    List,
    /// In a row's detail.
    Detail,
    /// In the detail of a finding, or of something in progress.
    Finding,
    /// In the detail of a device, an owner or a drain.
    Panels,
    /// In a drain's detail.
    Drain,
    /// On the refs screen only.
    Refs,
    /// On the probes screen only.
    Probes,
    /// While a filter is typed.
    Filter,
    /// In the help.
    Help,
}

impl Place {
    /// In the order of the help.
    pub const ALL: [Place; 12] = [
        Place::Everywhere,
        Place::Rows,
        Place::List,
        Place::Detail,
        Place::Finding,
        Place::Panels,
        Place::Drain,
        Place::Refs,
        Place::Probes,
        Place::Filter,
        Place::Help,
        Place::Always,
    ];

    /// Heading in the help.
    pub fn title(self) -> &'static str {
        match self {
            Place::Always => "Always",
            Place::Everywhere => "Everywhere",
            Place::Rows => "In rows and lines",
            Place::List => "In a list",
            Place::Detail => "In a detail",
            Place::Finding => "In a finding",
            Place::Panels => "In a device, owner or drain",
            Place::Drain => "In a drain",
            Place::Refs => "On the refs screen",
            Place::Probes => "On the probes screen",
            Place::Filter => "While typing a filter",
            Place::Help => "In this help",
        }
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    /// Any of these keys.
    pub keys: &'static [Key],
    /// What they do.
    pub action: Action,
    /// Where.
    pub place: Place,
    /// In the help.
    pub text: &'static str,
    /// In the last line of the screen; empty: not there.
    pub hint: &'static str,
}

const fn binding(
    keys: &'static [Key],
    action: Action,
    place: Place,
    text: &'static str,
    hint: &'static str,
) -> Binding {
    Binding {
        keys,
        action,
        place,
        text,
        hint,
    }
}

use Key::{Char, Code, Ctrl};

/// All keys. A row a line, so that it can be read as the table it is.
#[rustfmt::skip]
pub const KEYMAP: &[Binding] = &[
    binding(&[Char('?'), Code(KeyCode::F(1))], Action::Help, Place::Everywhere, "this help", "help"),
    binding(&[Char('q')], Action::Quit, Place::Everywhere, "quit", "quit"),
    binding(&[Char('1')], Action::Go(Screen::Overview), Place::Everywhere, "Overview: findings, in progress", ""),
    binding(&[Char('2')], Action::Go(Screen::Uio), Place::Everywhere, "UIO devices", ""),
    binding(&[Char('3')], Action::Go(Screen::Refs), Place::Everywhere, "Refs: percpu_ref owners", ""),
    binding(&[Char('4')], Action::Go(Screen::Aio), Place::Everywhere, "AIO context drains", ""),
    binding(&[Char('5')], Action::Go(Screen::Probes), Place::Everywhere, "Probes and losses", ""),
    binding(&[Code(KeyCode::Tab)], Action::NextScreen, Place::Everywhere, "next screen", ""),
    binding(&[Code(KeyCode::BackTab)], Action::PreviousScreen, Place::Everywhere, "previous screen", ""),
    binding(&[Char(' ')], Action::Freeze, Place::Everywhere, "freeze the display; tracing goes on", "freeze"),
    binding(&[Char('w')], Action::WriteSnapshot, Place::Everywhere, "write what is shown as JSON", "write"),
    binding(&[Char('r')], Action::Record, Place::Everywhere, "begin or end a recording of the trace", "record"),
    binding(&[Char('m')], Action::ToggleMouse, Place::Everywhere, "mouse on or off (off: select text)", ""),
    binding(&[Ctrl('l')], Action::Repaint, Place::Everywhere, "repaint the screen", ""),

    binding(&[Code(KeyCode::Up), Char('k')], Action::Up, Place::Rows, "up", ""),
    binding(&[Code(KeyCode::Down), Char('j')], Action::Down, Place::Rows, "down", ""),
    binding(&[Code(KeyCode::PageUp)], Action::PageUp, Place::Rows, "page up", ""),
    binding(&[Code(KeyCode::PageDown)], Action::PageDown, Place::Rows, "page down", ""),
    binding(&[Code(KeyCode::Home), Char('g')], Action::Top, Place::Rows, "first", ""),
    binding(&[Code(KeyCode::End), Char('G')], Action::Bottom, Place::Rows, "last", ""),

    binding(&[Code(KeyCode::Enter)], Action::Open, Place::List, "open the selected row", "open"),
    binding(&[Char('/')], Action::FilterBegin, Place::List, "filter: rows that contain a text", "filter"),
    binding(&[Char('s')], Action::SortNext, Place::List, "sort by the next column", "sort"),
    binding(&[Char('S')], Action::SortReverse, Place::List, "reverse the order", ""),
    binding(&[Code(KeyCode::Esc)], Action::Back, Place::List, "clear the filter, then the selection", ""),

    binding(&[Code(KeyCode::Esc)], Action::Back, Place::Detail, "back to the list", "back"),

    binding(&[Code(KeyCode::Enter)], Action::Follow, Place::Finding, "go to what it is about", "go there"),

    binding(&[Char('v')], Action::More, Place::Panels, "all of it, page by page, where it does not fit", "more"),

    binding(&[Char('+'), Char('=')], Action::ZoomIn, Place::Drain, "zoom in on the selected context", "zoom"),
    binding(&[Char('-')], Action::ZoomOut, Place::Drain, "zoom out", ""),
    binding(&[Char('0')], Action::ZoomAll, Place::Drain, "the whole drain", "whole"),
    binding(&[Code(KeyCode::Left), Char('h')], Action::Earlier, Place::Drain, "earlier", ""),
    binding(&[Code(KeyCode::Right), Char('l')], Action::Later, Place::Drain, "later", ""),

    binding(&[Char('o')], Action::ToggleOwn, Place::Refs, "show or hide the tool's own refs", "own refs"),

    binding(&[Char('c')], Action::CountCosts, Place::Probes, "count what the programs cost, or no longer", "cost"),

    binding(&[Code(KeyCode::Enter)], Action::FilterAccept, Place::Filter, "keep the filter", "keep"),
    binding(&[Code(KeyCode::Esc)], Action::FilterCancel, Place::Filter, "forget the change", "cancel"),
    binding(&[Code(KeyCode::Backspace)], Action::FilterErase, Place::Filter, "erase a letter", ""),
    binding(&[Ctrl('u')], Action::FilterEraseAll, Place::Filter, "erase all", "erase all"),

    binding(&[Code(KeyCode::Esc)], Action::Back, Place::Help, "leave the help", "back"),

    binding(&[Ctrl('c')], Action::Quit, Place::Always, "quit", ""),
];

/// Keys of a recording's time line, which hold beside [`KEYMAP`]'s while one is replayed and no filter is typed.
#[rustfmt::skip]
pub const TIMELINE: &[Binding] = &[
    binding(&[Char('p')], Action::Replay(Control::Pause), Place::Everywhere, "pause, go on", "pause"),
    binding(&[Char(',')], Action::Replay(Control::Back), Place::Everywhere, "10 seconds back", "back"),
    binding(&[Char('.')], Action::Replay(Control::Forward), Place::Everywhere, "10 seconds on", "on"),
    binding(&[Char('<')], Action::Replay(Control::FarBack), Place::Everywhere, "a tenth of the recording back", ""),
    binding(&[Char('>')], Action::Replay(Control::FarForward), Place::Everywhere, "a tenth of the recording on", ""),
    binding(&[Char('[')], Action::Replay(Control::Slower), Place::Everywhere, "slower, down to 0.1x", "slower"),
    binding(&[Char(']')], Action::Replay(Control::Faster), Place::Everywhere, "faster, up to 100x", "faster"),
];

/// The time line's keys that hold in this state.
pub fn timeline(state: &State) -> &'static [Binding] {
    if state.timeline.is_some() && state.filter_before.is_none() {
        TIMELINE
    } else {
        &[]
    }
}

/// The places that hold in this state, most specific first.
pub fn places(state: &State) -> &'static [Place] {
    use Place::{Always, Detail, Drain, Everywhere, Filter, Finding, Help, List, Panels, Probes, Refs, Rows};
    if state.filter_before.is_some() {
        &[Filter, Always]
    } else if state.help.is_some() {
        &[Help, Rows, Everywhere, Always]
    } else if let Some(detail) = &state.view().detail {
        match detail.id {
            RowId::Drain(_) => &[Detail, Panels, Drain, Rows, Everywhere, Always],
            RowId::Device(..) | RowId::Owner(_) => &[Detail, Panels, Rows, Everywhere, Always],
            RowId::Finding(..) | RowId::InProgress(..) => &[Detail, Finding, Rows, Everywhere, Always],
            RowId::Probe(..) => &[Detail, Rows, Everywhere, Always],
        }
    } else if state.screen == Screen::Refs {
        &[List, Refs, Rows, Everywhere, Always]
    } else if state.screen == Screen::Probes {
        &[List, Probes, Rows, Everywhere, Always]
    } else {
        &[List, Rows, Everywhere, Always]
    }
}

/// What a key means in this state.
pub fn lookup(state: &State, event: &KeyEvent) -> Option<Action> {
    let bound = places(state)
        .iter()
        .flat_map(|place| KEYMAP.iter().filter(move |b| b.place == *place))
        .chain(timeline(state))
        .find(|b| b.keys.iter().any(|k| k.is(event)));
    if let Some(b) = bound {
        return Some(b.action);
    }
    match event.code {
        KeyCode::Char(c)
            if state.filter_before.is_some()
                && !event
                    .modifiers
                    .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) =>
        {
            Some(Action::FilterInsert(c))
        }
        _ => None,
    }
}

/// Key, word and action for the last line, in this state.
pub fn hints(state: &State) -> Vec<(String, &'static str, Action)> {
    places(state)
        .iter()
        .flat_map(|place| {
            KEYMAP
                .iter()
                .filter(move |b| b.place == *place && !b.hint.is_empty())
        })
        .filter_map(|b| b.keys.first().map(|k| (k.name(), b.hint, b.action)))
        .collect()
}

/// Heading of the time line's keys, in the help and in the documentation.
pub const TIMELINE_TITLE: &str = "In the recording";

/// All keys as Markdown tables, for the documentation: docs/keys.md is this text.
pub fn markdown() -> String {
    let mut page = String::new();
    for place in Place::ALL {
        let bindings = KEYMAP.iter().filter(|b| b.place == place);
        table(&mut page, place.title(), bindings);
    }
    table(
        &mut page,
        &format!("{TIMELINE_TITLE} (`replay`), beside the others"),
        TIMELINE.iter(),
    );
    page
}

fn table<'a>(page: &mut String, title: &str, bindings: impl Iterator<Item = &'a Binding>) {
    *page += &format!("\n## {title}\n\n| keys | do |\n|---|---|\n");
    for b in bindings {
        let keys: Vec<String> = b.keys.iter().map(|k| format!("`{}`", k.name())).collect();
        *page += &format!("| {} | {} |\n", keys.join(" "), b.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places whose bindings can hold at the same time.
    const TOGETHER: &[&[Place]] = &[
        &[Place::Filter, Place::Always],
        &[Place::Help, Place::Rows, Place::Everywhere, Place::Always],
        &[
            Place::Detail,
            Place::Panels,
            Place::Drain,
            Place::Rows,
            Place::Everywhere,
            Place::Always,
        ],
        &[
            Place::Detail,
            Place::Finding,
            Place::Rows,
            Place::Everywhere,
            Place::Always,
        ],
        &[
            Place::List,
            Place::Probes,
            Place::Rows,
            Place::Everywhere,
            Place::Always,
        ],
        &[
            Place::List,
            Place::Refs,
            Place::Rows,
            Place::Everywhere,
            Place::Always,
        ],
    ];

    #[test]
    fn no_key_means_two_things() {
        for places in TOGETHER {
            let mut seen = Vec::new();
            for b in KEYMAP.iter().filter(|b| places.contains(&b.place)) {
                for key in b.keys {
                    assert!(!seen.contains(key), "{key:?} twice in {places:?}");
                    seen.push(*key);
                }
            }
        }
    }

    #[test]
    fn the_time_lines_keys_mean_nothing_else() {
        let mut seen: Vec<Key> = KEYMAP.iter().flat_map(|b| b.keys).copied().collect();
        for b in TIMELINE {
            assert!(!b.text.is_empty());
            for key in b.keys {
                assert!(!seen.contains(key), "{key:?} twice");
                seen.push(*key);
            }
        }
    }

    #[test]
    fn every_binding_is_explained_and_in_a_place_the_help_shows() {
        for b in KEYMAP {
            assert!(!b.text.is_empty() && !b.keys.is_empty(), "{:?}", b.action);
            assert!(Place::ALL.contains(&b.place));
            for key in b.keys {
                assert!(!key.name().is_empty());
            }
        }
    }
    #[test]
    fn the_documentation_has_every_key() {
        let page = markdown();
        for b in KEYMAP.iter().chain(TIMELINE) {
            let row = |line: &str| {
                line.ends_with(&format!("| {} |", b.text))
                    && b.keys.iter().all(|k| line.contains(&format!("`{}`", k.name())))
            };
            assert!(page.lines().any(row), "{:?}", b.action);
        }
    }
}
