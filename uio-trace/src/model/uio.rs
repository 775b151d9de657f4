//! UIO devices and their figures: absolute readings of the kernel's series in, since-start and interval figures out.

use super::blockers::Blockers;
use super::history::{History, LockTotals};
use super::limits::{MAX_COUNT, MAX_UIO_DEVICES, MAX_UIO_SERIES, SHOWN_OPENERS};
use super::snapshot::{
    Backstore, Histogram, OpenDevice, OpenProcess, UioDevice, UioLock, UioOpFigures, Unregister,
};
use super::threads::Threads;
use super::whatif::{self, Behind};
use super::{errno, histogram};
use crate::event::{
    DeviceKey, HistogramReading, MonotonicNs, UioDeviceInfo, UioOp, UioOpen, UioPresence, UioSeriesReading,
};
use crate::format::printable;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

/// One series: the last reading, and the one the interval began with.
#[derive(Debug, Clone)]
struct Series {
    now: UioSeriesReading,
    /// Reading at the begin of interval `epoch`; `None`: the series is younger than that.
    base: Option<UioSeriesReading>,
    /// Interval of the last reading: only in the running one `now` minus `base` is news.
    epoch: u64,
}

/// What is known of a device besides its series.
#[derive(Debug, Clone, Default)]
struct Device {
    name: Option<String>,
    version: Option<String>,
    driver: Option<String>,
    parent: Option<String>,
    /// Who has it open, and when that was looked up.
    open: Option<(MonotonicNs, OpenDevice)>,
    gone_ns: Option<MonotonicNs>,
    unregister: Option<Unregister>,
    /// First sign of this generation.
    since_ns: MonotonicNs,
}

impl Device {
    /// What is known of who has it open now. None found is only known when all were looked at, and of one that is gone
    /// only what was looked up after that.
    fn opened(&self) -> Option<OpenDevice> {
        let (ts_ns, open) = self.open.as_ref()?;
        let known = open.complete || open.descriptors > 0;
        let current = self.gone_ns.is_none_or(|gone| *ts_ns >= gone) && *ts_ns >= self.since_ns;
        (known && current).then(|| open.clone())
    }
}

/// All devices.
#[derive(Debug, Clone)]
pub struct Uio {
    presence: Option<UioPresence>,
    lock: UioLock,
    series: BTreeMap<(DeviceKey, UioOp), Series>,
    devices: BTreeMap<DeviceKey, Device>,
    epoch: u64,
    /// When the counts were read last.
    read_ns: Option<MonotonicNs>,
    /// Series and devices that found no place.
    pub refused: u64,
    refused_keys: HashSet<DeviceKey>,
}

/// Counts up to [`MAX_COUNT`].
fn believed(mut reading: UioSeriesReading) -> UioSeriesReading {
    let singles = [
        &mut reading.count,
        &mut reading.contended,
        &mut reading.driver_waits,
    ];
    let histograms = [&mut reading.latency, &mut reading.wait, &mut reading.hold];
    let buckets = histograms
        .into_iter()
        .flat_map(|h| &mut h.buckets)
        .map(|b| &mut b.1);
    for count in singles
        .into_iter()
        .chain(reading.errors.values_mut())
        .chain(buckets)
    {
        *count = (*count).min(MAX_COUNT);
    }
    reading
}

/// What a snapshot has to be told.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// Figures of the running interval only.
    pub interval: bool,
    /// Its begin.
    pub start_ns: MonotonicNs,
    /// Its length, ns, at least 1.
    pub duration_ns: u64,
    /// Waits for info_lock are measured (and with them hold, which is what they are subtracted from).
    pub wait_measured: bool,
    /// Of them, which part is spinning is known.
    pub spin_measured: bool,
    /// CPUs online; `None`: not known.
    pub cpus: Option<u32>,
    /// Share of the operations that is not in the sums.
    pub lost_share: f64,
}

impl Default for Uio {
    fn default() -> Self {
        Uio {
            presence: None,
            lock: UioLock::Unknown,
            series: BTreeMap::new(),
            devices: BTreeMap::new(),
            epoch: 0,
            read_ns: None,
            refused: 0,
            refused_keys: HashSet::new(),
        }
    }
}

