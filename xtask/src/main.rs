//! Project tasks of uio-trace, `cargo xtask VERB`. This file only says which verbs there are.

mod apt;
mod bpf;
mod paths;
mod process;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Project tasks of uio-trace")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Build the BPF object that is checked in (toolchain included), or check that it is up to date.
    Bpf(bpf::BpfArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::Bpf(arguments) => bpf::main(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
