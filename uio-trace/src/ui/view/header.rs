//! The two lines above every screen and the one below.

use crate::model::costs;
use crate::ui::arrange;
use crate::ui::canvas::Canvas;
use crate::ui::format;
use crate::ui::keymap;
use crate::ui::layout::Target;
use crate::ui::state::{Screen, State};
use crate::ui::text;
use crate::ui::theme::Role;
use ratatui::layout::Rect;

/// Columns of a shortened kernel release that still say something.
const SHORT_KERNEL: usize = 8;

/// Draws host, kernel, time, rate and losses, and below them the screens' names.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, state: &State) {
    let right = figures(state);
    let right_width: usize = right.iter().map(|(piece, _)| text::width(piece)).sum();
    let right_width = u16::try_from(right_width).unwrap_or(area.width).min(area.width);
    let left_width = area.width.saturating_sub(right_width + 2);
    let left = identity(state, usize::from(left_width.saturating_sub(1)));
    canvas.pieces(area.x + 1, area.y, left_width.saturating_sub(1), &left);
    canvas.pieces(area.right() - right_width, area.y, right_width, &right);
    draw_tabs(canvas, area, state);
}

/// Tool, host and kernel: in a narrow terminal the tool's name goes first, then the kernel.
fn identity(state: &State, room: usize) -> Vec<(String, Role)> {
    let unicode = state.facts.unicode;
    let host = text::clean(&state.meta.host, unicode).into_owned();
    let kernel = text::clean(&state.meta.kernel, unicode).into_owned();
    let both = text::width(&host) + 2 + text::width(&kernel);
    let mut pieces = Vec::new();
    if both + 11 <= room {
        pieces.push(("uio-trace  ".to_owned(), Role::Title));
    }
    let kernel_room = room.saturating_sub(text::width(&host) + 2);
    pieces.push((host, Role::Strong));
    if kernel_room >= SHORT_KERNEL.min(text::width(&kernel)) {
        pieces.push(("  ".to_owned(), Role::Plain));
        pieces.push((kernel, Role::Plain));
    }
    pieces
}

/// The right side: time, event rate, losses, own cost.
fn figures(state: &State) -> Vec<(String, Role)> {
    let mut pieces = Vec::new();
    if let Some(live) = &state.live {
        let elapsed = live.interval.end_ns.saturating_sub(state.meta.started_ns);
        let time = format::time_of_day(&state.meta.started, elapsed).unwrap_or_else(|| "-".into());
        pieces.push((time, Role::Plain));
    }
    let rate = state.rate.map_or_else(|| "-".to_owned(), format::rate);
    pieces.push((format!("  {rate} ev/s"), Role::Plain));
    let (lost, role) = match &state.live {
        None => ("-".to_owned(), Role::Plain),
        Some(live) if live.loss.total() == 0 => ("0".to_owned(), Role::Good),
        Some(live) => (format::count(live.loss.total()), Role::Critical),
    };
    pieces.push(("  lost ".to_owned(), role));
    pieces.push((lost, role));
    if let Some(cost) = state.own_cost {
        // Beside it that of the programs in the kernel, where it is counted.
        let programs = state.live.as_ref().and_then(|live| costs::share(&live.probes));
        let programs = programs.map_or_else(String::new, |share| format!(" + {}", format::percent(share)));
        pieces.push((
            format!("  cost {}{programs} %", format::percent(cost)),
            Role::Plain,
        ));
    }
    pieces.push((" ".to_owned(), Role::Plain));
    pieces
}

fn draw_tabs(canvas: &mut Canvas<'_>, area: Rect, state: &State) {
    let y = area.y + 1;
    let mut x = area.x;
    for screen in Screen::ALL {
        let title = format!(" {} {} ", screen.index() + 1, screen.title());
        let role = if screen == state.screen {
            Role::CurrentTab
        } else {
            Role::Plain
        };
        let used = canvas.text(x, y, area.right() - x, &title, role);
        canvas.target(Rect::new(x, y, used, 1), Target::Screen(screen));
        x += used;
    }
    let mut right = area.right();
    if let Some(size) = &state.recording {
        let text = format!(" REC {size} ");
        canvas.text_right(x, y, right - x, text.trim_end(), Role::Warning);
        let used = u16::try_from(text.trim_end().len()).unwrap_or(u16::MAX);
        right = right.saturating_sub(used).max(x);
    }
    if let Some(frozen) = &state.frozen {
        let elapsed = frozen.interval.end_ns.saturating_sub(state.meta.started_ns);
        let time = format::time_of_day(&state.meta.started, elapsed).unwrap_or_default();
        let text = format!(" FROZEN {time} ");
        canvas.text_right(x, y, right - x, text.trim_end(), Role::Critical);
    }
}

/// How many rows the filter lets through.
fn found(state: &State) -> String {
    let rows = arrange::rows(state, state.screen);
    match rows {
        0 => "no row".into(),
        1 => "1 row".into(),
        n => format!("{n} rows"),
    }
}

/// Draws the filter being typed, a message, or what the keys do.
pub fn draw_footer(canvas: &mut Canvas<'_>, area: Rect, state: &State) {
    let mut x = area.x + 1;
    if state.filter_before.is_some() {
        let typed = &state.view().filter;
        let found = match typed.is_empty() {
            true => String::new(),
            false => found(state),
        };
        let cursor = if canvas.theme.unicode { "▏" } else { "_" };
        let pieces = [
            ("filter: ", Role::Strong),
            (typed.as_str(), Role::Plain),
            (cursor, Role::Plain),
            ("  ", Role::Plain),
            (found.as_str(), Role::Dim),
        ];
        x += canvas.pieces(x, area.y, area.right() - x, &pieces) + 2;
    } else if let Some(message) = &state.message {
        canvas.text(x, area.y, area.width - 1, message, Role::Strong);
        return;
    }
    for (key, word, action) in keymap::hints(state) {
        let needed = u16::try_from(text::width(&key) + 1 + text::width(word)).unwrap_or(u16::MAX);
        if x.saturating_add(needed) > area.right() {
            break;
        }
        canvas.target(Rect::new(x, area.y, needed, 1), Target::Key(action));
        canvas.pieces(
            x,
            area.y,
            needed,
            &[(key.as_str(), Role::Key), (" ", Role::Plain), (word, Role::Dim)],
        );
        x += needed + 2;
    }
}
