//! `--device`: what it names, said before anything is traced.

use crate::{
    app::filter::Filter,
    config::TraceConfig,
    error::AppError,
    event::UioDeviceInfo,
    format::{fit, printable},
    ingest::sysfs,
    kernel::Root,
    say::say,
};
use std::time::Duration;

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

/// What is to be said of devices and those of them that match.
fn judge(
    wanted: &str,
    devices: &[UioDeviceInfo],
    matching: &[&UioDeviceInfo],
) -> Result<Option<String>, String> {
    let wanted = printable(wanted.to_owned());
    let unread: Vec<&UioDeviceInfo> = devices.iter().filter(|d| d.name.is_none()).collect();
    match matching {
        [_] => Ok(None),
        [] if !unread.is_empty() => Ok(Some(format!(
            "--device {wanted}: the name of {} cannot be read yet; it is traced if that is its name",
            list(&unread),
        ))),
        [] => {
            let similar: Vec<&UioDeviceInfo> = devices.iter().filter(|d| is_similar(&wanted, d)).collect();
            let there = match (devices.is_empty(), similar.is_empty()) {
                (true, _) => "there are none now".to_owned(),
                (_, false) => format!("did you mean {}?", list(&similar)),
                (_, true) => format!("there are {}", list(&devices.iter().collect::<Vec<_>>())),
            };
            Err(format!("--device {wanted}: no such UIO device; {there}"))
        }
        several => Ok(Some(format!(
            "--device {wanted} is the name of {} devices, all are traced: {}",
            several.len(),
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
        judge(wanted, devices, &matching)
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
