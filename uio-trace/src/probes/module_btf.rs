//! fentry and fexit on a module's functions.
//!
//! The kernel wants to be told the module's BTF object (`attach_btf_obj_fd`), which aya never does. So these programs are
//! loaded here: taken out of the same object, with the maps aya made. A module that is loaded again has a new BTF object, and
//! its programs are loaded again.
//!
//! As long as such a program is loaded or attached, the kernel holds the module: in `bpf_check_attach_target` since 6.3, in
//! `register_fentry` before. `rmmod` fails, so this way is taken only where it was asked for, and given up when nobody else uses
//! the module (`session`).

use super::{
    attach::{refusal, system_error},
    bpf_call::{self, BtfObject, Load},
    catalog::{Attachment, Method},
};
use crate::kernel::{Root, btf::Btf};
use aya::{
    Ebpf,
    maps::{Map, MapData},
};
use aya_obj::{
    Object,
    generated::{bpf_attach_type, bpf_insn},
};
use std::{
    collections::{HashMap, HashSet},
    ffi::CString,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

/// Programs of the object with their maps filled in, ready to be loaded any number of times.
#[derive(Debug)]
pub struct ModulePrograms {
    code: HashMap<String, Vec<bpf_insn>>,
    license: CString,
    /// The code names these by number, whatever becomes of aya's.
    _maps: Vec<OwnedFd>,
}

/// A module's BTF: the kernel's object, to be named in calls, and the parsed file, to find functions in.
#[derive(Debug)]
pub struct Module {
    object: BtfObject,
    btf: Btf,
}

/// An attached program. Dropping it detaches, unloads, and lets go of the module.
#[derive(Debug)]
pub struct Trampoline {
    // In this order: what is detached first can be unloaded at once.
    _link: OwnedFd,
    program: OwnedFd,
    name: &'static str,
}

impl Trampoline {
    /// Its program's name and descriptor.
    pub fn program(&self) -> (&'static str, BorrowedFd<'_>) {
        (self.name, self.program.as_fd())
    }
}

fn map_data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::PerCpuArray(data)
        | Map::PerCpuHashMap(data)
        | Map::PerCpuLruHashMap(data)
        | Map::StackTraceMap(data)
        | Map::CgroupArray(data)
        | Map::RingBuf(data) => Some(data),
        _ => None,
    }
}

impl ModulePrograms {
    /// Takes the programs `wanted` out of the object. `ebpf` is the same object, loaded, and nothing taken out of it yet.
    ///
    /// # Errors
    /// A sentence: what in the object or its maps is not as expected.
    pub fn new(
        object: &[u8],
        ebpf: &Ebpf,
        wanted: impl Iterator<Item = &'static str>,
    ) -> Result<ModulePrograms, String> {
        let mut fds = HashMap::new();
        for (name, map) in ebpf.maps() {
            let data = map_data(map).ok_or_else(|| format!("BPF map {name} is of a type not expected"))?;
            let fd = data.fd().as_fd().try_clone_to_owned();
            fds.insert(name.to_owned(), fd.map_err(|e| format!("BPF map {name}: {e}"))?);
        }
        let code = relocated(object, &fds, wanted)?;
        Ok(ModulePrograms {
            code: code.programs,
            license: code.license,
            _maps: fds.into_values().collect(),
        })
    }

    /// Loads and attaches one program.
    ///
    /// # Errors
    /// One sentence for the user: what failed and the kernel's reason.
    pub fn attach(&self, module: &Module, attachment: &Attachment) -> Result<Trampoline, String> {
        let code = self
            .code
            .get(attachment.program)
            .ok_or_else(|| format!("the BPF object has no program {}", attachment.program))?;
        let function = function_of(attachment.target);
        let program = bpf_call::load(&Load {
            name: attachment.program,
            code,
            license: &self.license,
            attach: match attachment.method {
                Method::Fexit => bpf_attach_type::BPF_TRACE_FEXIT,
                _ => bpf_attach_type::BPF_TRACE_FENTRY,
            },
            btf: module.object.fd.as_fd(),
            function: module
                .btf
                .function_id(function)
                .ok_or_else(|| format!("{function} is not one function of the module's BTF"))?,
        })
        .map_err(|refused| refusal(&refused.error, &refused.log))?;
        let link = bpf_call::attach(program.as_fd()).map_err(|e| system_error(&e))?;
        Ok(Trampoline {
            _link: link,
            program,
            name: attachment.program,
        })
    }
}

/// The function of a target (`function` or `module:function`).
fn function_of(target: &str) -> &str {
    target.split_once(':').map_or(target, |(_, function)| function)
}

struct Relocated {
    programs: HashMap<String, Vec<bpf_insn>>,
    license: CString,
}

/// As aya does it when it loads an object. Globals need nothing: they are in a map.
fn relocated(
    object: &[u8],
    fds: &HashMap<String, OwnedFd>,
    wanted: impl Iterator<Item = &'static str>,
) -> Result<Relocated, String> {
    let mut object = Object::parse(object).map_err(|e| format!("the BPF object is malformed: {e}"))?;
    let maps = std::mem::take(&mut object.maps);
    let known = maps.iter().filter_map(|(name, map)| {
        let fd = fds.get(name)?;
        Some((name.as_str(), fd.as_raw_fd(), map))
    });
    let text: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    let failed = |e: aya_obj::relocation::EbpfRelocationError| format!("the BPF object is malformed: {e}");
    object.relocate_maps(known, &text).map_err(failed)?;
    object.relocate_calls(&text).map_err(failed)?;
    let mut programs = HashMap::new();
    for name in wanted {
        let function = object
            .programs
            .get(name)
            .and_then(|program| object.functions.get(&program.function_key()))
            .ok_or_else(|| format!("the BPF object has no program {name}"))?;
        programs.insert(name.to_owned(), function.instructions.clone());
    }
    Ok(Relocated {
        programs,
        license: object.license,
    })
}

