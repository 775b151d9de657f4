//! Debian packages: installed ones that the host needs, and ones only downloaded and unpacked into the cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{capture, progress, run_quiet};

/// Installs the packages that are missing. As root it does so itself; otherwise it says which command would.
pub fn ensure_installed(packages: &[&str]) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .copied()
        .filter(|package| !is_installed(package))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    // SAFETY: geteuid takes no argument and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        bail!("Debian packages are missing; run: sudo apt-get install {list}");
    }
    progress(format!("installing {list}"));
    if !missing.iter().all(|package| has_candidate(package)) {
        run_quiet(apt_get().arg("update"))?;
    }
    let install = |again: &str| {
        run_quiet(
            apt_get()
                .args(["install", "-y", "--no-install-recommends"])
                .args(&missing),
        )
        .with_context(|| format!("cannot install {list}{again}"))
    };
    // A package list older than the archive names files that are gone: read it anew once.
    if install("").is_err() {
        run_quiet(apt_get().arg("update"))?;
        install(" (after apt-get update)")?;
    }
    Ok(())
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["-o", "DPkg::Lock::Timeout=600"]);
    command
}

fn is_installed(package: &str) -> bool {
    capture(Command::new("dpkg-query").args(["-W", "-f", "${db:Status-Status}", package]))
        .is_ok_and(|status| status == "installed")
}

fn has_candidate(package: &str) -> bool {
    capture(Command::new("apt-cache").args(["policy", package])).is_ok_and(|policy| {
        policy
            .lines()
            .any(|line| line.trim_start().starts_with("Candidate:") && !line.contains("(none)"))
    })
}

