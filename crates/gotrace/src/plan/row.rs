//! Types for the rows of a program's table, and what a hit means.

use serde::{Deserialize, Serialize};

/// A field of a struct: package, struct, field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field(pub &'static str, pub &'static str, pub &'static str);

/// How an interface type is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// By name, in the first of these packages that has it: it moved between packages.
    Named(&'static [&'static str], &'static str),
    /// The type of a field.
    In(Field),
    /// Element type of the list or map in a field.
    ElementOf(Field),
    /// The first parameter of this function type.
    FirstParameterOf(&'static str),
}

/// How a function's signature is found. Signatures are read from the executable, not assumed.
#[derive(Clone, Copy, Debug)]
pub enum Signature {
    /// Not needed: nothing is read.
    Unused,
    /// A method of an interface. An instantiation by GC shape takes a dictionary before the parameters; they must agree
    /// with its argument info.
    Method(Interface, &'static str),
    /// The results of an interface's method. The parameters are unknown.
    ResultsOf(Interface, &'static str),
    /// The type of a function that is called through this field.
    Called(Field),
    /// The type of a closure that this field holds.
    Closure(Field),
    /// These parameters, for a function that no type descriptor describes. They must agree with its argument info. `example.com/a.B#C#d`
    /// is the type of the field `d` of the field `C`: a named type has no descriptor of its own unless there is a pointer to it.
    Declared(&'static [&'static str]),
    /// The same, and these results, which nothing in an executable confirms: for functions whose results are alike in all versions.
    DeclaredWith(&'static [&'static str], &'static [&'static str]),
    /// One parameter for each type argument, for a method of a generic type.
    TypeArguments,
    /// For a function that calls a method of one of the implementations in a list: the field with the list, and the
    /// path of methods, of which all but the last return an interface. The parameters are context and implementation,
    /// then those of the last method.
    CallerOf(Field, &'static [&'static str]),
}

/// Where the start of a call is seen.
#[derive(Clone, Copy, Debug)]
pub enum Begin {
    /// The start is not traced.
    Unused,
    /// At the entry.
    Entry,
    /// At the entry. Where this caller calls, which has taken the time with this function before and keeps it on its stack, the time is
    /// read there.
    EntrySince(&'static str, &'static str),
    /// At the end of the preceding call in the same phase, or at the start of the phase: nothing else runs in between.
    /// The hit at the return carries the entry's values. Falls back to [`Begin::Entry`] if they are not readable at the
    /// end.
    InTurn,
    /// At the function's first call of this one: the code before it is not part of the program's own metric. Nothing
    /// can be read there.
    FirstCall(&'static str),
    /// After the return of the function's first call of this one. Like [`Begin::FirstCall`], but later: for functions
    /// that return long after the end of their own metric.
    AfterFirstCall(&'static str),
    /// At the calls from functions of these packages.
    CallsIn(&'static [&'static str]),
    /// Where the function calls this method of its receiver, which takes the time since something: the hit sees start and end of what is
    /// timed there, as [`Role::Metric`]. The only parameter is read where the compiler keeps it on the stack, and
    /// [`Row::end`] is not needed. Falls back to [`Begin::Entry`] if it does not, or if there is no such call.
    Timing(&'static str),
    /// Not at all if this method of the receiver can be seen as [`Begin::Timing`] with this other one; else at the entry. Both methods have
    /// the same parameter.
    UnlessTiming(&'static str, &'static str),
}

/// Where the end of a call is seen.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// The end is not traced.
    Unused,
    /// At the cheapest instruction after each call by [`Program::CALLERS`](crate::Program::CALLERS); at `ret` if one of
    /// the calls has none.
    Return,
    /// At the entry of the function that always comes next. Falls back to [`End::Return`] if it does not exist. The
    /// values are its parameters, which match one of these lists; if none agrees with its argument info, nothing is
    /// read.
    NextEntry(&'static str, &'static [&'static [&'static str]]),
    /// Where the function, or a deferred closure of it, takes the time for the program's
    /// [metric](crate::program::Metric). The start is an argument there, and the label with this index is the result:
    /// one hit sees the complete call. Falls back to [`Row::begin`] and [`End::Return`] if the function does not take
    /// that metric, or if its result is wanted and the label is not on the stack there. Before a `ret` is probed, the call
    /// that takes the labels is.
    Metric(u32),
    /// As [`End::Metric`], for functions whose end does not identify the call's subject. Where the compiler keeps their arguments on the
    /// stack until then, what is read at the entry is read there; else the entry is probed as well. Where no result is wanted from the
    /// return and the label is not on the stack, the end is at the call that takes the labels. Falls back to [`End::Return`].
    MetricWithArguments(u32),
    /// At the same place as [`End::Metric`], for functions without a result whose entry is read. Falls back to
    /// [`End::Return`].
    AtMetric,
    /// At the cheapest instruction after the function's own first call of this method through the interface. The values are
    /// that call's results.
    AfterCall(Interface, &'static str),
}

/// One value to read.
#[derive(Clone, Copy, Debug)]
pub struct Want<V> {
    /// The slot for the value. Several reads of one [`Kind::Texts`](crate::values::Kind::Texts) fill its places in
    /// order.
    pub value: V,
    /// Possible types of the parameter or result, because types moved between packages. In a receiver, `[...]` stands
    /// for the function's own type arguments, if any.
    pub of: &'static [&'static str],
    /// Fields to follow; embedded fields are found automatically. `a|b` is a field of one of these names, because some are
    /// renamed between versions. `*` selects the first element of a slice, `*1` the
    /// second and so on, and the target of a pointer; `#` the length of a slice or map; `(package.Type)` what an
    /// interface holds, if that is a pointer to this type. A field of bytes is read as text.
    pub path: &'static [&'static str],
    /// Selects and interprets the parameter or result.
    pub seen_as: SeenAs,
}

