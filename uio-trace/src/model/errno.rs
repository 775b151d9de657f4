//! errno numbers to names: include/uapi/asm-generic/errno-base.h and errno.h, those a uio operation or its driver
//! returns.

use uio_trace_common::uio::ERR_FAULT_SIGBUS;

const NAMES: &[(u32, &str)] = &[
    (1, "EPERM"),
    (2, "ENOENT"),
    (3, "ESRCH"),
    (4, "EINTR"),
    (5, "EIO"),
    (6, "ENXIO"),
    (7, "E2BIG"),
    (9, "EBADF"),
    (11, "EAGAIN"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (14, "EFAULT"),
    (16, "EBUSY"),
    (17, "EEXIST"),
    (19, "ENODEV"),
    (22, "EINVAL"),
    (23, "ENFILE"),
    (24, "EMFILE"),
    (25, "ENOTTY"),
    (28, "ENOSPC"),
    (32, "EPIPE"),
    (34, "ERANGE"),
    (38, "ENOSYS"),
    (61, "ENODATA"),
    (62, "ETIME"),
    (71, "EPROTO"),
    (75, "EOVERFLOW"),
    (95, "EOPNOTSUPP"),
    (108, "ESHUTDOWN"),
    (110, "ETIMEDOUT"),
    (512, "ERESTARTSYS"),
    (524, "ENOTSUPP"),
    (ERR_FAULT_SIGBUS, "SIGBUS"),
];

/// Name of a positive errno, `SIGBUS` for a failed page fault, `unknown` for 0 (the kernel side ran out of places for
/// distinct ones), `errno N` for one without a name here.
pub fn name(code: u32) -> String {
    if code == 0 {
        return "unknown".to_string();
    }
    match NAMES.iter().find(|n| n.0 == code) {
        Some((_, name)) => (*name).to_string(),
        None => format!("errno {code}"),
    }
}
