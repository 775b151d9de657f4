//! The few bpf(2) calls that aya does not make: finding a module's BTF object, loading a program for a function of a module.
//!
//! Descriptors come back owned: dropping a link detaches, dropping a program unloads it.

use aya_obj::generated::{
    bpf_attach_type, bpf_attr, bpf_btf_info, bpf_cmd, bpf_insn, bpf_prog_info, bpf_prog_type, bpf_stats_type,
};
use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// Room for the verifier's words about a program it refused. Kernels that do not turn the log over keep its begin.
const LOG_BYTES: usize = 4 << 20;

/// A BTF object in the kernel.
#[derive(Debug)]
pub struct BtfObject {
    /// Its descriptor.
    pub fd: OwnedFd,
    /// Name of the module; `vmlinux`; empty: of a program.
    pub name: String,
}

/// A program to load.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// Shown by the kernel; cut at 15 bytes.
    pub name: &'a str,
    /// Code, with descriptors of maps filled in.
    pub code: &'a [bpf_insn],
    /// Licence the kernel is told.
    pub license: &'a CStr,
    /// `BPF_TRACE_FENTRY` or `BPF_TRACE_FEXIT`.
    pub attach: bpf_attach_type,
    /// BTF object of the function.
    pub btf: BorrowedFd<'a>,
    /// Type id of the function in it.
    pub function: u32,
}

/// Why a program was not loaded.
#[derive(Debug)]
pub struct Refused {
    /// The kernel's reason.
    pub error: io::Error,
    /// What the verifier said; empty: nothing.
    pub log: String,
}

fn attributes() -> bpf_attr {
    // SAFETY: a union of structs of integers, for which zeros are values; the kernel wants unused bytes to be zero.
    unsafe { std::mem::zeroed() }
}

fn call(command: bpf_cmd, attributes: &mut bpf_attr) -> io::Result<libc::c_long> {
    // SAFETY: the attributes live through the call, their size is told; every pointer in them is to memory that the caller
    // holds borrowed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_long,
            std::ptr::from_mut(attributes),
            size_of::<bpf_attr>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

fn descriptor(command: bpf_cmd, attributes: &mut bpf_attr) -> io::Result<OwnedFd> {
    let fd = call(command, attributes)?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: these commands return a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `BPF_OBJ_GET_INFO_BY_FD`: fills in what the kernel knows, and leaves the rest as it is.
fn info<T>(fd: BorrowedFd<'_>, info: &mut T) -> io::Result<()> {
    let mut attributes = attributes();
    attributes.info.bpf_fd = fd.as_raw_fd() as u32;
    attributes.info.info_len = size_of::<T>() as u32;
    attributes.info.info = std::ptr::from_mut(info) as u64;
    call(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attributes).map(drop)
}

/// What the kernel has counted of a loaded program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProgramCounts {
    /// Runs while statistics were kept.
    pub runs: u64,
    /// Time they took, ns.
    pub run_ns: u64,
    /// Runs left out because the program, or one that shares its kind of attachment, was running on that CPU already
    /// (since 5.12; 0 before).
    pub missed: u64,
}

/// Counts of a program.
///
/// # Errors
/// The kernel's reason.
pub fn program_counts(program: BorrowedFd<'_>) -> io::Result<ProgramCounts> {
    // SAFETY: a struct of integers, for which zeros are values.
    let mut about: bpf_prog_info = unsafe { std::mem::zeroed() };
    info(program, &mut about)?;
    Ok(ProgramCounts {
        runs: about.run_cnt,
        run_ns: about.run_time_ns,
        missed: about.recursion_misses,
    })
}

/// The kernel counts how often and how long BPF programs run for as long as this descriptor is open, whatever becomes of this
/// process; nothing has to be put back (`BPF_ENABLE_STATS`, kernel/bpf/syscall.c, since 5.8).
///
/// # Errors
/// The kernel's reason; EPERM: CAP_SYS_ADMIN is needed.
pub fn keep_statistics() -> io::Result<OwnedFd> {
    let mut attributes = attributes();
    attributes.enable_stats.type_ = bpf_stats_type::BPF_STATS_RUN_TIME as u32;
    descriptor(bpf_cmd::BPF_ENABLE_STATS, &mut attributes)
}

/// The BTF object of a module that is loaded now; `None`: the kernel has none of that name.
///
/// # Errors
/// The kernel's reason; EPERM: CAP_SYS_ADMIN is needed to go through the objects.
pub fn module_btf(module: &str) -> io::Result<Option<BtfObject>> {
    let mut last = 0;
    loop {
        let mut next = attributes();
        next.__bindgen_anon_6.__bindgen_anon_1.start_id = last;
        match call(bpf_cmd::BPF_BTF_GET_NEXT_ID, &mut next) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            Err(error) => return Err(error),
        }
        // SAFETY: the member of the union that this command fills in.
        last = unsafe { next.__bindgen_anon_6.next_id };
        match btf_by_id(last) {
            Ok(object) if object.name == module => return Ok(Some(object)),
            Ok(_) => {}
            // Gone between the two calls.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => return Err(error),
        }
    }
}

