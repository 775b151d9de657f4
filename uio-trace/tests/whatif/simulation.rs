//! Threads that think, enter an operation, take a lock, hold it computing or asleep, and leave; on a few CPUs.
//!
//! The scheduler takes turns of 3 ms, prefers the CPU a thread was on, and lets a thread that goes on go on. The lock is
//! handed over in order of arrival; a waiter's wait ends when it runs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// What is simulated.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub threads: usize,
    pub cpus: usize,
    /// CPU time between operations.
    pub think_ns: u64,
    /// CPU time in an operation before the lock, and as much after it.
    pub entry_ns: u64,
    pub hold_ns: u64,
    /// Holders sleep instead of computing.
    pub sleeps: bool,
}

/// Waits that began behind a thread.
#[derive(Debug, Default, Clone, Copy)]
pub struct Waits {
    pub count: u64,
    pub wait_ns: u64,
    pub same_cpu: u64,
}

/// What was measured.
#[derive(Debug, Default)]
pub struct Run {
    pub duration_ns: u64,
    pub latency: Vec<u64>,
    pub wait: Vec<u64>,
    pub hold: Vec<u64>,
    pub behind: BTreeMap<usize, Waits>,
    /// Of each thread: time on a CPU, and time it could run and waited for one.
    pub cpu: Vec<(u64, u64)>,
}

const TURN_NS: u64 = 3_000_000;
const DURATION_NS: u64 = 300_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Think,
    Entry,
    Hold,
    Leave,
}

struct Thread {
    step: Step,
    /// CPU time left of the step.
    left: u64,
    cpu: usize,
    turn_left: u64,
    entered: u64,
    acquired: u64,
    ready_since: u64,
    /// Since when and behind whom it waits.
    waits: Option<(u64, usize)>,
}

struct Simulation {
    work: Work,
    locked: bool,
    now: u64,
    seed: u64,
    threads: Vec<Thread>,
    ready: VecDeque<usize>,
    /// Whom each CPU runs.
    running: Vec<Option<usize>>,
    owner: Option<usize>,
    queue: VecDeque<usize>,
    /// Time, thread, whether its sleep ends (else its stretch on the CPU).
    events: BinaryHeap<Reverse<(u64, usize, bool)>>,
    run: Run,
}

/// Simulates 0.3 seconds, with the lock or without it.
pub fn run(work: &Work, locked: bool) -> Run {
    let threads = (0..work.threads).map(|i| Thread {
        step: Step::Think,
        left: work.think_ns * (i as u64 + 1) / work.threads as u64 + 1,
        cpu: i % work.cpus,
        turn_left: TURN_NS,
        entered: 0,
        acquired: 0,
        ready_since: 0,
        waits: None,
    });
    let mut simulation = Simulation {
        work: *work,
        locked,
        now: 0,
        seed: 7,
        threads: threads.collect(),
        ready: (0..work.threads).collect(),
        running: vec![None; work.cpus],
        owner: None,
        queue: VecDeque::new(),
        events: BinaryHeap::new(),
        run: Run {
            cpu: vec![(0, 0); work.threads],
            ..Run::default()
        },
    };
    simulation.dispatch();
    while let Some(Reverse((at, thread, awake))) = simulation.events.pop() {
        if at > DURATION_NS {
            break;
        }
        simulation.now = at;
        simulation.event(thread, awake);
        simulation.dispatch();
    }
    simulation.run.duration_ns = DURATION_NS;
    simulation.run
}

impl Simulation {
    /// A time 20 % around `ns`.
    fn about(&mut self, ns: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (ns * 4 / 5 + ns * 2 / 5 * ((self.seed >> 33) % 1000) / 1000).max(1)
    }

