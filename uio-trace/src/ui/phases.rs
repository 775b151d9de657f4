//! Phases of a drain as the screens show them.

use crate::model::snapshot::{AioContext, AioDrain};

/// A phase, or what is known instead of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Kill to users switched.
    UsersGracePeriod,
    /// Users switched to users released.
    UsersRefs,
    /// Users released to reqs switched.
    ReqsGracePeriod,
    /// reqs switched to reqs released.
    ReqsIo,
    /// The first two together: the switch between them is not traced here, or was lost.
    Users,
    /// The last two together.
    Reqs,
    /// Not measured.
    Unknown,
}

impl Phase {
    /// All, in the order of legends.
    pub const ALL: [Phase; 7] = [
        Phase::UsersGracePeriod,
        Phase::UsersRefs,
        Phase::ReqsGracePeriod,
        Phase::ReqsIo,
        Phase::Users,
        Phase::Reqs,
        Phase::Unknown,
    ];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Phase::UsersGracePeriod => "users: grace period",
            Phase::UsersRefs => "users: references held by system calls",
            Phase::ReqsGracePeriod => "reqs: grace period",
            Phase::ReqsIo => "reqs: requests in flight",
            Phase::Users => "users: both phases, not told apart",
            Phase::Reqs => "reqs: both phases, not told apart",
            Phase::Unknown => "not measured",
        }
    }

    /// In a word or two.
    pub fn short_name(self) -> &'static str {
        match self {
            Phase::UsersGracePeriod => "users GP",
            Phase::UsersRefs => "refs",
            Phase::ReqsGracePeriod => "reqs GP",
            Phase::ReqsIo => "in flight",
            Phase::Users => "users",
            Phase::Reqs => "reqs",
            Phase::Unknown => "unknown",
        }
    }
}

/// Half of a drain: users or reqs.
struct Half {
    grace_period: (Phase, Option<u64>),
    rest: (Phase, Option<u64>),
    together: (Phase, Option<u64>),
}

/// As fine as they are known: four phases, or a half as one, and what is left of `total` as unknown.
fn build(halves: [Half; 2], total: Option<u64>) -> Vec<(Phase, u64)> {
    let mut known = Vec::new();
    for half in halves {
        match (half.grace_period.1, half.rest.1, half.together.1) {
            (Some(gp), Some(rest), _) => known.extend([(half.grace_period.0, gp), (half.rest.0, rest)]),
            (_, _, Some(together)) => known.push((half.together.0, together)),
            (Some(gp), None, None) => known.extend([(half.grace_period.0, gp), (Phase::Unknown, 0)]),
            (None, rest, None) => {
                known.push((Phase::Unknown, 0));
                known.extend(rest.map(|ns| (half.rest.0, ns)));
            }
        }
    }
    let measured = known.iter().fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns));
    let left = total.map_or(0, |total| total.saturating_sub(measured));
    // Two unknown stretches cannot be told apart either: the first stands for both.
    if let Some((_, ns)) = known.iter_mut().find(|(phase, _)| *phase == Phase::Unknown) {
        *ns = left;
    }
    known.retain(|(phase, ns)| *phase != Phase::Unknown || *ns > 0);
    known
}

/// Of a context.
pub fn of_context(c: &AioContext) -> Vec<(Phase, u64)> {
    let users = Half {
        grace_period: (Phase::UsersGracePeriod, c.users_gp_ns),
        rest: (Phase::UsersRefs, c.users_refs_ns),
        together: (Phase::Users, c.users_ns),
    };
    let reqs = Half {
        grace_period: (Phase::ReqsGracePeriod, c.reqs_gp_ns),
        rest: (Phase::ReqsIo, c.reqs_io_ns),
        together: (Phase::Reqs, c.reqs_ns),
    };
    build([users, reqs], Some(c.total_ns))
}

/// Of a drain's critical context.
pub fn of_drain(drain: &AioDrain) -> Vec<(Phase, u64)> {
    let p = &drain.phases_ns;
    let users = Half {
        grace_period: (Phase::UsersGracePeriod, p.users_gp),
        rest: (Phase::UsersRefs, p.users_refs),
        together: (Phase::Users, p.users),
    };
    let reqs = Half {
        grace_period: (Phase::ReqsGracePeriod, p.reqs_gp),
        rest: (Phase::ReqsIo, p.reqs_io),
        together: (Phase::Reqs, p.reqs),
    };
    build(
        [users, reqs],
        drain.detail.get(drain.critical).map(|c| c.total_ns),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(parts: [Option<u64>; 4], users: Option<u64>, reqs: Option<u64>, total_ns: u64) -> AioContext {
        AioContext {
            ctx: "0x1".into(),
            start_offset_ns: 0,
            users_gp_ns: parts[0],
            users_refs_ns: parts[1],
            reqs_gp_ns: parts[2],
            reqs_io_ns: parts[3],
            users_ns: users,
            reqs_ns: reqs,
            total_ns,
            call_ns: None,
            in_flight: None,
            last_request: None,
            uncertain: false,
        }
    }

    #[test]
    fn phases_are_as_fine_as_they_are_known() {
        let four = of_context(&context(
            [Some(1), Some(2), Some(3), Some(4)],
            Some(3),
            Some(7),
            10,
        ));
        assert_eq!(four.iter().map(|p| p.1).collect::<Vec<_>>(), [1, 2, 3, 4]);
        let halves = of_context(&context([None; 4], Some(3), Some(7), 10));
        assert_eq!(halves, [(Phase::Users, 3), (Phase::Reqs, 7)]);
        let partly = of_context(&context([None, None, Some(3), Some(4)], None, Some(7), 10));
        assert_eq!(
            partly,
            [
                (Phase::Unknown, 3),
                (Phase::ReqsGracePeriod, 3),
                (Phase::ReqsIo, 4)
            ]
        );
        assert_eq!(
            of_context(&context([None; 4], None, None, 10)),
            [(Phase::Unknown, 10)]
        );
    }
}
