//! Columns of tables: how a cell is made, how rows compare, how much room it takes.

use super::phases::Phase;
use super::theme::{Role, Theme};
use std::cmp::Ordering;

/// Where a column's text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Names.
    Left,
    /// Figures.
    Right,
}

/// What stands in a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// A text.
    Text(String, Role),
    /// Shares of a whole, as one bar.
    Shares(Vec<(Phase, u64)>),
}

impl Cell {
    /// Plain text.
    pub fn plain(text: impl Into<String>) -> Cell {
        Cell::Text(text.into(), Role::Plain)
    }

    /// Not known, or nothing to show.
    pub fn none() -> Cell {
        Cell::Text("-".into(), Role::Dim)
    }

    /// A duration, ns.
    pub fn time(ns: u64, theme: &Theme) -> Cell {
        Cell::plain(super::format::duration(ns, theme.unicode))
    }

    /// A duration that may be unknown, ns.
    pub fn time_if(ns: Option<u64>, theme: &Theme) -> Cell {
        ns.map_or_else(Cell::none, |ns| Cell::time(ns, theme))
    }

    /// A count.
    pub fn count(n: u64) -> Cell {
        Cell::plain(super::format::count(n))
    }

    /// A count that should be 0: marked when it is not.
    pub fn bad_count(n: u64) -> Cell {
        match n {
            0 => Cell::plain("0"),
            n => Cell::Text(super::format::count(n), Role::Warning),
        }
    }
}

/// How a cell is made.
pub type MakeCell<R> = fn(&R, &Theme) -> Cell;
/// Ascending order of rows.
pub type Compare<R> = fn(&R, &R) -> Ordering;

/// A column: how its cells are made and how rows compare by it.
#[derive(Debug)]
pub struct Column<R: 'static> {
    /// Heading, with the unit unless the cells carry their own.
    pub title: &'static str,
    /// Side.
    pub align: Align,
    /// Narrowest and widest.
    pub width: (u16, u16),
    /// Columns with a higher number go first when there is no room; 0 never goes.
    pub priority: u8,
    /// Largest first, when the user comes to this column.
    pub descending: bool,
    /// Makes the cell.
    pub cell: MakeCell<R>,
    /// Ascending order.
    pub compare: Compare<R>,
}

impl<R> Column<R> {
    /// Names: on the left, from A to Z at first.
    pub const fn names(
        title: &'static str,
        width: (u16, u16),
        priority: u8,
        cell: MakeCell<R>,
        compare: Compare<R>,
    ) -> Column<R> {
        Column {
            title,
            align: Align::Left,
            width,
            priority,
            descending: false,
            cell,
            compare,
        }
    }

    /// Figures: on the right, in a fixed width, largest first.
    pub const fn figures(
        title: &'static str,
        width: u16,
        priority: u8,
        cell: MakeCell<R>,
        compare: Compare<R>,
    ) -> Column<R> {
        Column {
            title,
            align: Align::Right,
            width: (width, width),
            priority,
            descending: true,
            cell,
            compare,
        }
    }

    /// The same column with the other direction first.
    pub const fn ascending(self) -> Column<R> {
        Column {
            descending: false,
            ..self
        }
    }

    /// The same column, largest first.
    pub const fn largest_first(self) -> Column<R> {
        Column {
            descending: true,
            ..self
        }
    }
}

/// A column of durations: what is given for a row, an `Option<u64>` of ns, is shown and compared.
macro_rules! times {
    ($title:expr, $width:expr, $priority:expr, |$row:ident: $kind:ty| $ns:expr) => {{
        fn ns($row: &$kind) -> Option<u64> {
            $ns
        }
        $crate::ui::column::Column::figures(
            $title,
            $width,
            $priority,
            |row, theme| $crate::ui::column::Cell::time_if(ns(row), theme),
            |a, b| ns(a).cmp(&ns(b)),
        )
    }};
}

/// A column of counts, likewise.
macro_rules! counts {
    ($title:expr, $width:expr, $priority:expr, |$row:ident: $kind:ty| $count:expr) => {{
        fn count($row: &$kind) -> u64 {
            $count
        }
        $crate::ui::column::Column::figures(
            $title,
            $width,
            $priority,
            |row, _| $crate::ui::column::Cell::count(count(row)),
            |a, b| count(a).cmp(&count(b)),
        )
    }};
}

/// A column of names, likewise.
macro_rules! names {
    ($title:expr, $width:expr, $priority:expr, |$row:ident: $kind:ty| $name:expr) => {{
        fn name($row: &$kind) -> &str {
            $name
        }
        $crate::ui::column::Column::names(
            $title,
            $width,
            $priority,
            |row, _| $crate::ui::column::Cell::plain(name(row)),
            |a, b| name(a).cmp(name(b)),
        )
    }};
}

pub(crate) use {counts, names, times};

/// For tables that keep their rows' order.
pub fn unsorted<R>(_: &R, _: &R) -> Ordering {
    Ordering::Equal
}
