//! Pieces that several screens draw with.

pub mod facts;
pub mod histogram;
pub mod shape;
pub mod sparkline;
pub mod table;
pub mod waterfall;
