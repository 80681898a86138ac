//! Which sites of an executable to probe, and what to read there.
//!
//! The table of functions says what is wanted; the executable itself says where it is: functions and call sites from its
//! function table and code, layouts and signatures from its type descriptors. What cannot be established is not
//! probed, and the plan says what follows from that.

mod builder;
mod explain;
mod reads;
pub mod report;
mod row;
mod signatures;

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use goexe::{Class, Executable, Functions, LinkMode, Machine, Path, Step, Type, Types};
use serde::{Deserialize, Serialize};
use wire::{MAP_WALK, NO_TEXTS, Site, TOP};

use self::builder::{Builder, is_caller, stands_for};
pub use self::{
    explain::explain,
    row::{Begin, End, EntriesOf, Field, Held, Interface, Row, SeenAs, Signature, TopOf, Want},
    signatures::{FunctionSignature, Place},
};
use crate::program::{Detail, Function as _, Named, Program};

/// What stands for type arguments in a row's symbols and types, as a traceback prints them.
const ANY_ARGUMENTS: &str = "[...]";

/// Which executable a plan is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Identity {
    /// For example `v1.36.4`; `None` where the build information does not say.
    pub kubernetes_version: Option<String>,
    /// For example `go1.26.5`.
    pub go_version: String,
    /// The GNU build id, in hex.
    pub build_id: Option<String>,
    /// As Go names it: `amd64` or `arm64`.
    pub machine: Cow<'static, str>,
    /// `static`, `pie` or `dynamic`.
    pub link_mode: Cow<'static, str>,
    /// Whether the symbol table is gone.
    pub stripped: bool,
    /// Virtual address of the first instruction.
    #[serde(skip)]
    pub entry_point: u64,
}

/// What a hit at a site means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// The function has been called; or, where it prepares for long, has come to its work.
    Entry,
    /// The function has returned: an instruction in its caller.
    ReturnSite,
    /// The function is over: the entry of the function that comes next, or where it takes the time for its metric.
    NextEntry,
    /// The function is about to return: its `ret`.
    Ret,
    /// The function has been called and has returned, as with [`Role::ReturnSite`]. It was called when the one before it in the
    /// same phase had returned, or when the phase began.
    InTurn,
    /// The function has been called and is over: it takes the time for its metric, and knows when it began.
    Metric,
}

/// Which part of a record a value is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Index of a word.
    Word(usize),
    /// Index of a string.
    Text(usize),
}

/// What a read brings, and what is made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading<V> {
    /// A value, as its [kind](crate::values::Kind) says.
    Value(V),
    /// One place of a list of strings.
    TextAt(V, u8),
    /// The type of what an error holds: the value is 0 for nil, else 1.
    Failure(V),
    /// The beginning of what an error holds: its message, if its type is one of these; else the value is the type's name.
    MessageOf(V, &'static [&'static str]),
    /// The type of what an interface holds: the value is read if it is one of these, and has as many strings as that.
    Holds(V, &'static [Held]),
    /// First word of the `time.Time` at which the call began.
    StartWall,
    /// Its second word: nanoseconds since the process began, near enough.
    StartMonotonic,
    /// The first eight bytes of the result's label, and whatever comes behind a shorter one.
    Result,
    /// Length of that label.
    ResultLength,
    /// Where a closure returns to: into its function, unless a panic runs it.
    ReturnAddress,
}

impl<V: Serialize> Reading<V> {
    /// As `schedspan inspect` shows it: the value's serialized name, or its own.
    pub fn name(&self) -> String {
        match self {
            Self::Value(value) | Self::MessageOf(value, _) => name(value),
            Self::TextAt(value, place) => format!("{}[{place}]", name(value)),
            Self::Failure(value) => format!("{} of an error", name(value)),
            Self::Holds(value, _) => format!("type of {}", name(value)),
            Self::StartWall => "start".to_owned(),
            Self::StartMonotonic => "start (monotonic)".to_owned(),
            Self::Result => "result".to_owned(),
            Self::ResultLength => "length of the result".to_owned(),
            Self::ReturnAddress => "return address".to_owned(),
        }
    }
}

