//! Lays stretches of time that may overlap into as few lanes as it takes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Indices of the stretches (begin, end), sorted by begin, for each lane; those of one lane do not overlap.
///
/// The lane that has been free longest is taken, so there are as many as stretches overlap at most (interval
/// partitioning).
pub(super) fn lanes(sorted: &[(u64, u64)]) -> Vec<Vec<usize>> {
    let mut lanes: Vec<Vec<usize>> = Vec::new();
    let mut free_at: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for (index, &(from, to)) in sorted.iter().enumerate() {
        let lane = match free_at.peek() {
            Some(&Reverse((free, lane))) if free <= from => {
                free_at.pop();
                lane
            }
            _ => {
                lanes.push(Vec::new());
                lanes.len() - 1
            }
        };
        if let Some(lane) = lanes.get_mut(lane) {
            lane.push(index);
        }
        free_at.push(Reverse((to.max(from), lane)));
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_lanes_as_overlap() {
        let stretches = [(0, 10), (1, 3), (2, 12), (3, 5), (10, 11), (12, 12), (12, 13)];
        let laid = lanes(&stretches);
        assert_eq!(laid.len(), 3);
        let mut all: Vec<usize> = laid.iter().flatten().copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..stretches.len()).collect::<Vec<_>>());
        for lane in laid {
            for pair in lane.windows(2) {
                assert!(stretches[pair[0]].1 <= stretches[pair[1]].0);
            }
        }
    }
}
