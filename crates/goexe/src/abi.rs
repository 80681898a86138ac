//! Which register or stack slot a parameter or result is in, by Go's ABIInternal
//! (<https://github.com/golang/go/blob/go1.26.5/src/cmd/compile/abi-internal.md#function-call-argument-and-result-passing>).

use crate::{Argument, Error, Kind, Machine, Signature, Type, Types};

/// Number of integer and floating-point registers: RAX, RBX, RCX, RDI, RSI, R8, R9, R10, R11 and X0 to X14 on amd64, R0
/// to R15 and F0 to F15 on arm64.
fn register_counts(machine: Machine) -> (u8, u8) {
    match machine {
        Machine::Amd64 => (9, 15),
        Machine::Arm64 => (16, 16),
    }
}

/// Maximum number of types examined for one value, nested fields included. A value in registers needs a handful,
/// because nine words fill the registers; larger ones go to the stack.
const MAX_TYPES: u32 = 512;

/// Maximum number of argument parts in the compiler's argument info.
const MAX_PARTS: usize = 10;

/// From this offset on, the argument info says only that the offset is too large.
/// <https://github.com/golang/go/blob/go1.26.5/src/internal/abi/symtab.go#L100-L115>
const TOO_LARGE: u64 = 0xf0;

/// A part of an argument, as the argument info has it.
fn part(offset: u64, size: u64) -> Argument {
    match u8::try_from(offset) {
        Ok(near) if offset < TOO_LARGE => {
            Argument { offset: near, size: u8::try_from(size).unwrap_or(u8::MAX) }
        }
        Ok(_) | Err(_) => Argument { offset: u8::MAX, size: 0 },
    }
}

/// Location of a parameter at a function's entry, or of a result at its return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In consecutive integer registers, one for each word.
    Registers {
        /// Index of the first one in Go's sequence of integer registers.
        first: u8,
        /// Number of words.
        count: u8,
    },
    /// In the argument area of the caller's frame.
    Stack {
        /// Bytes from the area's start, which is 8 bytes above the stack pointer at the function's entry: after the
        /// return address on amd64, and after a slot for one on arm64.
        offset: u64,
    },
    /// In floating-point registers, which are not read, or without size.
    Elsewhere,
}

#[derive(Clone, Copy, Default)]
struct Sequence {
    integers: u8,
    floats: u8,
    stack: u64,
    types: u32,
}

impl Sequence {
    fn place(&mut self, types: &Types<'_>, typ: &Type) -> Result<Location, Error> {
        self.types = 0;
        let before = *self;
        if self.registers(types, typ)? {
            let count = self.integers - before.integers;
            return Ok(if count == 0 {
                Location::Elsewhere
            } else {
                Location::Registers { first: before.integers, count }
            });
        }
        *self = before;
        let offset = self.stack.checked_next_multiple_of(typ.align.max(1)).unwrap_or(u64::MAX);
        self.stack = offset.saturating_add(typ.size);
        Ok(Location::Stack { offset })
    }

    /// Assigns registers to a value; `false` if there are not enough.
    fn registers(&mut self, types: &Types<'_>, typ: &Type) -> Result<bool, Error> {
        self.types += 1;
        if self.types > MAX_TYPES {
            return Ok(false);
        }
        let (integers, floats) = match typ.kind {
            Kind::Bool
            | Kind::Integer
            | Kind::Chan
            | Kind::Func
            | Kind::Map
            | Kind::Pointer
            | Kind::UnsafePointer => (1, 0),
            Kind::String | Kind::Interface => (2, 0),
            Kind::Slice => (3, 0),
            Kind::Float => (0, 1),
            Kind::Complex => (0, 2),
            Kind::Array => {
                return match types.array_len(typ)? {
                    0 => Ok(true),
                    1 => self.registers(types, &types.element(typ)?),
                    _ => Ok(false),
                };
            }
            Kind::Struct => {
                for field in types.each_field(typ)? {
                    if !self.registers(types, &field?.typ)? {
                        return Ok(false);
                    }
                }
                return Ok(true);
            }
        };
        let (integer_registers, float_registers) = register_counts(types.machine());
        self.integers += integers;
        self.floats += floats;
        Ok(self.integers <= integer_registers && self.floats <= float_registers)
    }
}