/// A probe site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSite<P: Program> {
    /// The function that a hit is about.
    pub function: P::Function,
    /// What a hit means.
    pub role: Role,
    /// Virtual address.
    pub address: u64,
    /// Offset in the file.
    pub file_offset: u64,
    /// What a hit costs.
    pub class: Class,
    /// How far below its place at the call's entry the stack pointer is here, in bytes; negative above it.
    pub stack_depth: i64,
    /// The function that the instruction is in.
    pub symbol: String,
    /// That of a closure: where it returns to, unless a panic runs it.
    pub called_by: Option<Range<u64>>,
    /// What the eBPF program is told to read.
    pub spec: Site,
    /// What the reads are; the index is the index of the read.
    pub values: Vec<(Reading<P::Value>, Slot)>,
    /// What the list is that the eBPF program goes through, where it goes through one.
    pub list: Option<P::Value>,
}

/// A field of a struct that is gone through, and where the executable says it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Layout {
    /// The struct's type, with its package's path.
    #[serde(rename = "type")]
    pub typ: String,
    /// The field.
    pub field: String,
    /// Bytes from the start of the struct.
    pub offset: u64,
    /// Whether it is looked at.
    pub read: bool,
}

/// The fields on the ways of the plan, by the struct that they are in.
type Structs = BTreeMap<String, (Type, BTreeSet<String>)>;

/// What type descriptors and function table say, against debug information.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CrossCheck {
    /// Fields and functions that both tell about.
    pub compared: usize,
    /// How many of these they do not agree on.
    pub disagreements: usize,
    /// A sentence for each, or why there is nothing to compare with.
    pub details: Vec<String>,
}

/// Something that the executable does not give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    /// The serialized name of the function that it would have been about.
    pub function: String,
    /// What was looked for and not found.
    pub why: String,
    /// What a user misses.
    pub without: String,
}

/// The sites chosen for one executable.
#[derive(Clone, Debug)]
pub struct Plan<P: Program> {
    /// Which executable.
    pub identity: Identity,
    /// Where probes go.
    pub sites: Vec<PlannedSite<P>>,
    /// What cannot be traced, and why.
    pub missing: Vec<Missing>,
    /// Functions that this Kubernetes version does not have yet.
    pub not_yet: Vec<P::Function>,
    /// The implementations in the executable whose names events may say.
    pub names: Vec<Named>,
    /// The types of errors in the executable, and those that [`Held`] names: virtual address of the type descriptor, and name.
    pub errors: Vec<(u64, String)>,
    /// The structs that are gone through, by the type descriptors.
    pub layouts: Vec<Layout>,
    /// The signatures that the executable spells out, probed or not.
    pub signatures: Vec<FunctionSignature>,
    /// Whether debug information says the same; `None` in a stripped file.
    pub debug_info: Option<CrossCheck>,
}

/// Why there is no plan at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a Go executable that can be read.
    #[error(transparent)]
    Executable(#[from] goexe::Error),
    /// A Go program, but another one.
    #[error("a Go program, but not {program}: it has no function `{marker}`")]
    AnotherProgram {
        /// The program that was looked for.
        program: &'static str,
        /// What only that program has.
        marker: &'static str,
    },
    /// Nothing that is probed is called so.
    #[error("nothing that is probed is called `{0}`: `schedspan inspect` without --explain lists what is")]
    NotProbed(String),
}

impl<P: Program> Plan<P> {
    /// Reads an executable and chooses the sites.
    ///
    /// # Errors
    ///
    /// When the file is not a readable Go executable or not this program. What is missing from the program is not an error: see
    /// [`Plan::missing`].
    pub fn of(data: &[u8]) -> Result<Self, Error> {
        let executable = Executable::parse(data)?;
        Self::choose(&executable, &executable.functions()?)
    }

