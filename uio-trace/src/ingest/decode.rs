//! Bytes of a ring entry to an [`Event`]: pure, bounds-checked, rejects what it does not know.

use crate::event::{DeviceKey, Event, EventKind, KernelPtr, RefState, RequestFile, Task, UioOp, UioSlow};
use thiserror::Error;
use uio_trace_common::event as raw;
use zerocopy::FromBytes;

/// Why an entry is not understood. Counted, never ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Shorter than its kind needs.
    #[error("event of kind {kind} is cut off: {len} bytes")]
    Short {
        /// Kind, 0 if not even the header is whole.
        kind: u32,
        /// Bytes there are.
        len: usize,
    },
    /// A kind this version does not know.
    #[error("unknown event kind {0}")]
    Kind(u32),
    /// An operation number this version does not know.
    #[error("unknown UIO operation {0}")]
    Op(u32),
}

/// percpu_ref: `__PERCPU_REF_ATOMIC`, include/linux/percpu-refcount.h.
const REF_ATOMIC: u64 = 1;
/// percpu_ref: `__PERCPU_REF_DEAD`.
const REF_DEAD: u64 = 2;
/// `PERCPU_COUNT_BIAS`, lib/percpu-refcount.c: in the count until the switch to atomic mode has summed the counters.
const COUNT_BIAS: u64 = 1 << 63;
/// A count is nearer to [`COUNT_BIAS`] than this while it has the bias.
const HALF_BIAS: u64 = 1 << 62;

/// Low bits of a kernel `dev_t` that are the minor, include/linux/kdev_t.h.
const MINOR_BITS: u32 = 20;
/// `S_IFMT` and `S_IFBLK`, include/uapi/linux/stat.h.
const FILE_TYPE: u32 = 0o170_000;
const BLOCK_DEVICE: u32 = 0o060_000;

/// What the members of a ref say. `back`: where its data leads back to.
fn ref_state(look: &raw::RefLook) -> RefState {
    if look.back != look.reference {
        return RefState::Gone;
    }
    if look.count_ptr & REF_DEAD == 0 {
        return RefState::Alive;
    }
    // The distance to the bias, whichever side of it: gets and puts go on in the atomic count meanwhile.
    let distance = look.count.wrapping_sub(COUNT_BIAS) as i64;
    if look.count_ptr & REF_ATOMIC == 0 || distance.unsigned_abs() < HALF_BIAS {
        return RefState::GracePeriod;
    }
    RefState::Held(look.count)
}

/// A task name as text: up to the first NUL, control characters and broken UTF-8 replaced.
pub fn comm(bytes: &[u8; 16]) -> String {
    printable(bytes)
}

