//! The per-CPU UIO series: read, told apart by device and operation, summed over CPUs, and made absolute (the kernel side's
//! bucket counts are 32 bits wide and wrap).

use crate::{
    event::{DeviceKey, HistogramReading, KernelPtr, UioOp, UioSeriesReading},
    probes::session::{Session, SessionError},
};
use aya::{
    Pod,
    maps::{MapData, MapError, PerCpuArray},
};
use std::collections::{BTreeMap, HashMap};
use uio_trace_common::{
    histogram::BUCKETS,
    uio::{ERRNOS, SeriesHistogram, UioSeries},
};

/// [`UioSeries`] as aya reads it.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct SeriesValue(UioSeries);
// SAFETY: zerocopy's derives on UioSeries prove that it has no padding and takes any bit pattern.
unsafe impl Pod for SeriesValue {}

/// Wide counts of one histogram on one CPU.
struct WideHistogram {
    last: [u32; BUCKETS],
    total: Box<[u64; BUCKETS]>,
}

impl Default for WideHistogram {
    fn default() -> Self {
        WideHistogram {
            last: [0; BUCKETS],
            total: Box::new([0; BUCKETS]),
        }
    }
}

impl WideHistogram {
    fn update(&mut self, now: &SeriesHistogram) {
        for ((last, total), now) in self.last.iter_mut().zip(self.total.iter_mut()).zip(&now.buckets) {
            *total += u64::from(now.wrapping_sub(*last));
            *last = *now;
        }
    }
}

/// What was read of one series on one CPU before.
#[derive(Default)]
struct Wide {
    latency: WideHistogram,
    wait: WideHistogram,
    hold: WideHistogram,
    errors: [(u32, u64); ERRNOS + 1],
}

/// Reads the series and remembers what it needs to see counts wrap.
#[derive(Default)]
pub struct SeriesReader {
    /// By CPU and index.
    wide: HashMap<(usize, u32), Wide>,
}

/// A reading, summed over CPUs.
#[derive(Default)]
struct Sum {
    idev: u64,
    first_ns: u64,
    count: u64,
    contended: u64,
    driver_waits: u64,
    driver_wait_ns: u64,
    spin_ns: u64,
    wake_ns: u64,
    refused: u64,
    errors: BTreeMap<u32, u64>,
    latency: HistogramSum,
    wait: HistogramSum,
    hold: HistogramSum,
}

#[derive(Default)]
struct HistogramSum {
    sum: u64,
    inverted_min: u64,
    max: u64,
    buckets: BTreeMap<u16, u64>,
}

impl HistogramSum {
    fn add(&mut self, now: &SeriesHistogram, wide: &WideHistogram) {
        self.sum += now.sum;
        self.inverted_min = self.inverted_min.max(now.inverted_min);
        self.max = self.max.max(now.max);
        for (index, total) in wide.total.iter().enumerate() {
            if *total != 0 {
                *self.buckets.entry(index as u16).or_insert(0) += total;
            }
        }
    }

    fn reading(self) -> HistogramReading {
        HistogramReading {
            sum: self.sum,
            min: if self.buckets.is_empty() {
                0
            } else {
                !self.inverted_min
            },
            max: self.max,
            buckets: self.buckets.into_iter().collect(),
        }
    }
}

impl SeriesReader {
    /// Reads everything that has been counted.
    ///
    /// # Errors
    /// [`SessionError::Map`] when a map cannot be read.
    pub fn read(&mut self, session: &Session) -> Result<Vec<UioSeriesReading>, SessionError> {
        let fail = |error: MapError| SessionError::Map {
            map: "SERIES",
            cause: error.to_string(),
        };
        let used: PerCpuArray<&MapData, u32> = session.map("SERIES_USED")?.try_into().map_err(fail)?;
        let series: PerCpuArray<&MapData, SeriesValue> = session.map("SERIES")?.try_into().map_err(fail)?;
        let used = used.get(&0, 0).map_err(fail)?;
        let most = used.iter().copied().max().unwrap_or(0);
        let mut sums: BTreeMap<(DeviceKey, UioOp), Sum> = BTreeMap::new();
        for index in 0..most {
            let values = series.get(&index, 0).map_err(fail)?;
            for (cpu, value) in values.iter().enumerate() {
                self.add(cpu, index, &value.0, &mut sums);
            }
        }
        Ok(sums
            .into_iter()
            .map(|((device, op), sum)| reading(device, op, sum))
            .collect())
    }