    /// The same of an executable that is read already.
    ///
    /// # Errors
    ///
    /// Those of [`Plan::of`].
    pub fn choose(executable: &Executable<'_>, functions: &Functions<'_>) -> Result<Self, Error> {
        let rows = || P::Function::ALL.iter().flat_map(|function| P::rows(*function));
        let wanted: BTreeSet<&[u8]> = rows()
            .flat_map(|row| {
                let next = if let End::NextEntry(symbol, _) = row.end { Some(symbol) } else { None };
                let first = match row.begin {
                    Begin::FirstCall(symbol) | Begin::AfterFirstCall(symbol) => Some(symbol),
                    Begin::Unused | Begin::Entry | Begin::InTurn | Begin::CallsIn(_) => None,
                };
                row.symbols.iter().copied().chain(next).chain(first)
            })
            .chain(P::MARKERS.iter().copied())
            .chain(P::METRIC.iter().flat_map(|metric| [metric.taken, metric.labelled]))
            .map(str::as_bytes)
            .collect();
        let generic: Vec<&str> = rows()
            .flat_map(|row| row.symbols)
            .copied()
            .filter(|symbol| symbol.contains(ANY_ARGUMENTS))
            .collect();
        let is_meant =
            |name: &str| is_caller::<P>(name) || generic.iter().any(|symbol| stands_for(symbol, name));
        let found =
            functions.matching(|name| wanted.contains(name) || str::from_utf8(name).is_ok_and(is_meant));
        if !found.iter().any(|function| P::MARKERS.contains(&function.name)) {
            return Err(Error::AnotherProgram { program: P::NAME, marker: P::MARKERS[0] });
        }
        let types = executable.types();
        let mut builder = Builder::<P>::new(executable, functions, &types, &found)?;
        for function in P::Function::ALL {
            builder.add(*function);
        }
        let names = P::names(executable, functions, &types)?;
        let wants = rows().flat_map(|row| row.at_entry.iter().chain(row.at_end));
        let errors = errors(&types)?.into_iter().chain(held(&types, wants)).collect();
        let signatures = signatures::find(&builder, executable.machine(), P::SPELLED_OUT)?;
        let Builder { sites, missing, not_yet, structs, .. } = builder;
        let layouts = layouts(&types, &structs.into_inner())?;
        let identity = identity(executable);
        Ok(Self { identity, sites, missing, not_yet, names, errors, layouts, signatures, debug_info: None })
    }

    /// As [`Plan::of`], and compares what the plan rests on with the debug information, where there is some. It is read
    /// whole.
    ///
    /// # Errors
    ///
    /// Those of [`Plan::of`].
    pub fn checked(data: &[u8]) -> Result<Self, Error> {
        let mut plan = Self::of(data)?;
        plan.debug_info = cross_check(&Executable::parse(data)?, &plan)?;
        Ok(plan)
    }

    /// With the sites of this level of detail alone.
    #[must_use]
    pub fn with_detail(mut self, detail: Detail) -> Self {
        self.sites.retain(|site| P::detail(site.function) <= detail);
        if detail < Detail::Full {
            for site in self.sites.iter_mut().filter(|site| [TOP, MAP_WALK].contains(&site.spec.texts)) {
                site.spec.texts = NO_TEXTS;
            }
        }
        self
    }

    /// Whether everything can be traced.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.missing.is_empty()
    }
}

/// Whether a Go program has this program inside.
#[must_use]
pub fn has<P: Program>(functions: &Functions<'_>) -> bool {
    P::MARKERS.iter().any(|marker| functions.names_contain(marker))
}

/// Whether the name of one of these functions stands somewhere in a file: all that can be said of one whose tables cannot be
/// read, so that a user hears of it.
#[must_use]
pub fn names_stand_in(data: &[u8], markers: &[&str]) -> bool {
    markers.iter().any(|marker| memchr::memmem::find(data, format!("{marker}\0").as_bytes()).is_some())
}

