//! `--comm` and `--cgroup`: two of everything on one machine, and of one of them exactly what it did.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::refs::missed;
use super::{Guest, LIMIT, number, same};
use crate::device::{TCMU_NAME, Testbed, make_tcmu, minor_of};
use crate::kernel_modules;
use crate::tool::{PROGRAM, Records, Tool};

/// Releases of a context's two refs, and of one of the two refs that a removed cgroup's kill leads to.
const USERS: &str = "free_ioctx_users";
const REQS: &str = "free_ioctx_reqs";
const CSS: &str = "css_release";

/// Contexts of those who are wanted, and of the others.
const CONTEXTS: [u64; 2] = [3, 4];
/// Cgroups they make and remove.
const CYCLES: [u64; 2] = [2, 3];
/// Their writes.
const WRITES: [u64; 2] = [2_000, 1_500];

/// The device that all write to.
struct Shared {
    /// With its own count; `None`: a TCMU device.
    testbed: Option<Testbed>,
    name: String,
    node: String,
}

impl Shared {
    fn new() -> Result<Shared> {
        if kernel_modules::have_testbed() {
            let testbed = Testbed::find(0)?;
            testbed.set_hold(0, false)?;
            testbed.reset()?;
            return Ok(Shared {
                name: testbed.name.clone(),
                node: testbed.node(),
                testbed: Some(testbed),
            });
        }
        let minor = minor_of(TCMU_NAME).or_else(|_| make_tcmu())?;
        Ok(Shared {
            testbed: None,
            name: TCMU_NAME.to_owned(),
            node: format!("/dev/uio{minor}"),
        })
    }

    /// One after the other where the device can be open only once.
    fn write(&self, mut writers: [Command; 2]) -> Result<()> {
        if self.testbed.is_none() {
            for writer in &mut writers {
                finished(writer.spawn().context("cannot start a writer")?)?;
            }
            return Ok(());
        }
        let started: Vec<_> = writers.iter_mut().map(Command::spawn).collect();
        for child in started {
            finished(child.context("cannot start a writer")?)?;
        }
        Ok(())
    }

    /// The module saw them all.
    fn saw(&self, writes: u64) -> Result<()> {
        match &self.testbed {
            Some(testbed) => same("the module's own count", testbed.truth()?.calls, writes),
            None => Ok(()),
        }
    }
}

/// Waits for a workload; its line.
fn finished(child: std::process::Child) -> Result<Value> {
    let output = child.wait_with_output().context("cannot wait for a workload")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("a workload ended with {}: {text}", output.status);
    }
    serde_json::from_str(text.trim()).with_context(|| format!("a workload printed {text}"))
}

