//! libaio's own test programs, unchanged: contexts that strace has seen them make and destroy, against the drains.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::aio::phases;
use super::{Guest, number, same, shortened};
use crate::tool::{Records, Tool};

const FOLDER: &str = "/tmp/libaio";
/// For one program; most take a fraction of a second.
const LIMIT_SECONDS: &str = "60";
const TRACE: &str = "/tmp/libaio/strace";

/// System calls of a program that succeeded.
#[derive(Debug, Clone, Copy, Default)]
struct Calls {
    setups: u64,
    destroys: u64,
}

/// From strace's lines, `TID io_setup(128, [0x7f]) = 0`; one that was interrupted by another thread's ends with
/// `<... io_setup resumed>[0x7f]) = 0`.
fn calls(text: &str) -> Calls {
    let count = |name: &str| {
        let ok = text
            .lines()
            .filter(|line| line.contains(name) && line.trim_end().ends_with("= 0"));
        ok.count() as u64
    };
    Calls {
        setups: count("io_setup"),
        destroys: count("io_destroy"),
    }
}

/// The programs that this guest has.
fn programs() -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/bin")
        .context("cannot read /bin")?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name();
            name.is_some_and(|name| name.to_string_lossy().starts_with("libaio-"))
        })
        .collect();
    found.sort();
    if found.is_empty() {
        bail!("this guest has no program of libaio");
    }
    Ok(found)
}

/// Runs one; whether it passes is its own affair (some want more than a guest has).
fn run(program: &Path) -> Result<(Calls, bool)> {
    let status = Command::new("timeout")
        .args([
            LIMIT_SECONDS,
            "strace",
            "-f",
            "-qq",
            "-e",
            "trace=io_setup,io_destroy",
            "-o",
            TRACE,
        ])
        .arg(program)
        .current_dir(FOLDER)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot start strace")?;
    let text = std::fs::read_to_string(TRACE).context("strace left nothing")?;
    Ok((calls(&text), status.success()))
}

/// Contexts in the drains of a program for a cause.
fn contexts(records: &Records, comm: &str, cause: &str) -> Result<u64> {
    let mut sum = 0;
    for drain in records.of("aio_drain") {
        if drain["comm"] == comm && drain["cause"] == cause {
            same("uncertain", drain["uncertain"].as_bool(), Some(false)).with_context(|| shortened(drain))?;
            phases(drain)?;
            sum += number(drain, "/contexts")?;
        }
    }
    Ok(sum)
}

/// Each context that was destroyed is in a drain by io_destroy, each other in one by exit_aio, by program.
pub fn programs_of_its_tests(_: &Guest) -> Result<String> {
    std::fs::create_dir_all(format!("{FOLDER}/testdir"))?;
    for file in ["rofile", "wofile", "rwfile"] {
        std::fs::write(format!("{FOLDER}/testdir/{file}"), "test\n")?;
    }
    let tool = Tool::start(&[])?;
    let mut runs = Vec::new();
    let mut slowest = (Duration::ZERO, String::new());
    for program in programs()? {
        let begin = Instant::now();
        let (calls, passed) = run(&program).with_context(|| program.display().to_string())?;
        slowest = slowest.max((begin.elapsed(), program.display().to_string()));
        let name = program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        runs.push((name, calls, passed));
    }
    let records = tool.finish()?;
    let (mut destroyed, mut left, mut passes) = (0, 0, 0);
    for (name, calls, passed) in &runs {
        let by_destroy = contexts(&records, name, "io_destroy").with_context(|| name.clone())?;
        let by_exit = contexts(&records, name, "exit_aio").with_context(|| name.clone())?;
        same("contexts by io_destroy", by_destroy, calls.destroys).with_context(|| name.clone())?;
        let others = calls.setups - calls.destroys;
        same("contexts by exit_aio", by_exit, others).with_context(|| name.clone())?;
        destroyed += by_destroy;
        left += by_exit;
        passes += u64::from(*passed);
    }
    if destroyed == 0 || left == 0 {
        bail!(
            "{destroyed} contexts destroyed, {left} left to exit: the programs did not do what they are for"
        );
    }
    Ok(format!(
        "{} programs ({passes} passed): {destroyed} contexts destroyed, {left} left to exit; the slowest, {}, took {:.1} s",
        runs.len(),
        slowest.1,
        slowest.0.as_secs_f64()
    ))
}

#[cfg(test)]
mod tests {
    use super::calls;

    #[test]
    fn successes_are_counted() {
        let text = "12 io_setup(128, [0x7f00]) = 0\n12 io_setup(0, [0]) = -1 EINVAL (Invalid argument)\n\
                    13 io_destroy(0x7f00 <unfinished ...>\n14 io_setup(1, [0x7f01]) = 0\n\
                    13 <... io_destroy resumed>) = 0\n14 io_destroy(0x1) = -1 EINVAL (Invalid argument)\n";
        let found = calls(text);
        assert_eq!((found.setups, found.destroys), (2, 1));
    }
}
