//! Loaded BPF programs, as the kernel tells about them.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

// enum bpf_cmd, include/uapi/linux/bpf.h
const PROG_GET_NEXT_ID: u32 = 11;
const PROG_GET_FD_BY_ID: u32 = 13;
const OBJ_GET_INFO_BY_FD: u32 = 15;

/// Places in `struct bpf_prog_info`, bytes.
const NAME: std::ops::Range<usize> = 64..80;
const RUN_COUNT: std::ops::Range<usize> = 200..208;
const INFO_SIZE: usize = 216;

/// Ids of objects that exist, by the command that goes through them.
pub fn ids(command: u32) -> Vec<u32> {
    let mut ids = Vec::new();
    let mut id = 0_u32;
    loop {
        // The part of union bpf_attr that *_GET_NEXT_ID uses: start_id, next_id, open_flags.
        let mut attributes = [id, 0, 0];
        // SAFETY: the kernel reads and writes the twelve bytes given.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), 12) };
        if result != 0 {
            return ids;
        }
        id = attributes[1];
        ids.push(id);
    }
}

/// A loaded program, held open.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    /// Its name, of which the kernel keeps 15 bytes.
    pub name: String,
}

/// All loaded programs.
pub fn all() -> Vec<Program> {
    ids(PROG_GET_NEXT_ID).into_iter().filter_map(open).collect()
}

fn open(id: u32) -> Option<Program> {
    // prog_id, next_id, open_flags
    let mut attributes = [id, 0, 0];
    // SAFETY: the kernel reads the twelve bytes given.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, PROG_GET_FD_BY_ID, attributes.as_mut_ptr(), 12) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: a new descriptor that nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let about = info(&fd)?;
    let name = about[NAME].iter().take_while(|byte| **byte != 0);
    let name = name.map(|byte| char::from(*byte)).collect();
    Some(Program { fd, name })
}

fn info(fd: &OwnedFd) -> Option<[u8; INFO_SIZE]> {
    /// The part of union bpf_attr that BPF_OBJ_GET_INFO_BY_FD uses.
    #[repr(C)]
    struct Attributes {
        fd: i32,
        length: u32,
        info: u64,
    }
    let mut info = [0; INFO_SIZE];
    let mut attributes = Attributes {
        fd: fd.as_raw_fd(),
        length: INFO_SIZE as u32,
        info: info.as_mut_ptr() as u64,
    };
    // SAFETY: the attributes live through the call and name a buffer of the size they say.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            OBJ_GET_INFO_BY_FD,
            &raw mut attributes,
            size_of::<Attributes>(),
        )
    };
    (result == 0).then_some(info)
}

impl Program {
    /// Runs that the kernel has counted, which it does only while somebody asks for it.
    pub fn runs(&self) -> Option<u64> {
        let bytes = info(&self.fd)?[RUN_COUNT].try_into().ok()?;
        Some(u64::from_ne_bytes(bytes))
    }
}

const MAP_CREATE: u32 = 0;
const MAP_LOOKUP_ELEM: u32 = 1;
/// enum bpf_map_type
const MAP_TYPE_ARRAY: u32 = 2;
/// What [`ReadMap`] reads at a time, bytes.
const VALUE_BYTES: u32 = 64 << 10;

/// A map of this process's own, as any program that uses BPF has some.
#[derive(Debug)]
pub struct ReadMap(OwnedFd);

impl ReadMap {
    /// An array with one large value.
    pub fn create() -> std::io::Result<ReadMap> {
        let unlimited = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        // Before 5.11 a map counts as locked memory.
        // SAFETY: the kernel only reads the struct.
        if unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const unlimited) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // map_type, key_size, value_size, max_entries
        let mut attributes = [MAP_TYPE_ARRAY, 4, VALUE_BYTES, 1];
        // SAFETY: the kernel reads the sixteen bytes given.
        let fd = unsafe { libc::syscall(libc::SYS_bpf, MAP_CREATE, attributes.as_mut_ptr(), 16) };
        let fd = i32::try_from(fd).map_err(std::io::Error::other)?;
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(ReadMap(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Reads its value.
    pub fn read(&self) -> std::io::Result<()> {
        /// The part of union bpf_attr that BPF_MAP_LOOKUP_ELEM uses.
        #[repr(C)]
        struct Attributes {
            fd: u64,
            key: u64,
            value: u64,
            flags: u64,
        }
        let key = 0_u32;
        let mut value = vec![0_u8; VALUE_BYTES as usize];
        let mut attributes = Attributes {
            fd: u64::from(self.0.as_raw_fd().unsigned_abs()),
            key: &raw const key as u64,
            value: value.as_mut_ptr() as u64,
            flags: 0,
        };
        // SAFETY: the attributes live through the call and name a key and a buffer of the map's sizes.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                MAP_LOOKUP_ELEM,
                &raw mut attributes,
                size_of::<Attributes>(),
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    }
}
