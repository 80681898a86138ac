//! The function table, `.gopclntab`: names, entries, ranges, and the stack depth at a pc.

use std::{borrow::Cow, ops::Range};

use crate::{
    Error, bytes,
    image::Image,
    module_data::{ModuleData, is_function_table, pc_quantum},
    source::Bytes,
};

/// Maximum number of functions. More means a broken header.
const MAX_FUNCTIONS: u64 = 1 << 20;
/// Maximum size of a function. The largest, those that initialise tables, have some hundred kilobytes.
pub(crate) const MAX_FUNCTION: u64 = 1 << 20;
/// Maximum length of a function's name and of a file's path. Generic instantiations have long names.
const MAX_NAME: u64 = 1 << 12;
const FUNCTION_ENTRY: usize = 8;
/// Size of the fixed part of `_func` from Go 1.20 on
/// (<https://github.com/golang/go/blob/go1.26.5/src/runtime/runtime2.go#L961-L1004>).
const FUNC: usize = 44;
/// Maximum size of a `_func` with the places of its tables. It has some ten of them.
const MAX_FUNC: u64 = 1 << 11;
/// Numbers of a function's tables: `PCDATA_InlTreeIndex`, `PCDATA_ArgLiveIndex`, `FUNCDATA_InlTree`,
/// `FUNCDATA_ArgInfo`, `FUNCDATA_ArgLiveInfo`
/// (<https://github.com/golang/go/blob/go1.26.5/src/internal/abi/symtab.go#L80-L115>).
const INLINE_INDEX: u32 = 2;
const LIVE_INDEX: u32 = 3;
const INLINE_TREE: u32 = 3;
const ARGUMENT_INFO: u32 = 5;
const LIVE_INFO: u32 = 6;
/// Maximum number of a function's inlined calls, and of its arguments. Go itself emits ten arguments.
const MAX_INLINED: i64 = 1 << 14;
const MAX_ARGUMENTS: usize = 64;
/// Maximum size of argument info: two bytes for each argument, and delimiters of structs.
const MAX_ARGUMENT_INFO: u64 = 4 * MAX_ARGUMENTS as u64;
/// Size of the function table's header.
const HEADER: u64 = 72;

/// A function in the function table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Full symbol name, for example `k8s.io/kubernetes/pkg/scheduler.(*Scheduler).bindingCycle`.
    pub name: &'a str,
    /// From its first address to the first address of the next function.
    pub range: Range<u64>,
    /// Its `_func`, and what follows it.
    func: &'a [u8],
}

/// An inlined call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inlined<'a> {
    /// Full symbol name of the inlined function.
    pub name: &'a str,
    /// Address of the call in the outer function.
    pub call: u64,
}

/// An argument of a function, or a part of one, as tracebacks print it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Bytes from the start of the argument area; for arguments in registers, from the start of the spill area.
    pub offset: u8,
    /// Size in bytes.
    pub size: u8,
}

/// An entry of a table about the function's code: a value and the pc where it ends. The value is a stack depth, or the
/// number of a line, a file, or an inlined call.
#[derive(Clone, Copy)]
struct Step {
    value: i64,
    until: u64,
}

/// The functions of an executable. There is no index: a query takes one pass over the table.
#[derive(Debug)]
pub struct Functions<'a> {
    image: &'a Image<'a>,
    table: Cow<'a, [u8]>,
    names: Bytes<'a>,
    units: Bytes<'a>,
    files: Bytes<'a>,
    pctab: Bytes<'a>,
    funcs: Bytes<'a>,
    count: usize,
    text: u64,
    gofunc: u64,
    pc_quantum: u64,
    /// Whether `_func` has the fields that Go 1.20 added.
    with_start_line: bool,
}

