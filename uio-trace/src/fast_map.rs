//! Hash maps keyed by kernel addresses and thread ids.
//!
//! The standard hasher resists keys chosen by an attacker at several times the cost. Kernel addresses and thread ids
//! are chosen by the kernel's allocators, and every lifecycle event looks up two or three of them.

use crate::event::KernelPtr;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// By kernel address.
pub type PtrMap<V> = HashMap<KernelPtr, V, BuildHasherDefault<MixHasher>>;
/// By a small number (thread id, drain).
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<MixHasher>>;

/// Multiply and fold: addresses differ in their middle bits, the table uses low and high ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct MixHasher(u64);

impl Hasher for MixHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }

    fn write_u32(&mut self, v: u32) {
        self.write_u64(u64::from(v));
    }

    fn write_u64(&mut self, v: u64) {
        let product = u128::from(self.0 ^ v) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}
