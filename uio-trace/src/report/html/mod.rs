//! The report as one HTML file: no network, no script, readable in light and dark, on paper, and without eyes.
//!
//! Every plot is inline SVG with a title and a description, and has a table beside it that says the same. All text
//! goes through [`text::esc`]: names of processes and devices are chosen by strangers. The file is well-formed XML, which
//! a test parses.

mod aio;
mod distribution;
mod overview;
mod refs;
mod style;
mod svg;
mod text;
mod timeline;
mod uio;
mod waterfall;

use super::story::Story;
use std::io::{self, Write};
use text::esc;

/// Devices shown with plots; the others are rows of a table.
const MAX_DEVICES: usize = 6;
/// Drains shown as waterfalls.
const MAX_WATERFALLS: usize = 10;
/// Rows of a table.
const MAX_ROWS: usize = 50;

/// Writes the page.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut impl Write, story: &Story) -> io::Result<()> {
    out.write_all(page(story).as_bytes())
}

fn page(story: &Story) -> String {
    let mut p = String::new();
    let title = format!("uio-trace: {}", esc(&story.meta.host));
    p.push_str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n");
    // Even a mistake in escaping could load or run nothing.
    p.push_str(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n",
    );
    p.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n");
    p.push_str("<meta name=\"color-scheme\" content=\"light dark\"/>\n");
    p.push_str(&format!(
        "<title>{title}</title>\n<style>\n{}</style>\n</head>\n",
        style::sheet()
    ));
    p.push_str("<body>\n<a class=\"skip\" href=\"#findings\">To the findings</a>\n");
    p.push_str(svg::PATTERNS);
    overview::header(&mut p, story);
    p.push_str("<main>\n");
    overview::findings(&mut p, &story.snapshot);
    overview::in_progress(&mut p, &story.snapshot);
    uio::section(&mut p, story);
    aio::section(&mut p, story);
    refs::section(&mut p, story);
    timeline::section(&mut p, story);
    overview::trust(&mut p, story);
    p.push_str("</main>\n</body>\n</html>\n");
    p
}
