//! The hooks, a file per subject. Each hook's comment has the kernel prototype it relies on.

mod aio;
mod lock;
mod percpu_ref;
mod uio;
mod uio_ref;
