//! The help: every key of the keymap.

use crate::ui::canvas::Canvas;
use crate::ui::keymap::{self, KEYMAP, Place};
use crate::ui::phases::Phase;
use crate::ui::state::State;
use crate::ui::theme::Role;
use ratatui::layout::Rect;

/// From this width on there are two columns.
const TWO_COLUMNS: u16 = 100;
/// Columns of the keys' names.
const KEYS: u16 = 14;

/// A line of the help.
enum Line {
    Heading(&'static str),
    Key(String, &'static str),
    Legend(Phase),
    Text(&'static str),
    Blank,
}

fn lines(state: &State) -> Vec<Line> {
    let key = |binding: &keymap::Binding| {
        let keys: Vec<String> = binding.keys.iter().map(|k| k.name()).collect();
        Line::Key(keys.join(" "), binding.text)
    };
    let mut lines = Vec::new();
    if !keymap::timeline(state).is_empty() {
        lines.push(Line::Heading(keymap::TIMELINE_TITLE));
        lines.extend(keymap::timeline(state).iter().map(key));
        lines.push(Line::Blank);
    }
    for place in Place::ALL {
        lines.push(Line::Heading(place.title()));
        for binding in KEYMAP.iter().filter(|b| b.place == place) {
            lines.push(key(binding));
        }
        lines.push(Line::Blank);
    }
    lines.push(Line::Heading("Phases of a drain, in order"));
    lines.extend(Phase::ALL.into_iter().map(Line::Legend));
    lines.push(Line::Blank);
    lines.push(Line::Heading("Signs"));
    lines.push(Line::Text("64.0 ms    before a bar: from here to the next row's"));
    lines.push(Line::Text("-          not known, not measured here, or nothing"));
    lines.push(Line::Text("?          an end may be among the lost events"));
    lines.push(Line::Text("pre-trace  began before the trace: age not known"));
    lines
}

fn columns(width: u16) -> usize {
    if width >= TWO_COLUMNS { 2 } else { 1 }
}

/// The line that is first when the end of the help is in view.
pub fn last_first_line(state: &State) -> usize {
    let rows = usize::from(state.body_rows().saturating_sub(1)) * columns(state.size.0);
    lines(state).len().saturating_sub(rows)
}

/// Draws the help from the state's first line on.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, state: &State) {
    let all = lines(state);
    let columns = columns(area.width);
    let rows = usize::from(area.height.saturating_sub(1));
    let first = state
        .help
        .unwrap_or(0)
        .min(all.len().saturating_sub(rows * columns));
    let more = all.len().saturating_sub(first + rows * columns);
    let note = if more > 0 {
        format!("{more} more lines below")
    } else {
        String::new()
    };
    let body = canvas.heading(area, "Help", &note);
    let width = body.width / columns as u16;
    for (i, line) in all.iter().skip(first).take(rows * columns).enumerate() {
        let x = body.x + 1 + width * (i / rows.max(1)) as u16;
        let y = body.y + (i % rows.max(1)) as u16;
        let room = width.saturating_sub(2);
        match line {
            Line::Heading(title) => {
                canvas.text(x, y, room, title, Role::Heading);
            }
            Line::Key(keys, text) => {
                canvas.text(x + 1, y, KEYS - 1, keys, Role::Key);
                canvas.text(x + 1 + KEYS, y, room.saturating_sub(KEYS + 1), text, Role::Plain);
            }
            Line::Legend(phase) => {
                let fill = canvas.theme.fill(*phase);
                canvas.repeat(x + 1, y, 4, fill, Role::Phase(*phase));
                canvas.text(
                    x + 1 + KEYS,
                    y,
                    room.saturating_sub(KEYS + 1),
                    phase.name(),
                    Role::Plain,
                );
            }
            Line::Text(text) => {
                canvas.text(x + 1, y, room.saturating_sub(1), text, Role::Plain);
            }
            Line::Blank => {}
        }
    }
}
