//! A histogram with rows by powers of two, percentiles above.

use crate::model::snapshot::{Bucket, Histogram};
use crate::ui::canvas::{Canvas, split_top};
use crate::ui::format;
use crate::ui::theme::Role;
use ratatui::layout::Rect;

/// Finest rows: an eighth of a power of two, as the kernel side counts.
const FINEST: u32 = uio_trace_common::histogram::SUB_BITS;

/// Number of the row of `ns` when each power of two has `1 << fine` rows.
fn row_of(ns: u64, fine: u32) -> u64 {
    let exponent = ns.max(1).ilog2();
    let part = if exponent >= fine {
        (ns >> (exponent - fine)) & ((1 << fine) - 1)
    } else {
        0
    };
    (u64::from(exponent) << fine) + part
}

/// Lowest value of a row.
fn row_low(row: u64, fine: u32) -> u64 {
    let exponent = u32::try_from(row >> fine).unwrap_or(u32::MAX);
    let part = row & ((1 << fine) - 1);
    match 1_u64.checked_shl(exponent) {
        Some(1) => 0,
        Some(power) => power + ((u128::from(power) * u128::from(part)) >> fine) as u64,
        None => u64::MAX,
    }
}

/// Counts in at most `most` rows, gaps included: by powers of two, or, when these are few, by halves, quarters or
/// eighths of them; when they are many, several in one row.
pub fn rows(histogram: &Histogram, most: usize) -> Vec<Bucket> {
    let filled = || histogram.buckets.iter().filter(|b| b.count > 0);
    let (Some(low), Some(high)) = (filled().map(|b| b.lo).min(), filled().map(|b| b.lo).max()) else {
        return Vec::new();
    };
    let most = most.max(1) as u64;
    let span = |fine| row_of(high, fine) - row_of(low, fine) + 1;
    // Below 1 << fine ns a row would be narrower than a nanosecond.
    let finest = FINEST.min(low.max(1).ilog2());
    let fine = (0..=finest).rev().find(|fine| span(*fine) <= most).unwrap_or(0);
    let step = span(fine).div_ceil(most);
    let first = row_of(low, fine);
    let mut rows: Vec<Bucket> = (0..span(fine).div_ceil(step))
        .map(|i| {
            let row = first + i * step;
            Bucket {
                lo: row_low(row, fine),
                hi: row_low(row + step, fine),
                count: 0,
            }
        })
        .collect();
    for bucket in filled() {
        let row = (row_of(bucket.lo, fine) - first) / step;
        if let Some(row) = usize::try_from(row).ok().and_then(|row| rows.get_mut(row)) {
            row.count += bucket.count;
        }
    }
    rows
}

/// Draws percentiles and rows; `absent` says why there is no histogram.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, histogram: Option<&Histogram>, absent: &str, role: Role) {
    let Some(histogram) = histogram.filter(|h| h.count > 0) else {
        canvas.text(
            area.x + 1,
            area.y,
            area.width.saturating_sub(1),
            absent,
            Role::Dim,
        );
        return;
    };
    let unicode = canvas.theme.unicode;
    let time = |ns| format::duration_inline(ns, unicode);
    let (line, body) = split_top(area, 1);
    let mut x = line.x + 1;
    for (label, ns) in [
        ("p50", histogram.p50),
        ("p99", histogram.p99),
        ("max", histogram.max),
        ("p90", histogram.p90),
        ("p999", histogram.p999),
    ] {
        let figure = time(ns);
        let needed = (label.len() + 1 + crate::ui::text::width(&figure)) as u16;
        if x + needed > line.right() {
            break;
        }
        x += canvas.pieces(
            x,
            line.y,
            needed,
            &[(label, Role::Dim), (" ", Role::Plain), (&figure, Role::Plain)],
        );
        x += 2;
    }
    let rows = rows(histogram, usize::from(body.height));
    let most = rows.iter().map(|r| r.count).max().unwrap_or(0);
    let label = 9;
    let count = 6;
    let bar = body.width.saturating_sub(label + count + 2);
    for (y, row) in (body.y..body.bottom()).zip(&rows) {
        let from = time(row.lo);
        canvas.text_right(body.x, y, label, &from, Role::Plain);
        draw_bar(canvas, body.x + label + 1, y, bar, row.count, most, role);
        canvas.text_right(
            body.right().saturating_sub(count),
            y,
            count,
            &format::count(row.count),
            Role::Plain,
        );
    }
}

/// A bar of at most `width` columns. What is not zero shows at least a sliver.
pub fn draw_bar(canvas: &mut Canvas<'_>, x: u16, y: u16, width: u16, value: u64, most: u64, role: Role) {
    if value == 0 || most == 0 || width == 0 {
        return;
    }
    let steps = canvas.theme.symbols().bar;
    let fine = steps.len() as u128;
    let eighths = (u128::from(value) * u128::from(width) * fine / u128::from(most)).max(1);
    let whole = (eighths / fine) as u16;
    let part = (eighths % fine) as usize;
    if let Some(full) = steps.last() {
        canvas.repeat(x, y, whole, full, role);
    }
    if part > 0 && (canvas.theme.unicode || whole == 0) {
        canvas.repeat(x + whole, y, 1, steps[part - 1], role);
    }
}

