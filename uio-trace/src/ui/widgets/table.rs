//! A table: columns that give way by priority when there is no room, figures right-aligned, the selected row in
//! view.

use crate::ui::canvas::{Canvas, split_top, window};
use crate::ui::column::{Align, Cell, Column};
use crate::ui::layout::Target;
use crate::ui::phases::Phase;
use crate::ui::text;
use crate::ui::theme::Role;
use ratatui::layout::Rect;

/// Columns before the first: the cursor and a space.
const GUTTER: u16 = 2;
/// Columns between two columns.
const GAP: u16 = 2;

/// Width in which most names are legible.
const COMFORTABLE: u16 = 20;
/// Columns up to this priority are shown at their least width rather than not at all.
const IMPORTANT: u8 = 2;

/// What to draw.
#[derive(Debug)]
pub struct Table<'a, R: 'static> {
    /// All columns.
    pub columns: &'static [Column<R>],
    /// Sorted by this column, largest first.
    pub sort: Option<(usize, bool)>,
    /// The rows, in order.
    pub rows: &'a [&'a R],
    /// The selected one.
    pub selected: Option<usize>,
    /// First row in view, if the selected one is then in view.
    pub top: usize,
    /// What a click means.
    pub clicks: Clicks,
    /// Marked where a name contains it; empty: nothing is.
    pub filter: &'a str,
}

/// What a click on a table means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clicks {
    /// Nothing.
    None,
    /// Rows of the screen's list, this many after its first; headings sort.
    List(usize),
    /// Rows of an opened detail.
    Lines,
}

/// A column's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    column: usize,
    x: u16,
    width: u16,
}

impl<R> Table<'_, R> {
    /// Draws heading and rows; returns the rows of the screen used.
    pub fn draw(&self, canvas: &mut Canvas<'_>, area: Rect) -> u16 {
        let (head, body) = split_top(area, 1);
        let height = usize::from(body.height);
        let first = window(self.top, self.selected, self.rows.len(), height);
        if self.clicks != Clicks::None {
            canvas.list_begins(first);
        }
        let visible: Vec<Vec<Cell>> = self
            .rows
            .iter()
            .skip(first)
            .take(height)
            .map(|row| {
                self.columns
                    .iter()
                    .map(|c| (c.cell)(row, &canvas.theme))
                    .collect()
            })
            .collect();
        let places = self.places(area.width, &visible);
        for place in &places {
            self.draw_heading(canvas, head, place);
        }
        for (y, (position, cells)) in (body.y..).zip(visible.iter().enumerate()) {
            for place in &places {
                if let Some(cell) = cells.get(place.column) {
                    self.draw_cell(canvas, area.x, y, place, cell);
                }
            }
            let line = Rect { y, height: 1, ..area };
            match self.clicks {
                Clicks::None => {}
                Clicks::List(before) => canvas.target(line, Target::Row(before + first + position)),
                Clicks::Lines => canvas.target(line, Target::Line(first + position)),
            }
            if self.selected == Some(first + position) {
                let cursor = canvas.theme.symbols().cursor;
                canvas.text(area.x, y, 1, cursor, Role::Strong);
                canvas.overlay(line, Role::Selected);
            }
        }
        head.height + u16::try_from(visible.len()).unwrap_or(u16::MAX)
    }

    /// Heading of a column. ASCII has no sign that would not read as a letter of it; underlining must do.
    fn title(&self, canvas: &Canvas<'_>, column: usize) -> (String, Role) {
        let symbols = canvas.theme.symbols();
        let title = self.columns[column].title;
        match self.sort {
            Some((sorted, descending)) if sorted == column => {
                let sign = match (canvas.theme.unicode, descending) {
                    (false, _) => "",
                    (true, true) => symbols.descending,
                    (true, false) => symbols.ascending,
                };
                (format!("{title}{sign}"), Role::SortedHeading)
            }
            _ => (title.to_owned(), Role::Heading),
        }
    }

    fn draw_heading(&self, canvas: &mut Canvas<'_>, head: Rect, place: &Place) {
        if head.height == 0 {
            return;
        }
        let (title, role) = self.title(canvas, place.column);
        let x = head.x + place.x;
        if matches!(self.clicks, Clicks::List(_)) {
            let area = Rect {
                x,
                width: place.width,
                ..head
            };
            canvas.target(area, Target::Column(place.column));
        }
        match self.columns[place.column].align {
            Align::Left => {
                canvas.text(x, head.y, place.width, &title, role);
            }
            Align::Right => canvas.text_right(x, head.y, place.width, &title, role),
        }
    }

    fn draw_cell(&self, canvas: &mut Canvas<'_>, left: u16, y: u16, place: &Place, cell: &Cell) {
        let x = left + place.x;
        match cell {
            Cell::Text(content, role) => match self.columns[place.column].align {
                Align::Left => {
                    let used = canvas.text(x, y, place.width, content, *role);
                    self.mark(canvas, x, y, used, content);
                }
                Align::Right => canvas.text_right(x, y, place.width, content, *role),
            },
            Cell::Shares(shares) => draw_shares(canvas, x, y, place.width, shares),
        }
    }

    /// Marks the first place where `content`, drawn in `used` columns, contains the filter.
    fn mark(&self, canvas: &mut Canvas<'_>, x: u16, y: u16, used: u16, content: &str) {
        let Some((before, columns)) = found(content, self.filter, canvas.theme.unicode) else {
            return;
        };
        if before < used {
            let area = Rect::new(x + before, y, columns.min(used - before), 1);
            canvas.overlay(area, Role::Match);
        }
    }

    /// Which columns fit in `width`, and where they stand.
    fn places(&self, width: u16, visible: &[Vec<Cell>]) -> Vec<Place> {
        let kept = self.fitting(width);
        let mut spare = width.saturating_sub(GUTTER);
        let mut widths: Vec<(usize, u16)> = Vec::new();
        for column in kept {
            let min = self.columns[column].width.0;
            spare = spare.saturating_sub(min + GAP);
            widths.push((column, min));
        }
        // The gap after the last column is not needed.
        spare += GAP.min(width);
        // The more important a column, the earlier it gets the room its content wants.
        widths.sort_by_key(|(column, _)| self.columns[*column].priority);
        for (column, granted) in &mut widths {
            let more = self.wish(*column, visible).min(spare);
            *granted += more;
            spare -= more;
        }
        // Columns that were left out for the others' comfort, in what these did not take.
        let mut left_out: Vec<usize> = (0..self.columns.len())
            .filter(|c| widths.iter().all(|(kept, _)| kept != c))
            .collect();
        left_out.sort_by_key(|c| self.columns[*c].priority);
        for column in left_out
            .into_iter()
            .take_while(|c| self.columns[*c].priority <= IMPORTANT)
        {
            let min = self.columns[column].width.0;
            if spare >= min + GAP {
                spare -= min + GAP;
                let more = self.wish(column, visible).min(spare);
                spare -= more;
                widths.push((column, min + more));
            }
        }
        widths.sort_by_key(|(column, _)| *column);
        let mut x = GUTTER;
        let mut places = Vec::new();
        for (column, wanted) in widths {
            let width = wanted.min(width.saturating_sub(x));
            if width > 0 {
                places.push(Place { column, x, width });
            }
            x = x.saturating_add(wanted + GAP);
        }
        places
    }

    /// The columns for which there is room when names are comfortable. Depends on the width alone, so that columns
    /// do not come and go with the rows in view.
    fn fitting(&self, width: u16) -> Vec<usize> {
        let comfort = |c: usize| {
            let (min, max) = self.columns[c].width;
            COMFORTABLE.clamp(min, max.max(min))
        };
        let mut kept: Vec<usize> = (0..self.columns.len()).collect();
        let needed = |kept: &[usize]| {
            let gaps = GAP * (kept.len() as u16).saturating_sub(1);
            GUTTER + gaps + kept.iter().map(|c| comfort(*c)).sum::<u16>()
        };
        while needed(&kept) > width {
            let least = kept.iter().copied().max_by_key(|c| self.priority(*c));
            match least {
                Some(column) if self.priority(column) > 0 => kept.retain(|c| *c != column),
                _ => break,
            }
        }
        kept
    }

    /// Of a column: what is sorted by is always shown.
    fn priority(&self, column: usize) -> u8 {
        match self.sort {
            Some((sorted, _)) if sorted == column => 0,
            _ => self.columns[column].priority,
        }
    }

    /// What a column wants above its minimum.
    fn wish(&self, column: usize, visible: &[Vec<Cell>]) -> u16 {
        let (min, max) = self.columns[column].width;
        natural_width(column, visible).clamp(min, max.max(min)) - min
    }
}

