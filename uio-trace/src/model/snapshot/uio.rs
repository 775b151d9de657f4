//! UIO devices and their operations.

use super::Histogram;
use crate::model::threads::CpuUse;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What serialises a UIO device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UioLock {
    /// `info_lock`, a mutex: every stock kernel since 4.19.
    Mutex,
    /// A percpu_ref (`info_ref`): the 2022 proposal.
    PercpuRef,
    /// Not known.
    Unknown,
}

/// Record `uio_device`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UioDevice {
    /// Minor number.
    pub minor: u32,
    /// Re-registrations of this minor seen before, from 0.
    pub generation: u32,
    /// `uioN`.
    pub sysfs_name: String,
    /// What the driver calls it; `None`: not known (gone before it could be read).
    pub name: Option<String>,
    /// The driver's version text.
    pub version: Option<String>,
    /// Driver of the device it belongs to (sysfs); `None`: it has none, or not known.
    #[serde(default)]
    pub driver: Option<String>,
    /// The device it belongs to: a PCI address, `tcm_user`, ...; `None`: not known.
    #[serde(default)]
    pub parent: Option<String>,
    /// TCMU's backstore, from the name; `None`: not TCMU's.
    #[serde(default)]
    pub backstore: Option<Backstore>,
    /// Who has it open, as last looked up; `None`: not known.
    #[serde(default)]
    pub open: Option<OpenDevice>,
    /// Unregistered since (CLOCK_MONOTONIC); `None`: there.
    pub gone_ns: Option<u64>,
    /// How its unregistration went; `None`: there was none, or its end was not seen.
    #[serde(default)]
    pub unregister: Option<Unregister>,
    /// What serialises it.
    pub lock: UioLock,
    /// Time info_lock was held (sum of hold of all operations but read) per time of the interval, 0..1; `None`: not known.
    pub utilization: Option<f64>,
    /// Mean number of threads waiting for info_lock (sum of waits per time of the interval).
    pub mean_waiters: f64,
    /// Operations, only those with a count, in `UioOp::ALL` order.
    pub ops: Vec<UioOpFigures>,
    /// Waits for other locks inside operations, sum.
    pub driver_wait_ns: u64,
    /// Number of them.
    pub driver_waits: u64,
    /// Who held info_lock when operations began to wait for it, by their wait, descending (bounded).
    pub blockers: Vec<Blocker>,
    /// What waited behind what, by the time waited, descending.
    pub waits_by_op: Vec<OpPair>,
    /// What would be gained without info_lock.
    #[serde(default)]
    pub what_if: WhatIf,
}

/// How `uio_unregister_device` went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unregister {
    /// Its return (CLOCK_MONOTONIC).
    pub at_ns: u64,
    /// Name of the task.
    pub comm: String,
    /// Its process.
    pub tgid: u32,
    /// The task.
    pub tid: u32,
    /// Entry to return.
    pub latency_ns: u64,
    /// Wait for info_lock.
    pub wait_ns: u64,
    /// Course of the device's percpu_ref; `None`: it has none, or its kill was not seen.
    pub course: Option<RefCourse>,
}

/// The parts of an unregistration that kills a percpu_ref. What was not seen is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefCourse {
    /// Entry to the kill.
    pub before_ns: u64,
    /// Kill to its confirmation.
    pub grace_period_ns: Option<u64>,
    /// References that operations still held then.
    pub references: Option<u64>,
    /// Operations that had begun before the kill and were seen under way after it: who held them. Only those that lasted until
    /// somebody looked.
    #[serde(default)]
    pub holders: Vec<RefHolder>,
    /// Confirmation to the last put.
    pub drain_ns: Option<u64>,
    /// Last put to the return.
    pub rest_ns: Option<u64>,
}

/// An operation on a device that held a reference while its unregistration waited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefHolder {
    /// Name of the task.
    pub comm: String,
    /// Its process.
    pub tgid: u32,
    /// The task.
    pub tid: u32,
    /// What it did.
    pub op: String,
    /// For how long it had been doing that at the kill.
    pub before_ns: u64,
}

/// What kind of answer a [`WhatIf`] is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhatIfVerdict {
    /// A range narrow enough to be useful.
    Range,
    /// The lock costs next to nothing.
    NothingToGain,
    /// Bounds are known, but too far apart.
    TooWide,
    /// Nothing can be said.
    #[default]
    Refused,
}

/// The throughput without info_lock as a multiple of the present one (docs/uio-verdict.md).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WhatIf {
    /// What kind of answer it is.
    pub verdict: WhatIfVerdict,
    /// Name of what forbids a range or makes it wide; `None`: it is a range.
    pub reason: Option<String>,
    /// The answer in one sentence.
    pub text: String,
    /// At least so many times as many operations; `None`: refused.
    pub low: Option<f64>,
    /// At most; `None`: refused.
    pub high: Option<f64>,
    /// The kind of operation it is about: the one that waits most.
    pub op: Option<String>,
    /// Threads that take part; `None`: not known.
    pub threads: Option<u64>,
    /// CPUs online; `None`: not known.
    pub cpus: Option<u32>,
    /// What the threads that take part use of the CPUs; `None`: not known.
    pub cpu_use: Option<CpuUse>,
    /// What the bounds rest on, a sentence each.
    pub assumptions: Vec<String>,
}

