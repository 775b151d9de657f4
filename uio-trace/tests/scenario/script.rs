//! The events of a scenario, as text: one event a line, `TIME VERB [TASK] [key=value ...]`.
//!
//! - TIME: `15ms`, `1.5us`, `2s`; `+5ms` is relative to the line before. Events are sorted by time unless the scenario
//!   says otherwise.
//! - TASK: `comm/tgid` or `comm/tgid/tid`.
//! - A number may be a range, `ctx=1..64`: the event happens for each of them, `step=10us` apart.
//!
//! A context N has its kioctx at N * 0x1000, `users` at the same address and `reqs` 24 bytes further, as in the kernel.

use std::collections::BTreeMap;
use uio_trace::event::*;
use uio_trace::model::snapshot::{Probe, ProbeState};
use uio_trace_common::histogram::bucket_index;

/// Reads scripts; remembers what symbols it has announced.
#[derive(Default)]
pub struct Script {
    symbols: BTreeMap<String, u64>,
    now_ns: u64,
}

/// A line's words.
struct Line<'a> {
    task: Option<Task>,
    keys: BTreeMap<&'a str, &'a str>,
    words: Vec<&'a str>,
}

/// `15ms` in ns.
pub fn duration(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    Some((number.parse::<f64>().ok()? * scale).round() as u64)
}

impl<'a> Line<'a> {
    fn new(words: impl Iterator<Item = &'a str>) -> Line<'a> {
        let mut line = Line {
            task: None,
            keys: BTreeMap::new(),
            words: Vec::new(),
        };
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => {
                    line.keys.insert(key, value);
                }
                None if word.contains('/') && !word.contains(':') => line.task = Some(task(word)),
                None => line.words.push(word),
            }
        }
        line
    }

    fn task(&self) -> Task {
        self.task.clone().expect("a task")
    }

    fn text(&self, key: &str) -> &'a str {
        self.keys.get(key).unwrap_or_else(|| panic!("{key}=")) // a test's own mistake
    }

    fn number(&self, key: &str, default: u64) -> u64 {
        self.keys
            .get(key)
            .map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{key}={v}")))
    }

    fn ns(&self, key: &str) -> u64 {
        self.keys
            .get(key)
            .map_or(0, |v| duration(v).unwrap_or_else(|| panic!("{key}={v}")))
    }

    /// `left=3`
    fn references(&self) -> Option<u64> {
        self.keys.get("left").map(|_| self.number("left", 0))
    }

    fn stack(&self) -> TaskStack {
        TaskStack {
            task: self.task(),
            frames: self.words.iter().map(|w| (*w).to_string()).collect(),
            direct_files: self.keys.get("direct").map(|list| {
                list.split(',')
                    .filter(|f| !f.is_empty())
                    .map(str::to_owned)
                    .collect()
            }),
        }
    }

    fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }

    fn device(&self) -> DeviceKey {
        DeviceKey {
            minor: self.number("minor", 0) as u32,
            generation: self.number("gen", 0) as u32,
        }
    }

    /// `1ms*10,2ms*3`
    fn histogram(&self, key: &str) -> HistogramReading {
        let mut values = Vec::new();
        for part in self
            .keys
            .get(key)
            .map_or("", |v| v)
            .split(',')
            .filter(|p| !p.is_empty())
        {
            let (value, times) = part.split_once('*').unwrap_or((part, "1"));
            let value = duration(value).unwrap_or_else(|| panic!("{key}={part}"));
            values.extend(std::iter::repeat_n(value, times.parse().expect("a number")));
        }
        let mut buckets = BTreeMap::new();
        for v in &values {
            *buckets.entry(bucket_index(*v) as u16).or_insert(0) += 1;
        }
        HistogramReading {
            sum: values.iter().sum(),
            min: values.iter().min().copied().unwrap_or(0),
            max: values.iter().max().copied().unwrap_or(0),
            buckets: buckets.into_iter().collect(),
        }
    }
}

