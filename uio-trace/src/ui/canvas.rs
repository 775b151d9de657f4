//! Drawing by coordinates, clipped, with foreign text made safe: the only way from the views to the buffer.

use super::layout::{Layout, Target};
use super::text;
use super::theme::{Role, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// A buffer and how to draw on it.
#[derive(Debug)]
pub struct Canvas<'a> {
    buffer: &'a mut Buffer,
    /// Styles and signs.
    pub theme: Theme,
    layout: Option<Layout>,
}

impl<'a> Canvas<'a> {
    /// Draws on `buffer`.
    pub fn new(buffer: &'a mut Buffer, theme: Theme) -> Canvas<'a> {
        Canvas {
            buffer,
            theme,
            layout: None,
        }
    }

    /// Draws on `buffer` and notes what stands where.
    pub fn recording(buffer: &'a mut Buffer, theme: Theme) -> Canvas<'a> {
        Canvas {
            layout: Some(Layout::default()),
            ..Canvas::new(buffer, theme)
        }
    }

    /// What was noted.
    pub fn into_layout(self) -> Layout {
        self.layout.unwrap_or_default()
    }

    /// A click on `area` means `target`.
    pub fn target(&mut self, area: Rect, target: Target) {
        if let Some(layout) = &mut self.layout {
            layout.add(area, target);
        }
    }

    /// The list that the keys move in begins with this row.
    pub fn list_begins(&mut self, first: usize) {
        if let Some(layout) = &mut self.layout {
            layout.first = Some(first);
        }
    }

    /// Draws on a sheet as wide as `area` with `rows` rows, and shows its first row above and below it those from row `first`
    /// on, as many as there is room for.
    pub fn scrolled(&mut self, area: Rect, rows: u16, first: u16, draw: impl FnOnce(&mut Canvas<'_>, Rect)) {
        let sheet = Rect::new(area.x, 0, area.width, rows);
        let mut buffer = Buffer::empty(sheet);
        let mut canvas = Canvas {
            buffer: &mut buffer,
            theme: self.theme,
            layout: self.layout.is_some().then(Layout::default),
        };
        draw(&mut canvas, sheet);
        let drawn = canvas.layout;
        for row in 0..area.height {
            let from = if row == 0 {
                0
            } else {
                first.saturating_add(row - 1)
            };
            for x in area.left()..area.right() {
                if let (Some(cell), Some(source)) =
                    (self.buffer.cell_mut((x, area.y + row)), buffer.cell((x, from)))
                {
                    cell.clone_from(source);
                }
            }
        }
        if let (Some(layout), Some(drawn)) = (&mut self.layout, drawn) {
            let (_, below) = split_top(area, 1);
            layout.add_scrolled(drawn, first, below);
        }
    }

    /// The whole area.
    pub fn area(&self) -> Rect {
        self.buffer.area
    }

    /// `content` from `x`, in at most `max` columns. Returns the columns used.
    pub fn text(&mut self, x: u16, y: u16, max: u16, content: &str, role: Role) -> u16 {
        let area = self.buffer.area;
        if y < area.top() || y >= area.bottom() || x < area.left() || x >= area.right() {
            return 0;
        }
        let max = max.min(area.right() - x);
        let clean = text::clean(content, self.theme.unicode);
        let fitted = text::fit(&clean, usize::from(max), self.theme.symbols().ellipsis);
        let (end, _) = self
            .buffer
            .set_stringn(x, y, &fitted, usize::from(max), self.theme.style(role));
        end.saturating_sub(x)
    }

    /// `content` so that it ends at `x + width`.
    pub fn text_right(&mut self, x: u16, y: u16, width: u16, content: &str, role: Role) {
        let clean = text::clean(content, self.theme.unicode);
        let columns = u16::try_from(text::width(&clean)).unwrap_or(u16::MAX).min(width);
        self.text(x + (width - columns), y, columns, &clean, role);
    }

    /// Pieces one after another from `x`, in at most `max` columns together. Returns the columns used.
    pub fn pieces<S: AsRef<str>>(&mut self, x: u16, y: u16, max: u16, pieces: &[(S, Role)]) -> u16 {
        let mut used = 0;
        for (content, role) in pieces {
            used += self.text(x + used, y, max - used, content.as_ref(), *role);
            if used >= max {
                break;
            }
        }
        used
    }

    /// `symbol` (one column) repeated.
    pub fn repeat(&mut self, x: u16, y: u16, times: u16, symbol: &str, role: Role) {
        let style = self.theme.style(role);
        for column in x..x.saturating_add(times) {
            if let Some(cell) = self.buffer.cell_mut((column, y)) {
                cell.set_symbol(symbol).set_style(style);
            }
        }
    }

    /// Adds a role's look to what a line already has.
    pub fn overlay(&mut self, area: Rect, role: Role) {
        self.buffer.set_style(area, self.theme.style(role));
    }

    /// A panel's heading over the first line of `area`: title left, note right. Returns what is left below it.
    pub fn heading(&mut self, area: Rect, title: &str, note: &str) -> Rect {
        if area.height == 0 || area.width == 0 {
            return area;
        }
        let rule = self.theme.symbols().rule;
        self.repeat(area.x, area.y, area.width, rule, Role::Rule);
        let clean_note = text::clean(note, self.theme.unicode);
        let note_width = u16::try_from(text::width(&clean_note)).unwrap_or(u16::MAX);
        let room = area.width.saturating_sub(4);
        let title = format!(" {title} ");
        let used = self.text(area.x + 1, area.y, room, &title, Role::Title);
        if !note.is_empty() && used + 4 < room {
            let width = (note_width + 2).min(room - used - 1);
            let x = area.right() - 1 - width;
            self.text(x, area.y, width, " ", Role::Plain);
            self.text(x + 1, area.y, width - 2, &clean_note, Role::Dim);
            self.text(x + width - 1, area.y, 1, " ", Role::Plain);
        }
        split_top(area, 1).1
    }
}

/// The upper `rows` of `area`, and the rest.
pub fn split_top(area: Rect, rows: u16) -> (Rect, Rect) {
    let rows = rows.min(area.height);
    (
        Rect { height: rows, ..area },
        Rect {
            y: area.y + rows,
            height: area.height - rows,
            ..area
        },
    )
}

/// The left and the right half of `area`, with `gap` columns between.
pub fn halves(area: Rect, gap: u16) -> (Rect, Rect) {
    let left = area.width.saturating_sub(gap) / 2;
    let skip = (left + gap).min(area.width);
    (
        Rect { width: left, ..area },
        Rect {
            x: area.x + skip,
            width: area.width - skip,
            ..area
        },
    )
}

/// First of `rows` rows to show in `height` lines so that `selected` is among them, in the middle where possible.
/// A function of the selection alone: scrolling needs no state that drawing would have to change.
pub fn first_visible(selected: usize, rows: usize, height: usize) -> usize {
    selected
        .saturating_sub(height / 2)
        .min(rows.saturating_sub(height))
}

/// First of `rows` rows to show in `height` lines: `top`, moved no further than it takes to have the selected row in
/// view and no empty lines below the last.
pub fn window(top: usize, selected: Option<usize>, rows: usize, height: usize) -> usize {
    let top = top.min(rows.saturating_sub(height));
    match selected {
        Some(selected) if selected < top => selected,
        Some(selected) if height > 0 && selected >= top + height => selected + 1 - height,
        _ => top,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_moves_only_as_far_as_it_must() {
        for rows in 0..12 {
            for height in 1..6 {
                for top in 0..14 {
                    for selected in 0..rows {
                        let first = window(top, Some(selected), rows, height);
                        assert!(first <= selected && selected < first + height);
                        assert!(first == 0 || first + height <= rows, "no empty lines below");
                        let stays = top + height <= rows && (top..top + height).contains(&selected);
                        assert!(!stays || first == top);
                    }
                    assert!(window(top, None, rows, height) <= top);
                }
            }
        }
    }

    #[test]
    fn the_selected_row_is_always_visible() {
        for rows in 0..20 {
            for height in 1..10 {
                for selected in 0..rows {
                    let first = first_visible(selected, rows, height);
                    assert!(
                        first <= selected && selected < first + height,
                        "{rows} {height} {selected}"
                    );
                    assert!(first == 0 || first + height <= rows, "no empty lines below");
                }
            }
        }
    }

    #[test]
    fn drawing_outside_is_ignored() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 4, 1));
        let mut canvas = Canvas::new(
            &mut buffer,
            Theme {
                colour: false,
                unicode: true,
            },
        );
        assert_eq!(canvas.text(4, 0, 9, "x", Role::Plain), 0);
        assert_eq!(canvas.text(0, 1, 9, "x", Role::Plain), 0);
        assert_eq!(canvas.text(2, 0, 9, "abcdef", Role::Plain), 2);
        canvas.text_right(0, 0, 2, "12345", Role::Plain);
        canvas.repeat(3, 0, 50, "-", Role::Plain);
        assert_eq!(buffer, Buffer::with_lines(["1…a-"]));
    }
}
