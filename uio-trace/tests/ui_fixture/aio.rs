//! Drains of AIO contexts.
#![allow(dead_code, reason = "each user of this module takes a part of it")]

use super::*;

/// A context that begins at `start` and has these phases.
pub fn context(number: u64, start: u64, parts: [u64; 4], call: bool) -> AioContext {
    let total = parts.iter().sum();
    AioContext {
        ctx: format!("0x7f3a{:08x}", 0x1000_0000 + number * 0x9000),
        start_offset_ns: start,
        users_gp_ns: Some(parts[0]),
        users_refs_ns: Some(parts[1]),
        reqs_gp_ns: Some(parts[2]),
        reqs_io_ns: Some(parts[3]),
        users_ns: Some(parts[0] + parts[1]),
        reqs_ns: Some(parts[2] + parts[3]),
        total_ns: total,
        in_flight: None,
        last_request: None,
        call_ns: call.then_some(total + 120 * US),
        uncertain: false,
    }
}

/// A drain of contexts; the verdict is given.
pub fn drain(id: u64, comm: &str, tgid: u32, verdict: DrainVerdict, detail: Vec<AioContext>) -> AioDrain {
    let wall_ns = detail
        .iter()
        .map(|c| c.start_offset_ns + c.total_ns)
        .max()
        .unwrap_or(0);
    let sum_ns = detail.iter().map(|c| c.total_ns).sum();
    let longest = detail.iter().map(|c| c.total_ns).max().unwrap_or(0);
    let critical = match verdict {
        DrainVerdict::Parallel => {
            (0..detail.len()).max_by_key(|i| detail[*i].start_offset_ns + detail[*i].total_ns)
        }
        _ => (0..detail.len()).max_by_key(|i| detail[*i].total_ns),
    }
    .unwrap_or(0);
    let c = detail
        .get(critical)
        .cloned()
        .unwrap_or_else(|| context(0, 0, [0; 4], false));
    AioDrain {
        id,
        cause: if verdict == DrainVerdict::Serial {
            DrainCause::IoDestroy
        } else {
            DrainCause::ExitAio
        },
        tgid,
        tid: if verdict == DrainVerdict::Serial {
            tgid + 8
        } else {
            tgid
        },
        comm: comm.into(),
        contexts: detail.len() as u64,
        start_ns: STARTED_NS + id * S,
        wall_ns,
        sum_ns,
        overlap: if verdict == DrainVerdict::Parallel {
            0.993
        } else {
            0.0
        },
        verdict,
        projected_parallel_ns: longest,
        critical,
        in_flight: None,
        last_request: None,
        phases_ns: Phases {
            users_gp: c.users_gp_ns,
            users_refs: c.users_refs_ns,
            reqs_gp: c.reqs_gp_ns,
            reqs_io: c.reqs_io_ns,
            users: c.users_ns,
            reqs: c.reqs_ns,
        },
        detail,
        uncertain: false,
    }
}

/// A loop of io_destroy, an exit with 64 contexts, and one context whose switches were not seen.
pub fn drains() -> Vec<AioDrain> {
    let mut start = 0;
    let serial = (0..4)
        .map(|i| {
            let parts = [
                (24 + i * 2) * MS,
                300 * US + i * 2_000 * US,
                26 * MS,
                (31 + i * 9) * MS,
            ];
            let c = context(i, start, parts, true);
            start += c.total_ns + 150 * US;
            c
        })
        .collect();
    let parallel = (0..64)
        .map(|i| {
            let io = 4 * MS + (i * 37 % 64) * 500 * US;
            context(
                i,
                i * 9 * US,
                [27 * MS, 200 * US + (i % 5) * 300 * US, 24 * MS, io],
                false,
            )
        })
        .collect();
    let mut lone = context(9, 0, [18 * MS, 0, 22 * MS, 0], false);
    lone.users_gp_ns = None;
    lone.users_refs_ns = None;
    lone.reqs_gp_ns = None;
    lone.reqs_io_ns = None;
    vec![
        drain(1, "postgres", 4242, DrainVerdict::Serial, serial),
        drain(2, "fio", 5120, DrainVerdict::Parallel, parallel),
        drain(3, "qemu-img", 6001, DrainVerdict::Single, vec![lone]),
    ]
}
