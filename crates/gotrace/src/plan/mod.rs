//! Chooses the sites of an executable to probe, and what to read there.
//!
//! The program's table says what is wanted. The executable says where it is: functions and call sites come from its
//! function table and code, layouts and signatures from its type descriptors. What cannot be established is not probed,
//! and the plan reports what is missing as a result.

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

use goexe::{BuildInfo, Class, Executable, Functions, LinkMode, Machine, Path, Source, Step, Type, Types};
use serde::{Deserialize, Serialize};
use wire::{MAP_WALK, NO_TEXTS, Site, TOP};

use self::builder::{Builder, is_caller, stands_for};
pub use self::{
    explain::explain,
    row::{Begin, End, EntriesOf, Field, Held, Interface, Row, SeenAs, Signature, TopOf, Want},
    signatures::{FunctionSignature, Place},
};
use crate::program::{Detail, Function as _, Named, Program};

/// Placeholder for type arguments in a row's symbols and types, as in a traceback.
const ANY_ARGUMENTS: &str = "[...]";

/// Identity and build properties of an executable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Identity {
    /// For example `v1.36.4`; `None` if the build information has no version.
    pub kubernetes_version: Option<String>,
    /// For example `go1.26.5`.
    pub go_version: String,
    /// The GNU build id, in hex.
    pub build_id: Option<String>,
    /// GOARCH: `amd64` or `arm64`.
    pub machine: Cow<'static, str>,
    /// `static`, `pie` or `dynamic`.
    pub link_mode: Cow<'static, str>,
    /// Whether the symbol table is removed.
    pub stripped: bool,
    /// Virtual address of the first instruction.
    #[serde(skip)]
    pub entry_point: u64,
}

/// Meaning of a hit at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Start of the call: its entry, or a later point after a long preparation.
    Entry,
    /// End of the call: an instruction in its caller.
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

/// Part of a record that holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Index in the words.
    Word(usize),
    /// Index in the strings.
    Text(usize),
}

/// Interpretation of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading<V> {
    /// A value of its [kind](crate::values::Kind).
    Value(V),
    /// One element of a list of strings, by index.
    TextAt(V, u8),
    /// Type descriptor in an error: the value is 0 for nil, else 1.
    Failure(V),
    /// First field of what an error holds: its message, if its type is one of these; else the value is the type's name.
    MessageOf(V, &'static [&'static str]),
    /// Type descriptor in an interface: the value is read if the type is one of these, with that number of strings.
    Holds(V, &'static [Held]),
    /// First word of the `time.Time` at the start of the call.
    StartWall,
    /// Second word of that `time.Time`: nanoseconds since about the start of the process.
    StartMonotonic,
    /// First eight bytes of the result's label. A shorter label is followed by unrelated bytes.
    Result,
    /// Length of that label.
    ResultLength,
    /// Return address of a closure: in the enclosing function, unless a panic runs the closure.
    ReturnAddress,
}

impl<V: Serialize> Reading<V> {
    /// Name in the output of `schedspan inspect`: the value's serialized name, or its own.
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

/// An instruction to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSite<P: Program> {
    /// The function that a hit refers to.
    pub function: P::Function,
    /// What a hit means.
    pub role: Role,
    /// Virtual address in the executable.
    pub address: u64,
    /// Offset in the file.
    pub file_offset: u64,
    /// Cost class of a hit.
    pub class: Class,
    /// Bytes from the stack pointer here up to its value at the call's entry; negative if it is above that.
    pub stack_depth: i64,
    /// Symbol of the function that contains the instruction.
    pub symbol: String,
    /// For a closure: the range of the enclosing function, to which it returns unless a panic runs it.
    pub called_by: Option<Range<u64>>,
    /// The site's reads, for the eBPF program.
    pub spec: Site,
    /// The interpretation of each read, by index.
    pub values: Vec<(Reading<P::Value>, Slot)>,
    /// The value that receives the list or map, if the site reads one.
    pub list: Option<P::Value>,
}

/// A field of a struct on the path of a read, and its offset in the executable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Layout {
    /// Struct type, with its package's path.
    #[serde(rename = "type")]
    pub typ: String,
    /// Name of the field.
    pub field: String,
    /// Offset in bytes from the start of the struct.
    pub offset: u64,
    /// Whether a read uses the field.
    pub read: bool,
}

/// The fields on the plan's paths, by struct.
type Structs = BTreeMap<String, (Type, BTreeSet<String>)>;

/// Comparison of type descriptors and function table with debug information.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CrossCheck {
    /// Number of fields and functions that both contain.
    pub compared: usize,
    /// Number of these that differ.
    pub disagreements: usize,
    /// A sentence for each difference, or the reason why nothing was compared.
    pub details: Vec<String>,
}

/// A function that cannot be traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    /// Serialized name of the function.
    pub function: String,
    /// What was searched for and not found.
    pub why: String,
    /// What is missing from the traces.
    pub without: String,
}

