//! Different operations on one device: who waits how long, behind whom, and which lock it was.

use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::uio::nothing_lost;
use super::{Guest, near, number, same, shortened, workload};
use crate::clock::monotonic_ns;
use crate::device::{Settings, Testbed};
use crate::tool::{Records, Tool};

const TOLERANCE: f64 = 0.05;
/// The tool's programs around a wait, and the wake of who waited: not part of what either clock should tell of the lock.
const PROBES_NS: f64 = 5_000.0;

/// From the end of irqcontrol to the writer's look at its clock, mean, ns. With others waiting it has the wake of the next one,
/// which is after the wait and after the hold.
fn return_ns(device: &Testbed, load: &Value) -> Result<f64> {
    let truth = device.truth()?;
    let latency = number(load, "/ops/write/latency_ns")? as f64;
    Ok((latency - truth.arrival_ns as f64 - truth.held_ns as f64) / truth.calls.max(1) as f64)
}

/// Operations, and how long they waited by their callers' clock, ns.
struct Waits {
    count: u64,
    wait_ns: f64,
}

/// What they take now, less what they take without anybody else, less the wake of the next one.
fn waits(alone: &Value, load: &Value, op: &str, wake_ns: f64) -> Result<Waits> {
    let mean = number(alone, &format!("/ops/{op}/latency_ns"))? as f64
        / number(alone, &format!("/ops/{op}/count"))? as f64;
    let count = number(load, &format!("/ops/{op}/count"))?;
    let sum = number(load, &format!("/ops/{op}/latency_ns"))? as f64;
    Ok(Waits {
        count,
        wait_ns: sum - (mean + wake_ns) * count as f64,
    })
}

/// Pollers, faults, opens, sysfs readers and two writers that hold the lock for a millisecond: each kind of operation waited as
/// its callers' clock says, and was counted exactly.
pub fn waits_by_operation(_: &Guest) -> Result<String> {
    let device = Testbed::find(0)?;
    let settings = Settings::of(&device);
    device.set_hold(0, false)?;
    let line = |ops: &str, seconds: f64| {
        format!(
            "uio-mix --minor {} --ops {ops} --seconds {seconds} --fifo",
            device.minor
        )
    };
    let others = "poll,fault,open,name,version";
    let tool = Tool::start(&["--slow", "100s"])?;
    // Each by itself, under the same tool: what a call takes when nobody has the lock.
    let alone: Vec<Value> = others
        .split(',')
        .map(|op| workload(&line(op, 0.5)))
        .collect::<Result<_>>()?;
    device.reset()?;
    let write = workload(&line("write", 0.5))?;
    let return_alone = return_ns(&device, &write)?;
    device.set_hold(1_000, false)?;
    device.reset()?;
    let load = workload(&line(&format!("write,write,{others}"), 4.0))?;
    let wake_ns = (return_ns(&device, &load)? - return_alone).max(0.0);
    let records = tool.finish()?;
    settings.restore()?;

    nothing_lost(&records)?;
    let mut said = vec![format!("wake of the next {:.1} us", wake_ns / 1e3)];
    for op in [
        "poll",
        "fault",
        "mmap",
        "open",
        "release",
        "name_show",
        "version_show",
    ] {
        let of = |load: &Value| number(load, &format!("/ops/{op}/count"));
        let by_itself = alone
            .iter()
            .find(|load| of(load).is_ok())
            .with_context(|| format!("nobody did {op} alone"))?;
        let truth = waits(by_itself, &load, op, wake_ns)?;
        let figures = records.operation(&device.name, op);
        let set_up: u64 = if matches!(op, "open" | "release") {
            let loads = alone.iter().chain([&load, &write]);
            loads.map(|load| number(load, "/set_up")).sum::<Result<u64>>()?
        } else {
            0
        };
        same(
            &format!("count of {op}"),
            number(figures, "/count")?,
            truth.count + of(by_itself)? + set_up,
        )?;
        let found = number(figures, "/wait_ns/sum")? as f64;
        let contended = number(figures, "/contended")?;
        // A map is made once for 64 faults: too few for a mean.
        if truth.count >= 100 {
            let floor = PROBES_NS * contended as f64;
            near(&format!("wait of {op}"), found, truth.wait_ns, TOLERANCE, floor)?;
        }
        said.push(format!(
            "{op} {} of {} waited {:.0} ms (own clock {:.0})",
            contended,
            truth.count,
            found / 1e6,
            truth.wait_ns / 1e6
        ));
    }
    Ok(said.join(", "))
}

