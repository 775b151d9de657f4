//! The findings as paragraphs: how bad, on what, why, and what time is lost. Every text is shown whole; what does not fit is
//! below, and counted.

use crate::format::time_lost;
use crate::model::snapshot::Finding;
use crate::ui::canvas::{Canvas, first_visible};
use crate::ui::format;
use crate::ui::layout::Target;
use crate::ui::state::State;
use crate::ui::text;
use crate::ui::theme::{self, Role};
use ratatui::layout::Rect;

/// Columns before a finding's text: the cursor and the severity.
const INDENT: u16 = 7;
/// Columns at the right end for the time lost, with a gap before it.
const LOST: u16 = 7;

/// A piece of a line and its look.
type Piece = (String, Role);

/// A line of the panel.
pub struct Line {
    /// Of which of the findings.
    finding: usize,
    pieces: Vec<Piece>,
    /// Severity and time lost, on a finding's first line.
    first: Option<(&'static str, Role, String)>,
}

/// Subject and text as one sentence. The texts name their subject themselves; where one does not, it goes before it,
/// unless it only says that it is about the whole host or trace.
fn sentence(finding: &Finding, unicode: bool) -> (String, Option<(usize, usize)>) {
    let subject = &finding.subject;
    let text = format::micro(&finding.text, unicode);
    if let Some(at) = text.find(subject.as_str()) {
        return (text, Some((at, at + subject.len())));
    }
    match subject.as_str() {
        "host" | "trace" | "" => (text, None),
        _ => (format!("{subject}: {text}"), Some((0, subject.len()))),
    }
}

/// `text` in lines of at most `room` columns, with the bytes of `strong` standing out.
fn paragraph(text: &str, strong: Option<(usize, usize)>, room: usize, unicode: bool) -> Vec<Vec<Piece>> {
    let mut lines: Vec<Vec<Piece>> = Vec::new();
    let mut used = room;
    for word in text::words(text) {
        // A word is a part of the text, so this is its place there.
        let at = word.as_ptr().addr() - text.as_ptr().addr();
        let role = match strong {
            Some((from, to)) if at >= from && at < to => Role::Strong,
            _ => Role::Plain,
        };
        let clean = text::clean(word, unicode);
        for (part_of_word, part) in text::wrap(&clean, room).into_iter().enumerate() {
            let columns = text::width(&part);
            let gap = usize::from(part_of_word == 0);
            if used + gap + columns > room || lines.is_empty() {
                lines.push(vec![(part, role)]);
                used = columns;
                continue;
            }
            used += gap + columns;
            if let Some(line) = lines.last_mut() {
                if gap > 0
                    && let Some((before, _)) = line.last_mut()
                {
                    before.push(' ');
                }
                match line.last_mut() {
                    Some((before, same)) if *same == role => before.push_str(&part),
                    _ => line.push((part, role)),
                }
            }
        }
    }
    lines
}

/// The findings' lines in `width` columns.
pub fn lines(findings: &[&Finding], width: u16, unicode: bool) -> Vec<Line> {
    let room = usize::from(width.saturating_sub(INDENT + LOST + 1)).max(1);
    let mut lines = Vec::new();
    for (index, finding) in findings.iter().enumerate() {
        let (word, role) = theme::severity(finding);
        let mut first = Some((word, role, time_lost(finding.cost).replace(' ', "")));
        let (text, strong) = sentence(finding, unicode);
        for pieces in paragraph(&text, strong, room, unicode) {
            lines.push(Line {
                finding: index,
                pieces,
                first: first.take(),
            });
        }
    }
    lines
}

/// Draws the panel: heading, lines around the selected finding, and how many findings are below.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, state: &State, lines: &[Line], selected: Option<usize>) {
    let any_lost = lines
        .iter()
        .any(|l| l.first.as_ref().is_some_and(|f| !f.2.is_empty()));
    let note = if any_lost {
        "time lost: seconds per second"
    } else {
        ""
    };
    let body = canvas.heading(area, "Findings", note);
    if lines.is_empty() {
        let text = if state.view().filter.is_empty() {
            "None."
        } else {
            "No finding contains the filter's text."
        };
        canvas.text(body.x + 2, body.y, body.width.saturating_sub(2), text, Role::Dim);
        return;
    }
    let height = usize::from(body.height);
    let cut = lines.len() > height;
    let height = height.saturating_sub(usize::from(cut && height > 1));
    // By lines, so that the selected finding's first line is in view, and as much as possible around it.
    let first_of = |finding: usize| lines.iter().position(|l| l.finding == finding);
    let first = selected
        .and_then(first_of)
        .map_or(0, |line| first_visible(line, lines.len(), height));
    let shown = lines.iter().skip(first).take(height);
    for (y, line) in (body.y..).zip(shown) {
        draw_line(
            canvas,
            Rect { y, height: 1, ..body },
            line,
            selected == Some(line.finding),
        );
    }
    if cut {
        let all = lines.last().map_or(0, |l| l.finding + 1);
        // Counted as shown: what begins in view.
        let whole = lines.get(first + height).map_or(all, |next| {
            next.finding + usize::from(next.first.is_none() && next.finding + 1 < all)
        });
        let text = match all - whole {
            0 => "the rest is below: down, Enter".to_owned(),
            n => format!("{n} more below: down, Enter"),
        };
        let y = body.bottom() - 1;
        canvas.text(
            body.x + INDENT,
            y,
            body.width.saturating_sub(INDENT),
            &text,
            Role::Dim,
        );
    }
}

