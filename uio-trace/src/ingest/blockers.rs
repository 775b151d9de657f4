//! Who waited behind whom: the kernel side's table, summed over CPUs.

use crate::{
    event::{DeviceKey, Task, UioBlockerReading, UioOp},
    ingest::decode,
    probes::session::{Session, SessionError},
};
use aya::{
    Pod,
    maps::{MapData, MapError, PerCpuHashMap},
};
use uio_trace_common::uio::{BlockerKey, BlockerValue};

/// [`BlockerKey`] as aya reads it.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Key(BlockerKey);
// SAFETY: zerocopy's derives on BlockerKey prove that it has no padding and takes any bit pattern.
unsafe impl Pod for Key {}

/// [`BlockerValue`] as aya reads it.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Value(BlockerValue);
// SAFETY: as above.
unsafe impl Pod for Value {}

/// Everything counted since the trace began.
///
/// # Errors
/// [`SessionError::Map`] when the map cannot be read.
pub fn read(session: &Session) -> Result<Vec<UioBlockerReading>, SessionError> {
    let fail = |error: MapError| SessionError::Map {
        map: "BLOCKERS",
        cause: error.to_string(),
    };
    let map: PerCpuHashMap<&MapData, Key, Value> = session.map("BLOCKERS")?.try_into().map_err(fail)?;
    let mut readings = Vec::new();
    for entry in map.iter() {
        let (key, values) = entry.map_err(fail)?;
        readings.extend(reading(&key.0, values.iter().map(|value| &value.0)));
    }
    Ok(readings)
}

/// `None`: an entry of an operation this version does not know.
fn reading<'a>(
    key: &BlockerKey,
    cpus: impl Iterator<Item = &'a BlockerValue> + Clone,
) -> Option<UioBlockerReading> {
    // The CPU that made the entry wrote the name; others find it there, with zeros of their own, and count on.
    let comm = cpus
        .clone()
        .find(|value| value.comm[0] != 0)
        .map_or_else(String::new, |value| decode::comm(&value.comm));
    Some(UioBlockerReading {
        device: DeviceKey {
            minor: key.minor,
            generation: key.generation,
        },
        waiter_op: UioOp::from_raw(key.waiter_op)?,
        holder_op: UioOp::from_raw(key.holder_op),
        holder: Task {
            tgid: key.holder_tgid,
            tid: key.holder_tid,
            comm,
        },
        count: cpus.clone().map(|value| value.count).sum(),
        wait_ns: cpus.clone().map(|value| value.wait_ns).sum(),
        same_cpu: cpus.map(|value| value.same_cpu).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uio_trace_common::uio::{OP_UNKNOWN, OP_WRITE, OPS};

    fn key(waiter_op: u32, holder_op: u32) -> BlockerKey {
        BlockerKey {
            minor: 3,
            generation: 1,
            waiter_op,
            holder_op,
            holder_tgid: 10,
            holder_tid: 11,
        }
    }

    #[test]
    fn cpus_are_summed_and_one_of_them_knows_the_name() {
        let none = BlockerValue {
            count: 0,
            wait_ns: 0,
            same_cpu: 0,
            comm: [0; 16],
        };
        let mut some = BlockerValue {
            count: 2,
            wait_ns: 30,
            same_cpu: 1,
            comm: [0; 16],
        };
        some.comm[..2].copy_from_slice(b"rd");
        let counted = BlockerValue {
            comm: [0; 16],
            ..some
        };
        let found = reading(&key(OP_WRITE, OP_UNKNOWN), [&none, &counted, &some].into_iter()).unwrap();
        assert_eq!((found.count, found.wait_ns, found.same_cpu), (4, 60, 2));
        assert_eq!((found.holder.comm.as_str(), found.holder_op), ("rd", None));
        assert_eq!(reading(&key(OPS, OP_WRITE), [&some].into_iter()), None);
    }
}
