//! Online CPUs: breakpoints are attached one by one.

use super::Root;

/// Online CPU numbers, from /sys/devices/system/cpu/online (`0-3,8`). Empty when unreadable.
pub fn online(root: &Root) -> Vec<u32> {
    root.text("sys/devices/system/cpu/online")
        .map(|list| parse(&list))
        .unwrap_or_default()
}

/// How many CPUs are possible, when they are numbered from 0 without a gap; else 0. Of a number in a gap the kernel's table of
/// per-CPU areas says nothing.
pub fn possible_without_gaps(root: &Root) -> u32 {
    let possible = root
        .text("sys/devices/system/cpu/possible")
        .map(|list| parse(&list));
    let possible = possible.unwrap_or_default();
    if possible.iter().zip(0..).all(|(cpu, number)| *cpu == number) {
        u32::try_from(possible.len()).unwrap_or(0)
    } else {
        0
    }
}

fn parse(list: &str) -> Vec<u32> {
    list.split(',')
        .filter_map(|range| {
            let (first, last) = range
                .trim()
                .split_once('-')
                .unwrap_or((range.trim(), range.trim()));
            Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn lists_and_ranges() {
        assert_eq!(super::parse("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(super::parse("0"), [0]);
        assert_eq!(super::parse(""), [] as [u32; 0]);
    }
}
