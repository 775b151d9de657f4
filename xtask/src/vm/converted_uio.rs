//! A `uio` module without the mutex: Debian's source of it, edited as the proposal of 2022, "uio: Replace mutex info_lock with
//! percpu_ref", does. Kernel source is downloaded and edited when it is needed, never kept in the repository.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::kernels::KernelSpec;
use crate::process::progress;

/// The files of the source package that are edited, and their names beside the testbed's modules.
const FILES: [(&str, &str); 2] = [
    ("drivers/uio/uio.c", "uio.c"),
    ("include/linux/uio_driver.h", "uio_driver.h"),
];

/// What is added before the first function: the ref's two callbacks.
const CALLBACKS: &str = "
static void uio_info_free(struct percpu_ref *ref)
{
	complete(&container_of(ref, struct uio_device, info_ref)->free_done);
}

static void uio_confirm_info(struct percpu_ref *ref)
{
	complete(&container_of(ref, struct uio_device, info_ref)->confirm_done);
}
";

/// Puts the edited source of package `linux-source-VERSION` into `work`, with a Kbuild for it.
pub fn write_source(cache: &Path, spec: &KernelSpec, version: &str, work: &Path) -> Result<()> {
    let package = format!("linux-source-{version}");
    let file = spec.apt(cache)?.download(&package, &cache.join("debs"))?;
    progress(format!("converting uio of {package}"));
    let inside = format!("./usr/src/linux-source-{version}.tar.xz");
    extract(&file, &inside, work).with_context(|| format!("cannot unpack uio from {package}"))?;
    for (path, name) in FILES {
        let from = work.join(format!("linux-source-{version}")).join(path);
        let text = std::fs::read_to_string(&from).with_context(|| format!("{package} has no {path}"))?;
        let edited = if name == "uio.c" {
            driver(&text)
        } else {
            header(&text)
        };
        let edited = edited.with_context(|| format!("{path} of {package} is not as expected"))?;
        std::fs::write(work.join(name), edited).with_context(|| format!("cannot write {name}"))?;
    }
    std::fs::write(work.join("Kbuild"), "obj-m := uio.o\n").context("cannot write Kbuild")
}

/// Unpacks the two files of the archive that a source package contains.
fn extract(package: &Path, archive: &str, to: &Path) -> Result<()> {
    // tar ends when it has both; what is in front of it in the pipe then gets SIGPIPE, which is no failure.
    let script = "dpkg-deb --fsys-tarfile \"$0\" | tar -xO \"$1\" | xz -dc -T0 | tar -x -C \"$2\" --wildcards --occurrence=1 \"$3\" \"$4\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(package).arg(archive).arg(to);
    for (path, _) in FILES {
        command.arg(format!("*/{path}"));
    }
    let output = command.stdin(Stdio::null()).output().context("cannot start sh")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// struct uio_device: the ref and its completions in place of the mutex.
///
/// genksyms is shown the old struct: the exported functions keep their version, so that stock modules load with this one.
fn header(text: &str) -> Result<String> {
    let guarded = |new: &str, old: &str| format!("#ifndef __GENKSYMS__\n{new}{old}#endif\n");
    let mut edited = String::new();
    let (mut included, mut replaced) = (false, false);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !included && words.first() == Some(&"#include") {
            let includes = "#include <linux/percpu-refcount.h>\n#include <linux/completion.h>\n";
            edited.push_str(&guarded(includes, ""));
            included = true;
        }
        if words == ["struct", "mutex", "info_lock;"] {
            let members = "\tstruct percpu_ref info_ref;\n\tstruct completion confirm_done;\n\tstruct completion free_done;\n";
            edited.push_str(&guarded(members, &format!("#else\n{line}\n")));
            replaced = true;
        } else {
            edited.push_str(line);
            edited.push('\n');
        }
    }
    if !included || !replaced {
        bail!("struct uio_device has no info_lock");
    }
    Ok(edited)
}

