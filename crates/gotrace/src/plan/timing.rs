//! Sites that see when something began: where a function takes the time since then, or where it calls another one and keeps that time.

use std::ops::Range;

use goexe::{Call, Callee, Kind, Location, Machine, Signature, Type};
use wire::{FIRST_AND_LAST, LINK, READ_WORD, Read, STACK_POINTER};

use super::{
    builder::{ANY_SHAPE, Builder, Found, Why, is_by_shape, stands_for},
    reads::Reads,
    row::{Begin, Role, Row, SeenAs},
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
            | Begin::EntrySince(..)
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

    /// Adds reads for the entry of a function: the time that this caller of it has taken with another one, where its frame keeps it, and
    /// the return address, which says whether it is that caller. Returns where its code is.
    pub(super) fn add_since(
        &self,
        reads: &mut Reads<P::Value>,
        caller: &str,
        taken: &str,
    ) -> Result<Range<u64>, Why> {
        let name = caller;
        let caller = self.function(name).ok_or_else(|| Why(format!("no function `{name}`")))?;
        let taken = self.called(caller, |name| name == taken);
        let start = taken.and_then(|(_, taken)| self.executable.stored_results(caller, &taken));
        let start = start.ok_or_else(|| Why(format!("`{name}` does not keep when it began")))?;
        let word = |base, steps| Read { base, kind: READ_WORD, steps, ..Read::default() };
        for (reading, offset) in [Reading::StartWall, Reading::StartMonotonic].into_iter().zip(start) {
            let mut read = word(STACK_POINTER, 1);
            let offset = offset.checked_add(self.return_address()).and_then(|offset| offset.try_into().ok());
            read.offsets[0] = offset.ok_or_else(|| Why(format!("`{name}` has a frame without end")))?;
            reads.push(reading, read, Kind::Integer)?;
        }
        let returns = match self.executable.machine() {
            Machine::Amd64 => word(STACK_POINTER, 1),
            Machine::Arm64 => word(LINK, 0),
        };
        reads.push(Reading::ReturnAddress, returns, Kind::Integer)?;
        Ok(caller.range.clone())
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
