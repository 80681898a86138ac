//! Sites where a function takes the time since something: they see when that was, and the function's parameters.

use goexe::{Call, Callee, Class, Kind, Location, Signature, Type};
use wire::{FIRST_AND_LAST, READ_WORD, Read, STACK_POINTER};

use super::{
    builder::{ANY_SHAPE, Builder, Found, Why, is_by_shape, stands_for},
    reads::{Reads, needed},
    row::{Begin, End, Role, Row, SeenAs, Want},
    site::Reading,
};
use crate::program::Program;

/// Parts of arguments that the compiler lists.
const MAX_LISTED: usize = 10;

/// A call that takes the time since something.
struct Timing<'a, V> {
    /// The function that calls: of an instantiation, what it shares with those of its shape.
    caller: goexe::Function<'a>,
    site: goexe::Site,
    /// Bytes of stack there.
    depth: i64,
    reads: Reads<V>,
}

impl<'a, P: Program> Builder<'a, P> {
    /// Adds the site of a [`Begin::Timing`], and none for [`Begin::UnlessTiming`]; returns `false` if the row's function is to be seen in
    /// another way.
    pub(super) fn add_timing(
        &mut self,
        of: P::Function,
        row: &Row<P::Value>,
        function: &goexe::Function<'a>,
        found: Option<&Found>,
    ) -> Result<bool, Why> {
        let (timing, calls) = match row.begin {
            Begin::Timing(calls) => (Some(function), calls),
            Begin::UnlessTiming(method, calls) => (self.function(&sibling(function.name, method)), calls),
            Begin::Unused
            | Begin::Entry
            | Begin::InTurn
            | Begin::FirstCall(_)
            | Begin::AfterFirstCall(_)
            | Begin::CallsIn(_) => return Ok(false),
        };
        let (Some(timing), Some(found)) = (timing, found) else { return Ok(false) };
        let Some(Timing { caller, site, depth, reads }) = self.timing(row, timing, calls, found)? else {
            return Ok(false);
        };
        let detail = P::detail_in(of, Role::Metric, function.name);
        let (Some(detail), Begin::Timing(_)) = (detail, row.begin) else { return Ok(true) };
        // Instantiations of one shape have one site.
        if !self.sites.iter().any(|known| (known.function, known.address) == (of, site.address)) {
            self.push(of, Role::Metric, (site, depth), caller.name, reads)?;
        }
        let own = self.sites.iter_mut().filter(|own| (own.function, own.address) == (of, site.address));
        for own in own {
            // What follows begins when the program is over.
            (own.spec.time, own.detail) = (FIRST_AND_LAST, detail);
        }
        Ok(true)
    }

    /// Adds the sites of an [`End::ReturnSince`]; returns `false` if calls are to be seen in another way.
    pub(super) fn add_since(
        &mut self,
        of: P::Function,
        row: &Row<P::Value>,
        function: &goexe::Function<'a>,
        found: Option<&Found>,
    ) -> Result<bool, Why> {
        let (End::ReturnSince(caller, taken), Some(Found { signature, .. })) = (row.end, found) else {
            return Ok(false);
        };
        let Some(caller) = self.function(caller) else { return Ok(false) };
        let callee = Callee::Direct(function.range.start);
        let calls = self.calls.iter().filter(|(_, call)| call.callee == callee).copied();
        let (own, others): (Vec<_>, Vec<_>) = calls.partition(|(name, _)| *name == caller.name);
        let [(_, Call { site: call, return_site: Some(pc), overwritten, .. })] = own[..] else {
            return Ok(false);
        };
        let taken = self.called(caller, |name| name == taken).map(|(_, taken)| taken);
        let start = taken.filter(|taken| taken.site.address < call.address);
        let start = start.and_then(|taken| self.executable.stored_results(caller, &taken));
        let receiver = self.functions.arguments(caller).unwrap_or_default().first().copied();
        let receiver = receiver.filter(|_| self.functions.argument_is_kept(caller, 0, pc));
        let depth = self.functions.stack_depth(caller, pc);
        let (Some(start), Some(receiver), Some(depth)) = (start, receiver, depth) else { return Ok(false) };

        let results = self.types.result_locations(signature, true)?;
        let at_end = |receiver, wants: &[_]| {
            self.reads_with(receiver, caller.name, wants, &signature.results, &results)
        };
        let is_there = |want: &&Want<_>| matches!(want.seen_as, SeenAs::Receiver | SeenAs::Goroutine);
        let wants: Vec<_> = row.at_end.iter().chain(row.at_entry.iter().filter(is_there)).copied().collect();
        let receiver = Location::Stack { offset: depth + u64::from(receiver.offset) };
        let mut reads = at_end(receiver, &wants)?;
        for (reading, offset) in [Reading::StartWall, Reading::StartMonotonic].into_iter().zip(start) {
            let mut read = Read { base: STACK_POINTER, kind: READ_WORD, steps: 1, ..Read::default() };
            read.offsets[0] = u32::try_from(offset).map_err(|_| Why(format!("{offset} bytes away")))?;
            reads.push(reading, read, Kind::Integer)?;
        }
        let is_lost = |overwritten, reads: &Reads<_>| overwritten & needed(&reads.site) != 0;
        if is_lost(overwritten, &reads) {
            return Ok(false);
        }
        let parameters = self.types.parameter_locations(&signature.parameters, true)?;
        let begin = self.reads(function.name, row.at_entry, &signature.parameters, &parameters)?;
        let end = at_end(Location::Elsewhere, row.at_end)?;
        let depth = -self.return_address().cast_signed();
        let after = |address| (goexe::Site { address, class: Class::Emulated }, depth);
        let mut sites = vec![(Role::Metric, caller.name, after(pc), reads)];
        for (name, Call { site, return_site, overwritten, .. }) in others {
            let Some(pc) = return_site.filter(|_| !is_lost(overwritten, &end)) else { return Ok(false) };
            sites.push((Role::Entry, name, (site, depth), begin.clone()));
            sites.push((Role::ReturnSite, name, after(pc), end.clone()));
        }
        for (role, name, site, reads) in sites {
            self.push(of, role, site, name, reads)?;
        }
        Ok(true)
    }

