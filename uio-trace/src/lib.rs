//! uio-trace: the rooms and the data path. See ARCHITECTURE.md.

pub mod app;
pub mod cli;
pub mod config;
pub mod error;
pub mod event;
pub mod fast_map;
pub mod format;
pub mod ingest;
pub mod kernel;
pub mod model;
pub mod probes;
pub mod recording;
pub mod report;
pub mod say;
pub mod stdout;
pub mod ui;
pub mod version;
