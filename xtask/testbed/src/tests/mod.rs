//! The tests: uio-trace's figures against what workloads and the testbed module measured themselves.
//! One verdict line per test; all run, whatever fails.

mod aio;
mod at_exit;
mod bad_places;
mod check;
mod conduct;
mod converted;
mod cost;
mod disks;
mod filters;
mod hangs;
mod in_flight;
mod libaio;
mod mixed;
mod overlap;
mod programs;
mod refs;
mod reload;
mod session;
mod storm;
mod tcmu;
mod uio;
mod under_way;

use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::report;
pub use uio::HOLD;

/// What to run.
#[derive(Debug, Args)]
pub struct Options {
    /// The kernel's name in the harness's table: some expectations depend on it.
    #[arg(long)]
    pub kernel: String,
    /// How much.
    #[arg(long, value_enum, default_value_t = Set::Full)]
    pub set: Set,
    /// Only tests whose name contains this.
    #[arg(long)]
    pub filter: Option<String>,
    /// Only tests behind this one.
    #[arg(long)]
    pub after: Option<String>,
}

/// How much to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Set {
    /// Everything.
    Full,
    /// Loading, attaching, exact counts.
    Smoke,
    /// Attaching to and detaching from what runs on other processors just then, for which the kernel patches code under them;
    /// and what needs no processors that run at once.
    Patching,
}

/// What a test is given.
#[derive(Debug, Clone)]
pub struct Guest {
    /// The kernel's name in the harness's table.
    pub kernel: String,
    /// It has the processors to itself, so its clocks can be compared finely.
    pub alone: bool,
}

/// How long a test waits for something to be shown.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(40);

/// A test says in one line what it saw, or fails.
type Test = fn(&Guest) -> Result<String>;

struct Case {
    name: &'static str,
    run: Test,
    set: Set,
    /// How often it may be tried. More than once only where two clocks are compared: a guest's processor that the
    /// host takes away between them is noise, and a wrong figure is wrong every time.
    attempts: usize,
}

const fn full(name: &'static str, run: Test) -> Case {
    Case {
        name,
        run,
        set: Set::Full,
        attempts: 1,
    }
}

const fn smoke(name: &'static str, run: Test) -> Case {
    Case {
        name,
        run,
        set: Set::Smoke,
        attempts: 1,
    }
}

const fn patching(name: &'static str, run: Test) -> Case {
    Case {
        name,
        run,
        set: Set::Patching,
        attempts: 1,
    }
}

impl Case {
    /// Whether it belongs to what is to be run.
    fn is_in(&self, set: Set) -> bool {
        self.set == set || (set == Set::Full && self.set == Set::Smoke)
    }

    const fn timed(mut self) -> Case {
        self.attempts = 3;
        self
    }

    /// The first success, else the last failure.
    fn judge(&self, guest: &Guest) -> Result<String> {
        let mut failed = 0;
        loop {
            match (self.run)(guest) {
                Ok(detail) if failed == 0 => return Ok(detail),
                Ok(detail) => return Ok(format!("{detail} (attempt {})", failed + 1)),
                Err(error) => {
                    failed += 1;
                    if failed >= self.attempts {
                        return if failed == 1 {
                            Err(error)
                        } else {
                            Err(error.context(format!("{failed} attempts")))
                        };
                    }
                    report::line(&format!("UIO-TRACE-NOTE {} failed once: {error:#}", self.name));
                }
            }
        }
    }
}