impl<V> Want<V> {
    /// A parameter or result as its type declares it.
    #[must_use]
    pub const fn declared(value: V, of: &'static [&'static str], path: &'static [&'static str]) -> Self {
        Self { value, of, path, seen_as: SeenAs::Declared }
    }

    /// Something that the receiver leads to.
    #[must_use]
    pub const fn of_receiver(value: V, of: &'static [&'static str], path: &'static [&'static str]) -> Self {
        Self { value, of, path, seen_as: SeenAs::Receiver }
    }

    /// Whether there is an error: 1, or 0.
    #[must_use]
    pub const fn failure(value: V) -> Self {
        Self { value, of: ERROR, path: &[], seen_as: SeenAs::Failure }
    }

    /// The message of the error that a [`Want::failure`] of the same site reads, if its type is one of Go's own that keep
    /// it as text; else the name of its type.
    #[must_use]
    pub const fn message(value: V) -> Self {
        let seen_as = SeenAs::MessageOf { of: ("errors", "errorString"), types: &MESSAGE_FIRST };
        Self { value, of: ERROR, path: &["s"], seen_as }
    }
}

const ERROR: &[&str] = &["error"];
/// Error types whose first field is their message:
/// <https://github.com/golang/go/blob/go1.26.5/src/errors/errors.go#L68-L70>,
/// <https://github.com/golang/go/blob/go1.26.5/src/fmt/errors.go#L66-L92>.
const MESSAGE_FIRST: [&str; 3] = ["*errors.errorString", "*fmt.wrapError", "*fmt.wrapErrors"];