    /// Gives idle CPUs to those that are ready.
    fn dispatch(&mut self) {
        while let Some(&thread) = self.ready.front() {
            let before = self.threads[thread].cpu;
            let idle = |cpu: &usize| self.running[*cpu].is_none();
            let Some(cpu) = Some(before)
                .filter(idle)
                .or_else(|| (0..self.running.len()).find(idle))
            else {
                return;
            };
            self.ready.pop_front();
            self.run.cpu[thread].1 += self.now - self.threads[thread].ready_since;
            self.running[cpu] = Some(thread);
            self.threads[thread].cpu = cpu;
            self.threads[thread].turn_left = TURN_NS;
            if let Some((since, holder)) = self.threads[thread].waits.take() {
                self.run.wait.push(self.now - since);
                self.run.behind.entry(holder).or_default().wait_ns += self.now - since;
                self.acquire(thread);
            } else {
                self.compute(thread);
            }
        }
    }

    /// Goes on computing, at most to the end of its turn.
    fn compute(&mut self, thread: usize) {
        let t = &mut self.threads[thread];
        let stretch = t.left.min(t.turn_left);
        self.run.cpu[thread].0 += stretch;
        t.left -= stretch;
        t.turn_left -= stretch;
        self.events.push(Reverse((self.now + stretch, thread, false)));
    }

    fn make_ready(&mut self, thread: usize) {
        self.threads[thread].ready_since = self.now;
        self.ready.push_back(thread);
    }

    fn off_cpu(&mut self, thread: usize) {
        let cpu = self.threads[thread].cpu;
        self.running[cpu] = None;
    }

    fn acquire(&mut self, thread: usize) {
        self.threads[thread].acquired = self.now;
        self.threads[thread].step = Step::Hold;
        let hold = self.about(self.work.hold_ns);
        if self.work.sleeps {
            self.off_cpu(thread);
            self.events.push(Reverse((self.now + hold, thread, true)));
        } else {
            self.threads[thread].left = hold;
            self.compute(thread);
        }
    }

    fn event(&mut self, thread: usize, awake: bool) {
        if awake {
            // Needs a CPU to unlock.
            self.threads[thread].left = 1;
            self.make_ready(thread);
            return;
        }
        let t = &mut self.threads[thread];
        if t.turn_left == 0 {
            t.turn_left = TURN_NS;
            if !self.ready.is_empty() {
                t.left = t.left.max(1);
                self.off_cpu(thread);
                self.make_ready(thread);
                return;
            }
        }
        if self.threads[thread].left > 0 {
            return self.compute(thread);
        }
        self.next_step(thread);
    }

    fn next_step(&mut self, thread: usize) {
        let now = self.now;
        match self.threads[thread].step {
            Step::Think => {
                self.threads[thread].entered = now;
                self.threads[thread].step = Step::Entry;
                self.threads[thread].left = self.about(self.work.entry_ns);
                self.compute(thread);
            }
            Step::Entry => match self.owner.filter(|_| self.locked) {
                None => {
                    self.owner = Some(thread);
                    self.acquire(thread);
                }
                Some(holder) => {
                    let same = self.threads[holder].cpu == self.threads[thread].cpu;
                    let waits = self.run.behind.entry(holder).or_default();
                    waits.count += 1;
                    waits.same_cpu += u64::from(same);
                    self.threads[thread].waits = Some((now, holder));
                    self.queue.push_back(thread);
                    self.off_cpu(thread);
                }
            },
            Step::Hold => {
                self.run.hold.push(now - self.threads[thread].acquired);
                self.owner = self.queue.pop_front();
                if let Some(next) = self.owner {
                    self.make_ready(next);
                }
                self.threads[thread].step = Step::Leave;
                self.threads[thread].left = self.about(self.work.entry_ns);
                self.compute(thread);
            }
            Step::Leave => {
                self.run.latency.push(now - self.threads[thread].entered);
                self.threads[thread].step = Step::Think;
                self.threads[thread].left = self.about(self.work.think_ns);
                self.compute(thread);
            }
        }
    }
}
