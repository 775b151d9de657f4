//! What crosses the kernel boundary.
//!
//! The rule of this crate: plain integers and arrays of them, no `bool`, `enum`, `Option` or implicit
//! padding. The `zerocopy` derives reject a struct with padding, so a layout mistake does not compile.
//! The BPF side writes these structs; `uio-trace` reads them and turns them into typed values at once.
#![no_std]
#![deny(missing_docs)]

pub mod event;
pub mod histogram;
pub mod loss;
pub mod offsets;
pub mod uio;
