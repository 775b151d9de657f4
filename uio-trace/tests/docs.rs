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

/// Sources of a room, with their tests.
fn sources(room: &str, found: &mut Vec<(String, String)>) {
    let path = top().join("uio-trace/src").join(room);
    if path.is_file() {
        found.push((room.to_owned(), std::fs::read_to_string(path).unwrap()));
        return;
    }
    for entry in std::fs::read_dir(path).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        sources(&format!("{room}/{name}"), found);
    }
}

/// ARCHITECTURE.md, dependency rule.
#[test]
fn rooms_use_only_rooms_to_their_left() {
    const APP: [&str; 4] = ["app", "cli", "config", "error"];
    let rules: [(&str, &[&str], &[&str]); 8] = [
        (
            "event.rs",
            &["kernel", "ingest", "probes", "ui", "report"],
            &["aya", "tokio", "ratatui"],
        ),
        (
            "kernel",
            &["model", "ingest", "probes", "ui", "report"],
            &["aya", "tokio", "ratatui"],
        ),
        (
            "model",
            &["kernel", "ingest", "probes", "ui", "report"],
            &["aya", "tokio", "ratatui"],
        ),
        (
            "recording",
            &["kernel", "ingest", "probes", "ui", "report"],
            &["aya", "tokio", "ratatui"],
        ),
        ("ingest", &["ui", "report"], &["ratatui"]),
        ("probes", &["ui", "report"], &["tokio", "ratatui"]),
        ("ui", &["kernel", "ingest", "probes", "report"], &["aya", "tokio"]),
        (
            "report",
            &["kernel", "ingest", "probes", "ui"],
            &["aya", "tokio", "ratatui"],
        ),
    ];
    for (room, rooms, crates) in rules {
        let mut files = Vec::new();
        sources(room, &mut files);
        assert!(!files.is_empty());
        for (file, text) in files {
            let code = || text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for other in rooms.iter().chain(&APP) {
                let used = |line: &&str| {
                    line.contains(&format!("crate::{other}::"))
                        || line.trim_start().starts_with(&format!("{other}::"))
                };
                assert_eq!(code().find(used), None, "{file} uses the room {other}");
            }
            for name in crates {
                let used = |line: &&str| line.contains(&format!("{name}::"));
                assert_eq!(code().find(used), None, "{file} uses {name}");
            }
        }
    }
}
