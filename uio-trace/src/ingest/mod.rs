//! From the kernel's rings and maps to [`crate::event::Event`]s.

pub mod blockers;
pub mod clock;
pub mod counters;
pub mod decode;
pub mod family;
pub mod kill_stacks;
pub mod openers;
pub mod ring;
pub mod running;
pub mod series;
pub mod symbols;
pub mod sysfs;
pub mod thread_times;
pub mod undisturbed;
pub mod waiters;
