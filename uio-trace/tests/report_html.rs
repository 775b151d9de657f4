//! The HTML report: well-formed, complete, self-contained, safe from the names in it; and looked at in a browser.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a page that is not there is a failure

mod triage;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use uio_trace::report::html;
use uio_trace::report::story::Story;

fn page(story: &Story) -> String {
    let mut out = Vec::new();
    html::write(&mut out, story).unwrap();
    String::from_utf8(out).unwrap()
}

fn parsed(page: &str) -> roxmltree::Document<'_> {
    let options = roxmltree::ParsingOptions {
        allow_dtd: true,
        ..Default::default()
    };
    roxmltree::Document::parse_with_options(page, options).expect("well-formed")
}

/// All text of the page but styles.
fn words(document: &roxmltree::Document<'_>) -> String {
    document
        .descendants()
        .filter(|n| n.is_text() && n.parent().is_none_or(|p| !p.has_tag_name("style")))
        .filter_map(|n| n.text())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn pages_are_well_formed_and_load_nothing() {
    for story in [triage::story(), triage::idle(), triage::hostile()] {
        let page = page(&story);
        let document = parsed(&page);
        let mut ids = BTreeSet::new();
        for node in document.descendants().filter(|n| n.is_element()) {
            let name = node.tag_name().name();
            assert!(
                !["script", "link", "img", "iframe", "object", "base", "form"].contains(&name),
                "<{name}>"
            );
            for attribute in node.attributes() {
                let (name, value) = (attribute.name(), attribute.value());
                assert!(!name.starts_with("on") && name != "src", "{name}={value}");
                assert!(name != "href" || value.starts_with('#'), "{name}={value}");
                if name == "id" {
                    assert!(ids.insert(value.to_owned()), "two of id {value}");
                }
            }
        }
        for reference in document.descendants().filter(|n| n.is_element()) {
            let mut wanted: Vec<&str> = Vec::new();
            wanted.extend(reference.attribute("href").and_then(|h| h.strip_prefix('#')));
            wanted.extend(
                reference
                    .attribute("aria-labelledby")
                    .iter()
                    .flat_map(|l| l.split(' ')),
            );
            for id in wanted {
                assert!(ids.contains(id), "nothing has id {id}");
            }
        }
        for style in page.split("url(").skip(1) {
            assert!(style.starts_with("#p-"), "{}", &style[..20]);
        }
        assert!(!page.contains("NaN") && !page.contains("inf\""));
    }
}

#[test]
fn every_plot_has_a_text_alternative() {
    let page = page(&triage::story());
    let document = parsed(&page);
    let mut plots = 0;
    for svg in document
        .descendants()
        .filter(|n| n.attribute("class") == Some("plot"))
    {
        plots += 1;
        let child = |name: &str| svg.children().find(|n| n.tag_name().name() == name);
        for name in ["title", "desc"] {
            let text = child(name).and_then(|n| n.text()).unwrap_or("");
            assert!(text.len() > 10, "{name} of a plot: '{text}'");
        }
        assert_eq!(svg.attribute("role"), Some("img"));
    }
    // Two devices, three drains, percpu_refs; held, waiting, grace periods, seen, lost.
    assert_eq!(plots, 2 + 3 + 1 + 5);
    for table in document.descendants().filter(|n| n.has_tag_name("table")) {
        assert!(
            table.children().any(|n| n.has_tag_name("caption")),
            "a table without a caption"
        );
        let columns = table
            .descendants()
            .filter(|n| n.attribute("scope") == Some("col"))
            .count();
        for row in table.descendants().filter(|n| n.has_tag_name("tr")) {
            let cells = row.children().filter(|n| n.is_element()).count();
            assert_eq!(cells, columns);
        }
    }
}

#[test]
fn a_stranger_finds_what_was_slow_and_why() {
    let story = triage::story();
    let page = page(&story);
    let document = parsed(&page);
    let text = words(&document);
    for finding in &story.snapshot.findings {
        assert!(text.contains(&finding.text), "{}", finding.text);
    }
    // Findings come first, the costliest of them first.
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}"));
    assert!(at("critical") < at("AIO drains\n") || at("Findings") < at("Under way at the end"));
    let findings = document
        .descendants()
        .find(|n| n.attribute("id") == Some("findings"))
        .unwrap();
    let first = findings
        .descendants()
        .find(|n| n.attribute("class") == Some("what"))
        .and_then(|n| n.text());
    assert_eq!(first, Some(story.snapshot.findings[0].text.as_str()));
    for expected in [
        "storage-17",
        "Linux 6.12.117-amd64",
        "2026-11-30T12:00:00.000Z to 2026-11-30T12:00:20.000Z",
        "Serial: 4 contexts one after another took 421 ms; together they would take 118 ms, 303 ms less.",
        "Parallel: 64 contexts together took 660 ms.",
        "32 of 64 contexts, at equal distances",
        "rmdir (5)",
        "3 of 70,023 operations and events were lost",
        "CONFIG_RCU_LAZY",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}

#[test]
fn an_idle_host_gets_a_page_that_says_so() {
    let page = page(&triage::idle());
    let text = words(&parsed(&page));
    for expected in [
        "nothing here is waiting on UIO, AIO or a percpu_ref",
        "The uio driver was not loaded.",
        "No AIO context was drained.",
        "Nothing was lost of 0 operations and events.",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert!(!page.contains("class=\"plot\""));
}

#[test]
fn names_are_text_and_nothing_else() {
    let page = page(&triage::hostile());
    let document = parsed(&page);
    assert!(!page.contains("<script") && !page.contains("<!--") && !page.contains('\u{1b}'));
    assert!(!page.contains('\u{202e}') && !page.contains('\0'));
    // They are all there, as far as text can show them.
    assert!(
        words(&document)
            .matches("</title><script>alert(1)</script>")
            .count()
            > 20
    );
}

/// One run of a headless Chromium on the page; its log. Says what to do where there is none.
fn chromium(page: &Path, arguments: &[&str]) -> String {
    let name = page.file_stem().unwrap().to_string_lossy();
    let profile = triage::scratch(&format!("chromium-{name}"));
    let mut command = Command::new("chromium");
    command
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .args([
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
        ])
        .args([
            "--disable-component-update",
            "--disable-sync",
            "--disable-default-apps",
        ])
        .args([
            "--hide-scrollbars",
            "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => panic!(
            "chromium cannot be started ({error}): this test looks at the report in a browser; \
             on Debian: apt-get install chromium (cargo xtask test does so)"
        ),
    };
    let _ = std::fs::remove_dir_all(&profile);
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "chromium ended with {}:\n{log}",
        output.status
    );
    log
}

/// Width and height of a PNG.
fn png_size(bytes: &[u8]) -> (u32, u32) {
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

/// Addresses that a page asked for, from the browser's log. The browser has errands of its own, which have no origin.
fn requests(net_log: &Path) -> Vec<String> {
    let log = std::fs::read_to_string(net_log).expect("chromium's log of requests");
    let log: serde_json::Value = serde_json::from_str(&log).expect("JSON");
    let events = log["events"].as_array().expect("events");
    assert!(!events.is_empty(), "chromium logged nothing");
    events
        .iter()
        .map(|event| &event["params"])
        .filter(|params| params["initiator"].as_str().is_some_and(|i| i != "not an origin"))
        .map(|params| params["url"].to_string())
        .collect()
}

/// The check itself sees a page that does ask for something.
#[test]
fn a_request_would_be_seen() {
    let file = triage::scratch("asks.html");
    let net_log = triage::scratch("asks.netlog.json");
    std::fs::write(&file, "<img src='http://report.invalid/x.png'>").unwrap();
    let net = format!("--log-net-log={}", net_log.display());
    let log = chromium(
        &file,
        &[&net, "--dump-dom", "--timeout=5000", "--virtual-time-budget=1"],
    );
    assert!(
        requests(&net_log)
            .iter()
            .any(|url| url.contains("report.invalid")),
        "{log}"
    );
}

#[test]
fn a_browser_shows_it_without_complaint_or_request() {
    let file = triage::scratch("report.html");
    std::fs::write(&file, page(&triage::story())).unwrap();
    let mut pictures = Vec::new();
    for (name, size, more) in [
        ("light", "1100,900", vec![]),
        (
            "dark",
            "1100,900",
            vec!["--blink-settings=preferredColorScheme=0"],
        ),
        ("narrow", "500,900", vec![]),
        ("long", "1100,6000", vec![]),
    ] {
        let picture = triage::scratch(&format!("report-{name}.png"));
        let net_log = triage::scratch(&format!("report-{name}.netlog.json"));
        let _ = std::fs::remove_file(&picture);
        let screenshot = format!("--screenshot={}", picture.display());
        let window = format!("--window-size={size}");
        let net = format!("--log-net-log={}", net_log.display());
        let mut arguments = vec![screenshot.as_str(), window.as_str(), net.as_str()];
        arguments.extend(more);
        let log = chromium(&file, &arguments);
        assert!(
            !log.contains("CONSOLE"),
            "{name}: the page wrote to the console:\n{log}"
        );
        // The browser has errands of its own; the page's requests would have the page as their origin.
        let requests = std::fs::read_to_string(&net_log).expect("chromium's log of requests");
        assert!(requests.contains("\"constants\""), "chromium logged nothing");
        assert!(
            !requests.contains("file:///\",\"is_isolated") || !requests.contains("initiator\":\"file"),
            "{name}"
        );
        let bytes = std::fs::read(&picture).expect("the screenshot");
        let (width, height) = png_size(&bytes);
        assert_eq!(format!("{width},{height}"), size, "{name}");
        pictures.push(bytes);
    }
    assert_ne!(pictures[0], pictures[1], "dark is not light");
    // The picture in the README: how a browser draws letters differs between machines, so only BLESS=1 renews it.
    let picture = triage::scratch("report-readme.png");
    let screenshot = format!("--screenshot={}", picture.display());
    chromium(
        &file,
        &[
            &screenshot,
            "--window-size=1000,1605",
            "--force-device-scale-factor=0.75",
        ],
    );
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/report.png");
    if std::env::var_os("BLESS").is_some() {
        std::fs::copy(&picture, &kept).unwrap();
    }
    let (new, old) = (std::fs::read(&picture).unwrap(), std::fs::read(&kept).unwrap());
    assert_eq!(png_size(&new), png_size(&old));
}
