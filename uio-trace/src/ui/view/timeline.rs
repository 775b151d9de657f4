//! A replay's time line: where it is in the recording, how fast it goes, and its keys where there is room.

use crate::ui::canvas::Canvas;
use crate::ui::format;
use crate::ui::keymap;
use crate::ui::state::{State, Timeline};
use crate::ui::text;
use crate::ui::theme::Role;
use ratatui::layout::Rect;

/// Columns of the bar: fewer say nothing, more say no more.
const BAR: (u16, u16) = (10, 60);

/// Draws it on the area's first row.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, timeline: &Timeline, state: &State) {
    let unicode = state.facts.unicode;
    let elapsed = state.live.as_ref().map_or(0, |live| live.interval.end_ns);
    let time = format::time_of_day(&state.meta.started, elapsed.saturating_sub(state.meta.started_ns));
    let sign = match (timeline.paused, unicode) {
        (true, true) => "\u{2016}",
        (true, false) => "||",
        (false, true) => "\u{25b8}",
        (false, false) => ">",
    };
    let state_word = if timeline.paused { "paused" } else { "replay" };
    let left = format!(
        "{sign} {state_word} {}  {} of {}  {}x ",
        time.unwrap_or_default(),
        clock(timeline.position_ns),
        clock(timeline.length_ns),
        timeline.speed
    );
    let mut x = area.x + 1;
    x += canvas.text(x, area.y, area.right() - x, &left, Role::Strong);
    let keys: Vec<(String, &str)> = keymap::TIMELINE
        .iter()
        .filter(|binding| !binding.hint.is_empty())
        .filter_map(|binding| Some((binding.keys.first()?.name(), binding.hint)))
        .collect();
    let keys_width: usize = keys.iter().map(|(key, word)| key.len() + word.len() + 3).sum();
    let note_width = text::width(&timeline.note) + 2;
    let room = area.right().saturating_sub(x + 1);
    let right = if timeline.note.is_empty() {
        keys_width
    } else {
        note_width
    };
    let right = u16::try_from(right).unwrap_or(u16::MAX);
    // Without room for both, a note comes before the bar and the bar before the keys.
    let (bar, right) = if room >= right.saturating_add(BAR.0) {
        (room - right, right)
    } else if timeline.note.is_empty() {
        (room, 0)
    } else {
        (0, room)
    };
    let bar = bar.min(BAR.1);
    if bar >= BAR.0 {
        let share = timeline.position_ns as f64 / timeline.length_ns.max(1) as f64;
        let done = (share.clamp(0.0, 1.0) * f64::from(bar - 1)).round() as u16;
        let (before, here, after) = if unicode {
            ("━", "●", "─")
        } else {
            ("=", "o", "-")
        };
        canvas.repeat(x, area.y, done, before, Role::Strong);
        canvas.text(x + done, area.y, 1, here, Role::Strong);
        canvas.repeat(x + done + 1, area.y, bar - 1 - done, after, Role::Rule);
        x += bar;
    }
    if right == 0 {
        return;
    }
    x += 2;
    if !timeline.note.is_empty() {
        let room = area.right().saturating_sub(x);
        canvas.text(x, area.y, room, &timeline.note, Role::Warning);
        return;
    }
    for (key, word) in keys {
        let room = area.right().saturating_sub(x);
        let pieces = [(key.as_str(), Role::Key), (" ", Role::Plain), (word, Role::Dim)];
        x += canvas.pieces(x, area.y, room, &pieces) + 2;
    }
}

/// `0:05`, `12:34`, `1:02:03`
fn clock(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if h > 0 {
        format!("{h}:{m:02}:{s:02}")
    } else {
        format!("{m}:{s:02}")
    }
}