    /// Where this function calls the method of its receiver that takes a time; `None` if it does not, or if its parameters are not on the
    /// stack then.
    fn timing(
        &self,
        row: &Row<P::Value>,
        function: &goexe::Function<'a>,
        calls: &str,
        found: &Found,
    ) -> Result<Option<Timing<'a, P::Value>>, Why> {
        let parameters = &found.signature.parameters;
        let shape = shape(function.name);
        let body = self.called(function, |name| stands_for(&shape, name));
        let caller = body.map_or_else(|| function.clone(), |(body, _)| body);
        let taken = sibling(caller.name, calls);
        let Some((callee, call)) = self.called(&caller, |name| name == taken) else { return Ok(None) };
        // Of a dictionary only its size matters: that of any pointer.
        let dictionary =
            if is_by_shape(caller.name) { vec![self.types.find_unnamed("*runtime.g")?] } else { vec![] };
        let with = |own: &[Type]| Signature { parameters: [&dictionary, own].concat(), results: Vec::new() };
        let time = with(&[self.types.by_name("time.Time")?]);
        let are_those = self.checked(&caller, with(parameters), true).is_ok()
            && self.checked(&callee, time.clone(), false).is_ok();
        let listed = self.functions.arguments(&caller).unwrap_or_default();
        let pc = call.site.address;
        let kept = (1..listed.len()).all(|part| self.functions.argument_is_kept(&caller, part, pc));
        let depth = self.functions.stack_depth(&caller, pc);
        // The receiver is before the others, or, unlisted, before the dictionary.
        let ([parameter], Some(first), Some(depth)) = (&parameters[..], listed.get(1), depth) else {
            return Ok(None);
        };
        if !are_those || !kept || listed.len() >= MAX_LISTED {
            return Ok(None);
        }
        let location = Location::Stack { offset: depth + u64::from(first.offset) };
        let mut reads = self.reads(function.name, row.at_entry, &[*parameter], &[location])?;
        let locations = self.types.parameter_locations(&time.parameters, true)?;
        let since = time.parameters.last().zip(locations.last());
        let (typ, location) = since.ok_or_else(|| Why(format!("`{taken}` has no parameter")))?;
        self.add_start(&mut reads, typ, *location)?;
        Ok(Some(Timing { caller, site: call.site, depth: depth.cast_signed(), reads }))
    }

    /// Adds reads of the two words of a `time.Time`.
    pub(super) fn add_start(
        &self,
        reads: &mut Reads<P::Value>,
        typ: &Type,
        location: Location,
    ) -> Result<(), Why> {
        for (reading, path) in [(Reading::StartWall, &["wall"]), (Reading::StartMonotonic, &["ext"])] {
            let (read, leaf) = self.read_path(typ, location, SeenAs::Declared, path)?;
            reads.push(reading, read, leaf)?;
        }
        Ok(())
    }

    /// The first function of such a name that a function calls directly.
    fn called(
        &self,
        caller: &goexe::Function<'a>,
        is_it: impl Fn(&str) -> bool,
    ) -> Option<(goexe::Function<'a>, Call)> {
        self.executable.calls(caller).ok()?.into_iter().find_map(|call| {
            let Callee::Direct(address) = call.callee else { return None };
            let callee = self.functions.at(address)?;
            is_it(callee.name).then_some((callee, call))
        })
    }
}

/// Another method of the same type.
fn sibling(function: &str, method: &str) -> String {
    let end = function.rfind('.').map_or(0, |dot| dot + 1);
    format!("{}{method}", &function[..end])
}

/// The symbol that stands for the same function of any shape; as it is if it is not an instantiation.
fn shape(function: &str) -> String {
    let arguments = function.find('[').zip(function.rfind(']'));
    arguments.map_or_else(
        || function.to_owned(),
        |(start, end)| format!("{}{ANY_SHAPE}{}", &function[..start], &function[end + 1..]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_a_type_differ_in_their_last_part() {
        assert_eq!(sibling("a.com/b.(*T[c.com/d.E]).get", "since"), "a.com/b.(*T[c.com/d.E]).since");
        assert_eq!(sibling("get", "since"), "since");
    }

    #[test]
    fn an_instantiation_has_a_shape() {
        let shape = shape("a.com/b.(*T[c.com/d.E[int]]).get");
        assert!(stands_for(&shape, "a.com/b.(*T[go.shape.struct { a.com/b.name string }]).get"));
        assert!(!stands_for(&shape, "a.com/b.(*T[c.com/d.E[int]]).get"));
        assert_eq!(super::shape("a.(*T).get"), "a.(*T).get");
        assert!(!stands_for("a.(*T).get", "a.(*T).get"));
    }
}
