//! UIO devices: who is serialised by its info_lock.

use crate::model::history::{History, LockSample};
use crate::model::snapshot::{Histogram, UioDevice, UioLock};
use crate::ui::arrange::Tabular;
use crate::ui::canvas::{Canvas, split_top};
use crate::ui::column::{Cell, Column, counts, times};
use crate::ui::format;
use crate::ui::state::{RowId, Screen, State};
use crate::ui::theme::Role;
use crate::ui::widgets::histogram;
use ratatui::layout::Rect;

/// Percentiles of a device's operations together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Figures {
    /// 99th percentile.
    pub p99: u64,
    /// Median.
    pub p50: u64,
    /// Largest.
    pub max: u64,
}

impl Figures {
    /// `None` when nothing was measured.
    fn new<'a>(parts: impl Iterator<Item = &'a Histogram>) -> Option<Figures> {
        let sum = histogram::sum(parts);
        (sum.count > 0).then_some(Figures {
            p50: sum.p50,
            p99: sum.p99,
            max: sum.max,
        })
    }
}

/// A row: a device with its operations added up.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceRow {
    /// Minor number.
    pub minor: u32,
    /// Re-registrations of it.
    pub generation: u32,
    /// `uioN`, with `#G` from the second registration on.
    pub label: String,
    /// The driver's name for it.
    pub name: Option<String>,
    /// Unregistered.
    pub gone: bool,
    /// What serialises it.
    pub lock: UioLock,
    /// Share of time info_lock was held.
    pub utilization: Option<f64>,
    /// Mean number of waiting threads.
    pub mean_waiters: f64,
    /// The lock in the last second or so; `None`: it was never used.
    pub now: Option<LockSample>,
    /// Operations.
    pub ops: u64,
    /// Operations per second; NaN when the stretch has no length.
    pub rate: f64,
    /// Those that waited.
    pub contended: u64,
    /// Those that failed.
    pub errors: u64,
    /// Entry to exit.
    pub latency: Option<Figures>,
    /// Waits for info_lock.
    pub wait: Option<Figures>,
    /// Holds of it.
    pub hold: Option<Figures>,
    /// Waits for other locks, sum.
    pub driver_wait_ns: u64,
}

/// `uioN`, or `uioN#G` when the minor was used before.
pub fn label(device: &UioDevice) -> String {
    match device.generation {
        0 => device.sysfs_name.clone(),
        generation => format!("{}#{generation}", device.sysfs_name),
    }
}

impl DeviceRow {
    /// Adds a device's operations up; they took place in `duration_ns`.
    pub fn new(device: &UioDevice, duration_ns: u64) -> DeviceRow {
        let ops: u64 = device.ops.iter().map(|o| o.count).sum();
        DeviceRow {
            minor: device.minor,
            generation: device.generation,
            label: label(device),
            name: device.name.clone(),
            gone: device.gone_ns.is_some(),
            lock: device.lock,
            utilization: device.utilization,
            mean_waiters: device.mean_waiters,
            now: None,
            ops,
            rate: ops as f64 * 1e9 / duration_ns as f64,
            contended: device.ops.iter().map(|o| o.contended).sum(),
            errors: device.ops.iter().flat_map(|o| o.errors.values()).sum(),
            latency: Figures::new(device.ops.iter().map(|o| &o.latency_ns)),
            wait: Figures::new(device.ops.iter().filter_map(|o| o.wait_ns.as_ref())),
            hold: Figures::new(device.ops.iter().filter_map(|o| o.hold_ns.as_ref())),
            driver_wait_ns: device.driver_wait_ns,
        }
    }

    /// With what the history ends with.
    pub fn with_now(self, history: &History) -> DeviceRow {
        let now = history.device(self.minor, self.generation).next_back();
        DeviceRow { now, ..self }
    }

    /// Threads waiting now; -1 when the lock was never used.
    fn waiting_now(&self) -> f32 {
        self.now.map_or(-1.0, |now| now.waiting)
    }

    fn contended_share(&self) -> f64 {
        if self.ops == 0 {
            0.0
        } else {
            self.contended as f64 / self.ops as f64
        }
    }
}

/// Word for what serialises a device.
pub fn lock_name(lock: UioLock) -> &'static str {
    match lock {
        UioLock::Mutex => "mutex",
        UioLock::PercpuRef => "ref",
        UioLock::Unknown => "-",
    }
}

