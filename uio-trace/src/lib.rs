//! uio-trace: the rooms and the data path. See ARCHITECTURE.md.

pub mod event;
pub mod ingest;
pub mod kernel;
pub mod model;
pub mod probes;
