//! Which sites of an executable to probe, and what to read there.
//!
//! The table of functions says what is wanted; the executable itself says where it is: functions and call sites from its
//! function table and code, layouts and signatures from its type descriptors. What cannot be established is not
//! probed, and the plan says what follows from that.

mod explain;
mod plugins;
mod signatures;
mod table;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use goexe::{
    Call, Callee, Class, Executable, Functions, Kind, LinkMode, Location, Machine, Path, Step, Type, Types,
};
use serde::Serialize;
use tracer_common::{
    MAX_READS, MAX_STEPS, MAX_TEXTS, MAX_WORDS, READ_TEXT, READ_TEXT_IN_REGISTERS, READ_WORD, Read,
    STACK_POINTER, Site,
};

use self::table::{End, METRIC, Row, SCHEDULER, Signature, TABLE, Want};
pub use self::{
    explain::explain,
    plugins::Plugin,
    signatures::{FunctionSignature, Place},
    table::{Function, Value},
};

/// An itab begins with the interface, the type, the hash: 24 bytes before the first method.
/// <https://github.com/golang/go/blob/go1.26.5/src/internal/abi/iface.go#L14-L19>
const ITAB_METHODS: u64 = 24;
/// Functions of the scheduler's own package whose calls are looked at: 200 in 1.36.
const MAX_CALLERS: usize = 2_000;
/// Bytes of their code, together: 350 KB in 1.36.
const MAX_CALLERS_CODE: u64 = 16 << 20;
/// A function that only a scheduler has, by its names from 1.30 on and in 1.29.
const MARKERS: [&str; 2] = [
    "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).ScheduleOne",
    "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).scheduleOne",
];

/// Which executable a plan is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// For example `v1.36.4`; `None` where the build information does not say.
    pub kubernetes_version: Option<String>,
    /// For example `go1.26.5`.
    pub go_version: String,
    /// The GNU build id, in hex.
    pub build_id: Option<String>,
    /// As Go names it: `amd64` or `arm64`.
    pub machine: &'static str,
    /// `static`, `pie` or `dynamic`.
    pub link_mode: &'static str,
    /// Whether the symbol table is gone.
    pub stripped: bool,
}

/// What a hit at a site means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
}

/// Which part of a record a value is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Index of a word.
    Word(usize),
    /// Index of a string.
    Text(usize),
}

/// A probe site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSite {
    /// The function that a hit tells about.
    pub function: Function,
    /// What it tells.
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
    /// What the eBPF program is told to read.
    pub spec: Site,
    /// What the reads are; the index is the index of the read.
    pub values: Vec<(Value, Slot)>,
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
    /// The function that it would have told about.
    pub function: Function,
    /// What was looked for and not found.
    pub why: String,
    /// What a user misses.
    pub without: String,
}

/// The sites chosen for one executable.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which executable.
    pub identity: Identity,
    /// Where probes go.
    pub sites: Vec<PlannedSite>,
    /// What cannot be traced, and why.
    pub missing: Vec<Missing>,
    /// Functions that this Kubernetes version does not have yet.
    pub not_yet: Vec<Function>,
    /// The plugins in the executable.
    pub plugins: Vec<Plugin>,
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
    #[error("a Go program, but no kube-scheduler: it has no function `{}`", MARKERS[0])]
    NoScheduler,
    /// Nothing that is probed is called so.
    #[error("nothing that is probed is called `{0}`: `schedspan inspect` without --explain lists what is")]
    NotProbed(String),
}

impl Plan {
    /// Reads an executable and chooses the sites.
    ///
    /// # Errors
    ///
    /// When the file is not a readable Go executable or holds no scheduler. What is missing from a scheduler is not
    /// an error: see [`Plan::missing`].
    pub fn of(data: &[u8]) -> Result<Self, Error> {
        let executable = Executable::parse(data)?;
        let functions = executable.functions()?;
        let wanted: Vec<&str> = TABLE
            .iter()
            .flat_map(|row| {
                let next = if let End::NextEntry(symbol) = row.end { Some(symbol) } else { None };
                row.symbols.iter().copied().chain(next).chain(row.begins_with)
            })
            .chain(MARKERS)
            .chain([METRIC])
            .collect();
        let package = format!("{SCHEDULER}.");
        let found = functions.matching(|name| {
            name.starts_with(package.as_bytes()) || wanted.iter().any(|wanted| wanted.as_bytes() == name)
        });
        if !found.iter().any(|function| MARKERS.contains(&function.name)) {
            return Err(Error::NoScheduler);
        }
        let types = executable.types();
        let mut builder = Builder::new(&executable, &functions, &types, &found)?;
        for rows in TABLE.chunk_by(|row, next| row.function == next.function) {
            builder.add_first(rows);
        }
        let plugins = plugins::find(&executable, &functions, &types)?;
        let signatures =
            signatures::find(&types, executable.machine(), &builder.framework, &builder.scheduler)?;
        let Builder { sites, missing, not_yet, structs, .. } = builder;
        let layouts = layouts(&types, &structs.into_inner())?;
        let identity = identity(&executable);
        Ok(Self { identity, sites, missing, not_yet, plugins, layouts, signatures, debug_info: None })
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

    /// Whether everything can be traced.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.missing.is_empty()
    }
}

