//! `cargo xtask vm`: boots a guest with a Debian kernel and runs a command in it. The other verbs that need a
//! guest use the same parts: kernels -> modules -> initramfs -> qemu -> verdict.

mod converted_uio;
mod cpio;
pub mod initramfs;
pub mod kernels;
pub mod libaio;
mod modules;
mod programs;
pub mod qemu;
mod testbed_module;
pub mod verdict;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::apt;
use crate::paths;
use crate::process::progress;
pub use initramfs::{Job, Programs};
pub use kernels::Kernel;
pub use programs::{build as build_programs, build_static};
pub use qemu::Guest;

/// Arguments of `cargo xtask vm`.
#[derive(Debug, Args)]
pub struct VmArgs {
    /// A kernel of the table: 6.12, 6.1, 6.12-rt, 5.10, sid.
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Processors.
    #[arg(long, default_value_t = 4)]
    smp: u32,
    /// Memory in MiB.
    #[arg(long, default_value_t = 1024)]
    mem: u32,
    /// Let the guest's clock count instructions (one processor).
    #[arg(long)]
    icount: bool,
    /// All processors in one thread of the emulator (docs/testing.md says what for).
    #[arg(long, conflicts_with = "icount")]
    one_thread: bool,
    /// A shell on this terminal.
    #[arg(long, conflicts_with = "command")]
    shell: bool,
    /// Modules to load first (default: uio and the testbed's); a module's parameters follow it after spaces.
    #[arg(long)]
    module: Vec<String>,
    /// A program of this machine to take along, with its libraries.
    #[arg(long, value_name = "PATH")]
    program: Vec<PathBuf>,
    /// More for the kernel's command line.
    #[arg(long, default_value = "")]
    append: String,
    /// The longest the guest may run, in seconds.
    #[arg(long, default_value_t = 1200)]
    limit: u64,
    /// The command run in the guest.
    #[arg(last = true)]
    command: Vec<String>,
}

/// The verb.
pub fn main(arguments: &VmArgs) -> Result<()> {
    let top = paths::workspace()?;
    if !arguments.shell && arguments.command.is_empty() {
        bail!("give a command after --, or --shell");
    }
    let programs = build_programs(&top)?;
    let kernel = kernels::provide(&paths::cache()?, kernels::find(&arguments.kernel)?)?;
    let modules = if arguments.module.is_empty() {
        default_modules()
    } else {
        arguments.module.clone()
    };
    let mut job = Job {
        command: arguments.command.clone(),
        modules,
        host_programs: arguments.program.clone(),
        terminal: None,
    };
    if arguments.shell {
        job.command = vec!["/bin/sh".to_owned()];
        return crate::run::interactive(&kernel, &programs, job, arguments.smp);
    }
    let mut guest = prepare(&kernel, &programs, &job, "vm")?;
    guest.smp = arguments.smp;
    guest.memory = arguments.mem;
    guest.icount = arguments.icount;
    guest.one_thread = arguments.one_thread;
    guest.kvm &= !arguments.icount;
    guest.verbose = true;
    guest.append = arguments.append.clone();
    guest.limit = Duration::from_secs(arguments.limit);
    guest.silence = guest.limit;
    let outcome = guest.watch(&mut |line| println!("{line}"))?;
    if let Some(problem) = outcome.problem() {
        bail!("{problem} (console: {})", guest.console_file().display());
    }
    match outcome.status() {
        Some(0) => Ok(()),
        status => bail!("the command in the guest ended with {}", status.unwrap_or(-1)),
    }
}

/// Loaded unless a job says otherwise: devices with known hold times.
pub fn default_modules() -> Vec<String> {
    vec!["uio_testbed devices=2".to_owned()]
}

/// Everything before the start of a guest: QEMU, modules, initramfs.
pub fn prepare(kernel: &Kernel, programs: &Programs, job: &Job, name: &str) -> Result<Guest> {
    apt::ensure_installed(&["qemu-system-x86"])?;
    let cache = paths::cache()?;
    let testbed = match testbed_module::provide(&cache, kernel) {
        Ok(modules) => modules,
        // Tests then use a TCMU device, which every kernel has; its hold time is not known beforehand.
        Err(error) => {
            let text = format!("{error:#}");
            // Of a compiler's output the line that says what is wrong.
            let line = text
                .lines()
                .find(|line| line.contains("error:"))
                .or(text.lines().next())
                .unwrap_or_default();
            progress(format!(
                "no testbed module on {} ({line}); a TCMU device stands in",
                kernel.release
            ));
            Vec::new()
        }
    };
    let folder = paths::workspace()?.join("target/guests");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let name = format!("{name}-{}", kernel.spec.name);
    let initramfs = folder.join(format!("{name}.cpio"));
    write(&initramfs, &initramfs::build(kernel, programs, &testbed, job)?)?;
    Ok(Guest {
        name,
        image: kernel.image(),
        initramfs,
        smp: 4,
        memory: 1024,
        icount: false,
        one_thread: false,
        kvm: kvm_works(&kernel.image(), &cache, &folder),
        folder,
        limit: Duration::from_secs(1200),
        silence: Duration::from_secs(120),
        verbose: false,
        append: String::new(),
    })
}

fn write(path: &PathBuf, content: &[u8]) -> Result<()> {
    std::fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// Whether a guest really boots under KVM here: the device alone does not say so (nested monitors exist that
/// offer it and cannot run a boot loader). The answer is kept until the machine boots again.
fn kvm_works(image: &Path, cache: &Path, folder: &Path) -> bool {
    if std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_err()
    {
        return false;
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let kept = cache.join("kvm-probe");
    let text = std::fs::read_to_string(&kept).unwrap_or_default();
    if let Some(answer) = text.strip_prefix(boot.trim()) {
        return answer.trim() == "works";
    }
    let works = probe_kvm(image, folder).unwrap_or(false);
    let answer = if works { "works" } else { "does not" };
    // Not kept means asked again, nothing worse.
    let _ = std::fs::write(&kept, format!("{} {answer}\n", boot.trim()));
    works
}

/// Boots a kernel without a root file system: its panic on the console is the proof that it ran.
fn probe_kvm(image: &Path, folder: &Path) -> Result<bool> {
    progress("trying a guest with KVM");
    let initramfs = folder.join("kvm-probe.cpio");
    write(&initramfs, &cpio::Archive::default().finish())?;
    let guest = Guest {
        name: "kvm-probe".to_owned(),
        image: image.to_path_buf(),
        initramfs,
        smp: 1,
        memory: 512,
        icount: false,
        one_thread: false,
        kvm: true,
        folder: folder.to_path_buf(),
        limit: Duration::from_secs(20),
        silence: Duration::from_secs(20),
        verbose: false,
        append: String::new(),
    };
    let outcome = guest.watch(&mut |_| {})?;
    Ok(matches!(outcome.ended, verdict::Ended::Hang(_)))
}
