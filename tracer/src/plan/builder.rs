//! Follows the rows of the table: sites and reads out of functions, signatures and layouts.

use std::cell::RefCell;

use goexe::{Call, Callee, Class, Executable, Functions, Kind, Location, Machine, Path, Type, Types};
use tracer_common::{
    LAYOUT_LEN, LONG_TEXT, MAX_GROUP, MAX_NODES_PER_CHUNK, MAX_READS, MAX_STEPS, MAX_TEXTS, MAX_WORDS,
    NO_TEXTS, READ_TEXT, READ_TEXT_IN_REGISTERS, READ_WORD, Read, SCORES, SCORES_CHUNK, STACK_POINTER,
    STATUSES, ScoresLayout, Site, StatusesLayout, TEXTS, TEXTS_OF_FAILURES,
};

use super::{
    Missing, PlannedSite, Role, Slot, Structs, follow,
    table::{
        Begin, End, FRAMEWORK, Function, METRIC, QUEUES, RUNTIME, Row, SCHEDULER, SeenAs, Signature, Value,
        Want,
    },
};

/// An itab begins with the interface, the type, the hash: 24 bytes before the first method.
/// <https://github.com/golang/go/blob/go1.26.5/src/internal/abi/iface.go#L14-L19>
const ITAB_METHODS: u64 = 24;
const ITAB_TYPE: u32 = 8;
/// Functions whose calls are looked at: 500 in 1.36.
const MAX_CALLERS: usize = 4_000;
/// Bytes of their code, together: 600 KB in 1.36.
const MAX_CALLERS_CODE: u64 = 16 << 20;

pub(super) struct Builder<'a> {
    executable: &'a Executable<'a>,
    functions: &'a Functions<'a>,
    types: &'a Types<'a>,
    found: &'a [goexe::Function<'a>],
    /// The calls of functions in [`CALLERS`], with who makes them.
    calls: Vec<(&'a str, Call)>,
    pub(super) scheduler: Type,
    pub(super) framework: Type,
    goid_offset: u32,
    pub(super) sites: Vec<PlannedSite>,
    pub(super) missing: Vec<Missing>,
    pub(super) not_yet: Vec<Function>,
    /// Filled as paths are followed.
    pub(super) structs: RefCell<Structs>,
}

/// A function type, and how a call through the interface or field that it came from looks in machine code.
struct Found {
    signature: goexe::Signature,
    /// Offset of the function's address, and of where the base of that came from; `None` where only direct calls are.
    called: Option<(u64, Option<u64>)>,
}

impl Found {
    /// Where an itab was loaded from is known of a field alone, where a closure was always.
    fn called_by(&self, callee: Callee) -> bool {
        matches!((callee, self.called), (Callee::Indirect { offset, base }, Some((wanted, from)))
            if offset == wanted && (from.is_none() || base == from))
    }
}