fn btf_by_id(id: u32) -> io::Result<BtfObject> {
    let mut by_id = attributes();
    by_id.__bindgen_anon_6.__bindgen_anon_1.btf_id = id;
    let fd = descriptor(bpf_cmd::BPF_BTF_GET_FD_BY_ID, &mut by_id)?;
    // MODULE_NAME_LEN
    let mut name = [0_u8; 64];
    // SAFETY: a struct of integers, for which zeros are values.
    let mut about: bpf_btf_info = unsafe { std::mem::zeroed() };
    about.name = name.as_mut_ptr() as u64;
    about.name_len = name.len() as u32;
    info(fd.as_fd(), &mut about)?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let name = String::from_utf8_lossy(&name[..end]).into_owned();
    Ok(BtfObject { fd, name })
}

/// Loads a tracing program; when it is refused, once more, to hear why.
///
/// # Errors
/// [`Refused`].
pub fn load(program: &Load<'_>) -> Result<OwnedFd, Refused> {
    let error = match try_load(program, &mut []) {
        Ok(loaded) => return Ok(loaded),
        Err(error) => error,
    };
    let mut log = vec![0_u8; LOG_BYTES];
    match try_load(program, &mut log) {
        Ok(loaded) => Ok(loaded),
        Err(_) => {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
            Err(Refused {
                error,
                log: String::from_utf8_lossy(&log[..end]).into_owned(),
            })
        }
    }
}

fn try_load(program: &Load<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attributes = attributes();
    {
        // SAFETY: zeros are values of every member; this is the one that BPF_PROG_LOAD reads.
        let load = unsafe { &mut attributes.__bindgen_anon_3 };
        load.prog_type = bpf_prog_type::BPF_PROG_TYPE_TRACING as u32;
        load.expected_attach_type = program.attach as u32;
        load.insns = program.code.as_ptr() as u64;
        load.insn_cnt = program.code.len() as u32;
        load.license = program.license.as_ptr() as u64;
        load.attach_btf_id = program.function;
        load.__bindgen_anon_1.attach_btf_obj_fd = program.btf.as_raw_fd() as u32;
        let room = load.prog_name.len() - 1;
        for (to, from) in load.prog_name[..room].iter_mut().zip(program.name.bytes()) {
            *to = from as libc::c_char;
        }
        if !log.is_empty() {
            load.log_level = 1;
            load.log_buf = log.as_mut_ptr() as u64;
            load.log_size = log.len() as u32;
        }
    }
    descriptor(bpf_cmd::BPF_PROG_LOAD, &mut attributes)
}

/// Attaches a loaded fentry or fexit program to the function it was loaded for.
///
/// # Errors
/// The kernel's reason.
pub fn attach(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut attributes = attributes();
    attributes.raw_tracepoint.prog_fd = program.as_raw_fd() as u32;
    descriptor(bpf_cmd::BPF_RAW_TRACEPOINT_OPEN, &mut attributes)
}
