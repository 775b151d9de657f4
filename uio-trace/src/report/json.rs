//! NDJSON: one record a line, told apart by its `type`. docs/json.md describes them, docs/records.schema.json checks them.
//!
//! [`write_meta`] once, then [`write_snapshot`] for each interval: `interval`, the rows, `loss` last, so that a reader
//! who has seen `loss` has seen the interval.

use crate::model::snapshot::{Cost, Histogram, Interval, Meta, Probe, Snapshot};
use serde::Serialize;
use std::io::{self, Write};

/// Version of the records; grows when a field changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Record<'a, T: Serialize> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

/// Record `interval`: what the rows after it are about.
#[derive(Serialize)]
struct IntervalRecord<'a> {
    #[serde(flatten)]
    interval: Interval,
    /// Is the uio driver there? null: not known.
    uio_present: Option<bool>,
    /// Drains that ended in the interval and are not among the rows.
    aio_drains_omitted: u64,
    /// Grace periods of all percpu_refs.
    grace_period_ns: &'a Histogram,
}

/// Record `probe_cost`.
#[derive(Serialize)]
struct CostRecord<'a> {
    subject: &'a str,
    hook: &'a str,
    method: Option<&'a str>,
    #[serde(flatten)]
    cost: Cost,
}

impl<'a> CostRecord<'a> {
    fn of(probe: &'a Probe) -> Option<CostRecord<'a>> {
        Some(CostRecord {
            subject: &probe.subject,
            hook: &probe.hook,
            method: probe.method.as_deref(),
            cost: probe.cost?,
        })
    }
}

pub(super) fn record<T: Serialize>(out: &mut impl Write, kind: &'static str, body: &T) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Record { kind, body })?;
    out.write_all(b"\n")
}

pub(super) fn records<T: Serialize>(
    out: &mut impl Write,
    kind: &'static str,
    bodies: &[T],
) -> io::Result<()> {
    bodies.iter().try_for_each(|body| record(out, kind, body))
}

/// The first line of every output.
pub fn write_meta(out: &mut impl Write, meta: &Meta) -> io::Result<()> {
    record(out, "meta", meta)
}

/// The lines of one interval.
pub fn write_snapshot(out: &mut impl Write, snapshot: &Snapshot) -> io::Result<()> {
    let interval = IntervalRecord {
        interval: snapshot.interval,
        uio_present: snapshot.uio_present,
        aio_drains_omitted: snapshot.aio_drains_omitted,
        grace_period_ns: &snapshot.grace_period_ns,
    };
    record(out, "interval", &interval)?;
    records(out, "uio_device", &snapshot.uio_devices)?;
    records(out, "ref_owner", &snapshot.ref_owners)?;
    records(out, "aio_drain", &snapshot.aio_drains)?;
    records(out, "in_progress", &snapshot.in_progress)?;
    records(out, "finding", &snapshot.findings)?;
    records(out, "slow_op", &snapshot.slow_ops)?;
    let costs: Vec<CostRecord> = snapshot.probes.iter().filter_map(CostRecord::of).collect();
    records(out, "probe_cost", &costs)?;
    record(out, "loss", &snapshot.loss)
}

/// The same as text.
pub fn render(meta: &Meta, snapshot: &Snapshot) -> io::Result<String> {
    let mut out = Vec::new();
    write_meta(&mut out, meta)?;
    write_snapshot(&mut out, snapshot)?;
    String::from_utf8(out).map_err(io::Error::other)
}
