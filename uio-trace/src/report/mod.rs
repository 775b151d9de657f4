//! Snapshots for files and pipes: text for people, JSON and CSV for programs.

pub mod csv;
pub mod json;
pub mod text;
