//! What is known about the traced kernel, built from [`crate::event::Event`]s alone.

pub mod snapshot;