    fn add(&mut self, cpu: usize, index: u32, now: &UioSeries, sums: &mut BTreeMap<(DeviceKey, UioOp), Sum>) {
        let Some(op) = UioOp::from_raw(now.op).filter(|_| now.idev != 0) else {
            return;
        };
        let wide = self.wide.entry((cpu, index)).or_default();
        wide.latency.update(&now.latency);
        wide.wait.update(&now.wait);
        wide.hold.update(&now.hold);
        let errnos = now
            .errnos
            .iter()
            .map(|e| (e.errno, e.count))
            .chain([(0, now.errors_other)]);
        for ((code, total), (errno, count)) in wide.errors.iter_mut().zip(errnos) {
            *code = errno;
            // The low half is the last reading.
            *total += u64::from(count.wrapping_sub(*total as u32));
        }

        let sum = sums
            .entry((
                DeviceKey {
                    minor: now.minor,
                    generation: now.generation,
                },
                op,
            ))
            .or_default();
        sum.idev = now.idev;
        if sum.first_ns == 0 || now.first_ns < sum.first_ns {
            sum.first_ns = now.first_ns;
        }
        sum.count += now.count;
        sum.contended += now.contended;
        sum.driver_waits += now.driver_waits;
        sum.driver_wait_ns += now.driver_wait_ns;
        sum.spin_ns += now.spin_ns;
        sum.wake_ns += now.wake_ns;
        sum.refused += now.refused;
        for (code, total) in wide.errors {
            if total != 0 {
                *sum.errors.entry(code).or_insert(0) += total;
            }
        }
        sum.latency.add(&now.latency, &wide.latency);
        sum.wait.add(&now.wait, &wide.wait);
        sum.hold.add(&now.hold, &wide.hold);
    }
}

fn reading(device: DeviceKey, op: UioOp, sum: Sum) -> UioSeriesReading {
    UioSeriesReading {
        device,
        idev: KernelPtr(sum.idev),
        op,
        first_ns: sum.first_ns,
        count: sum.count,
        contended: sum.contended,
        driver_waits: sum.driver_waits,
        driver_wait_ns: sum.driver_wait_ns,
        spin_ns: sum.spin_ns,
        wake_ns: sum.wake_ns,
        refused: sum.refused,
        errors: sum.errors,
        latency: sum.latency.reading(),
        wait: sum.wait.reading(),
        hold: sum.hold.reading(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    fn series(minor: u32, op: u32) -> UioSeries {
        let mut series = UioSeries::new_zeroed();
        series.idev = 1;
        series.minor = minor;
        series.op = op;
        series
    }

    fn read(reader: &mut SeriesReader, cpus: &[&UioSeries]) -> Vec<UioSeriesReading> {
        let mut sums = BTreeMap::new();
        for (cpu, series) in cpus.iter().enumerate() {
            reader.add(cpu, 0, series, &mut sums);
        }
        sums.into_iter()
            .map(|((device, op), sum)| reading(device, op, sum))
            .collect()
    }

    #[test]
    fn bucket_counts_that_wrap_go_on_growing() {
        let mut reader = SeriesReader::default();
        let mut s = series(0, 0);
        s.latency.buckets[5] = u32::MAX;
        s.errnos[0].errno = 5;
        s.errnos[0].count = u32::MAX;
        let first = read(&mut reader, &[&s]);
        assert_eq!(first[0].latency.buckets, [(5, u64::from(u32::MAX))]);
        s.latency.buckets[5] = 2;
        s.errnos[0].count = 3;
        let second = read(&mut reader, &[&s]);
        assert_eq!(second[0].latency.buckets, [(5, u64::from(u32::MAX) + 3)]);
        assert_eq!(second[0].errors[&5], u64::from(u32::MAX) + 4);
    }

    #[test]
    fn cpus_are_summed_and_devices_kept_apart() {
        let mut reader = SeriesReader::default();
        let mut a = series(0, 0);
        a.count = 3;
        a.latency.inverted_min = !10;
        a.latency.max = 30;
        a.latency.buckets[9] = 3;
        let mut b = series(0, 0);
        b.count = 4;
        b.latency.inverted_min = !5;
        b.latency.max = 20;
        b.latency.buckets[9] = 4;
        let mut other = series(1, 0);
        other.count = 9;
        let readings = read(&mut reader, &[&a, &b, &other]);
        assert_eq!(readings.len(), 2);
        assert_eq!(readings[0].count, 7);
        assert_eq!((readings[0].latency.min, readings[0].latency.max), (5, 30));
        assert_eq!(readings[0].latency.buckets, [(9, 7)]);
        assert_eq!(readings[1].count, 9);
    }

    #[test]
    fn series_not_handed_out_are_no_devices() {
        let mut reader = SeriesReader::default();
        let mut unused = series(0, 0);
        unused.idev = 0;
        assert!(read(&mut reader, &[&unused]).is_empty());
    }
}
