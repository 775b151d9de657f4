//! Log-linear buckets: the same function in kernel and user space.
//!
//! Values are nanoseconds. Below 8 every value has its own bucket; from there each power of two is cut in
//! [`SUB_BUCKETS`] equal parts, so a bucket is at most 1/8 of its lower bound wide and its midpoint is at
//! most 6.25 % away from any value in it. Values of [`LIMIT_NS`] (2^40 ns, 18 minutes) and more share the
//! last bucket.

/// log2 of the number of parts a power of two is cut into.
pub const SUB_BITS: u32 = 3;
/// Parts a power of two is cut into.
pub const SUB_BUCKETS: u32 = 1 << SUB_BITS;
/// First value (ns) that only fits the last bucket.
pub const LIMIT_NS: u64 = 1 << 40;
/// Number of buckets: 8 exact ones and 8 for each power of two from 2^3 to 2^39.
pub const BUCKETS: usize = ((40 - SUB_BITS + 1) * SUB_BUCKETS) as usize;

/// Index of the highest set bit of `v`, for 1 <= `v` < 2^40.
///
/// A search by halves: BPF has no count-leading-zeros instruction, and what the compiler makes of
/// `leading_zeros` for it is several times longer.
#[inline(always)]
pub const fn log2(mut v: u64) -> u32 {
    let mut e = 0;
    if v >= 1 << 32 {
        v >>= 32;
        e += 32;
    }
    if v >= 1 << 16 {
        v >>= 16;
        e += 16;
    }
    if v >= 1 << 8 {
        v >>= 8;
        e += 8;
    }
    if v >= 1 << 4 {
        v >>= 4;
        e += 4;
    }
    if v >= 1 << 2 {
        v >>= 2;
        e += 2;
    }
    if v >= 1 << 1 {
        e += 1;
    }
    e
}

/// Bucket of a value in nanoseconds. Always less than [`BUCKETS`].
#[inline(always)]
pub const fn bucket_index(ns: u64) -> usize {
    if ns < SUB_BUCKETS as u64 {
        return ns as usize;
    }
    if ns >= LIMIT_NS {
        return BUCKETS - 1;
    }
    let e = log2(ns);
    let sub = (ns >> (e - SUB_BITS)) as u32 & (SUB_BUCKETS - 1);
    ((e - SUB_BITS + 1) * SUB_BUCKETS + sub) as usize
}

/// Lowest value (ns) of a bucket.
pub const fn bucket_low(index: usize) -> u64 {
    let index = index as u64;
    let sub_buckets = SUB_BUCKETS as u64;
    if index < sub_buckets {
        return index;
    }
    let e = index / sub_buckets - 1 + SUB_BITS as u64;
    let sub = index % sub_buckets;
    (sub_buckets + sub) << (e - SUB_BITS as u64)
}

/// First value (ns) above a bucket; `u64::MAX` for the last one, which is open.
pub const fn bucket_high(index: usize) -> u64 {
    if index + 1 >= BUCKETS {
        u64::MAX
    } else {
        bucket_low(index + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_contains_its_bounds_and_only_them() {
        for i in 0..BUCKETS {
            assert_eq!(bucket_index(bucket_low(i)), i, "low bound of {i}");
            if i + 1 < BUCKETS {
                assert_eq!(bucket_index(bucket_high(i) - 1), i, "last value of {i}");
                assert_eq!(bucket_index(bucket_high(i)), i + 1, "first value after {i}");
            }
        }
        assert_eq!(bucket_index(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn midpoint_is_within_six_and_a_quarter_percent() {
        for i in SUB_BUCKETS as usize..BUCKETS - 1 {
            let (lo, hi) = (bucket_low(i), bucket_high(i));
            let mid = lo + (hi - lo) / 2;
            assert!((mid - lo) as f64 / lo as f64 <= 0.0625, "bucket {i}");
        }
    }

    #[test]
    fn log2_agrees_with_leading_zeros() {
        for shift in 0..40 {
            for v in [(1u64 << shift), (1 << shift) + (1 << shift) / 2, (2 << shift) - 1] {
                assert_eq!(log2(v), 63 - v.leading_zeros(), "{v}");
            }
        }
    }
}
