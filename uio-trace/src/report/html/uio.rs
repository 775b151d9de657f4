//! UIO devices: is the lock the problem, how long are waits and holds, behind whom.

use super::distribution::{self, Row};
use super::overview::optional;
use super::text::{esc, figures, how_to_read, more, table, words};
use super::{MAX_DEVICES, MAX_ROWS};
use crate::format::{count, duration, percent, plural};
use crate::model::histogram::merge;
use crate::model::snapshot::{Histogram, UioDevice, UioLock};
use crate::report::story::Story;

pub(super) fn section(p: &mut String, story: &Story) {
    let snapshot = &story.snapshot;
    p.push_str("<section id=\"uio\">\n<h2>UIO devices</h2>\n");
    let mut devices: Vec<&UioDevice> = snapshot.uio_devices.iter().collect();
    devices.sort_by(|a, b| b.mean_waiters.total_cmp(&a.mean_waiters));
    if devices.is_empty() {
        let text = match snapshot.uio_present {
            Some(true) => "There was no UIO device.",
            Some(false) => "The uio driver was not loaded.",
            None => "Whether the uio driver was loaded is not known.",
        };
        p.push_str(&format!("<p>{text}</p>\n</section>\n"));
        return;
    }
    let busy: Vec<&&UioDevice> = devices.iter().filter(|d| !d.ops.is_empty()).collect();
    if busy.is_empty() {
        p.push_str(&format!(
            "<p>{}, none of them was used.</p>\n",
            esc(&plural(devices.len() as u64, "device"))
        ));
    } else {
        how_to_read(
            p,
            "every write, poll, mmap, open and page fault of a device takes one mutex, its info_lock. Much waiting and \
             a lock held near 100 % of the time: the lock is the bottleneck. Long holds: look at the driver. Waits for \
             the driver's own locks would remain without info_lock. Little of all three: look elsewhere.",
        );
    }
    for (i, device) in busy.iter().take(MAX_DEVICES).enumerate() {
        one(p, device, i);
    }
    let rest: Vec<Vec<String>> = busy
        .iter()
        .skip(MAX_DEVICES)
        .take(MAX_ROWS)
        .map(|d| row(d))
        .collect();
    if !rest.is_empty() {
        let columns = [
            words("device"),
            words("name"),
            figures("lock held"),
            figures("threads waiting"),
            figures("operations"),
        ];
        table(p, "Other devices, most waited for first", &columns, &rest);
        more(p, MAX_DEVICES + rest.len(), busy.len(), "device");
    }
    slow(p, story);
    p.push_str("</section>\n");
}

fn row(device: &UioDevice) -> Vec<String> {
    vec![
        device.sysfs_name.clone(),
        device.name.clone().unwrap_or_default(),
        device.utilization.map_or_else(|| "-".into(), percent),
        format!("{:.2}", device.mean_waiters),
        count(device.ops.iter().map(|op| op.count).sum()),
    ]
}

fn one(p: &mut String, device: &UioDevice, index: usize) {
    let mut title = device.sysfs_name.clone();
    if let Some(name) = &device.name {
        title.push_str(&format!(": {name}"));
    }
    if device.generation > 0 {
        title.push_str(&format!(" (registered again: {})", device.generation));
    }
    p.push_str(&format!("<h3>{}</h3>\n", esc(&title)));
    let held = match (device.lock, device.utilization) {
        (UioLock::PercpuRef, _) => "No info_lock: a percpu_ref protects it.".to_owned(),
        (_, None) => "Waits for info_lock are not measured on this kernel.".to_owned(),
        (_, Some(utilization)) => format!(
            "info_lock was held {} of the time; {:.2} threads waited for it on average.",
            percent(utilization),
            device.mean_waiters
        ),
    };
    let driver = if device.driver_waits > 0 {
        format!(
            " Waits for the driver's own locks: {}, {} in all.",
            count(device.driver_waits),
            duration(device.driver_wait_ns)
        )
    } else {
        String::new()
    };
    let gone = match device.gone_ns {
        Some(_) => match &device.unregister {
            Some(unregister) => format!(" The device is gone: {}.", unregister.sentence()),
            None => " The device is gone.".to_owned(),
        },
        None => String::new(),
    };
    p.push_str(&format!("<p>{}{}{}</p>\n", esc(&held), esc(&driver), esc(&gone)));
    identity(p, device);
    what_if(p, device);
    let not_reads = || device.ops.iter().filter(|op| op.op != "read");
    let waits = merge(not_reads().filter_map(|op| op.wait_ns.as_ref()));
    let holds = merge(not_reads().filter_map(|op| op.hold_ns.as_ref()));
    if waits.count + holds.count > 0 {
        p.push_str(&format!(
            "<figure>\n<figcaption>How long callers of {} waited for the lock, and how long it was held (reads left out: \
             they sleep outside of it). The area of a bar is its number of operations.</figcaption>\n",
            esc(&device.sysfs_name)
        ));
        distribution::draw(
            p,
            &format!("dist-{index}"),
            &format!("Waits and holds of {}", device.sysfs_name),
            &[
                Row {
                    name: "wait",
                    class: "wait",
                    histogram: &waits,
                },
                Row {
                    name: "hold",
                    class: "hold",
                    histogram: &holds,
                },
            ],
        );
        p.push_str("</figure>\n");
    }
    operations(p, device);
    pairs(p, device);
    blockers(p, device);
}