impl Uio {
    /// New readings; a series that is not among them keeps its figures.
    pub fn readings(&mut self, ts_ns: MonotonicNs, readings: Vec<UioSeriesReading>) {
        self.read_ns = Some(ts_ns);
        for reading in readings.into_iter().map(believed) {
            let key = (reading.device, reading.op);
            if reading.contended > 0 && self.lock == UioLock::Unknown {
                // Only a mutex inside the device is ever counted as contended.
                self.lock = UioLock::Mutex;
            }
            match self.series.get_mut(&key) {
                Some(series) => series.update(reading, self.epoch),
                None => self.new_series(key, reading),
            }
        }
    }

    fn new_series(&mut self, key: (DeviceKey, UioOp), reading: UioSeriesReading) {
        if self.series.len() >= MAX_UIO_SERIES || !self.device(key.0, reading.first_ns) {
            self.refused += 1;
            return;
        }
        self.end_older(key.0, reading.first_ns);
        self.series.insert(
            key,
            Series {
                now: reading,
                base: None,
                epoch: self.epoch,
            },
        );
    }

    /// A younger generation means that the older ones are gone, whether or not that was seen.
    fn end_older(&mut self, key: DeviceKey, ts_ns: MonotonicNs) {
        let first = DeviceKey {
            minor: key.minor,
            generation: 0,
        };
        for (_, device) in self.devices.range_mut(first..key) {
            device.gone_ns.get_or_insert(ts_ns);
        }
    }

    /// Makes sure that the device exists; false when there is no place for it.
    fn device(&mut self, key: DeviceKey, since_ns: MonotonicNs) -> bool {
        if !self.devices.contains_key(&key) {
            if self.devices.len() >= MAX_UIO_DEVICES {
                if self.refused_keys.len() < MAX_UIO_DEVICES && self.refused_keys.insert(key) {
                    self.refused += 1;
                }
                return false;
            }
            self.devices.insert(
                key,
                Device {
                    since_ns,
                    ..Device::default()
                },
            );
        }
        true
    }

    /// What sysfs shows: names, and who is gone.
    pub fn devices(&mut self, ts_ns: MonotonicNs, list: Vec<UioDeviceInfo>) {
        let listed: HashSet<u32> = list.iter().map(|d| d.minor).collect();
        for (key, device) in &mut self.devices {
            if !listed.contains(&key.minor) && device.since_ns <= ts_ns {
                device.gone_ns.get_or_insert(ts_ns);
            }
        }
        for info in list {
            let all = DeviceKey {
                minor: info.minor,
                generation: 0,
            }..=DeviceKey {
                minor: info.minor,
                generation: u32::MAX,
            };
            let newest = self.devices.range(all).next_back().map(|(k, d)| (*k, d.gone_ns));
            let key = match newest {
                None => DeviceKey {
                    minor: info.minor,
                    generation: 0,
                },
                Some((key, None)) => key,
                // Read before it went: old news.
                Some((_, Some(gone))) if ts_ns < gone => continue,
                Some((key, Some(_))) => DeviceKey {
                    generation: key.generation.saturating_add(1),
                    ..key
                },
            };
            if self.device(key, ts_ns)
                && let Some(device) = self.devices.get_mut(&key)
                && device.since_ns <= ts_ns
            {
                device.name = info.name.map(printable).or(device.name.take());
                device.version = info.version.map(printable).or(device.version.take());
                device.driver = info.driver.map(printable).or(device.driver.take());
                device.parent = info.parent.map(printable).or(device.parent.take());
            }
        }
    }

    /// Who has devices open. A descriptor without a node is of the newest device that is gone, others of the newest.
    pub fn open(&mut self, ts_ns: MonotonicNs, open: UioOpen) {
        for device in self.devices.values_mut() {
            let complete = open.complete;
            let none = OpenDevice {
                complete,
                ..OpenDevice::default()
            };
            device.open = Some((ts_ns, none));
        }
        for opener in open.openers {
            let all = DeviceKey {
                minor: opener.minor,
                generation: 0,
            }..=DeviceKey {
                minor: opener.minor,
                generation: u32::MAX,
            };
            let meant = |device: &&mut Device| !opener.deleted || device.gone_ns.is_some();
            let mut devices = self.devices.range_mut(all).map(|(_, device)| device).rev();
            let Some((_, open)) = devices.find(meant).and_then(|device| device.open.as_mut()) else {
                continue;
            };
            open.descriptors = open.descriptors.saturating_add(opener.descriptors);
            open.processes.push(OpenProcess {
                comm: printable(opener.comm),
                tgid: opener.tgid,
                descriptors: opener.descriptors,
            });
        }
        for (_, open) in self
            .devices
            .values_mut()
            .filter_map(|device| device.open.as_mut())
        {
            open.processes.sort_by_key(|p| (Reverse(p.descriptors), p.tgid));
            open.processes.truncate(SHOWN_OPENERS);
        }
    }