impl<'a> Functions<'a> {
    pub(crate) fn parse(image: &'a Image<'a>, module: &ModuleData) -> Result<Self, Error> {
        const WHAT: &str = "function table";
        let at = module.pclntab;
        let data = image.from(WHAT, at)?;
        let header = data.begin(HEADER).unwrap_or_default();
        if !is_function_table(header, image.machine) {
            return Err(Error::malformed(
                WHAT,
                at,
                format!(
                    "its magic, pc quantum and pointer size are not those of Go 1.18 or later on {:?}",
                    image.machine
                ),
            ));
        }
        let word = |offset: usize| {
            bytes::u64_at(header, offset).ok_or_else(|| Error::malformed(WHAT, at, "its header is cut off"))
        };
        let table = |offset: usize| {
            let start = word(offset)?;
            data.from(start).ok_or_else(|| {
                Error::malformed(WHAT, at, format!("header field at {offset} points {start:#x} bytes on"))
            })
        };
        let (count, funcs) = (word(8)?, table(64)?);
        let size = count.min(MAX_FUNCTIONS) * FUNCTION_ENTRY as u64 + 4;
        if count == 0 || count > MAX_FUNCTIONS || funcs.len() < size {
            return Err(Error::malformed(WHAT, at, format!("it claims {count} functions")));
        }
        let list = funcs.read(0, size).unwrap_or_default();
        let (names, units) = (word(32)?, word(40)?);
        let names_len = units.saturating_sub(names);
        // The runtime refuses an unsorted table. Overlapping functions could add up to any size.
        let entry = |index: usize| bytes::u32_at(&list, index * FUNCTION_ENTRY).unwrap_or_default();
        if let Some(index) = (0..count as usize).find(|index| entry(*index) > entry(index + 1)) {
            return Err(Error::malformed(
                WHAT,
                at,
                format!("the entry offset of function {index} is {:#x}, behind the next one's", entry(index)),
            ));
        }
        Ok(Self {
            image,
            names: table(32)?
                .part(0, names_len)
                .ok_or_else(|| Error::malformed(WHAT, at, "its names end outside it"))?,
            units: table(40)?,
            files: table(48)?,
            pctab: table(56)?,
            funcs,
            count: count as usize,
            text: module.text,
            gofunc: module.gofunc,
            pc_quantum: pc_quantum(image.machine).into(),
            with_start_line: header[0] & 1 != 0,
            table: list,
        })
    }

    /// Number of functions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Virtual addresses of all functions.
    #[must_use]
    pub fn text(&self) -> Range<u64> {
        let end = self.entry(self.count).unwrap_or(self.text);
        self.text..end.max(self.text)
    }

    /// Whether there are no functions. No running executable is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the name table has this name, without a pass over the functions. The function may be inlined everywhere.
    #[must_use]
    pub fn names_contain(&self, name: &str) -> bool {
        // Names follow one another, each with a trailing zero.
        !self.names.places(format!("\0{name}\0").as_bytes(), 1, |_| true).is_empty()
    }

    /// All functions whose name passes `wanted`, by address. Broken entries are skipped.
    pub fn matching(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<Function<'a>> {
        (0..self.count)
            .filter_map(|index| {
                let name = self.name(bytes::i32_at(self.func(index)?, 4)?)?;
                if wanted(name) { self.function(index) } else { None }
            })
            .collect()
    }