/// A read sleeps for the interrupt outside of the lock: that is no wait; and each interrupt ends one.
pub fn reads_and_interrupts(_: &Guest) -> Result<String> {
    let device = Testbed::find(0)?;
    let settings = Settings::of(&device);
    device.set_hold(0, false)?;
    let tool = Tool::start(&[])?;
    device.reset()?;
    device.set("interrupt_us", 20_000)?;
    let load = workload(&format!(
        "uio-mix --minor {} --ops read --seconds 2 --pause-us 0",
        device.minor
    ))?;
    let interrupts = device.number("interrupts")?;
    let records = tool.finish()?;
    settings.restore()?;
    let reads = number(&load, "/ops/read/count")?;
    let figures = records.operation(&device.name, "read");
    same("reads", number(figures, "/count")?, reads)?;
    same("reads that waited for a lock", number(figures, "/contended")?, 0)?;
    same("hold of a read", figures["hold_ns"].is_null(), true)?;
    // Each read returned for an interrupt of its own; some came before the first and after the last.
    if reads > interrupts || reads + 10 < interrupts {
        bail!("{reads} reads returned for {interrupts} interrupts");
    }
    near(
        "time in reads",
        number(figures, "/latency_ns/sum")? as f64,
        number(&load, "/ops/read/latency_ns")? as f64,
        TOLERANCE,
        0.0,
    )?;
    Ok(format!("{reads} reads, {interrupts} interrupts, no wait"))
}

/// A thread that does something slow on the device until it is told to stop; its thread id.
fn slow_thread<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    stop: &'scope AtomicBool,
    pause: Duration,
    mut act: impl FnMut() -> Result<()> + Send + 'scope,
) -> Result<(u64, std::thread::ScopedJoinHandle<'scope, Result<u64>>)> {
    let (send, receive) = std::sync::mpsc::channel();
    let handle = scope.spawn(move || {
        // SAFETY: takes no argument and cannot fail.
        let _ = send.send(unsafe { libc::gettid() });
        let mut count = 0;
        while !stop.load(Ordering::Acquire) {
            act()?;
            count += 1;
            std::thread::sleep(pause);
        }
        Ok(count)
    });
    let tid = receive.recv().context("the slow thread did not start")?;
    Ok((u64::try_from(tid)?, handle))
}

/// Of the writes the sum of what took longer than a millisecond, less a usual write, and their number: those were behind the
/// slow thread, since two others together hold the lock for far less.
struct Victims {
    count: u64,
    wait_ns: f64,
}

/// Two fast writers while `slow` acts; the tool's records, and what the slow thread cost the writers.
fn fast_writers(
    device: &Testbed,
    mut slow: impl FnMut() -> Result<()> + Send,
) -> Result<(Records, Victims, u64)> {
    let tool = Tool::start(&["--slow", "100s"])?;
    let stop = AtomicBool::new(false);
    let (victims, tid) = std::thread::scope(|scope| -> Result<(Victims, u64)> {
        let (tid, handle) = slow_thread(scope, &stop, Duration::from_millis(100), &mut slow)?;
        device.set("slow_tid", tid)?;
        let writers = workload(&format!(
            "uio-write --device {} --threads 2 --seconds 4 --rate 1000 --fifo --longer-than-us 1000",
            device.node()
        ));
        stop.store(true, Ordering::Release);
        handle
            .join()
            .map_err(|_| anyhow::anyhow!("the slow thread panicked"))??;
        let writers = writers?;
        let of = |name: &str| number(&writers, &format!("/devices/0/{name}"));
        let usual = of("latency_ns/p50")? as f64;
        let count = of("longer/count")?;
        let wait_ns = of("longer/sum_ns")? as f64 - usual * count as f64;
        Ok((Victims { count, wait_ns }, tid))
    })?;
    Ok((tool.finish()?, victims, tid))
}

/// The top blocker, if it is this thread doing this.
fn top_blocker(records: &Records, device: &Testbed, tid: u64, op: &str, victims: &Victims) -> Result<String> {
    let row = records.device(&device.name).next().context("no device")?;
    let top = &row["blockers"][0];
    let context = || format!("blockers: {}", shortened(&row["blockers"]));
    same("thread of the top blocker", top["tid"].as_u64(), Some(tid)).with_context(context)?;
    same("what it did", top["op"].as_str(), Some(op)).with_context(context)?;
    let comm = top["comm"].as_str().unwrap_or_default();
    if comm.is_empty() {
        bail!("the top blocker has no name: {}", shortened(top));
    }
    let found = number(top, "/wait_ns")? as f64;
    near("waits behind it", found, victims.wait_ns, 0.1, 0.0).with_context(context)?;
    let pair = &row["waits_by_op"][0];
    same("who waited", pair["waiter"].as_str(), Some("write")).with_context(context)?;
    same("behind what", pair["holder"].as_str(), Some(op)).with_context(context)?;
    Ok(format!(
        "{comm} ({tid}) in {op}: {:.0} ms in {} waits (writers' clock {:.0} ms in {})",
        found / 1e6,
        number(top, "/count")?,
        victims.wait_ns / 1e6,
        victims.count
    ))
}

