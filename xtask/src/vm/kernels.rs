//! The kernels that guests boot: Debian's own packages, the newest version apt lists, kept in the cache.
//!
//! table -> newest package name -> downloaded and unpacked -> vmlinuz and the few modules guests need, decompressed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::modules;
use crate::apt::{self, Apt};
use crate::paths;
use crate::process::{progress, run_quiet};

/// A row of the kernel table.
#[derive(Debug, Clone, Copy)]
pub struct KernelSpec {
    /// What `--kernel` takes.
    pub name: &'static str,
    /// A suite of the archive other than this system's own.
    pub suite: Option<&'static str>,
    /// Package names are `linux-image-` + prefix + a version + suffix.
    prefix: &'static str,
    suffix: &'static str,
    /// Version in the name of the source package that `uio` is converted from.
    pub source: Option<&'static str>,
    /// Which tests run there.
    pub set: TestSet,
}

/// How much of the guest tests a kernel runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestSet {
    /// The whole truth table.
    Full,
    /// Loading, attaching, exact counts.
    Smoke,
}

/// Every kernel of the matrix.
pub const KERNELS: [KernelSpec; 5] = [
    KernelSpec {
        name: "6.12",
        suite: None,
        prefix: "6.12.",
        suffix: "-amd64",
        source: Some("6.12"),
        set: TestSet::Full,
    },
    KernelSpec {
        name: "6.1",
        suite: None,
        prefix: "6.1.0-",
        suffix: "-amd64",
        source: Some("6.1"),
        set: TestSet::Full,
    },
    KernelSpec {
        name: "6.12-rt",
        suite: None,
        prefix: "6.12.",
        suffix: "-rt-amd64",
        source: None,
        set: TestSet::Smoke,
    },
    KernelSpec {
        name: "5.10",
        suite: Some("bullseye"),
        prefix: "5.10.0-",
        suffix: "-amd64",
        source: None,
        set: TestSet::Smoke,
    },
    KernelSpec {
        name: "sid",
        suite: Some("sid"),
        prefix: "",
        suffix: "-amd64",
        source: None,
        set: TestSet::Smoke,
    },
];

/// The row with this name.
pub fn find(name: &str) -> Result<&'static KernelSpec> {
    KERNELS.iter().find(|spec| spec.name == name).with_context(|| {
        let names: Vec<&str> = KERNELS.iter().map(|spec| spec.name).collect();
        format!("no kernel {name}; there are {}", names.join(", "))
    })
}

/// A kernel ready to boot.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Its row of the table.
    pub spec: &'static KernelSpec,
    /// `uname -r`
    pub release: String,
    /// The folder in the cache.
    folder: PathBuf,
}

impl Kernel {
    /// The boot image.
    pub fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// Root of a tree with lib/modules/RELEASE, decompressed, with its modules.dep.
    pub fn module_tree(&self) -> PathBuf {
        self.folder.join("modules")
    }
}

impl KernelSpec {
    /// The apt that lists this kernel.
    pub fn apt(&self, cache: &Path) -> Result<Apt> {
        match self.suite {
            None => Apt::system(),
            Some(suite) => Apt::suite(cache, suite),
        }
    }

    /// The version numbers in a release name, when it is one of this row (`6.12.117+deb12-amd64` -> 117, 12).
    fn version_of(&self, release: &str) -> Option<Vec<u64>> {
        let middle = release.strip_prefix(self.prefix)?.strip_suffix(self.suffix)?;
        // Anything but digits, dots and a +debN is another flavour (rt, cloud, unsigned).
        let numbers = middle.replace("+deb", ".");
        let is_version = !numbers.is_empty()
            && numbers.starts_with(|first: char| first.is_ascii_digit())
            && numbers
                .split(['.', '-'])
                .all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        if !is_version {
            return None;
        }
        Some(
            numbers
                .split(['.', '-'])
                .filter_map(|part| part.parse().ok())
                .collect(),
        )
    }

    /// The newest release of this row among the packages listed. A list that has none may be older than the row: it is read anew
    /// once.
    fn newest_listed(
        &self,
        names: impl Fn() -> Result<Vec<String>>,
        read_anew: impl FnOnce() -> Result<()>,
    ) -> Result<Option<String>> {
        let newest = || -> Result<Option<String>> {
            let names = names()?;
            Ok(self.newest(names.iter().filter_map(|name| name.strip_prefix("linux-image-"))))
        };
        if let Some(release) = newest()? {
            return Ok(Some(release));
        }
        read_anew()?;
        newest()
    }

    fn newest<'a>(&self, releases: impl Iterator<Item = &'a str>) -> Option<String> {
        releases
            .filter_map(|release| self.version_of(release).map(|version| (version, release)))
            .max()
            .map(|(_, release)| release.to_owned())
    }
}

