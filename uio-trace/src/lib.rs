//! uio-trace: the rooms and the data path. See ARCHITECTURE.md.

pub mod event;
pub mod fast_map;
pub mod format;
pub mod model;
pub mod report;