fn task(word: &str) -> Task {
    let mut parts = word.rsplitn(3, '/').collect::<Vec<_>>();
    parts.reverse();
    // comm/tgid, or comm/tgid/tid.
    let number = |i: usize| parts.get(i).map(|p: &&str| p.parse().expect("a pid"));
    let tgid = number(1).expect("comm/tgid");
    Task {
        comm: parts[0].to_string(),
        tgid,
        tid: number(2).unwrap_or(tgid),
    }
}

fn op(name: &str) -> UioOp {
    UioOp::ALL
        .into_iter()
        .find(|o| o.name() == name)
        .unwrap_or_else(|| panic!("op={name}"))
}

fn context(n: u64) -> (KernelPtr, KernelPtr, KernelPtr) {
    (
        KernelPtr(n * 0x1000),
        KernelPtr(n * 0x1000),
        KernelPtr(n * 0x1000 + 24),
    )
}

impl Script {
    /// The events of a text.
    pub fn read(&mut self, text: &str, sorted: bool) -> Vec<Event> {
        let mut events = Vec::new();
        for line in text
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty() && !l.starts_with('#'))
        {
            let mut words = line.split_whitespace();
            let (time, verb) = (words.next().expect("a time"), words.next().expect("a verb"));
            let ns = |t: &str| duration(t).unwrap_or_else(|| panic!("time in: {line}"));
            self.now_ns = match time.strip_prefix('+') {
                Some(time) => self.now_ns + ns(time),
                None => ns(time),
            };
            let rest: Vec<&str> = words.collect();
            let range = rest.iter().find_map(|w| {
                let (key, value) = w.split_once('=')?;
                let (from, to) = value.split_once("..")?;
                Some((key, from.parse::<u64>().ok()?, to.parse::<u64>().ok()?))
            });
            let Some((key, from, to)) = range else {
                self.event(self.now_ns, verb, &Line::new(rest.into_iter()), &mut events);
                continue;
            };
            for n in from..=to {
                let replaced = format!("{key}={n}");
                let words = rest.iter().map(|w| {
                    if w.starts_with(&format!("{key}=")) {
                        &replaced
                    } else {
                        *w
                    }
                });
                let line = Line::new(words);
                let ts = self.now_ns + (n - from) * line.ns("step");
                self.event(ts, verb, &line, &mut events);
            }
        }
        if sorted {
            events.sort_by_key(|e: &Event| e.ts_ns);
        }
        events
    }

    fn symbol(&mut self, name: &str, out: &mut Vec<Event>) -> KernelPtr {
        let next = 0xffff_ffff_8100_0000 + self.symbols.len() as u64 * 0x100;
        if let Some(addr) = self.symbols.get(name) {
            return KernelPtr(*addr);
        }
        self.symbols.insert(name.to_string(), next);
        let (function, module) = match name.trim_end_matches(']').split_once('[') {
            Some((function, module)) => (function, Some(module.to_string())),
            None => (name, None),
        };
        let kind = EventKind::Symbol {
            addr: KernelPtr(next),
            name: function.to_string(),
            module,
        };
        out.push(Event { ts_ns: 0, kind });
        KernelPtr(next)
    }

    fn event(&mut self, ts_ns: u64, verb: &str, line: &Line, out: &mut Vec<Event>) {
        let ctx = line.number("ctx", 0);
        let (kioctx, users, reqs) = context(ctx);
        let reference = KernelPtr(0xffff_8880_0000_0000 + line.number("ref", 0) * 0x40);
        let mm = KernelPtr(line.number("mm", 1) << 40);
        let user_id = 0x7f00_0000_0000 + ctx * 0x1000;
        let kill = |by: Task, reference, release| EventKind::RefKill {
            by,
            reference,
            release,
            confirm: None,
            already_atomic: line.has("atomic"),
            already_dead: line.has("dead"),
            references: line.references(),
            stack: None,
        };
        let kind = match verb {
            "exit_begin" => EventKind::ExitAioBegin { by: line.task(), mm },
            "exit_end" => EventKind::ExitAioEnd { by: line.task(), mm },
            "destroy_begin" => EventKind::IoDestroyBegin {
                by: line.task(),
                user_id,
            },
            "destroy_end" => {
                let ret = line.keys.get("ret").map_or(0, |r| r.parse().expect("ret="));
                EventKind::IoDestroyEnd { by: line.task(), ret }
            }
            "aio_kill" => EventKind::AioKill {
                by: line.task(),
                mm,
                ctx: kioctx,
                wait: (!line.has("nowait")).then(|| KernelPtr(line.number("wait", 7))),
                users,
                reqs,
                user_id,
            },
            "users_killed" => kill(line.task(), users, self.symbol("free_ioctx_users", out)),
            "reqs_killed" => kill(line.task(), reqs, self.symbol("free_ioctx_reqs", out)),
            "users_switched" => EventKind::RefSwitched {
                reference: users,
                release: self.symbol("free_ioctx_users", out),
                references: line.references(),
            },
            "reqs_switched" => EventKind::RefSwitched {
                reference: reqs,
                release: self.symbol("free_ioctx_reqs", out),
                references: line.references(),
            },
            "users_released" => EventKind::AioUsersReleased { ctx: kioctx },
            // `file=data.ibd disk=dm-3`, or `disk=nullb0` alone for a disk itself.
            "last_request" => {
                let word = |key: &str| line.keys.get(key).map(ToString::to_string);
                EventKind::AioLastRequest {
                    ctx: kioctx,
                    file: RequestFile {
                        name: word("file").or_else(|| word("disk")).unwrap_or_default(),
                        inode: line.number("inode", 1),
                        device: "253:3".into(),
                        disk: word("disk"),
                        is_device: !line.keys.contains_key("file"),
                    },
                }
            }
            "reqs_released" => EventKind::AioReqsReleased { ctx: kioctx },
            // A context's whole way: kill at TIME, then each phase's length.
            "drains" => {
                let [gp1, refs, gp2, io] = ["gp1", "refs", "gp2", "io"].map(|k| line.ns(k));
                let mut at = |ns: u64, verb: &str| self.event(ts_ns + ns, verb, line, out);
                at(0, "aio_kill");
                at(0, "users_killed");
                at(gp1, "users_switched");
                at(gp1 + refs, "users_released");
                at(gp1 + refs, "reqs_killed");
                at(gp1 + refs + gp2, "reqs_switched");
                at(gp1 + refs + gp2 + io, "reqs_released");
                return;
            }
            "ref_kill" => kill(line.task(), reference, self.symbol(line.text("release"), out)),
            "ref_switched" => EventKind::RefSwitched {
                reference,
                release: self.symbol(line.text("release"), out),
                references: line.references(),
            },
            "ref_released" => EventKind::RefReleased {
                reference,
                release: self.symbol(line.text("release"), out),
                early: line.has("early"),
            },
            "ref_looked" | "users_looked" | "reqs_looked" => EventKind::RefLooked {
                reference: match verb {
                    "ref_looked" => reference,
                    "users_looked" => users,
                    _ => reqs,
                },
                release: self.symbol(line.text("release"), out),
                state: match line.words.first().copied() {
                    Some("gone") => RefState::Gone,
                    Some("alive") => RefState::Alive,
                    Some("grace") => RefState::GracePeriod,
                    _ => RefState::Held(line.number("left", 0)),
                },
            },
            // COMM/PID [FUNCTION ...], innermost first.
            "waiting" => EventKind::Waiting(vec![line.stack()]),
            "stack" => EventKind::Stacks(vec![line.stack()]),
            "no_stacks" => EventKind::Stacks(Vec::new()),
            "reading" => EventKind::UioReading(vec![reading(line)]),
            "devices" => EventKind::UioDevices(
                line.words
                    .iter()
                    .map(|w| {
                        let (minor, name) = w.split_once(':').expect("minor:name");
                        let minor = minor.parse().expect("a minor");
                        UioDeviceInfo {
                            minor,
                            name: Some(name.to_string()),
                            version: Some("1".to_string()),
                            ..UioDeviceInfo::default()
                        }
                    })
                    .collect(),
            ),
            // COMM/PID minor=N fds=N [deleted] [partial], or nothing at all.
            "open" => EventKind::UioOpen(UioOpen {
                openers: line
                    .task
                    .iter()
                    .map(|task| UioOpener {
                        minor: line.number("minor", 0) as u32,
                        deleted: line.has("deleted"),
                        tgid: task.tgid,
                        comm: task.comm.clone(),
                        descriptors: line.number("fds", 1),
                    })
                    .collect(),
                complete: !line.has("partial"),
            }),
            "unregistered" => EventKind::UioUnregistered {
                by: line.task(),
                device: line.device(),
                latency_ns: line.ns("latency"),
                wait_ns: line.ns("wait"),
            },
            "presence" if line.has("present") => EventKind::UioPresence(UioPresence::Present),
            "presence" => EventKind::UioPresence(UioPresence::Absent),
            "slow" => EventKind::UioSlow(UioSlow {
                by: line.task(),
                cpu: 0,
                device: line.device(),
                op: op(line.text("op")),
                ret: 0,
                latency_ns: line.ns("latency"),
                wait_ns: line.ns("wait"),
                hold_ns: line.ns("hold"),
                driver_wait_ns: line.ns("driver_wait"),
                holder: line.keys.get("holder").map(|h| task(&h.replace(':', "/"))),
                holder_op: line.keys.get("holder_op").map(|name| op(name)),
            }),
            "blocker" => EventKind::UioBlockers(vec![UioBlockerReading {
                device: line.device(),
                waiter_op: op(line.text("waiter")),
                holder_op: line.keys.get("op").map(|name| op(name)),
                holder: line.task(),
                count: line.number("count", 0),
                wait_ns: line.ns("wait"),
                same_cpu: line.number("same_cpu", 0),
            }]),
            "counters" => EventKind::Counters(
                line.keys
                    .iter()
                    .map(|(k, v)| (k.to_string(), v.parse().expect("a count")))
                    .collect(),
            ),
            "probes" => EventKind::Probes(line.words.iter().map(|w| probe(w)).collect()),
            "tick" => EventKind::Tick,
            other => panic!("no such verb: {other}"),
        };
        out.push(Event { ts_ns, kind });
    }
}

