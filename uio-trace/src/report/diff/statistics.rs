//! What may be said of two samples: the size of the difference, and whether chance explains it.
//!
//! The values are known by bucket only (at most 6.25 % wide), so the tests are those for tied values. Two questions are
//! asked, and a row is called better or worse only when both say so:
//!
//! - **Is there a difference?** Mann-Whitney U (does one tend to be larger?), or Kolmogorov-Smirnov (does any part of the
//!   distribution differ, such as the tail?), at a level of 0.001 each. For counts, the difference of two Poisson rates.
//! - **Does it matter?** The mean differs by at least 5 %. Or the typical value does: one is larger in at least 55 of 100
//!   pairs, and the medians are more than a bucket apart.
//!
//! All of these take values for independent. Those of one trace are not quite: a burst makes many alike. So "noise" can be
//! relied on more than "no noise", and short traces should be repeated.

use crate::model::snapshot::Histogram;
use serde::Serialize;

/// Values below which nothing is said.
pub const MIN_VALUES: u64 = 10;
/// Two-sided 0.001 of the normal distribution.
pub const CRITICAL_Z: f64 = 3.29;
/// 0.001 of the Kolmogorov distribution: sqrt(-ln(0.001 / 2) / 2).
pub const CRITICAL_KS: f64 = 1.95;
/// How far from an even chance one value must be larger than the other to matter.
pub const MIN_SUPERIORITY: f64 = 0.05;
/// Change of a median that is more than the width of a bucket: one is at most an eighth of its values wide.
pub const MIN_MEDIAN_CHANGE: f64 = 0.125;
/// Smallest change of a mean or rate that matters.
pub const MIN_CHANGE: f64 = 0.05;

/// What the comparison of a row comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Longer, or fewer per second.
    Worse,
    /// The typical value got better and the mean worse, or the other way round.
    Mixed,
    /// Shorter, or more per second.
    Better,
    /// Only the first has values.
    OnlyBefore,
    /// Only the second has values.
    OnlyAfter,
    /// A difference that chance does not explain, too small to matter.
    Alike,
    /// Chance explains it.
    Noise,
    /// One of the samples has fewer than [`MIN_VALUES`].
    TooFew,
}

/// The difference between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// What it comes to.
    pub verdict: Verdict,
    /// Change of the mean, or of the rate: 0.5 is half as much again; `None`: there is none to compare with.
    pub change: Option<f64>,
    /// Chance that a value after is larger than one before (ties count half); `None` for rates.
    pub superiority: Option<f64>,
    /// Standard deviations away from no difference.
    pub z: Option<f64>,
    /// Largest distance of the two distribution functions; `None` for rates.
    pub ks: Option<f64>,
}

impl Difference {
    fn of(verdict: Verdict, change: Option<f64>) -> Difference {
        Difference {
            verdict,
            change,
            superiority: None,
            z: None,
            ks: None,
        }
    }
}

fn missing(before: u64, after: u64) -> Option<Verdict> {
    match (before, after) {
        (_, 0) => Some(Verdict::OnlyBefore),
        (0, _) => Some(Verdict::OnlyAfter),
        (a, b) if a < MIN_VALUES || b < MIN_VALUES => Some(Verdict::TooFew),
        _ => None,
    }
}

fn change(before: f64, after: f64) -> Option<f64> {
    (before > 0.0 && before.is_finite() && after.is_finite()).then(|| after / before - 1.0)
}

/// Counts of the buckets that either sample has, in ascending order: (before, after).
fn side_by_side(before: &Histogram, after: &Histogram) -> Vec<(f64, f64)> {
    let mut all: Vec<(u64, f64, f64)> = Vec::new();
    all.extend(before.buckets.iter().map(|b| (b.lo, b.count as f64, 0.0)));
    all.extend(after.buckets.iter().map(|b| (b.lo, 0.0, b.count as f64)));
    all.sort_by_key(|row| row.0);
    let mut rows: Vec<(u64, f64, f64)> = Vec::with_capacity(all.len());
    for (lo, a, b) in all {
        match rows.last_mut() {
            Some(last) if last.0 == lo => {
                last.1 += a;
                last.2 += b;
            }
            _ => rows.push((lo, a, b)),
        }
    }
    rows.into_iter().map(|(_, a, b)| (a, b)).collect()
}

