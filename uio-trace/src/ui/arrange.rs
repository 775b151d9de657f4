//! From a snapshot's lists to a screen's rows: filtered, sorted, and the selection found again.

use super::column::Column;
use super::state::{Detail, RowId, Screen, Selection, State, TableView};
use super::view::uio::DeviceRow;
use super::view::uio_detail;
use crate::model::snapshot::{AioDrain, InProgress, Probe, RefOwner, Snapshot};

/// Something that is a row of a table.
pub trait Tabular: Sized + 'static {
    /// Its columns.
    const COLUMNS: &'static [Column<Self>];
    /// Sorted by this column at first.
    const DEFAULT_SORT: usize;
    /// Identity; `now_ns` is the end of its snapshot's stretch.
    fn id(&self, now_ns: u64) -> RowId;
    /// What a filter is looked for in.
    fn texts(&self) -> Vec<&str>;
}

/// Whether one of the texts contains `filter` (lower case), whatever the case.
fn matches(texts: &[&str], filter: &str) -> bool {
    filter.is_empty() || texts.iter().any(|t| t.to_lowercase().contains(filter))
}

fn order<R: Tabular>(rows: &[R], view: &TableView, keep: impl Fn(&R) -> bool) -> Vec<usize> {
    let filter = view.filter.to_lowercase();
    let mut order: Vec<usize> = rows
        .iter()
        .enumerate()
        .filter(|(_, row)| keep(row) && (filter.is_empty() || matches(&row.texts(), &filter)))
        .map(|(position, _)| position)
        .collect();
    if let Some(column) = R::COLUMNS.get(view.sort_column) {
        // Stable in both directions: rows that compare equal stay in the snapshot's order.
        order.sort_by(|a, b| {
            let ascending = (column.compare)(&rows[*a], &rows[*b]);
            if view.descending {
                ascending.reverse()
            } else {
                ascending
            }
        });
    }
    order
}

/// Title and preferred direction of each of a screen's columns.
fn columns(screen: Screen) -> Vec<(&'static str, bool)> {
    fn of<R: Tabular>() -> Vec<(&'static str, bool)> {
        R::COLUMNS.iter().map(|c| (c.title, c.descending)).collect()
    }
    match screen {
        Screen::Overview => of::<InProgress>(),
        Screen::Uio => of::<DeviceRow>(),
        Screen::Refs => of::<RefOwner>(),
        Screen::Aio => of::<AioDrain>(),
        Screen::Probes => of::<Probe>(),
    }
}

/// Column and direction a screen starts with.
pub fn default_sort(screen: Screen) -> (usize, bool) {
    let column = match screen {
        Screen::Overview => InProgress::DEFAULT_SORT,
        Screen::Uio => DeviceRow::DEFAULT_SORT,
        Screen::Refs => RefOwner::DEFAULT_SORT,
        Screen::Aio => AioDrain::DEFAULT_SORT,
        Screen::Probes => Probe::DEFAULT_SORT,
    };
    (column, columns(screen).get(column).is_some_and(|c| c.1))
}

/// The column after `column`, and its preferred direction.
pub fn next_sort(screen: Screen, column: usize) -> (usize, bool) {
    let columns = columns(screen);
    let next = (column + 1) % columns.len().max(1);
    (next, columns.get(next).is_some_and(|c| c.1))
}

/// A column's preferred direction; `None`: there is no such column.
pub fn preferred(screen: Screen, column: usize) -> Option<bool> {
    columns(screen).get(column).map(|c| c.1)
}

/// Makes the rows of every screen, after the shown snapshot changed.
pub fn all(state: &mut State) {
    state.devices = match state.shown() {
        Some(snapshot) => {
            let duration = snapshot.interval.duration_ns;
            snapshot
                .uio_devices
                .iter()
                .map(|d| DeviceRow::new(d, duration).with_now(&snapshot.history))
                .collect()
        }
        None => Vec::new(),
    };
    for screen in Screen::ALL {
        one(state, screen);
    }
    follow_detail(state);
}

/// Makes the rows of one screen, after its filter or order changed.
pub fn one(state: &mut State, screen: Screen) {
    let Some(snapshot) = state.shown().cloned() else {
        return;
    };
    let show_own = state.show_own;
    let view = &state.views[screen.index()];
    let (order, total) = match screen {
        Screen::Overview => {
            let filter = view.filter.to_lowercase();
            state.findings = snapshot
                .findings
                .iter()
                .enumerate()
                .filter(|(_, f)| matches(&[&f.id, &f.subject, &f.text], &filter))
                .map(|(position, _)| position)
                .collect();
            (
                order(&snapshot.in_progress, view, |_| true),
                snapshot.in_progress.len(),
            )
        }
        Screen::Uio => (order(&state.devices, view, |_| true), state.devices.len()),
        Screen::Refs => {
            let keep = |owner: &RefOwner| show_own || !owner.own;
            (
                order(&snapshot.ref_owners, view, keep),
                snapshot.ref_owners.iter().filter(|o| keep(o)).count(),
            )
        }
        Screen::Aio => (
            order(&snapshot.aio_drains, view, |_| true),
            snapshot.aio_drains.len(),
        ),
        Screen::Probes => (order(&snapshot.probes, view, |_| true), snapshot.probes.len()),
    };
    let view = &mut state.views[screen.index()];
    view.order = order;
    view.total = total;
    let selection = state.views[screen.index()].selection.take();
    state.views[screen.index()].selection = selection.map(|s| find_again(state, screen, s));
}

