//! Settings user space fixes before the programs load. They sit in `.rodata`, so the verifier knows their values and
//! removes what they switch off.

use uio_trace_common::offsets::{ABSENT, Settings};

/// Overridden by name before loading.
#[unsafe(no_mangle)]
pub static SETTINGS: Settings = Settings {
    slow_ns: u64::MAX,
    per_cpu_offset: 0,
    target_comm_low: 0,
    target_comm_high: 0,
    file_private_data: ABSENT,
    file_f_inode: ABSENT,
    inode_i_rdev: ABSENT,
    task_pid: ABSENT,
    task_tgid: ABSENT,
    task_comm: ABSENT,
    task_cpu: ABSENT,
    device_driver_data: ABSENT,
    vm_fault_vma: ABSENT,
    vma_private_data: ABSENT,
    mm_ioctx_table: ABSENT,
    ref_count_ptr: ABSENT,
    ref_data: ABSENT,
    data_count: ABSENT,
    data_release: ABSENT,
    data_confirm: ABSENT,
    data_rcu: ABSENT,
    data_ref: ABSENT,
    kioctx_users: ABSENT,
    kioctx_reqs: ABSENT,
    kioctx_user_id: ABSENT,
    kiocb_ctx: ABSENT,
    kiocb_file: ABSENT,
    file_dentry: ABSENT,
    dentry_name: ABSENT,
    inode_i_mode: ABSENT,
    inode_i_ino: ABSENT,
    inode_i_sb: ABSENT,
    super_s_dev: ABSENT,
    device_size: ABSENT,
    filters: 0,
    target_tgid: 0,
    own_tgid: 0,
    mutex_owner_word: 0,
    possible_cpus: 0,
    reserved: 0,
};

/// A setting's value. Volatile, so that the compiler does not take the value above for the one at run time.
macro_rules! setting {
    ($field:ident) => {{
        // SAFETY: a plain integer in a static that nobody writes after load.
        unsafe { core::ptr::read_volatile(&raw const $crate::settings::SETTINGS.$field) }
    }};
}
pub(crate) use setting;
