//! The terminal user interface: draws [`Snapshot`](crate::model::snapshot::Snapshot)s and nothing else.
//!
//! Data path: a key becomes an [`action::Action`] through the table in [`keymap`]; [`update::update`] applies it to
//! the [`state::State`] and returns [`update::Effect`]s, which the caller carries out; [`view`] draws the state.
//! State never draws and drawing never changes state, so a screen is a function of (snapshot, state, size) and is
//! tested by its text.
//!
//! [`app::App`] ties these together. It owns no thread, no terminal and no clock: whoever drives it (an async loop,
//! [`run::run`], a test) hands in input and snapshots and asks when to draw.

pub mod action;
pub mod app;
pub mod arrange;
pub mod canvas;
pub mod column;
pub mod format;
pub mod keymap;
pub mod layout;
pub mod phases;
pub mod run;
pub mod state;
pub mod terminal;
pub mod text;
pub mod theme;
pub mod update;
pub mod view;
pub mod widgets;

pub use app::App;
pub use state::TerminalFacts;
pub use update::Effect;