/// Makes a kernel ready: downloads it when the cache does not have the newest version yet.
pub fn provide(cache: &Path, spec: &'static KernelSpec) -> Result<Kernel> {
    apt::ensure_installed(&["kmod", "xz-utils", "zstd"])?;
    let folder = cache.join("kernels");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // What is kept depends on the list of modules: another list, another folder.
    let list = Sha256::digest(modules::WANTED.join(" "));
    let mark = format!("_{:02x}{:02x}{:02x}", list[0], list[1], list[2]);
    let listed = spec.apt(cache).and_then(|apt| {
        let newest = spec.newest_listed(|| apt.names("linux-image-"), || apt.update())?;
        Ok((apt, newest))
    });
    match listed {
        Ok((apt, Some(release))) => {
            let place = folder.join(format!("{release}{mark}"));
            if !place.join("vmlinuz").exists() {
                download(cache, &apt, &release, &place)?;
            }
            Ok(Kernel {
                spec,
                release,
                folder: place,
            })
        }
        Ok((_, None)) => bail!("apt lists no kernel for {}", spec.name),
        Err(error) => cached(&folder, spec, &mark).ok_or(error),
    }
}

/// Without a package list: the newest one a former run left.
fn cached(folder: &Path, spec: &'static KernelSpec, mark: &str) -> Option<Kernel> {
    let names: Vec<String> = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .strip_suffix(mark)
                .map(str::to_owned)
        })
        .collect();
    let release = spec.newest(names.iter().map(String::as_str))?;
    let place = folder.join(format!("{release}{mark}"));
    Some(Kernel {
        spec,
        release,
        folder: place,
    })
}

fn download(cache: &Path, apt: &Apt, release: &str, place: &Path) -> Result<()> {
    progress(format!("providing kernel {release}"));
    let staging = paths::staging_for(place)?;
    let root = staging.join("root");
    // Newer suites split the image package.
    let split = [
        format!("linux-binary-{release}"),
        format!("linux-modules-{release}"),
    ];
    let whole = [format!("linux-image-{release}")];
    let is_split = apt.candidate(&split[0]).is_ok();
    let packages: Vec<&str> = if is_split {
        split.iter().map(String::as_str).collect()
    } else {
        vec![&whole[0]]
    };
    apt.unpack(&packages, &cache.join("debs"), &root)?;

    let (base, image) = if root.join("usr/lib/modules").join(release).exists() {
        (
            root.join("usr"),
            root.join("usr/lib/modules").join(release).join("vmlinuz"),
        )
    } else {
        (root.clone(), root.join("boot").join(format!("vmlinuz-{release}")))
    };
    let image = if image.exists() {
        image
    } else {
        root.join("boot").join(format!("vmlinuz-{release}"))
    };
    std::fs::copy(&image, staging.join("vmlinuz"))
        .with_context(|| format!("no boot image {} in the package", image.display()))?;
    run_quiet(Command::new("depmod").arg("-b").arg(&base).arg(release))?;
    modules::keep_wanted(
        &base.join("lib/modules").join(release),
        &staging.join("modules"),
        release,
    )?;
    std::fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
    paths::install(&staging, place)
}

#[cfg(test)]
mod tests {
    use super::find;
    use std::cell::RefCell;

    #[test]
    fn a_list_without_the_kernel_is_read_anew_once() {
        let spec = find("6.12").unwrap();
        let list = RefCell::new(vec!["linux-image-6.1.0-57-amd64".to_owned()]);
        let names = || Ok(list.borrow().clone());
        let nothing_new = spec.newest_listed(names, || Ok(())).unwrap();
        assert_eq!(nothing_new, None);
        let read_anew = || {
            list.borrow_mut()
                .push("linux-image-6.12.9+deb12-amd64".to_owned());
            Ok(())
        };
        let found = spec.newest_listed(names, read_anew).unwrap();
        assert_eq!(found.as_deref(), Some("6.12.9+deb12-amd64"));
        let listed = spec.newest_listed(names, || panic!("the list has it")).unwrap();
        assert_eq!(listed, found);
        // The archive cannot be reached: that is the reason, not the missing kernel.
        let other = find("sid").unwrap();
        let error = other.newest_listed(|| Ok(vec![]), || anyhow::bail!("no network"));
        assert!(error.unwrap_err().to_string().contains("no network"));
    }

    #[test]
    fn takes_the_newest_of_its_own_flavour() {
        let names = [
            "6.12.101+deb12-amd64",
            "6.12.99+deb12-amd64",
            "6.12.117+deb12-rt-amd64",
            "6.12.117+deb12-cloud-amd64",
            "6.12.117+deb12-amd64-unsigned",
            "6.12-amd64",
            "6.1.0-57-amd64",
            "6.1.0-9-amd64",
            "amd64",
        ];
        let newest = |name: &str| find(name).unwrap().newest(names.into_iter());
        assert_eq!(newest("6.12").as_deref(), Some("6.12.101+deb12-amd64"));
        assert_eq!(newest("6.12-rt").as_deref(), Some("6.12.117+deb12-rt-amd64"));
        assert_eq!(newest("6.1").as_deref(), Some("6.1.0-57-amd64"));
        assert_eq!(newest("5.10"), None);
        let sid = [
            "7.2.13+deb14-amd64",
            "7.2.13+deb14-rt-amd64",
            "7.10.1+deb14-amd64",
            "amd64",
        ];
        assert_eq!(
            find("sid").unwrap().newest(sid.into_iter()).as_deref(),
            Some("7.10.1+deb14-amd64")
        );
    }
}
