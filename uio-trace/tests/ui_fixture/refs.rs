//! Owners of percpu_refs.
#![allow(dead_code, reason = "each user of this module takes a part of it")]

use super::*;

fn owner(owner: &str, release: &str, kills: u64, gp: u64, drain: Option<u64>) -> RefOwner {
    RefOwner {
        owner: owner.into(),
        release: release.into(),
        kills,
        kills_already_atomic: kills / 10,
        kills_already_dead: 0,
        switches: kills,
        released: drain.map(|_| kills),
        released_early: 0,
        ends_unseen: 0,
        revived: 0,
        grace_period_ns: histogram(kills, gp),
        drain_ns: drain.map_or_else(Histogram::default, |ns| histogram(kills, ns)),
        dying: 0,
        oldest_dying_ns: None,
        dying_references: None,
        last_killer: Some(format!(
            "{} (4242)",
            owner.split(' ').next().unwrap_or("x").to_lowercase()
        )),
        kill_stacks: vec![KillStack {
            count: kills.min(17),
            last_killer: "systemd (1)".into(),
            frames: [
                "percpu_ref_kill_and_confirm",
                "css_killed_work_fn",
                "process_one_work",
                "worker_thread",
            ]
            .map(str::to_owned)
            .to_vec(),
        }],
        own: false,
    }
}

/// Owners, one with refs that do not finish, one that is the tool itself.
pub fn owners() -> Vec<RefOwner> {
    let mut queue = owner(
        "block queue usage",
        "blk_queue_usage_counter_release",
        12,
        31 * MS,
        Some(44 * MS),
    );
    queue.dying = 2;
    queue.oldest_dying_ns = Some(12_345 * MS);
    queue.released = Some(10);
    let mut own = owner("BPF trampoline", "__bpf_tramp_image_release", 30, 22 * MS, None);
    own.own = true;
    vec![
        owner(
            "AIO context users",
            "free_ioctx_users",
            69,
            25 * MS,
            Some(26 * MS),
        ),
        owner(
            "AIO context requests",
            "free_ioctx_reqs",
            69,
            24 * MS,
            Some(52 * MS),
        ),
        own,
        queue,
        owner("cgroup", "css_release", 7, 28 * MS, None),
    ]
}