    /// The function that contains an address, by binary search.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<Function<'a>> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(middle)? <= address { low = middle + 1 } else { high = middle }
        }
        self.function(low.checked_sub(1)?).filter(|function| function.range.contains(&address))
    }

    /// End of the first instruction in `function` that moves the stack pointer; `None` if there is none.
    #[must_use]
    pub fn first_stack_change(&self, function: &Function<'_>) -> Option<u64> {
        let mut steps = self.steps(function, bytes::u32_at(function.func, 16)?);
        let first = steps.next()?;
        // A table of one step has no change.
        steps.next()?;
        (first.until > function.range.start && first.until < function.range.end).then_some(first.until)
    }

    /// Bytes from the stack pointer at `pc` up to its value at the function's entry.
    #[must_use]
    pub fn stack_depth(&self, function: &Function<'_>, pc: u64) -> Option<u64> {
        u64::try_from(self.value(function, bytes::u32_at(function.func, 16)?, pc)?).ok()
    }

    /// Source file and line of the instruction at `pc`. The build may have shortened the path.
    #[must_use]
    pub fn source(&self, function: &Function<'_>, pc: u64) -> Option<(&'a str, u32)> {
        let file = self.value(function, bytes::u32_at(function.func, 20)?, pc)?;
        let line = self.value(function, bytes::u32_at(function.func, 24)?, pc)?;
        let unit = u64::from(bytes::u32_at(function.func, 32)?);
        let entry = unit.checked_add_signed(file)?.checked_mul(4)?;
        let name = terminated(self.files.from(self.units.u32(entry)?.into())?)?;
        Some((str::from_utf8(name).ok()?, u32::try_from(line).ok()?))
    }

    /// The calls that were inlined into a function, from Go 1.20 on.
    #[must_use]
    pub fn inlined(&self, function: &Function<'_>) -> Vec<Inlined<'a>> {
        const INLINED_CALL: u64 = 16;
        let list = || {
            let index = self.table_offset(function, INLINE_INDEX)?;
            let last = self.steps(function, index).map(|step| step.value).max()?;
            let count = u64::try_from(last.min(MAX_INLINED) + 1).ok()?;
            self.image.read("inline tree", self.extra(function, INLINE_TREE)?, count * INLINED_CALL).ok()
        };
        list()
            .unwrap_or_default()
            .chunks_exact(INLINED_CALL as usize)
            .filter_map(|call| {
                let name = str::from_utf8(self.name(bytes::i32_at(call, 4)?)?).ok()?;
                let call = function.range.start.checked_add_signed(bytes::i32_at(call, 8)?.into())?;
                Some(Inlined { name, call })
            })
            .collect()
    }

    /// The arguments of a function, receiver first, structs split into parts, as in a traceback: ten at most. `None` if
    /// the function table has no argument info.
    #[must_use]
    pub fn arguments(&self, function: &Function<'_>) -> Option<Vec<Argument>> {
        /// <https://github.com/golang/go/blob/go1.26.5/src/internal/abi/symtab.go#L100-L115>
        const END: u8 = 0xff;
        const FIRST_MARK: u8 = 0xfb;
        const OFFSET_TOO_LARGE: u8 = 0xfb;
        let data = self.image.from("argument info", self.extra(function, ARGUMENT_INFO)?).ok()?;
        let mut data = data.begin(MAX_ARGUMENT_INFO)?.iter();
        let mut arguments = Vec::new();
        while arguments.len() < MAX_ARGUMENTS {
            match *data.next()? {
                END => return Some(arguments),
                OFFSET_TOO_LARGE => arguments.push(Argument { offset: u8::MAX, size: 0 }),
                mark if mark > FIRST_MARK => {}
                offset => arguments.push(Argument { offset, size: *data.next()? }),
            }
        }
        None
    }

    /// Whether a register argument, by its index in [`Functions::arguments`], is spilled to its slot on every path to
    /// `pc`; a traceback prints that slot.
    /// <https://github.com/golang/go/blob/go1.26.5/src/runtime/traceback.go#L658-L760>
    #[must_use]
    pub fn argument_is_kept(&self, function: &Function<'_>, part: usize, pc: u64) -> bool {
        let kept = || {
            let arguments = self.arguments(function)?;
            let info = self.image.from("argument liveness", self.extra(function, LIVE_INFO)?).ok()?;
            let byte = |at| Some(*info.get(at, 1)?.first()?);
            let first = byte(0)?;
            let offset = arguments.get(part)?.offset;
            // Arguments before `first` are stack arguments.
            if offset < first || offset == u8::MAX {
                return None;
            }
            // Of an instantiation by shape, the first argument has a slot and is not listed.
            let unlisted = usize::from(arguments.first().is_some_and(|listed| first < listed.offset));
            let slot =
                unlisted + arguments[..part].iter().filter(|argument| argument.offset >= first).count();
            // Before the first spill there is an index. After it, no index means that all arguments are spilled.
            let mut begun = false;
            let step = self.steps(function, self.table_offset(function, LIVE_INDEX)?).find(|step| {
                let reached = pc < step.until;
                begun |= !reached && step.value > 0;
                reached
            })?;
            let index = usize::try_from(step.value).unwrap_or_default();
            if index == 0 {
                return Some(begun);
            }
            let bits = byte(index.checked_add(slot / 8)? as u64)?;
            Some(bits >> (slot % 8) & 1 == 1)
        };
        kept().unwrap_or_default()
    }

    fn value(&self, function: &Function<'_>, table: u32, pc: u64) -> Option<i64> {
        let step = self.steps(function, table).find(|step| pc < step.until)?;
        function.range.contains(&pc).then_some(step.value)
    }

    /// Iterates over one of the function's tables: pairs of varints, the change of the value (zigzag) and of the pc
    /// where the value ends. The value starts at -1; a change of 0 that is not the first ends the table. Each step
    /// covers at least one instruction, which bounds their number.
    /// <https://github.com/golang/go/blob/go1.26.5/src/runtime/symtab.go#L1060-L1180>
    fn steps(&self, function: &Function<'_>, table: u32) -> impl Iterator<Item = Step> {
        let mut at = (table != 0).then_some(u64::from(table));
        let mut step = Step { value: -1, until: function.range.start };
        let end = function.range.end.min(function.range.start.saturating_add(MAX_FUNCTION));
        let mut first = true;
        std::iter::from_fn(move || {
            let (change, used) = self.pctab.varint(at?)?;
            if change == 0 && !first {
                return None;
            }
            first = false;
            let (pc_delta, next) = self.pctab.varint(at? + used)?;
            at = Some(at? + used + next);
            step.value += i64::from(change >> 1) ^ -i64::from(change & 1);
            let pc_delta = u64::from(pc_delta) * self.pc_quantum;
            let before = step.until;
            step.until = before.checked_add(pc_delta).filter(|until| (before + 1..=end).contains(until))?;
            Some(step)
        })
    }

    /// Offset of a PCDATA table of the function.
    fn table_offset(&self, function: &Function<'_>, number: u32) -> Option<u32> {
        let count = bytes::u32_at(function.func, 28)?;
        (self.with_start_line && number < count)
            .then(|| bytes::u32_at(function.func, FUNC + number as usize * 4))?
    }

    /// Address of a FUNCDATA item of the function.
    fn extra(&self, function: &Function<'_>, number: u32) -> Option<u64> {
        const NONE: u32 = u32::MAX;
        let tables = bytes::u32_at(function.func, 28)? as usize;
        if !self.with_start_line || number >= u32::from(*function.func.get(FUNC - 1)?) {
            return None;
        }
        let place = FUNC.checked_add(tables.checked_mul(4)?)?.checked_add(number as usize * 4)?;
        let offset = bytes::u32_at(function.func, place).filter(|offset| *offset != NONE)?;
        self.gofunc.checked_add(offset.into())
    }

    fn function(&self, index: usize) -> Option<Function<'a>> {
        let func = self.func(index)?;
        let name = str::from_utf8(self.name(bytes::i32_at(func, 4)?)?).ok()?;
        Some(Function { name, range: self.entry(index)?..self.entry(index + 1)?, func })
    }

    fn entry(&self, index: usize) -> Option<u64> {
        self.text.checked_add(u64::from(bytes::u32_at(&self.table, index * FUNCTION_ENTRY)?))
    }

    fn func(&self, index: usize) -> Option<&'a [u8]> {
        let offset = bytes::u32_at(&self.table, index * FUNCTION_ENTRY + 4)?;
        let func = self.funcs.from(offset.into())?.begin(MAX_FUNC)?;
        (func.len() >= FUNC).then_some(func)
    }

    fn name(&self, offset: i32) -> Option<&'a [u8]> {
        terminated(self.names.from(u64::try_from(offset).ok()?)?)
    }
}

/// The bytes up to the first zero, within the maximum length of a name.
fn terminated(bytes: Bytes<'_>) -> Option<&[u8]> {
    let bytes = bytes.begin(MAX_NAME)?;
    bytes.get(..memchr::memchr(0, bytes)?)
}
