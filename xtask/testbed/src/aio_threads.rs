//! AIO contexts of one process that its threads destroy at the same time; or one that a thread destroys while the process waits to
//! be killed.

use std::sync::Barrier;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::aio::{self, Contexts};
use crate::clock::monotonic_ns;

/// How many of each.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Threads that destroy contexts.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Contexts of each thread.
    #[arg(long, default_value_t = 1)]
    contexts: usize,
    /// Reads in flight in each context.
    #[arg(long, default_value_t = 0, requires = "file")]
    in_flight: usize,
    /// Where they read from, with O_DIRECT.
    #[arg(long)]
    file: Option<String>,
    /// Contexts beside those, with as many reads; then the process does not end by itself.
    #[arg(long)]
    others: Option<usize>,
}

impl Options {
    fn contexts(&self, count: usize) -> Result<Contexts> {
        let mut contexts = aio::make(count, self.in_flight, self.file.as_deref())?;
        for index in 0..count {
            contexts.submit(index, self.in_flight)?;
        }
        Ok(contexts)
    }
}

fn thread_id() -> i64 {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

/// A thread: its contexts, destroyed one after another once all threads have theirs.
fn destroy(options: &Options, ready: &Barrier) -> Result<Value> {
    let contexts = options.contexts(options.contexts);
    // Also after a failure: the others wait here.
    ready.wait();
    let contexts = contexts?;
    let begin_ns = monotonic_ns();
    for id in contexts.ids() {
        aio::destroy(*id)?;
    }
    Ok(json!({ "tid": thread_id(), "begin_ns": begin_ns, "end_ns": monotonic_ns() }))
}

/// Runs the workload.
pub fn run(options: &Options) -> Result<Value> {
    if let Some(others) = options.others {
        return destroy_and_hold(options, others);
    }
    let ready = Barrier::new(options.threads);
    let threads = std::thread::scope(|scope| {
        let started: Vec<_> = (0..options.threads)
            .map(|_| scope.spawn(|| destroy(options, &ready)))
            .collect();
        started
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(result) => result,
                Err(_) => bail!("a thread panicked"),
            })
            .collect::<Result<Vec<Value>>>()
    })?;
    Ok(json!({ "workload": "aio-threads", "tgid": std::process::id(), "threads": threads }))
}

/// Says which thread is about to destroy its context, and waits for the process' end.
fn destroy_and_hold(options: &Options, others: usize) -> Result<Value> {
    let _others = options.contexts(others)?;
    let contexts = options.contexts(1)?;
    let id = *contexts.ids().first().context("no context")?;
    let (sender, receiver) = std::sync::mpsc::channel();
    let _thread = std::thread::spawn(move || {
        // Nobody listens only when the process ends.
        let _ = sender.send(thread_id());
        aio::destroy(id)
    });
    let tid = receiver.recv().context("the thread did not start")?;
    println!(
        "{}",
        json!({ "workload": "aio-threads", "tgid": std::process::id(), "tid": tid })
    );
    loop {
        // SAFETY: returns after a signal that has a handler; there is none.
        unsafe { libc::pause() };
    }
}