/// `subject:hook`, with a `!` at the end if it is not attached and `+` for blanks.
fn probe(word: &str) -> Probe {
    let (subject, hook) = word.trim_end_matches('!').split_once(':').expect("subject:hook");
    let failed = word.ends_with('!');
    Probe {
        subject: subject.to_string(),
        hook: hook.replace('+', " "),
        state: if failed {
            ProbeState::Failed
        } else {
            ProbeState::Attached
        },
        method: None,
        reason: failed.then(|| "not on this kernel".to_string()),
        gives: String::new(),
        required: false,
        cost: None,
        late_cpus: Vec::new(),
    }
}

fn reading(line: &Line) -> UioSeriesReading {
    let errors = line
        .keys
        .get("errors")
        .map_or("", |v| v)
        .split(',')
        .filter(|p| !p.is_empty());
    UioSeriesReading {
        device: line.device(),
        idev: KernelPtr(0xffff_8881_0000_0000),
        op: op(line.text("op")),
        first_ns: line.ns("first"),
        count: line.number("count", 0),
        contended: line.number("contended", 0),
        driver_waits: line.number("driver_waits", 0),
        driver_wait_ns: line.ns("driver_wait"),
        spin_ns: 0,
        wake_ns: 0,
        refused: 0,
        errors: errors
            .map(|p| {
                let (code, n) = p.split_once('*').expect("errno*count");
                (code.parse().expect("an errno"), n.parse().expect("a count"))
            })
            .collect(),
        latency: line.histogram("latency"),
        wait: line.histogram("wait"),
        hold: line.histogram("hold"),
    }
}