    /// A generation began.
    pub fn registered(&mut self, ts_ns: MonotonicNs, key: DeviceKey) {
        if self.device(key, ts_ns) {
            self.end_older(key, ts_ns);
        }
    }

    /// A generation ended.
    pub fn unregistered(&mut self, ts_ns: MonotonicNs, key: DeviceKey, unregister: Unregister) {
        if self.device(key, ts_ns)
            && let Some(device) = self.devices.get_mut(&key)
        {
            // What sysfs told about its disappearance is only when it was looked at.
            device.gone_ns = Some(device.gone_ns.map_or(ts_ns, |gone| gone.min(ts_ns)));
            device.unregister = Some(unregister);
        }
    }

    /// The driver came or went.
    pub fn presence(&mut self, ts_ns: MonotonicNs, presence: UioPresence) {
        if presence == UioPresence::Absent {
            for device in self.devices.values_mut() {
                device.gone_ns.get_or_insert(ts_ns);
            }
        }
        self.presence = Some(presence);
    }

    /// What serialises a device on this kernel.
    pub fn lock_kind(&mut self, lock: UioLock) {
        self.lock = lock;
    }

    /// A new interval begins.
    pub fn begin_interval(&mut self) {
        self.epoch += 1;
    }

    /// Name of a device.
    pub fn name(&self, key: DeviceKey) -> Option<String> {
        self.devices.get(&key)?.name.clone()
    }

    /// When the counts were read last; `None`: not yet.
    pub fn read_ns(&self) -> Option<MonotonicNs> {
        self.read_ns
    }

    /// Is the driver there? `None`: nothing has told, and no device that is there does.
    pub fn present(&self) -> Option<bool> {
        match self.presence {
            Some(presence) => Some(presence == UioPresence::Present),
            None => self.devices.values().any(|d| d.gone_ns.is_none()).then_some(true),
        }
    }

    /// Sums of holds and waits of each device that had operations, for the history.
    pub fn totals(&self) -> impl Iterator<Item = LockTotals> + '_ {
        let mut series = self.series.iter().peekable();
        std::iter::from_fn(move || {
            let ((device, _), _) = series.peek()?;
            let mut totals = LockTotals {
                device: *device,
                hold_ns: 0,
                wait_ns: 0,
            };
            while let Some(((_, op), found)) = series.next_if(|((key, _), _)| *key == totals.device) {
                // As in `row`: a read sleeps outside the lock.
                if *op != UioOp::Read {
                    totals.hold_ns = totals.hold_ns.saturating_add(found.now.hold.sum);
                }
                totals.wait_ns = totals.wait_ns.saturating_add(found.now.wait.sum);
            }
            Some(totals)
        })
    }

    /// Records `uio_device`: those that exist, were there in the stretch, or had operations in it.
    pub fn snapshot(
        &self,
        view: View,
        blockers: &Blockers,
        threads: &Threads,
        history: &History,
    ) -> Vec<UioDevice> {
        let mut rows = Vec::new();
        for (key, device) in &self.devices {
            let row = self.row(*key, device, view, blockers, threads, history);
            let there = device.gone_ns.is_none_or(|gone| gone >= view.start_ns);
            if there || !row.ops.is_empty() {
                rows.push(row);
            }
        }
        rows
    }

    fn row(
        &self,
        key: DeviceKey,
        device: &Device,
        view: View,
        blockers: &Blockers,
        threads: &Threads,
        history: &History,
    ) -> UioDevice {
        let (mut hold_sum, mut wait_sum, mut driver_wait_ns, mut driver_waits) = (0u64, 0u64, 0u64, 0u64);
        let mut ops = Vec::new();
        for op in UioOp::ALL {
            let Some(series) = self.series.get(&(key, op)) else {
                continue;
            };
            let Some(delta) = series.figures(view, self.epoch) else {
                continue;
            };
            hold_sum = hold_sum.saturating_add(delta.figures.hold_ns.as_ref().map_or(0, |h| h.sum));
            wait_sum = wait_sum.saturating_add(delta.figures.wait_ns.as_ref().map_or(0, |w| w.sum));
            driver_wait_ns = driver_wait_ns.saturating_add(delta.driver_wait_ns);
            driver_waits = driver_waits.saturating_add(delta.driver_waits);
            ops.push(delta.figures);
        }
        let per_time = |ns: u64| ns as f64 / view.duration_ns as f64;
        let main = whatif::main_op(&ops).and_then(|op| UioOp::ALL.into_iter().find(|o| o.name() == op.op));
        let behind = main.map_or_else(Behind::default, |op| blockers.behind(view.interval, key, op));
        let what_if = whatif::project(&whatif::Figures {
            duration_ns: view.duration_ns,
            busy_share: history.busy_share(key, view.start_ns),
            cpus: view.cpus,
            lock: self.lock,
            wait_measured: view.wait_measured,
            ops: &ops,
            driver_wait_ns,
            cpu_use: threads.of(view.interval, behind.main_threads()),
            behind,
            lost_share: view.lost_share,
        });
        UioDevice {
            minor: key.minor,
            generation: key.generation,
            sysfs_name: format!("uio{}", key.minor),
            name: device.name.clone(),
            version: device.version.clone(),
            driver: device.driver.clone(),
            parent: device.parent.clone(),
            backstore: device.name.as_deref().and_then(Backstore::of),
            open: device.opened(),
            gone_ns: device.gone_ns,
            unregister: device.unregister.clone(),
            lock: self.lock,
            // Above 1 only by what lies between entry and lock: an uncontended hold is counted from the entry. Without a
            // lock operations overlap and the sum says nothing.
            utilization: (view.wait_measured && self.lock != UioLock::PercpuRef)
                .then(|| per_time(hold_sum).min(1.0)),
            mean_waiters: per_time(wait_sum),
            ops,
            driver_wait_ns,
            driver_waits,
            blockers: blockers.holders(view.interval, key),
            waits_by_op: blockers.pairs(view.interval, key),
            what_if,
        }
    }
}

