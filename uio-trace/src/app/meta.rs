//! The record at the top of every output.

use crate::{
    ingest::clock,
    kernel::{KernelFacts, Root},
    model::snapshot::{Meta, Probe},
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Version of the JSON records (docs/json.md).
pub const SCHEMA_VERSION: u32 = 1;

/// Now as RFC 3339, UTC, to the second.
pub fn rfc3339_now() -> String {
    let now = OffsetDateTime::now_utc();
    now.replace_nanosecond(0)
        .unwrap_or(now)
        .format(&Rfc3339)
        .unwrap_or_else(|_| "unknown".into())
}

/// What is known at the start.
pub fn meta(root: &Root, facts: &KernelFacts, probes: Vec<Probe>) -> Meta {
    Meta {
        schema_version: SCHEMA_VERSION,
        tool: format!("uio-trace {}", crate::version::LONG),
        host: root
            .text("proc/sys/kernel/hostname")
            .unwrap_or_else(|_| "unknown".into()),
        kernel: facts.release.clone(),
        boot_id: root
            .text("proc/sys/kernel/random/boot_id")
            .unwrap_or_else(|_| "unknown".into()),
        started: rfc3339_now(),
        started_ns: clock::monotonic_ns(),
        probes,
        rcu: facts.rcu.clone(),
    }
}