/// Number of rows a screen has.
pub fn rows(state: &State, screen: Screen) -> usize {
    let findings = if screen == Screen::Overview {
        state.findings.len()
    } else {
        0
    };
    findings + state.views[screen.index()].order.len()
}

/// Identity of a screen's row.
pub fn row_id(state: &State, screen: Screen, position: usize) -> Option<RowId> {
    let snapshot = state.shown()?;
    let now = snapshot.interval.end_ns;
    let order = &state.views[screen.index()].order;
    match screen {
        Screen::Overview => match state.findings.get(position) {
            Some(finding) => {
                let finding = snapshot.findings.get(*finding)?;
                Some(RowId::Finding(finding.id.clone(), finding.subject.clone()))
            }
            None => Some(
                snapshot
                    .in_progress
                    .get(*order.get(position - state.findings.len())?)?
                    .id(now),
            ),
        },
        Screen::Uio => Some(state.devices.get(*order.get(position)?)?.id(now)),
        Screen::Refs => Some(snapshot.ref_owners.get(*order.get(position)?)?.id(now)),
        Screen::Aio => Some(snapshot.aio_drains.get(*order.get(position)?)?.id(now)),
        Screen::Probes => Some(snapshot.probes.get(*order.get(position)?)?.id(now)),
    }
}

/// The row with the selection's identity that is nearest to where it was. When there is none, the selection waits: it
/// never goes over to another row by itself.
fn find_again(state: &State, screen: Screen, selection: Selection) -> Selection {
    let rows = rows(state, screen);
    let same = (0..rows)
        .filter(|position| row_id(state, screen, *position).as_ref() == Some(&selection.id))
        .min_by_key(|position| position.abs_diff(selection.position));
    Selection {
        listed: same.is_some(),
        position: same.unwrap_or(selection.position.min(rows.saturating_sub(1))),
        id: selection.id,
    }
}

/// Whether a snapshot has a row.
pub fn has(snapshot: &Snapshot, id: &RowId) -> bool {
    let now = snapshot.interval.end_ns;
    match id {
        RowId::Finding(name, subject) => snapshot
            .findings
            .iter()
            .any(|f| f.id == *name && f.subject == *subject),
        RowId::InProgress(..) => snapshot.in_progress.iter().any(|p| p.id(now) == *id),
        RowId::Device(minor, generation) => snapshot
            .uio_devices
            .iter()
            .any(|d| d.minor == *minor && d.generation == *generation),
        RowId::Owner(release) => snapshot.ref_owners.iter().any(|o| o.release == *release),
        RowId::Drain(number) => snapshot.aio_drains.iter().any(|d| d.id == *number),
        RowId::Probe(..) => snapshot.probes.iter().any(|p| p.id(now) == *id),
    }
}

/// What a finding or something in progress is about: its screen, and there its row if it has one.
pub fn about(snapshot: &Snapshot, id: &RowId) -> Option<(Screen, Option<RowId>)> {
    let owner = |name: &str| {
        let same = snapshot.ref_owners.iter().find(|o| o.owner == name)?;
        Some((Screen::Refs, Some(RowId::Owner(same.release.clone()))))
    };
    let device = |subject: &str| {
        // `uio0`, or `uio0 (its name)`; of several generations the one that is there.
        let sysfs_name = subject.split(' ').next()?;
        let mut same = snapshot.uio_devices.iter().filter(|d| d.sysfs_name == sysfs_name);
        let device = same
            .clone()
            .find(|d| d.gone_ns.is_none())
            .or_else(|| same.next_back())?;
        let id = RowId::Device(device.minor, device.generation);
        Some((Screen::Uio, Some(id)))
    };
    let drain = |subject: &str| {
        let of = |d: &&AioDrain| subject == format!("{} ({})", d.comm, d.tgid);
        let slowest = snapshot.aio_drains.iter().filter(of).max_by_key(|d| d.wall_ns)?;
        Some((Screen::Aio, Some(RowId::Drain(slowest.id))))
    };
    match id {
        RowId::Finding(name, subject) => match name.as_str() {
            "losses" | "not_checked" => Some((Screen::Probes, None)),
            name if name.starts_with("uio_") => device(subject),
            name if name.starts_with("aio_") => drain(subject),
            _ => owner(subject),
        },
        RowId::InProgress(subject, name, ..) if subject == "percpu_ref" => owner(name),
        _ => None,
    }
}

/// Lets opened rows show the new figures, or the last ones they had.
fn follow_detail(state: &mut State) {
    let Some(shown) = state.shown().cloned() else {
        return;
    };
    for view in &mut state.views {
        if let Some(detail) = &mut view.detail {
            detail.left = !has(&shown, &detail.id);
            if !detail.left {
                detail.cursor = same_operation(detail, &shown);
                detail.snapshot = shown.clone();
            }
        }
    }
}

/// Where in `shown` the opened device's selected operation is. An operation that comes up for the first time takes its
/// place among the others, and moves those after it.
fn same_operation(detail: &Detail, shown: &Snapshot) -> usize {
    let RowId::Device(minor, generation) = detail.id else {
        return detail.cursor;
    };
    // The first row is all of them together.
    let selected = detail.cursor.checked_sub(1).and_then(|position| {
        let before = uio_detail::device(&detail.snapshot, minor, generation)?;
        let op = &before.ops.get(position)?.op;
        let now = uio_detail::device(shown, minor, generation)?;
        now.ops.iter().position(|o| o.op == *op)
    });
    selected.map_or(detail.cursor, |position| position + 1)
}
