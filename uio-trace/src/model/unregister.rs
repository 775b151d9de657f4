//! The course of unregistrations: what `uio_unregister_device` spent its time on.
//!
//! With info_lock: the wait for it, then the rest. On kernels converted to a percpu_ref it kills the device's ref and waits
//! for the kill's confirmation and for the last put ("uio: Replace mutex info_lock with percpu_ref", 2022). Kill, switch and
//! release are events of their own; here they are put together with the unregistration during which its task killed the ref.

use super::snapshot::{RefCourse, RefHolder, Unregister};
use crate::event::{KernelPtr, MonotonicNs, Task, UioOp, UioRunning};
use crate::fast_map::PtrMap;
use crate::format::{duration, plural};

/// Courses followed at a time; a device has one ref.
const MAX_COURSES: usize = 256;

/// Holders kept of a course.
const MAX_HOLDERS: usize = 8;
/// A `struct uio_device`, and the ref in it, is not larger.
const UIO_DEVICE_MAX: u64 = 2048;

/// A ref of the uio module that was killed.
#[derive(Debug, Clone)]
struct Course {
    tid: u32,
    killed_ns: MonotonicNs,
    confirmed_ns: Option<MonotonicNs>,
    released_ns: Option<MonotonicNs>,
    references: Option<u64>,
    holders: Vec<RefHolder>,
}

/// Refs of the uio module on their way.
#[derive(Debug, Clone, Default)]
pub struct Courses {
    by_ref: PtrMap<Course>,
}

impl Courses {
    /// A ref whose release function is in the uio module was killed.
    pub fn killed(&mut self, ts_ns: MonotonicNs, reference: KernelPtr, by: &Task) {
        if self.by_ref.len() >= MAX_COURSES && !self.by_ref.contains_key(&reference) {
            // Of the oldest the unregistration's end was lost.
            let oldest = self
                .by_ref
                .iter()
                .min_by_key(|(_, c)| c.killed_ns)
                .map(|(r, _)| *r);
            oldest.and_then(|reference| self.by_ref.remove(&reference));
        }
        let course = Course {
            tid: by.tid,
            killed_ns: ts_ns,
            confirmed_ns: None,
            released_ns: None,
            references: None,
            holders: Vec::new(),
        };
        self.by_ref.insert(reference, course);
    }

    /// Its switch to atomic mode is over; the confirmation follows in the same callback.
    pub fn switched(&mut self, ts_ns: MonotonicNs, reference: KernelPtr, references: Option<u64>) {
        if let Some(course) = self.by_ref.get_mut(&reference) {
            course.confirmed_ns.get_or_insert(ts_ns);
            course.references = references;
            if references == Some(0) {
                course.released_ns.get_or_insert(ts_ns);
            }
        }
    }

    /// Its last reference is gone.
    pub fn released(&mut self, ts_ns: MonotonicNs, reference: KernelPtr) {
        if let Some(course) = self.by_ref.get_mut(&reference) {
            course.released_ns.get_or_insert(ts_ns);
        }
    }

    /// Operations under way: those on the device of a ref that have been since before its kill hold it.
    pub fn running(&mut self, rows: &[UioRunning]) {
        for (reference, course) in &mut self.by_ref {
            if course.released_ns.is_some() {
                continue;
            }
            for row in rows {
                let inside = row.idev.0 != 0 && reference.0.wrapping_sub(row.idev.0) < UIO_DEVICE_MAX;
                let known = course.holders.iter().any(|holder| holder.tid == row.by.tid);
                if inside
                    && !known
                    && row.op != UioOp::Unregister
                    && row.since_ns <= course.killed_ns
                    && course.holders.len() < MAX_HOLDERS
                {
                    course.holders.push(RefHolder {
                        comm: row.by.comm.clone(),
                        tgid: row.by.tgid,
                        tid: row.by.tid,
                        op: row.op.name().to_owned(),
                        before_ns: course.killed_ns - row.since_ns,
                    });
                }
            }
        }
    }

    /// An unregistration returned: takes what it killed.
    pub fn unregistered(
        &mut self,
        ts_ns: MonotonicNs,
        by: Task,
        latency_ns: u64,
        wait_ns: u64,
    ) -> Unregister {
        let began_ns = ts_ns.saturating_sub(latency_ns);
        let reference = self
            .by_ref
            .iter()
            .find(|(_, course)| course.tid == by.tid && course.killed_ns >= began_ns)
            .map(|(reference, _)| *reference);
        let course = reference.and_then(|reference| self.by_ref.remove(&reference));
        Unregister {
            at_ns: ts_ns,
            comm: by.comm,
            tgid: by.tgid,
            tid: by.tid,
            latency_ns,
            wait_ns,
            course: course.map(|course| RefCourse {
                before_ns: course.killed_ns.saturating_sub(began_ns),
                grace_period_ns: course
                    .confirmed_ns
                    .map(|confirmed| confirmed.saturating_sub(course.killed_ns)),
                references: course.references,
                holders: course.holders,
                drain_ns: course
                    .released_ns
                    .zip(course.confirmed_ns)
                    .map(|(released, confirmed)| released.saturating_sub(confirmed)),
                rest_ns: course.released_ns.map(|released| ts_ns.saturating_sub(released)),
            }),
        }
    }
}

