//! A figure over time: a column for each sample, the newest at the right end, in steps of an eighth of a row.

use crate::ui::canvas::{Canvas, split_top};
use crate::ui::format;
use crate::ui::text;
use crate::ui::theme::Role;
use ratatui::layout::Rect;

/// Columns for the scale at the left.
const SCALE: u16 = 7;
/// A plot narrower than this shows nothing.
const LEAST_COLUMNS: u16 = 8;

/// What to plot.
#[derive(Debug)]
pub struct Plot<'a> {
    /// Heading, with the unit.
    pub title: &'a str,
    /// The newest value in words.
    pub now: String,
    /// Oldest first.
    pub samples: &'a [f64],
    /// Value of a full column.
    pub ceiling: f64,
    /// The same in words.
    pub ceiling_text: String,
    /// Of the bars.
    pub role: Role,
}

/// Height of a value, in eighths of a row, of `rows` rows; what is not zero shows.
fn eighths(value: f64, ceiling: f64, rows: u16) -> u16 {
    if value.is_nan() || value <= 0.0 || ceiling <= 0.0 {
        return 0;
    }
    let full = f64::from(rows) * 8.0;
    (value / ceiling * full).round().clamp(1.0, full) as u16
}

/// The newest samples as bars, right-aligned in `area`.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, samples: &[f64], ceiling: f64, role: Role) {
    let shown = samples.len().min(usize::from(area.width));
    let signs = canvas.theme.symbols().column;
    let left = area.right() - shown as u16;
    for (x, value) in (left..).zip(&samples[samples.len() - shown..]) {
        let height = eighths(*value, ceiling, area.height);
        for row in 0..area.height {
            // From the bottom: what of the bar lies in this row, 0 to 8.
            let part = height.saturating_sub(row * 8).min(8);
            if part > 0 {
                let sign = signs[(usize::from(part) * signs.len()).div_ceil(8) - 1];
                canvas.repeat(x, area.bottom() - 1 - row, 1, sign, role);
            }
        }
    }
}

/// Heading, scale and bars. `reach` tells how long the given number of newest samples is, ns.
pub fn panel(canvas: &mut Canvas<'_>, area: Rect, plot: &Plot<'_>, reach: impl Fn(usize) -> u64) {
    let columns = area.width.saturating_sub(SCALE + 2);
    if columns < LEAST_COLUMNS || area.height < 2 {
        return;
    }
    let shown = plot.samples.len().min(usize::from(columns));
    let length = format::stretch(reach(shown), canvas.theme.unicode);
    let long = format!("{}, last {length}", plot.now);
    let room = usize::from(area.width).saturating_sub(text::width(plot.title) + 8);
    let note = if text::width(&long) <= room {
        &long
    } else {
        &plot.now
    };
    let body = canvas.heading(area, plot.title, note);
    let (scale, _) = split_top(body, body.height);
    canvas.text_right(scale.x, scale.y, SCALE, &plot.ceiling_text, Role::Dim);
    if scale.height > 1 {
        canvas.text_right(scale.x, scale.bottom() - 1, SCALE, "0", Role::Dim);
    }
    let bars = Rect {
        x: body.x + SCALE + 1,
        width: columns,
        ..body
    };
    draw(canvas, bars, plot.samples, plot.ceiling, plot.role);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::theme::Theme;
    use ratatui::buffer::Buffer;

    fn drawn(unicode: bool, size: (u16, u16), samples: &[f64]) -> Vec<String> {
        let mut buffer = Buffer::empty(Rect::new(0, 0, size.0, size.1));
        let theme = Theme {
            colour: false,
            unicode,
        };
        let mut canvas = Canvas::new(&mut buffer, theme);
        let area = canvas.area();
        draw(&mut canvas, area, samples, 1.0, Role::Bar);
        (0..size.1)
            .map(|y| (0..size.0).map(|x| buffer[(x, y)].symbol()).collect())
            .collect()
    }

    #[test]
    fn the_newest_is_at_the_right_and_what_is_not_zero_shows() {
        assert_eq!(drawn(true, (6, 1), &[0.0, 0.001, 0.5, 1.0]), ["   ▁▄█"]);
        assert_eq!(drawn(true, (2, 1), &[1.0, 0.25, 0.75]), ["▂▆"]);
        assert_eq!(drawn(true, (3, 2), &[0.25, 0.75, 2.0]), [" ▄█", "▄██"]);
        assert_eq!(drawn(false, (4, 1), &[f64::NAN, 0.1, 0.6, 1.0]), [" _=#"]);
    }
}
