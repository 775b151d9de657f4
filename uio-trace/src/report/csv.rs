//! CSV: a row per device and operation, for spreadsheets and plots. RFC 4180 quoting, `\n` line ends.

use crate::model::snapshot::{Histogram, Snapshot};
use std::io::{self, Write};

/// The columns.
pub const HEADER: &str = "start_ns,end_ns,device,generation,name,op,count,errors,contended,\
latency_mean_ns,latency_p50_ns,latency_p99_ns,latency_max_ns,\
wait_sum_ns,wait_mean_ns,wait_p50_ns,wait_p99_ns,wait_max_ns,hold_sum_ns,hold_mean_ns,hold_p99_ns,utilization";

/// Writes the header, once.
pub fn write_header(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{HEADER}")
}

/// Writes the rows of one interval. Not known is empty.
pub fn write_snapshot(out: &mut impl Write, snapshot: &Snapshot) -> io::Result<()> {
    for device in &snapshot.uio_devices {
        for op in &device.ops {
            let optional = |h: &Option<Histogram>, pick: fn(&Histogram) -> u64| {
                h.as_ref().map_or_else(String::new, |h| pick(h).to_string())
            };
            let latency = &op.latency_ns;
            let fields = [
                snapshot.interval.start_ns.to_string(),
                snapshot.interval.end_ns.to_string(),
                device.sysfs_name.clone(),
                device.generation.to_string(),
                quoted(device.name.as_deref().unwrap_or("")),
                op.op.clone(),
                op.count.to_string(),
                op.errors.values().sum::<u64>().to_string(),
                op.contended.to_string(),
                latency.mean().to_string(),
                latency.p50.to_string(),
                latency.p99.to_string(),
                latency.max.to_string(),
                optional(&op.wait_ns, |h| h.sum),
                optional(&op.wait_ns, Histogram::mean),
                optional(&op.wait_ns, |h| h.p50),
                optional(&op.wait_ns, |h| h.p99),
                optional(&op.wait_ns, |h| h.max),
                optional(&op.hold_ns, |h| h.sum),
                optional(&op.hold_ns, Histogram::mean),
                optional(&op.hold_ns, |h| h.p99),
                device.utilization.map_or_else(String::new, |u| format!("{u:.6}")),
            ];
            writeln!(out, "{}", fields.join(","))?;
        }
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}