/// Compares what the plan rests on with debug information, where there is some.
fn cross_check<P: Program>(executable: &Executable<'_>, plan: &Plan<P>) -> Result<Option<CrossCheck>, Error> {
    let structs = plan.layouts.iter().map(|layout| layout.typ.as_str()).collect();
    let probed = plan.sites.iter().map(|site| site.symbol.as_str()).collect();
    let info = match executable.debug_info(&structs, &probed) {
        Ok(None) => return Ok(None),
        Ok(Some(info)) => info,
        // It is a second opinion: without it the plan is as good as that of a stripped file.
        Err(error) => {
            return Ok(Some(CrossCheck { compared: 0, disagreements: 0, details: vec![error.to_string()] }));
        }
    };
    let mut check = CrossCheck { compared: 0, disagreements: 0, details: Vec::new() };
    let mut compare = |what: String, ours: u64, theirs: Option<u64>| {
        let Some(theirs) = theirs else { return };
        check.compared += 1;
        if ours != theirs {
            check.disagreements += 1;
            check.details.push(format!("{what}: {ours:#x}, and {theirs:#x} by the debug information"));
        }
    };
    for Layout { typ, field, offset, read: _ } in &plan.layouts {
        let theirs = info.fields.get(&(typ.clone(), field.clone())).copied();
        compare(format!("field `{field}` of `{typ}`"), *offset, theirs);
    }
    for function in
        executable.functions()?.matching(|name| probed.iter().any(|probed| probed.as_bytes() == name))
    {
        compare(
            format!("function `{}`", function.name),
            function.range.start,
            info.functions.get(function.name).map(|function| function.address),
        );
    }
    Ok(Some(check))
}

fn identity(executable: &Executable<'_>) -> Identity {
    let info = executable.build_info();
    let version = |path: &str| info.module_version(path).map(str::to_owned);
    let kubernetes = version("k8s.io/kubernetes").filter(|version| version.starts_with("v1."));
    // A build in the Kubernetes tree has no version of its own; its libraries' v0.X is Kubernetes v1.X.
    let client =
        || version("k8s.io/client-go").and_then(|v| v.strip_prefix("v0.").map(|rest| format!("v1.{rest}")));
    Identity {
        kubernetes_version: kubernetes.or_else(client),
        go_version: info.go_version.clone(),
        build_id: executable.build_id(),
        machine: match executable.machine() {
            Machine::Amd64 => "amd64",
            Machine::Arm64 => "arm64",
        }
        .into(),
        link_mode: match executable.link_mode() {
            LinkMode::Static => "static",
            LinkMode::Pie => "pie",
            LinkMode::Dynamic => "dynamic",
        }
        .into(),
        stripped: executable.stripped(),
        entry_point: executable.entry_point(),
    }
}

/// The types that an `error` may hold.
fn errors(types: &Types<'_>) -> Result<Vec<(u64, String)>, goexe::Error> {
    let error = types.by_name("error")?;
    let of_errors = types.itabs()?.into_iter().filter(|itab| itab.interface == error);
    of_errors.map(|itab| Ok((itab.concrete.address(), types.string(&itab.concrete)?.to_owned()))).collect()
}

/// The types that are told apart behind an interface.
fn held<V: 'static>(
    types: &Types<'_>,
    wants: impl Iterator<Item = &'static Want<V>>,
) -> BTreeSet<(u64, String)> {
    let of = |want: &Want<V>| if let SeenAs::Strings(held) = want.seen_as { held } else { &[] };
    let found = |Held(name, _): &Held| Some((types.by_name(name).ok()?.address(), (*name).to_owned()));
    wants.flat_map(of).filter_map(found).collect()
}

/// All fields of the structs.
fn layouts(types: &Types<'_>, structs: &Structs) -> Result<Vec<Layout>, goexe::Error> {
    let mut layouts = Vec::new();
    for (name, (typ, read)) in structs {
        layouts.extend(types.fields(typ)?.into_iter().map(|field| Layout {
            typ: name.clone(),
            field: field.name.to_owned(),
            offset: field.offset,
            read: read.contains(field.name),
        }));
    }
    Ok(layouts)
}

/// A path from a struct, whose fields are written down.
fn follow<'a>(
    types: &Types<'a>,
    structs: &RefCell<Structs>,
    from: &Type,
    fields: &[&str],
) -> Result<Path<'a>, goexe::Error> {
    let path = types.path(from, fields)?;
    for Step { owner, field, .. } in &path.steps {
        let package = types.package(owner)?.unwrap_or_default();
        let name = types.string(owner)?.rsplit('.').next().unwrap_or_default();
        let mut structs = structs.borrow_mut();
        let (_, read) = structs.entry(format!("{package}.{name}")).or_insert((*owner, BTreeSet::new()));
        read.insert((*field).to_owned());
    }
    Ok(path)
}

/// The name that the JSON output has, too.
pub fn name(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
