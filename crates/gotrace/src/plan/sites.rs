//! Chooses the sites for the rows of a program's table.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use goexe::{Call, Callee, Class, Kind, Location, Machine};
use wire::{FIRST, FIRST_AND_LAST, LAST, READ_WORD, Read, STACK_POINTER};

use super::{
    builder::{Builder, Found, Why, has_receiver, is_generic, is_in},
    reads::{Reads, needed},
    row::{Begin, End, Interface, Role, Row},
    site::{Missing, PlannedSite, Reading, Slot},
};
use crate::{
    program::{Metric, Program},
    values::name,
};

/// Register of the labels' address in a call of a method with labels: after the receiver.
const LABELS_REGISTER: usize = 1;
/// Bytes of a string's header: address, length.
const STRING: u32 = 16;

/// What the site in a function that takes a metric sees of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metered {
    /// There is no such site.
    Not,
    /// Its start and end: the entry says whose it is.
    Times,
    /// All of it.
    Whole,
}

/// A function that takes the time for a metric, and its calls of the metric's functions.
struct At<'a, 'b> {
    caller: &'a goexe::Function<'a>,
    /// The call that takes the time.
    taken: &'b Call,
    /// The call before it that takes the labels.
    labelled: Option<&'b Call>,
}

impl<'a, P: Program> Builder<'a, P> {
    /// Adds the sites of a function, by the first row that the executable can follow.
    pub(super) fn add(&mut self, of: P::Function) {
        let rows = P::rows(of);
        let (mut reasons, mut followed) = (Vec::new(), BTreeSet::new());
        // Instantiations that no row could follow yet, although others were followed, with the reasons.
        let mut left = BTreeMap::new();
        for row in rows {
            let others_are = !followed.is_empty();
            if !others_are {
                reasons.extend(mem::take(&mut left).into_values());
            }
            let mut all = row.symbols.iter().map(|symbol| (is_generic(symbol), self.instances(symbol)));
            let (covers_all, functions) = all.find(|(_, all)| !all.is_empty()).unwrap_or_default();
            for function in functions {
                let (start, sites) = (function.range.start, self.sites.len());
                if followed.contains(&start) || others_are && !covers_all && !left.contains_key(&start) {
                    continue;
                }
                match self.add_row(of, row, function) {
                    Ok(()) => {
                        followed.insert(start);
                        left.remove(&start);
                    }
                    Err(Why(why)) => {
                        self.sites.truncate(sites);
                        left.entry(start).or_insert(why);
                    }
                }
            }
        }
        if !followed.is_empty() && left.is_empty() {
            return;
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
        let label = match row.end {
            End::Metric(label) | End::MetricWithArguments(label) => Some(label),
            End::Unused | End::Return | End::NextEntry(..) | End::AtMetric | End::AfterCall(..) => None,
        };
        let metered = match label.zip(P::METRIC) {
            Some((label, metric)) => self.add_metric(of, row, function, &metric, label)?,
            None => Metered::Not,
        };
        if metered == Metered::Whole {
            return Ok(());
        }
        let found = self.signature(row, function)?;
        if let (Begin::InTurn, Some(found)) = (row.begin, &found)
            && self.add_in_turn(of, row, function, found)?
        {
            return Ok(());
        }
        if self.add_timing(of, row, function, found.as_ref())? {
            return Ok(());
        }
        let beginnings = self.beginnings(row, function)?;
        if !beginnings.is_empty() {
            let parameters =
                found.as_ref().map(|found| found.signature.parameters.as_slice()).unwrap_or_default();
            let receiver = has_receiver(function.name);
            let locations = self.types.parameter_locations(parameters, receiver)?;
            let mut reads = self.reads(function.name, row.at_entry, parameters, &locations)?;
            let since = if let Begin::EntrySince(caller, taken) = row.begin {
                Some(self.add_since(&mut reads, caller, taken)?)
            } else {
                None
            };
            for (symbol, site, depth) in beginnings {
                self.push(of, Role::Entry, (site, depth), symbol, reads.clone())?;
                if let (Some(planned), Some(caller)) = (self.sites.last_mut(), &since) {
                    planned.called_by = Some(caller.clone());
                }
            }
        }
        match metered {
            Metered::Not => self.add_end(of, row, function, found.as_ref()),
            Metered::Times | Metered::Whole => Ok(()),
        }
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
            Begin::Entry
            | Begin::EntrySince(..)
            | Begin::InTurn
            | Begin::Timing(_)
            | Begin::UnlessTiming(..) => None,
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
    /// metric. What a row reads at the entry is read there as well, if it is kept.
    fn add_metric(
        &mut self,
        of: P::Function,
        row: &Row<P::Value>,
        function: &goexe::Function<'a>,
        metric: &Metric<P::Value>,
        label: u32,
    ) -> Result<Metered, Why> {
        let Some(At { caller, taken, labelled }) = self.metric(function, metric) else {
            return Ok(Metered::Not);
        };
        // The labels of the preceding call are still in place, if they are on the stack.
        let labels = labelled.and_then(|call| self.executable.stack_argument(caller, call, LABELS_REGISTER));
        let needs_arguments = matches!(row.end, End::MetricWithArguments(_));
        if labels.is_none() && !(row.at_end.is_empty() && !(needs_arguments && labelled.is_some())) {
            return Ok(Metered::Not);
        }
        let Some(Ok(found)) = self.function(metric.taken).map(|taken| self.declared(taken, &["time.Time"]))
        else {
            return Ok(Metered::Not);
        };
        let parameters = &found.signature.parameters;
        let mut reads = self.start_of(parameters, &self.types.parameter_locations(parameters, false)?)?;
        let arguments =
            if needs_arguments { self.kept_reads(row, function, caller, taken.site.address) } else { None };
        let has_all = !needs_arguments || arguments.is_some();
        for (reading, read) in arguments.into_iter().flatten() {
            reads.push(reading, read, Kind::Integer)?;
        }
        let labels = labels.and_then(|labels| Some((STACK_POINTER, u32::try_from(labels).ok()?)));
        let labels = labels.map(|labels| (labels, label));
        let is_added = self.push_metric(of, function, (caller, taken.site), labels, reads)?;
        Ok(match (is_added, has_all) {
            (false, _) => Metered::Not,
            (true, false) => Metered::Times,
            (true, true) => Metered::Whole,
        })
    }

    /// Adds a site that sees the end of a call, and its label: the call that takes the labels of its metric. For a function
    /// whose entry is probed.
    fn add_labelled(
        &mut self,
        of: P::Function,
        row: &Row<P::Value>,
        function: &goexe::Function<'a>,
    ) -> Result<bool, Why> {
        let (End::Metric(label) | End::MetricWithArguments(label), Begin::Entry) = (row.end, row.begin)
        else {
            return Ok(false);
        };
        let found = P::METRIC.and_then(|metric| self.metric(function, &metric));
        let Some(At { caller, labelled: Some(labelled), .. }) = found else { return Ok(false) };
        let reads = self.reads(function.name, &[], &[], &[])?;
        let labels = ((LABELS_REGISTER as u8, 0), label);
        self.push_metric(of, function, (caller, labelled.site), Some(labels), reads)
    }

    /// Adds a site in a function that takes a metric, or in a closure of it. The label's text is behind this register, at
    /// this offset of the first label's; returns `false` if the depth of the stack there is not known.
    fn push_metric(
        &mut self,
        of: P::Function,
        function: &goexe::Function<'a>,
        (caller, site): (&'a goexe::Function<'a>, goexe::Site),
        label: Option<((u8, u32), u32)>,
        mut reads: Reads<P::Value>,
    ) -> Result<bool, Why> {
        let Some(depth) = self.functions.stack_depth(caller, site.address) else { return Ok(false) };
        let named = label.and_then(|((base, first), label)| {
            let name = first.checked_add(STRING * label)?;
            let length = name.checked_add(STRING / 2)?;
            Some([(Reading::Result, base, 2, name), (Reading::ResultLength, base, 1, length)])
        });
        let is_closure = caller.name != function.name;
        let returns = self.return_address_at(depth).filter(|_| is_closure);
        let returns = returns.map(|offset| (Reading::ReturnAddress, STACK_POINTER, 1, offset));
        for (reading, base, steps, offset) in named.into_iter().flatten().chain(returns) {
            let slot = reads.values.len();
            let slot_number = slot as u8;
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

    /// Where a function, or a closure of it, takes the time for a metric.
    fn metric(&self, function: &goexe::Function<'a>, metric: &Metric<P::Value>) -> Option<At<'a, '_>> {
        let taken = Callee::Direct(self.function(metric.taken)?.range.start);
        let closures = format!("{}.func", function.name);
        let first = |within: &dyn Fn(&str) -> bool| {
            self.calls.iter().position(|(caller, call)| call.callee == taken && within(caller))
        };
        // A function with such a closure may itself take the time of its parts.
        let place = first(&|caller| caller.starts_with(&closures))
            .or_else(|| first(&|caller| caller == function.name))?;
        let (name, taken) = &self.calls[place];
        let labelled = self.function(metric.labelled).map(|function| Callee::Direct(function.range.start));
        let mut before = self.calls[..place].iter().rev().take_while(|(of, _)| of == name);
        let labelled = before.find(|(_, call)| Some(call.callee) == labelled).map(|(_, call)| call);
        Some(At { caller: self.function(name)?, taken, labelled })
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
            End::AfterCall(interface, method) => {
                return self.add_after_call(of, row, function, (interface, method));
            }
            End::Return | End::Metric(_) | End::MetricWithArguments(_) => None,
            End::AtMetric => {
                let found = P::METRIC.and_then(|metric| self.metric(function, &metric));
                found.map(|At { caller, taken, .. }| (caller.name, taken.site, Vec::new()))
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
            // A return does not say the result then.
            None if row.at_end.is_empty() && self.add_labelled(of, row, function)? => Ok(()),
            None => {
                let signature = found.map(|found| found.signature.clone()).unwrap_or_default();
                let locations = self.types.result_locations(&signature, true)?;
                let reads = self.reads(function.name, row.at_end, &signature.results, &locations)?;
                if let Some(sites) = self.return_sites(function, found, needed(&reads.site), 0) {
                    for (caller, site, depth) in sites {
                        self.push(of, Role::ReturnSite, (site, depth), caller, reads.clone())?;
                    }
                } else if !self.add_labelled(of, row, function)? {
                    for site in self.executable.return_instructions(function)? {
                        self.push(of, Role::Ret, (site, 0), function.name, reads.clone())?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Adds a site after the first call that the function makes of an interface's method.
    fn add_after_call(
        &mut self,
        of: P::Function,
        row: &Row<P::Value>,
        function: &goexe::Function<'a>,
        (interface, method): (Interface, &str),
    ) -> Result<(), Why> {
        let (signature, slot) = self.method(&self.interface(interface)?.0, method)?;
        let locations = self.types.result_locations(&signature, true)?;
        let reads = self.reads(function.name, row.at_end, &signature.results, &locations)?;
        let is_it = |call: &Call| matches!(call.callee, Callee::Indirect { offset, .. } if offset == slot);
        let call = self.executable.calls(function)?.into_iter().find(is_it);
        let address = call.filter(|call| call.overwritten & needed(&reads.site) == 0);
        let address = address.and_then(|call| call.return_site);
        let depth = address.and_then(|address| self.functions.stack_depth(function, address));
        let (Some(address), Some(depth)) = (address, depth) else {
            return Err(Why(format!("`{}` has no cheap place after its call of `{method}`", function.name)));
        };
        let site = goexe::Site { address, class: Class::Emulated };
        self.push(of, Role::ReturnSite, (site, depth.cast_signed()), function.name, reads)
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
    pub(super) fn return_address(&self) -> u64 {
        match self.executable.machine() {
            Machine::Amd64 => 8,
            Machine::Arm64 => 0,
        }
    }

    pub(super) fn push(
        &mut self,
        function: P::Function,
        role: Role,
        (site, stack_depth): (goexe::Site, i64),
        symbol: &str,
        reads: Reads<P::Value>,
    ) -> Result<(), Why> {
        let Some(detail) = P::detail_in(function, role, symbol) else { return Ok(()) };
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
            detail,
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
}
