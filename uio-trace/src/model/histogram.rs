//! Distributions: recording values, the difference of two kernel readings, percentiles.
//!
//! Buckets are those of [`uio_trace_common::histogram`], so a percentile is at most 6.25 % off whoever counted.

use super::snapshot::{Bucket, Histogram};
use crate::event::HistogramReading;
use uio_trace_common::histogram::{BUCKETS, bucket_high, bucket_index, bucket_low};

/// Records values one by one. Empty ones take no heap.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    buckets: Option<Box<[u64; BUCKETS]>>,
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Recorder {
    /// Adds a value, ns.
    pub fn record(&mut self, ns: u64) {
        let buckets = self.buckets.get_or_insert_with(|| Box::new([0; BUCKETS]));
        buckets[bucket_index(ns)] += 1;
        self.min = if self.count == 0 { ns } else { self.min.min(ns) };
        self.max = self.max.max(ns);
        self.count += 1;
        self.sum = self.sum.saturating_add(ns);
    }

    /// Adds all values of another.
    pub fn merge(&mut self, other: &Recorder) {
        let Some(theirs) = &other.buckets else { return };
        if other.count == 0 {
            return;
        }
        let buckets = self.buckets.get_or_insert_with(|| Box::new([0; BUCKETS]));
        for (mine, n) in buckets.iter_mut().zip(theirs.iter()) {
            *mine += n;
        }
        self.min = if self.count == 0 {
            other.min
        } else {
            self.min.min(other.min)
        };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Back to empty; keeps its memory.
    pub fn clear(&mut self) {
        if self.count > 0 {
            if let Some(buckets) = &mut self.buckets {
                buckets.fill(0);
            }
            (self.count, self.sum, self.min, self.max) = (0, 0, 0, 0);
        }
    }

    /// The figures.
    pub fn histogram(&self) -> Histogram {
        let Some(buckets) = &self.buckets else {
            return Histogram::default();
        };
        let counts = buckets
            .iter()
            .enumerate()
            .filter(|(_, n)| **n > 0)
            .map(|(i, n)| (i, *n))
            .collect();
        build(counts, self.sum, self.min, self.max)
    }
}

/// The figures of a reading, or of what came since `base`.
pub fn from_reading(now: &HistogramReading, base: Option<&HistogramReading>) -> Histogram {
    let in_range = |i: u16| (i as usize).min(BUCKETS - 1);
    let Some(base) = base else {
        let counts = now
            .buckets
            .iter()
            .filter(|b| b.1 > 0)
            .map(|&(i, n)| (in_range(i), n))
            .collect();
        return build(counts, now.sum, now.min, now.max);
    };
    let mut counts = Vec::with_capacity(now.buckets.len());
    let mut before = base.buckets.iter().peekable();
    for &(i, n) in &now.buckets {
        while before.next_if(|b| b.0 < i).is_some() {}
        let n = match before.next_if(|b| b.0 == i) {
            Some(b) => n.saturating_sub(b.1),
            None => n,
        };
        if n > 0 {
            counts.push((in_range(i), n));
        }
    }
    // Only the extremes since the start are known exactly; those of the difference lie in its outer buckets.
    let min = counts.first().map_or(0, |&(i, _)| bucket_low(i).max(now.min));
    let max = counts
        .last()
        .map_or(0, |&(i, _)| bucket_high(i).saturating_sub(1).min(now.max));
    build(counts, now.sum.saturating_sub(base.sum), min.min(max), max)
}

/// Figures from sparse (index, count), ascending.
fn build(counts: Vec<(usize, u64)>, sum: u64, min: u64, max: u64) -> Histogram {
    let count: u64 = counts.iter().map(|c| c.1).sum();
    if count == 0 {
        return Histogram::default();
    }
    let quantile = |q: f64| {
        // Nearest rank: the smallest value with at least q of all values at or below it.
        let rank = ((q * count as f64).ceil() as u64).clamp(1, count);
        let mut below = 0;
        for &(i, n) in &counts {
            below += n;
            if below >= rank {
                return midpoint(i, max).clamp(min, max);
            }
        }
        max
    };
    let (p50, p90, p99, p999) = (quantile(0.5), quantile(0.9), quantile(0.99), quantile(0.999));
    let buckets = counts
        .iter()
        .map(|&(i, count)| Bucket {
            lo: bucket_low(i),
            hi: high(i, max),
            count,
        })
        .collect();
    Histogram {
        count,
        sum,
        min,
        max,
        p50,
        p90,
        p99,
        p999,
        buckets,
    }
}

/// First value above a bucket; the last one is open and ends with the largest value.
fn high(index: usize, max: u64) -> u64 {
    if index + 1 >= BUCKETS {
        max.saturating_add(1).max(bucket_low(index) + 1)
    } else {
        bucket_high(index)
    }
}

/// The value a bucket stands for: below 8 ns a bucket has one value.
fn midpoint(index: usize, max: u64) -> u64 {
    let (lo, hi) = (bucket_low(index), high(index, max));
    lo + (hi - lo) / 2
}

impl Histogram {
    /// Mean, ns; 0 when empty.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// Counts by power of two, for people: (exponent, count) where the values lie in [2^e, 2^(e+1)), from the first
    /// non-empty row to the last; 0 counts to exponent 0.
    pub fn log2_rows(&self) -> Vec<(u32, u64)> {
        let exponent = |b: &Bucket| b.lo.max(1).ilog2();
        let (Some(first), Some(last)) = (self.buckets.first(), self.buckets.last()) else {
            return Vec::new();
        };
        let from = exponent(first);
        let mut rows: Vec<(u32, u64)> = (from..=exponent(last)).map(|e| (e, 0)).collect();
        for b in &self.buckets {
            if let Some(row) = rows.get_mut((exponent(b) - from) as usize) {
                row.1 += b.count;
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_is_as_if_recorded_together() {
        let recorder = |values: &[u64]| {
            let mut r = Recorder::default();
            values.iter().for_each(|v| r.record(*v));
            r
        };
        let mut merged = recorder(&[]);
        for part in [&[5_000, 900][..], &[], &[77]] {
            merged.merge(&recorder(part));
        }
        assert_eq!(merged.histogram(), recorder(&[5_000, 900, 77]).histogram());
    }

    /// A small deterministic generator, log-uniform over 1 ns .. 2^34 ns.
    fn values(n: usize) -> Vec<u64> {
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        (0..n)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                (x >> 3) % (1 << (1 + x % 34))
            })
            .collect()
    }

    #[test]
    fn percentiles_agree_with_the_sorted_values() {
        let mut raw = values(100_000);
        let mut r = Recorder::default();
        raw.iter().for_each(|v| r.record(*v));
        raw.sort_unstable();
        let h = r.histogram();
        assert_eq!(h.count, 100_000);
        assert_eq!(h.sum, raw.iter().sum::<u64>());
        assert_eq!((h.min, h.max), (raw[0], raw[99_999]));
        for (q, got) in [(0.5, h.p50), (0.9, h.p90), (0.99, h.p99), (0.999, h.p999)] {
            let want = raw[(q * raw.len() as f64).ceil() as usize - 1];
            assert!(
                got.abs_diff(want) as f64 <= 0.0625 * want as f64 + 1.0,
                "p{q}: {got}, sorted: {want}"
            );
        }
        assert_eq!(h.buckets.iter().map(|b| b.count).sum::<u64>(), h.count);
        assert!(h.buckets.windows(2).all(|w| w[0].hi <= w[1].lo));
    }

    #[test]
    fn one_value_is_every_percentile_of_itself() {
        let mut r = Recorder::default();
        r.record(1_406_000);
        let h = r.histogram();
        assert_eq!(
            (h.p50, h.p999, h.min, h.max),
            (1_406_000, 1_406_000, 1_406_000, 1_406_000)
        );
        r.clear();
        assert_eq!(r.histogram(), Histogram::default());
    }

    #[test]
    fn a_difference_is_the_distribution_of_the_new_values() {
        let reading = |v: &[u64]| {
            let mut dense = [0u64; BUCKETS];
            v.iter().for_each(|v| dense[bucket_index(*v)] += 1);
            HistogramReading {
                sum: v.iter().sum(),
                min: *v.iter().min().unwrap(),
                max: *v.iter().max().unwrap(),
                buckets: (0u16..).zip(dense).filter(|b| b.1 > 0).collect(),
            }
        };
        let all = values(20_000);
        let (old, new) = all.split_at(15_000);
        let h = from_reading(&reading(&all), Some(&reading(old)));
        let mut sorted = new.to_vec();
        sorted.sort_unstable();
        assert_eq!((h.count, h.sum), (5_000, new.iter().sum()));
        let want = sorted[2_499];
        assert!(h.p50.abs_diff(want) as f64 <= 0.0625 * want as f64 + 1.0);
        assert!(h.min <= sorted[0] && h.max >= sorted[4_999]);
    }

    #[test]
    fn values_beyond_the_last_bucket_keep_their_maximum() {
        let mut r = Recorder::default();
        r.record(1 << 45);
        let h = r.histogram();
        assert_eq!((h.p50, h.max), (1 << 45, 1 << 45));
        assert_eq!(h.buckets[0].hi, (1 << 45) + 1);
    }

    #[test]
    fn log2_rows_cover_all_counts() {
        let mut r = Recorder::default();
        [0, 1, 3, 9, 1000].iter().for_each(|v| r.record(*v));
        let rows = r.histogram().log2_rows();
        assert_eq!(rows.first(), Some(&(0, 2)));
        assert_eq!(rows.last(), Some(&(9, 1)));
        assert_eq!(rows.iter().map(|r| r.1).sum::<u64>(), 5);
    }
}
