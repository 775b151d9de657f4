//! Pieces that several screens draw with.

pub mod facts;
pub mod histogram;
pub mod table;
pub mod waterfall;
