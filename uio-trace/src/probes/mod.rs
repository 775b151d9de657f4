//! Hooks: what there is ([`catalog`]), what this kernel allows ([`plan`]), attaching it ([`attach`], [`session`]).

pub mod attach;
pub mod bpf_call;
pub mod catalog;
pub mod module_btf;
pub mod on_request;
pub mod perf;
pub mod plan;
pub mod releases;
pub mod session;
pub mod tracefs;
