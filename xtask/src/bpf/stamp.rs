//! What a BPF object was built from: a line per input, so that a stale object can be named in one sentence.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// Compiler flags of every build, besides the architecture and the path remaps.
pub const FLAGS: [&str; 3] = ["-Cdebuginfo=2", "-Clinker=bpf-linker", "-Clink-arg=--btf"];

/// Folders whose files are inputs.
const SOURCES: [&str; 2] = ["uio-trace-ebpf", "uio-trace-common"];

/// Inputs and results of one build, by key: `source PATH`, `flags`, `compiler`, `linker`, `object ARCHITECTURE`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    entries: BTreeMap<String, String>,
}

impl Stamp {
    /// Everything that can be known without the toolchain.
    pub fn of_sources(top: &Path) -> Result<Stamp> {
        let mut stamp = Stamp::default();
        for folder in SOURCES {
            stamp.add_folder(top, Path::new(folder))?;
        }
        stamp
            .entries
            .insert("flags".to_owned(), hash(FLAGS.join(" ").as_bytes()));
        Ok(stamp)
    }

    fn add_folder(&mut self, top: &Path, folder: &Path) -> Result<()> {
        let path = top.join(folder);
        let entries = std::fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", path.display()))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let relative = folder.join(name.as_ref());
            if entry.path().is_dir() {
                // tests and examples of the shared crate do not reach the object
                if !matches!(name.as_ref(), "target" | "tests" | "examples" | "benches") {
                    self.add_folder(top, &relative)?;
                }
            } else if name.ends_with(".rs") || matches!(name.as_ref(), "Cargo.toml" | "Cargo.lock") {
                let content = std::fs::read(entry.path())
                    .with_context(|| format!("cannot read {}", entry.path().display()))?;
                self.entries
                    .insert(format!("source {}", relative.display()), hash(&content));
            }
        }
        Ok(())
    }

    /// The versions of the tools that made the object.
    pub fn set_tools(&mut self, compiler: &str, linker: &str) {
        self.entries.insert("compiler".to_owned(), compiler.to_owned());
        self.entries.insert("linker".to_owned(), linker.to_owned());
    }

    /// The hash of a built object.
    pub fn set_object(&mut self, architecture: &str, object: &[u8]) {
        self.entries
            .insert(format!("object {architecture}"), hash(object));
    }

    /// Reads a stamp written by [`Stamp::write`].
    pub fn read(path: &Path) -> Result<Stamp> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}: run `cargo xtask bpf`", path.display()))?;
        Ok(Stamp::parse(&text))
    }

    fn parse(text: &str) -> Stamp {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let entries = lines
            .filter_map(|line| line.split_once(" = "))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        Stamp { entries }
    }

    fn text(&self) -> String {
        let mut text = String::from(
            "# Written by `cargo xtask bpf`: what the BPF objects beside this file were built from.\n",
        );
        for (key, value) in &self.entries {
            // writing to a String cannot fail
            let _ = writeln!(text, "{key} = {value}");
        }
        text
    }

    /// Writes the stamp.
    pub fn write(&self, path: &Path) -> Result<()> {
        std::fs::write(path, self.text()).with_context(|| format!("cannot write {}", path.display()))
    }

    /// What, first of all, differs between this recorded stamp and the present sources and objects.
    pub fn difference(&self, sources: &Stamp, objects: &[(String, Vec<u8>)]) -> Option<String> {
        let is_source = |key: &str| key.starts_with("source ") || key == "flags";
        for (key, value) in &sources.entries {
            match self.entries.get(key) {
                None => return Some(format!("{} is new", subject(key))),
                Some(recorded) if recorded != value => return Some(format!("{} changed", subject(key))),
                Some(_) => {}
            }
        }
        if let Some(key) = self
            .entries
            .keys()
            .find(|key| is_source(key) && !sources.entries.contains_key(*key))
        {
            return Some(format!("{} is gone", subject(key)));
        }
        objects.iter().find_map(|(architecture, object)| {
            let recorded = self.entries.get(&format!("object {architecture}"));
            (recorded != Some(&hash(object)))
                .then(|| format!("the {architecture} object is not the one in the stamp"))
        })
    }
}

/// A key in words.
fn subject(key: &str) -> &str {
    match key {
        "flags" => "the list of compiler flags",
        _ => key.strip_prefix("source ").unwrap_or(key),
    }
}

fn hash(content: &[u8]) -> String {
    Sha256::digest(content)
        .iter()
        .fold(String::new(), |mut text, byte| {
            // writing to a String cannot fail
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::{Stamp, hash};

    fn stamp(entries: &[(&str, &str)]) -> Stamp {
        Stamp {
            entries: entries
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
        }
    }

    #[test]
    fn names_what_changed() {
        let object = b"object".to_vec();
        let recorded = stamp(&[
            ("source a.rs", "1"),
            ("flags", "f"),
            ("compiler", "c"),
            ("object x86_64", &hash(&object)),
        ]);
        let objects = vec![("x86_64".to_owned(), object)];
        let same = stamp(&[("source a.rs", "1"), ("flags", "f")]);
        assert_eq!(recorded.difference(&same, &objects), None);
        let changed = stamp(&[("source a.rs", "2"), ("flags", "f")]);
        assert_eq!(
            recorded.difference(&changed, &objects).as_deref(),
            Some("a.rs changed")
        );
        let new = stamp(&[("source a.rs", "1"), ("source b.rs", "1"), ("flags", "f")]);
        assert_eq!(
            recorded.difference(&new, &objects).as_deref(),
            Some("b.rs is new")
        );
        let gone = stamp(&[("flags", "f")]);
        assert_eq!(
            recorded.difference(&gone, &objects).as_deref(),
            Some("a.rs is gone")
        );
        let other = vec![("x86_64".to_owned(), b"other".to_vec())];
        assert!(recorded.difference(&same, &other).is_some());
    }

    #[test]
    fn reads_what_it_writes() {
        let written = stamp(&[("source a.rs", "1"), ("compiler", "rustc 1 = 2")]);
        assert_eq!(Stamp::parse(&written.text()), written);
    }
}