/// Every section under info_lock becomes one under a reference; an operation on a dying device fails.
fn driver(text: &str) -> Result<String> {
    let mut out = String::new();
    let mut function = String::new();
    let (mut sections, mut callbacks) = (0, false);
    for line in text.lines() {
        // Functions begin at the margin.
        if line.contains('(')
            && line.starts_with(|first: char| first.is_ascii_alphabetic())
            && !line.ends_with(';')
        {
            if !callbacks && !line.starts_with("MODULE") && !line.starts_with("DEFINE") {
                out.push_str(CALLBACKS);
                out.push('\n');
                callbacks = true;
            }
            let name = line.split('(').next().unwrap_or_default();
            function = name.split([' ', '*']).next_back().unwrap_or_default().to_owned();
        }
        let indent: String = line.chars().take_while(|c| c.is_whitespace()).collect();
        let code = line.trim();
        let edited = match (code, function.as_str()) {
            ("#include <linux/uio_driver.h>", _) => "#include \"uio_driver.h\"".to_owned(),
            ("mutex_init(&idev->info_lock);", _) => format!(
                "{indent}ret = percpu_ref_init(&idev->info_ref, uio_info_free, 0, GFP_KERNEL);\n\
                 {indent}if (ret) {{\n{indent}\tkfree(idev);\n{indent}\treturn ret;\n{indent}}}\n\
                 {indent}init_completion(&idev->confirm_done);\n{indent}init_completion(&idev->free_done);"
            ),
            ("mutex_lock(&idev->info_lock);", "uio_unregister_device" | "__uio_register_device") => format!(
                "{indent}percpu_ref_kill_and_confirm(&idev->info_ref, uio_confirm_info);\n\
                 {indent}wait_for_completion(&idev->confirm_done);\n{indent}wait_for_completion(&idev->free_done);"
            ),
            ("mutex_unlock(&idev->info_lock);", "uio_unregister_device" | "__uio_register_device") => {
                String::new()
            }
            ("mutex_lock(&idev->info_lock);", _) => {
                sections += 1;
                format!("{indent}bool live = percpu_ref_tryget_live(&idev->info_ref);\n")
            }
            ("mutex_unlock(&idev->info_lock);", _) => {
                format!("{indent}if (live)\n{indent}\tpercpu_ref_put(&idev->info_ref);")
            }
            ("kfree(idev);", "uio_device_release") => {
                format!("{indent}percpu_ref_exit(&idev->info_ref);\n{line}")
            }
            (code, _) if code.starts_with("if (!idev->info)") || code.starts_with("if (!idev->info ||") => {
                line.replacen("if (!idev->info", "if (!live || !idev->info", 1)
            }
            (code, _) if code.starts_with("if (idev->info && ") => {
                line.replacen("if (idev", "if (live && idev", 1)
            }
            _ => line.to_owned(),
        };
        out.push_str(&edited);
        out.push('\n');
    }
    if sections < 9 || out.contains("info_lock") {
        bail!("{sections} sections under info_lock found");
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::{driver, header};

    #[test]
    fn the_mutex_goes_out_of_the_struct() {
        let edited =
            header("#include <linux/fs.h>\nstruct uio_device {\n\tstruct mutex\t\tinfo_lock;\n};\n").unwrap();
        assert!(edited.contains("\tstruct percpu_ref info_ref;\n"));
        // Only genksyms still sees the mutex.
        assert!(edited.contains("#else\n\tstruct mutex\t\tinfo_lock;\n#endif\n"));
        assert_eq!(edited.matches("#ifndef __GENKSYMS__").count(), 2);
        assert!(header("struct uio_device {\n};\n").is_err());
    }

    #[test]
    fn a_section_becomes_one_under_a_reference() {
        let section = |name: &str| {
            format!(
                "static int {name}(struct uio_device *idev)\n{{\n\tmutex_lock(&idev->info_lock);\n\tif (!idev->info) {{\n\
                 \t\tret = -EINVAL;\n\t}}\n\tmutex_unlock(&idev->info_lock);\n}}\n"
            )
        };
        let text: String = (0..9).map(|n| section(&format!("op{n}"))).collect();
        let edited = driver(&text).unwrap();
        assert_eq!(edited.matches("percpu_ref_tryget_live").count(), 9);
        assert_eq!(edited.matches("percpu_ref_put").count(), 9);
        assert_eq!(edited.matches("if (!live || !idev->info)").count(), 9);
        assert!(driver(&section("op")).is_err());
    }
}
