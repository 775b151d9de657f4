//! Labelled lines of text, wrapped: the plain part of a detail.

use crate::ui::canvas::Canvas;
use crate::ui::text;
use crate::ui::theme::Role;
use ratatui::layout::Rect;

/// A label and what there is to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// In the left column.
    pub label: String,
    /// In the right one, wrapped.
    pub text: String,
    /// Of the text.
    pub role: Role,
}

impl Fact {
    /// A plain one.
    pub fn new(label: impl Into<String>, text: impl Into<String>) -> Fact {
        Fact {
            label: label.into(),
            text: text.into(),
            role: Role::Plain,
        }
    }

    /// With a role.
    pub fn with(label: impl Into<String>, text: impl Into<String>, role: Role) -> Fact {
        Fact {
            label: label.into(),
            text: text.into(),
            role,
        }
    }
}

/// A line as drawn: label (only on a fact's first line), text, role.
pub type Line = (String, String, Role);

/// Columns of the labels, with the gap after them.
fn label_columns(facts: &[Fact], width: u16) -> u16 {
    let widest = facts.iter().map(|f| text::width(&f.label)).max().unwrap_or(0);
    u16::try_from(widest + 2).unwrap_or(u16::MAX).min(width / 2)
}

/// The lines that `facts` take in `width` columns.
pub fn lines(facts: &[Fact], width: u16, unicode: bool) -> Vec<Line> {
    let room = width.saturating_sub(label_columns(facts, width) + 2);
    let mut lines = Vec::new();
    for fact in facts {
        let clean = text::clean(&fact.text, unicode);
        let mut label = fact.label.clone();
        for line in text::wrap(&clean, usize::from(room)) {
            lines.push((std::mem::take(&mut label), line, fact.role));
        }
    }
    lines
}

/// Draws `facts` from line `first` on. Returns the rows used.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, facts: &[Fact], first: usize) -> u16 {
    let labels = label_columns(facts, area.width);
    let lines = lines(facts, area.width, canvas.theme.unicode);
    let first = first.min(lines.len().saturating_sub(usize::from(area.height)));
    let mut y = area.y;
    for (label, content, role) in lines.iter().skip(first).take(usize::from(area.height)) {
        canvas.text(area.x + 1, y, labels.saturating_sub(1), label, Role::Dim);
        canvas.text(
            area.x + 1 + labels,
            y,
            area.width.saturating_sub(labels + 1),
            content,
            *role,
        );
        y += 1;
    }
    y - area.y
}