/// An apt to ask and to download from: the system's own, or a private folder with another suite.
#[derive(Debug, Clone)]
pub struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// The system's own sources. Reads the package lists when there are none yet.
    pub fn system() -> Result<Apt> {
        let apt = Apt { options: Vec::new() };
        if apt.names("linux-image-").is_ok_and(|names| names.is_empty()) {
            apt.update()?;
        }
        Ok(apt)
    }

    /// Another suite of the archive the system uses, in a private apt folder under `cache`: same address, same key.
    pub fn suite(cache: &Path, suite: &str) -> Result<Apt> {
        let archive = archive_of_system()?;
        // A suite that was moved to the archive is no longer re-signed: its date is not an error here.
        let line = format!(
            "deb [signed-by={} check-valid-until=no] {} {suite} main\n",
            archive.key, archive.address
        );
        let (apt, folder) = Apt::private(cache, suite, &line)?;
        if lists_are_old(&folder.join("lists"), "_Packages") {
            let update = apt.update();
            // An older list is good enough when the archive cannot be reached.
            if update.is_err() && apt.names("linux-image-").is_ok_and(|names| names.is_empty()) {
                update.with_context(|| format!("cannot read the package list of {suite}"))?;
            }
        }
        Ok(apt)
    }

    /// The source packages of the system's own release, in a private apt folder under `cache`: systems seldom list them.
    pub fn sources(cache: &Path) -> Result<Apt> {
        let archive = archive_of_system()?;
        let line = format!(
            "deb-src [signed-by={}] {} {} main\n",
            archive.key, archive.address, archive.codename
        );
        let (apt, folder) = Apt::private(cache, "sources", &line)?;
        if lists_are_old(&folder.join("lists"), "_Sources") {
            apt.update().context("cannot read the list of source packages")?;
        }
        Ok(apt)
    }

    /// A folder with lists of its own and this one source; and its place.
    fn private(cache: &Path, name: &str, line: &str) -> Result<(Apt, PathBuf)> {
        let folder = cache.join("apt").join(name);
        for part in ["lists/partial", "cache/archives/partial", "parts"] {
            let path = folder.join(part);
            std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        let source = folder.join("sources.list");
        std::fs::write(&source, line).with_context(|| format!("cannot write {}", source.display()))?;
        let option = |name: &str, value: &Path| format!("{name}={}", value.display());
        let options = vec![
            option("Dir::Etc::sourcelist", &source),
            option("Dir::Etc::sourceparts", &folder.join("parts")),
            option("Dir::State::lists", &folder.join("lists")),
            option("Dir::Cache", &folder.join("cache")),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
        ];
        Ok((Apt { options }, folder))
    }

    /// Downloads what upstream released of a source package into `directory`. Returns the archive.
    pub fn download_source(&self, package: &str, directory: &Path) -> Result<PathBuf> {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        progress(format!("downloading the source of {package}"));
        let mut download = self.command("apt-get");
        download.args([
            "-o",
            "APT::Sandbox::User=root",
            "-q",
            "source",
            "--download-only",
            package,
        ]);
        run_quiet(download.current_dir(directory))?;
        let entries =
            std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
        let is_upstream = |path: &PathBuf| {
            path.file_name().is_some_and(|name| {
                let name = name.to_string_lossy();
                name.starts_with(&format!("{package}_"))
                    && name.contains(".orig.tar.")
                    && !name.ends_with(".asc")
            })
        };
        entries
            .flatten()
            .map(|entry| entry.path())
            .find(is_upstream)
            .with_context(|| format!("apt-get downloaded no archive of {package}"))
    }

    /// Reads the package lists anew.
    pub fn update(&self) -> Result<()> {
        progress("reading the package lists");
        let mut update = self.command("apt-get");
        // In the cache there may be no folder that apt's own user can write.
        if !self.options.is_empty() {
            update.args(["-o", "APT::Sandbox::User=root"]);
            // Else a list that cannot be had is a warning, and what is missed is a kernel.
            update.args(["-o", "APT::Update::Error-Mode=any"]);
        }
        run_quiet(
            update
                .args(["-o", "DPkg::Lock::Timeout=600", "update"])
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
    }

    /// Every package whose name begins with `prefix`.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let names = capture(self.command("apt-cache").args(["pkgnames", prefix]))?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    /// The version apt would take of a package.
    pub fn candidate(&self, package: &str) -> Result<String> {
        let policy = capture(self.command("apt-cache").args(["policy", package]))?;
        policy
            .lines()
            .find_map(|line| line.trim_start().strip_prefix("Candidate: "))
            .filter(|version| *version != "(none)")
            .map(str::to_owned)
            .with_context(|| format!("apt knows no package {package}"))
    }

    /// What a package depends on directly.
    pub fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let text = capture(self.command("apt-cache").args(["depends", package]))?;
        let names = text
            .lines()
            .filter_map(|line| line.trim().trim_start_matches('|').strip_prefix("Depends: "));
        Ok(names.map(str::to_owned).collect())
    }

    /// Downloads the packages into `directory` (those not there yet) and unpacks them all into `root`.
    pub fn unpack(&self, packages: &[&str], directory: &Path, root: &Path) -> Result<()> {
        for package in packages {
            let file = self.download(package, directory)?;
            run_quiet(Command::new("dpkg-deb").arg("-x").arg(&file).arg(root))?;
        }
        Ok(())
    }

    /// Downloads a package into `directory`, unless it is there. Returns its file.
    pub fn download(&self, package: &str, directory: &Path) -> Result<PathBuf> {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        if let Some(file) = downloaded(directory, package, &self.candidate(package)?)? {
            return Ok(file);
        }
        progress(format!("downloading {package}"));
        let mut download = self.command("apt-get");
        download.args(["-o", "APT::Sandbox::User=root", "-q", "download", package]);
        run_quiet(download.current_dir(directory))?;
        downloaded(directory, package, &self.candidate(package)?)?
            .with_context(|| format!("apt-get downloaded no file for {package}"))
    }
}

