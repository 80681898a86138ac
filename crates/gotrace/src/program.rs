//! What a program supplies to be traced: a folder under `programs/` implements [`Program`].

use std::{fmt, hash::Hash};

use goexe::{Executable, Functions, Types};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    assemble::{Assemble, Counter},
    plan::{Interface, Row},
    values::{Value, Values},
};

/// A kind of executable that is described: which of its functions are probed, what is read there, and what follows from it.
///
/// Its functions and values are its own closed enums. Everything that must be known about one of them is asked by a `match`
/// without a catch-all arm, so that what is forgotten does not compile.
pub trait Program: Copy + Eq + Default + fmt::Debug + Send + Sync + 'static {
    /// As users, logs and recordings name it.
    const NAME: &'static str;
    /// Symbols that only this program has: one of them suffices.
    const MARKERS: &'static [&'static str];
    /// Packages whose calls are looked at, and types, as in `package.(*Type)`, whose methods' calls are.
    const CALLERS: &'static [&'static str];
    /// The package whose calls through interfaces and function fields are calls of the probed functions: elsewhere the same
    /// place in an itab is another interface's.
    const CALLS_INDIRECTLY: &'static str;
    /// The metric at whose call the end of a function is seen, where there is one: see
    /// [`End::Metric`](crate::plan::End::Metric).
    const METRIC: Option<Metric<Self::Value>>;
    /// A value, and the numbers of it, below 32, that need no explanation: where it is the first of a site's values and has one of them, the
    /// site's strings are not read.
    const QUIET: Option<(Self::Value, &'static [u64])>;
    /// The interfaces and structs whose functions [`Plan::signatures`](crate::plan::Plan::signatures) lists, for people.
    const SPELLED_OUT: SpelledOut;

    /// Figures of its own that its assembler counts.
    const COUNTERS: &'static [Counter];

    /// What a probed function is to this program.
    type Function: Function;
    /// What is read.
    type Value: Value;
    /// What makes traces of events.
    type Assembler: Assemble<Self>;

    /// How a function is found and what is read there: the first row that the executable can follow counts. This is the
    /// program's one table.
    fn rows(function: Self::Function) -> &'static [Row<Self::Value>];

    /// From which level of detail on a function is probed.
    fn detail(function: Self::Function) -> Detail;

    /// The implementations whose names an event may say: see [`Kind::Name`](crate::values::Kind::Name).
    ///
    /// # Errors
    ///
    /// When the executable's types are broken, or what names them is not there.
    fn names(
        executable: &Executable<'_>,
        functions: &Functions<'_>,
        types: &Types<'_>,
    ) -> Result<Vec<Named>, goexe::Error>;

    /// Replaces what names somebody's objects: `replace` is handed the kind of each such name, such as `pod`.
    fn redact(values: &mut Values<Self::Value>, replace: &mut dyn FnMut(&'static str, &mut String));
}

/// A closed set of functions.
pub trait Function:
    Copy + Eq + Ord + Hash + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// All of them, in the order in which a plan lists their sites.
    const ALL: &'static [Self];
}

/// How much is asked of a program: each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// What is done, its phases, and why it failed.
    Phases,
    /// The calls of each plugin as well.
    Plugins,
    /// All there is: ways through queues, and what is read of lists and maps.
    #[default]
    Full,
}

/// A metric that a program takes at the end of a function, from a deferred closure: `taken(start)` computes how long it took,
/// behind a call of `labelled(labels...)` with the result among the labels.
#[derive(Clone, Copy, Debug)]
pub struct Metric<V: 'static> {
    /// Symbol of the function that is handed the start, a `time.Time`.
    pub taken: &'static str,
    /// Symbol of the method that is handed the labels.
    pub labelled: &'static str,
    /// Receives when the call began, `CLOCK_MONOTONIC`, nanoseconds.
    pub started: V,
    /// Receives whether a panic runs the closure.
    pub panics: V,
    /// Receives the place of the result's label in [`Metric::results`].
    pub result: V,
    /// The labels of results. No two of one length may begin with the same eight bytes.
    pub results: &'static [&'static str],
}

/// What people want to see of an executable's signatures.
#[derive(Clone, Copy, Debug)]
pub struct SpelledOut {
    /// Interfaces: all their methods.
    pub interfaces: &'static [Interface],
    /// Structs, by package and name: all fields that hold functions.
    pub structs: &'static [(&'static str, &'static str)],
}

/// A type that implements something, such as a plugin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Named {
    /// What it calls itself; the type's name where that is not a constant.
    pub name: String,
    /// The type, with its package's path.
    #[serde(rename = "type")]
    pub typ: String,
    /// Where it takes part, by the methods that it has.
    pub extension_points: Vec<&'static str>,
    /// The Go module that it comes from, with its version.
    pub module: Option<String>,
    /// Virtual address of its type descriptor: how a call of it is recognized.
    #[serde(skip)]
    pub descriptor: u64,
    /// Virtual address of its name, where that is a constant: how a mention of it is recognized.
    #[serde(skip)]
    pub constant: Option<u64>,
}

/// Declares a program's functions: for each its level of detail, what else the program says about it, and its rows. All of them are
/// in one list, [`Function::ALL`].
///
/// The enum gets `about`, `detail` and `rows`, which cannot forget a function.
#[macro_export]
macro_rules! functions {
    (
        $(#[$attribute:meta])*
        $vis:vis enum $name:ident: $about:ty, $value:ty;
        $($(#[$of_function:meta])* $function:ident {
            detail: $detail:ident,
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
        }

        impl $name {
            /// What the program says about it.
            #[must_use]
            $vis const fn about(self) -> $about {
                match self { $(Self::$function => $said,)* }
            }

            /// From which level of detail on it is probed.
            #[must_use]
            $vis const fn detail(self) -> $crate::program::Detail {
                match self { $(Self::$function => $crate::program::Detail::$detail,)* }
            }

            /// The ways to find it: the first that the executable can follow counts.
            #[must_use]
            $vis const fn rows(self) -> &'static [$crate::plan::Row<$value>] {
                match self {
                    $(Self::$function => {
                        const ROWS: &[$crate::plan::Row<$value>] = &[$($row),*];
                        ROWS
                    })*
                }
            }
        }
    };
}