/// Share of time held from which one more client would mostly wait.
fn held_role(share: f64) -> Role {
    match share {
        s if s >= 0.9 => Role::Critical,
        s if s >= 0.5 => Role::Warning,
        _ => Role::Plain,
    }
}

impl Tabular for DeviceRow {
    const DEFAULT_SORT: usize = 4;
    const COLUMNS: &'static [Column<DeviceRow>] = &[
        Column::names(
            "device",
            (7, 14),
            0,
            |d, _| match d.gone {
                true => Cell::Text(format!("{} gone", d.label), Role::Dim),
                false => Cell::plain(&d.label),
            },
            |a, b| (a.minor, a.generation).cmp(&(b.minor, b.generation)),
        ),
        Column::names(
            "name",
            (8, 40),
            2,
            |d, _| d.name.as_ref().map_or_else(Cell::none, Cell::plain),
            |a, b| a.name.cmp(&b.name),
        ),
        Column::names(
            "lock",
            (6, 6),
            7,
            |d, _| Cell::plain(lock_name(d.lock)),
            |a, b| lock_name(a.lock).cmp(lock_name(b.lock)),
        ),
        Column::figures(
            "held %",
            7,
            0,
            |d, _| {
                d.utilization.map_or_else(Cell::none, |share| {
                    Cell::Text(format::percent(share), held_role(share))
                })
            },
            |a, b| {
                a.utilization
                    .unwrap_or(-1.0)
                    .total_cmp(&b.utilization.unwrap_or(-1.0))
            },
        ),
        Column::figures(
            "waiting",
            8,
            0,
            |d, _| Cell::plain(format!("{:.2}", d.mean_waiters)),
            |a, b| a.mean_waiters.total_cmp(&b.mean_waiters),
        ),
        Column::figures(
            "wait now",
            9,
            3,
            |d, _| {
                d.now
                    .map_or_else(Cell::none, |now| Cell::plain(format!("{:.2}", now.waiting)))
            },
            |a, b| a.waiting_now().total_cmp(&b.waiting_now()),
        ),
        counts!("ops", 6, 1, |d: DeviceRow| d.ops),
        Column::figures(
            "ops/s",
            6,
            6,
            |d, _| Cell::plain(format::rate(d.rate)),
            |a, b| a.rate.total_cmp(&b.rate),
        ),
        Column::figures(
            "contd %",
            8,
            3,
            |d, _| Cell::plain(format::percent_of(d.contended, d.ops)),
            |a, b| a.contended_share().total_cmp(&b.contended_share()),
        ),
        Column::figures(
            "errors",
            7,
            5,
            |d, _| Cell::bad_count(d.errors),
            |a, b| a.errors.cmp(&b.errors),
        ),
        times!("wait p50", 9, 4, |d: DeviceRow| d.wait.map(|f| f.p50)),
        times!("wait p99", 9, 1, |d: DeviceRow| d.wait.map(|f| f.p99)),
        times!("wait max", 9, 6, |d: DeviceRow| d.wait.map(|f| f.max)),
        times!("hold p50", 9, 2, |d: DeviceRow| d.hold.map(|f| f.p50)),
        times!("hold p99", 9, 5, |d: DeviceRow| d.hold.map(|f| f.p99)),
        times!("hold max", 9, 8, |d: DeviceRow| d.hold.map(|f| f.max)),
        times!("lat p99", 9, 8, |d: DeviceRow| d.latency.map(|f| f.p99)),
        times!("drv wait", 9, 9, |d: DeviceRow| Some(d.driver_wait_ns)),
    ];

    fn id(&self, _now_ns: u64) -> RowId {
        RowId::Device(self.minor, self.generation)
    }

    fn texts(&self) -> Vec<&str> {
        let mut texts = vec![self.label.as_str()];
        texts.extend(self.name.as_deref());
        texts
    }
}

/// Draws the screen.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, state: &State) {
    let empty = match state.shown().and_then(|s| s.uio_present) {
        Some(true) => "Nothing here: no UIO device exists.",
        Some(false) => "Nothing here: the uio driver is not loaded. Its probes attach when it appears.",
        None => "Nothing here: whether the uio driver is loaded is not known.",
    };
    let row = |position: usize| state.devices.get(position);
    let used = super::draw_list(canvas, area, state, Screen::Uio, "UIO devices", row, empty);
    super::draw_preview(canvas, split_top(area, used).1, state, Screen::Uio);
}