/// A TCMU device as its name says: `tcm-user/HBA/NAME/CONFIG`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backstore {
    /// Host bus adapter's number.
    pub hba: String,
    /// The backstore's name.
    pub name: String,
    /// Its configuration, as the handler reads it (`rbd/pool/image`, a path, ...); may be empty.
    pub config: String,
}

impl Backstore {
    /// Of a device's name (drivers/target/target_core_user.c, tcmu_update_uio_info).
    pub fn of(name: &str) -> Option<Backstore> {
        let mut parts = name.strip_prefix("tcm-user/")?.splitn(3, '/');
        let (hba, name) = (parts.next()?, parts.next()?);
        (!hba.is_empty() && !name.is_empty()).then(|| Backstore {
            hba: hba.to_owned(),
            name: name.to_owned(),
            config: parts.next().unwrap_or_default().to_owned(),
        })
    }
}

/// Descriptors of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDevice {
    /// All that were found.
    pub descriptors: u64,
    /// By process, most first (bounded).
    pub processes: Vec<OpenProcess>,
    /// All processes were looked at; else there may be more.
    pub complete: bool,
}

/// A process that has a device open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenProcess {
    /// Its comm.
    pub comm: String,
    /// Process.
    pub tgid: u32,
    /// Its descriptors.
    pub descriptors: u64,
}

/// A holder of info_lock others waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// What it did while it held the lock; `None`: no operation that is traced (a driver can take the lock, too).
    pub op: Option<String>,
    /// Its comm.
    pub comm: String,
    /// Its process.
    pub tgid: u32,
    /// Its thread.
    pub tid: u32,
    /// Operations that began to wait while it held the lock.
    pub count: u64,
    /// Sum of their waits.
    pub wait_ns: u64,
    /// Those that began to wait on the CPU the holder was on: both wanted one CPU, not only one lock.
    pub same_cpu: u64,
}

/// Waits of one kind of operation behind another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpPair {
    /// What waited.
    pub waiter: String,
    /// What the holder did; `None`: no operation that is traced.
    pub holder: Option<String>,
    /// Waits.
    pub count: u64,
    /// Their sum.
    pub wait_ns: u64,
}

/// Figures of one operation of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UioOpFigures {
    /// `write`, `read`, ...
    pub op: String,
    /// Operations.
    pub count: u64,
    /// Failures by errno name (EIO, ...; SIGBUS for a fault; "unknown").
    pub errors: BTreeMap<String, u64>,
    /// Operations that waited for info_lock.
    pub contended: u64,
    /// Entry to exit.
    pub latency_ns: Histogram,
    /// Wait for info_lock, contended operations only; `None`: no probe measures it on this kernel.
    pub wait_ns: Option<Histogram>,
    /// info_lock held; `None` for read (it sleeps outside the lock).
    pub hold_ns: Option<Histogram>,
    /// Of the waits for info_lock, time spent spinning on a CPU; `None`: not known on this kernel.
    #[serde(default)]
    pub spin_ns: Option<u64>,
    /// From giving info_lock back, with others waiting, to the return: waking one of them; 0 as well where no probe sees the
    /// release.
    #[serde(default)]
    pub wake_ns: u64,
    /// Of the failures, those of operations that began after the device's unregistration had begun.
    #[serde(default)]
    pub refused: u64,
}

/// A slow UIO operation, one by one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowOp {
    /// Device.
    pub sysfs_name: String,
    /// Operation.
    pub op: String,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// comm.
    pub comm: String,
    /// Entry to exit.
    pub latency_ns: u64,
    /// Wait for info_lock.
    pub wait_ns: u64,
    /// Hold.
    pub hold_ns: u64,
    /// Waits for other locks.
    pub driver_wait_ns: u64,
    /// Who held info_lock when the wait began: `comm (tgid/tid)`.
    pub holder: Option<String>,
    /// What the holder did then; `None`: no operation that is traced.
    pub holder_op: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::Backstore;

    #[test]
    fn a_backstore_is_in_the_name() {
        let of = |name| Backstore::of(name).map(|b| (b.hba, b.name, b.config));
        let parts = |hba: &str, name: &str, config: &str| Some((hba.into(), name.into(), config.into()));
        assert_eq!(
            of("tcm-user/0/disk0/rbd/pool/image"),
            parts("0", "disk0", "rbd/pool/image")
        );
        assert_eq!(of("tcm-user/1/disk1/"), parts("1", "disk1", ""));
        assert_eq!(of("tcm-user/1/disk1"), parts("1", "disk1", ""));
        for other in ["tcm-user/", "tcm-user/1", "tcm-user//x", "igb_uio", ""] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
