//! What the host's harness reads: lines on the second serial port, where no kernel message can tear them.

use std::io::Write;

const PORT: &str = "/dev/ttyS1";

/// Writes one line to the harness. On a machine without the port (outside a guest) to stdout.
pub fn line(text: &str) {
    let text = text.replace('\n', " | ");
    if let Ok(mut port) = std::fs::OpenOptions::new().write(true).open(PORT)
        && port
            .write_all(format!("{text}\n").as_bytes())
            .and_then(|()| port.flush())
            .is_ok()
    {
        return;
    }
    println!("{text}");
}

/// A test's verdict.
pub fn test(name: &str, result: &Result<String, anyhow::Error>) {
    match result {
        Ok(detail) => line(&format!("UIO-TRACE-TEST {name} ok {detail}")),
        Err(error) => line(&format!("UIO-TRACE-TEST {name} FAILED {error:#}")),
    }
}

/// Figures for the harness.
pub fn data(json: &serde_json::Value) {
    line(&format!("UIO-TRACE-DATA {json}"));
}

/// The port hands bytes on as they are: no newline translation, no echo.
pub fn make_port_raw() {
    let Ok(port) = std::fs::OpenOptions::new().read(true).write(true).open(PORT) else {
        return;
    };
    use std::os::fd::AsRawFd;
    // SAFETY: termios is plain data, filled by tcgetattr before it is used; the descriptor is open.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        if libc::tcgetattr(port.as_raw_fd(), &mut settings) == 0 {
            libc::cfmakeraw(&mut settings);
            libc::tcsetattr(port.as_raw_fd(), libc::TCSANOW, &settings);
        }
    }
}