impl Types<'_> {
    /// Location of each parameter at the function's entry. `receiver` says whether there is a receiver (a pointer),
    /// which takes the first register and is not part of the signature.
    pub fn parameter_locations(&self, parameters: &[Type], receiver: bool) -> Result<Vec<Location>, Error> {
        let mut sequence = Sequence { integers: u8::from(receiver), ..Sequence::default() };
        parameters.iter().map(|typ| sequence.place(self, typ)).collect()
    }

    /// Whether the arguments of a function, as [`Functions::arguments`] lists them, agree with this signature, with or
    /// without a receiver (a pointer): verifies a signature from another source.
    ///
    /// Stack arguments are listed at their offset. Register arguments are listed at their spill slots, which follow one
    /// another after all stack arguments and results. Without known results (`None`), the spill area is assumed to
    /// start at the first listed slot.
    /// <https://github.com/golang/go/blob/go1.26.5/src/cmd/compile/internal/abi/abiutils.go>
    ///
    /// [`Functions::arguments`]: crate::Functions::arguments
    pub fn fit(
        &self,
        parameters: &[Type],
        results: Option<&[Type]>,
        receiver: bool,
        arguments: &[Argument],
    ) -> Result<bool, Error> {
        let mut sequence = Sequence { integers: u8::from(receiver), ..Sequence::default() };
        let locations =
            parameters.iter().map(|typ| sequence.place(self, typ)).collect::<Result<Vec<_>, _>>()?;
        let mut behind = Sequence { stack: sequence.stack, ..Sequence::default() };
        for typ in results.unwrap_or_default() {
            behind.place(self, typ)?;
        }
        let mut kept = behind.stack.checked_next_multiple_of(8).unwrap_or(u64::MAX);
        let first_is_kept = receiver || matches!(locations.first(), Some(Location::Registers { .. }));
        if let (None, true, Some(first)) = (results, first_is_kept, arguments.first()) {
            let is_far = *first == part(TOO_LARGE, 0);
            if !is_far && (u64::from(first.offset) < kept || first.offset % 8 != 0) {
                return Ok(false);
            }
            kept = if is_far { kept.max(TOO_LARGE) } else { first.offset.into() };
        }
        let mut parts = Vec::new();
        if receiver {
            parts.push(part(kept, 8));
            kept = kept.saturating_add(8);
        }
        for (typ, location) in parameters.iter().zip(locations) {
            if parts.len() >= MAX_PARTS {
                break;
            }
            let offset = if let Location::Stack { offset } = location {
                offset
            } else {
                let offset = kept.checked_next_multiple_of(typ.align.max(1)).unwrap_or(u64::MAX);
                kept = offset.saturating_add(typ.size);
                offset
            };
            let mut seen = 0;
            if !self.parts(typ, offset, &mut parts, &mut seen)? {
                return Ok(false);
            }
        }
        // The compiler emits at most ten parts.
        parts.truncate(MAX_PARTS);
        Ok(parts == arguments)
    }

    /// Adds the words of a value, as a traceback prints them. `false` if it has more types than a value can have, such
    /// as a struct that contains itself.
    /// <https://github.com/golang/go/blob/go1.26.5/src/cmd/compile/internal/ssagen/pgen.go>
    fn parts(
        &self,
        typ: &Type,
        offset: u64,
        parts: &mut Vec<Argument>,
        seen: &mut u32,
    ) -> Result<bool, Error> {
        *seen += 1;
        if *seen > MAX_TYPES {
            return Ok(false);
        }
        let words = match typ.kind {
            Kind::String | Kind::Interface => 2,
            Kind::Slice => 3,
            Kind::Struct => {
                for field in self.each_field(typ)? {
                    if parts.len() >= MAX_PARTS {
                        break;
                    }
                    let field = field?;
                    if !self.parts(&field.typ, offset.saturating_add(field.offset), parts, seen)? {
                        return Ok(false);
                    }
                }
                return Ok(true);
            }
            _ => 1,
        };
        for word in 0..words {
            let size = if words == 1 { typ.size } else { 8 };
            parts.push(part(offset.saturating_add(8 * word), size));
        }
        Ok(true)
    }

    /// Location of each result at the function's return: in registers, or on the stack after the stack parameters.
    pub fn result_locations(&self, signature: &Signature, receiver: bool) -> Result<Vec<Location>, Error> {
        let mut parameters = Sequence { integers: u8::from(receiver), ..Sequence::default() };
        for typ in &signature.parameters {
            parameters.place(self, typ)?;
        }
        let stack = parameters.stack.checked_next_multiple_of(8).unwrap_or(u64::MAX);
        let mut sequence = Sequence { stack, ..Sequence::default() };
        signature.results.iter().map(|typ| sequence.place(self, typ)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_beyond_the_argument_info_is_too_large() {
        assert_eq!(part(0xe8, 8), Argument { offset: 0xe8, size: 8 });
        let far = Argument { offset: u8::MAX, size: 0 };
        assert_eq!([part(0xf0, 8), part(0x100, 4), part(u64::MAX, 8)], [far; 3]);
    }
}
