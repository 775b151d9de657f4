//! Every hook: the kernel function, the programs and ways that can serve it in order of preference, and what is missing
//! on the screen without it. Adding a probe starts here (CONTRIBUTING.md).

use crate::model::snapshot::CONTENTION_HOOK;

/// What a hook is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// UIO operations. Attached while the uio module is there.
    Uio,
    /// Lock waits inside UIO operations.
    Lock,
    /// percpu_ref mode switches.
    PercpuRef,
    /// AIO contexts.
    Aio,
}

impl Subject {
    /// Name in `meta.probes`.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Uio => "uio",
            Subject::Lock => "lock",
            Subject::PercpuRef => "percpu_ref",
            Subject::Aio => "aio",
        }
    }
}

/// A way of attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// BPF trampoline at a function's entry.
    Fentry,
    /// BPF trampoline at a function's return.
    Fexit,
    /// kprobe at the entry.
    Kprobe,
    /// kretprobe at the return.
    Kretprobe,
    /// Tracepoint with BTF types.
    TpBtf,
    /// Hardware execute breakpoint, one per CPU.
    Breakpoint,
}

impl Method {
    /// Name in `meta.probes`.
    pub fn name(self) -> &'static str {
        match self {
            Method::Fentry => "fentry",
            Method::Fexit => "fexit",
            Method::Kprobe => "kprobe",
            Method::Kretprobe => "kretprobe",
            Method::TpBtf => "tp_btf",
            Method::Breakpoint => "breakpoint",
        }
    }
}

/// One program at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attachment {
    /// How.
    pub method: Method,
    /// Program in the BPF object.
    pub program: &'static str,
    /// Kernel function or tracepoint; `module:function` where the plain name has twins.
    pub target: &'static str,
}

/// One way to serve a hook: all of its attachments, or none.
pub type Way = &'static [Attachment];

/// One row of `check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// Subject.
    pub subject: Subject,
    /// Name shown: the function or tracepoint.
    pub name: &'static str,
    /// Ways in order of preference.
    pub ways: &'static [Way],
    /// Members in vmlinux's BTF without which the programs see nothing.
    pub needs: &'static [(&'static str, &'static str)],
    /// What it gives.
    pub gives: &'static str,
    /// Nothing of the subject can be shown without it.
    pub required: bool,
    /// Not tried when that hook is attached already: another way to the same figures.
    pub instead_of: Option<&'static str>,
}

const fn at(method: Method, program: &'static str, target: &'static str) -> Attachment {
    Attachment {
        method,
        program,
        target,
    }
}

use Method::{Breakpoint, Fentry, Fexit, Kprobe, Kretprobe, TpBtf};

/// The system call function of `io_destroy(2)`.
#[cfg(target_arch = "aarch64")]
const SYS_IO_DESTROY: &str = "__arm64_sys_io_destroy";
/// The system call function of `io_destroy(2)`.
#[cfg(not(target_arch = "aarch64"))]
const SYS_IO_DESTROY: &str = "__x64_sys_io_destroy";

const FILE: &[(&str, &str)] = &[("file", "private_data")];
const REF: &[(&str, &str)] = &[("percpu_ref", "data"), ("percpu_ref_data", "release")];

/// A UIO operation: entry and exit together, fentry and fexit where they are asked for. The exit comes second: what is
/// registered last runs first, so the entry program's clock is read after the kretprobe's own work; and a call that was under
/// way has no exit without an entry.
macro_rules! uio {
    ($name:literal, $target:literal, [$entry:literal, $exit:literal],
     $needs:expr, $gives:literal, $required:literal $(, [$fentry:literal, $fexit:literal])?) => {
        Hook {
            subject: Subject::Uio,
            name: $name,
            ways: &[
                $(&[at(Fentry, $fentry, $target), at(Fexit, $fexit, $target)],)?
                &[at(Kprobe, $entry, $target), at(Kretprobe, $exit, $target)],
            ],
            needs: $needs,
            gives: $gives,
            required: $required,
            instead_of: None,
        }
    };
}

