//! The kernel's own modules that guests need, with what they depend on, decompressed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::run_quiet;

/// Modules wanted in guests. One that a kernel has built in, or does not have, is left out.
pub const WANTED: [&str; 19] = [
    "uio",
    "uio_pci_generic",
    "target_core_mod",
    "target_core_user",
    "tcm_loop",
    "configfs",
    "null_blk",
    "brd",
    "loop",
    "scsi_debug",
    "sd_mod",
    "dm_mod",
    "dm_delay",
    "ext4",
    "crc32c_generic",
    "bfq",
    "kyber_iosched",
    "mq_deadline",
    "binfmt_misc",
];

/// Copies the wanted modules of the tree `from` (lib/modules/RELEASE) into `to`, and makes its modules.dep.
pub fn keep_wanted(from: &Path, to: &Path, release: &str) -> Result<()> {
    let dependencies = read_dependencies(&from.join("modules.dep"))?;
    let target = to.join("lib/modules").join(release);
    std::fs::create_dir_all(&target).with_context(|| format!("cannot make {}", target.display()))?;
    for file in closure(&dependencies, &WANTED) {
        decompress(&from.join(&file), &target)?;
    }
    for name in ["modules.builtin", "modules.order", "modules.builtin.modinfo"] {
        if from.join(name).exists() {
            std::fs::copy(from.join(name), target.join(name))
                .with_context(|| format!("cannot copy {name}"))?;
        }
    }
    run_quiet(Command::new("depmod").arg("-b").arg(to).arg(release))
}

/// modules.dep: a module's file and the files it needs.
fn read_dependencies(path: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(file, needs)| {
            (
                file.to_owned(),
                needs.split_whitespace().map(str::to_owned).collect(),
            )
        })
        .collect())
}

/// `kernel/drivers/uio/uio.ko.xz` -> `uio`; the kernel takes - and _ in a module's name as one.
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split('.').next().unwrap_or(name).replace('-', "_")
}

fn closure(dependencies: &BTreeMap<String, Vec<String>>, wanted: &[&str]) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for (file, needs) in dependencies {
        if wanted.contains(&module_name(file).as_str()) {
            // modules.dep lists the indirect needs as well
            files.insert(file.clone());
            files.extend(needs.iter().cloned());
        }
    }
    files
}

fn decompress(file: &Path, target: &Path) -> Result<()> {
    let name = file
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let (program, plain) = if let Some(plain) = name.strip_suffix(".xz") {
        ("xz", plain)
    } else if let Some(plain) = name.strip_suffix(".zst") {
        ("zstd", plain)
    } else if let Some(plain) = name.strip_suffix(".gz") {
        ("gzip", plain)
    } else {
        std::fs::copy(file, target.join(&name)).with_context(|| format!("cannot copy {}", file.display()))?;
        return Ok(());
    };
    let output = Command::new(program)
        .arg("-dc")
        .arg(file)
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program} cannot decompress {}", file.display());
    }
    let place = target.join(plain);
    std::fs::write(&place, output.stdout).with_context(|| format!("cannot write {}", place.display()))
}

#[cfg(test)]
mod tests {
    use super::{closure, module_name};
    use std::collections::BTreeMap;

    #[test]
    fn a_module_brings_what_it_needs() {
        let dependencies = BTreeMap::from([
            (
                "kernel/a/dm-delay.ko.xz".to_owned(),
                vec!["kernel/a/dm-mod.ko.xz".to_owned()],
            ),
            ("kernel/a/dm-mod.ko.xz".to_owned(), vec![]),
            ("kernel/b/other.ko".to_owned(), vec![]),
        ]);
        let files: Vec<String> = closure(&dependencies, &["dm_delay"]).into_iter().collect();
        assert_eq!(files, ["kernel/a/dm-delay.ko.xz", "kernel/a/dm-mod.ko.xz"]);
        assert_eq!(module_name("kernel/drivers/uio/uio.ko"), "uio");
    }
}