/// The distributions of several histograms together. Percentiles are midpoints of buckets, clamped to the extremes,
/// as in each of them.
pub fn sum<'a>(parts: impl Iterator<Item = &'a Histogram>) -> Histogram {
    let mut total = Histogram::default();
    let mut buckets: Vec<Bucket> = Vec::new();
    for part in parts.filter(|p| p.count > 0) {
        total.min = if total.count == 0 {
            part.min
        } else {
            total.min.min(part.min)
        };
        total.max = total.max.max(part.max);
        total.count += part.count;
        total.sum = total.sum.saturating_add(part.sum);
        buckets.extend_from_slice(&part.buckets);
    }
    buckets.sort_by_key(|b| b.lo);
    for bucket in buckets {
        match total.buckets.last_mut() {
            Some(last) if last.lo == bucket.lo => last.count += bucket.count,
            _ => total.buckets.push(bucket),
        }
    }
    total.p50 = percentile(&total, 0.5);
    total.p90 = percentile(&total, 0.9);
    total.p99 = percentile(&total, 0.99);
    total.p999 = percentile(&total, 0.999);
    total
}

fn percentile(histogram: &Histogram, share: f64) -> u64 {
    let rank = ((histogram.count as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    for bucket in &histogram.buckets {
        seen += bucket.count;
        if seen >= rank {
            let middle = bucket.lo + (bucket.hi - bucket.lo) / 2;
            return middle.clamp(histogram.min, histogram.max.max(histogram.min));
        }
    }
    histogram.max
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(buckets: &[(u64, u64, u64)]) -> Histogram {
        let buckets: Vec<Bucket> = buckets
            .iter()
            .map(|&(lo, hi, count)| Bucket { lo, hi, count })
            .collect();
        let one = Histogram {
            count: buckets.iter().map(|b| b.count).sum(),
            min: buckets.first().map_or(0, |b| b.lo),
            max: buckets.last().map_or(0, |b| b.hi - 1),
            buckets,
            ..Histogram::default()
        };
        sum([one].iter())
    }

    fn shown(histogram: &Histogram, most: usize) -> Vec<(u64, u64, u64)> {
        rows(histogram, most)
            .iter()
            .map(|r| (r.lo, r.hi, r.count))
            .collect()
    }

    #[test]
    fn rows_are_powers_of_two_with_the_gaps() {
        let h = histogram(&[(1024, 1152, 2), (1152, 1280, 3), (8192, 9216, 1)]);
        assert_eq!(
            shown(&h, 6),
            [
                (1024, 2048, 5),
                (2048, 4096, 0),
                (4096, 8192, 0),
                (8192, 16384, 1)
            ]
        );
        assert_eq!(shown(&h, 2), [(1024, 4096, 5), (4096, 16384, 1)]);
    }

    #[test]
    fn few_powers_of_two_are_divided() {
        let h = histogram(&[(1024, 1152, 2), (1152, 1280, 3), (1536, 1664, 1)]);
        assert_eq!(shown(&h, 4), [(1024, 1280, 5), (1280, 1536, 0), (1536, 1792, 1)]);
        assert_eq!(
            shown(&h, 9),
            [
                (1024, 1152, 2),
                (1152, 1280, 3),
                (1280, 1408, 0),
                (1408, 1536, 0),
                (1536, 1664, 1)
            ]
        );
        assert_eq!(shown(&histogram(&[(0, 1, 1), (1, 2, 1)]), 9), [(0, 2, 2)]);
    }

    #[test]
    fn too_many_rows_are_merged_and_nothing_is_lost() {
        let h = histogram(&[
            (0, 1, 1),
            (1, 2, 1),
            (1 << 20, (1 << 20) + 65536, 4),
            (1 << 63, u64::MAX, 2),
        ]);
        for most in 1..70 {
            let rows = rows(&h, most);
            assert!(rows.len() <= most);
            assert_eq!(rows.iter().map(|r| r.count).sum::<u64>(), 8);
        }
        assert!(rows(&Histogram::default(), 5).is_empty());
    }

    #[test]
    fn sums_merge_equal_buckets_and_recompute_percentiles() {
        let a = histogram(&[(100, 110, 10)]);
        let b = histogram(&[(100, 110, 80), (1000, 1060, 10)]);
        let both = sum([a, b].iter());
        assert_eq!((both.count, both.min, both.max), (100, 100, 1059));
        assert_eq!(both.buckets.len(), 2);
        assert_eq!((both.p50, both.p90, both.p99), (105, 105, 1030));
    }
}