fn cases() -> Vec<Case> {
    vec![
        smoke("check_attaches", check::attaches),
        smoke("uio_exact_counts", uio::exact_counts),
        smoke("uio_exact_counts_by_fentry", uio::exact_counts_by_fentry),
        smoke("uio_exact_counts_while_read", uio::exact_counts_while_read),
        smoke("uio_misses_are_counted", uio::misses_are_counted),
        full("uio_errors_by_errno", uio::errors_by_errno),
        full("uio_hold_200us_1_writer", |_| uio::timing(1, 200, false)).timed(),
        full("uio_hold_200us_2_writers", |_| uio::timing(2, 200, false)).timed(),
        full("uio_hold_200us_4_writers", |_| uio::timing(4, 200, false)).timed(),
        full("uio_hold_2ms_2_writers", |_| uio::timing(2, 2000, false)).timed(),
        full("uio_hold_2ms_4_writers", |_| uio::timing(4, 2000, false)).timed(),
        full("uio_spin_20us_1_writer", |_| uio::timing(1, 20, true)).timed(),
        full("uio_spin_20us_2_writers", |_| uio::timing(2, 20, true)).timed(),
        full("uio_spin_20us_4_writers", |_| uio::timing(4, 20, true)).timed(),
        full("uio_spin_20us_1_writer_by_fentry", |_| {
            uio::timing_by_fentry(1, 20, true)
        })
        .timed(),
        full("uio_spin_20us_2_writers_by_fentry", |_| {
            uio::timing_by_fentry(2, 20, true)
        })
        .timed(),
        full(
            "uio_waits_stay_with_their_device",
            uio::waits_stay_with_their_device,
        ),
        full("uio_waits_by_operation", mixed::waits_by_operation).timed(),
        full("uio_reads_and_interrupts", mixed::reads_and_interrupts),
        full("uio_blocked_by_a_slow_writer", mixed::blocked_by_a_slow_writer).timed(),
        full("uio_blocked_by_a_slow_open", mixed::blocked_by_a_slow_open).timed(),
        full("uio_driver_lock", mixed::driver_lock).timed(),
        full("uio_queue_of_1_to_8_writers", mixed::queue).timed(),
        full("uio_faults_at_exit", at_exit::faults),
        full("uio_threads_are_replaced", mixed::replaced),
        full("uio_under_way_is_shown", under_way::shown),
        full("uio_killed_while_waiting", under_way::killed_while_waiting),
        patching("bad_256_devices", under_way::many_devices),
        patching("bad_device_name", under_way::device_name),
        smoke("aio_exit_1", |guest| aio::by_exit(guest, 1)).timed(),
        smoke("aio_exit_4", |guest| aio::by_exit(guest, 4)).timed(),
        full("aio_exit_64", |guest| aio::by_exit(guest, 64)).timed(),
        smoke("aio_destroy_4", |guest| aio::by_destroy(guest, 4)).timed(),
        full("aio_destroy_64", |guest| aio::by_destroy(guest, 64)).timed(),
        patching("aio_projected_64", |guest| aio::projected(guest, 64)).timed(),
        full("aio_exit_with_io_in_flight", aio::io_in_flight).timed(),
        full("aio_exit_512", |guest| aio::by_exit(guest, 512)).timed(),
        full("aio_in_flight", in_flight::by_exit_and_destroy).timed(),
        full("aio_in_flight_on_dm_delay", in_flight::dm_delay).timed(),
        full("aio_in_flight_on_scsi_debug", in_flight::scsi_debug).timed(),
        full("aio_in_flight_in_a_file", in_flight::file_on_ext4),
        full("aio_rcu_expedited", in_flight::expedited).timed(),
        full("aio_two_threads_destroy", overlap::two_threads).timed(),
        patching("aio_killed_in_io_destroy", overlap::killed_in_io_destroy),
        full("libaio_programs", libaio::programs_of_its_tests),
        full("aio_process_without_contexts", aio::without_contexts),
        smoke("filter_comm", filters::by_name),
        smoke("filter_cgroup", filters::by_cgroup),
        patching("aio_exit_runs_one_program", aio::exit_runs_one_program),
        full("ref_cgroup", refs::cgroup),
        full("ref_killers_stacks", refs::killers_stacks),
        full("ref_io_uring", refs::io_uring),
        full("ref_queue_freeze", refs::queue_freeze),
        patching("ref_missed_hits_are_counted", refs::missed_hits_are_counted),
        full("ref_held_after_confirm", refs::held_after_confirm).timed(),
        full("ref_leaked", refs::leaked),
        full("ref_killed_twice", refs::killed_twice),
        full("ref_switched_and_reinitialised", refs::switched_and_reinitialised),
        patching("storm_of_refs_and_exits", storm::refs_and_exits),
        patching("bad_no_debug_registers", bad_places::no_debug_registers),
        patching("bad_cpu_offline_and_online", bad_places::cpu_offline_and_online),
        patching("bad_pid_namespace_of_the_load", bad_places::load_in_pid_namespace),
        patching("bad_pid_namespace_of_the_tool", bad_places::tool_in_pid_namespace),
        patching("bad_process_name", bad_places::process_name),
        patching("bad_hidepid", bad_places::hidepid),
        patching("bad_kptr_restrict", bad_places::kptr_restrict),
        patching("hang_exit_aio_tool_before", hangs::exit_aio_before),
        patching("hang_exit_aio_tool_after", hangs::exit_aio_after),
        patching("hang_queue_freeze_tool_before", hangs::queue_freeze_before),
        patching("hang_queue_freeze_tool_after", hangs::queue_freeze_after),
        patching("uio_reloaded_three_times", reload::three_times),
        patching("converted_uio_by_btf", converted::recognised_by_btf),
        patching("converted_uio_by_memory", converted::recognised_by_memory),
        full("converted_uio_unregistered", converted::unregistered_with_ref).timed(),
        full("uio_unregistered_under_load", converted::unregistered_with_lock).timed(),
        patching("uio_held_is_let_go_of", reload::let_go_of),
        patching("cost_is_counted", cost::counted),
        patching("cost_counting_ends_with_the_tool", cost::ends_with_the_tool),
        full("tcmu_served_disk", tcmu::stock),
        full("tcmu_served_disk_on_converted_uio", tcmu::converted),
        full("screens_come_up", session::screens),
        full("exec_traces_a_command", session::exec),
        full("recorded_and_reported", session::record).timed(),
        patching("program_fio_processes", programs::fio_processes),
        patching("program_fio_threads", programs::fio_threads),
        patching("program_fio_interrupted", programs::fio_interrupted),
        patching("program_fio_killed", programs::fio_killed),
        patching("exec_fio", programs::exec_fio),
        patching("sigint_prints", |_| conduct::prints_after(libc::SIGINT)),
        patching("sigterm_prints", |_| conduct::prints_after(libc::SIGTERM)),
        patching("sighup_prints", |_| conduct::prints_after(libc::SIGHUP)),
        patching("attached_and_detached_under_load", |_| {
            conduct::attach_and_detach(&[])
        }),
        patching("attached_and_detached_under_load_by_fentry", |_| {
            conduct::attach_and_detach(&[HOLD])
        }),
        smoke("kill_leaves_nothing", |_| conduct::kill_leaves_nothing(&[])),
        patching("kill_leaves_nothing_by_fentry", |_| {
            conduct::kill_leaves_nothing(&[HOLD])
        }),
        smoke("unprivileged_is_refused", conduct::unprivileged_is_refused),
    ]
}