impl Unregister {
    /// How it went, as a sentence without its subject.
    pub fn sentence(&self) -> String {
        let by = format!("unregistered by {} ({}/{})", self.comm, self.tgid, self.tid);
        let took = duration(self.latency_ns);
        let Some(course) = &self.course else {
            return match self.wait_ns {
                0 => format!("{by} in {took}, without waiting for info_lock"),
                wait => format!("{by} in {took}, of it {} waiting for info_lock", duration(wait)),
            };
        };
        let known = |ns: Option<u64>| ns.map_or_else(|| "?".to_owned(), duration);
        let left = course
            .references
            .map_or_else(String::new, |n| format!(" with {} left", plural(n, "reference")));
        let held = match course.holders.as_slice() {
            [] => String::new(),
            [first, rest @ ..] => {
                let more = match rest.len() {
                    0 => String::new(),
                    n => format!(" and {}", plural(n as u64, "other")),
                };
                format!(
                    ", held by {} ({}/{}) in {}{more}",
                    first.comm, first.tgid, first.tid, first.op
                )
            }
        };
        format!(
            "{by} in {took}: grace period {}, then {} until the last put{left}{held}, {} to the return",
            known(course.grace_period_ns),
            known(course.drain_ns),
            known(course.rest_ns),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Courses, MAX_COURSES};
    use crate::event::{DeviceKey, KernelPtr, Task, UioOp, UioRunning};

    fn task(tid: u32) -> Task {
        Task {
            tgid: 1,
            tid,
            comm: "rmmod".into(),
        }
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let mut courses = Courses::default();
        courses.killed(110, KernelPtr(1), &task(7));
        courses.killed(110, KernelPtr(2), &task(8));
        courses.switched(140, KernelPtr(1), Some(2));
        courses.released(190, KernelPtr(1));
        let row = courses.unregistered(200, task(7), 100, 0);
        let course = row.course.clone().unwrap();
        assert_eq!(course.before_ns, 10);
        assert_eq!(course.grace_period_ns, Some(30));
        assert_eq!(course.references, Some(2));
        assert_eq!(course.drain_ns, Some(50));
        assert_eq!(course.rest_ns, Some(10));
        assert_eq!(
            row.sentence(),
            "unregistered by rmmod (1/7) in 100 ns: grace period 30 ns, then 50 ns until the last put with 2 references left, \
             10 ns to the return"
        );
        // What it took is gone, the other's is still there.
        assert!(courses.unregistered(201, task(7), 100, 0).course.is_none());
        assert!(courses.unregistered(201, task(8), 100, 0).course.is_some());
    }

    #[test]
    fn who_has_been_inside_since_before_the_kill_holds_it() {
        let running = |tid, minor, since_ns, op| UioRunning {
            by: Task {
                tgid: 3,
                tid,
                comm: "fio".into(),
            },
            device: DeviceKey { minor, generation: 0 },
            idev: KernelPtr(0x10_0000 * u64::from(minor + 1)),
            op,
            since_ns,
            waits: None,
        };
        let mut courses = Courses::default();
        let reference = KernelPtr(0x10_0000 + 640);
        courses.killed(110, reference, &task(7));
        let rows = [
            running(5, 0, 90, UioOp::Write),
            // Began after the kill: refused, or in the part without a reference.
            running(6, 0, 120, UioOp::Write),
            // Another device.
            running(8, 1, 90, UioOp::Write),
            running(7, 0, 100, UioOp::Unregister),
        ];
        courses.running(&rows);
        courses.running(&rows);
        courses.switched(140, reference, Some(1));
        courses.released(190, reference);
        // Nobody holds what is released.
        courses.running(&[running(9, 0, 80, UioOp::Poll)]);
        let row = courses.unregistered(200, task(7), 100, 0);
        let holders = &row.course.as_ref().unwrap().holders;
        let found: Vec<_> = holders
            .iter()
            .map(|h| (h.tid, h.op.as_str(), h.before_ns))
            .collect();
        assert_eq!(found, [(5, "write", 20)]);
        assert!(
            row.sentence()
                .contains("1 reference left, held by fio (3/5) in write, 10 ns")
        );
    }

    #[test]
    fn an_older_kill_is_not_this_ones() {
        let mut courses = Courses::default();
        courses.killed(10, KernelPtr(1), &task(7));
        let row = courses.unregistered(200, task(7), 100, 5);
        assert_eq!(
            row.sentence(),
            "unregistered by rmmod (1/7) in 100 ns, of it 5 ns waiting for info_lock"
        );
    }

    #[test]
    fn the_oldest_gives_way() {
        let mut courses = Courses::default();
        for n in 0..=MAX_COURSES as u64 {
            courses.killed(n, KernelPtr(n), &task(7));
        }
        assert_eq!(courses.by_ref.len(), MAX_COURSES);
        assert!(!courses.by_ref.contains_key(&KernelPtr(0)));
    }
}
