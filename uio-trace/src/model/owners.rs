//! Who a percpu_ref belongs to, by its release function.
//!
//! Every `percpu_ref_init()` of mainline 5.10 to 7.3, plus the 2022 proposal for uio. A release function is the only
//! thing a ref carries that tells its owner. The comments name the file of the call, and the versions where not all of
//! them have it.

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
    // fs/aio.c: kioctx.users, kioctx.reqs
    owner(AIO_USERS, "AIO context users"),
    owner(AIO_REQS, "AIO context requests"),
    // block/blk-core.c: request_queue.q_usage_counter
    owner("blk_queue_usage_counter_release", "block queue usage"),
    // block/blk-cgroup.c: blkcg_gq.refcnt
    owner("blkg_release", "block cgroup"),
    // block/partitions/core.c, 5.10: hd_struct.ref
    owner("hd_struct_free", "block partition"),
    // kernel/cgroup/cgroup.c: cgroup_subsys_state.refcnt, also of a cgroup itself
    owner("css_release", "cgroup subsystem state"),
    // kernel/bpf/cgroup.c: cgroup_bpf.refcnt
    owner("cgroup_bpf_release_fn", "cgroup BPF programs"),
    // kernel/bpf/trampoline.c, since 5.12: bpf_tramp_image.pcref
    KnownOwner {
        release: "__bpf_tramp_image_release",
        owner: "BPF trampoline",
        own: true,
    },
    // mm/backing-dev.c: bdi_writeback.refcnt
    owner("cgwb_release", "cgroup writeback"),
    // mm/memcontrol.c: obj_cgroup.refcnt
    owner("obj_cgroup_release", "memory cgroup objects"),
    // mm/swapfile.c, since 5.14: swap_info_struct.users
    owner("swap_users_ref_free", "swap device"),
    // mm/memremap.c: dev_pagemap.ref (internal_ref up to 5.15)
    owner("dev_pagemap_percpu_release", "device memory (DAX, HMM)"),
    // mm/zswap.c, since 6.10: zswap_pool.ref
    owner("__zswap_pool_empty", "zswap pool"),
    // io_uring/io_uring.c (fs/io_uring.c): io_ring_ctx.refs
    owner("io_ring_ctx_ref_free", "io_uring context"),
    // fs/io_uring.c and io_uring/rsrc.c, one after another up to 6.3: fixed_file_ref_node.refs, fixed_rsrc_ref_node.refs,
    // io_rsrc_node.refs
    owner("io_file_data_ref_zero", "io_uring registered files"),
    owner("io_rsrc_data_ref_zero", "io_uring resource data"),
    owner("io_rsrc_node_ref_zero", "io_uring resource node"),
    // drivers/target/target_core_tpg.c: se_lun.lun_ref
    owner("core_tpg_lun_ref_release", "target LUN"),
    // drivers/target/target_core_transport.c: target_cmd_counter.refcnt; 5.10: se_session.cmd_count
    owner("target_release_cmd_refcnt", "target session commands"),
    owner("target_release_sess_cmd_refcnt", "target session commands"),
    // drivers/target/target_core_device.c, 7.x: se_device.non_ordered
    owner("target_non_ordered_release", "target unordered commands"),
    // drivers/nvme/target/core.c: nvmet_ns.ref, nvmet_sq.ref
    owner("nvmet_destroy_namespace", "NVMe target namespace"),
    owner("nvmet_sq_free", "NVMe target queue"),
    // drivers/nvme/target/pr.c, since 6.13: nvmet_pr_per_ctrl_ref.ref
    owner("nvmet_pr_ctrl_ns_all_cmds_done", "NVMe target reservation"),
    // drivers/md/md.c: mddev.active_io (since 6.1), mddev.writes_pending, whose release is md's `no_op`
    owner("active_io_release", "MD array active I/O"),
    owner("no_op", "MD array pending writes"),
    // drivers/md/md-llbitmap.c, since 6.18: llbitmap_page_ctl.active
    owner("active_release", "MD bitmap page"),
    // drivers/infiniband/ulp/rtrs/rtrs-srv.c, since 5.12: rtrs_srv_path.ids_inflight_ref
    owner("rtrs_srv_inflight_ref_release", "RTRS server requests"),
    // drivers/infiniband/sw/rdmavt/mr.c: rvt_mregion.refcount
    owner("__rvt_mregion_complete", "RDMA memory region"),
    // drivers/dma/idxd/device.c, since 5.13: idxd_wq.wq_active
    owner("idxd_wq_ref_release", "IDXD work queue"),
    // net/smc/smc_wr.c, since 6.3: smc_link.wr_tx_refs, smc_link.wr_reg_refs
    owner("smcr_wr_tx_refs_free", "SMC-R send requests"),
    owner("smcr_wr_reg_refs_free", "SMC-R memory registrations"),
    // net/core/devmem.c, 7.x: net_devmem_dmabuf_binding.ref
    owner("net_devmem_dmabuf_binding_release", "network device memory"),
    // fs/nfsd/nfssvc.c, since 6.12: nfsd_net.nfsd_net_ref
    owner("nfsd_net_free", "NFS server"),
    // fs/bcachefs/super.c, 6.7 to 6.17: bch_fs.writes, bch_dev.ref, bch_dev.io_ref
    owner("bch2_writes_disabled", "bcachefs writes"),
    owner("bch2_dev_ref_complete", "bcachefs device"),
    owner("bch2_dev_io_ref_complete", "bcachefs device I/O"),
    // drivers/uio/uio.c, the proposal only: uio_device.info_ref
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
    fn every_user_of_percpu_ref_in_6_1_and_6_12_has_a_name() {
        // `percpu_ref_init(` in the sources of 6.1.192 and 6.12.117, drivers, fs, io_uring, kernel, mm, net.
        let in_tree = "swap_users_ref_free dev_pagemap_percpu_release cgwb_release obj_cgroup_release css_release \
            cgroup_bpf_release_fn __bpf_tramp_image_release io_rsrc_node_ref_zero io_ring_ctx_ref_free \
            free_ioctx_users free_ioctx_reqs blkg_release blk_queue_usage_counter_release core_tpg_lun_ref_release \
            target_release_cmd_refcnt rtrs_srv_inflight_ref_release __rvt_mregion_complete no_op active_io_release \
            nvmet_destroy_namespace nvmet_sq_free idxd_wq_ref_release smcr_wr_tx_refs_free smcr_wr_reg_refs_free \
            __zswap_pool_empty bch2_writes_disabled bch2_dev_ref_complete bch2_dev_io_ref_complete nfsd_net_free";
        for release in in_tree.split_whitespace() {
            let known = lookup(release).unwrap_or_else(|| panic!("{release}"));
            assert!(!known.owner.is_empty() && known.owner != release);
        }
    }

    #[test]
    fn only_the_trampoline_is_own() {
        assert!(lookup("__bpf_tramp_image_release").is_some_and(|k| k.own));
        assert_eq!(KNOWN.iter().filter(|k| k.own).count(), 1);
        assert!(lookup("css_releas").is_none());
    }
}
