//! Text for HTML: escaping, and small pieces that every section uses.

use crate::format::printable;

/// Text of any origin, fit for element content and quoted attributes.
pub(super) fn esc(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text.to_owned()).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not characters of XML.
            '\u{fffe}' | '\u{ffff}' => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// One column of a table.
pub(super) struct Column {
    /// Heading.
    pub name: &'static str,
    /// Figures: to the right.
    pub number: bool,
}

/// A column of text.
pub(super) const fn words(name: &'static str) -> Column {
    Column { name, number: false }
}

/// A column of figures.
pub(super) const fn figures(name: &'static str) -> Column {
    Column { name, number: true }
}

/// A table that can be scrolled sideways. `cells` are plain text, escaped here; the first of a row is its heading.
pub(super) fn table(p: &mut String, caption: &str, columns: &[Column], rows: &[Vec<String>]) {
    let caption = esc(caption);
    p.push_str(&format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\">\n<table>\n\
         <caption>{caption}</caption>\n<thead><tr>"
    ));
    for column in columns {
        let class = if column.number { " class=\"n\"" } else { "" };
        p.push_str(&format!("<th scope=\"col\"{class}>{}</th>", esc(column.name)));
    }
    p.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        p.push_str("<tr>");
        for (i, (cell, column)) in row.iter().zip(columns).enumerate() {
            let class = if column.number { " class=\"n\"" } else { "" };
            if i == 0 {
                p.push_str(&format!("<th scope=\"row\"{class}>{}</th>", esc(cell)));
            } else {
                p.push_str(&format!("<td{class}>{}</td>", esc(cell)));
            }
        }
        p.push_str("</tr>\n");
    }
    p.push_str("</tbody>\n</table>\n</div>\n");
}

/// What is left out.
pub(super) fn more(p: &mut String, shown: usize, total: usize, what: &str) {
    if total > shown {
        let n = crate::format::plural((total - shown) as u64, what);
        p.push_str(&format!(
            "<p class=\"muted\">And {} more, not shown.</p>\n",
            esc(&n)
        ));
    }
}

/// A sentence that explains what is to be seen.
pub(super) fn how_to_read(p: &mut String, sentence: &str) {
    p.push_str(&format!(
        "<p class=\"how\"><b>How to read this:</b> {}</p>\n",
        esc(sentence)
    ));
}

#[cfg(test)]
mod tests {
    use super::esc;

    #[test]
    fn nothing_is_markup() {
        assert_eq!(
            esc("<b a=\"x\" b='y'>&\u{1b}[2J\u{202e}\u{0}</b>"),
            "&lt;b a=&quot;x&quot; b=&#39;y&#39;&gt;&amp;?[2J??&lt;/b&gt;"
        );
    }
}