fn draw_line(canvas: &mut Canvas<'_>, area: Rect, line: &Line, selected: bool) {
    canvas.target(area, Target::Row(line.finding));
    if let Some((word, role, lost)) = &line.first {
        canvas.text(area.x + 2, area.y, INDENT - 2, word, *role);
        let right = area.right().saturating_sub(LOST);
        canvas.text_right(right, area.y, LOST - 1, lost, Role::Strong);
        if selected {
            let cursor = canvas.theme.symbols().cursor;
            canvas.text(area.x, area.y, 1, cursor, Role::Strong);
        }
    }
    let room = area.width.saturating_sub(INDENT + LOST);
    canvas.pieces(area.x + INDENT, area.y, room, &line.pieces);
    if selected {
        canvas.overlay(area, Role::Selected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::Severity;

    fn finding(subject: &str, text: &str) -> Finding {
        Finding {
            id: "x".into(),
            severity: Severity::Warning,
            subject: subject.into(),
            text: text.into(),
            cost: 0.5,
            evidence: Default::default(),
        }
    }

    fn shown(subject: &str, text: &str, width: u16) -> Vec<String> {
        let finding = finding(subject, text);
        let line = |line: &Line| {
            let mark = |(text, role): &Piece| match role {
                Role::Strong => format!("*{text}*"),
                _ => text.clone(),
            };
            line.pieces.iter().map(mark).collect()
        };
        lines(&[&finding], width, true).iter().map(line).collect()
    }

    #[test]
    fn the_subject_is_said_once_and_stands_out() {
        let lines = shown("uio0 (a b)", "uio0 (a b) is serialised", 80);
        assert_eq!(lines, ["*uio0 (a b) *is serialised"]);
        let lines = shown("uio0", "waits of uio0 are not measured", 80);
        assert_eq!(lines, ["waits of *uio0 *are not measured"]);
        let lines = shown("fio (1)", "nothing", 80);
        assert_eq!(lines, ["*fio (1): *nothing"]);
        assert_eq!(shown("host", "nothing here", 80), ["nothing here"]);
    }

    #[test]
    fn nothing_of_a_text_is_cut() {
        let text = "a sentence of several words and averylongwordwithoutanyblank";
        for width in 20..90 {
            let all: String = shown("host", text, width)
                .iter()
                .inspect(|line| assert!(text::width(line) <= usize::from(width - INDENT - LOST - 1)))
                .map(|line| line.replace(' ', ""))
                .collect();
            assert_eq!(all, text.replace(' ', ""), "{width}");
        }
    }
}
