//! The BPF side's counters, summed over CPUs.

use crate::probes::session::{Session, SessionError};
use aya::maps::{MapData, PerCpuArray};
use std::collections::BTreeMap;
use uio_trace_common::loss;

/// All counters by name.
///
/// # Errors
/// [`SessionError::Map`] when the map cannot be read.
pub fn read(session: &Session) -> Result<BTreeMap<String, u64>, SessionError> {
    let fail = |error: aya::maps::MapError| SessionError::Map {
        map: "COUNTERS",
        cause: error.to_string(),
    };
    let map: PerCpuArray<&MapData, u64> = session.map("COUNTERS")?.try_into().map_err(fail)?;
    let mut counters = BTreeMap::new();
    for index in 0..loss::COUNTERS {
        let name = loss::name(index);
        if name != "reserved" {
            let sum = map.get(&index, 0).map_err(fail)?.iter().sum();
            counters.insert(name.to_owned(), sum);
        }
    }
    Ok(counters)
}
