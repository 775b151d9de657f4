//! What stands where: drawing with a recording canvas tells it, so that a click means what is seen there, and no view
//! has to describe its layout twice.

use super::action::Action;
use super::state::Screen;
use ratatui::layout::{Position, Rect};

/// What a click on a place means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A screen's name.
    Screen(Screen),
    /// A row of the screen's list.
    Row(usize),
    /// A column's heading in the screen's list.
    Column(usize),
    /// A row of an opened detail: an operation, a context.
    Line(usize),
    /// A key in the last line.
    Key(Action),
}

/// Places of a drawn screen.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Layout {
    targets: Vec<(Rect, Target)>,
    /// First visible row of the list, or of the detail's, that the keys move in.
    pub first: Option<usize>,
}

impl Layout {
    /// Adds a place; later ones lie over earlier ones.
    pub fn add(&mut self, area: Rect, target: Target) {
        self.targets.push((area, target));
    }

    /// Adds what was drawn on a sheet whose rows from `first` on are seen at `window`.
    pub fn add_scrolled(&mut self, sheet: Layout, first: u16, window: Rect) {
        for (mut area, target) in sheet.targets {
            let hidden = first.saturating_sub(area.y).min(area.height);
            area.height -= hidden;
            area.y = (area.y + hidden).saturating_sub(first).saturating_add(window.y);
            let seen = area.intersection(window);
            if !seen.is_empty() {
                self.add(seen, target);
            }
        }
        self.first = sheet.first.or(self.first);
    }

    /// What is at a place.
    pub fn at(&self, x: u16, y: u16) -> Option<Target> {
        let hit = |(area, _): &&(Rect, Target)| area.contains(Position { x, y });
        self.targets.iter().rev().find(hit).map(|(_, target)| *target)
    }
}