/// The sites chosen for one executable.
#[derive(Clone, Debug)]
pub struct Plan<P: Program> {
    /// The executable.
    pub identity: Identity,
    /// The sites to probe.
    pub sites: Vec<PlannedSite<P>>,
    /// What cannot be traced, and why.
    pub missing: Vec<Missing>,
    /// Functions that this Kubernetes version does not have yet.
    pub not_yet: Vec<P::Function>,
    /// The implementations in the executable whose names can appear in events.
    pub names: Vec<Named>,
    /// Error types in the executable, and types named by [`Held`]: virtual address of the type descriptor, and name.
    pub errors: Vec<(u64, String)>,
    /// All fields of the structs on the paths of reads, by the type descriptors.
    pub layouts: Vec<Layout>,
    /// Signatures in the executable's type descriptors, including functions that are not probed.
    pub signatures: Vec<FunctionSignature>,
    /// Comparison with debug information; `None` in a stripped file.
    pub debug_info: Option<CrossCheck>,
}

/// Why an executable cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a readable Go executable.
    #[error(transparent)]
    Executable(#[from] goexe::Error),
    /// A Go program, but not the expected one.
    #[error("a Go program, but not {program}: it has no function `{marker}`")]
    AnotherProgram {
        /// Name of the expected program.
        program: &'static str,
        /// A function that only the expected program has.
        marker: &'static str,
    },
    /// No probed function has this name.
    #[error("no probed function is called `{0}`: `schedspan inspect` without --explain lists them")]
    NotProbed(String),
}

impl<P: Program> Plan<P> {
    /// Reads an executable and chooses the sites.
    ///
    /// # Errors
    ///
    /// When the file is not a readable Go executable, or contains another program. A missing function is not an error:
    /// see [`Plan::missing`].
    pub fn of<'a>(source: impl Into<Source<'a>>) -> Result<Self, Error> {
        let executable = Executable::parse(source)?;
        Self::choose(&executable, &executable.functions()?)
    }

    /// Chooses the sites of an executable that is already parsed.
    ///
    /// # Errors
    ///
    /// Those of [`Plan::of`].
    pub fn choose(executable: &Executable<'_>, functions: &Functions<'_>) -> Result<Self, Error> {
        let chosen = Self::chosen(executable, functions);
        // What was found in a part of a file is no plan.
        executable.intact()?;
        chosen
    }

    fn chosen(executable: &Executable<'_>, functions: &Functions<'_>) -> Result<Self, Error> {
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

    /// Like [`Plan::of`], with a comparison against the debug information, if there is any. Reads it completely.
    ///
    /// # Errors
    ///
    /// Those of [`Plan::of`].
    pub fn checked<'a>(source: impl Into<Source<'a>>) -> Result<Self, Error> {
        let source = source.into();
        let mut plan = Self::of(source)?;
        plan.debug_info = cross_check(&Executable::parse(source)?, &plan)?;
        Ok(plan)
    }

    /// Keeps only the sites of this level of detail.
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

    /// Whether no function is missing.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.missing.is_empty()
    }
}

/// Whether an executable contains this program.
#[must_use]
pub fn has<P: Program>(functions: &Functions<'_>) -> bool {
    P::MARKERS.iter().any(|marker| functions.names_contain(marker))
}

/// Whether an executable of these modules can contain one of these functions: it has a module from the same place, such as
/// `k8s.io`, or names no modules. A look at a few kilobytes, before anything else is read.
#[must_use]
pub fn may_have(info: &BuildInfo, markers: &[&str]) -> bool {
    let from = |path: &str| path.split('/').next().map(str::to_owned);
    let mut modules = info.main.iter().chain(&info.dependencies).peekable();
    modules.peek().is_none()
        || modules.any(|module| markers.iter().any(|marker| from(marker) == from(&module.path)))
}

/// Compares the plan's layouts and addresses with debug information, if there is any.
fn cross_check<P: Program>(executable: &Executable<'_>, plan: &Plan<P>) -> Result<Option<CrossCheck>, Error> {
    let structs = plan.layouts.iter().map(|layout| layout.typ.as_str()).collect();
    let probed = plan.sites.iter().map(|site| site.symbol.as_str()).collect();
    let info = match executable.debug_info(&structs, &probed) {
        Ok(None) => return Ok(None),
        Ok(Some(info)) => info,
        // The comparison is optional: without it, the plan is as good as that of a stripped file.
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
            check.details.push(format!("{what}: {ours:#x}, but {theirs:#x} in the debug information"));
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
    // A build in the Kubernetes tree has no version of its own. Version v0.X of its libraries is Kubernetes v1.X.
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

/// The types that can be in an `error`.
fn errors(types: &Types<'_>) -> Result<Vec<(u64, String)>, goexe::Error> {
    let error = types.by_name("error")?;
    let of_errors = types.itabs()?.into_iter().filter(|itab| itab.interface == error);
    of_errors.map(|itab| Ok((itab.concrete.address(), types.string(&itab.concrete)?.to_owned()))).collect()
}

/// The types of all [`Held`] lists of the program.
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

/// Follows a path from a struct, and records its fields.
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

/// Serialized name of an enum variant, as in the JSON output.
pub fn name(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
