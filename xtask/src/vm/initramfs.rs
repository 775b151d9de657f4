//! What a guest boots into: busybox, the wanted modules, the testbed as PID 1, the tool, and the job it is to do.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use super::cpio::Archive;
use super::kernels::Kernel;
use crate::apt;

/// What a guest is to do.
#[derive(Debug, Clone, Default)]
pub struct Job {
    /// The command line run once everything is mounted.
    pub command: Vec<String>,
    /// Kernel modules loaded before it, in this order, each with its parameters.
    pub modules: Vec<String>,
    /// Give the command a controlling terminal of this size on the console.
    pub terminal: Option<Terminal>,
    /// Programs of this machine taken along, with the libraries they load.
    pub host_programs: Vec<PathBuf>,
}

/// The terminal in front of the harness.
#[derive(Debug, Clone)]
pub struct Terminal {
    /// Rows and columns.
    pub size: (u16, u16),
    /// TERM
    pub kind: String,
}

/// Programs for guests; each a static binary.
#[derive(Debug, Clone)]
pub struct Programs {
    /// PID 1, workloads and test runner.
    pub testbed: PathBuf,
    /// The tool itself, when it is built.
    pub tool: Option<PathBuf>,
}

/// Makes the archive.
pub fn build(
    kernel: &Kernel,
    programs: &Programs,
    testbed_modules: &[PathBuf],
    job: &Job,
) -> Result<Vec<u8>> {
    apt::ensure_installed(&["busybox-static"])?;
    let mut archive = Archive::default();
    for directory in [
        "proc", "sys", "dev", "tmp", "run", "etc", "root", "sbin", "usr/bin", "usr/sbin",
    ] {
        archive.directory(directory);
    }
    archive.character_device("dev/console", 5, 1);
    archive.file("bin/busybox", &read(Path::new("/bin/busybox"))?);
    archive.link("bin/sh", "busybox");
    archive.file("init", &read(&programs.testbed)?);
    archive.link("bin/testbed", "../init");
    if let Some(tool) = &programs.tool {
        archive.file("bin/uio-trace", &read(tool)?);
    }
    archive.file(
        "etc/passwd",
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    );
    archive.file("etc/group", b"root:x:0:\nnogroup:x:65534:\n");
    archive.file("etc/hostname", b"guest\n");

    let modules = format!("lib/modules/{}", kernel.release);
    archive.directory(&modules);
    let tree = kernel.module_tree().join(&modules);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&tree)
        .with_context(|| format!("cannot read {}", tree.display()))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    for file in files {
        if let Some(name) = file.file_name() {
            archive.file(&format!("{modules}/{}", name.to_string_lossy()), &read(&file)?);
        }
    }
    for module in testbed_modules {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        archive.file(&format!("lib/{name}"), &read(module)?);
    }
    for program in &job.host_programs {
        host_program(&mut archive, program)?;
    }
    archive.file("job.json", job.text(kernel).as_bytes());
    Ok(archive.finish())
}

impl Job {
    /// The job file that the testbed's PID 1 reads.
    fn text(&self, kernel: &Kernel) -> String {
        let terminal = self.terminal.as_ref().map(
            |terminal| json!({ "rows": terminal.size.0, "columns": terminal.size.1, "kind": terminal.kind }),
        );
        json!({
            "kernel": kernel.spec.name,
            "command": self.command,
            "modules": self.modules,
            "terminal": terminal,
        })
        .to_string()
    }
}

/// A dynamic program of this machine, its libraries at the paths where it looks for them.
fn host_program(archive: &mut Archive, program: &Path) -> Result<()> {
    let name = program
        .file_name()
        .with_context(|| format!("{} names no program", program.display()))?;
    archive.file(&format!("bin/{}", name.to_string_lossy()), &read(program)?);
    let mut command = std::process::Command::new("ldd");
    let output = command
        .arg(program)
        .output()
        .with_context(|| format!("cannot ask ldd about {}", program.display()))?;
    for library in libraries(&String::from_utf8_lossy(&output.stdout)) {
        archive.file(library.trim_start_matches('/'), &read(Path::new(library))?);
    }
    Ok(())
}

/// The paths in what ldd prints: `name => path (address)`, or `path (address)` for the loader. A static program has none.
fn libraries(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.split_once(" => ").map_or(line, |(_, path)| path).trim();
        let path = line.split_once(" (")?.0;
        path.starts_with('/').then_some(path)
    })
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::libraries;

    #[test]
    fn finds_libraries_and_loader() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n\tlibgone.so => not found\n";
        let found: Vec<&str> = libraries(text).collect();
        assert_eq!(
            found,
            ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
        );
        assert_eq!(libraries("\tnot a dynamic executable\n").count(), 0);
    }
}
