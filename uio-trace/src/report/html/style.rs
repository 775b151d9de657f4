//! Colours and the style sheet. The palette is data, so that a test can measure its contrasts.

/// A colour: name of the CSS variable, in light, in dark.
pub(super) type Colour = (&'static str, &'static str, &'static str);

/// Surfaces, by use.
pub(super) const SURFACES: &[Colour] = &[("paper", "#ffffff", "#0e1116"), ("panel", "#f5f7f9", "#171b22")];

/// Text, at least 4.5:1 on each surface (WCAG 2.2, 1.4.3).
pub(super) const INKS: &[Colour] = &[
    ("ink", "#1a1f26", "#e6ebf1"),
    ("soft", "#505a66", "#a3adb9"),
    ("critical", "#b3201a", "#ff9188"),
    ("warning", "#7d4e00", "#f0bd5c"),
    ("link", "#0a58b0", "#82b7ff"),
];

/// Graphics, at least 3:1 on each surface (WCAG 2.2, 1.4.11).
pub(super) const GRAPHICS: &[Colour] = &[
    ("c1", "#1f6fb2", "#68aef0"),
    ("c2", "#a36200", "#f0b552"),
    ("c3", "#6f4bb0", "#b79cf0"),
    ("c4", "#c23f10", "#ff8f66"),
    ("axis", "#7b8590", "#76808c"),
];

/// Lines that only guide the eye.
const GUIDES: &[Colour] = &[("line", "#d5dbe1", "#2c333d")];

const RULES: &str = "\
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem 1rem 4rem;max-width:62rem;background:var(--paper);color:var(--ink);\
font:1rem/1.5 system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}
h1{font-size:1.5rem;margin:0 0 .25rem}
h2{font-size:1.25rem;margin:2.5rem 0 .5rem;padding-top:.5rem;border-top:2px solid var(--line)}
h3{font-size:1.05rem;margin:1.75rem 0 .25rem;overflow-wrap:anywhere}
p{margin:.4rem 0}
a{color:var(--link)}
code,.mono{font-family:ui-monospace,'DejaVu Sans Mono',monospace;font-size:.9em}
.muted,.how,caption{color:var(--soft)}
.how{font-size:.9rem}
.skip{position:absolute;left:-99rem}
.skip:focus{position:static}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;margin:.75rem 0 0;padding:0}
.findings{list-style:none;margin:0;padding:0}
.findings li{display:grid;grid-template-columns:6.5rem 1fr 7.5rem;gap:.25rem 1rem;align-items:start;\
padding:.7rem .9rem;margin:.5rem 0;background:var(--panel);border-left:.35rem solid var(--axis)}
.findings li.critical{border-left-color:var(--critical)}
.findings li.warning{border-left-color:var(--warning)}
.findings b.level{font-size:.85rem}
.critical b.level{color:var(--critical)}
.warning b.level{color:var(--warning)}
.info b.level{color:var(--soft)}
.findings .lost{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.findings .lost small{display:block;color:var(--soft);white-space:normal}
.findings p{margin:0;overflow-wrap:anywhere}
.remark{border:1px solid var(--warning);padding:.5rem .9rem;margin:.75rem 0}
.scroll{overflow-x:auto;margin:.5rem 0}
.scroll:focus-visible{outline:2px solid var(--link);outline-offset:2px}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums;width:100%}
caption{text-align:left;padding:.25rem 0}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
thead th{border-bottom:2px solid var(--axis);white-space:nowrap}
tbody th{font-weight:600;min-width:7.5rem}
tbody th.n{min-width:0}
th.n,td.n{text-align:right;white-space:nowrap}
tbody th,td{overflow-wrap:break-word;max-width:24rem}
details{margin:.5rem 0}
summary{cursor:pointer;color:var(--link);font-size:.9rem}
figure{margin:.75rem 0}
figcaption{font-size:.9rem;margin-bottom:.25rem}
svg.plot{display:block;width:100%;min-width:40rem;height:auto}
svg text{fill:var(--ink);font-size:12px;font-family:inherit}
svg text.soft{fill:var(--soft)}
svg text.mono{font-family:ui-monospace,'DejaVu Sans Mono',monospace;font-size:11px}
svg text.end{text-anchor:end}
svg text.mid{text-anchor:middle}
svg .grid{stroke:var(--line);stroke-width:1}
svg .axis{stroke:var(--axis);stroke-width:1}
svg .mark{stroke:var(--ink);stroke-width:1;stroke-dasharray:3 2}
svg .outline{fill:none;stroke:var(--ink);stroke-width:1}
svg .bar1{fill:var(--c1)}
svg .bar2{fill:var(--c2)}
svg .bar3{fill:var(--c3)}
svg .bar4{fill:var(--c4)}
svg .wait{fill:var(--c4)}
svg .hold{fill:var(--c1)}
svg .s{fill:none;stroke-width:2}
svg .s1{stroke:var(--c1)}
svg .s2{stroke:var(--c4);stroke-dasharray:7 3}
svg .s3{stroke:var(--c3);stroke-dasharray:2 3}
svg .s4{stroke:var(--c2);stroke-dasharray:9 3 2 3}
svg .users-gp{fill:url(#p-users-gp)}
svg .users-refs{fill:url(#p-users-refs)}
svg .reqs-gp{fill:url(#p-reqs-gp)}
svg .reqs-io{fill:var(--c4)}
svg .unsplit{fill:url(#p-unsplit)}
svg .together{fill:none;stroke:var(--ink);stroke-dasharray:4 3}
svg .k1{stroke:var(--c1);fill:var(--c1)}
svg .k2{stroke:var(--c2);fill:var(--c2)}
svg .k3{stroke:var(--c3);fill:var(--c3)}
svg .kx{stroke:var(--axis);fill:var(--axis)}
svg.key{display:inline-block;width:1.9rem;height:.8rem;vertical-align:-.05rem;margin-right:.35rem}
.keys{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;font-size:.875rem;margin:.35rem 0;padding:0;list-style:none}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:.5rem 0;font-size:.9rem}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
@media (max-width:40rem){
.findings li{grid-template-columns:1fr auto}
.findings .what{grid-column:1 / -1;grid-row:2}
}
@media print{
body{max-width:none;padding:0;font-size:10pt}
nav,.skip{display:none}
h2,h3{break-after:avoid}
figure,.findings li,tr{break-inside:avoid}
.scroll{overflow:visible}
svg.plot{min-width:0}
table{font-size:7.5pt}
th,td{padding:.15rem .3rem}
thead th,th.n,td.n{white-space:normal}
tbody th{min-width:0}
h3+p{break-after:avoid}
.findings li{border:1px solid var(--axis);border-left-width:.35rem}
}
";

fn variables(colours: impl Iterator<Item = (&'static str, &'static str)>) -> String {
    colours
        .map(|(name, value)| format!("--{name}:{value};"))
        .collect()
}

/// The style sheet.
pub(super) fn sheet() -> String {
    let all = || SURFACES.iter().chain(INKS).chain(GRAPHICS).chain(GUIDES);
    let light = variables(all().map(|c| (c.0, c.1)));
    let dark = variables(all().map(|c| (c.0, c.2)));
    format!(
        ":root{{color-scheme:light dark;{light}}}\n\
         @media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n\
         @media print{{:root{{color-scheme:light;{light}}}}}\n{RULES}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance, WCAG 2.2.
    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_and_graphics_stand_out() {
        assert!((contrast("#ffffff", "#000000") - 21.0).abs() < 1e-9);
        for (colours, least) in [(INKS, 4.5), (GRAPHICS, 3.0)] {
            for colour in colours {
                for surface in SURFACES {
                    let light = contrast(colour.1, surface.1);
                    let dark = contrast(colour.2, surface.2);
                    assert!(light >= least, "{} on {}, light: {light:.2}", colour.0, surface.0);
                    assert!(dark >= least, "{} on {}, dark: {dark:.2}", colour.0, surface.0);
                }
            }
        }
    }
}