/// Figures of a series for a scope.
struct Delta {
    figures: UioOpFigures,
    driver_wait_ns: u64,
    driver_waits: u64,
}

impl Series {
    fn update(&mut self, reading: UioSeriesReading, epoch: u64) {
        if self.epoch != epoch {
            // The first reading of an interval: what was known until then is its base.
            self.epoch = epoch;
            self.base = Some(std::mem::replace(&mut self.now, reading));
        } else {
            self.now = reading;
        }
    }

    /// `None` without an operation in the scope.
    fn figures(&self, view: View, epoch: u64) -> Option<Delta> {
        let base = match view.interval {
            false => None,
            true if self.epoch != epoch => return None,
            true => self.base.as_ref(),
        };
        let now = &self.now;
        let since = |now: u64, base: Option<u64>| now.saturating_sub(base.unwrap_or(0));
        let count = since(now.count, base.map(|b| b.count));
        if count == 0 {
            return None;
        }
        let distribution = |pick: fn(&UioSeriesReading) -> &HistogramReading| -> Histogram {
            histogram::from_reading(pick(now), base.map(pick))
        };
        let mut errors = BTreeMap::new();
        for (&code, &n) in &now.errors {
            let n = since(n, base.and_then(|b| b.errors.get(&code).copied()));
            if n > 0 {
                *errors.entry(errno::name(code)).or_insert(0) += n;
            }
        }
        // uio_read sleeps for the interrupt outside the lock: entry to exit says nothing about the hold.
        let holds = view.wait_measured && now.op != UioOp::Read;
        Some(Delta {
            figures: UioOpFigures {
                op: now.op.name().to_string(),
                count,
                errors,
                contended: since(now.contended, base.map(|b| b.contended)),
                latency_ns: distribution(|r| &r.latency),
                wait_ns: view.wait_measured.then(|| distribution(|r| &r.wait)),
                hold_ns: holds.then(|| distribution(|r| &r.hold)),
                spin_ns: view
                    .spin_measured
                    .then(|| since(now.spin_ns, base.map(|b| b.spin_ns))),
                wake_ns: since(now.wake_ns, base.map(|b| b.wake_ns)),
                refused: since(now.refused, base.map(|b| b.refused)),
            },
            driver_wait_ns: since(now.driver_wait_ns, base.map(|b| b.driver_wait_ns)),
            driver_waits: since(now.driver_waits, base.map(|b| b.driver_waits)),
        })
    }
}
