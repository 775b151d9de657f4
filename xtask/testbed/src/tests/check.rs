//! `uio-trace check`: everything attaches, in the way that works on this kernel.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Guest;
use crate::kernel_modules;
use crate::tool::PROGRAM;

/// Hooks that must be attached, and the ways that do it.
const EXPECTED: [(&str, &[&str]); 7] = [
    ("exit_aio", &["fentry", "fexit", "kprobe"]),
    ("kill_ioctx", &["fentry", "fexit", "kprobe"]),
    ("free_ioctx_users", &["fentry", "kprobe"]),
    ("free_ioctx_reqs", &["fentry", "kprobe"]),
    // lib/ is built without ftrace: only a breakpoint gets in
    ("percpu_ref_kill_and_confirm", &["breakpoint"]),
    ("percpu_ref_switch_to_atomic_rcu", &["breakpoint"]),
    ("uio_write", &["kprobe", "fentry"]),
];

/// No required probe is missing; known hooks are attached in a way that works.
pub fn attaches(guest: &Guest) -> Result<String> {
    if !kernel_modules::have_testbed() {
        kernel_modules::load("uio")?;
    }
    let output = Command::new(PROGRAM)
        .args(["check", "--json"])
        .stdin(Stdio::null())
        .output()
        .context("cannot start uio-trace check")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!(
            "uio-trace check ended with {}: {} {}",
            output.status,
            text.lines().next().unwrap_or_default(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let first = text.lines().next().context("uio-trace check printed nothing")?;
    let meta: Value = serde_json::from_str(first).with_context(|| format!("not JSON: {first}"))?;
    let probes = meta["probes"].as_array().context("meta has no probes")?;
    let mut wrong = Vec::new();
    for probe in probes {
        let is_missing = probe["state"] == "failed";
        if is_missing && probe["required"] == true {
            wrong.push(format!("{} failed: {}", probe["hook"], probe["reason"]));
        }
    }
    for (hook, methods) in EXPECTED {
        // a hook may have an entry and an exit side, and twins with suffixes
        let found = probes.iter().any(|probe| {
            probe["hook"]
                .as_str()
                .is_some_and(|name| name == hook || name.starts_with(&format!("{hook} ")))
                && probe["state"] == "attached"
                && probe["method"]
                    .as_str()
                    .is_some_and(|method| methods.iter().any(|way| method.starts_with(way)))
        });
        if !found {
            wrong.push(format!("{hook} is not attached by {}", methods.join(" or ")));
        }
    }
    // 5.10 has no lock:contention_*
    if guest.kernel != "5.10"
        && !probes.iter().any(|probe| {
            probe["hook"]
                .as_str()
                .is_some_and(|hook| hook.contains("contention"))
                && probe["state"] == "attached"
        })
    {
        wrong.push("lock:contention is not attached".to_owned());
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("; "));
    }
    Ok(format!("{} probes", probes.len()))
}