/// Two samples of durations.
///
/// Mann-Whitney: with a_i and b_i values in bucket i, U = sum over i of b_i (a_1 + ... + a_(i-1) + a_i / 2); under no
/// difference its mean is nm/2 and its variance nm/12 (N + 1 - sum of (t^3 - t) / (N (N - 1))), with N = n + m and
/// t = a_i + b_i (H. B. Mann and D. R. Whitney, 1947; the correction for ties as in E. L. Lehmann, "Nonparametrics",
/// 1975, section 1.4). Superiority is U / nm. Kolmogorov-Smirnov: D = max |F - G| over the buckets' ends, against
/// 1.95 sqrt((n + m) / nm) (N. V. Smirnov, 1948; conservative for tied values).
pub fn times(before: &Histogram, after: &Histogram) -> Difference {
    let rows = side_by_side(before, after);
    let (n, m) = rows.iter().fold((0.0, 0.0), |sum, r| (sum.0 + r.0, sum.1 + r.1));
    let mean = |h: &Histogram| h.sum as f64 / h.count.max(1) as f64;
    let (mean_before, mean_after) = (mean(before), mean(after));
    let change = change(mean_before, mean_after);
    if let Some(verdict) = missing(before.count, after.count) {
        let change = change.filter(|_| verdict == Verdict::TooFew);
        return Difference::of(verdict, change);
    }
    if n == 0.0 || m == 0.0 {
        return Difference::of(Verdict::TooFew, change);
    }
    let (mut u, mut ties, mut below, mut ks): (f64, f64, (f64, f64), f64) = (0.0, 0.0, (0.0, 0.0), 0.0);
    for (a, b) in rows {
        u += b * (below.0 + a / 2.0);
        let t = a + b;
        ties += t * t * t - t;
        below = (below.0 + a, below.1 + b);
        ks = ks.max((below.0 / n - below.1 / m).abs());
    }
    let total = n + m;
    let variance = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    // All values in one bucket: nothing to tell apart.
    let z = if variance > 0.0 {
        (u - n * m / 2.0) / variance.sqrt()
    } else {
        0.0
    };
    let superiority = u / (n * m);
    let real = z.abs() >= CRITICAL_Z || ks > CRITICAL_KS * (total / (n * m)).sqrt();
    let typical = superiority - 0.5;
    let median = before.p50.abs_diff(after.p50) as f64 / before.p50.max(1) as f64;
    let typical = if typical.abs() >= MIN_SUPERIORITY && median > MIN_MEDIAN_CHANGE {
        typical
    } else {
        0.0
    };
    // Without a mean before (all 0) any mean after is more.
    let mean = match change {
        Some(change) if change.abs() >= MIN_CHANGE => change,
        None if mean_after > mean_before => 1.0,
        _ => 0.0,
    };
    let verdict = if !real {
        Verdict::Noise
    } else if typical * mean < 0.0 {
        Verdict::Mixed
    } else if typical + mean > 0.0 {
        Verdict::Worse
    } else if typical + mean < 0.0 {
        Verdict::Better
    } else {
        Verdict::Alike
    };
    Difference {
        verdict,
        change,
        superiority: Some(superiority),
        z: Some(z),
        ks: Some(ks),
    }
}

