//! Texts that are checked in.
#![allow(
    clippy::unwrap_used,
    reason = "a file that cannot be written has failed the test"
)]

/// Compares with a file in tests/snapshots; BLESS=1 rewrites it.
pub fn assert_snapshot(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/snapshots")
        .join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name}; BLESS=1 rewrites it");
}
