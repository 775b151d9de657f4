//! The BPF side of uio-trace: modules, licence, panic handler, nothing else.
#![no_std]
#![no_main]

mod emit;
mod inflight;
mod kernel_read;
mod maps;
mod probes;
mod settings;
mod wanted;

/// GPL-compatible: the programs use GPL-only helpers (`bpf_probe_read_kernel`).
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}
