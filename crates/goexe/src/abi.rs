//! Which register or stack slot a parameter or result is in, by Go's ABIInternal
//! (<https://github.com/golang/go/blob/go1.26.5/src/cmd/compile/abi-internal.md#function-call-argument-and-result-passing>).

use crate::{Argument, Error, Kind, Machine, Signature, Type, Types};

/// Registers for integers and for floating point: RAX, RBX, RCX, RDI, RSI, R8, R9, R10, R11 and X0 to X14 on amd64, R0 to
/// R15 and F0 to F15 on arm64.
fn register_counts(machine: Machine) -> (u8, u8) {
    match machine {
        Machine::Amd64 => (9, 15),
        Machine::Arm64 => (16, 16),
    }
}

/// Types looked at for one value, fields of fields included: a true one needs a handful, because nine words fill the
/// registers. What needs more goes to the stack.
const MAX_TYPES: u32 = 512;

/// The parts of its arguments that the compiler writes down of a function.
const MAX_PARTS: usize = 10;

/// Where a value is at the entry (parameters) or at the return (results) of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// Its words are in consecutive integer registers, this many, from this one on.
    Registers {
        /// Index into Go's sequence of integer registers.
        first: u8,
        /// How many words.
        count: u8,
    },
    /// In the argument area of the caller's frame.
    Stack {
        /// Bytes from the area's start: 8 bytes above the stack pointer at the function's entry, behind the return
        /// address on amd64 and the place for one on arm64.
        offset: u64,
    },
    /// In floating-point registers, which are not read, or without any bytes.
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

    /// Takes registers for a value; `false` when they do not suffice.
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
    /// Where each parameter is at the function's entry. A method's receiver, which its signature does not show,
    /// takes the first register: `receiver` says whether there is one (a pointer).
    pub fn parameter_locations(&self, parameters: &[Type], receiver: bool) -> Result<Vec<Location>, Error> {
        let mut sequence = Sequence { integers: u8::from(receiver), ..Sequence::default() };
        parameters.iter().map(|typ| sequence.place(self, typ)).collect()
    }

    /// Whether a function whose arguments are these, as [`Functions::arguments`] lists them, can be one with this signature,
    /// a receiver (a pointer) first or not: a check of a signature that is known from elsewhere.
    ///
    /// What is passed on the stack is listed where it is; what is passed in registers where the callee may keep it, one
    /// behind the other after all that is on the stack, results included: without knowing these (`None`) it is taken to be
    /// where the first of it is listed.
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
            if u64::from(first.offset) < kept || first.offset % 8 != 0 {
                return Ok(false);
            }
            kept = first.offset.into();
        }
        let mut parts = Vec::new();
        if receiver {
            parts.push(Argument { offset: u8::try_from(kept).unwrap_or(u8::MAX), size: 8 });
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
        // The compiler writes down ten parts.
        parts.truncate(MAX_PARTS);
        Ok(parts == arguments)
    }

    /// What a traceback prints of a value: its words, one by one; `false` when it is of more types than a value can be,
    /// such as a struct that holds itself.
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
            let offset = u8::try_from(offset.saturating_add(8 * word)).unwrap_or(u8::MAX);
            let size = if words == 1 { u8::try_from(typ.size).unwrap_or(u8::MAX) } else { 8 };
            parts.push(Argument { offset, size });
        }
        Ok(true)
    }

    /// Where each result is at the function's return: in registers of its own, or on the stack behind the parameters that
    /// are there.
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