/// Where `content` as it is shown contains `filter`, whatever the case: columns before it, and its columns.
fn found(content: &str, filter: &str, unicode: bool) -> Option<(u16, u16)> {
    if filter.is_empty() {
        return None;
    }
    let filter = filter.to_lowercase();
    let clean = text::clean(content, unicode);
    let columns = |part: &str| u16::try_from(text::width(part)).unwrap_or(u16::MAX);
    clean.char_indices().find_map(|(at, _)| {
        let mut lower = String::new();
        for (length, c) in clean[at..].char_indices() {
            lower.extend(c.to_lowercase());
            if !filter.starts_with(&lower) && lower != filter {
                return None;
            }
            if lower == filter {
                let end = at + length + c.len_utf8();
                return Some((columns(&clean[..at]), columns(&clean[at..end])));
            }
        }
        None
    })
}

fn natural_width(column: usize, visible: &[Vec<Cell>]) -> u16 {
    let widest = visible
        .iter()
        .filter_map(|cells| cells.get(column))
        .map(|cell| match cell {
            Cell::Text(content, _) => text::width(content),
            Cell::Shares(_) => usize::from(u16::MAX),
        });
    u16::try_from(widest.max().unwrap_or(0)).unwrap_or(u16::MAX)
}

/// A bar of `width` columns, divided among `shares`.
pub fn draw_shares(canvas: &mut Canvas<'_>, x: u16, y: u16, width: u16, shares: &[(Phase, u64)]) {
    let whole: u128 = shares.iter().map(|(_, part)| u128::from(*part)).sum();
    if whole == 0 {
        canvas.text(x, y, width, "-", Role::Dim);
        return;
    }
    let mut before = 0_u128;
    let mut from = 0;
    for (phase, part) in shares {
        before += u128::from(*part);
        // Rounded ends of the running sum: the bar is exactly as wide as its column, whatever the parts.
        let to = ((before * u128::from(width) + whole / 2) / whole) as u16;
        canvas.repeat(
            x + from,
            y,
            to - from,
            canvas.theme.fill(*phase),
            Role::Phase(*phase),
        );
        from = to;
    }
}

#[cfg(test)]
mod tests {
    use super::found;

    #[test]
    fn the_filter_is_found_where_it_stands() {
        assert_eq!(found("tcmu-runner (2201)", "RUN", true), Some((5, 3)));
        assert_eq!(found("aab", "ab", true), Some((1, 2)));
        assert_eq!(found("\u{78c1}\u{76d8} disk", "\u{76d8}", true), Some((2, 2)));
        assert_eq!(found("disk", "x", true), None);
        assert_eq!(found("disk", "", true), None);
    }
}