/// Interpretation of a parameter or result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenAs {
    /// By its declared type.
    Declared,
    /// The called implementation, after the context: its type gives the name. `wrapper` is the package and name prefix
    /// of structs that hold an implementation as their first field, which the program uses to count calls.
    Implementation {
        /// Package and prefix of the name.
        wrapper: (&'static str, &'static str),
    },
    /// The receiver, which no signature lists.
    Receiver,
    /// The last parameter or result of that type.
    Last,
    /// An error: 0 for nil, else 1.
    Failure,
    /// An interface that holds a pointer to this struct: package and name.
    PointerTo(&'static str, &'static str),
    /// The message of the error that a [`SeenAs::Failure`] of the same site reads, if its type is one of these and so
    /// begins like this struct; else the name of its type.
    MessageOf {
        /// Package and name of the struct.
        of: (&'static str, &'static str),
        /// Error types with that layout.
        types: &'static [&'static str],
    },
    /// A slice of structs, of which the elements with the highest keys are read.
    TopOf(TopOf),
    /// A map, of which the values are read.
    EntriesOf(EntriesOf),
    /// All strings of a parameter of one of these types; of the first parameter, of any type, where [`Want::of`] is empty.
    /// They are itself, or fields of a struct. Their number may be zero, up to the capacity of a record. For an interface,
    /// the strings of what it holds, if that is one of these types.
    Strings(&'static [Held]),
    /// The same parameter's first word that is not part of a string, if there is one. For an interface, the address of
    /// what it holds.
    Word,
    /// The name of what an interface holds, if that is a pointer to a struct that begins with the fields of this one:
    /// package and name.
    NameOfLike(&'static str, &'static str),
    /// As [`SeenAs::PointerTo`], and dropped unless a [`SeenAs::NameOfLike`] of the same site has a name.
    Like(&'static str, &'static str),
    /// A word of the current goroutine's `runtime.g`; nothing where this version of Go does not have it.
    Goroutine,
}

/// A type that consists of strings only and can be in an interface: full name, and number of strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held(pub &'static str, pub u8);

/// A slice of structs with a key, a label, and a list of named parts of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopOf {
    /// Name of the key field, an `int64`.
    pub key: &'static str,
    /// Name of the label field, a string.
    pub label: &'static str,
    /// Name of the field with the parts, a slice of structs of a string and an `int64`, and the names of these two.
    pub parts: (&'static str, &'static str, &'static str),
}

/// A map from strings to pointers to structs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntriesOf {
    /// If an interface is passed: package and name of the struct in it, its field with the map, and its field with the
    /// value of all other keys.
    pub holder: (&'static str, &'static str, &'static str, &'static str),
    /// Three fields of a map value: a number, a string that is identified by its address, and a slice of strings. Names as in
    /// [`Want::path`].
    pub fields: (&'static str, &'static str, &'static str),
}

/// A way to find a function. Of several rows of a function, the first that the executable can follow is used.
#[derive(Clone, Copy, Debug)]
pub struct Row<V: 'static> {
    /// Full symbol names, newest first: the first that exists is used. `[...]` stands for any type arguments, as in a
    /// traceback, except those of instantiations by GC shape, which wrappers call with a dictionary; `[go.shape...]` for
    /// those. All instantiations need a site, and may follow different rows, of which the first may name one.
    pub symbols: &'static [&'static str],
    /// How its parameters and results are found.
    pub signature: Signature,
    /// Where the start of a call is seen.
    pub begin: Begin,
    /// Reads at the start.
    pub at_entry: &'static [Want<V>],
    /// Where the end of a call is seen.
    pub end: End,
    /// Reads at the end.
    pub at_end: &'static [Want<V>],
    /// The Kubernetes minor version that introduced it; its absence in older versions is not reported as missing.
    pub since: Option<u32>,
    /// What is missing from the traces without it.
    pub without: &'static str,
}

/// Meaning of a hit at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Start of the call: its entry, or a later point after a long preparation.
    Entry,
    /// End of the call: an instruction in its caller, or after a call that it makes itself.
    ReturnSite,
    /// End of the call: the entry of the function that comes next, or the call that takes the time for a metric.
    NextEntry,
    /// End of the call: its `ret`.
    Ret,
    /// Both start and end of the call, at a site as with [`Role::ReturnSite`]. It started at the end of the preceding
    /// call in the same phase, or at the start of the phase.
    InTurn,
    /// Both start and end of the call: at the call that takes the time for its metric and has the start as an argument.
    Metric,
}
