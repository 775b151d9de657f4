//! Whether this process sees others by the numbers that the kernel traces by.

use super::Root;

/// The host's PID namespace, include/linux/proc_ns.h: PROC_PID_INIT_INO.
const HOSTS: &str = "pid:[4026531836]";

/// Why numbers of processes here are not those of the host, and what to do.
pub const NOT_THE_HOSTS: &str = "this is a PID namespace of its own, where processes have other numbers than those the kernel traces by; \
     run in the host's (docker run --pid=host)";

/// Is this the host's PID namespace? Where it cannot be told, it is taken for that.
pub fn pids_are_the_hosts(root: &Root) -> bool {
    std::fs::read_link(root.join("proc/self/ns/pid")).map_or(true, |link| link.as_os_str() == HOSTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_namespace_has_a_number_of_its_own() {
        let root = std::env::temp_dir().join(format!("uio-trace-namespaces-{}", std::process::id()));
        let link = root.join("proc/self/ns/pid");
        std::fs::create_dir_all(root.join("proc/self/ns")).unwrap();
        assert!(pids_are_the_hosts(&Root::at(&root)));
        for (target, is_hosts) in [(HOSTS, true), ("pid:[4026532298]", false)] {
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(target, &link).unwrap();
            assert_eq!(pids_are_the_hosts(&Root::at(&root)), is_hosts, "{target}");
        }
        std::fs::remove_dir_all(root).unwrap();
    }
}
