//! Kernel lockdown: can refuse tracing even to root.

use super::Root;

/// Mode, from /sys/kernel/security/lockdown (`none [integrity] confidentiality`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lockdown {
    /// Off, or not built in.
    None,
    /// May refuse tracing, depending on the kernel build.
    Integrity,
    /// Refuses all of it.
    Confidentiality,
    /// The file is not there (securityfs not mounted) or not readable.
    Unknown,
}

impl Lockdown {
    /// Reads it.
    pub fn read(root: &Root) -> Lockdown {
        match root.text("sys/kernel/security/lockdown") {
            Ok(text) => Lockdown::parse(&text),
            Err(_) => Lockdown::Unknown,
        }
    }

    fn parse(text: &str) -> Lockdown {
        match text
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'))
            .map(|(mode, _)| mode)
        {
            Some("none") => Lockdown::None,
            Some("integrity") => Lockdown::Integrity,
            Some("confidentiality") => Lockdown::Confidentiality,
            _ => Lockdown::Unknown,
        }
    }

    /// The kernel's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Lockdown::None => "none",
            Lockdown::Integrity => "integrity",
            Lockdown::Confidentiality => "confidentiality",
            Lockdown::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_brackets_counts() {
        assert_eq!(
            Lockdown::parse("none [integrity] confidentiality"),
            Lockdown::Integrity
        );
        assert_eq!(
            Lockdown::parse("[none] integrity confidentiality"),
            Lockdown::None
        );
        assert_eq!(
            Lockdown::parse("none integrity [confidentiality]"),
            Lockdown::Confidentiality
        );
        assert_eq!(Lockdown::parse(""), Lockdown::Unknown);
    }
}
