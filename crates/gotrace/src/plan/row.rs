//! What a row of a program's table of functions is made of.

/// A field of a struct: package, struct, field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field(pub &'static str, pub &'static str, pub &'static str);

/// Where an interface type is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// By its name, in one of these packages: it moved.
    Named(&'static [&'static str], &'static str),
    /// What a field holds.
    In(Field),
    /// The elements of the list or the values of the map that a field holds.
    ElementOf(Field),
    /// The first parameter of functions of this type.
    FirstParameterOf(&'static str),
}

/// How a function's parameters and results are found: signatures are read, not assumed.
#[derive(Clone, Copy, Debug)]
pub enum Signature {
    /// Nothing is read there.
    Unused,
    /// A method of an interface.
    Method(Interface, &'static str),
    /// The results are those of a method of an interface. The parameters are not known.
    ResultsOf(Interface, &'static str),
    /// What a field of a struct holds: a function that is called through it.
    Called(Field),
    /// A closure that a field of a struct holds.
    Closure(Field),
    /// A function with these parameters, which nothing in the executable spells out; its argument info must agree.
    Declared(&'static [&'static str]),
    /// A method of a generic type that takes one value of each of its type arguments.
    TypeArguments,
    /// A function that calls a method of one of the implementations in a list: the field that holds the list, and the method, by
    /// way of another that returns an interface. Context and implementation come first, then what the method takes.
    CallerOf(Field, &'static [&'static str]),
}

/// Where a hit says that a function has been called.
#[derive(Clone, Copy, Debug)]
pub enum Begin {
    /// The call itself means nothing.
    Unused,
    /// At its entry.
    Entry,
    /// Where the call before it in the same phase has ended, or the phase has begun: nothing else is done in between. The hit at
    /// the return carries the entry's values. As [`Begin::Entry`] where they cannot be read any more at the end.
    InTurn,
    /// When the function calls this one for the first time: what it does before is not part of what the program's own metric
    /// times. Nothing can be read there.
    FirstCall(&'static str),
    /// When the function has called this one for the first time: as [`Begin::FirstCall`], a little later. For functions that
    /// take long from the end of what is timed to their own.
    AfterFirstCall(&'static str),
    /// Where functions of these packages call it.
    CallsIn(&'static [&'static str]),
}

/// Where the end of a call is seen.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// Only the entry matters.
    Unused,
    /// At the cheapest instruction after each call by the program's callers; `ret` where there is none.
    Return,
    /// At the entry of the function that always comes next; as [`End::Return`] where there is none of that name. What is read
    /// are its parameters, which are one of these lists; nothing where its arguments agree with none.
    NextEntry(&'static str, &'static [&'static [&'static str]]),
    /// Where the function, or a closure of it that runs as it returns, takes the time for the program's own
    /// [metric](crate::program::Metric): the start is an argument there, and the label in this place is the result, so that one
    /// hit tells it all. As [`Row::begin`] and [`End::Return`] where there is no such place, or where its result is wanted and
    /// no label can be read.
    Metric(u32),
    /// There as well, for functions without a result whose entry is read. As [`End::Return`] where there is no such place.
    AtMetric,
}

/// One value to read.
#[derive(Clone, Copy, Debug)]
pub struct Want<V> {
    /// The slot that receives it. Several reads of one [`Kind::Texts`](crate::values::Kind::Texts) fill it place by place.
    pub value: V,
    /// The parameter or result, by any of these type strings: they moved between packages. Of a receiver `[...]` stands for the
    /// function's own type arguments, if it has any.
    pub of: &'static [&'static str],
    /// Fields to go through from there; embedded ones are found by themselves. `*` stands for the first element of a
    /// slice, `*1` for the second and so on, and for what a pointer points to; `#` for the length of a slice or map;
    /// `(package.Type)`, as in Go, for what an interface holds, where that is a pointer to this.
    pub path: &'static [&'static str],
    /// What the parameter or result is taken for.
    pub seen_as: SeenAs,
}

/// What a parameter or result is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenAs {
    /// What its type says.
    Declared,
    /// The implementation that is called, behind the context: its type names it. `wrapper` is a package and the beginning of the
    /// names of structs there that hold an implementation as their first field, where the program counts calls that way.
    Implementation {
        /// Package and beginning of the name.
        wrapper: (&'static str, &'static str),
    },
    /// The receiver, which no signature lists.
    Receiver,
    /// The last of several of that type.
    Last,
    /// An error: 0 for nil, else 1.
    Failure,
    /// An interface that holds a pointer to this struct: package and name.
    PointerTo(&'static str, &'static str),
    /// The message of the error that a [`SeenAs::Failure`] of the same site is about, where the error is one of these types and
    /// so begins like this struct; else the name of its type.
    MessageOf {
        /// Package and name of the struct.
        of: (&'static str, &'static str),
        /// Types of errors.
        types: &'static [&'static str],
    },
    /// A slice of structs, whose elements with the highest keys are wanted.
    TopOf(TopOf),
    /// A map whose values are wanted.
    EntriesOf(EntriesOf),
    /// The first parameter, of whatever type: all its strings. They are itself, or fields of the struct that it is; there may be
    /// none, but not more than a record has room for. Of an interface those of what it holds, if that is one of these.
    Strings(&'static [Held]),
    /// The first parameter, of whatever type: its first word that is not part of a string, if it has one. Of an interface the
    /// address of what it holds.
    Word,
}

/// A type that an interface may hold, made of nothing but strings: its full name, and how many strings it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held(pub &'static str, pub u8);

/// A slice of structs that have a key, a label, and a list of named parts of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopOf {
    /// The field with the key, an `int64`.
    pub key: &'static str,
    /// The field with the label, a string.
    pub label: &'static str,
    /// The field with the parts: a slice of structs of a string and an `int64`, by these names.
    pub parts: (&'static str, &'static str, &'static str),
}

/// A map from strings to pointers to structs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntriesOf {
    /// Where an interface is passed: the package and name of the struct behind it, its field with the map, and the one with the
    /// value of all keys that are not in it.
    pub holder: (&'static str, &'static str, &'static str, &'static str),
    /// The two fields of a value that are read: a number, and a string that is known by its address.
    pub fields: (&'static str, &'static str),
}

/// A way to find a function; of several rows of a function, the first that the executable can follow.
#[derive(Clone, Copy, Debug)]
pub struct Row<V: 'static> {
    /// Full symbol names, newest first: the first that the executable has is taken. `[...]`, as in a traceback, stands for any
    /// type arguments: a site is needed in each of the instantiations, which may follow different rows. Those by shape, which
    /// the wrappers of these call with a dictionary, are not meant.
    pub symbols: &'static [&'static str],
    /// How its parameters and results are found.
    pub signature: Signature,
    /// Where a hit says that it has been called.
    pub begin: Begin,
    /// What to read when it is called.
    pub at_entry: &'static [Want<V>],
    /// Where its end is seen.
    pub end: End,
    /// What to read there.
    pub at_end: &'static [Want<V>],
    /// The Kubernetes minor that brought it, where older ones do without.
    pub since: Option<u32>,
    /// What a user misses without it.
    pub without: &'static str,
}
