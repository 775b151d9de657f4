//! What a key can mean.

use super::state::Screen;

/// What a key of a recording's time line asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Stop and go on.
    Pause,
    /// Half as fast, roughly.
    Slower,
    /// Twice as fast, roughly.
    Faster,
    /// Some seconds back.
    Back,
    /// Some seconds on.
    Forward,
    /// A tenth of the recording back.
    FarBack,
    /// A tenth of the recording on.
    FarForward,
}

/// One thing the user asked for. Keys become actions in [`super::keymap`], actions change the state in
/// [`super::update`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Leave the program.
    Quit,
    /// Go to a screen.
    Go(Screen),
    /// The screen after this one.
    NextScreen,
    /// The screen before this one.
    PreviousScreen,
    /// One row up.
    Up,
    /// One row down.
    Down,
    /// One page up.
    PageUp,
    /// One page down.
    PageDown,
    /// First row.
    Top,
    /// Last row.
    Bottom,
    /// Open the selected row.
    Open,
    /// From a finding, or something in progress, to the device, owner or drain it is about.
    Follow,
    /// Show the next page of a detail that is longer than the screen, then its short form again.
    More,
    /// Close what was opened last: help, detail, filter.
    Back,
    /// Begin to type a filter.
    FilterBegin,
    /// A letter of the filter.
    FilterInsert(char),
    /// Take back the last letter of the filter.
    FilterErase,
    /// Take back the whole filter text.
    FilterEraseAll,
    /// Keep the filter.
    FilterAccept,
    /// Forget the change to the filter.
    FilterCancel,
    /// Sort by the next column.
    SortNext,
    /// Sort the other way round.
    SortReverse,
    /// Stop and go on with the display; tracing goes on.
    Freeze,
    /// Write what is shown to a file.
    WriteSnapshot,
    /// Begin or end a recording.
    Record,
    /// Show or leave the help.
    Help,
    /// Sort by this column; the other way round if it is sorted by already.
    SortBy(usize),
    /// A click of the left button: column and row of the terminal.
    Click(u16, u16),
    /// A turn of the wheel, down when positive.
    Wheel(i8),
    /// Take the mouse, or leave it to the terminal.
    ToggleMouse,
    /// Show half as much time.
    ZoomIn,
    /// Show twice as much time.
    ZoomOut,
    /// Show all of the time.
    ZoomAll,
    /// Show earlier time.
    Earlier,
    /// Show later time.
    Later,
    /// Show or hide percpu_refs which the tool itself uses.
    ToggleOwn,
    /// Begin or end to count what the programs in the kernel cost.
    CountCosts,
    /// Draw everything anew, after other output garbled the screen.
    Repaint,
    /// Move in a recording's time.
    Replay(Control),
    /// The terminal has a new size.
    Resize(u16, u16),
}
