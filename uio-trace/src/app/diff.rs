//! `diff`: two recordings or dumps beside each other.

use super::{filter::Filter, report::from_file};
use crate::{
    config::DiffConfig,
    error::AppError,
    recording::frame,
    report::diff::{self, Side, dump},
};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// Runs.
///
/// # Errors
/// What ended it other than well.
pub fn run(config: &DiffConfig) -> Result<(), AppError> {
    config.target.check(&[&config.before, &config.after])?;
    let before = side(&config.before)?;
    let after = side(&config.after)?;
    let comparison = diff::compare(&before, &after);
    let (a, b) = (config.before.to_string_lossy(), config.after.to_string_lossy());
    let sides = [(a.as_ref(), &before), (b.as_ref(), &after)];
    config.target.write(|mut out| {
        if config.json {
            diff::write_json(&mut out, sides, &comparison)
        } else {
            out.write_all(diff::text::render(sides, &comparison, config.all).as_bytes())
        }
    })
}

/// A file, whichever of the two it is: a dump begins with a brace.
fn side(path: &Path) -> Result<Side, AppError> {
    let failed = |why: &dyn std::fmt::Display| AppError::Failed(format!("{}: {why}", path.display()));
    let mut file = File::open(path).map_err(|e| failed(&e))?;
    let mut first = [0; frame::FILE_HEADER_BYTES];
    let there = read_up_to(&mut file, &mut first).map_err(|e| failed(&e))?;
    let first = first.get(..there).unwrap_or_default();
    if frame::parse_file_header(first).is_some() {
        let story = from_file(path, &mut Filter::default())?;
        let mut side = Side::new(story.meta, story.remarks);
        side.add(&story.snapshot);
        return Ok(side);
    }
    // What was read belongs to it; a pipe cannot be read again.
    let rest = BufReader::new(std::io::Cursor::new(first.to_vec()).chain(file));
    dump::read(rest).map_err(|e| failed(&e))
}

/// Reads until the buffer is full or the file over.
fn read_up_to(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut there = 0;
    while there < buffer.len() {
        match file.read(&mut buffer[there..]) {
            Ok(0) => break,
            Ok(n) => there += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(there)
}
