//! The BPF side's counters, summed over CPUs, and what it cannot count: hits that its programs were not run for.

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
    // Before the programs' own counts: a hit between the two readings then is no miss.
    let hits: Vec<(&str, u64)> = session.breakpoint_hits().collect();
    let map: PerCpuArray<&MapData, u64> = session.map("COUNTERS")?.try_into().map_err(fail)?;
    let mut counters = BTreeMap::new();
    for index in 0..loss::COUNTERS {
        let name = loss::name(index);
        if name != "reserved" {
            let sum = map.get(&index, 0).map_err(fail)?.iter().sum();
            counters.insert(name.to_owned(), sum);
        }
    }
    counters.insert(
        loss::name(loss::DROP_BREAKPOINT_MISSED).to_owned(),
        missed(&hits, &counters),
    );
    let missed = session.programs_missed();
    counters.insert(loss::name(loss::DROP_ENTRY_MISSED).to_owned(), missed.uio);
    counters.insert(loss::name(loss::DROP_PROGRAM_MISSED).to_owned(), missed.others);
    Ok(counters)
}

/// Hits that no run of the breakpoint's program belongs to.
fn missed(hits: &[(&str, u64)], counters: &BTreeMap<String, u64>) -> u64 {
    let of = |program: &str, hits: u64| {
        let runs = match program {
            "ref_kill_breakpoint" => loss::REF_KILL_RUNS,
            "ref_switched_breakpoint" => loss::REF_SWITCH_RUNS,
            _ => return 0,
        };
        hits.saturating_sub(counters.get(loss::name(runs)).copied().unwrap_or(0))
    };
    hits.iter().map(|(program, hits)| of(program, *hits)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_without_a_run_is_missed() {
        let counters = BTreeMap::from([
            ("ref_kill_runs".to_owned(), 10),
            ("ref_switch_runs".to_owned(), 7),
        ]);
        let hits = [("ref_kill_breakpoint", 12), ("ref_switched_breakpoint", 7)];
        assert_eq!(missed(&hits, &counters), 2);
        // Runs read after the hits may be more.
        assert_eq!(missed(&[("ref_switched_breakpoint", 5)], &counters), 0);
    }
}
