//! Chooses the sites of an executable to probe, and what to read there.
//!
//! The program's table says what is wanted. The executable says where it is: functions and call sites come from its
//! function table and code, layouts and signatures from its type descriptors. What cannot be established is not probed,
//! and the plan reports what is missing as a result.

mod builder;
mod explain;
mod kept;
mod layout;
mod reads;
pub mod report;
pub(crate) mod row;
mod signatures;
pub(crate) mod site;
mod sites;
mod timing;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use goexe::{BuildInfo, Executable, Functions, Kind, LinkMode, Machine, Source, Type, Types};
use serde::{Deserialize, Serialize};
use wire::{MAP_WALK, NO_TEXTS, TOP};

use self::{
    builder::{Builder, is_caller, is_generic, stands_for},
    layout::layouts,
};
pub use self::{
    explain::explain,
    layout::Layout,
    row::{Begin, End, EntriesOf, Field, Held, Interface, Role, Row, SeenAs, Signature, TopOf, Want},
    signatures::{FunctionSignature, Place},
    site::{Missing, PlannedSite, Reading, Slot},
};
pub use crate::values::name;
use crate::{
    governor::Cut,
    program::{Detail, Function as _, Named, Program},
};

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

/// The sites chosen for one executable.
#[derive(Clone, Debug)]
pub struct Plan<P: Program> {
    /// The executable.
    pub identity: Identity,
    /// The sites to probe.
    pub sites: Vec<PlannedSite<P>>,
    /// The most that may be cut of them: see [`Program::most`].
    pub most: Cut,
    /// What cannot be traced, and why.
    pub missing: Vec<Missing>,
    /// Functions that this Kubernetes version does not have yet.
    pub not_yet: Vec<P::Function>,
    /// The implementations in the executable whose names can appear in events.
    pub names: Vec<Named>,
    /// Error types in the executable, and types named by [`Held`]: virtual address of the type descriptor, and name.
    pub errors: Vec<(u64, String)>,
    /// Types that begin like one of [`SeenAs::NameOfLike`]: virtual address of the type descriptor, and name.
    pub alike: Vec<(u64, String)>,
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
                let other = match row.begin {
                    Begin::FirstCall(symbol)
                    | Begin::AfterFirstCall(symbol)
                    | Begin::EntrySince(symbol, _) => Some(symbol),
                    Begin::Unused
                    | Begin::Entry
                    | Begin::InTurn
                    | Begin::CallsIn(_)
                    | Begin::Timing(_)
                    | Begin::UnlessTiming(..) => None,
                };
                row.symbols.iter().copied().chain(next).chain(other)
            })
            .chain(P::MARKERS.iter().copied())
            .chain(P::METRIC.iter().flat_map(|metric| [metric.taken, metric.labelled]))
            .map(str::as_bytes)
            .collect();
        let generic: Vec<&str> =
            rows().flat_map(|row| row.symbols).copied().filter(|symbol| is_generic(symbol)).collect();
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
        let errors = errors(&types)?.into_iter().chain(held(&types, wants.clone())).collect();
        let alike = alike(&types, wants)?;
        let signatures = signatures::find(&builder, executable.machine(), P::SPELLED_OUT)?;
        let Builder { mut sites, missing, not_yet, structs, .. } = builder;
        let most = P::most(&sites);
        if most.keeps_detail(Detail::Phases) {
            let phases = sites.iter_mut().filter(|site| site.detail == Detail::Phases);
            phases.for_each(|site| site.detail = Detail::Attempts);
        }
        let layouts = layouts(&types, &structs.into_inner())?;
        let identity = identity(executable);
        let debug_info = None;
        Ok(Self {
            identity,
            sites,
            most,
            missing,
            not_yet,
            names,
            errors,
            alike,
            layouts,
            signatures,
            debug_info,
        })
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
        self.sites.retain(|site| site.detail <= detail);
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

/// The types in interfaces that begin with the fields of a struct that the program names.
fn alike<V: 'static>(
    types: &Types<'_>,
    wants: impl Iterator<Item = &'static Want<V>>,
) -> Result<Vec<(u64, String)>, goexe::Error> {
    let named = |want: &Want<V>| {
        if let SeenAs::NameOfLike(package, name) = want.seen_as {
            types.find(package, name).ok()
        } else {
            None
        }
    };
    let wanted: BTreeMap<u64, Type> = wants.filter_map(named).map(|typ| (typ.address(), typ)).collect();
    let mut found = Vec::new();
    if wanted.is_empty() {
        return Ok(found);
    }
    let fields = |typ: &Type| -> Result<Vec<(u64, u64)>, goexe::Error> {
        Ok(types.fields(typ)?.into_iter().map(|field| (field.offset, field.typ.address())).collect())
    };
    let wanted = wanted.values().map(fields).collect::<Result<Vec<_>, _>>()?;
    let concrete: BTreeMap<u64, Type> =
        types.itabs()?.into_iter().map(|itab| (itab.concrete.address(), itab.concrete)).collect();
    for (address, pointer) in concrete.into_iter().filter(|(_, typ)| typ.kind == Kind::Pointer) {
        let element = types.element(&pointer)?;
        if element.kind != Kind::Struct {
            continue;
        }
        let own = fields(&element)?;
        if wanted.iter().any(|wanted| own.starts_with(wanted)) {
            found.push((address, types.string(&pointer)?.to_owned()));
        }
    }
    Ok(found)
}
