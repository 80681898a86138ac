//! Windows: for one turn of a traced process, such as one pass of its main loop, the calls of some functions are counted and
//! timed one by one. Their sums stay in the kernel until the turn is over.

/// Ends of phases that are remembered of a turn.
pub const MAX_MARKS: usize = 8;
/// Maximum number of different [`SumKey`]s in a window.
pub const MAX_SUMS: u32 = 512;
/// Maximum number of goroutines that make timed calls in a window.
pub const MAX_CALLERS: u32 = 4096;
/// Slots of a histogram. Slot n is for calls of less than `1 << n` nanoseconds that are in no slot before; the last one has
/// the longer ones too.
pub const SLOTS: usize = 32;

/// What a hit of a window means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The turn begins.
    TurnBegins,
    /// The turn ends.
    TurnEnds,
    /// A phase of the turn ends.
    PhaseEnds,
    /// A timed call begins.
    CallBegins,
    /// A timed call ends.
    CallEnds,
}

impl Kind {
    /// All kinds, by their number.
    pub const ALL: [Self; 5] =
        [Self::TurnBegins, Self::TurnEnds, Self::PhaseEnds, Self::CallBegins, Self::CallEnds];
}

/// [`Window::state`]: no window.
pub const IDLE: u32 = 0;
/// [`Window::state`]: the next turn is the window's.
pub const ARMED: u32 = 1;
/// [`Window::state`]: the turn runs.
pub const OPEN: u32 = 2;
/// [`Window::state`]: the turn is over.
pub const OVER: u32 = 3;
/// [`Window::state`]: the next turn has begun, and the end of this one was not seen.
pub const BROKEN: u32 = 4;

/// [`SumKey::end`]: the call did not return.
pub const NO_END: u64 = u64::MAX;

/// The value that the kernel hands to the program with each hit of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedSite {
    /// Index of the [`Site`](crate::Site) that says what to read.
    pub site: u16,
    /// The timed function, or the phase that ends: its meaning is the daemon's business.
    pub function: u8,
    /// What a hit means.
    pub kind: Kind,
    /// Bytes from the stack pointer at the call's begin up to its value here.
    pub above: u8,
}

impl From<TimedSite> for u64 {
    fn from(TimedSite { site, function, kind, above }: TimedSite) -> Self {
        let [s0, s1] = site.to_le_bytes();
        Self::from_le_bytes([s0, s1, function, kind as u8, above, 0, 0, 0])
    }
}

impl TimedSite {
    /// The site of this word; `None` if it has no [`Kind`].
    #[inline(always)]
    #[must_use]
    pub fn of(word: u64) -> Option<Self> {
        let [s0, s1, function, number, above, ..] = word.to_le_bytes();
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == number)?;
        Some(Self { site: u16::from_le_bytes([s0, s1]), function, kind, above })
    }
}

/// The window. There is one at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// [`Target::number`](crate::Target::number) of the process.
    pub target: u32,
    /// [`IDLE`], [`ARMED`], [`OPEN`], [`OVER`] or [`BROKEN`].
    pub state: u32,
    /// Begin of the turn: `CLOCK_MONOTONIC`, nanoseconds.
    pub begin_ns: u64,
    /// End of the turn.
    pub end_ns: u64,
    /// Calls that are missing from the sums, and marks beyond the last: the window is not complete.
    pub lost: u64,
    /// Length of the used part of `marks`.
    pub marks_len: u32,
    /// How much longer a probe at the begin of a call takes than one at its end, nanoseconds: a function begins with a `push`, for
    /// which the kernel writes to the stack.
    pub begin_more_ns: u32,
    /// Ends of phases, oldest first.
    pub marks: [Mark; MAX_MARKS],
}

/// The end of a phase.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// [`TimedSite::function`].
    pub function: u64,
}

/// What the calls of a sum have in common.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SumKey {
    /// The first value that was read at the begin.
    pub begin: u64,
    /// The first value that was read at the end, or [`NO_END`].
    pub end: u64,
    /// [`TimedSite::function`].
    pub function: u32,
    /// Number of phases that had ended before the call did.
    pub marks: u32,
}

/// Calls, added up on one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Number of calls.
    pub calls: u64,
    /// Their time, without that of the probes, nanoseconds: a signed number, since the probes' time is an estimate.
    pub total_ns: u64,
    /// What their probes took, nanoseconds: the traps and the programs.
    pub probes_ns: u64,
    /// Histogram.
    pub slots: [u32; SLOTS],
}

/// A goroutine that makes timed calls of one function.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Address of its `runtime.g`.
    pub g: u64,
    /// [`TimedSite::function`].
    pub function: u64,
}

/// A timed call that has begun.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenCall {
    /// Begin; 0 if there is none.
    pub begin_ns: u64,
    /// The value read at the begin.
    pub begin: u64,
    /// Stack depth: see [`Hit::depth`](crate::Hit::depth).
    pub depth: u64,
    /// Time of a probe outside of its program, nanoseconds.
    pub probe_ns: u64,
    /// What the program took at the begin, nanoseconds.
    pub program_ns: u64,
}

const _: () = assert!(size_of::<Window>() == 40 + 16 * MAX_MARKS && MAX_MARKS.is_power_of_two());
const _: () = assert!(size_of::<Sum>() == 24 + 4 * SLOTS && SLOTS.is_power_of_two());
const _: () = assert!(size_of::<SumKey>() == 24 && size_of::<Caller>() == 16 && size_of::<OpenCall>() == 40);
