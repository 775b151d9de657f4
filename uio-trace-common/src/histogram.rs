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

/// A de Bruijn sequence: every six neighbouring bits of it are different, so a power of two times this number is known by its
/// upper six bits.
const DE_BRUIJN: u64 = 0x03f7_9d71_b4cb_0a89;

/// The exponent for each value of those six bits.
static EXPONENTS: [u8; 64] = exponents();

const fn exponents() -> [u8; 64] {
    let mut table = [0; 64];
    let mut exponent = 0;
    while exponent < 64 {
        table[((1_u64 << exponent).wrapping_mul(DE_BRUIJN) >> 58) as usize] = exponent as u8;
        exponent += 1;
    }
    table
}

/// Index of the highest set bit of `v`, for `v` >= 1.
///
/// BPF has no count-leading-zeros instruction. And without a branch: a search by halves is a few instructions shorter, but the
/// verifier follows each of its 40 ways to the end of the program, for every histogram again, which takes it seconds.
#[inline(always)]
pub fn log2(mut v: u64) -> u32 {
    v |= v >> 1;
    v |= v >> 2;
    v |= v >> 4;
    v |= v >> 8;
    v |= v >> 16;
    v |= v >> 32;
    let highest = v - (v >> 1);
    u32::from(EXPONENTS[(highest.wrapping_mul(DE_BRUIJN) >> 58) as usize])
}

/// Bucket of a value in nanoseconds. Always less than [`BUCKETS`].
#[inline(always)]
pub fn bucket_index(ns: u64) -> usize {
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
        for shift in 0..63 {
            for v in [(1u64 << shift), (1 << shift) + (1 << shift) / 2, (2 << shift) - 1] {
                assert_eq!(log2(v), 63 - v.leading_zeros(), "{v}");
            }
        }
    }
}
