//! Chooses sites and reads for the rows of a program's table, from functions, signatures and layouts of the executable.

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
    mem,
};

use goexe::{Call, Callee, Class, DebugInfo, Executable, Functions, Kind, Location, Machine, Type, Types};
use wire::{FIRST, FIRST_AND_LAST, LAST, READ_WORD, Read, STACK_POINTER};

use super::{
    ANY_ARGUMENTS, Missing, PlannedSite, Reading, Role, Slot, Structs, follow, name,
    reads::{Reads, needed},
    row::{Begin, End, Field, Interface, Row, Signature},
};
use crate::program::{Metric, Program};

/// Size of an itab before the first method: interface, type, hash.
/// <https://github.com/golang/go/blob/go1.26.5/src/internal/abi/iface.go#L14-L19>
const ITAB_METHODS: u64 = 24;
/// Register of the labels' address in a call of a method with labels: after the receiver.
const LABELS_REGISTER: usize = 1;
/// Bytes of a string's header: address, length.
const STRING: u32 = 16;
/// Maximum number of functions whose calls are searched. kube-scheduler 1.36 has 500.
const MAX_CALLERS: usize = 4_000;
/// Maximum size of their code. kube-scheduler 1.36 has 600 KB.
const MAX_CALLERS_CODE: u64 = 16 << 20;

pub(super) struct Builder<'a, P: Program> {
    executable: &'a Executable<'a>,
    functions: &'a Functions<'a>,
    pub(super) types: &'a Types<'a>,
    found: &'a [goexe::Function<'a>],
    /// The calls made by functions in [`Program::CALLERS`], with the caller's name.
    calls: Vec<(&'a str, Call)>,
    pub(super) goid_offset: u32,
    pub(super) sites: Vec<PlannedSite<P>>,
    pub(super) missing: Vec<Missing>,
    pub(super) not_yet: Vec<P::Function>,
    /// The fields on all followed paths.
    pub(super) structs: RefCell<Structs>,
    /// Debug information about the functions. Loaded on demand, because it is read completely.
    debug_info: OnceCell<Option<DebugInfo>>,
}

/// A function's signature, and the shape of an indirect call of it.
struct Found {
    signature: goexe::Signature,
    /// Offset of the function's address in the itab or closure, and the offset that their own address was loaded from.
    /// `None` if only direct calls are recognized.
    called: Option<(u64, Option<u64>)>,
}

impl Found {
    /// Whether this is a call of the function. The offset of the base is known for a field only; then it must match.
    fn called_by(&self, callee: Callee) -> bool {
        matches!((callee, self.called), (Callee::Indirect { offset, base }, Some((wanted, from)))
            if offset == wanted && (from.is_none() || base == from))
    }
}

