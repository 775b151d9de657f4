//! Project tasks of uio-trace, `cargo xtask VERB`. This file only says which verbs there are.

mod apt;
mod bench;
mod bpf;
mod clean_cache;
mod dist;
mod paths;
mod perfetto;
mod process;
mod run;
mod terminal;
mod test;
mod vm;

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
    /// Run the tool here, or in a guest with a demonstration load.
    Run(run::RunArgs),
    /// Run all tests: host, BPF object, guests.
    Test(test::TestArgs),
    /// Boot a guest and run a command in it.
    Vm(vm::VmArgs),
    /// Build the BPF object that is checked in (toolchain included), or check that it is up to date.
    Bpf(bpf::BpfArgs),
    /// Measure what tracing costs.
    Bench(bench::BenchArgs),
    /// Make a static binary.
    Dist,
    /// Remove downloads and builds kept outside the workspace.
    CleanCache,
}

fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::Run(arguments) => run::main(&arguments),
        Verb::Test(arguments) => test::main(&arguments),
        Verb::Vm(arguments) => vm::main(&arguments),
        Verb::Bpf(arguments) => bpf::main(&arguments),
        Verb::Bench(arguments) => bench::main(&arguments),
        Verb::Dist => dist::main(),
        Verb::CleanCache => clean_cache::main(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
