//! The project's pages show what the program shows.
#![allow(clippy::unwrap_used, reason = "a page that is not there is a failure")]

use std::path::Path;
use uio_trace::error::AppError;

fn top() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn page(name: &str) -> String {
    std::fs::read_to_string(top().join(name)).unwrap()
}

/// Without blanks at the ends of lines.
fn trimmed(text: &str) -> String {
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_picture_in_the_readme_is_the_screen() {
    let picture = include_str!("snapshots/overview_80x24.txt");
    assert!(page("README.md").contains(trimmed(picture).trim_end()));
    let drain = include_str!("snapshots/aio_detail_serial_80x24.txt");
    let rows = drain.lines().skip(2).filter(|line| !line.trim().is_empty());
    // The hints and the sums below the waterfall are left out.
    for row in rows.filter(|row| row.contains('░') || row.contains("─ Drain")) {
        assert!(page("README.md").contains(row.trim_end()), "{row}");
    }
}

#[test]
fn exit_codes_are_those_of_the_program() {
    let readme = page("README.md");
    for (error, meaning) in [
        (AppError::OutputClosed, "done"),
        (AppError::Failed(String::new()), "something failed"),
        (AppError::Usage(String::new()), "the command line"),
        (AppError::NotPermitted(String::new()), "not permitted"),
        (AppError::Kernel(String::new()), "this kernel cannot"),
    ] {
        let row = format!("| {} | {meaning}", error.exit_code());
        assert!(readme.contains(&row), "{row}");
    }
}

#[test]
fn links_to_files_lead_somewhere() {
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        for link in page(name)
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let file = link.split('#').next().unwrap_or_default();
            if !link.starts_with("http") {
                assert!(top().join(file).exists(), "{name} links to {link}");
            }
        }
    }
}
