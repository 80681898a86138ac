//! Arguments that a function keeps on its stack, read where it takes the time for a metric.

use goexe::{Call, Callee, Location, Type};
use wire::{MAX_WORDS, Read};

use super::{
    builder::{Builder, has_receiver},
    row::Row,
    site::{Reading, Slot},
};
use crate::program::Program;

/// Words that a site at a metric reads for itself: start, label and return address.
const OWN_WORDS: usize = 5;

impl<'a, P: Program> Builder<'a, P> {
    /// Reads of what a row wants at the entry, at this address in the function itself or in a closure of it that it calls. `None` if
    /// one of the arguments is not kept until then, or if it is text.
    pub(super) fn kept_reads(
        &self,
        row: &Row<P::Value>,
        function: &goexe::Function<'a>,
        closure: &goexe::Function<'a>,
        address: u64,
    ) -> Option<Vec<(Reading<P::Value>, Read)>> {
        let parameters = self.signature(row, function).ok()??.signature.parameters;
        let locations = self.kept_arguments(function, &parameters, closure, address)?;
        let reads = self
            .reads_with(Location::Elsewhere, function.name, row.at_entry, &parameters, &locations)
            .ok()?;
        let are_words = reads.values.iter().all(|(_, slot)| matches!(slot, Slot::Word(_)));
        let has_room = OWN_WORDS + reads.values.len() <= MAX_WORDS;
        let readings = reads.values.into_iter().map(|(reading, _)| reading);
        (are_words && has_room).then(|| readings.zip(reads.site.reads).collect())
    }

    /// Where the parameters of a function are on the stack, relative to the stack pointer at this address. One that is not kept is
    /// elsewhere.
    fn kept_arguments(
        &self,
        function: &goexe::Function<'a>,
        parameters: &[Type],
        closure: &goexe::Function<'a>,
        address: u64,
    ) -> Option<Vec<Location>> {
        let depth = self.functions.stack_depth(closure, address)?;
        let (depth, places) = if closure.name == function.name {
            (depth, vec![address])
        } else {
            let (of_caller, calls) = self.calls_of_closure(function, closure)?;
            (depth + self.return_address() + of_caller, calls)
        };
        let listed = self.functions.arguments(function)?;
        let is_kept = |part| places.iter().all(|pc| self.functions.argument_is_kept(function, part, *pc));
        let receiver = has_receiver(function.name);
        let registers = self.types.parameter_locations(parameters, receiver).ok()?;
        let kept = registers.into_iter().map(|location| match location {
            // Parts are listed in the order of their registers.
            Location::Registers { first, count } => {
                let offset = u64::from(listed.get(usize::from(first))?.offset);
                let is_whole = (first..first + count).all(|part| is_kept(part.into()));
                Some(if is_whole { Location::Stack { offset: depth + offset } } else { Location::Elsewhere })
            }
            Location::Stack { .. } | Location::Elsewhere => None,
        });
        kept.collect()
    }

    /// Where a function may call a closure of its own, as it does at its end with one that it defers, and how much of the stack it uses
    /// there. That call loads the closure's code from the closure.
    fn calls_of_closure(
        &self,
        function: &goexe::Function<'a>,
        closure: &goexe::Function<'a>,
    ) -> Option<(u64, Vec<u64>)> {
        let may_be = |call: &Call| match call.callee {
            Callee::Direct(address) => address == closure.range.start,
            Callee::Indirect { offset, base: _ } => offset == 0,
        };
        let calls = self.executable.calls(function).ok()?;
        let places: Vec<u64> =
            calls.iter().filter(|call| may_be(call)).map(|call| call.site.address).collect();
        let mut depths = places.iter().map(|pc| self.functions.stack_depth(function, *pc));
        let depth = depths.next()??;
        depths.all(|other| other == Some(depth)).then_some((depth, places))
    }
}
