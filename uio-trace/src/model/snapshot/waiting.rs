//! What has begun and not ended.

use crate::event::Task;
use serde::{Deserialize, Serialize};

/// Record `in_progress`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InProgress {
    /// What: `aio_drain`, `percpu_ref`, ...
    pub subject: String,
    /// Owner in words.
    pub owner: String,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// Its comm.
    pub comm: String,
    /// What it waits for: `grace period`, `references`, `requests in flight`, ...
    pub phase: String,
    /// Age; `None`: began before the trace.
    pub age_ns: Option<u64>,
    /// For how long the trace has seen it: the age, or where that is not known its lower bound.
    pub seen_ns: u64,
    /// References (of an AIO context: requests) left that it waits for, as last heard; `None`: not known, or not what it
    /// waits for.
    pub references: Option<u64>,
    /// More ("3 of 64 contexts left").
    pub detail: String,
    /// Kernel stack of the thread, innermost first, when it is waiting for this; `None`: not known, or it waits elsewhere.
    pub stack: Option<Vec<String>>,
    /// Of an AIO drain: files the process has open for direct I/O, which its requests are on; `None`: not known, or not asked yet.
    #[serde(default)]
    pub direct_files: Option<Vec<String>>,
    /// Its end may have been lost.
    pub uncertain: bool,
    /// Of a UIO operation: which, and behind whom.
    #[serde(default)]
    pub uio: Option<InUio>,
}

/// A UIO operation under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InUio {
    /// Minor number of the device.
    pub minor: u32,
    /// Its generation.
    pub generation: u32,
    /// Operation.
    pub op: String,
    /// For how long it has waited for the lock it waits for now, ns; `None`: it does not wait for one.
    pub wait_ns: Option<u64>,
    /// Who held info_lock when it began to wait; `None`: it does not wait for it, or that is not known.
    pub holder: Option<Task>,
    /// What the holder did then; `None`: nothing that is traced, or not known.
    pub holder_op: Option<String>,
}

impl InProgress {
    /// What a look at the process found, also into the detail.
    pub fn set_direct_files(&mut self, files: Option<&[String]>) {
        self.direct_files = files.map(<[String]>::to_vec);
        if let Some(files) = files.filter(|files| !files.is_empty()) {
            self.detail.push_str("; direct I/O on ");
            self.detail.push_str(&files.join(", "));
        }
    }
}