/// Runs the chosen tests; fails when one failed or none was chosen.
pub fn run(options: &Options) -> Result<ExitCode> {
    let guest = Guest {
        kernel: options.kernel.clone(),
        alone: options.set == Set::Full,
    };
    let wanted = |name: &str| {
        options
            .filter
            .as_ref()
            .is_none_or(|filter| name.contains(filter.as_str()))
    };
    let mut failed = false;
    let mut count = 0;
    let mut cases = cases();
    if let Some(after) = &options.after {
        let place = cases.iter().position(|case| case.name == after);
        let place = place.with_context(|| format!("there is no test {after}"))?;
        cases.drain(..=place);
    }
    for case in cases {
        if !case.is_in(options.set) || !wanted(case.name) {
            continue;
        }
        count += 1;
        let result = case.judge(&guest);
        failed |= result.is_err();
        report::test(case.name, &result);
    }
    if count == 0 {
        // Not a failure of the tool: a filter may name tests of the other set only.
        report::line("UIO-TRACE-NOTE no test chosen");
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Runs a workload of this program as a process of its own and reads its line.
pub fn workload(line: &str) -> Result<Value> {
    let output = Command::new("/bin/testbed")
        .args(line.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start the workload {line}"))?;
    if !output.status.success() {
        bail!(
            "workload {line}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.trim()).with_context(|| format!("workload {line} printed {text}"))
}

/// A number in a record, by pointer.
pub fn number(record: &Value, pointer: &str) -> Result<u64> {
    record
        .pointer(pointer)
        .and_then(Value::as_u64)
        .with_context(|| format!("no number {pointer} in {}", shortened(record)))
}

/// A record short enough for a verdict line.
pub fn shortened(record: &Value) -> String {
    let mut text = record.to_string();
    if text.len() > 400 {
        let end = (0..=400).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// Fails unless the two are the same.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<()> {
    if found != expected {
        bail!("{what} is {found:?}, should be {expected:?}");
    }
    Ok(())
}

/// Fails unless `found` is within `share` of `expected`, or within `floor`, whichever is more.
pub fn near(what: &str, found: f64, expected: f64, share: f64, floor: f64) -> Result<()> {
    let allowed = (expected.abs() * share).max(floor);
    if (found - expected).abs() > allowed {
        bail!(
            "{what} is {found:.0}, should be {expected:.0} ({:+.1} %, allowed {:.1} %)",
            (found - expected) / expected * 100.0,
            allowed / expected * 100.0
        );
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::near;

    #[test]
    fn near_takes_the_wider_of_share_and_floor() {
        assert!(near("x", 104.0, 100.0, 0.05, 0.0).is_ok());
        assert!(near("x", 106.0, 100.0, 0.05, 0.0).is_err());
        assert!(near("x", 106.0, 100.0, 0.05, 10.0).is_ok());
    }
}