fn identity(p: &mut String, device: &UioDevice) {
    let mut parts = Vec::new();
    let known = [
        ("driver", &device.driver),
        ("device", &device.parent),
        ("version", &device.version),
    ];
    parts.extend(
        known
            .iter()
            .filter_map(|(word, value)| Some(format!("{word} {}", value.as_ref()?))),
    );
    if let Some(b) = &device.backstore {
        parts.push(format!(
            "backstore {} of HBA {}, configured as {:?}",
            b.name, b.hba, b.config
        ));
    }
    if let Some(open) = &device.open {
        let least = if open.complete { "" } else { "at least " };
        let whose: Vec<String> = open
            .processes
            .iter()
            .map(|p| format!("{} ({})", p.comm, p.tgid))
            .collect();
        let of = if whose.is_empty() { "" } else { " of " };
        parts.push(format!(
            "open: {least}{}{of}{}",
            plural(open.descriptors, "descriptor"),
            whose.join(", ")
        ));
    }
    if !parts.is_empty() {
        p.push_str(&format!("<p class=\"muted\">{}.</p>\n", esc(&parts.join("; "))));
    }
}

fn what_if(p: &mut String, device: &UioDevice) {
    let said = &device.what_if;
    let assumes = if said.assumptions.is_empty() {
        String::new()
    } else {
        format!(" That assumes: {}.", said.assumptions.join("; "))
    };
    p.push_str(&format!(
        "<p><b>The lock removed:</b> {}.{}</p>\n",
        esc(&said.text),
        esc(&assumes)
    ));
}

fn pairs(p: &mut String, device: &UioDevice) {
    if device.waits_by_op.is_empty() {
        return;
    }
    let rows: Vec<Vec<String>> = device
        .waits_by_op
        .iter()
        .map(|pair| {
            vec![
                pair.waiter.clone(),
                pair.holder.clone().unwrap_or_else(|| "-".into()),
                count(pair.count),
                duration(pair.wait_ns),
            ]
        })
        .collect();
    let columns = [
        words("operation"),
        words("waited behind"),
        figures("waits"),
        figures("their sum"),
    ];
    let caption = format!("What waited behind what for the lock of {}", device.sysfs_name);
    table(p, &caption, &columns, &rows);
}

fn operations(p: &mut String, device: &UioDevice) {
    let columns = [
        words("operation"),
        figures("count"),
        figures("failed"),
        figures("waited"),
        figures("latency p50"),
        figures("latency p99"),
        figures("wait p50"),
        figures("wait p99"),
        figures("hold p50"),
        figures("hold p99"),
    ];
    let rows: Vec<Vec<String>> = device
        .ops
        .iter()
        .map(|op| {
            let of = |h: &Option<Histogram>, pick: fn(&Histogram) -> u64| {
                optional(h.as_ref().filter(|h| h.count > 0).map(pick))
            };
            vec![
                op.op.clone(),
                count(op.count),
                count(op.errors.values().sum()),
                count(op.contended),
                duration(op.latency_ns.p50),
                duration(op.latency_ns.p99),
                of(&op.wait_ns, |h| h.p50),
                of(&op.wait_ns, |h| h.p99),
                of(&op.hold_ns, |h| h.p50),
                of(&op.hold_ns, |h| h.p99),
            ]
        })
        .collect();
    let caption = format!(
        "Operations of {}; waits are those of the ones that waited",
        device.sysfs_name
    );
    table(p, &caption, &columns, &rows);
}

fn blockers(p: &mut String, device: &UioDevice) {
    if device.blockers.is_empty() {
        return;
    }
    let rows: Vec<Vec<String>> = device
        .blockers
        .iter()
        .map(|b| {
            vec![
                format!("{} ({}/{})", b.comm, b.tgid, b.tid),
                b.op.clone().unwrap_or_else(|| "-".into()),
                count(b.count),
                duration(b.wait_ns),
            ]
        })
        .collect();
    let columns = [
        words("held by"),
        words("doing"),
        figures("waits behind it"),
        figures("their sum"),
    ];
    let caption = format!(
        "Who held the lock of {} when others began to wait",
        device.sysfs_name
    );
    table(p, &caption, &columns, &rows);
}

fn slow(p: &mut String, story: &Story) {
    let ops = &story.snapshot.slow_ops;
    if ops.is_empty() {
        return;
    }
    const SHOWN: usize = 15;
    p.push_str("<h3>Slowest operations</h3>\n");
    let columns = [
        words("device"),
        words("operation"),
        figures("latency"),
        figures("wait"),
        figures("hold"),
        words("thread"),
        words("lock held by"),
    ];
    let rows: Vec<Vec<String>> = ops
        .iter()
        .take(SHOWN)
        .map(|op| {
            vec![
                op.sysfs_name.clone(),
                op.op.clone(),
                duration(op.latency_ns),
                duration(op.wait_ns),
                duration(op.hold_ns),
                format!("{} ({}/{})", op.comm, op.tgid, op.tid),
                op.holder.clone().unwrap_or_else(|| "-".into()),
            ]
        })
        .collect();
    table(
        p,
        "Operations at least as long as the slow threshold, longest first",
        &columns,
        &rows,
    );
    let total = story.waits.len() + story.waits_omitted as usize;
    more(p, rows.len(), total.max(ops.len()), "operation");
}