/// All hooks, in attachment order.
pub const CATALOG: &[Hook] = &[
    Hook {
        subject: Subject::Aio,
        name: "exit_aio",
        ways: &[
            &[at(Fexit, "exit_aio_exit", "exit_aio")],
            &[at(Kretprobe, "exit_aio_kretprobe", "exit_aio")],
        ],
        needs: &[],
        gives: "end of a process's AIO drain",
        required: false,
        instead_of: None,
    },
    Hook {
        subject: Subject::Aio,
        name: "io_destroy",
        ways: &[
            &[
                at(Fexit, "io_destroy_exit", SYS_IO_DESTROY),
                at(Fentry, "io_destroy_entry", SYS_IO_DESTROY),
            ],
            &[
                at(Kretprobe, "io_destroy_kretprobe", SYS_IO_DESTROY),
                at(Kprobe, "io_destroy_kprobe", SYS_IO_DESTROY),
            ],
        ],
        needs: &[],
        gives: "begin and end of io_destroy(2); without it its contexts look like those of an exit",
        required: false,
        instead_of: None,
    },
    Hook {
        subject: Subject::Aio,
        name: "kill_ioctx",
        ways: &[
            &[at(Fentry, "kill_ioctx_entry", "kill_ioctx")],
            &[at(Kprobe, "kill_ioctx_kprobe", "kill_ioctx")],
        ],
        needs: &[("kioctx", "users"), ("kioctx", "reqs")],
        gives: "contexts of a drain, its process",
        required: true,
        instead_of: None,
    },
    Hook {
        subject: Subject::Aio,
        name: "free_ioctx_users",
        ways: &[
            &[at(Fentry, "free_ioctx_users_entry", "free_ioctx_users")],
            &[at(Kprobe, "free_ioctx_users_kprobe", "free_ioctx_users")],
        ],
        needs: &[("kioctx", "users")],
        gives: "end of a context's first half",
        required: false,
        instead_of: None,
    },
    Hook {
        subject: Subject::Aio,
        name: "free_ioctx_reqs",
        ways: &[
            &[at(Fentry, "free_ioctx_reqs_entry", "free_ioctx_reqs")],
            &[at(Kprobe, "free_ioctx_reqs_kprobe", "free_ioctx_reqs")],
        ],
        needs: &[("kioctx", "reqs")],
        gives: "end of a context's drain",
        required: true,
        instead_of: None,
    },
    Hook {
        subject: Subject::Aio,
        name: "free_ioctx_reqs request",
        ways: &[&[at(Kprobe, "free_ioctx_reqs_request", "free_ioctx_reqs")]],
        needs: &[
            ("kioctx", "reqs"),
            ("aio_kiocb", "ki_ctx"),
            ("aio_kiocb", "ki_filp"),
            ("file", "f_inode"),
            ("file", "f_path.dentry"),
            ("dentry", "d_name.name"),
        ],
        gives: "file and disk of the request that a drain waited for",
        required: false,
        instead_of: None,
    },
    Hook {
        subject: Subject::PercpuRef,
        name: "percpu_ref_switch_to_atomic_rcu",
        ways: &[
            &[at(
                Breakpoint,
                "ref_switched_breakpoint",
                "percpu_ref_switch_to_atomic_rcu",
            )],
            &[at(
                Kprobe,
                "ref_switched_kprobe",
                "percpu_ref_switch_to_atomic_rcu",
            )],
        ],
        needs: REF,
        gives: "switches to atomic mode: grace periods apart from the rest",
        required: false,
        instead_of: None,
    },
    Hook {
        subject: Subject::PercpuRef,
        name: "percpu_ref_kill_and_confirm",
        ways: &[
            &[at(
                Breakpoint,
                "ref_kill_breakpoint",
                "percpu_ref_kill_and_confirm",
            )],
            &[at(Kprobe, "ref_kill_kprobe", "percpu_ref_kill_and_confirm")],
        ],
        needs: REF,
        gives: "kills: owner, killer, begin of the grace period",
        required: true,
        instead_of: None,
    },
    uio!(
        "uio_write",
        "uio_write",
        ["uio_write_entry", "uio_exit"],
        FILE,
        "writes",
        true,
        ["uio_write_fentry", "uio_write_fexit"]
    ),
    uio!(
        "uio_read",
        "uio_read",
        ["uio_read_entry", "uio_exit"],
        FILE,
        "reads",
        false,
        ["uio_read_fentry", "uio_read_fexit"]
    ),
    uio!(
        "uio_poll",
        "uio_poll",
        ["uio_poll_entry", "uio_exit"],
        FILE,
        "polls",
        false,
        ["uio_poll_fentry", "uio_two_fexit"]
    ),
    uio!(
        "uio_mmap",
        "uio_mmap",
        ["uio_mmap_entry", "uio_exit"],
        FILE,
        "mmaps",
        false,
        ["uio_mmap_fentry", "uio_two_fexit"]
    ),
    uio!(
        "uio_vma_fault",
        "uio_vma_fault",
        ["uio_fault_entry", "uio_fault_exit"],
        &[("vm_fault", "vma"), ("vm_area_struct", "vm_private_data")],
        "page faults on device memory",
        false,
        ["uio_fault_fentry", "uio_fault_fexit"]
    ),
    uio!(
        "uio_open",
        "uio_open",
        ["uio_open_entry", "uio_exit"],
        &[("inode", "i_rdev")],
        "opens",
        false,
        ["uio_open_fentry", "uio_two_fexit"]
    ),
    uio!(
        "uio_release",
        "uio_release",
        ["uio_release_entry", "uio_exit"],
        FILE,
        "releases",
        false,
        ["uio_release_fentry", "uio_two_fexit"]
    ),
    // Without fentry: before 6.3 the kernel takes the first function of that name, whichever module's BTF it is told
    // (kernel/bpf/verifier.c, bpf_check_attach_target), and these two have many twins.
    uio!(
        "name_show",
        "uio:name_show",
        ["uio_name_show_entry", "uio_exit"],
        &[("device", "driver_data")],
        "reads of the name attribute",
        false
    ),
    uio!(
        "version_show",
        "uio:version_show",
        ["uio_version_show_entry", "uio_exit"],
        &[("device", "driver_data")],
        "reads of the version attribute",
        false
    ),
    uio!(
        "uio_unregister_device",
        "uio_unregister_device",
        ["uio_unregister_entry", "uio_exit"],
        &[],
        "unregistrations: tells a re-registered minor from its predecessor",
        false,
        ["uio_unregister_fentry", "uio_unregister_fexit"]
    ),
    uio!(
        "__uio_register_device",
        "__uio_register_device",
        ["uio_register_entry", "uio_register_exit"],
        &[],
        "registrations: tells a device from one that lived at its address",
        false,
        ["uio_register_fentry", "uio_register_fexit"]
    ),
    Hook {
        subject: Subject::Lock,
        name: CONTENTION_HOOK,
        ways: &[&[
            at(TpBtf, "lock_contention_end", "contention_end"),
            at(TpBtf, "lock_contention_begin", "contention_begin"),
        ]],
        needs: &[],
        gives: "waits for info_lock and for drivers' locks",
        required: false,
        instead_of: None,
    },
    Hook {
        subject: Subject::Lock,
        name: "__mutex_lock_slowpath",
        ways: &[&[
            at(Kretprobe, "lock_slowpath_exit", "__mutex_lock_slowpath"),
            at(Kprobe, "lock_slowpath_entry", "__mutex_lock_slowpath"),
        ]],
        needs: &[],
        gives: "waits for info_lock and for drivers' mutexes",
        required: false,
        instead_of: Some("contention_begin/end"),
    },
    Hook {
        subject: Subject::Lock,
        name: "mutex release",
        ways: &[
            &[at(TpBtf, "lock_contended_release", "contended_release")],
            &[at(Kprobe, "lock_unlock_slowpath", "__mutex_unlock_slowpath")],
            // The compiler's clones of the static function; the lock stays its first argument.
            &[at(
                Kprobe,
                "lock_unlock_slowpath",
                "__mutex_unlock_slowpath.constprop.0",
            )],
            &[at(
                Kprobe,
                "lock_unlock_slowpath",
                "__mutex_unlock_slowpath.isra.0",
            )],
        ],
        needs: &[],
        gives: "end of a hold when others wait; without it the hold includes waking them",
        required: false,
        instead_of: None,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_every_hook_has_a_way() {
        let mut seen = HashSet::new();
        for hook in CATALOG {
            assert!(seen.insert(hook.name), "{} twice", hook.name);
            assert!(
                !hook.ways.is_empty() && hook.ways.iter().all(|way| !way.is_empty()),
                "{}",
                hook.name
            );
            if let Some(other) = hook.instead_of {
                assert!(seen.contains(other), "{} must come after {other}", hook.name);
            }
        }
    }
}