impl Module {
    /// A module that is loaded now, with its parsed BTF.
    ///
    /// # Errors
    /// One sentence: why its BTF object is not to be had.
    pub fn find(name: &str, btf: Option<Btf>) -> Result<Module, String> {
        let btf = btf.ok_or_else(|| format!("this kernel has no BTF of module {name}"))?;
        match bpf_call::module_btf(name) {
            Ok(Some(object)) => Ok(Module { object, btf }),
            Ok(None) => Err(format!("the kernel has no BTF object of module {name}")),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(format!(
                "the BTF object of module {name} may not be looked for: CAP_SYS_ADMIN is needed"
            )),
            Err(error) => Err(format!("the BTF object of module {name}: {error}")),
        }
    }

    /// Its BTF.
    pub fn btf(&self) -> &Btf {
        &self.btf
    }
}

/// Why trampolines would lose operations on this kernel; `None`: they do not.
///
/// Their programs run with preemption on, and the kernel leaves out a program that is on this CPU's stack already, of whatever
/// thread (`__bpf_prog_enter_recur`). kprobe programs run with preemption off.
pub fn preempts(root: &Root, version: &str) -> Option<String> {
    if !version.split_whitespace().any(|word| word.starts_with("PREEMPT")) {
        return None;
    }
    if !version.contains("PREEMPT_DYNAMIC") {
        return Some("this kernel preempts, and would leave programs out".into());
    }
    // The mode chosen stands in parentheses.
    let Ok(modes) = root.text("sys/kernel/debug/sched/preempt") else {
        return Some(
            "whether this kernel preempts cannot be read (sched/preempt in debugfs): it might leave programs out"
                .into(),
        );
    };
    let mode = modes
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'))
        .map_or("unknown", |(mode, _)| mode);
    (!matches!(mode, "none" | "voluntary"))
        .then(|| format!("this kernel preempts (mode {mode}), and would leave programs out"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::{
        catalog::{CATALOG, Subject},
        session::OBJECT,
    };

    fn wanted() -> impl Iterator<Item = &'static str> {
        super::super::session::module_programs()
    }

    #[test]
    fn every_module_program_is_in_the_object_with_its_maps_filled_in() {
        // Any descriptor does: what is looked at is where it goes.
        let object = Object::parse(OBJECT).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let fds: HashMap<String, OwnedFd> = object
            .maps
            .keys()
            .map(|name| (name.clone(), null.as_fd().try_clone_to_owned().unwrap()))
            .collect();
        let numbers: HashSet<i32> = fds.values().map(AsRawFd::as_raw_fd).collect();
        let code = relocated(OBJECT, &fds, wanted()).unwrap();
        assert_eq!(code.license.to_bytes(), b"Dual MIT/GPL");
        assert!(code.programs.len() >= 14, "{:?}", code.programs.keys());
        // BPF_LD | BPF_IMM | BPF_DW loads; source register 1 or 2 (BPF_PSEUDO_MAP_FD, BPF_PSEUDO_MAP_VALUE) names a map.
        for (name, instructions) in &code.programs {
            let loads = instructions
                .iter()
                .filter(|i| i.code == 0x18 && matches!(i.src_reg(), 1 | 2));
            let found: Vec<i32> = loads.map(|load| load.imm).collect();
            assert!(!found.is_empty(), "{name} uses no map");
            assert!(found.iter().all(|fd| numbers.contains(fd)), "{name}: {found:?}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = relocated(OBJECT, &HashMap::new(), ["no_such_program"].into_iter());
        assert!(error.is_err());
    }

    #[test]
    fn each_uio_hook_without_twins_has_trampolines_and_kprobes() {
        for hook in CATALOG.iter().filter(|hook| hook.subject == Subject::Uio) {
            let methods: Vec<Vec<Method>> = hook
                .ways
                .iter()
                .map(|way| way.iter().map(|attachment| attachment.method).collect())
                .collect();
            let kprobes = vec![Method::Kprobe, Method::Kretprobe];
            let has_twins = hook.ways[0][0].target.contains(':');
            if has_twins {
                assert_eq!(methods, [kprobes], "{}", hook.name);
            } else {
                let trampolines = vec![Method::Fentry, Method::Fexit];
                assert_eq!(methods, [trampolines, kprobes], "{}", hook.name);
            }
        }
    }

    #[test]
    fn targets_with_and_without_module() {
        assert_eq!(function_of("uio_write"), "uio_write");
        assert_eq!(function_of("uio:name_show"), "name_show");
    }

    #[test]
    fn only_kernels_that_do_not_preempt() {
        let folder = std::env::temp_dir().join(format!("uio-trace-preempt-{}", std::process::id()));
        let root = Root::at(&folder);
        assert_eq!(preempts(&root, "#1 SMP Debian 5.10.223-1"), None);
        assert!(preempts(&root, "#1 SMP PREEMPT_RT Debian 6.12.117-1").is_some());
        let dynamic = "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1";
        assert!(preempts(&root, dynamic).unwrap().contains("cannot be read"));
        std::fs::create_dir_all(folder.join("sys/kernel/debug/sched")).unwrap();
        let file = folder.join("sys/kernel/debug/sched/preempt");
        for (text, may) in [
            ("none (voluntary) full", true),
            ("(none) voluntary full lazy", true),
            ("none voluntary (full)", false),
            ("none voluntary full (lazy)", false),
            ("(undefined)", false),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(preempts(&root, dynamic).is_none(), may, "{text}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
