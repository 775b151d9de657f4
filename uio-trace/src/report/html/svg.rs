//! Pieces of plots: frames with title and description, axes, scales.

use super::text::esc;
use crate::format::duration;

/// Width of every plot in its own units.
pub(super) const WIDTH: f64 = 960.0;

/// Fill patterns of the phases, defined once for the page: each has its own colour and its own texture.
pub(super) const PATTERNS: &str = "\
<svg width=\"0\" height=\"0\" style=\"position:absolute\" aria-hidden=\"true\"><defs>\
<pattern id=\"p-users-gp\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
<path class=\"k1\" stroke-width=\"2.2\" d=\"M-1 7L7 -1M-1 1L1 -1M5 7L7 5\"/></pattern>\
<pattern id=\"p-users-refs\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">\
<circle class=\"k2\" stroke-width=\"0\" cx=\"2.5\" cy=\"2.5\" r=\"1.7\"/></pattern>\
<pattern id=\"p-reqs-gp\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">\
<path class=\"k3\" stroke-width=\"2.4\" d=\"M0 2.5H5\"/></pattern>\
<pattern id=\"p-unsplit\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
<path class=\"kx\" stroke-width=\"1.4\" d=\"M0 3H6M3 0V6\"/></pattern>\
</defs></svg>\n";

/// A plot of `height`; `draw` adds what is in it. `title` and `desc` are for those who do not see it.
pub(super) fn plot(
    p: &mut String,
    id: &str,
    height: f64,
    title: &str,
    desc: &str,
    draw: impl FnOnce(&mut String),
) {
    p.push_str(&format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\">\n\
         <svg class=\"plot\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\n\
         <title id=\"{id}-t\">{title}</title>\n<desc id=\"{id}-d\">{}</desc>\n",
        esc(desc),
        title = esc(title),
    ));
    draw(p);
    p.push_str("</svg>\n</div>\n");
}

/// A text at a place; `class`: `end` and `mid` say what of it is there.
pub(super) fn label(p: &mut String, x: f64, y: f64, class: &str, text: &str) {
    p.push_str(&format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>\n",
        esc(text)
    ));
}

/// A line.
pub(super) fn line(p: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
    p.push_str(&format!(
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>\n"
    ));
}

/// A rectangle, with a text that shows when pointed at.
pub(super) fn bar(p: &mut String, (x, y): (f64, f64), (w, h): (f64, f64), class: &str, tip: &str) {
    let tip = if tip.is_empty() {
        String::new()
    } else {
        format!("<title>{}</title>", esc(tip))
    };
    p.push_str(&format!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" class=\"{class}\">{tip}</rect>\n"
    ));
}

/// A duration without digits that say nothing: `1 us`, `2.5 ms`, `0`.
pub(super) fn tick(ns: f64) -> String {
    if ns <= 0.0 {
        return "0".into();
    }
    if ns < 1000.0 {
        return format!("{} ns", trimmed(ns));
    }
    for (scale, unit) in [(1e3, "us"), (1e6, "ms")] {
        if ns < scale * 1e3 {
            return format!("{} {unit}", trimmed(ns / scale));
        }
    }
    if ns < 100e9 {
        return format!("{} s", trimmed(ns / 1e9));
    }
    duration(ns as u64)
}

/// At most three decimals, no zeros at the end.
pub(super) fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Round steps (1, 2 or 5 times a power of ten) from 0 to at least `max`, about `wanted` of them.
pub(super) fn steps(max: f64, wanted: u32) -> Vec<f64> {
    if !(max > 0.0 && max.is_finite()) {
        return vec![0.0, 1.0];
    }
    let raw = max / f64::from(wanted.max(1));
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|s| *s >= raw * 0.999_999)
        .unwrap_or(10.0 * power);
    let n = (max / step - 1e-9).ceil().max(1.0) as u32;
    (0..=n).map(|i| f64::from(i) * step).collect()
}

/// A logarithmic scale of durations, ns.
pub(super) struct Log {
    from: f64,
    to: f64,
    left: f64,
    width: f64,
}

impl Log {
    /// From `lo` to `hi` ns, at least an octave, on `width` from `left`.
    pub(super) fn new(lo: u64, hi: u64, left: f64, width: f64) -> Log {
        let from = (lo.max(1) as f64 / 1.15).log10();
        let to = (hi.max(2) as f64 * 1.15).log10().max(from + 0.31);
        Log {
            from,
            to,
            left,
            width,
        }
    }

    /// Place of a duration.
    pub(super) fn x(&self, ns: f64) -> f64 {
        let at = (ns.max(1.0).log10() - self.from) / (self.to - self.from);
        self.left + at.clamp(0.0, 1.0) * self.width
    }

    /// Round durations within: decades, with 2 and 5 where there is room.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let factors: &[f64] = if self.to - self.from <= 3.0 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let decades = (self.from.floor() as i32)..=(self.to.ceil() as i32);
        decades
            .flat_map(|decade| factors.iter().map(move |f| f * 10f64.powi(decade)))
            .filter(|ns| {
                let log = ns.log10();
                log >= self.from && log <= self.to
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(steps(97.0, 4), [0.0, 50.0, 100.0]);
        assert_eq!(steps(1.0, 4), [0.0, 0.5, 1.0]);
        assert_eq!(steps(2.9, 4), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(steps(0.0, 4), [0.0, 1.0]);
        for odd in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(steps(odd, 4), [0.0, 1.0]);
        }
        assert_eq!(
            [0.0, 5.0, 1500.0, 2e6, 2.5e9, 125e9].map(tick),
            ["0", "5 ns", "1.5 us", "2 ms", "2.5 s", "2m 05s"]
        );
    }

    #[test]
    fn a_logarithmic_scale_stays_within_its_bounds() {
        for (lo, hi) in [(0, 0), (1, 1), (1000, 1000), (1, u64::MAX), (200_000, 3_000_000)] {
            let scale = Log::new(lo, hi, 100.0, 500.0);
            for ns in [0.0, lo as f64, hi as f64] {
                let x = scale.x(ns);
                assert!((100.0..=600.0).contains(&x), "{lo} {hi} {ns}: {x}");
            }
            assert!(!scale.ticks().is_empty(), "{lo} {hi}");
            assert!(scale.ticks().len() <= 24, "{lo} {hi}");
        }
    }
}
