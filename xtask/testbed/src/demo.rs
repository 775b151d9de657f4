//! The demonstration's load: something for every screen, until killed.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::device::Testbed;
use crate::kernel_modules;

/// One part of the load: a command line of this program, started again when it ends, after a pause.
struct Part {
    arguments: Vec<String>,
    pause: Duration,
}

impl Part {
    fn new(line: &str, pause_ms: u64) -> Part {
        Part {
            arguments: line.split_whitespace().map(str::to_owned).collect(),
            pause: Duration::from_millis(pause_ms),
        }
    }
}

/// Runs the load.
pub fn run() -> Result<()> {
    let mut parts = vec![
        Part::new("aio --contexts 8 --exit", 1_500),
        Part::new("aio --contexts 12 --destroy", 2_500),
        Part::new("cgroup-cycle --count 2", 700),
        Part::new("iouring-close --count 2", 900),
        Part::new("noaio-exit --count 20", 500),
    ];
    if !kernel_modules::is_loaded("null_blk")
        && kernel_modules::load("null_blk nr_devices=1 queue_mode=2 irqmode=2 completion_nsec=60000000")
            .is_ok()
    {
        parts.push(Part::new("elevator --count 2", 1_700));
        parts.push(Part::new(
            "aio --contexts 2 --exit --in-flight 2 --file /dev/nullb0",
            3_000,
        ));
    }
    match (Testbed::find(0), Testbed::find(1)) {
        (Ok(contended), Ok(quiet)) => {
            // Four writers that stand in line behind 200 us, and one that never waits.
            contended.set_hold(200, false)?;
            quiet.set_hold(50, false)?;
            parts.push(Part::new(
                &format!("uio-write --device {} --threads 4 --seconds 30", contended.node()),
                10,
            ));
            parts.push(Part::new(
                &format!("uio-write --device {} --seconds 30 --rate 400", quiet.node()),
                10,
            ));
        }
        _ => {
            let minor = crate::device::make_tcmu()?;
            parts.push(Part::new(
                &format!("uio-write --device /dev/uio{minor} --threads 4 --seconds 30 --rate 2000"),
                10,
            ));
        }
    }
    let threads: Vec<_> = parts
        .into_iter()
        .map(|part| std::thread::spawn(move || repeat(&part)))
        .collect();
    for thread in threads {
        // A part ends only with an error.
        thread
            .join()
            .map_err(|_| anyhow::anyhow!("a part of the load panicked"))??;
    }
    Ok(())
}

fn repeat(part: &Part) -> Result<()> {
    loop {
        let mut command = Command::new("/bin/testbed");
        command
            .args(&part.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let status = command.status().context("cannot start a part of the load")?;
        if !status.success() {
            anyhow::bail!("`testbed {}` failed", part.arguments.join(" "));
        }
        // A pause of the load, not a wait for anything.
        std::thread::sleep(part.pause);
    }
}