/// One thread holds the lock for 5 ms every 100 ms, by writing.
pub fn blocked_by_a_slow_writer(_: &Guest) -> Result<String> {
    let device = Testbed::find(0)?;
    let settings = Settings::of(&device);
    device.set_hold(0, false)?;
    device.set("slow_us", 5_000)?;
    let file = std::fs::OpenOptions::new().write(true).open(device.node())?;
    let (records, victims, tid) = fast_writers(&device, || {
        use std::io::Write;
        (&file).write_all(&1_u32.to_ne_bytes()).context("a slow write")
    })?;
    settings.restore()?;
    top_blocker(&records, &device, tid, "write", &victims)
}

/// One thread opens the device, whose driver takes 5 ms for that.
pub fn blocked_by_a_slow_open(_: &Guest) -> Result<String> {
    let device = Testbed::find(0)?;
    let settings = Settings::of(&device);
    device.set_hold(0, false)?;
    let (records, victims, tid) = {
        // Only the slow thread opens while the time is set: the writers have opened before.
        let slow = AtomicBool::new(false);
        fast_writers(&device, || {
            if !slow.swap(true, Ordering::AcqRel) {
                device.set("open_us", 5_000)?;
            }
            let opened = std::fs::OpenOptions::new()
                .write(true)
                .custom_flags(libc::O_CLOEXEC)
                .open(device.node());
            opened.map(drop).context("a slow open")
        })?
    };
    settings.restore()?;
    top_blocker(&records, &device, tid, "open", &victims)
}

/// Two devices whose driver takes a lock of its own under info_lock: nobody waits for info_lock, and what is waited for the
/// other lock is as the driver's own clock says.
pub fn driver_lock(_: &Guest) -> Result<String> {
    let devices = [Testbed::find(0)?, Testbed::find(1)?];
    let settings: Vec<Settings> = devices.iter().map(Settings::of).collect();
    for device in &devices {
        device.set_hold(0, false)?;
        device.reset()?;
        device.set("inner_us", 500)?;
    }
    let tool = Tool::start(&["--slow", "100s"])?;
    workload(&format!(
        "uio-write --device {},{} --threads 2 --seconds 3 --fifo",
        devices[0].node(),
        devices[1].node()
    ))?;
    let truth: Vec<(u64, u64, u64)> = devices
        .iter()
        .map(|device| {
            let of = |name: &str| device.number(name);
            Ok((of("inner_waits")?, of("inner_wait_ns")?, device.truth()?.held_ns))
        })
        .collect::<Result<_>>()?;
    let records = tool.finish()?;
    for settings in settings {
        settings.restore()?;
    }
    let mut said = Vec::new();
    for (device, (waits, wait_ns, held_ns)) in devices.iter().zip(truth) {
        let row = records.device(&device.name).next().context("no device")?;
        let figures = records.operation(&device.name, "write");
        same("waits for info_lock", number(figures, "/contended")?, 0)?;
        let floor = PROBES_NS * waits as f64;
        near(
            "wait for the driver's lock",
            number(row, "/driver_wait_ns")? as f64,
            wait_ns as f64,
            TOLERANCE,
            floor,
        )?;
        near(
            "number of waits",
            number(row, "/driver_waits")? as f64,
            waits as f64,
            TOLERANCE,
            0.0,
        )?;
        let writes = number(figures, "/count")?;
        near(
            "hold without those waits",
            number(figures, "/hold_ns/sum")? as f64,
            (held_ns - wait_ns) as f64,
            TOLERANCE,
            8.0 * PROBES_NS * writes as f64,
        )?;
        said.push(format!(
            "{}: {:.0} ms (driver's clock {:.0}) in {} waits",
            device.name,
            number(row, "/driver_wait_ns")? as f64 / 1e6,
            wait_ns as f64 / 1e6,
            waits
        ));
    }
    let named = records
        .of("finding")
        .any(|finding| finding["id"] == "uio_driver_lock");
    if !named {
        bail!(
            "no finding names the driver's lock: {}",
            shortened(&Value::Array(records.of("finding").cloned().collect()))
        );
    }
    Ok(said.join("; "))
}