/// The file apt-get download makes for this version: NAME_VERSION_ARCH.deb, a colon written %3a.
fn downloaded(directory: &Path, package: &str, version: &str) -> Result<Option<PathBuf>> {
    let start = format!("{package}_{}_", version.replace(':', "%3a"));
    let entries =
        std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).find(|path| {
        path.file_name().is_some_and(|name| {
            name.to_string_lossy().starts_with(&start) && name.to_string_lossy().ends_with(".deb")
        })
    }))
}

/// `kind`: how the names of the lists' files end.
fn lists_are_old(lists: &Path, kind: &str) -> bool {
    const WEEK: std::time::Duration = std::time::Duration::from_secs(7 * 24 * 3600);
    let Ok(entries) = std::fs::read_dir(lists) else {
        return true;
    };
    !entries.flatten().any(|entry| {
        let name = entry.file_name();
        let is_list = name.to_string_lossy().contains(kind);
        // The list keeps the archive's date; the change time is when it was written here.
        is_list
            && entry.metadata().is_ok_and(|meta| {
                use std::os::unix::fs::MetadataExt;
                let changed =
                    std::time::UNIX_EPOCH + std::time::Duration::from_secs(meta.ctime().max(0) as u64);
                changed.elapsed().is_ok_and(|age| age < WEEK)
            })
    })
}

/// The archive that carries this system's own release.
struct Archive {
    address: String,
    key: String,
    codename: String,
}

/// From the system's apt sources.
fn archive_of_system() -> Result<Archive> {
    let release = std::fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let codename = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .map(|name| name.trim_matches('"').to_owned())
        .context("/etc/os-release has no VERSION_CODENAME")?;
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = std::fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    texts
        .filter_map(|text| archive_in(&text, &codename))
        .next()
        .with_context(|| format!("no apt source of this system carries {codename}"))
        .map(|(address, key)| Archive {
            address,
            key,
            codename: codename.clone(),
        })
}

/// Looks for `suite` in one sources file, of either format.
fn archive_in(text: &str, suite: &str) -> Option<(String, String)> {
    const DEFAULT_KEY: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
    for stanza in text.split("\n\n") {
        let field = |name: &str| {
            stanza
                .lines()
                .find_map(|line| line.strip_prefix(name).and_then(|rest| rest.strip_prefix(':')))
                .map(str::trim)
        };
        if let (Some(addresses), Some(suites)) = (field("URIs"), field("Suites"))
            && suites.split_whitespace().any(|name| name == suite)
        {
            let address = addresses.split_whitespace().next()?;
            let key = field("Signed-By")
                .filter(|key| key.starts_with('/'))
                .unwrap_or(DEFAULT_KEY);
            return Some((address.to_owned(), key.to_owned()));
        }
    }
    for line in text.lines().filter_map(|line| line.trim().strip_prefix("deb ")) {
        let (options, rest) = match line
            .trim()
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
        {
            Some((options, rest)) => (options, rest),
            None => ("", line),
        };
        let mut words = rest.split_whitespace();
        if let (Some(address), Some(name)) = (words.next(), words.next())
            && name == suite
        {
            let key = options
                .split_whitespace()
                .find_map(|option| option.strip_prefix("signed-by="))
                .unwrap_or(DEFAULT_KEY);
            return Some((address.to_owned(), key.to_owned()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::archive_in;

    #[test]
    fn finds_the_archive_in_both_formats() {
        let new = "Types: deb\nURIs: http://archive.example/debian\nSuites: bookworm bookworm-updates\n\
                   Components: main\nSigned-By: /keys/a.gpg\n\nTypes: deb\nURIs: http://other.example\nSuites: x\n";
        assert_eq!(
            archive_in(new, "bookworm"),
            Some(("http://archive.example/debian".into(), "/keys/a.gpg".into()))
        );
        let old =
            "# comment\ndeb [arch=amd64 signed-by=/keys/b.gpg] http://archive.example/debian bookworm main\n";
        assert_eq!(
            archive_in(old, "bookworm"),
            Some(("http://archive.example/debian".into(), "/keys/b.gpg".into()))
        );
        assert_eq!(archive_in(old, "trixie"), None);
    }
}
