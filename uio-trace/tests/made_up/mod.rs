//! The program's own loop (`app::top::show`) over made-up events, for tests that need it in a terminal: the kernel they
//! run on may refuse tracing.

use std::collections::BTreeMap;
use std::time::Duration;
use uio_trace::app::{
    signals::Stop,
    top::{Live, show},
};
use uio_trace::error::AppError;
use uio_trace::event::{
    DeviceKey, Event, EventKind, HistogramReading, KernelPtr, UioDeviceInfo, UioOp, UioPresence,
    UioSeriesReading,
};
use uio_trace::model::snapshot::{Meta, Snapshot, UioLock};
use uio_trace::say::say;

/// What [`run_as_child`] is to do; not set: this process is no child.
pub const MODE: &str = "UIO_TRACE_PTY_TEST";
/// For what takes a few frames; much longer than needed, for machines that do other things.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Events that nothing made.
struct MadeUp {
    mode: String,
    told: bool,
    readings: u64,
}

impl Live for MadeUp {
    async fn step(&mut self, mut sink: impl FnMut(Event)) -> Result<(), AppError> {
        if self.told {
            tokio::time::sleep(Duration::from_millis(50)).await;
            return Ok(());
        }
        self.told = true;
        let device = UioDeviceInfo {
            minor: 0,
            name: Some("made-up".into()),
            version: Some("1".into()),
            ..UioDeviceInfo::default()
        };
        let kinds = [
            EventKind::UioLockKind(UioLock::Mutex),
            EventKind::UioPresence(UioPresence::Present),
            EventKind::UioDevices(vec![device]),
        ];
        kinds.into_iter().for_each(|kind| sink(Event { ts_ns: 1, kind }));
        Ok(())
    }

    fn catch_up(&mut self, mut sink: impl FnMut(Event)) -> Result<(), AppError> {
        self.readings += 1;
        if self.readings > 1 {
            match self.mode.as_str() {
                "panic" => panic!("as asked"),
                "fail" => return Err(AppError::Failed("the made-up map cannot be read".into())),
                _ => {}
            }
        }
        let histogram = || HistogramReading {
            sum: self.readings * 1_000_000,
            min: 900,
            max: 1100,
            buckets: vec![(63, self.readings * 1000)],
        };
        let reading = UioSeriesReading {
            device: DeviceKey {
                minor: 0,
                generation: 0,
            },
            idev: KernelPtr(1),
            op: UioOp::Write,
            first_ns: 1,
            count: self.readings * 1000,
            contended: self.readings * 1000,
            driver_waits: 0,
            driver_wait_ns: 0,
            spin_ns: 0,
            wake_ns: 0,
            refused: 0,
            errors: BTreeMap::new(),
            latency: histogram(),
            wait: histogram(),
            hold: histogram(),
        };
        let ts_ns = self.readings * 1_000_000_000;
        for kind in [EventKind::UioReading(vec![reading]), EventKind::Tick] {
            sink(Event { ts_ns, kind });
        }
        Ok(())
    }

    fn shape(&self, _snapshot: &mut Snapshot) {}
}

/// As the program's `main` does it, if this process was started to do so. Does not return then.
pub fn run_as_child() {
    let Ok(mode) = std::env::var(MODE) else {
        return;
    };
    let meta = Meta {
        schema_version: 1,
        tool: "uio-trace".into(),
        host: "made-up-host".into(),
        kernel: "6.1".into(),
        boot_id: String::new(),
        started: "2026-01-01T00:00:00Z".into(),
        started_ns: 0,
        probes: Vec::new(),
        rcu: BTreeMap::new(),
    };
    let mut live = MadeUp {
        mode: mode.clone(),
        told: false,
        readings: 0,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let ended = runtime.block_on(async {
        let mut stop = Stop::new().unwrap();
        show(&mut live, meta, &mut stop).await
    });
    say("detaching");
    if mode == "slow to detach" {
        std::thread::sleep(PATIENCE);
    }
    let code = match ended {
        Ok(()) => 0,
        Err(error) => {
            say(&error);
            error.exit_code()
        }
    };
    std::process::exit(i32::from(code));
}
