//! The description of a program: a folder under `programs/` implements [`Program`].

use std::{fmt, hash::Hash, mem};

use goexe::{Executable, Functions, Types};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    account::{Account, Books, Count, Counter, Stats},
    code::{Rank, Sampled},
    governor::Cut,
    plan::{
        row::{Interface, Role, Row},
        site::PlannedSite,
    },
    values::{Value, Values},
    window::Window,
};

/// Description of a kind of executable: which functions are probed, what is read there, and how traces are made of it.
///
/// Functions and values are closed enums. Every property of theirs is a `match` without a catch-all arm, so that a
/// missing one does not compile.
pub trait Program: Copy + Eq + Default + fmt::Debug + Send + Sync + 'static {
    /// Name on the command line, in logs and recordings.
    const NAME: &'static str;
    /// Symbols that only this program has. One of them suffices.
    const MARKERS: &'static [&'static str];
    /// Parts of usual names of its executable. A process that has one and is not trusted is logged, no more.
    const FILE_NAMES: &'static [&'static str];
    /// Packages, and types as in `package.(*Type)`, whose functions are searched for calls.
    const CALLERS: &'static [&'static str];
    /// The package whose calls through interfaces and function fields are calls of the probed functions. Elsewhere, the
    /// same itab slot may belong to another interface.
    const CALLS_INDIRECTLY: &'static str;
    /// The metric whose call marks the end of a function, if there is one: see
    /// [`End::Metric`](crate::plan::End::Metric).
    const METRIC: Option<Metric<Self::Value>>;
    /// Values, and those of their numbers, below 32, that need no explanation. If one is the first value of a site and
    /// has one of its numbers, the site's strings are not read.
    const QUIET: &'static [(Self::Value, &'static [u64])];
    /// Interfaces and structs whose functions [`Plan::signatures`](crate::plan::Plan::signatures) lists.
    const SPELLED_OUT: SpelledOut;

    /// The assembler's own counters.
    const COUNTERS: &'static [Counter];

    /// The value for the time that a [`Begin::Timing`](crate::plan::Begin::Timing) reads: `CLOCK_MONOTONIC`, nanoseconds.
    const TIMED: Option<Self::Value> = None;

    /// The calls that can be timed one by one, if there are such.
    const TURN: Option<Turn<Self::Function>> = None;

    /// The probed functions.
    type Function: Function<Value = Self::Value>;
    /// The values read by probes.
    type Value: Value;
    /// Makes traces of events.
    type Assembler: Assemble<Self>;

    /// How a function is found and what is read there. The first row that the executable can follow is used. This is
    /// the program's only table.
    #[must_use]
    fn rows(function: Self::Function) -> &'static [Row<Self::Value>] {
        function.rows()
    }

    /// The implementations whose names can appear in events: see [`Kind::Name`](crate::values::Kind::Name).
    ///
    /// # Errors
    ///
    /// When the executable's types are malformed, or a required type is missing.
    fn names(
        executable: &Executable<'_>,
        functions: &Functions<'_>,
        types: &Types<'_>,
    ) -> Result<Vec<Named>, goexe::Error>;

    /// What a sample counts as if this function is on its stack; `None` if the other functions say that. `names` are those
    /// of [`Program::names`].
    #[must_use]
    fn class<'a>(_symbol: &str, _names: &'a [Named]) -> Option<(Rank, &'a str)> {
        None
    }

    /// The most that may be cut of an executable with these sites: what is left of them must suffice for whole traces and exact counts. A
    /// program that says nothing keeps its [`Detail::Phases`] as well: each of its traces needs them.
    #[must_use]
    fn most(_sites: &[PlannedSite<Self>]) -> Cut {
        Cut::Plugins
    }

    /// The lowest level of detail of a site in this one of the functions that a row's symbol stands for; `None` if it is not probed.
    #[must_use]
    fn detail_in(function: Self::Function, role: Role, _symbol: &str) -> Option<Detail> {
        Some(function.detail_at(role))
    }

    /// What is kept of a text that is read; `None` for nothing. What is not kept is in no event, and so in no recording.
    #[must_use]
    fn keep(_value: Self::Value, text: String) -> Option<String> {
        Some(text)
    }

    /// Replaces the names of users' objects. `replace` receives each name with its kind, such as `pod`.
    fn redact(values: &mut Values<Self::Value>, replace: &mut dyn FnMut(&'static str, &mut String));
}

/// Assembles the events of one program: relates calls to the work that they are part of. Pure: no clock, no I/O.
///
/// Every event is accounted for: once nothing is open, the fates of [`Account`] add up to its events.
pub trait Assemble<P: Program>: Default + fmt::Debug + Send {
    /// A completed unit, which becomes a trace.
    type Output: fmt::Debug + Send + 'static;

    /// Handles the next event. Events arrive in the order of the ring buffer, which keeps each goroutine's order.
    fn on(&mut self, event: Event<P>);

    /// Handles a sample of where the process was. Samples arrive among the events in the order of time. They are no events,
    /// and have no fate.
    fn sample(&mut self, _sample: Sampled) {}

    /// Handles a window: it comes at the end of its turn or later, before or after the turn's last events.
    fn window(&mut self, _window: Window<P::Function>) {}

    /// From here on, this is cut of the tracing of a process. Events of what is cut may still come, and tell nothing complete;
    /// those of what has come back begin now. What is open is to be told as what it is: cut.
    fn cut(&mut self, _target: u32, _time_ns: u64, _cut: Cut) {}

    /// Expires what has had no event for too long. `now_ns` is `CLOCK_MONOTONIC`.
    fn expire(&mut self, now_ns: u64);

    /// Closes everything open in this process, which has ended.
    fn exit(&mut self, target: u32);

    /// What has ended, and what became of each event.
    fn books(&self) -> &Books<Self::Output>;

    /// The same, to write to.
    fn books_mut(&mut self) -> &mut Books<Self::Output>;

    /// Takes the outputs completed since the last call.
    fn take_finished(&mut self) -> Vec<Self::Output> {
        mem::take(&mut self.books_mut().finished)
    }

    /// Losses so far: events that are not part of an output.
    fn stats(&self) -> Stats {
        self.books().stats
    }

    /// Fates of all events so far.
    fn account(&self) -> Account {
        self.books().account
    }

    /// Current values of [`Program::COUNTERS`], such as entries into a queue.
    fn counts(&self) -> Vec<Count> {
        Vec::new()
    }
}

/// A decoded hit of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound = "")]
pub struct Event<P: Program> {
    /// Target number of the process.
    pub target: u32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// `runtime.g.goid`, unique within the process.
    pub goroutine: u64,
    /// Bytes from the top of the goroutine's stack to the called function's frame: equal at a call's entry and at its
    /// return.
    pub depth: u64,
    /// The probed function.
    pub function: P::Function,
    /// Which point of the call was hit.
    pub role: Role,
    /// Nanoseconds from `time_ns`, the end of a call, to the start of the following call, if the hit means both.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub took_ns: u64,
    /// Identifies the last loss of a record before this one, on any CPU.
    pub last_loss: u64,
    /// The values read by the probe.
    #[serde(default)]
    pub values: Values<P::Value>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A closed set of functions: [`functions!`](crate::functions) declares one.
pub trait Function:
    Copy + Eq + Ord + Hash + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// All functions, in the order of their sites in a plan.
    const ALL: &'static [Self];

    /// The values that are read at their sites.
    type Value: 'static;

    /// The lowest level of detail at which it is probed.
    fn detail(self) -> Detail;

    /// The lowest level of detail at which the ends of its calls are probed.
    fn end_detail(self) -> Detail;

    /// The lowest level of detail at which this point of its calls is probed.
    fn detail_at(self, role: Role) -> Detail {
        match role {
            Role::Entry => self.detail(),
            Role::ReturnSite | Role::NextEntry | Role::Ret | Role::InTurn | Role::Metric => self.end_detail(),
        }
    }

    /// The lowest level of detail at which its calls are seen from begin to end.
    fn whole_detail(self) -> Detail {
        self.detail().max(self.end_detail())
    }

    /// The ways to find it. The first that the executable can follow is used.
    fn rows(self) -> &'static [Row<Self::Value>];
}

/// Level of detail. Each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Detail {
    /// Attempts with their results: what counts need. Never cut.
    Attempts,
    /// Adds their phases, and why they failed.
    Phases,
    /// Adds the calls of each plugin.
    Plugins,
    /// Adds moves between queues, and values read from lists and maps.
    #[default]
    Full,
    /// Adds maps that are read in every turn of a program, however large they are.
    Maps,
    /// Work of which nothing comes, call by call, where it can be counted otherwise. No level of a user's.
    Idle,
    /// Calls that are too many to be probed but for one turn: see [`Turn`]. No level of a user's.
    Windows,
}