/// Whether a file is a Go program with a scheduler's loop: a quick look before [`Plan::of`]. A scheduler whose Go
/// version cannot be read is one, too, so that somebody hears of it.
#[must_use]
pub fn has_scheduler(data: &[u8]) -> bool {
    let executable = match Executable::parse(data) {
        Ok(executable) => executable,
        Err(goexe::Error::Elf(_) | goexe::Error::NotGo(_)) => return false,
        // Its tables cannot be read: then its name must stand somewhere.
        Err(_) => {
            let named =
                |marker: &&str| memchr::memmem::find(data, format!("{marker}\0").as_bytes()).is_some();
            return MARKERS.iter().any(named);
        }
    };
    let functions = executable.functions();
    functions.is_ok_and(|functions| MARKERS.iter().any(|marker| functions.names_contain(marker)))
}

/// Compares what the plan rests on with debug information, where there is some.
fn cross_check(executable: &Executable<'_>, plan: &Plan) -> Result<Option<CrossCheck>, Error> {
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
            info.functions.get(function.name).copied(),
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
        },
        link_mode: match executable.link_mode() {
            LinkMode::Static => "static",
            LinkMode::Pie => "pie",
            LinkMode::Dynamic => "dynamic",
        },
        stripped: executable.stripped(),
    }
}

struct Builder<'a> {
    executable: &'a Executable<'a>,
    functions: &'a Functions<'a>,
    types: &'a Types<'a>,
    found: &'a [goexe::Function<'a>],
    /// The calls of the scheduler's own package, with who makes them.
    calls: Vec<(&'a str, Call)>,
    scheduler: Type,
    framework: Type,
    goid_offset: u32,
    sites: Vec<PlannedSite>,
    missing: Vec<Missing>,
    not_yet: Vec<Function>,
    /// Filled as paths are followed.
    structs: RefCell<Structs>,
}

/// A function type, and how a call through the interface or field that it came from looks in machine code.
struct Found {
    signature: goexe::Signature,
    /// Offset of the function's address, and of where the base of that came from; `None` where only direct calls are.
    called: Option<(u64, Option<u64>)>,
}

impl Found {
    /// Where an itab was loaded from does not matter, where a closure was does.
    fn called_by(&self, callee: Callee) -> bool {
        matches!((callee, self.called), (Callee::Indirect { offset, base }, Some((wanted, from)))
            if offset == wanted && (from.is_none() || base == from))
    }
}

