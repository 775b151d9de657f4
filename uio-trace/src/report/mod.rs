//! Snapshots for files and pipes: text for people, JSON and CSV for programs.

pub mod csv;
pub mod diff;
pub mod folded;
pub mod html;
pub mod json;
pub mod perfetto;
pub mod story;
pub mod text;
