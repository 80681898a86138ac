//! The function table, `.gopclntab`: names, entries, ranges, and how far the stack pointer has moved at a pc.

use std::ops::Range;

use crate::{Error, bytes, image::Image, module_data::ModuleData};

/// Go 1.20 to 1.27 and Go 1.18 to 1.19; the layout is the same.
/// <https://github.com/golang/go/blob/go1.26.5/src/internal/abi/symtab.go#L9-L28>
const MAGICS: [u32; 2] = [0xffff_fff1, 0xffff_fff0];
/// More functions than this is not an executable but a broken header.
const MAX_FUNCTIONS: u64 = 8 << 20;
const FUNCTION_ENTRY: usize = 8;
/// Size of the fixed part of `_func`.
const FUNC: usize = 44;

/// A function of the executable, as the runtime knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Full symbol name, for example `k8s.io/kubernetes/pkg/scheduler.(*Scheduler).bindingCycle`.
    pub name: &'a str,
    /// Addresses from its first byte to the next function's first.
    pub range: Range<u64>,
    pcsp: u32,
}

/// How far below its place at the entry the stack pointer is, up to a pc.
#[derive(Clone, Copy)]
struct StackStep {
    depth: i64,
    until: u64,
}

/// The functions of an executable. Nothing is indexed: a question costs one pass over the table.
#[derive(Debug)]
pub struct Functions<'a> {
    table: &'a [u8],
    names: &'a [u8],
    pctab: &'a [u8],
    funcs: &'a [u8],
    count: usize,
    text: u64,
}

impl<'a> Functions<'a> {
    pub(crate) fn parse(image: &Image<'a>, module: &ModuleData) -> Result<Self, Error> {
        const WHAT: &str = "function table";
        let at = module.pclntab;
        let data = image.from(WHAT, at)?;
        let magic = bytes::u32_at(data, 0).unwrap_or_default();
        if !MAGICS.contains(&magic) {
            return Err(Error::malformed(WHAT, at, format!("unknown magic {magic:#x}")));
        }
        if data.get(6..8) != Some(&[1, 8]) {
            return Err(Error::malformed(
                WHAT,
                at,
                "its pc quantum and pointer size are not those of x86-64",
            ));
        }
        let word = |offset: usize| {
            bytes::u64_at(data, offset).ok_or_else(|| Error::malformed(WHAT, at, "its header is cut off"))
        };
        let table = |offset: usize| {
            let start = word(offset)?;
            usize::try_from(start).ok().and_then(|start| data.get(start..)).ok_or_else(|| {
                Error::malformed(WHAT, at, format!("header field at {offset} points {start:#x} bytes on"))
            })
        };
        let count = word(8)?;
        let funcs = table(64)?;
        let size = (count.min(MAX_FUNCTIONS) as usize) * FUNCTION_ENTRY + 4;
        if count == 0 || count > MAX_FUNCTIONS || funcs.len() < size {
            return Err(Error::malformed(WHAT, at, format!("it claims {count} functions")));
        }
        Ok(Self {
            table: &funcs[..size],
            names: table(32)?,
            pctab: table(56)?,
            funcs,
            count: count as usize,
            text: module.text,
        })
    }

    /// How many functions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none, which no running executable has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All functions whose name passes `wanted`, in the order of their addresses. Broken entries are left out.
    pub fn matching(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<Function<'a>> {
        (0..self.count)
            .filter_map(|index| {
                let func = self.func(index)?;
                let name = self.name(func)?;
                if !wanted(name) {
                    return None;
                }
                Some(Function {
                    name: str::from_utf8(name).ok()?,
                    range: self.entry(index)?..self.entry(index + 1)?,
                    pcsp: bytes::u32_at(func, 16)?,
                })
            })
            .collect()
    }

    /// Where in `function` the instruction ends that moves the stack pointer first, or `None` if none does.
    #[must_use]
    pub fn first_stack_change(&self, function: &Function<'_>) -> Option<u64> {
        let mut steps = self.stack_steps(function);
        let first = steps.next()?;
        // A table of one step says that nothing ever changes.
        steps.next()?;
        (first.until > function.range.start && first.until < function.range.end).then_some(first.until)
    }

    /// How far below its place at the function's entry the stack pointer is when `pc` is reached, in bytes.
    #[must_use]
    pub fn stack_depth(&self, function: &Function<'_>, pc: u64) -> Option<u64> {
        let step = self.stack_steps(function).find(|step| pc < step.until)?;
        u64::try_from(step.depth).ok().filter(|_| function.range.contains(&pc))
    }

    /// The function's stack table: pairs of varints, the change of the value (zigzag) and of the pc up to which the
    /// value holds. The value starts at -1; a change of 0 that is not the first ends the table.
    /// <https://github.com/golang/go/blob/go1.26.5/src/runtime/symtab.go#L1060-L1180>
    fn stack_steps(&self, function: &Function<'_>) -> impl Iterator<Item = StackStep> {
        let mut at = (function.pcsp != 0).then_some(function.pcsp as usize);
        let mut step = StackStep { depth: -1, until: function.range.start };
        let end = function.range.end;
        std::iter::from_fn(move || {
            let (change, used) = bytes::varint(self.pctab, at?)?;
            if change == 0 && step.depth != -1 {
                return None;
            }
            let (pc_delta, next) = bytes::varint(self.pctab, at? + used)?;
            at = Some(at? + used + next);
            step.depth += i64::from(change >> 1) ^ -i64::from(change & 1);
            step.until = step.until.checked_add(u64::from(pc_delta)).filter(|until| *until <= end)?;
            Some(step)
        })
    }

    fn entry(&self, index: usize) -> Option<u64> {
        self.text.checked_add(u64::from(bytes::u32_at(self.table, index * FUNCTION_ENTRY)?))
    }

    fn func(&self, index: usize) -> Option<&'a [u8]> {
        let offset = bytes::u32_at(self.table, index * FUNCTION_ENTRY + 4)? as usize;
        self.funcs.get(offset..offset.checked_add(FUNC)?)
    }

    fn name(&self, func: &[u8]) -> Option<&'a [u8]> {
        let name = self.names.get(usize::try_from(bytes::i32_at(func, 4)?).ok()?..)?;
        name.get(..memchr::memchr(0, name)?)
    }
}
