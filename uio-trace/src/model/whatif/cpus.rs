/// CPUs that work for others than these threads, where that is a part and no CPU is idle: then a lock less gives the threads no CPU
/// more, and what they wait for each other they may wait for a CPU instead.
fn others(cpus: Option<u32>, cpu_use: CpuUse) -> Option<f64> {
    let cpus = f64::from(cpus?);
    let idle = cpu_use.idle?;
    let others = cpus - idle - cpu_use.busy;
    (idle < SOME_CPUS * cpus && others >= SOME_CPUS * cpus).then_some(others)
}
