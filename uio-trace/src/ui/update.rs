//! Actions and snapshots change the state here, and only here. What the interface cannot do itself comes back as
//! effects.

use super::action::{Action, Control};
use super::arrange;
use super::layout::Target;
use super::state::{Detail, RowId, Screen, Selection, State, Zoom};
use super::view;
use crate::model::snapshot::{AioDrain, Snapshot};
use std::sync::Arc;

/// What the caller has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Leave.
    Quit,
    /// Write this snapshot, the one shown, to a file, and tell where with [`super::App::set_message`].
    WriteSnapshot(Arc<Snapshot>),
    /// Begin a recording, or end the one that is written, and tell with [`super::App::set_message`].
    Record,
    /// Begin to count what the programs in the kernel cost, or end it, and tell with [`super::App::set_message`].
    CountCosts,
    /// Clear the terminal and draw everything.
    Repaint,
    /// Ask the terminal for the mouse, or leave it to it.
    Mouse(bool),
    /// Move in the recording's time.
    Control(Control),
}

/// Rows that a notch of the mouse wheel moves.
const WHEEL_ROWS: isize = 3;

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
        Action::Record | Action::CountCosts if state.timeline.is_some() => {
            state.message = Some("this is a recording".into());
        }
        Action::Record => return vec![Effect::Record],
        Action::CountCosts => return vec![Effect::CountCosts],
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
        Action::Follow => follow(state),
        Action::More => more(state),
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
        Action::SortBy(column) => sort_by(state, column),
        Action::Click(x, y) => return click(state, x, y),
        Action::Wheel(turn) => step(state, Step::By(isize::from(turn) * WHEEL_ROWS)),
        Action::ToggleMouse => {
            state.mouse = !state.mouse;
            let text = if state.mouse {
                "the mouse selects, opens and scrolls; m: leave it to the terminal"
            } else {
                "the mouse selects text again; m: back to the screens"
            };
            state.message = Some(text.into());
            return vec![Effect::Mouse(state.mouse)];
        }
        Action::ZoomIn => zoom(state, Zoom::closer),
        Action::ZoomOut => zoom(state, |z, d, _| z.farther(d)),
        Action::ZoomAll => zoom(state, |_, _, _| Zoom::default()),
        Action::Earlier => zoom(state, |z, d, _| z.moved(d, -1)),
        Action::Later => zoom(state, |z, d, _| z.moved(d, 1)),
    }
    Vec::new()
}

fn sort_by(state: &mut State, column: usize) {
    let screen = state.screen;
    let Some(preferred) = arrange::preferred(screen, column) else {
        return;
    };
    let view = state.view_mut();
    view.descending = if view.sort_column == column {
        !view.descending
    } else {
        preferred
    };
    view.sort_column = column;
    arrange::one(state, screen);
}

/// A click selects what is there; a second one on the selected row opens it.
fn click(state: &mut State, x: u16, y: u16) -> Vec<Effect> {
    let layout = view::layout(state);
    let Some(target) = layout.at(x, y) else {
        return Vec::new();
    };
    if !matches!(target, Target::Key(_)) {
        // The filter that is being typed is kept.
        state.filter_before = None;
    }
    match target {
        Target::Key(action) => return update(state, action),
        Target::Screen(screen) => go(state, screen),
        Target::Column(column) => sort_by(state, column),
        Target::Row(position) if state.selected() == Some(position) => open(state),
        Target::Row(position) => {
            hold_window(state, layout.first);
            select(state, position);
        }
        Target::Line(line) => {
            hold_window(state, layout.first);
            if let Some(detail) = &mut state.view_mut().detail {
                detail.cursor = line;
            }
            zoom(state, Zoom::following);
        }
    }
    Vec::new()
}

/// The rows in view stay in view, as far as what is selected next allows.
fn hold_window(state: &mut State, first: Option<usize>) {
    let Some(first) = first else { return };
    let view = state.view_mut();
    match &mut view.detail {
        Some(detail) => detail.top = first,
        None => view.top = first,
    }
}

fn select(state: &mut State, position: usize) {
    let id = arrange::row_id(state, state.screen, position);
    state.view_mut().selection = id.map(|id| Selection {
        id,
        position,
        listed: true,
    });
}

fn zoom(state: &mut State, change: impl FnOnce(Zoom, &AioDrain, usize) -> Zoom) {
    if let Some(detail) = &mut state.view_mut().detail
        && let RowId::Drain(number) = detail.id
        && let Some(drain) = view::aio_detail::drain(&detail.snapshot, number)
    {
        detail.zoom = change(detail.zoom, drain, detail.cursor);
    }
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
    let first = view::layout(state).first;
    hold_window(state, first);
    let last = view::last_cursor(state);
    if let Some(detail) = &mut state.view_mut().detail {
        detail.cursor = step.apply(detail.cursor.min(last), last, page);
        // The pages do not follow a cursor among hundreds of contexts; the short form does.
        if matches!(detail.id, RowId::Drain(_)) {
            detail.page = 0;
        }
        zoom(state, Zoom::following);
        return;
    }
    let screen = state.screen;
    let Some(last) = arrange::rows(state, screen).checked_sub(1) else {
        return;
    };
    let position = match (&state.view().selection, step) {
        // In the place of a row that is gone now stands the one after it.
        (Some(gone), Step::By(1)) if !gone.listed => gone.position.min(last),
        (Some(selection), _) => step.apply(selection.position, last, page),
        (None, Step::Last) => last,
        // The first movement only shows where the cursor is.
        (None, _) => 0,
    };
    select(state, position);
}

fn open(state: &mut State) {
    let screen = state.screen;
    if state.view().selection.is_none() {
        step(state, Step::First);
    }
    let (Some(selection), Some(snapshot)) = (&state.view().selection, state.shown()) else {
        return;
    };
    if !selection.listed {
        state.message = Some("the selected row is no longer listed; up or down selects another".into());
        return;
    }
    state.views[screen.index()].detail = Some(Detail::new(selection.id.clone(), snapshot.clone()));
}

/// Goes to what the opened finding is about, and opens it there. Esc then leads to that screen's list.
fn follow(state: &mut State) {
    let about = state.view().detail.as_ref().and_then(|detail| {
        let shown = state.shown()?;
        arrange::about(shown, &detail.id)
    });
    let Some((screen, id)) = about else {
        state.message = Some("there is no row for this on another screen".into());
        return;
    };
    go(state, screen);
    let (Some(id), Some(snapshot)) = (id, state.shown().cloned()) else {
        return;
    };
    let place = (0..arrange::rows(state, screen))
        .find(|position| arrange::row_id(state, screen, *position).as_ref() == Some(&id));
    if let Some(position) = place {
        select(state, position);
    }
    state.view_mut().detail = Some(Detail::new(id, snapshot));
}

/// Turns to the next page of a long detail; after the last comes the short form.
fn more(state: &mut State) {
    let (body, unicode) = ((state.size.0, state.body_rows()), state.facts.unicode);
    let Some(detail) = &mut state.view_mut().detail else {
        return;
    };
    let pages = view::pages::count(detail, body, unicode);
    detail.page = if detail.page < pages { detail.page + 1 } else { 0 };
    if pages == 0 {
        state.message = Some("all of it is in view".into());
    }
}

/// Undoes one thing: help, detail, filter, selection.
fn back(state: &mut State) {
    if state.help.take().is_some() || state.view_mut().detail.take().is_some() {
        return;
    }
    if state.view().filter.is_empty() {
        let view = state.view_mut();
        view.selection = None;
        view.top = 0;
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
