//! Names of block devices.

use super::Root;

/// The sysfs name of the block device `major:minor`: `sda1`, `dm-3`; `None`: it has none.
pub fn name(root: &Root, device: &str) -> Option<String> {
    let folder = std::fs::read_link(root.join(format!("sys/dev/block/{device}"))).ok()?;
    folder.file_name()?.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_as_in_sysfs() {
        let root = std::env::temp_dir().join(format!("uio-trace-disks-{}", std::process::id()));
        std::fs::create_dir_all(root.join("sys/dev/block")).unwrap();
        let link = root.join("sys/dev/block/253:3");
        std::os::unix::fs::symlink("../../devices/virtual/block/dm-3", link).unwrap();
        let named = |device| name(&Root::at(&root), device);
        assert_eq!(named("253:3").as_deref(), Some("dm-3"));
        assert_eq!(named("0:33"), None);
        std::fs::remove_dir_all(root).unwrap();
    }
}
