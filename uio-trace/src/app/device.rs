//! `--device`: what it names, said before anything is traced.

use crate::{
    app::filter::Filter,
    config::TraceConfig,
    error::AppError,
    event::{Event, EventKind, UioDeviceInfo, UioPresence},
    format::{fit, printable},
    ingest::sysfs,
    kernel::Root,
    model::limits::MAX_UIO_DEVICES,
    say::say,
};
use std::{collections::BTreeSet, time::Duration};

/// How long names are waited for: reading one takes the device's info_lock, which may never be released.
const PATIENCE: Duration = Duration::from_secs(1);
/// Devices named in a message.
const NAMED: usize = 10;
/// Columns of a name in a message.
const NAME_COLUMNS: usize = 40;

/// A device that is asked for by name must exist, unless uio is not there yet; that one name stands for several is said.
///
/// # Errors
/// No such device, with those there are.
pub fn check(root: &Root, filter: &Filter, config: &TraceConfig) -> Result<(), AppError> {
    let Some(wanted) = &config.device else {
        return Ok(());
    };
    let Some(minors) = sysfs::minors(root) else {
        return Ok(());
    };
    // A minor needs no name.
    if minors.iter().any(|minor| *wanted == format!("uio{minor}")) {
        return Ok(());
    }
    let devices = sysfs::names(root, &minors, PATIENCE);
    let matching = |device: &&UioDeviceInfo| filter.wanted_device(device);
    match judge(
        wanted,
        &Where::Here,
        &devices,
        &devices.iter().filter(matching).collect::<Vec<_>>(),
    ) {
        Ok(None) => Ok(()),
        Ok(Some(remark)) => {
            say(remark);
            Ok(())
        }
        Err(message) => Err(AppError::Usage(message)),
    }
}

/// The devices that a recording tells of, for `--device`.
#[derive(Debug)]
pub struct Recorded {
    wanted: String,
    devices: BTreeSet<(u32, Option<String>)>,
    /// It tells whether there are any.
    told: bool,
}

impl Recorded {
    /// Of a recording that is not read yet; `None`: no device is asked for.
    pub fn new(filter: &Filter) -> Option<Recorded> {
        filter.device().map(|wanted| Recorded {
            wanted: wanted.to_owned(),
            devices: BTreeSet::new(),
            told: false,
        })
    }

    /// Takes note of what an event tells, before it is filtered.
    pub fn look(&mut self, event: &Event) {
        match &event.kind {
            EventKind::UioDevices(devices) => {
                self.told = true;
                for device in devices.iter().take(MAX_UIO_DEVICES) {
                    if self.devices.len() < MAX_UIO_DEVICES {
                        self.devices.insert((device.minor, device.name.clone()));
                    }
                }
            }
            EventKind::UioPresence(UioPresence::Absent) => self.told = true,
            _ => {}
        }
    }

    /// What a reader must know of it, once all is read.
    ///
    /// # Errors
    /// No device of the recording is the one that was asked for; with those it has.
    pub fn judge(self, filter: &Filter, file: &str) -> Result<Option<String>, AppError> {
        let named: BTreeSet<u32> = self
            .devices
            .iter()
            .filter_map(|(minor, name)| name.as_ref().map(|_| *minor))
            .collect();
        let devices: Vec<UioDeviceInfo> = self
            .devices
            .into_iter()
            .filter(|(minor, name)| name.is_some() || !named.contains(minor))
            .map(|(minor, name)| UioDeviceInfo {
                minor,
                name,
                ..UioDeviceInfo::default()
            })
            .collect();
        if devices.is_empty() && !self.told {
            return Ok(Some(format!(
                "--device {}: the recording does not tell which UIO devices there were",
                printable(self.wanted)
            )));
        }
        let matching: Vec<&UioDeviceInfo> = devices.iter().filter(|d| filter.wanted_device(d)).collect();
        let place = Where::Recording(printable(file.to_owned()));
        judge(&self.wanted, &place, &devices, &matching).map_err(AppError::Usage)
    }
}

/// Where devices are looked for.
enum Where {
    /// On this host.
    Here,
    /// In a recording of this name.
    Recording(String),
}

/// What is to be said of devices and those of them that match.
fn judge(
    wanted: &str,
    place: &Where,
    devices: &[UioDeviceInfo],
    matching: &[&UioDeviceInfo],
) -> Result<Option<String>, String> {
    let wanted = printable(wanted.to_owned());
    let unread: Vec<&UioDeviceInfo> = devices.iter().filter(|d| d.name.is_none()).collect();
    match matching {
        [_] => Ok(None),
        [] if !unread.is_empty() => Ok(Some(match place {
            Where::Here => format!(
                "--device {wanted}: the name of {} cannot be read yet; it is traced if that is its name",
                list(&unread),
            ),
            Where::Recording(_) => format!(
                "--device {wanted}: no device of this name is known, and the name of {} could not be read when this was recorded",
                list(&unread),
            ),
        })),
        [] => {
            let similar: Vec<&UioDeviceInfo> = devices.iter().filter(|d| is_similar(&wanted, d)).collect();
            let all = || list(&devices.iter().collect::<Vec<_>>());
            let there = match (devices.is_empty(), similar.is_empty(), place) {
                (true, _, Where::Here) => "there are none now".to_owned(),
                (true, _, Where::Recording(_)) => "it has none".to_owned(),
                (_, false, _) => format!("did you mean {}?", list(&similar)),
                (_, true, Where::Here) => format!("there are {}", all()),
                (_, true, Where::Recording(_)) => format!("it has {}", all()),
            };
            let place = match place {
                Where::Here => String::new(),
                Where::Recording(file) => format!(" in {file}"),
            };
            Err(format!("--device {wanted}: no such UIO device{place}; {there}"))
        }
        several => Ok(Some(format!(
            "--device {wanted} is the name of {} devices, all are {}: {}",
            several.len(),
            match place {
                Where::Here => "traced",
                Where::Recording(_) => "reported",
            },
            list(several),
        ))),
    }
}

