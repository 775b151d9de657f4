//! stub until merged
use crate::model::snapshot::{Meta, Snapshot};
/// .
#[derive(Default)]
pub struct Options {
    /// .
    pub all: bool,
    /// .
    pub heading: bool,
}
impl Options {
    /// .
    pub fn from_env() -> Options { Options::default() }
}
/// .
pub fn render(_m: &Meta, s: &Snapshot, _o: &Options) -> String { format!("{s:#?}") }