impl<'a> Builder<'a> {
    fn new(
        executable: &'a Executable<'a>,
        functions: &'a Functions<'a>,
        types: &'a Types<'a>,
        found: &'a [goexe::Function<'a>],
    ) -> Result<Self, goexe::Error> {
        let structs = RefCell::default();
        let scheduler = types.find(SCHEDULER, "Scheduler")?;
        // profile.Map: the scheduler's name to its framework.
        let framework = types.element(&follow(types, &structs, &scheduler, &["Profiles"])?.typ)?;
        let goid = follow(types, &structs, &types.find("runtime", "g")?, &["goid"])?;
        let package = format!("{SCHEDULER}.");
        let (mut calls, mut code) = (Vec::new(), 0);
        for caller in found.iter().filter(|function| function.name.starts_with(&package)).take(MAX_CALLERS) {
            code += caller.range.end - caller.range.start;
            if code > MAX_CALLERS_CODE {
                break;
            }
            // A function that does not decode makes no calls that could be seen; the row that needs one says so.
            calls.extend(
                executable.calls(caller).unwrap_or_default().into_iter().map(|call| (caller.name, call)),
            );
        }
        Ok(Self {
            executable,
            functions,
            types,
            found,
            calls,
            scheduler,
            framework,
            goid_offset: u32::try_from(goid.offset)
                .map_err(|_| goexe::Error::NoType("plausible field `goid` of `runtime.g`".into()))?,
            sites: Vec::new(),
            missing: Vec::new(),
            not_yet: Vec::new(),
            structs,
        })
    }

    /// Adds the sites of the first row that can be followed; all rows are about one function.
    fn add_first(&mut self, rows: &[Row]) {
        let (mut reasons, sites) = (Vec::new(), self.sites.len());
        for row in rows {
            let Some(function) = row.symbols.iter().find_map(|symbol| self.function(symbol)) else {
                continue;
            };
            match self.add(row, function) {
                Ok(()) => return,
                Err(Why(why)) => reasons.push(why),
            }
            self.sites.truncate(sites);
        }
        let Row { function, symbols, since, without, .. } = rows[0];
        if reasons.is_empty() && since.is_some() {
            self.not_yet.push(function);
            return;
        }
        if reasons.is_empty() {
            let into = symbols.iter().find_map(|symbol| self.inlined_into(symbol));
            let into = into.map(|caller| format!(": it is inlined into `{caller}`")).unwrap_or_default();
            reasons.push(format!("no function `{}`{into}", symbols[0]));
        }
        self.missing.push(Missing { function, why: reasons.join("; "), without: without.to_owned() });
    }

    /// A function of the scheduler's own package that holds the body of another.
    fn inlined_into(&self, symbol: &str) -> Option<&'a str> {
        let holds = |caller: &&goexe::Function<'_>| {
            self.functions.inlined(caller).iter().any(|inlined| inlined.name == symbol)
        };
        self.found.iter().find(holds).map(|caller| caller.name)
    }

    fn add(&mut self, row: &Row, function: &goexe::Function<'a>) -> Result<(), Why> {
        let found = self.signature(row, function)?;
        if let Some(wants) = row.at_entry {
            let parameters =
                found.as_ref().map(|found| found.signature.parameters.as_slice()).unwrap_or_default();
            let locations = self.types.parameter_locations(parameters, true)?;
            let (site, depth) = self.beginning(row, function)?;
            let (spec, values) = self.reads(wants, parameters, &locations)?;
            self.push(row, Role::Entry, (site, depth), function.name, spec, values)?;
        }
        self.add_end(row, function, found.as_ref())
    }

    /// Where a call begins, and how deep the stack is there.
    fn beginning(&self, row: &Row, function: &goexe::Function<'a>) -> Result<(goexe::Site, i64), Why> {
        let first = row.begins_with.and_then(|symbol| {
            let site = self.first_call(function, symbol)?;
            Some((site, self.functions.stack_depth(function, site.address)?.cast_signed()))
        });
        match first {
            Some(first) => Ok(first),
            // Another version may not call it: then the call begins at its entry.
            None => Ok((self.executable.entry_site(self.functions, function)?, 0)),
        }
    }

    /// Where a closure of the function takes the time for a metric.
    fn metric(&self, function: &goexe::Function<'a>) -> Option<(&'a str, goexe::Site)> {
        let closures = format!("{}.func", function.name);
        self.found
            .iter()
            .filter(|closure| closure.name.starts_with(&closures))
            .find_map(|closure| Some((closure.name, self.first_call(closure, METRIC)?)))
    }

    /// The first direct call of a function in another.
    fn first_call(&self, caller: &goexe::Function<'a>, callee: &str) -> Option<goexe::Site> {
        let callee = Callee::Direct(self.function(callee)?.range.start);
        let calls = self.executable.calls(caller).ok()?;
        calls.into_iter().find(|call| call.callee == callee).map(|call| call.site)
    }

    fn add_end(
        &mut self,
        row: &Row,
        function: &goexe::Function<'a>,
        found: Option<&Found>,
    ) -> Result<(), Why> {
        let after = match row.end {
            End::Unused => return Ok(()),
            End::Return => None,
            End::NextEntry(symbol) => match self.function(symbol) {
                Some(next) => Some((next.name, self.executable.entry_site(self.functions, next)?)),
                None => None,
            },
            End::Metric => self.metric(function),
        };
        match after {
            Some((symbol, site)) => {
                let (spec, values) = self.reads(&[], &[], &[])?;
                self.push(row, Role::NextEntry, (site, 0), symbol, spec, values)
            }
            None => {
                let signature = found.map(|found| found.signature.clone()).unwrap_or_default();
                let locations = self.types.result_locations(&signature, true)?;
                let (spec, values) = self.reads(row.at_end, &signature.results, &locations)?;
                let reads = &spec.reads[..spec.reads_len as usize];
                let needed = reads.iter().fold(0, |all, read| all | registers(*read));
                let calls: Vec<_> = self
                    .calls
                    .iter()
                    .filter(|(_, call)| match call.callee {
                        Callee::Direct(address) => address == function.range.start,
                        Callee::Indirect { .. } => found.is_some_and(|found| found.called_by(call.callee)),
                    })
                    .copied()
                    .collect();
                let usable = !calls.is_empty()
                    && calls
                        .iter()
                        .all(|(_, call)| call.return_site.is_some() && call.overwritten & needed == 0);
                if usable {
                    // On x86-64 a call takes its return address off the stack when it returns.
                    let return_address = match self.executable.machine() {
                        Machine::Amd64 => 8,
                        Machine::Arm64 => 0,
                    };
                    for (caller, call) in calls {
                        let address = call.return_site.unwrap_or_default();
                        let site = goexe::Site { address, class: Class::Emulated };
                        self.push(
                            row,
                            Role::ReturnSite,
                            (site, -return_address),
                            caller,
                            spec,
                            values.clone(),
                        )?;
                    }
                } else {
                    for site in self.executable.return_instructions(function)? {
                        self.push(row, Role::Ret, (site, 0), function.name, spec, values.clone())?;
                    }
                }
                Ok(())
            }
        }
    }

    fn push(
        &mut self,
        row: &Row,
        role: Role,
        (site, stack_depth): (goexe::Site, i64),
        symbol: &str,
        mut spec: Site,
        values: Vec<(Value, Slot)>,
    ) -> Result<(), Why> {
        let file_offset = self
            .executable
            .file_offset(site.address)
            .ok_or_else(|| Why(format!("address {:#x} is not in the file", site.address)))?;
        spec.begins = u32::from(role == Role::Entry);
        self.sites.push(PlannedSite {
            function: row.function,
            role,
            address: site.address,
            file_offset,
            class: site.class,
            stack_depth,
            symbol: symbol.to_owned(),
            spec,
            values,
        });
        Ok(())
    }

    fn function(&self, symbol: &str) -> Option<&'a goexe::Function<'a>> {
        // Two functions of one name are an ABI0 wrapper and the body: the body is the larger.
        self.found
            .iter()
            .filter(|function| function.name == symbol)
            .max_by_key(|function| function.range.end - function.range.start)
    }

    fn signature(&self, row: &Row, function: &goexe::Function<'a>) -> Result<Option<Found>, Why> {
        let method = |interface: &Type, name: &str| {
            let methods = self.types.interface_methods(interface)?;
            let slot = methods
                .iter()
                .position(|(method, _)| *method == name)
                .ok_or_else(|| Why(format!("interface `{}` has no method `{name}`", self.name(interface))))?;
            let signature = self.types.signature(&methods[slot].1)?;
            Ok::<_, Why>(Found { signature, called: Some((ITAB_METHODS + 8 * slot as u64, None)) })
        };
        match row.signature {
            Signature::Unused => Ok(None),
            Signature::Framework(name) => method(&self.framework, name).map(Some),
            Signature::InterfaceOf(func, name) => {
                let func = self.types.find_unnamed(func)?;
                let signature = self.types.signature(&func)?;
                let interface = signature
                    .parameters
                    .first()
                    .ok_or_else(|| Why("the function type has no parameter".into()))?;
                method(interface, name).map(Some)
            }
            Signature::SchedulerField(field) => {
                let path = follow(self.types, &self.structs, &self.scheduler, &[field])?;
                let signature = self.types.signature(&path.typ)?;
                Ok(Some(Found { signature, called: Some((0, Some(path.offset))) }))
            }
            Signature::FieldOf(package, name, field, method_name) => {
                let holder = self.types.find(package, name)?;
                let path = follow(self.types, &self.structs, &holder, &[field])?;
                method(&path.typ, method_name).map(Some)
            }
            Signature::Declared(names) => {
                let types = names.iter().map(|name| self.types.by_name(name));
                let parameters = types.collect::<Result<Vec<_>, _>>()?;
                let arguments = self.functions.arguments(function).unwrap_or_default();
                if !self.types.fit(&parameters, true, &arguments)? {
                    let names = names.join(", ");
                    return Err(Why(format!("the arguments of `{}` are not ({names})", function.name)));
                }
                let signature = goexe::Signature { parameters, results: Vec::new() };
                Ok(Some(Found { signature, called: None }))
            }
        }
    }

    fn reads(
        &self,
        wants: &[Want],
        types: &[Type],
        locations: &[Location],
    ) -> Result<(Site, Vec<(Value, Slot)>), Why> {
        let mut site = Site { goid_offset: self.goid_offset, ..Site::default() };
        let mut values = Vec::with_capacity(wants.len());
        let (mut words, mut texts) = (0, 0);
        for (index, want) in wants.iter().enumerate() {
            let (typ, location) = types
                .iter()
                .zip(locations)
                .find(|(typ, _)| want.of.contains(&self.name(typ)))
                .ok_or_else(|| Why(format!("no parameter or result of type `{}`", want.of[0])))?;
            let (mut read, leaf) = self.read(typ, *location, want)?;
            let slot = if leaf == Kind::String {
                texts += 1;
                site.texts = 1;
                Slot::Text(texts - 1)
            } else {
                words += 1;
                Slot::Word(words - 1)
            };
            let (Slot::Word(number) | Slot::Text(number)) = slot;
            read.slot = number as u8;
            values.push((want.value, slot));
            *site.reads.get_mut(index).ok_or_else(|| Why("more reads than a site has".into()))? = read;
        }
        if words > MAX_WORDS || texts > MAX_TEXTS || wants.len() > MAX_READS {
            return Err(Why("more values than a record has".into()));
        }
        site.reads_len = wants.len() as u32;
        Ok((site, values))
    }

    /// One read: from the parameter or result through the fields.
    fn read(&self, typ: &Type, location: Location, want: &Want) -> Result<(Read, Kind), Why> {
        let mut steps: Vec<u64> = Vec::new();
        let base = match location {
            // The program keeps the stack pointer in this place.
            Location::Registers { first, count } if first + count > STACK_POINTER => {
                return Err(Why(format!("`{}` is in a register that is not kept", self.name(typ))));
            }
            // The second word of an interface points to the value.
            Location::Registers { first, .. } if typ.kind == Kind::Interface => first + 1,
            Location::Registers { first, .. } => first,
            Location::Stack { offset } => {
                // At the stack pointer itself is the return address, or a place for one.
                steps.push(8 + offset + if typ.kind == Kind::Interface { 8 } else { 0 });
                STACK_POINTER
            }
            Location::Elsewhere => {
                return Err(Why(format!("`{}` is in no integer register", self.name(typ))));
            }
        };
        let (leaf, last) = if want.path.is_empty() {
            (typ.kind, 0)
        } else {
            let path = self.path(typ, want.path)?;
            // The pointer itself is in the register: the first step goes from there.
            steps.extend(&path.dereferences);
            if path.typ.kind == Kind::String {
                (Kind::String, path.offset)
            } else {
                steps.push(path.offset);
                (path.typ.kind, 0)
            }
        };
        let kind = match leaf {
            Kind::String if want.path.is_empty() => READ_TEXT_IN_REGISTERS,
            Kind::String => READ_TEXT,
            _ => READ_WORD,
        };
        let too_far = || Why(format!("`{}` is more than {MAX_STEPS} pointers away", want.path.join(".")));
        let mut read = Read { base, kind, last: last as u32, steps: steps.len() as u8, ..Read::default() };
        for (place, step) in steps.iter().enumerate() {
            *read.offsets.get_mut(place).ok_or_else(too_far)? =
                u32::try_from(*step).map_err(|_| too_far())?;
        }
        Ok((read, leaf))
    }

    /// A path from a pointer; `*` stands for the first element of a slice.
    fn path(&self, pointer: &Type, path: &[&str]) -> Result<Path<'a>, Why> {
        let target = self.types.element(pointer)?;
        let (fields, first_element) = match path.split_last() {
            Some((&"*", fields)) => (fields, true),
            _ => (path, false),
        };
        let mut way = follow(self.types, &self.structs, &target, fields)?;
        if first_element {
            way.dereferences.push(way.offset);
            way = Path { offset: 0, typ: self.types.element(&way.typ)?, ..way };
        }
        Ok(way)
    }

    fn name(&self, typ: &Type) -> &'a str {
        self.types.string(typ).unwrap_or("?")
    }
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
pub(crate) fn name(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The registers that a read starts from, as the bits of [`Call::overwritten`].
fn registers(read: Read) -> u16 {
    let bit = |register: u8| if register < 16 { 1 << register } else { 0 };
    bit(read.base) | if read.kind == READ_TEXT_IN_REGISTERS { bit(read.base + 1) } else { 0 }
}

/// Why a row of the table cannot be followed.
struct Why(String);

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<goexe::Error> for Why {
    fn from(error: goexe::Error) -> Self {
        Self(error.to_string())
    }
}
