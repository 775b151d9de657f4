//! What is selected, opened or frozen stays so while the figures change.
#![allow(clippy::unwrap_used, reason = "a test that cannot draw has failed")]

mod ui_app;
mod ui_fixture;

use ui_app::{app, press, shown};
use uio_trace::ui::state::{RowId, Screen};
use uio_trace::ui::{App, Effect};

#[test]
fn the_selection_follows_its_row() {
    let mut app = app();
    press(&mut app, "2↓");
    let selected = |app: &App| app.state().view().selection.clone().unwrap();
    assert_eq!(selected(&app).id, RowId::Device(0, 0));
    assert_eq!(selected(&app).position, 0);
    // uio1 becomes the most contended: the rows change places, the selection stays with uio0.
    let mut next = ui_fixture::rich();
    next.uio_devices[1].mean_waiters = 9.0;
    app.on_snapshot(next);
    assert_eq!(selected(&app).id, RowId::Device(0, 0));
    assert_eq!(selected(&app).position, 1);
    // uio0 disappears: nothing is selected in its place, and Enter opens nothing.
    let mut next = ui_fixture::rich();
    next.uio_devices.remove(0);
    app.on_snapshot(next.clone());
    assert_eq!(selected(&app).id, RowId::Device(0, 0));
    assert_eq!(app.state().selected(), None);
    press(&mut app, "\n");
    assert!(app.state().view().detail.is_none());
    assert!(shown(&app).contains("no longer listed"));
    // It is back: it is selected again.
    app.on_snapshot(ui_fixture::rich());
    assert_eq!(app.state().selected(), Some(0));
    // Gone for good: the next row down is the one that is now where it was.
    app.on_snapshot(next);
    press(&mut app, "↓");
    assert_eq!(selected(&app).id, RowId::Device(1, 2));
    app.on_snapshot(ui_fixture::empty());
    assert_eq!(app.state().selected(), None);
}

#[test]
fn from_a_finding_to_what_it_is_about() {
    for (downs, screen, title) in [
        (1, Screen::Uio, "uio0  tcm-user/0/disk0"),
        (2, Screen::Refs, "block queue usage"),
        (3, Screen::Aio, "Drain 1: postgres"),
        // In progress: a ref leads to its owner, a drain that has not ended nowhere.
        (5, Screen::Refs, "block queue usage"),
        (4, Screen::Overview, "there is no row for this"),
    ] {
        let mut app = app();
        press(&mut app, &"↓".repeat(downs));
        press(&mut app, "\n\n");
        assert_eq!(app.state().screen, screen);
        assert!(shown(&app).contains(title), "{}", shown(&app));
        if screen != Screen::Overview {
            press(&mut app, "\x1b");
            assert!(app.state().selected().is_some(), "back in its list, on its row");
        }
    }
}

#[test]
fn a_filter_that_hides_the_selected_row_selects_no_other() {
    let mut app = app();
    press(&mut app, "4↓↓/postgres");
    assert_eq!(app.state().selected(), None);
    press(&mut app, "\x1b");
    let selection = app.state().view().selection.clone().unwrap();
    assert!(
        selection.listed && selection.id == RowId::Drain(2),
        "{selection:?}"
    );
}

#[test]
fn rows_with_the_same_identity_are_told_apart_by_their_place() {
    let mut snapshot = ui_fixture::rich();
    snapshot.findings.clear();
    snapshot.in_progress = vec![snapshot.in_progress[1].clone(); 5];
    let mut app = app();
    app.on_snapshot(snapshot.clone());
    press(&mut app, "↓↓↓");
    assert_eq!(app.state().view().selection.as_ref().unwrap().position, 2);
    app.on_snapshot(snapshot);
    assert_eq!(app.state().view().selection.as_ref().unwrap().position, 2);
}

#[test]
fn frozen_means_frozen_and_the_losses_stay_live() {
    let mut app = app();
    press(&mut app, "2 ");
    let mut next = ui_fixture::rich_at(300_000_000_000);
    next.uio_devices.clear();
    next.loss.dropped.insert("ring_full".into(), 1_000);
    app.on_snapshot(next);
    let text = shown(&app);
    assert!(
        text.contains("tcm-user/0/disk0") && text.contains("FROZEN 12:34:56Z"),
        "{text}"
    );
    assert!(text.contains("12:35:00Z") && text.contains("lost 1002"), "{text}");
    let effects = press(&mut app, "w");
    assert!(matches!(&effects[..], [Effect::WriteSnapshot(s)] if s.uio_devices.len() == 3));
    press(&mut app, " ");
    let text = shown(&app);
    assert!(
        !text.contains("FROZEN") && text.contains("no UIO device exists"),
        "{text}"
    );
}

#[test]
fn an_opened_drain_stays_when_it_leaves_the_list() {
    let mut app = app();
    press(&mut app, "4↓\n");
    let mut next = ui_fixture::rich();
    next.aio_drains.remove(0);
    app.on_snapshot(next);
    let text = shown(&app);
    assert!(
        text.contains("Drain 1: postgres") && text.contains("no longer listed"),
        "{text}"
    );
    app.on_snapshot(ui_fixture::rich());
    assert!(!shown(&app).contains("no longer listed"));
}

#[test]
fn a_detail_is_kept_while_other_screens_are_looked_at() {
    let mut app = app();
    press(&mut app, "4↓\n35");
    assert!(app.state().view().detail.is_none());
    press(&mut app, "4");
    assert!(shown(&app).contains("Drain 1"));
}

#[test]
fn an_operations_row_chooses_the_histograms() {
    let mut app = app();
    press(&mut app, "2\n");
    assert!(shown(&app).contains("Wait for info_lock: all"));
    press(&mut app, "↓↓");
    assert!(shown(&app).contains("Wait for info_lock: poll"));
    press(&mut app, "GGG");
    assert!(shown(&app).contains("Wait for info_lock: release"));
    assert!(shown(&app).contains("none waited"));
}

#[test]
fn the_selected_operation_is_followed() {
    let mut app = app();
    press(&mut app, "2\n↓↓");
    assert!(shown(&app).contains("Wait for info_lock: poll"));
    // A read for the first time: its row comes before that of poll.
    let mut next = ui_fixture::rich();
    let read = next.uio_devices[1].ops[1].clone();
    next.uio_devices[0].ops.insert(1, read);
    app.on_snapshot(next);
    assert!(
        shown(&app).contains("Wait for info_lock: poll"),
        "{}",
        shown(&app)
    );
}

#[test]
fn the_rate_is_that_of_the_newest_stretch() {
    let mut app = app();
    assert_eq!(app.state().rate.map(|r| r.round()), Some(4792.0));
    let mut next = ui_fixture::rich_at(297_500_000_000);
    next.loss.seen = ui_fixture::rich().loss.seen + 50;
    app.on_snapshot(next);
    assert_eq!(app.state().rate, Some(50.0));
}