fn printable(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    let bytes = &bytes[..end];
    if bytes.iter().all(|b| (0x20..0x7f).contains(b)) {
        return bytes.iter().map(|&b| b as char).collect();
    }
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

fn payload<T: FromBytes>(kind: u32, bytes: &[u8]) -> Result<T, DecodeError> {
    T::read_from_prefix(bytes)
        .map(|(value, _)| value)
        .map_err(|_| DecodeError::Short {
            kind,
            len: bytes.len(),
        })
}

/// Whether the programs have found `current` outside of the cgroup that was asked for.
pub fn outside(bytes: &[u8]) -> bool {
    raw::EventHeader::read_from_prefix(bytes).is_ok_and(|(header, _)| header.kind & raw::OUTSIDE != 0)
}

/// One entry.
///
/// # Errors
/// [`DecodeError`]: cut off, or of a kind not known.
pub fn decode(bytes: &[u8]) -> Result<Event, DecodeError> {
    let (header, body) = raw::EventHeader::read_from_prefix(bytes).map_err(|_| DecodeError::Short {
        kind: 0,
        len: bytes.len(),
    })?;
    let kind = header.kind & !raw::OUTSIDE;
    let by = || Task {
        tgid: header.tgid,
        tid: header.tid,
        comm: comm(&header.comm),
    };
    let event = match kind {
        raw::KIND_REF_KILL => {
            let kill: raw::RefKill = payload(kind, body)?;
            EventKind::RefKill {
                by: by(),
                reference: KernelPtr(kill.reference),
                release: KernelPtr(kill.release),
                confirm: (kill.confirm != 0).then_some(KernelPtr(kill.confirm)),
                already_atomic: kill.count_ptr & REF_ATOMIC != 0,
                already_dead: kill.count_ptr & REF_DEAD != 0,
                // Atomic and yet with the bias: a switch is under way.
                references: (kill.count_ptr & REF_ATOMIC != 0 && kill.count < HALF_BIAS)
                    .then(|| kill.count.saturating_sub(1)),
                stack: u32::try_from(kill.stack).ok(),
            }
        }
        raw::KIND_REF_SWITCHED => {
            let switched: raw::RefSwitched = payload(kind, body)?;
            EventKind::RefSwitched {
                reference: KernelPtr(switched.reference),
                release: KernelPtr(switched.release),
                // Less the one that the switch itself holds until its end. More than any count: a ref used wrongly.
                references: (switched.counted == 1
                    && switched.count_ptr & REF_DEAD != 0
                    && switched.count < HALF_BIAS)
                    .then(|| switched.count.saturating_sub(1)),
            }
        }
        raw::KIND_REF_LOOK => {
            let look: raw::RefLook = payload(kind, body)?;
            EventKind::RefLooked {
                reference: KernelPtr(look.reference),
                release: KernelPtr(look.release),
                state: ref_state(&look),
            }
        }
        raw::KIND_REF_RELEASED => {
            let released: raw::RefReleased = payload(kind, body)?;
            EventKind::RefReleased {
                reference: KernelPtr(released.reference),
                release: KernelPtr(released.release),
                early: released.confirm != 0,
            }
        }
        raw::KIND_EXIT_AIO_BEGIN | raw::KIND_EXIT_AIO_END => {
            let exit: raw::ExitAio = payload(kind, body)?;
            let (by, mm) = (by(), KernelPtr(exit.mm));
            if kind == raw::KIND_EXIT_AIO_BEGIN {
                EventKind::ExitAioBegin { by, mm }
            } else {
                EventKind::ExitAioEnd { by, mm }
            }
        }
        raw::KIND_IO_DESTROY_BEGIN => {
            let call: raw::IoDestroy = payload(kind, body)?;
            EventKind::IoDestroyBegin {
                by: by(),
                user_id: call.user_id,
            }
        }
        raw::KIND_IO_DESTROY_END => {
            let call: raw::IoDestroy = payload(kind, body)?;
            EventKind::IoDestroyEnd {
                by: by(),
                ret: call.ret,
            }
        }
        raw::KIND_AIO_KILL => {
            let kill: raw::AioKill = payload(kind, body)?;
            EventKind::AioKill {
                by: by(),
                mm: KernelPtr(kill.mm),
                ctx: KernelPtr(kill.ctx),
                wait: (kill.wait != 0).then_some(KernelPtr(kill.wait)),
                users: KernelPtr(kill.users),
                reqs: KernelPtr(kill.reqs),
                user_id: kill.user_id,
            }
        }
        raw::KIND_AIO_USERS_RELEASED => {
            let release: raw::AioRelease = payload(kind, body)?;
            EventKind::AioUsersReleased {
                ctx: KernelPtr(release.ctx),
            }
        }
        raw::KIND_AIO_REQS_RELEASED => {
            let release: raw::AioRelease = payload(kind, body)?;
            EventKind::AioReqsReleased {
                ctx: KernelPtr(release.ctx),
            }
        }
        raw::KIND_AIO_LAST_REQUEST => {
            let request: raw::AioLastRequest = payload(kind, body)?;
            EventKind::AioLastRequest {
                ctx: KernelPtr(request.ctx),
                file: RequestFile {
                    name: printable(&request.name),
                    inode: request.inode,
                    device: format!(
                        "{}:{}",
                        request.device >> MINOR_BITS,
                        request.device & ((1 << MINOR_BITS) - 1)
                    ),
                    // Names are not in the kernel's answer: who reads the ring asks sysfs.
                    disk: None,
                    is_device: request.mode & FILE_TYPE == BLOCK_DEVICE,
                },
            }
        }
        raw::KIND_UIO_SLOW => {
            let slow: raw::UioSlow = payload(kind, body)?;
            EventKind::UioSlow(UioSlow {
                by: by(),
                cpu: header.cpu,
                device: DeviceKey {
                    minor: slow.minor,
                    generation: slow.generation,
                },
                op: UioOp::from_raw(slow.op).ok_or(DecodeError::Op(slow.op))?,
                ret: slow.ret,
                latency_ns: slow.latency_ns,
                wait_ns: slow.wait_ns,
                hold_ns: slow.hold_ns,
                driver_wait_ns: slow.driver_wait_ns,
                holder: (slow.holder_tid != 0).then(|| Task {
                    tgid: slow.holder_tgid,
                    tid: slow.holder_tid,
                    comm: comm(&slow.holder_comm),
                }),
                holder_op: UioOp::from_raw(slow.holder_op).filter(|_| slow.holder_tid != 0),
            })
        }
        raw::KIND_UIO_UNREGISTERED | raw::KIND_UIO_REGISTERED => {
            let ended: raw::UioUnregistered = payload(kind, body)?;
            let device = DeviceKey {
                minor: ended.minor,
                generation: ended.generation,
            };
            if kind == raw::KIND_UIO_REGISTERED {
                EventKind::UioRegistered {
                    by: by(),
                    device,
                    latency_ns: ended.latency_ns,
                }
            } else {
                EventKind::UioUnregistered {
                    by: by(),
                    device,
                    latency_ns: ended.latency_ns,
                    wait_ns: ended.wait_ns,
                }
            }
        }
        other => return Err(DecodeError::Kind(other)),
    };
    Ok(Event {
        ts_ns: header.ts_ns,
        kind: event,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    fn entry(kind: u32, payload: &[u8]) -> Vec<u8> {
        let mut comm = [0; 16];
        comm[..3].copy_from_slice(b"fio");
        let header = raw::EventHeader {
            kind,
            cpu: 3,
            ts_ns: 77,
            tgid: 10,
            tid: 11,
            comm,
        };
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(payload);
        bytes
    }

    /// One valid entry of each kind.
    fn all() -> Vec<(u32, Vec<u8>)> {
        let kill = raw::RefKill {
            reference: 1,
            data: 2,
            release: 3,
            confirm: 0,
            count_ptr: 3,
            count: 1,
            stack: -1,
        };
        let switched = raw::RefSwitched {
            reference: 1,
            data: 2,
            release: 3,
            confirm: 4,
            count_ptr: 3,
            count: 1,
            counted: 1,
        };
        let look = raw::RefLook {
            reference: 1,
            back: 1,
            release: 3,
            count_ptr: 3,
            count: 2,
        };
        let released = raw::RefReleased {
            reference: 1,
            release: 3,
            confirm: 0,
        };
        let exit = raw::ExitAio { mm: 9 };
        let destroy = raw::IoDestroy { user_id: 5, ret: -22 };
        let aio = raw::AioKill {
            mm: 9,
            ctx: 8,
            wait: 0,
            users: 8,
            reqs: 32,
            user_id: 5,
        };
        let release = raw::AioRelease {
            ctx: 8,
            reference: 32,
        };
        let mut name = [0; raw::FILE_NAME];
        name[..6].copy_from_slice(b"nullb0");
        let request = raw::AioLastRequest {
            ctx: 8,
            inode: 4,
            device: (251 << 20) | 3,
            mode: 0o060_660,
            name,
        };
        let slow = raw::UioSlow {
            idev: 1,
            minor: 2,
            generation: 1,
            op: 0,
            holder_tid: 7,
            holder_tgid: 6,
            holder_op: 5,
            holder_comm: [b'x'; 16],
            ret: 4,
            latency_ns: 50,
            wait_ns: 20,
            hold_ns: 30,
            driver_wait_ns: 0,
        };
        let gone = raw::UioUnregistered {
            idev: 1,
            minor: 2,
            generation: 1,
            latency_ns: 5,
            wait_ns: 1,
        };
        vec![
            (raw::KIND_REF_KILL, kill.as_bytes().to_vec()),
            (raw::KIND_REF_SWITCHED, switched.as_bytes().to_vec()),
            (raw::KIND_REF_RELEASED, released.as_bytes().to_vec()),
            (raw::KIND_REF_LOOK, look.as_bytes().to_vec()),
            (raw::KIND_EXIT_AIO_BEGIN, exit.as_bytes().to_vec()),
            (raw::KIND_EXIT_AIO_END, exit.as_bytes().to_vec()),
            (raw::KIND_IO_DESTROY_BEGIN, destroy.as_bytes().to_vec()),
            (raw::KIND_IO_DESTROY_END, destroy.as_bytes().to_vec()),
            (raw::KIND_AIO_KILL, aio.as_bytes().to_vec()),
            (raw::KIND_AIO_USERS_RELEASED, release.as_bytes().to_vec()),
            (raw::KIND_AIO_REQS_RELEASED, release.as_bytes().to_vec()),
            (raw::KIND_AIO_LAST_REQUEST, request.as_bytes().to_vec()),
            (raw::KIND_UIO_SLOW, slow.as_bytes().to_vec()),
            (raw::KIND_UIO_UNREGISTERED, gone.as_bytes().to_vec()),
            (raw::KIND_UIO_REGISTERED, gone.as_bytes().to_vec()),
        ]
    }

    #[test]
    fn outside_of_the_cgroup_is_no_other_kind() {
        for (kind, body) in all() {
            let (inside, marked) = (entry(kind, &body), entry(kind | raw::OUTSIDE, &body));
            assert_eq!(decode(&marked), decode(&inside), "kind {kind}");
            assert!(outside(&marked) && !outside(&inside), "kind {kind}");
        }
        assert!(!outside(&[0xff; 3]));
    }

    #[test]
    fn every_kind_decodes_and_every_cut_is_an_error() {
        for (kind, body) in all() {
            let whole = entry(kind, &body);
            assert_eq!(decode(&whole).unwrap().ts_ns, 77, "kind {kind}");
            for cut in 0..whole.len() {
                let result = decode(&whole[..cut]);
                assert!(
                    matches!(result, Err(DecodeError::Short { .. })),
                    "kind {kind} cut at {cut}: {result:?}"
                );
            }
        }
    }

    #[test]
    fn members_reach_their_places() {
        let kill = raw::RefKill {
            reference: 1,
            data: 2,
            release: 3,
            confirm: 0,
            count_ptr: 1,
            count: 4,
            stack: -1,
        };
        let event = decode(&entry(raw::KIND_REF_KILL, kill.as_bytes())).unwrap();
        assert_eq!(
            event.kind,
            EventKind::RefKill {
                by: Task {
                    tgid: 10,
                    tid: 11,
                    comm: "fio".into()
                },
                reference: KernelPtr(1),
                release: KernelPtr(3),
                confirm: None,
                already_atomic: true,
                already_dead: false,
                references: Some(3),
                stack: None,
            }
        );
    }

    #[test]
    fn a_request_has_its_device_from_the_file_itself_or_from_its_file_system() {
        let shown = |mode: u32, disk: Option<&str>| {
            let mut name = [0; raw::FILE_NAME];
            name[..5].copy_from_slice(b"a\x1bb.d");
            let request = raw::AioLastRequest {
                ctx: 8,
                inode: 4,
                device: (251 << 20) | 3,
                mode,
                name,
            };
            match decode(&entry(raw::KIND_AIO_LAST_REQUEST, request.as_bytes()))
                .unwrap()
                .kind
            {
                EventKind::AioLastRequest { ctx, mut file } => {
                    assert_eq!((ctx, file.inode), (KernelPtr(8), 4));
                    file.disk = disk.map(str::to_owned);
                    file.to_string()
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(shown(0o060_660, Some("dm-3")), "dm-3");
        assert_eq!(shown(0o100_644, Some("dm-3")), "a\u{fffd}b.d on dm-3");
        assert_eq!(shown(0o100_644, None), "a\u{fffd}b.d on device 251:3");
    }

    #[test]
    fn references_are_known_only_of_killed_refs_that_were_counted() {
        let switched = |count_ptr, count, counted| {
            let payload = raw::RefSwitched {
                reference: 1,
                data: 2,
                release: 3,
                confirm: 4,
                count_ptr,
                count,
                counted,
            };
            match decode(&entry(raw::KIND_REF_SWITCHED, payload.as_bytes()))
                .unwrap()
                .kind
            {
                EventKind::RefSwitched { references, .. } => references,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(switched(3, 4, 1), Some(3));
        assert_eq!(switched(3, 1, 1), Some(0));
        assert_eq!(switched(1, 4, 1), None, "merely switched");
        assert_eq!(switched(3, 0, 0), None, "not counted");
        assert_eq!(switched(3, u64::MAX, 1), None, "put once too often");
    }

    #[test]
    fn a_look_tells_grace_period_from_references_and_this_ref_from_other_memory() {
        let state = |back, count_ptr, count| {
            let payload = raw::RefLook {
                reference: 1,
                back,
                release: 3,
                count_ptr,
                count,
            };
            match decode(&entry(raw::KIND_REF_LOOK, payload.as_bytes()))
                .unwrap()
                .kind
            {
                EventKind::RefLooked { state, .. } => state,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(state(1, 3, 2), RefState::Held(2));
        assert_eq!(state(1, 3, 0), RefState::Held(0));
        assert_eq!(state(1, 3, COUNT_BIAS + 1), RefState::GracePeriod);
        assert_eq!(state(1, 3, COUNT_BIAS - 7), RefState::GracePeriod);
        assert_eq!(state(1, 0xffff_8880_0000_0000, COUNT_BIAS + 1), RefState::Alive);
        assert_eq!(state(0, 3, 2), RefState::Gone, "its data was freed");
        assert_eq!(state(9, 3, 2), RefState::Gone, "another's data");
    }

    #[test]
    fn unknown_numbers_are_rejected() {
        assert_eq!(decode(&entry(0, &[0; 64])), Err(DecodeError::Kind(0)));
        assert_eq!(decode(&entry(999, &[0; 64])), Err(DecodeError::Kind(999)));
        let slow = raw::UioSlow {
            idev: 1,
            minor: 2,
            generation: 1,
            op: 10,
            holder_tid: 0,
            holder_tgid: 0,
            holder_op: 0,
            holder_comm: [0; 16],
            ret: 0,
            latency_ns: 0,
            wait_ns: 0,
            hold_ns: 0,
            driver_wait_ns: 0,
        };
        assert_eq!(
            decode(&entry(raw::KIND_UIO_SLOW, slow.as_bytes())),
            Err(DecodeError::Op(10))
        );
    }

    #[test]
    fn task_names_are_made_printable() {
        let mut name = [0; 16];
        name[..6].copy_from_slice(b"a\x1b[1mb");
        assert_eq!(comm(&name), "a\u{fffd}[1mb");
        assert_eq!(comm(&[b'x'; 16]), "x".repeat(16));
        assert_eq!(comm(&[0xff; 16]), "\u{fffd}".repeat(16));
    }
}
