//! The job file the harness puts into the initramfs.

use anyhow::{Context, Result};
use serde_json::Value;

/// What this guest is for.
#[derive(Debug, Clone, Default)]
pub struct Job {
    /// The command line to run.
    pub command: Vec<String>,
    /// Modules to load before, each with parameters after spaces.
    pub modules: Vec<String>,
    /// The size and TERM of an interactive console.
    pub terminal: Option<(u16, u16, String)>,
}

impl Job {
    /// Reads /job.json.
    pub fn read() -> Result<Job> {
        let text = std::fs::read_to_string("/job.json").context("cannot read /job.json")?;
        let json: Value = serde_json::from_str(&text).context("/job.json is not JSON")?;
        let strings = |name: &str| -> Vec<String> {
            let array = json[name].as_array().cloned().unwrap_or_default();
            array
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        let terminal = &json["terminal"];
        let size = |name: &str| {
            terminal[name]
                .as_u64()
                .and_then(|value| u16::try_from(value).ok())
        };
        let terminal = match (size("rows"), size("columns"), terminal["kind"].as_str()) {
            (Some(rows), Some(columns), Some(kind)) => Some((rows, columns, kind.to_owned())),
            _ => None,
        };
        Ok(Job {
            command: strings("command"),
            modules: strings("modules"),
            terminal,
        })
    }
}
