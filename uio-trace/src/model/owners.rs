//! Who a percpu_ref belongs to, by its release function.
//!
//! Every `percpu_ref_init()` of mainline 5.10 to 7.3, plus the 2022 proposal for uio. A release function is the only
//! thing a ref carries that tells its owner.

/// An owner of percpu_refs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownOwner {
    /// Release function.
    pub release: &'static str,
    /// Owner in words.
    pub owner: &'static str,
    /// A tracer's own doing: attaching and detaching BPF trampolines kills such refs.
    pub own: bool,
}

const fn owner(release: &'static str, owner: &'static str) -> KnownOwner {
    KnownOwner {
        release,
        owner,
        own: false,
    }
}

/// `free_ioctx_users`, fs/aio.c: `kioctx.users`.
pub const AIO_USERS: &str = "free_ioctx_users";
/// `free_ioctx_reqs`, fs/aio.c: `kioctx.reqs`.
pub const AIO_REQS: &str = "free_ioctx_reqs";
/// Release function of the percpu_ref that the 2022 proposal puts in place of uio's info_lock.
pub const UIO_INFO: &str = "uio_info_free";

/// The table, by subsystem.
pub const KNOWN: &[KnownOwner] = &[
    // fs/aio.c
    owner(AIO_USERS, "AIO context users"),
    owner(AIO_REQS, "AIO context requests"),
    // block/
    owner("blk_queue_usage_counter_release", "block queue usage"),
    owner("blkg_release", "block cgroup"),
    owner("hd_struct_free", "block partition"),
    // kernel/cgroup, kernel/bpf
    owner("css_release", "cgroup subsystem state"),
    owner("cgroup_bpf_release_fn", "cgroup BPF programs"),
    KnownOwner {
        release: "__bpf_tramp_image_release",
        owner: "BPF trampoline",
        own: true,
    },
    // mm/
    owner("cgwb_release", "cgroup writeback"),
    owner("obj_cgroup_release", "memory cgroup objects"),
    owner("swap_users_ref_free", "swap device"),
    owner("dev_pagemap_percpu_release", "device memory (DAX, HMM)"),
    owner("__zswap_pool_empty", "zswap pool"),
    // io_uring/
    owner("io_ring_ctx_ref_free", "io_uring context"),
    owner("io_rsrc_node_ref_zero", "io_uring resource node"),
    // drivers/target
    owner("core_tpg_lun_ref_release", "target LUN"),
    owner("target_release_cmd_refcnt", "target session commands"),
    owner("target_release_sess_cmd_refcnt", "target session commands"),
    owner("target_non_ordered_release", "target unordered commands"),
    // drivers/nvme/target
    owner("nvmet_destroy_namespace", "NVMe target namespace"),
    owner("nvmet_sq_free", "NVMe target queue"),
    owner("nvmet_pr_ctrl_ns_all_cmds_done", "NVMe target reservation"),
    // drivers/md; writes_pending releases with the kernel's `no_op`
    owner("active_io_release", "MD array active I/O"),
    owner("active_release", "MD bitmap page"),
    owner("no_op", "MD array pending writes"),
    // drivers/infiniband, drivers/dma
    owner("rtrs_srv_inflight_ref_release", "RTRS server requests"),
    owner("__rvt_mregion_complete", "RDMA memory region"),
    owner("idxd_wq_ref_release", "IDXD work queue"),
    // net/, fs/
    owner("smcr_wr_tx_refs_free", "SMC-R send requests"),
    owner("smcr_wr_reg_refs_free", "SMC-R memory registrations"),
    owner("net_devmem_dmabuf_binding_release", "network device memory"),
    owner("nfsd_net_free", "NFS server"),
    owner("bch2_writes_disabled", "bcachefs writes"),
    owner("bch2_dev_ref_complete", "bcachefs device"),
    owner("bch2_dev_io_ref_complete", "bcachefs device I/O"),
    // drivers/uio, proposal only
    owner(UIO_INFO, "UIO device (percpu_ref patch)"),
];

/// The owner with this release function.
pub fn lookup(release: &str) -> Option<&'static KnownOwner> {
    KNOWN.iter().find(|k| k.release == release)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_functions_are_unique() {
        for (i, a) in KNOWN.iter().enumerate() {
            assert!(
                KNOWN[i + 1..].iter().all(|b| b.release != a.release),
                "{}",
                a.release
            );
        }
    }

    #[test]
    fn only_the_trampoline_is_own() {
        assert!(lookup("__bpf_tramp_image_release").is_some_and(|k| k.own));
        assert_eq!(KNOWN.iter().filter(|k| k.own).count(), 1);
        assert!(lookup("css_releas").is_none());
    }
}
