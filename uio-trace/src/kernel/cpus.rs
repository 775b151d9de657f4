//! Online CPUs: breakpoints are attached one by one.

use super::Root;

/// Online CPU numbers, from /sys/devices/system/cpu/online (`0-3,8`). Empty when unreadable.
pub fn online(root: &Root) -> Vec<u32> {
    root.text("sys/devices/system/cpu/online")
        .map(|list| parse(&list))
        .unwrap_or_default()
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
