//! Actions and snapshots change the state here, and only here. What the interface cannot do itself comes back as
//! effects.

use super::action::{Action, Control};
use super::arrange;
use super::state::{Detail, Screen, Selection, State};
use super::view;
use crate::model::snapshot::Snapshot;
use std::sync::Arc;

/// What the caller has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Leave.
    Quit,
    /// Write this snapshot, the one shown, to a file, and tell where with [`super::App::set_message`].
    WriteSnapshot(Arc<Snapshot>),
    /// Clear the terminal and draw everything.
    Repaint,
    /// Move in the recording's time.
    Control(Control),
}

/// Longest filter: no more fits in the line where it is typed.
const FILTER_LETTERS: usize = 40;

/// Applies an action.
pub fn update(state: &mut State, action: Action) -> Vec<Effect> {
    if !matches!(action, Action::Resize(..)) {
        state.message = None;
    }
    match action {
        Action::Quit => return vec![Effect::Quit],
        Action::Repaint => return vec![Effect::Repaint],
        Action::Replay(control) => return vec![Effect::Control(control)],
        Action::WriteSnapshot => {
            return match state.shown() {
                Some(snapshot) => vec![Effect::WriteSnapshot(snapshot.clone())],
                None => {
                    state.message = Some("nothing to write yet".into());
                    Vec::new()
                }
            };
        }
        Action::Go(screen) => go(state, screen),
        Action::NextScreen => go(state, neighbour(state.screen, 1)),
        Action::PreviousScreen => go(state, neighbour(state.screen, Screen::ALL.len() - 1)),
        Action::Up => step(state, Step::By(-1)),
        Action::Down => step(state, Step::By(1)),
        Action::PageUp => step(state, Step::Page(-1)),
        Action::PageDown => step(state, Step::Page(1)),
        Action::Top => step(state, Step::First),
        Action::Bottom => step(state, Step::Last),
        Action::Open => open(state),
        Action::Back => back(state),
        Action::Help => state.help = if state.help.is_some() { None } else { Some(0) },
        Action::Freeze => freeze(state),
        Action::ToggleOwn => {
            state.show_own = !state.show_own;
            arrange::one(state, Screen::Refs);
        }
        Action::SortNext => {
            let screen = state.screen;
            let view = state.view_mut();
            (view.sort_column, view.descending) = arrange::next_sort(screen, view.sort_column);
            arrange::one(state, screen);
        }
        Action::SortReverse => {
            let view = state.view_mut();
            view.descending = !view.descending;
            arrange::one(state, state.screen);
        }
        Action::FilterBegin => state.filter_before = Some(state.view().filter.clone()),
        Action::FilterAccept => state.filter_before = None,
        Action::FilterCancel => {
            if let Some(before) = state.filter_before.take() {
                set_filter(state, |filter| *filter = before);
            }
        }
        Action::FilterInsert(c) => set_filter(state, |filter| {
            if !c.is_control() && filter.chars().count() < FILTER_LETTERS {
                filter.push(c);
            }
        }),
        Action::FilterErase => set_filter(state, |filter| {
            filter.pop();
        }),
        Action::FilterEraseAll => set_filter(state, String::clear),
        Action::Resize(columns, rows) => state.size = (columns, rows),
    }
    Vec::new()
}

/// Takes a new snapshot. While frozen it is kept, and shown later.
pub fn receive(state: &mut State, snapshot: Snapshot) {
    state.rate = rate(state.live.as_deref(), &snapshot);
    state.live = Some(Arc::new(snapshot));
    if state.frozen.is_none() {
        arrange::all(state);
    }
}

/// Operations and events per second: since the snapshot before when both began at the same time, otherwise over
/// the snapshot's own stretch.
fn rate(before: Option<&Snapshot>, now: &Snapshot) -> Option<f64> {
    let grown = before
        .filter(|b| b.interval.start_ns == now.interval.start_ns && b.interval.end_ns < now.interval.end_ns);
    let (events, ns) = match grown {
        Some(b) => (
            now.loss.seen.saturating_sub(b.loss.seen),
            now.interval.end_ns - b.interval.end_ns,
        ),
        None => (now.loss.seen, now.interval.duration_ns),
    };
    (ns > 0).then(|| events as f64 * 1e9 / ns as f64)
}

fn neighbour(screen: Screen, distance: usize) -> Screen {
    Screen::ALL[(screen.index() + distance) % Screen::ALL.len()]
}

fn go(state: &mut State, screen: Screen) {
    state.screen = screen;
    state.help = None;
}

/// A movement through rows or lines.
#[derive(Clone, Copy)]
enum Step {
    By(isize),
    Page(isize),
    First,
    Last,
}

impl Step {
    /// From `position` in 0..=`last`.
    fn apply(self, position: usize, last: usize, page: usize) -> usize {
        let moved = match self {
            Step::By(n) => position.saturating_add_signed(n),
            Step::Page(n) => position.saturating_add_signed(n * page.max(1) as isize),
            Step::First => 0,
            Step::Last => last,
        };
        moved.min(last)
    }
}

fn step(state: &mut State, step: Step) {
    // Panels have headings: a page is a little less than the body, so that a line stays in view as a landmark.
    let page = usize::from(state.body_rows().saturating_sub(4)).max(1);
    if let Some(first) = state.help {
        state.help = Some(step.apply(first, view::help::last_first_line(state), page));
        return;
    }
    let last = view::last_cursor(state);
    if let Some(detail) = &mut state.view_mut().detail {
        detail.cursor = step.apply(detail.cursor.min(last), last, page);
        return;
    }
    let screen = state.screen;
    let Some(last) = arrange::rows(state, screen).checked_sub(1) else {
        return;
    };
    let position = match (&state.view().selection, step) {
        (Some(selection), _) => step.apply(selection.position, last, page),
        (None, Step::Last) => last,
        // The first movement only shows where the cursor is.
        (None, _) => 0,
    };
    state.view_mut().selection =
        arrange::row_id(state, screen, position).map(|id| Selection { id, position });
}

fn open(state: &mut State) {
    let screen = state.screen;
    if state.view().selection.is_none() {
        step(state, Step::First);
    }
    let (Some(selection), Some(snapshot)) = (&state.view().selection, state.shown()) else {
        return;
    };
    let detail = Detail {
        id: selection.id.clone(),
        snapshot: snapshot.clone(),
        left: false,
        cursor: 0,
    };
    state.views[screen.index()].detail = Some(detail);
}

/// Undoes one thing: help, detail, filter, selection.
fn back(state: &mut State) {
    if state.help.take().is_some() || state.view_mut().detail.take().is_some() {
        return;
    }
    if state.view().filter.is_empty() {
        state.view_mut().selection = None;
    } else {
        set_filter(state, String::clear);
    }
}

fn freeze(state: &mut State) {
    if state.frozen.take().is_some() {
        arrange::all(state);
    } else {
        state.frozen = state.live.clone();
    }
}

fn set_filter(state: &mut State, change: impl FnOnce(&mut String)) {
    change(&mut state.view_mut().filter);
    arrange::one(state, state.screen);
}