/// A workload, in a cgroup if one is given.
fn testbed(line: &str, cgroup: Option<&Path>) -> Command {
    let mut command = Command::new("/bin/sh");
    let join = cgroup.map_or_else(String::new, |folder| {
        format!("echo 0 > {}/cgroup.procs && ", folder.display())
    });
    command
        .args(["-c", &format!("{join}exec /bin/testbed {line}")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

fn ran(line: &str, cgroup: Option<&Path>) -> Result<Value> {
    finished(testbed(line, cgroup).spawn().context("cannot start a workload")?)
}

/// What the records hold of the wanted one is what it did, and nothing is of the other.
fn judge(
    records: &Records,
    device: &Shared,
    writes: u64,
    wanted: [&Value; 2],
    cycles: u64,
) -> Result<String> {
    let write = records.operation(&device.name, "write");
    same("writes", number(write, "/count")?, writes)?;
    same("latencies", number(write, "/latency_ns/count")?, writes)?;
    let drains: Vec<(u64, &str, u64)> = records
        .of("aio_drain")
        .map(|drain| {
            let cause = drain["cause"].as_str().unwrap_or_default();
            Ok((number(drain, "/tgid")?, cause, number(drain, "/contexts")?))
        })
        .collect::<Result<_>>()?;
    let [exit, destroy] = wanted;
    let expected = [
        (number(exit, "/tgid")?, "exit_aio", CONTEXTS[0]),
        (number(destroy, "/tgid")?, "io_destroy", CONTEXTS[0]),
    ];
    same("drains (process, cause, contexts)", drains, expected.to_vec())?;
    let missed = missed(records);
    let mut said = Vec::new();
    for (release, kills) in [(USERS, 2 * CONTEXTS[0]), (REQS, 2 * CONTEXTS[0]), (CSS, cycles)] {
        let seen = records.owner_sum(release, "kills");
        if seen > kills || seen + missed < kills {
            bail!("{seen} kills of {release}, {missed} hits missed; {kills} were of the wanted");
        }
        said.push(format!("{seen} {release}"));
    }
    Ok(format!(
        "{writes} writes, 2 drains, kills: {} ({missed} missed)",
        said.join(", ")
    ))
}

/// Two names, as long as the kernel keeps them and longer; they differ in the last byte of those it keeps.
pub fn by_name(_: &Guest) -> Result<String> {
    const NAMES: [&str; 2] = ["the-same-but-1-and-more", "the-same-but-1.and-more"];
    const KEPT: usize = 15;
    let device = Shared::new()?;
    let tool = Tool::start(&["--comm", NAMES[0]])?;
    device.write([0, 1].map(|who| {
        let line = format!(
            "uio-write --device {} --threads 2 --count {} --comm {}",
            device.node,
            WRITES[who] / 2,
            NAMES[who]
        );
        testbed(&line, None)
    }))?;
    let mut drains = Vec::new();
    for (who, name) in NAMES.iter().enumerate() {
        for way in ["--exit", "--destroy"] {
            let line = format!("aio {way} --contexts {} --comm {name}", CONTEXTS[who]);
            drains.push(ran(&line, None)?);
        }
    }
    // None of them has the name.
    ran("cgroup-cycle --count 2", None)?;
    let records = tool.finish()?;
    device.saw(WRITES.iter().sum())?;
    let said = judge(&records, &device, WRITES[0], [&drains[0], &drains[1]], 0)?;
    for drain in records.of("aio_drain") {
        same("name", drain["comm"].as_str(), Some(&NAMES[0][..KEPT]))?;
    }
    Ok(said)
}

/// A cgroup of this test's own; removed with all that is below it.
struct Made(PathBuf);

impl Made {
    fn new(name: &str) -> Result<Made> {
        let folder = PathBuf::from(format!("/sys/fs/cgroup/{name}"));
        std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Made(folder))
    }

    fn remove(&self) -> Result<()> {
        std::fs::remove_dir(&self.0).with_context(|| format!("cannot remove {}", self.0.display()))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // A failed test may leave processes in it; the guest ends soon.
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Two cgroups, one of them with another below it. Then the wanted one is removed, and made anew.
pub fn by_cgroup(_: &Guest) -> Result<String> {
    let device = Shared::new()?;
    let (wanted, other) = (Made::new("wanted")?, Made::new("wanted-not")?);
    let below = Made::new("wanted/below")?;
    let mut tool = Tool::start(&["--cgroup", "/wanted"])?;
    device.write([(0, &below), (1, &other)].map(|(who, group)| {
        let line = format!(
            "uio-write --device {} --threads 2 --count {}",
            device.node,
            WRITES[who] / 2
        );
        testbed(&line, Some(&group.0))
    }))?;
    let mut drains = Vec::new();
    for (who, group) in [(0, &wanted), (1, &other)] {
        for way in ["--exit", "--destroy"] {
            let line = format!("aio {way} --contexts {}", CONTEXTS[who]);
            drains.push(ran(&line, Some(&group.0))?);
        }
        ran(&format!("cgroup-cycle --count {}", CYCLES[who]), Some(&group.0))?;
    }
    let records = tool.finish()?;
    device.saw(WRITES.iter().sum())?;
    let said = judge(&records, &device, WRITES[0], [&drains[0], &drains[1]], CYCLES[0])?;

    // Removed in the middle, and made anew.
    tool = Tool::start(&["1", "--cgroup", "/sys/fs/cgroup/wanted"])?;
    let row_is = |state: &'static str| {
        move |record: &Value| {
            let rows = record["probes"].as_array().into_iter().flatten();
            rows.filter(|row| row["hook"] == "--cgroup /wanted")
                .any(|row| row["state"] == state)
        }
    };
    let write = |count: u64, group: &Made| {
        let line = format!("uio-write --device {} --count {count}", device.node);
        ran(&line, Some(&group.0))
    };
    write(100, &wanted)?;
    below.remove()?;
    wanted.remove()?;
    tool.wait_for("that the cgroup was removed", LIMIT, row_is("failed"))?;
    write(200, &other)?;
    let again = Made::new("wanted")?;
    tool.wait_for("that it is there again", LIMIT, row_is("attached"))?;
    write(300, &again)?;
    write(400, &other)?;
    let records = tool.finish()?;
    same(
        "writes before and after",
        records.operation_sum(&device.name, "write", "count"),
        100 + 300,
    )?;
    for (named, level) in [
        (
            "/sys/fs/cgroup/none/x",
            "there is no cgroup none in /sys/fs/cgroup",
        ),
        ("/wanted/x/y", "there is no cgroup x in /sys/fs/cgroup/wanted"),
    ] {
        let refused = Command::new(PROGRAM)
            .args(["hist", "--duration", "1", "--cgroup", named])
            .output()
            .context("cannot start the tool")?;
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        same("exit code", refused.status.code(), Some(2)).with_context(|| text.clone())?;
        if !text.contains(level) {
            bail!("{named}: {text}");
        }
    }
    Ok(format!("{said}; removed, made anew, and traced again"))
}
