//! What contexts that were drained one after another would have taken together.
//!
//! Killed at the same time they share their grace periods: `exit_aio` kills all contexts of an mm before it waits (fs/aio.c), and
//! one RCU grace period serves every `call_rcu` made before it began. So together it takes one pair of grace periods, plus what
//! single contexts have besides: references to `users` held by system calls, and requests in flight.
//!
//! ```text
//! idle      = median of (kill to drained) of the contexts that had neither
//! busy(c)   = median(users_gp) + users_refs(c) + (in_flight(c) = 0 ? median(reqs_gp) + reqs_io(c)
//!                                                                   : max(median(reqs_gp), reqs_gp(c) + reqs_io(c)))
//! together  = max(idle, busy of each of the others), at most the longest context
//! ```
//!
//! The median and not the longest: the longest of many grace periods is long by chance, and they would share a typical one. What
//! each context costs a CPU is not added: measured, it is 10 us a context (docs/drains.md); the
//! rest hides in the time until the tick at which the next grace period begins.

use super::context::Context;

/// The middle one, the later of two.
fn median(mut values: Vec<u64>) -> Option<u64> {
    let middle = values.len() / 2;
    (middle < values.len()).then(|| *values.select_nth_unstable(middle).1)
}

/// Had neither references held nor requests in flight, as counted at the ends of its grace periods.
fn idle(context: &Context) -> bool {
    context.users_held() == Some(false) && context.in_flight() == Some(0)
}

/// Kill to drained of all (ns), had they been killed at the same time. `None`: no context, or the phases of one that was not idle
/// are not known, so that its grace periods cannot be told from I/O.
pub fn together_ns(contexts: &[Context]) -> Option<u64> {
    let phases = || contexts.iter().map(Context::phases);
    let users_gp = median(phases().filter_map(|p| p.users_gp).collect());
    let reqs_gp = median(phases().filter_map(|p| p.reqs_gp).collect());
    let quiet = contexts.iter().filter(|c| idle(c)).map(Context::total_ns);
    let mut together = median(quiet.collect());
    for context in contexts.iter().filter(|c| !idle(c)) {
        let own = context.phases();
        let reqs = match context.in_flight() {
            Some(0) => reqs_gp?.saturating_add(own.reqs_io?),
            _ => reqs_gp?.max(own.reqs?),
        };
        let busy = users_gp?.saturating_add(own.users_refs?).saturating_add(reqs);
        together = together.max(Some(busy));
    }
    let longest = contexts.iter().map(Context::total_ns).max()?;
    together.map(|ns| ns.min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::KernelPtr;

    const GP: u64 = 16_000;

    /// Phases, and what was counted at the end of either grace period.
    fn context(begin: u64, phases: [u64; 4], held: u64, in_flight: u64) -> Context {
        let mut c = Context::new(KernelPtr(1), KernelPtr(2), KernelPtr(3), 0, begin);
        let mut at = begin;
        let mut after = |ns: u64| {
            at += ns;
            at
        };
        c.users_switched.set(after(phases[0]));
        c.set_users_held(Some(held));
        c.users_gone(after(phases[1]));
        c.reqs_switched.set(after(phases[2]));
        c.set_in_flight(Some(in_flight));
        c.reqs_released.set(after(phases[3]));
        c
    }

    fn loop_of(list: &[([u64; 4], u64, u64)]) -> Vec<Context> {
        let mut begin = 1_000;
        let mut contexts = Vec::new();
        for (phases, held, in_flight) in list {
            let c = context(begin, *phases, *held, *in_flight);
            begin = c.end_ns() + 10;
            contexts.push(c);
        }
        contexts
    }

    #[test]
    fn idle_contexts_share_a_typical_pair_of_grace_periods() {
        let mut list = vec![([GP, 50, GP, 50], 0, 0); 63];
        // One was unlucky: it came when a grace period had just begun.
        list.push(([3 * GP, 50, GP, 50], 0, 0));
        assert_eq!(together_ns(&loop_of(&list)), Some(2 * GP + 100));
    }

    #[test]
    fn requests_in_flight_last_as_long_as_they_do() {
        let list = [
            ([GP, 50, GP, 50], 0, 0),
            ([GP, 50, GP, 300_000], 0, 4),
            ([GP, 50, GP, 50], 0, 0),
        ];
        assert_eq!(together_ns(&loop_of(&list)), Some(2 * GP + 50 + 300_000));
    }

    #[test]
    fn a_reference_to_users_is_waited_for_by_its_context() {
        let list = [
            ([GP, 90_000, GP, 50], 2, 0),
            ([GP, 50, GP, 50], 0, 0),
            ([GP, 50, GP, 50], 0, 0),
        ];
        assert_eq!(together_ns(&loop_of(&list)), Some(90_000 + 2 * GP + 50));
    }

    #[test]
    fn never_longer_than_the_longest() {
        let list = [
            ([GP / 2, 50, GP, 40_000], 0, 1),
            ([GP, 50, GP, 50], 0, 0),
            ([GP, 50, GP, 50], 0, 0),
        ];
        assert_eq!(together_ns(&loop_of(&list)), Some(GP / 2 + 50 + GP + 40_000));
    }

    #[test]
    fn nothing_is_said_where_grace_periods_cannot_be_told_from_io() {
        let mut c = Context::new(KernelPtr(1), KernelPtr(2), KernelPtr(3), 0, 100);
        c.users_gone(200);
        c.reqs_released.set(900);
        assert_eq!(together_ns(&[c]), None);
        assert_eq!(together_ns(&[]), None);
    }
}