/// The lock as a queue: closed loops of 1 to 8 writers. Its utilization is what the module held it of the time, and who waits on
/// average is what the writers' stamps say (Little's law).
pub fn queue(_: &Guest) -> Result<String> {
    let device = Testbed::find(0)?;
    let settings = Settings::of(&device);
    // Holds of unlike length, as real drivers have them.
    device.set_hold(500, false)?;
    device.set("spread", 1)?;
    let mut said = Vec::new();
    // What a write has around its hold, and of that before it: known from a single writer. Mean, ns.
    let (mut around, mut way) = (0.0, 0.0);
    for threads in [1_usize, 2, 4, 8] {
        let mut tool = Tool::start(&["1", "--slow", "100s"])?;
        // From the end of one interval on.
        tool.wait_for("an interval", Duration::from_secs(30), |record| {
            record["type"] == "loss"
        })?;
        device.reset()?;
        let start_ns = monotonic_ns();
        let load = workload(&format!(
            "uio-write --device {} --threads {threads} --seconds 3 --rate 700 --fifo",
            device.node()
        ))?;
        let wall_ns = (monotonic_ns() - start_ns) as f64;
        let truth = device.truth()?;
        let writes = truth.calls;
        let complete = |records: &Records| records.operation_sum(&device.name, "write", "count") >= writes;
        tool.wait_until("every write", Duration::from_secs(20), complete)?;
        let records = tool.finish()?;
        // Shares of the intervals' times, put together.
        let mut sums = [0.0; 2];
        let rows = records.of("interval").zip(records.device(&device.name));
        for (interval, row) in rows {
            let duration = number(interval, "/duration_ns")? as f64;
            for (sum, name) in sums.iter_mut().zip(["utilization", "mean_waiters"]) {
                *sum += row[name].as_f64().with_context(|| format!("no {name}"))? * duration;
            }
        }
        let [held, waited] = sums;
        let thread_ns = number(&load, "/devices/0/thread_ns")? as f64;
        let latency = number(&load, "/devices/0/latency_ns/sum")? as f64;
        let per_write = |sum: f64| sum / writes as f64;
        if threads == 1 {
            around = per_write(latency - truth.held_ns as f64);
            way = per_write(truth.arrival_ns as f64);
            if waited != 0.0 {
                bail!("a single writer waited");
            }
        }
        let stamps = (truth.arrival_ns as f64 - way * writes as f64).max(0.0);
        let figures = |text: &str| format!("{text} of {threads} writers");
        near(
            &figures("utilization times time"),
            held,
            truth.held_ns as f64,
            TOLERANCE,
            around * writes as f64,
        )?;
        near(
            &figures("waiters times time"),
            waited,
            stamps,
            TOLERANCE,
            2.0 * PROBES_NS * writes as f64,
        )?;
        said.push(format!(
            "{threads}: {:.0} % held (module {:.0} %), {:.2} waiting (stamps {:.2}), {:.0} writes/s",
            100.0 * held / wall_ns,
            100.0 * truth.held_ns as f64 / wall_ns,
            waited / wall_ns,
            stamps / wall_ns,
            writes as f64 / (thread_ns / threads as f64 / 1e9),
        ));
    }
    settings.restore()?;
    Ok(said.join("; "))
}

/// Processes of four writers, one after the other: there are never more than four threads, and most of what they do is waiting.
pub fn replaced(_: &Guest) -> Result<String> {
    const WRITERS: u64 = 4;
    let device = Testbed::find(0)?;
    device.set_hold(200, false)?;
    let tool = Tool::start(&[])?;
    for _ in 0..6 {
        workload(&format!(
            "uio-write --device {} --threads {WRITERS} --seconds 2",
            device.node()
        ))?;
    }
    let records = tool.finish()?;
    device.set_hold(0, false)?;
    let record = records
        .device(&device.name)
        .last()
        .with_context(|| format!("no record of {}", device.name))?;
    let said = &record["what_if"];
    let text = || shortened(said);
    same("threads at a time", said["threads"].as_u64(), Some(WRITERS)).with_context(text)?;
    // With the lock one at a time sleeps, without it all four: by far more than half as many again.
    if said["high"].as_f64().is_none_or(|high| high < 1.5) {
        bail!("{}", text());
    }
    if let Some(finding) = records.of("finding").find(|row| row["id"] == "nothing_here") {
        bail!("{}", shortened(finding));
    }
    Ok(said["text"].as_str().unwrap_or_default().to_owned())
}