/// Two counts, each in some seconds: more per second is better.
///
/// z = (b/T - a/S) / sqrt(a/S^2 + b/T^2), for counts a in S and b in T seconds: the difference of two rates whose counts
/// are Poisson (variance equal to the count), as normal (Wald).
pub fn rates((before, seconds_before): (u64, f64), (after, seconds_after): (u64, f64)) -> Difference {
    let usable = |seconds: f64| seconds > 0.0 && seconds.is_finite();
    if let Some(verdict) = missing(before, after) {
        return Difference::of(verdict, None);
    }
    if !usable(seconds_before) || !usable(seconds_after) {
        return Difference::of(Verdict::TooFew, None);
    }
    let (a, b) = (before as f64 / seconds_before, after as f64 / seconds_after);
    let variance = a / seconds_before + b / seconds_after;
    let z = (b - a) / variance.sqrt();
    let change = change(a, b);
    let moved = change.unwrap_or(0.0);
    let verdict = if z.abs() < CRITICAL_Z {
        Verdict::Noise
    } else if moved >= MIN_CHANGE {
        Verdict::Better
    } else if moved <= -MIN_CHANGE {
        Verdict::Worse
    } else {
        Verdict::Alike
    };
    Difference {
        verdict,
        change,
        superiority: None,
        z: Some(z),
        ks: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::histogram::Recorder;

    struct Numbers(u64);

    impl Numbers {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 >> 11
        }
    }

    fn sample(values: impl Iterator<Item = u64>) -> Histogram {
        let mut recorder = Recorder::default();
        values.for_each(|v| recorder.record(v));
        recorder.histogram()
    }

    /// The statistic itself, from small numbers that are their own buckets: an example worked by hand.
    #[test]
    fn mann_whitney_agrees_with_counting_pairs() {
        let (a, b): (Vec<u64>, Vec<u64>) = (
            vec![1, 2, 2, 3, 3, 3, 4, 5, 6, 7, 7],
            vec![2, 3, 4, 4, 5, 5, 6, 7, 7, 7],
        );
        let mut u = 0.0;
        for x in &a {
            for y in &b {
                u += match y.cmp(x) {
                    std::cmp::Ordering::Greater => 1.0,
                    std::cmp::Ordering::Equal => 0.5,
                    std::cmp::Ordering::Less => 0.0,
                };
            }
        }
        let d = times(&sample(a.iter().copied()), &sample(b.iter().copied()));
        assert!((d.superiority.unwrap() - u / 110.0).abs() < 1e-12);
        // Ties 1, 3, 4, 3, 3, 2, 5: sum of t^3 - t = 24 + 60 + 24 + 24 + 6 + 120 = 258.
        let variance: f64 = 110.0 / 12.0 * (22.0 - 258.0 / (21.0 * 20.0));
        assert!((d.z.unwrap() - (u - 55.0) / variance.sqrt()).abs() < 1e-12);
        // Largest distance after the 3s: 6 of 11 against 2 of 10.
        assert!((d.ks.unwrap() - (6.0 / 11.0 - 0.2)).abs() < 1e-12);
    }

    #[test]
    fn samples_of_one_distribution_are_noise() {
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        let mut wrong = 0;
        for _ in 0..400 {
            let mut draw = |n: usize| {
                let values: Vec<u64> = (0..n).map(|_| 1000 + numbers.next() % 100_000).collect();
                sample(values.into_iter())
            };
            let (a, b) = (draw(300), draw(500));
            wrong += u32::from(times(&a, &b).verdict != Verdict::Noise);
        }
        // At 0.001 for each of two tests, 0.8 in 400 are expected at most; 6 has a chance of less than 1 in 1000.
        assert!(wrong < 6, "{wrong} of 400");
    }

    #[test]
    fn a_shift_is_found_and_named() {
        let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
        let mut draw = |scale: u64| {
            let values: Vec<u64> = (0..400)
                .map(|_| scale * (1000 + numbers.next() % 1000) / 100)
                .collect();
            sample(values.into_iter())
        };
        let (short, long) = (draw(100), draw(130));
        let worse = times(&short, &long);
        assert_eq!(worse.verdict, Verdict::Worse);
        assert!((worse.change.unwrap() - 0.3).abs() < 0.05);
        let better = times(&long, &short);
        assert_eq!(better.verdict, Verdict::Better);
        assert!((worse.z.unwrap() + better.z.unwrap()).abs() < 1e-9);
        assert!((worse.superiority.unwrap() + better.superiority.unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_longer_tail_alone_is_found() {
        let steady = sample((0..20_000).map(|i| 1000 + i % 64));
        let tail = sample((0..20_000).map(|i| if i % 50 == 0 { 50_000 } else { 1000 + i % 64 }));
        let d = times(&steady, &tail);
        assert!((d.superiority.unwrap() - 0.5).abs() < MIN_SUPERIORITY);
        assert_eq!(d.verdict, Verdict::Worse);
    }

    #[test]
    fn real_but_small_and_contrary_differences() {
        let a = sample((0..100_000).map(|i| 100_000 + i % 6000));
        let b = sample((0..100_000).map(|i| 101_500 + i % 6000));
        assert_eq!(times(&a, &b).verdict, Verdict::Alike);
        // Most are shorter, a few much longer.
        let c = sample((0..10_000).map(|i| if i % 10 == 0 { 2_000_000 } else { 50_000 }));
        assert_eq!(times(&a, &c).verdict, Verdict::Mixed);
    }

    #[test]
    fn few_values_and_one_sided_ones_say_so() {
        let few = sample([5, 6, 7].into_iter());
        let many = sample((0..100).map(|i| i + 1000));
        let none = Histogram::default();
        assert_eq!(times(&few, &many).verdict, Verdict::TooFew);
        assert_eq!(times(&none, &many).verdict, Verdict::OnlyAfter);
        assert_eq!(times(&many, &none).verdict, Verdict::OnlyBefore);
        assert_eq!(times(&many, &many).verdict, Verdict::Noise);
        let one = sample((0..100).map(|_| 7));
        assert_eq!(times(&one, &one).verdict, Verdict::Noise);
        let zeros = sample((0..100).map(|_| 0));
        assert_eq!(times(&zeros, &many).verdict, Verdict::Worse);
    }

    #[test]
    fn rates_by_their_counts() {
        // 100 in 10 s and 150 in 10 s: z = 5 / sqrt(2.5) = 3.16, just not enough.
        let d = rates((100, 10.0), (150, 10.0));
        assert_eq!(d.verdict, Verdict::Noise);
        assert!((d.z.unwrap() - 5.0 / 2.5f64.sqrt()).abs() < 1e-12);
        assert_eq!(rates((1000, 10.0), (1500, 10.0)).verdict, Verdict::Better);
        assert_eq!(rates((1500, 10.0), (2000, 20.0)).verdict, Verdict::Worse);
        assert_eq!(
            rates((1_000_000, 10.0), (1_010_000, 10.0)).verdict,
            Verdict::Alike
        );
        assert_eq!(rates((5, 1.0), (500, 1.0)).verdict, Verdict::TooFew);
        assert_eq!(rates((500, 0.0), (500, 1.0)).verdict, Verdict::TooFew);
        assert_eq!(rates((0, 1.0), (500, 1.0)).verdict, Verdict::OnlyAfter);
    }
}
