//! Settings that explain how long grace periods take.

use super::Root;
use std::collections::BTreeMap;

/// Options of the kernel's configuration that explain grace periods.
const CONFIG: [&str; 4] = [
    "CONFIG_HZ",
    "CONFIG_RCU_LAZY",
    "CONFIG_RCU_NOCB_CPU_DEFAULT_ALL",
    "CONFIG_RCU_LAZY_DEFAULT_OFF",
];

/// name -> value, only what is there.
pub fn read(root: &Root) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (name, path) in [
        ("rcu_expedited", "sys/kernel/rcu_expedited"),
        ("rcu_normal", "sys/kernel/rcu_normal"),
        ("nohz_full", "sys/devices/system/cpu/nohz_full"),
        ("cpus_online", "sys/devices/system/cpu/online"),
        ("preempt", "sys/kernel/debug/sched/preempt"),
        ("rcu_lazy", "sys/module/rcutree/parameters/enable_rcu_lazy"),
        (
            "rcu_jiffies_till_first_fqs",
            "sys/module/rcutree/parameters/jiffies_till_first_fqs",
        ),
        (
            "rcu_jiffies_till_next_fqs",
            "sys/module/rcutree/parameters/jiffies_till_next_fqs",
        ),
    ] {
        if let Ok(value) = root.text(path)
            // What sysfs prints of an empty CPU list that was never set.
            && !matches!(value.as_str(), "" | "(null)")
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
    // Distributions leave the configuration beside the kernel; HZ is in nothing else that can be read.
    let release = root.text("proc/sys/kernel/osrelease").unwrap_or_default();
    if let Ok(config) = root.text(format!("boot/config-{release}")) {
        for line in config.lines() {
            if let Some((name, value)) = line.split_once('=')
                && CONFIG.contains(&name)
            {
                found.insert(name.to_owned(), value.to_owned());
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

    #[test]
    fn settings_come_from_sysfs_configuration_and_command_line() {
        let folder = std::env::temp_dir().join(format!("uio-trace-rcu-{}", std::process::id()));
        let files = [
            ("sys/kernel/rcu_expedited", "1\n"),
            ("sys/devices/system/cpu/nohz_full", "(null)\n"),
            ("proc/sys/kernel/osrelease", "6.12.1-x\n"),
            ("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC Debian\n"),
            ("proc/cmdline", "quiet rcu_nocbs=1-3 rcupdate.rcu_normal=1\n"),
            (
                "boot/config-6.12.1-x",
                "CONFIG_HZ_250=y\nCONFIG_HZ=250\n# CONFIG_RCU_LAZY is not set\n",
            ),
        ];
        for (path, text) in files {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let found = read(&Root::at(&folder));
        std::fs::remove_dir_all(&folder).unwrap();
        let expected = [
            ("CONFIG_HZ", "250"),
            ("cmdline.rcu_nocbs", "1-3"),
            ("cmdline.rcupdate.rcu_normal", "1"),
            ("preempt_build", "PREEMPT_DYNAMIC"),
            ("rcu_expedited", "1"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, BTreeMap::from(expected));
    }
}