/// Functions whose calls are timed one by one for one turn of a process.
#[derive(Clone, Copy, Debug)]
pub struct Turn<F: 'static> {
    /// A call of this function is a turn. Turns are serial, in each process.
    pub turn: F,
    /// The functions, of [`Detail::Windows`], with the phase of the turn whose calls are counted. Phases are serial. The first
    /// value that is read at the begin of a call is a name, and the first at its end is the result.
    pub timed: &'static [(F, F)],
}

/// A metric that a program records at the end of a function, in a deferred closure: `taken(start)` computes the
/// duration, after a call of `labelled(labels...)` with the result among the labels.
#[derive(Clone, Copy, Debug)]
pub struct Metric<V: 'static> {
    /// Symbol of the function that takes the start, a `time.Time`.
    pub taken: &'static str,
    /// Symbol of the method that takes the labels.
    pub labelled: &'static str,
    /// The value for the start of the call: `CLOCK_MONOTONIC`, nanoseconds.
    pub started: V,
    /// The value for whether a panic runs the closure.
    pub panics: V,
    /// The value for the index of the result's label in [`Metric::results`].
    pub result: V,
    /// The labels of results. No two of equal length may have the same first eight bytes.
    pub results: &'static [&'static str],
}

/// Selects the signatures that [`Plan::signatures`](crate::plan::Plan::signatures) lists.
#[derive(Clone, Copy, Debug)]
pub struct SpelledOut {
    /// Interfaces, with all their methods.
    pub interfaces: &'static [Interface],
    /// Structs, by package and name, with all fields that hold functions.
    pub structs: &'static [(&'static str, &'static str)],
}