fn is_similar(wanted: &str, device: &UioDeviceInfo) -> bool {
    let name = device.name.as_deref().unwrap_or_default().to_lowercase();
    wanted.len() >= 2 && name.contains(&wanted.to_lowercase())
}

/// `uio0 (name), uio1 (name), and 3 more`; names are the drivers' texts.
fn list(devices: &[&UioDeviceInfo]) -> String {
    let mut words: Vec<String> = devices
        .iter()
        .take(NAMED)
        .map(|d| match &d.name {
            Some(name) => format!("uio{} ({})", d.minor, fit(&printable(name.clone()), NAME_COLUMNS)),
            None => format!("uio{}", d.minor),
        })
        .collect();
    if devices.len() > NAMED {
        words.push(format!("and {} more", devices.len() - NAMED));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(minor: u32, name: Option<&str>) -> UioDeviceInfo {
        UioDeviceInfo {
            minor,
            name: name.map(str::to_owned),
            version: None,
            ..UioDeviceInfo::default()
        }
    }

    fn said(wanted: &str, devices: &[UioDeviceInfo]) -> Result<Option<String>, String> {
        let filter = Filter::new(&TraceConfig {
            device: Some(wanted.to_owned()),
            ..TraceConfig::default()
        });
        let matching: Vec<&UioDeviceInfo> = devices.iter().filter(|d| filter.wanted_device(d)).collect();
        judge(wanted, &Where::Here, devices, &matching)
    }

    #[test]
    fn one_none_or_several_are_told_apart() {
        let devices = [
            device(0, Some("tcm-user/0/disk0/file")),
            device(1, Some("igb_uio")),
            device(2, Some("igb_uio")),
        ];
        assert_eq!(said("uio0", &devices), Ok(None));
        assert_eq!(said("tcm-user/0/disk0/file", &devices), Ok(None));
        assert_eq!(
            said("igb_uio", &devices),
            Ok(Some(
                "--device igb_uio is the name of 2 devices, all are traced: uio1 (igb_uio), uio2 (igb_uio)"
                    .into()
            ))
        );
        assert_eq!(
            said("Disk0", &devices),
            Err("--device Disk0: no such UIO device; did you mean uio0 (tcm-user/0/disk0/file)?".into())
        );
        assert_eq!(
            said("uio7", &devices[1..2]),
            Err("--device uio7: no such UIO device; there are uio1 (igb_uio)".into())
        );
        assert_eq!(
            said("uio7", &[]),
            Err("--device uio7: no such UIO device; there are none now".into())
        );
    }

    #[test]
    fn of_a_recording_that_is_said_which_it_has() {
        let filter = |wanted: &str| {
            Filter::new(&TraceConfig {
                device: Some(wanted.to_owned()),
                ..TraceConfig::default()
            })
        };
        let said = |wanted: &str, kinds: &[EventKind]| {
            let filter = filter(wanted);
            let mut recorded = Recorded::new(&filter).unwrap();
            for kind in kinds.iter().cloned() {
                recorded.look(&Event { ts_ns: 1, kind });
            }
            recorded.judge(&filter, "f").map_err(|error| error.to_string())
        };
        // The name is read some time after the device is seen.
        let devices = [
            EventKind::UioDevices(vec![device(1, None)]),
            EventKind::UioDevices(vec![device(1, Some("igb_uio"))]),
        ];
        assert_eq!(said("uio1", &devices), Ok(None));
        assert_eq!(said("igb_uio", &devices), Ok(None));
        assert_eq!(
            said("nope", &devices),
            Err("--device nope: no such UIO device in f; it has uio1 (igb_uio)".into())
        );
        let unread = said("nope", &devices[..1]).unwrap().unwrap();
        assert!(
            unread.contains("the name of uio1 could not be read when this was"),
            "{unread}"
        );
        let absent = [EventKind::UioPresence(UioPresence::Absent)];
        assert_eq!(
            said("nope", &absent),
            Err("--device nope: no such UIO device in f; it has none".into())
        );
        let untold = said("nope", &[]).unwrap().unwrap();
        assert!(untold.contains("does not tell which UIO devices"), "{untold}");
        assert!(Recorded::new(&Filter::default()).is_none());
    }

    #[test]
    fn a_name_that_cannot_be_read_is_no_refusal() {
        let remark = said("disk", &[device(3, None), device(4, Some("x"))]);
        assert_eq!(
            remark,
            Ok(Some(
                "--device disk: the name of uio3 cannot be read yet; it is traced if that is its name".into()
            ))
        );
    }

    #[test]
    fn messages_are_short_and_fit_for_a_terminal() {
        let long = format!("\u{1b}[2J{}", "x".repeat(200));
        let devices: Vec<UioDeviceInfo> = (0..30).map(|minor| device(minor, Some(&long))).collect();
        let message = said("\u{1b}[1m", &devices).unwrap_err();
        assert!(!message.chars().any(char::is_control), "{message:?}");
        assert!(
            message.ends_with("and 20 more") && message.len() < 800,
            "{message}"
        );
    }
}