impl<'a, P: Program> Builder<'a, P> {
    pub(super) fn new(
        executable: &'a Executable<'a>,
        functions: &'a Functions<'a>,
        types: &'a Types<'a>,
        found: &'a [goexe::Function<'a>],
    ) -> Result<Self, goexe::Error> {
        let structs = RefCell::default();
        let goid = follow(types, &structs, &types.find("runtime", "g")?, &["goid"])?;
        let (mut calls, mut code) = (Vec::new(), 0);
        for caller in found.iter().filter(|function| is_caller::<P>(function.name)).take(MAX_CALLERS) {
            code += caller.range.end - caller.range.start;
            if code > MAX_CALLERS_CODE {
                break;
            }
            // A function that does not decode contributes no calls. A row that needs one of them reports it.
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
            goid_offset: u32::try_from(goid.offset)
                .map_err(|_| goexe::Error::NoType("plausible field `goid` of `runtime.g`".into()))?,
            sites: Vec::new(),
            missing: Vec::new(),
            not_yet: Vec::new(),
            structs,
            debug_info: OnceCell::new(),
        })
    }

    /// Adds the sites of a function, by the first row that the executable can follow.
    pub(super) fn add(&mut self, of: P::Function) {
        let rows = P::rows(of);
        let (mut reasons, mut is_followed) = (Vec::new(), false);
        // Instantiations that no row could follow yet, although others were followed, with the reasons.
        let mut left = BTreeMap::new();
        for row in rows {
            let others_are = is_followed;
            if !others_are {
                reasons.extend(mem::take(&mut left).into_values());
            }
            let functions =
                row.symbols.iter().map(|symbol| self.instances(symbol)).find(|all| !all.is_empty());
            for function in functions.unwrap_or_default() {
                let (start, sites) = (function.range.start, self.sites.len());
                if others_are && !left.contains_key(&start) {
                    continue;
                }
                match self.add_row(of, row, function) {
                    Ok(()) => {
                        is_followed = true;
                        left.remove(&start);
                    }
                    Err(Why(why)) => {
                        self.sites.truncate(sites);
                        left.entry(start).or_insert(why);
                    }
                }
            }
            if is_followed && left.is_empty() {
                return;
            }
        }
        reasons.extend(left.into_values());
        let Some(Row { symbols, since, without, .. }) = rows.first() else { return };
        if reasons.is_empty() && since.is_some() {
            self.not_yet.push(of);
            return;
        }
        if reasons.is_empty() {
            let into = symbols.iter().find_map(|symbol| self.inlined_into(symbol));
            let into = into.map(|caller| format!(": it is inlined into `{caller}`")).unwrap_or_default();
            reasons.push(format!("no function `{}`{into}", symbols[0]));
        }
        let (function, why, without) = (name(of), reasons.join("; "), (*without).to_owned());
        self.missing.push(Missing { function, why, without });
    }

    /// The searched function into which this one is inlined.
    fn inlined_into(&self, symbol: &str) -> Option<&'a str> {
        let holds = |caller: &&goexe::Function<'_>| {
            self.functions.inlined(caller).iter().any(|inlined| inlined.name == symbol)
        };
        self.found.iter().find(holds).map(|caller| caller.name)
    }

    fn add_row(
        &mut self,
        of: P::Function,
        row: &Row<P::Value>,
        function: &goexe::Function<'a>,
    ) -> Result<(), Why> {
        if let (End::Metric(label), Some(metric)) = (row.end, P::METRIC)
            && self.add_metric(of, row, function, &metric, label)?
        {
            return Ok(());
        }
        let found = self.signature(row, function)?;
        if let (Begin::InTurn, Some(found)) = (row.begin, &found)
            && self.add_in_turn(of, row, function, found)?
        {
            return Ok(());
        }
        let beginnings = self.beginnings(row, function)?;
        if !beginnings.is_empty() {
            let parameters =
                found.as_ref().map(|found| found.signature.parameters.as_slice()).unwrap_or_default();
            let receiver = function.name.contains(")."); // As in `package.(*Type).method`.
            let locations = self.types.parameter_locations(parameters, receiver)?;
            let reads = self.reads(function.name, row.at_entry, parameters, &locations)?;
            for (symbol, site, depth) in beginnings {
                self.push(of, Role::Entry, (site, depth), symbol, reads.clone())?;
            }
        }
        self.add_end(of, row, function, found.as_ref())
    }

    /// Sites of a call's start: caller, instruction, and stack depth there.
    fn beginnings(
        &self,
        row: &Row<P::Value>,
        function: &goexe::Function<'a>,
    ) -> Result<Vec<(&'a str, goexe::Site, i64)>, Why> {
        let first = match row.begin {
            Begin::Unused => return Ok(Vec::new()),
            Begin::CallsIn(packages) => return self.calls_in(packages, function),
            Begin::Entry | Begin::InTurn => None,
            Begin::FirstCall(symbol) => self.first_call(function, symbol).map(|call| call.site),
            Begin::AfterFirstCall(symbol) => self.first_call(function, symbol).map(|call| {
                let after = |address| goexe::Site { address, class: Class::Emulated };
                call.return_site.map_or(call.site, after)
            }),
        };
        let depth = |site: goexe::Site| Some((site, self.functions.stack_depth(function, site.address)?));
        match first.and_then(depth) {
            Some((site, depth)) => Ok(vec![(function.name, site, depth.cast_signed())]),
            // This version of the program does not call it: the start is the function's entry.
            None => {
                let site = self.executable.entry_site(self.functions, function)?;
                Ok(vec![(function.name, site, 0)])
            }
        }
    }

    /// The sites of all calls of a function from these packages.
    fn calls_in(
        &self,
        packages: &[&str],
        function: &goexe::Function<'a>,
    ) -> Result<Vec<(&'a str, goexe::Site, i64)>, Why> {
        let callee = Callee::Direct(function.range.start);
        let within = |caller: &str| packages.iter().any(|package| is_in(caller, package));
        let calls: Vec<_> = self
            .calls
            .iter()
            .filter(|(caller, call)| call.callee == callee && within(caller))
            .map(|(caller, call)| (*caller, call.site, 0))
            .collect();
        if calls.is_empty() {
            return Err(Why(format!("nothing in `{}` calls `{}`", packages[0], function.name)));
        }
        Ok(calls)
    }

    /// Adds a site that sees both start and end of a call: where the function, or a closure of it, takes the time for a
    /// metric.
    fn add_metric(
        &mut self,
        of: P::Function,
        row: &Row<P::Value>,
        function: &goexe::Function<'a>,
        metric: &Metric<P::Value>,
        label: u32,
    ) -> Result<bool, Why> {
        let Some((place, caller)) = self.metric(function, metric) else { return Ok(false) };
        let site = self.calls[place].1.site;
        let (Some(Ok(found)), Some(depth)) = (
            self.function(metric.taken).map(|taken| self.declared(taken, &["time.Time"])),
            self.functions.stack_depth(caller, site.address),
        ) else {
            return Ok(false);
        };
        let parameters = &found.signature.parameters;
        let locations = self.types.parameter_locations(parameters, false)?;
        let mut reads = self.start_of(parameters, &locations)?;
        // The labels of the preceding call are still in place.
        let labelled = self.function(metric.labelled).map(|function| Callee::Direct(function.range.start));
        let mut before = self.calls[..place].iter().rev().take_while(|(of, _)| *of == caller.name);
        let labelled = before.find(|(_, call)| Some(call.callee) == labelled);
        let labels =
            labelled.and_then(|(_, call)| self.executable.stack_argument(caller, call, LABELS_REGISTER));
        let label = labels.and_then(|labels| {
            let label = u32::try_from(labels).ok()?.checked_add(STRING * label)?;
            Some((label, label.checked_add(STRING / 2)?))
        });
        if label.is_none() && !row.at_end.is_empty() {
            return Ok(false);
        }
        let named =
            label.map(|(name, length)| [(Reading::Result, 2, name), (Reading::ResultLength, 1, length)]);
        let is_closure = caller.name != function.name;
        let returns = self.return_address_at(depth).filter(|_| is_closure);
        let returns = returns.map(|offset| (Reading::ReturnAddress, 1, offset));
        for (reading, steps, offset) in named.into_iter().flatten().chain(returns) {
            let slot = reads.values.len();
            let (base, slot_number) = (STACK_POINTER, slot as u8);
            let mut read = Read { base, kind: READ_WORD, steps, slot: slot_number, ..Read::default() };
            read.offsets[0] = offset;
            reads.site.reads[slot] = read;
            reads.site.reads_len += 1;
            reads.values.push((reading, Slot::Word(slot)));
        }
        self.push(of, Role::Metric, (site, depth.cast_signed()), caller.name, reads)?;
        if let Some(planned) = self.sites.last_mut().filter(|_| is_closure) {
            planned.called_by = Some(function.range.clone());
        }
        Ok(true)
    }

    /// Offset of a function's return address from the stack pointer, when the function uses `depth` bytes of stack.
    fn return_address_at(&self, depth: u64) -> Option<u32> {
        match self.executable.machine() {
            Machine::Amd64 => u32::try_from(depth).ok(),
            Machine::Arm64 => Some(0),
        }
    }

    /// Index of the call by which a function, or a closure of it, takes the time for a metric, and the caller.
    fn metric(
        &self,
        function: &goexe::Function<'a>,
        metric: &Metric<P::Value>,
    ) -> Option<(usize, &'a goexe::Function<'a>)> {
        let taken = Callee::Direct(self.function(metric.taken)?.range.start);
        let closures = format!("{}.func", function.name);
        let place = self.calls.iter().position(|(caller, call)| {
            call.callee == taken && (*caller == function.name || caller.starts_with(&closures))
        })?;
        Some((place, self.function(self.calls[place].0)?))
    }

    /// The first direct call of `callee` in `caller`.
    fn first_call(&self, caller: &goexe::Function<'a>, callee: &str) -> Option<Call> {
        let callee = Callee::Direct(self.function(callee)?.range.start);
        let calls = self.executable.calls(caller).ok()?;
        calls.into_iter().find(|call| call.callee == callee)
    }

    fn add_end(
        &mut self,
        of: P::Function,
        row: &Row<P::Value>,
        function: &goexe::Function<'a>,
        found: Option<&Found>,
    ) -> Result<(), Why> {
        let after = match row.end {
            End::Unused => return Ok(()),
            End::Return | End::Metric(_) => None,
            End::AtMetric => {
                let found = P::METRIC.and_then(|metric| self.metric(function, &metric));
                found.map(|(place, caller)| (caller.name, self.calls[place].1.site, Vec::new()))
            }
            End::NextEntry(symbol, signatures) => match self.function(symbol) {
                Some(next) => {
                    let site = self.executable.entry_site(self.functions, next)?;
                    let found = signatures.iter().find_map(|names| self.declared(next, names).ok());
                    let parameters = found.map(|found| found.signature.parameters).unwrap_or_default();
                    Some((next.name, site, parameters))
                }
                None => None,
            },
        };
        match after {
            Some((symbol, site, parameters)) => {
                let locations = self.types.parameter_locations(&parameters, true)?;
                let wants = if parameters.is_empty() { &[] } else { row.at_end };
                let reads = self.reads(function.name, wants, &parameters, &locations)?;
                self.push(of, Role::NextEntry, (site, 0), symbol, reads)
            }
            None => {
                let signature = found.map(|found| found.signature.clone()).unwrap_or_default();
                let locations = self.types.result_locations(&signature, true)?;
                let reads = self.reads(function.name, row.at_end, &signature.results, &locations)?;
                if let Some(sites) = self.return_sites(function, found, needed(&reads.site), 0) {
                    for (caller, site, depth) in sites {
                        self.push(of, Role::ReturnSite, (site, depth), caller, reads.clone())?;
                    }
                } else {
                    for site in self.executable.return_instructions(function)? {
                        self.push(of, Role::Ret, (site, 0), function.name, reads.clone())?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Adds sites that see both start and end of a call of an implementation. Needs the arguments that the callee has
    /// spilled into its caller's frame; returns `false` if they are not readable there.
    fn add_in_turn(
        &mut self,
        of: P::Function,
        row: &Row<P::Value>,
        function: &goexe::Function<'a>,
        found: &Found,
    ) -> Result<bool, Why> {
        /// Index of the implementation's part: after the receiver and the context, which has two words.
        const IMPLEMENTATION: usize = 3;
        let returns = self.executable.return_instructions(function)?;
        let kept =
            |part| returns.iter().all(|site| self.functions.argument_is_kept(function, part, site.address));
        let arguments = self.functions.arguments(function).unwrap_or_default();
        let Some(argument) =
            arguments.get(IMPLEMENTATION).filter(|_| kept(IMPLEMENTATION) && kept(IMPLEMENTATION + 1))
        else {
            return Ok(false);
        };
        // The offset is relative to the callee's entry; after the return, the stack pointer has moved past the return
        // address.
        let offset = u64::from(argument.offset).saturating_sub(self.return_address());
        let Found { signature, .. } = found;
        let types: Vec<_> = signature.parameters[..2].iter().chain(&signature.results).copied().collect();
        let results = self.types.result_locations(signature, true)?;
        let locations: Vec<_> =
            [Location::Elsewhere, Location::Stack { offset }].into_iter().chain(results).collect();
        let wants = [row.at_end, row.at_entry].concat();
        let reads = self.reads(function.name, &wants, &types, &locations)?;
        // An interface has two words.
        let end = u64::from(argument.offset) + 16;
        let Some(sites) = self.return_sites(function, Some(found), needed(&reads.site), end) else {
            return Ok(false);
        };
        for (caller, site, depth) in sites {
            self.push(of, Role::InTurn, (site, depth), caller, reads.clone())?;
        }
        Ok(true)
    }

    /// The sites after all calls of a function, with their stack depth. `None` if, at one of them, one of the `needed`
    /// registers or the first `kept` bytes of the argument area may be overwritten.
    fn return_sites(
        &self,
        function: &goexe::Function<'a>,
        found: Option<&Found>,
        needed: u16,
        kept: u64,
    ) -> Option<Vec<(&'a str, goexe::Site, i64)>> {
        let depth = -self.return_address().cast_signed();
        let sites: Vec<_> = self
            .calls
            .iter()
            .filter(|(caller, call)| match call.callee {
                Callee::Direct(address) => address == function.range.start,
                // In other packages, the same itab slot may belong to another interface.
                Callee::Indirect { .. } => {
                    is_in(caller, P::CALLS_INDIRECTLY)
                        && found.is_some_and(|found| found.called_by(call.callee))
                }
            })
            .map(|(caller, call)| {
                let address = call.return_site?;
                let site = goexe::Site { address, class: Class::Emulated };
                (call.overwritten & needed == 0 && call.stored >= kept).then_some((*caller, site, depth))
            })
            .collect::<Option<_>>()?;
        (!sites.is_empty()).then_some(sites)
    }

    /// Size of the return address that a return pops: 8 on x86-64, 0 on AArch64.
    fn return_address(&self) -> u64 {
        match self.executable.machine() {
            Machine::Amd64 => 8,
            Machine::Arm64 => 0,
        }
    }

    fn push(
        &mut self,
        function: P::Function,
        role: Role,
        (site, stack_depth): (goexe::Site, i64),
        symbol: &str,
        reads: Reads<P::Value>,
    ) -> Result<(), Why> {
        let Reads { site: mut spec, values, list } = reads;
        let file_offset = self
            .executable
            .file_offset(site.address)
            .ok_or_else(|| Why(format!("address {:#x} is not in the file", site.address)))?;
        spec.time = match role {
            Role::Entry => LAST,
            Role::InTurn => FIRST_AND_LAST,
            Role::ReturnSite | Role::NextEntry | Role::Ret | Role::Metric => FIRST,
        };
        self.sites.push(PlannedSite {
            function,
            role,
            address: site.address,
            file_offset,
            class: site.class,
            stack_depth,
            symbol: symbol.to_owned(),
            called_by: None,
            spec,
            values,
            list,
        });
        Ok(())
    }

    /// The functions that a row's symbol matches.
    fn instances(&self, symbol: &str) -> Vec<&'a goexe::Function<'a>> {
        if symbol.contains(ANY_ARGUMENTS) {
            self.found.iter().filter(|function| stands_for(symbol, function.name)).collect()
        } else {
            self.function(symbol).into_iter().collect()
        }
    }

    fn function(&self, symbol: &str) -> Option<&'a goexe::Function<'a>> {
        // Two functions of one name are an ABI0 wrapper and the body. The body is larger.
        self.found
            .iter()
            .filter(|function| function.name == symbol)
            .max_by_key(|function| function.range.end - function.range.start)
    }

    /// An interface type, and how its methods are called: `None` if only direct calls are recognized, else the offset
    /// that the itab was loaded from, if known.
    pub(super) fn interface(&self, interface: Interface) -> Result<(Type, Option<Option<u64>>), Why> {
        match interface {
            Interface::Named(packages, name) => {
                let found = packages.iter().find_map(|package| self.types.find(package, name).ok());
                Ok((found.ok_or_else(|| Why(format!("no interface `{name}`")))?, None))
            }
            Interface::In(field) => {
                let path = self.field(field)?;
                // Distinguishes it from other interfaces with a method in the same slot.
                Ok((path.typ, Some(Some(path.offset))))
            }
            Interface::ElementOf(field) => {
                let holder = self.field(field)?.typ;
                // For a list element, the offset of the itab is unknown.
                let called = if holder.kind == Kind::Map { Some(None) } else { None };
                Ok((self.types.element(&holder)?, called))
            }
            Interface::FirstParameterOf(func) => {
                let func = self.types.find_unnamed(func)?;
                let signature = self.types.signature(&func)?;
                let first = signature.parameters.first();
                Ok((*first.ok_or_else(|| Why("the function type has no parameter".into()))?, Some(None)))
            }
        }
    }

    fn field(&self, Field(package, name, field): Field) -> Result<goexe::Path<'a>, Why> {
        let holder = self.types.find(package, name)?;
        Ok(follow(self.types, &self.structs, &holder, &[field])?)
    }

    /// The signature of an interface's method, and the offset of its address in an itab.
    fn method(&self, interface: &Type, name: &str) -> Result<(goexe::Signature, u64), Why> {
        let methods = self.types.interface_methods(interface)?;
        let slot = methods
            .iter()
            .position(|(method, _)| *method == name)
            .ok_or_else(|| Why(format!("interface `{}` has no method `{name}`", self.name(interface))))?;
        Ok((self.types.signature(&methods[slot].1)?, ITAB_METHODS + 8 * slot as u64))
    }

    fn signature(&self, row: &Row<P::Value>, function: &goexe::Function<'a>) -> Result<Option<Found>, Why> {
        let found = match row.signature {
            Signature::Unused => return Ok(None),
            Signature::Method(interface, name) => {
                let (interface, called) = self.interface(interface)?;
                let (signature, slot) = self.method(&interface, name)?;
                Found { signature, called: called.map(|base| (slot, base)) }
            }
            Signature::ResultsOf(interface, name) => {
                let (signature, _) = self.method(&self.interface(interface)?.0, name)?;
                Found { signature, called: None }
            }
            Signature::Called(field) => {
                let path = self.field(field)?;
                Found { signature: self.types.signature(&path.typ)?, called: Some((0, Some(path.offset))) }
            }
            Signature::Closure(field) => {
                Found { signature: self.types.signature(&self.field(field)?.typ)?, called: None }
            }
            Signature::Declared(names) => {
                self.declared(function, names).or_else(|why| self.by_debug_info(function).ok_or(why))?
            }
            Signature::TypeArguments => {
                let names = split_arguments(type_arguments(function.name).unwrap_or_default());
                let types = names.map(|name| self.types.by_name(name));
                let parameters = types.collect::<Result<_, _>>()?;
                // The compiler emits no argument info for a wrapper, so there is nothing to check against.
                Found { signature: goexe::Signature { parameters, results: Vec::new() }, called: None }
            }
            Signature::CallerOf(list, methods) => {
                let implementation = self.types.element(&self.field(list)?.typ)?;
                let mut interface = implementation;
                let mut signature = goexe::Signature::default();
                for name in methods {
                    (signature, _) = self.method(&interface, name)?;
                    // Only needed if another method follows.
                    interface = signature.results.first().copied().unwrap_or(implementation);
                }
                let Some((context, rest)) = signature.parameters.split_first() else {
                    return Err(Why(format!("`{}` has no parameter", methods.join("."))));
                };
                let parameters = [*context, implementation].into_iter().chain(rest.iter().copied()).collect();
                self.checked(function, goexe::Signature { parameters, ..signature }, true)?
            }
        };
        Ok(Some(found))
    }

    /// A signature of these parameters, if it agrees with the function's argument info.
    fn declared(&self, function: &goexe::Function<'a>, names: &[&str]) -> Result<Found, Why> {
        let types = names.iter().map(|name| match name.strip_prefix("[]") {
            Some(_) => self.types.find_unnamed(name),
            None => self.types.by_name(name),
        });
        let parameters = types.collect::<Result<Vec<_>, _>>()?;
        self.checked(function, goexe::Signature { parameters, results: Vec::new() }, false)
    }

    /// The signature in the debug information, if it agrees with the function's argument info: for versions whose
    /// parameters are not declared in the table.
    fn by_debug_info(&self, function: &goexe::Function<'a>) -> Option<Found> {
        if self.executable.stripped() {
            return None;
        }
        let info = self.debug_info.get_or_init(|| {
            let names = self.found.iter().map(|function| function.name).collect();
            // Unreadable debug information counts as absent.
            self.executable.debug_info(&BTreeSet::new(), &names).ok().flatten()
        });
        let parameters = &info.as_ref()?.functions.get(function.name)?.parameters;
        let receiver = usize::from(function.name.contains(")."));
        let types = parameters.get(receiver..)?.iter().map(|name| {
            let name = name.as_deref()?;
            self.types.by_name(name).or_else(|_| self.types.find_unnamed(name)).ok()
        });
        let parameters = types.collect::<Option<Vec<_>>>()?;
        self.checked(function, goexe::Signature { parameters, results: Vec::new() }, false).ok()
    }

    /// Returns the signature if it agrees with the function's argument info.
    fn checked(
        &self,
        function: &goexe::Function<'a>,
        signature: goexe::Signature,
        results_are_known: bool,
    ) -> Result<Found, Why> {
        let arguments = self.functions.arguments(function).unwrap_or_default();
        let receiver = function.name.contains(").");
        let results = results_are_known.then_some(signature.results.as_slice());
        if !self.types.fit(&signature.parameters, results, receiver, &arguments)? {
            let names: Vec<_> = signature.parameters.iter().map(|typ| self.name(typ)).collect();
            let (name, names) = (function.name, names.join(", "));
            return Err(Why(format!("the arguments of `{name}` are not ({names})")));
        }
        Ok(Found { signature, called: None })
    }

    pub(super) fn name(&self, typ: &Type) -> &'a str {
        self.types.string(typ).unwrap_or("?")
    }
}

/// Whether a row's symbol with `[...]` matches a function. Instantiations by GC shape do not match.
pub(super) fn stands_for(symbol: &str, function: &str) -> bool {
    let arguments = || {
        let (before, behind) = symbol.split_once(ANY_ARGUMENTS)?;
        function.strip_prefix(before)?.strip_prefix('[')?.strip_suffix(behind)?.strip_suffix(']')
    };
    arguments().is_some_and(|arguments| !arguments.contains("go.shape."))
}

/// The type arguments in a function's name, delimited as in tracebacks.
/// <https://github.com/golang/go/blob/go1.26.5/src/runtime/traceback.go> (`funcNamePiecesForPrint`)
pub(super) fn type_arguments(function: &str) -> Option<&str> {
    function.get(function.find('[')? + 1..function.rfind(']')?)
}

/// Splits type arguments at commas, except those within brackets or braces.
fn split_arguments(arguments: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    arguments.split(move |letter| {
        depth += match letter {
            '[' | '{' | '(' => 1,
            ']' | '}' | ')' => -1,
            _ => 0,
        };
        letter == ',' && depth == 0
    })
}

/// Whether a function is declared in exactly this package.
fn is_in(function: &str, package: &str) -> bool {
    function.strip_prefix(package).is_some_and(|rest| rest.starts_with('.'))
}

/// Whether the calls of a function are searched.
pub(super) fn is_caller<P: Program>(function: &str) -> bool {
    P::CALLERS.iter().any(|callers| is_in(function, callers))
}

/// Why a row of the table cannot be followed.
pub(super) struct Why(pub(super) String);

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