/// A type that implements something, such as a plugin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Named {
    /// The name that it returns; the type's name if that is not a constant.
    pub name: String,
    /// The type, with its package's path.
    #[serde(rename = "type")]
    pub typ: String,
    /// The extension points that it implements, by its methods.
    pub extension_points: Vec<&'static str>,
    /// Go module and version of the type.
    pub module: Option<String>,
    /// Virtual address of its type descriptor, which identifies its calls.
    #[serde(skip)]
    pub descriptor: u64,
    /// Virtual address of its name, if that is a constant: identifies references to it.
    #[serde(skip)]
    pub constant: Option<u64>,
}

/// Declares a program's functions: for each its level of detail, that of its end if it is another one (`end`), the program's own
/// `about`, and its rows. All functions are in [`Function::ALL`].
///
/// The enum gets the method `about` and the trait [`Function`], which cover every function.
#[macro_export]
macro_rules! functions {
    (@last $detail:ident) => { $crate::program::Detail::$detail };
    (@last $detail:ident $end:ident) => { $crate::program::Detail::$end };
    (
        $(#[$attribute:meta])*
        $vis:vis enum $name:ident: $about:ty, $value:ty;
        $($(#[$of_function:meta])* $function:ident {
            detail: $detail:ident,
            $(end: $end:ident,)?
            about: $said:expr,
            rows: [$($row:expr),* $(,)?] $(,)?
        })*
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, $crate::serde::Serialize, $crate::serde::Deserialize)]
        #[serde(rename_all = "camelCase", crate = "gotrace::serde")]
        $vis enum $name { $($(#[$of_function])* $function,)* }

        impl $crate::program::Function for $name {
            const ALL: &'static [Self] = &[$(Self::$function,)*];

            type Value = $value;

            fn detail(self) -> $crate::program::Detail {
                match self { $(Self::$function => $crate::program::Detail::$detail,)* }
            }

            fn end_detail(self) -> $crate::program::Detail {
                match self { $(Self::$function => $crate::functions!(@last $detail $($end)?),)* }
            }

            fn rows(self) -> &'static [$crate::plan::Row<$value>] {
                match self {
                    $(Self::$function => {
                        const ROWS: &[$crate::plan::Row<$value>] = &[$($row),*];
                        ROWS
                    })*
                }
            }
        }

        impl $name {
            /// The program's own description.
            #[must_use]
            $vis const fn about(self) -> $about {
                match self { $(Self::$function => $said,)* }
            }
        }
    };
}