impl<'a> Builder<'a> {
    pub(super) fn new(
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
        let (mut calls, mut code) = (Vec::new(), 0);
        for caller in found.iter().filter(|function| is_caller(function.name)).take(MAX_CALLERS) {
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
    pub(super) fn add_first(&mut self, rows: &[Row]) {
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
        let beginnings = self.beginnings(row, function)?;
        if !beginnings.is_empty() {
            let parameters =
                found.as_ref().map(|found| found.signature.parameters.as_slice()).unwrap_or_default();
            let receiver = function.name.contains(")."); // As in `package.(*Type).method`.
            let locations = self.types.parameter_locations(parameters, receiver)?;
            let (spec, values) = self.reads(row.at_entry, parameters, &locations)?;
            for (symbol, site, depth) in beginnings {
                self.push(row, Role::Entry, (site, depth), symbol, spec, values.clone())?;
            }
        }
        self.add_end(row, function, found.as_ref())
    }

    /// Where a call begins: in which function, at which instruction, and how deep the stack is there.
    fn beginnings(
        &self,
        row: &Row,
        function: &goexe::Function<'a>,
    ) -> Result<Vec<(&'a str, goexe::Site, i64)>, Why> {
        let first = match row.begin {
            Begin::Unused => return Ok(Vec::new()),
            Begin::CallsIn(packages) => return self.calls_in(packages, function),
            Begin::Entry => None,
            Begin::FirstCall(symbol) => self.first_call(function, symbol).and_then(|site| {
                Some((function.name, site, self.functions.stack_depth(function, site.address)?.cast_signed()))
            }),
        };
        match first {
            Some(first) => Ok(vec![first]),
            // Another version may not call it: then the call begins at its entry.
            None => {
                let site = self.executable.entry_site(self.functions, function)?;
                Ok(vec![(function.name, site, 0)])
            }
        }
    }

    /// The calls of a function in these packages.
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
            End::NextEntry(symbol, signatures) => match self.function(symbol) {
                Some(next) => {
                    let site = self.executable.entry_site(self.functions, next)?;
                    let found = signatures.iter().find_map(|names| self.declared(next, names).ok());
                    let parameters = found.map(|found| found.signature.parameters).unwrap_or_default();
                    Some((next.name, site, parameters))
                }
                None => None,
            },
            End::Metric => self.metric(function).map(|(symbol, site)| (symbol, site, Vec::new())),
        };
        match after {
            Some((symbol, site, parameters)) => {
                let locations = self.types.parameter_locations(&parameters, true)?;
                let wants = if parameters.is_empty() { &[] } else { row.at_end };
                let (spec, values) = self.reads(wants, &parameters, &locations)?;
                self.push(row, Role::NextEntry, (site, 0), symbol, spec, values)
            }
            None => {
                let signature = found.map(|found| found.signature.clone()).unwrap_or_default();
                let locations = self.types.result_locations(&signature, true)?;
                let (spec, values) = self.reads(row.at_end, &signature.results, &locations)?;
                let needed = needed(&spec);
                let calls: Vec<_> = self
                    .calls
                    .iter()
                    .filter(|(caller, call)| match call.callee {
                        Callee::Direct(address) => address == function.range.start,
                        // Elsewhere the same place in an itab is another interface's.
                        Callee::Indirect { .. } => {
                            is_in(caller, SCHEDULER)
                                && found.is_some_and(|found| found.called_by(call.callee))
                        }
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
                let Found { signature, called } = method(&path.typ, method_name)?;
                // The itab comes from the field: another interface may have a method at the same place.
                let called = called.map(|(slot, _)| (slot, Some(path.offset)));
                Ok(Some(Found { signature, called }))
            }
            Signature::Declared(names) => self.declared(function, names).map(Some),
            Signature::PluginMethod(list, methods) => {
                let holder = self.types.find(RUNTIME, "frameworkImpl")?;
                let list = follow(self.types, &self.structs, &holder, &[list])?;
                let plugin = self.types.element(&list.typ)?;
                let mut interface = plugin;
                let mut signature = goexe::Signature::default();
                for name in methods {
                    signature = method(&interface, name)?.signature;
                    // It matters only where another method follows.
                    interface = signature.results.first().copied().unwrap_or(plugin);
                }
                let Some((context, rest)) = signature.parameters.split_first() else {
                    return Err(Why(format!("`{}` takes nothing", methods.join("."))));
                };
                let parameters = [*context, plugin].into_iter().chain(rest.iter().copied()).collect();
                self.checked(function, goexe::Signature { parameters, ..signature }).map(Some)
            }
        }
    }

    /// The signature with these parameters, if the function's arguments agree with it.
    fn declared(&self, function: &goexe::Function<'a>, names: &[&str]) -> Result<Found, Why> {
        let types = names.iter().map(|name| match name.strip_prefix("[]") {
            Some(_) => self.types.find_unnamed(name),
            None => self.types.by_name(name),
        });
        let parameters = types.collect::<Result<Vec<_>, _>>()?;
        self.checked(function, goexe::Signature { parameters, results: Vec::new() })
    }

    /// A signature that is not the function's own, if the function's arguments agree with it.
    fn checked(&self, function: &goexe::Function<'a>, signature: goexe::Signature) -> Result<Found, Why> {
        let arguments = self.functions.arguments(function).unwrap_or_default();
        let receiver = function.name.contains(").");
        if !self.types.fit(&signature, receiver, &arguments)? {
            let names: Vec<_> = signature.parameters.iter().map(|typ| self.name(typ)).collect();
            let (name, names) = (function.name, names.join(", "));
            return Err(Why(format!("the arguments of `{name}` are not ({names})")));
        }
        Ok(Found { signature, called: None })
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
        let mut list = None;
        for want in wants {
            let wanted = |(place, (typ, _)): &(usize, (&Type, &Location))| match want.seen_as {
                // Behind the context.
                SeenAs::Plugin => *place == 1,
                _ => want.of.contains(&self.name(typ)),
            };
            let (_, (typ, location)) = types
                .iter()
                .zip(locations)
                .enumerate()
                .find(wanted)
                .ok_or_else(|| Why(format!("no parameter or result of type `{}`", want.of[0])))?;
            let (mut read, leaf) = match want.seen_as {
                SeenAs::Scores => {
                    list = Some((SCORES, self.scores(typ, *location)?));
                    continue;
                }
                SeenAs::Statuses => {
                    list = Some((STATUSES, self.statuses(typ, *location)?));
                    continue;
                }
                SeenAs::Plugin => self.plugin_type(typ, *location)?,
                _ => self.read(typ, *location, want)?,
            };
            let slot = if leaf == Kind::String {
                texts += 1;
                Slot::Text(texts - 1)
            } else {
                words += 1;
                Slot::Word(words - 1)
            };
            let (Slot::Word(number) | Slot::Text(number)) = slot;
            read.slot = number as u8;
            let read_number = values.len();
            values.push((want.value, slot));
            *site.reads.get_mut(read_number).ok_or_else(|| Why("more reads than a site has".into()))? = read;
        }
        if words > MAX_WORDS || texts > MAX_TEXTS || wants.len() > MAX_READS {
            return Err(Why("more values than a record has".into()));
        }
        site.reads_len = values.len() as u32;
        site.texts = match values[..] {
            [(Value::Message, _)] => LONG_TEXT,
            [(Value::StatusCode, Slot::Word(0)), ..] if texts > 0 => TEXTS_OF_FAILURES,
            _ if texts > 0 => TEXTS,
            _ => NO_TEXTS,
        };
        if let Some((kind, layout)) = list {
            (site.texts, site.layout) = (kind, layout);
        }
        Ok((site, values))
    }

    /// Where the scores of all Nodes are.
    fn scores(&self, typ: &Type, location: Location) -> Result<[u32; LAYOUT_LEN], Why> {
        let Location::Registers { first, .. } = location else {
            return Err(Why(format!("`{}` is in no register", self.name(typ))));
        };
        let node = self.types.element(typ)?;
        let offset = |field: &str| follow(self.types, &self.structs, &node, &[field]);
        let plugin = self.types.element(&offset("Scores")?.typ)?;
        let (name, score) = (
            follow(self.types, &self.structs, &plugin, &["Name"])?.offset,
            follow(self.types, &self.structs, &plugin, &["Score"])?.offset,
        );
        if (plugin.size, name, score) != (24, 0, 16) {
            return Err(Why(format!("`{}` is another struct than it was", self.name(&plugin))));
        }
        let stride = u32::try_from(node.size).unwrap_or_default();
        let per_chunk = (SCORES_CHUNK as u32).checked_div(stride).unwrap_or_default();
        if per_chunk == 0 || per_chunk as usize > MAX_NODES_PER_CHUNK {
            return Err(Why(format!("`{}` has {stride} bytes", self.name(&node))));
        }
        Ok(ScoresLayout {
            base: first.into(),
            stride,
            total: offset("TotalScore")?.offset as u32,
            name: offset("Name")?.offset as u32,
            scores: offset("Scores")?.offset as u32,
            per_chunk,
        }
        .into())
    }

    /// Where the statuses of Nodes are.
    fn statuses(&self, typ: &Type, location: Location) -> Result<[u32; LAYOUT_LEN], Why> {
        let Location::Registers { first, .. } = location else {
            return Err(Why(format!("`{}` is in no register", self.name(typ))));
        };
        let within_struct = typ.kind == Kind::Interface;
        let map = if within_struct {
            let holder = self.types.find(FRAMEWORK, "NodeToStatus")?;
            let map = follow(self.types, &self.structs, &holder, &["nodeToStatus"])?;
            let absent = follow(self.types, &self.structs, &holder, &["absentNodesStatus"])?;
            if (map.offset, absent.offset) != (0, 8) {
                return Err(Why("`NodeToStatus` is another struct than it was".into()));
            }
            map.typ
        } else {
            *typ
        };
        let group = self.types.map_group(&map)?;
        let field = |name: &str| self.types.path(&group, &[name]);
        let (swiss, values, stride) = match field("slots") {
            Ok(slots) => {
                let slot = self.types.element(&slots.typ)?;
                (true, slots.offset + self.types.path(&slot, &["elem"])?.offset, slot.size)
            }
            Err(_) => {
                let elements = field("elems")?;
                (false, elements.offset, self.types.element(&elements.typ)?.size)
            }
        };
        if group.size > MAX_GROUP as u64 {
            return Err(Why(format!("a group of `{}` has {} bytes", self.name(&map), group.size)));
        }
        let status = self.types.element(&self.types.element(&map)?)?;
        let offset = |field: &str| follow(self.types, &self.structs, &status, &[field]);
        Ok(StatusesLayout {
            base: u32::from(first) + u32::from(within_struct),
            within_struct: within_struct.into(),
            swiss: swiss.into(),
            group: group.size as u32,
            values: values as u32,
            stride: stride as u32,
            code: offset("code")?.offset as u32,
            plugin: offset("plugin")?.offset as u32,
        }
        .into())
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
            Location::Registers { first, .. } if typ.kind == Kind::Struct => {
                return self.register_of(typ, first, want);
            }
            Location::Registers { first, .. } if typ.kind == Kind::Slice || want.path == ["#"] => {
                return self.element_or_length(typ, first, want);
            }
            Location::Registers { first, .. } => first,
            Location::Stack { offset } if typ.kind == Kind::Struct => {
                let path = follow(self.types, &self.structs, typ, want.path)?;
                // It is there itself.
                let mut read = Read { base: STACK_POINTER, kind: READ_WORD, steps: 1, ..Read::default() };
                let offset = 8 + offset + path.offset;
                read.offsets[0] = u32::try_from(offset).map_err(|_| Why(format!("{offset} bytes away")))?;
                return Ok((read, path.typ.kind));
            }
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
            let path = self.path(typ, want)?;
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

    /// The type of a plugin: from its itab, or from that of the plugin which a wrapper holds as its first field
    /// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/framework/runtime/instrumented_plugins.go>).
    fn plugin_type(&self, typ: &Type, location: Location) -> Result<(Read, Kind), Why> {
        let Location::Registers { first, .. } = location else {
            return Err(Why(format!("`{}` is in no register", self.name(typ))));
        };
        let name = self.name(typ).rsplit('.').next().unwrap_or_default();
        let wrapped = self.types.find(RUNTIME, &format!("instrumented{name}")).is_ok();
        let mut read = Read { base: first, kind: READ_WORD, ..Read::default() };
        let steps: &[u32] = if wrapped { &[0, ITAB_TYPE] } else { &[ITAB_TYPE] };
        read.base += u8::from(wrapped);
        read.steps = steps.len() as u8;
        read.offsets[..steps.len()].copy_from_slice(steps);
        Ok((read, Kind::Integer))
    }

    /// A field of a struct whose words are in registers.
    fn register_of(&self, typ: &Type, first: u8, want: &Want) -> Result<(Read, Kind), Why> {
        let path = follow(self.types, &self.structs, typ, want.path)?;
        let fields = self.types.fields(typ)?;
        let whole_words = fields.iter().all(|field| field.offset % 8 == 0 && field.typ.kind != Kind::Float);
        if !whole_words || !path.dereferences.is_empty() {
            return Err(Why(format!("`{}` is not made of words", self.name(typ))));
        }
        let base = first + (path.offset / 8) as u8;
        Ok((Read { base, kind: READ_WORD, ..Read::default() }, path.typ.kind))
    }

    /// An element of a slice, or the length of a slice or string, that is in registers.
    fn element_or_length(&self, typ: &Type, first: u8, want: &Want) -> Result<(Read, Kind), Why> {
        if want.path == ["#"] && matches!(typ.kind, Kind::Slice | Kind::String) {
            return Ok((Read { base: first + 1, kind: READ_WORD, ..Read::default() }, Kind::Integer));
        }
        let element = self.types.element(typ)?;
        match want.path {
            [one] if element.kind == Kind::String => {
                let last = (index(one)? * element.size) as u32;
                Ok((Read { base: first, kind: READ_TEXT, last, ..Read::default() }, Kind::String))
            }
            _ => Err(Why(format!("nothing to read in a `{}`", self.name(typ)))),
        }
    }

    /// A path from a pointer.
    fn path(&self, pointer: &Type, want: &Want) -> Result<Path<'a>, Why> {
        let target = match want.seen_as {
            SeenAs::PointerTo(package, name) => self.types.find(package, name)?,
            _ => self.types.element(pointer)?,
        };
        let mut way = Path { dereferences: Vec::new(), offset: 0, typ: target, steps: Vec::new() };
        for part in want.path.chunk_by(|one, next| !is_special(one) && !is_special(next)) {
            if !is_special(part[0]) {
                let mut next = follow(self.types, &self.structs, &way.typ, part)?;
                if next.dereferences.is_empty() {
                    next.offset += way.offset;
                } else {
                    next.dereferences[0] += way.offset;
                }
                next.dereferences.splice(0..0, way.dereferences);
                way = next;
            } else if part[0] != "#" {
                way.dereferences.push(way.offset);
                let element = self.types.element(&way.typ)?;
                way = Path { offset: index(part[0])? * element.size, typ: element, ..way };
            } else if way.typ.kind == Kind::Map {
                // Both kinds of map that Go has had begin with the number of entries.
                way.dereferences.push(way.offset);
                way = Path { offset: 0, typ: self.types.by_name("int")?, ..way };
            } else {
                way = Path { offset: way.offset + 8, typ: self.types.by_name("int")?, ..way };
            }
        }
        Ok(way)
    }

    fn name(&self, typ: &Type) -> &'a str {
        self.types.string(typ).unwrap_or("?")
    }
}

/// The registers that a read starts from, as the bits of [`Call::overwritten`].
fn registers(read: Read) -> u16 {
    let bit = |register: u8| if register < 16 { 1 << register } else { 0 };
    bit(read.base) | if read.kind == READ_TEXT_IN_REGISTERS { bit(read.base + 1) } else { 0 }
}

/// The registers that a site's reads start from.
fn needed(site: &Site) -> u16 {
    let reads = &site.reads[..site.reads_len as usize];
    let list = if site.texts == SCORES { 0b11 << site.layout[0] } else { 0 };
    reads.iter().fold(list, |all, read| all | registers(*read))
}

/// Whether a function belongs to a package, and not to one below it.
fn is_in(function: &str, package: &str) -> bool {
    function.strip_prefix(package).is_some_and(|rest| rest.starts_with('.'))
}

/// Whether calls that a function makes are looked at.
pub(super) fn is_caller(function: &str) -> bool {
    is_in(function, SCHEDULER)
        || QUEUES.iter().any(|queue| is_in(function, queue))
        || function.strip_prefix(RUNTIME).is_some_and(|rest| rest.starts_with(".(*frameworkImpl)"))
}

/// Whether a part of a path names no field.
fn is_special(part: &str) -> bool {
    part.starts_with(['*', '#'])
}

/// Which element a part of a path stands for.
fn index(part: &str) -> Result<u64, Why> {
    match part {
        "*" => Ok(0),
        _ => part.trim_start_matches('*').parse().map_err(|_| Why(format!("`{part}` is no element"))),
    }
}

/// Why a row of the table cannot be followed.
pub(super) struct Why(String);

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
