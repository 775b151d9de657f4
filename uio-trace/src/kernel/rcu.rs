//! Settings that explain how long grace periods take.

use super::Root;
use std::collections::BTreeMap;

/// name -> value, only what is there.
pub fn read(root: &Root) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (name, path) in [
        ("rcu_expedited", "sys/kernel/rcu_expedited"),
        ("rcu_normal", "sys/kernel/rcu_normal"),
        ("nohz_full", "sys/devices/system/cpu/nohz_full"),
        ("cpus_online", "sys/devices/system/cpu/online"),
        ("preempt", "sys/kernel/debug/sched/preempt"),
    ] {
        if let Ok(value) = root.text(path)
            && !value.is_empty()
        {
            found.insert(name.to_owned(), in_words(name, &value));
        }
    }
    if let Ok(version) = root.text("proc/sys/kernel/version") {
        for model in ["PREEMPT_RT", "PREEMPT_DYNAMIC", "PREEMPT"] {
            if version.split_whitespace().any(|word| word == model) {
                found.insert("preempt_build".into(), model.into());
                break;
            }
        }
    }
    if let Ok(cmdline) = root.text("proc/cmdline") {
        for word in cmdline.split_whitespace() {
            if word.starts_with("rcu") || word.starts_with("nohz_full") || word.starts_with("preempt=") {
                let (name, value) = word.split_once('=').unwrap_or((word, "set"));
                found.insert(format!("cmdline.{name}"), value.to_owned());
            }
        }
    }
    found
}

/// The kernel's own notation read: of a list of choices the one in force, an unset mask as `none`.
fn in_words(name: &str, value: &str) -> String {
    match name {
        // kernel/sched/debug.c, sched_dynamic_show: `none (voluntary) full`.
        "preempt" => value
            .split_whitespace()
            .find_map(|word| word.strip_prefix('(')?.strip_suffix(')'))
            .unwrap_or(value)
            .to_owned(),
        // drivers/base/cpu.c, print_cpus_nohz_full: `(null)` without a mask.
        "nohz_full" if value.trim() == "(null)" => "none".to_owned(),
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_notation_is_read() {
        assert_eq!(in_words("preempt", "none (voluntary) full"), "voluntary");
        assert_eq!(in_words("preempt", "none voluntary full (lazy)"), "lazy");
        assert_eq!(in_words("preempt", "odd"), "odd");
        assert_eq!(in_words("nohz_full", "  (null)"), "none");
        assert_eq!(in_words("nohz_full", "2-7"), "2-7");
    }
}
