//! A table: columns that give way by priority when there is no room, figures right-aligned, the selected row in
//! view.

use crate::ui::arrange::{Align, Cell, Column};
use crate::ui::canvas::{Canvas, first_visible, split_top};
use crate::ui::phases::Phase;
use crate::ui::text;
use crate::ui::theme::Role;
use ratatui::layout::Rect;

/// Columns before the first: the cursor and a space.
const GUTTER: u16 = 2;
/// Columns between two columns.
const GAP: u16 = 2;

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
        let first = first_visible(self.selected.unwrap_or(0), self.rows.len(), height);
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
            if self.selected == Some(first + position) {
                let cursor = canvas.theme.symbols().cursor;
                canvas.text(area.x, y, 1, cursor, Role::Strong);
                canvas.overlay(Rect { y, height: 1, ..area }, Role::Selected);
            }
        }
        head.height + u16::try_from(visible.len()).unwrap_or(u16::MAX)
    }

    fn title(&self, canvas: &Canvas<'_>, column: usize) -> String {
        let symbols = canvas.theme.symbols();
        let title = self.columns[column].title;
        match self.sort {
            Some((sorted, true)) if sorted == column => format!("{title}{}", symbols.descending),
            Some((sorted, false)) if sorted == column => format!("{title}{}", symbols.ascending),
            _ => title.to_owned(),
        }
    }

    fn draw_heading(&self, canvas: &mut Canvas<'_>, head: Rect, place: &Place) {
        if head.height == 0 {
            return;
        }
        let title = self.title(canvas, place.column);
        let x = head.x + place.x;
        match self.columns[place.column].align {
            Align::Left => {
                canvas.text(x, head.y, place.width, &title, Role::Heading);
            }
            Align::Right => canvas.text_right(x, head.y, place.width, &title, Role::Heading),
        }
    }

    fn draw_cell(&self, canvas: &mut Canvas<'_>, left: u16, y: u16, place: &Place, cell: &Cell) {
        let x = left + place.x;
        match cell {
            Cell::Text(content, role) => match self.columns[place.column].align {
                Align::Left => {
                    canvas.text(x, y, place.width, content, *role);
                }
                Align::Right => canvas.text_right(x, y, place.width, content, *role),
            },
            Cell::Shares(shares) => draw_shares(canvas, x, y, place.width, shares),
        }
    }

    /// Which columns fit in `width`, and where they stand.
    fn places(&self, width: u16, visible: &[Vec<Cell>]) -> Vec<Place> {
        let mut kept: Vec<usize> = (0..self.columns.len()).collect();
        let needed = |kept: &[usize]| {
            let widths: u16 = kept.iter().map(|c| self.columns[*c].width.0).sum();
            GUTTER + widths + GAP * (kept.len() as u16).saturating_sub(1)
        };
        while needed(&kept) > width {
            let least = kept.iter().copied().max_by_key(|c| self.columns[*c].priority);
            match least {
                Some(column) if self.columns[column].priority > 0 => kept.retain(|c| *c != column),
                _ => break,
            }
        }
        let mut spare = width.saturating_sub(needed(&kept));
        // The more important a column, the earlier it gets the room its content wants.
        let mut widths: Vec<u16> = kept.iter().map(|c| self.columns[*c].width.0).collect();
        let mut by_priority: Vec<usize> = (0..kept.len()).collect();
        by_priority.sort_by_key(|i| self.columns[kept[*i]].priority);
        for i in by_priority {
            let (min, max) = self.columns[kept[i]].width;
            let wanted = natural_width(kept[i], visible).clamp(min, max);
            let more = (wanted - min).min(spare);
            widths[i] += more;
            spare -= more;
        }
        let mut x = GUTTER;
        let mut places = Vec::new();
        for (column, wanted) in kept.into_iter().zip(widths) {
            let width = wanted.min(width.saturating_sub(x));
            if width > 0 {
                places.push(Place { column, x, width });
            }
            x = x.saturating_add(wanted + GAP);
        }
        places
    }
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
