//! Renders the machine code around the sites of a function.

use std::fmt::Write as _;

use goexe::{Class, Executable, Machine, Source};
use wire::{GOROUTINE, LINK, READ_TEXT, READ_TEXT_IN_REGISTERS, Read, STACK_POINTER};

use super::{Error, Plan, PlannedSite, name};
use crate::program::Program;

/// Instructions shown before and after a site.
const AROUND: usize = 6;

/// The code around the sites of all matching functions. `wanted` is schedspan's name, such as `preFilter`, or the end
/// of a symbol, such as `RunPreFilterPlugins`.
///
/// # Errors
///
/// When the executable cannot be read, or no probed function matches.
pub fn explain<P: Program>(source: Source<'_>, wanted: &str) -> Result<String, Error> {
    let plan = Plan::<P>::of(source)?;
    let executable = Executable::parse(source)?;
    let functions = executable.functions()?;
    let mut text = String::new();
    for site in &plan.sites {
        let called = name(site.function) == wanted
            || site.symbol.rsplit(['.', '/']).next() == Some(wanted)
            || site.symbol == wanted;
        let Some(function) = functions.at(site.address).filter(|_| called) else { continue };
        let (file, line) = functions.source(&function, site.address).unwrap_or(("?", 0));
        let file = file.rsplit('/').next().unwrap_or(file);
        let _ = writeln!(
            text,
            "{} {}: in {}, {file}:{line}",
            name(site.function),
            name(site.role),
            function.name
        );
        let list = executable.instructions(&function)?;
        let Some(place) = list.iter().position(|(instruction, _)| instruction.address == site.address) else {
            continue;
        };
        for (instruction, assembler) in
            &list[place.saturating_sub(AROUND)..list.len().min(place + AROUND + 1)]
        {
            let here = instruction.address == site.address;
            let class = match instruction.class {
                Class::Emulated => "emulated",
                Class::SingleStepped => "",
            };
            let callee = instruction.target.filter(|target| !function.range.contains(target));
            let callee = callee.and_then(|target| functions.at(target));
            let note = callee.map(|callee| format!("<{}>", callee.name)).unwrap_or_default();
            let _ = writeln!(
                text,
                "{} {:#10x}  {:<44} {class:<9} {note}",
                if here { ">>" } else { "  " },
                instruction.address,
                assembler,
            );
        }
        reads(&mut text, site, executable.machine());
        text.push('\n');
    }
    if text.is_empty() { Err(Error::NotProbed(wanted.to_owned())) } else { Ok(text) }
}

fn reads<P: Program>(text: &mut String, site: &PlannedSite<P>, machine: Machine) {
    for ((reading, _), read) in site.values.iter().zip(&site.spec.reads) {
        let _ = writeln!(text, "   reads {} from {}", reading.name(), way(read, machine));
    }
    let _ = writeln!(
        text,
        "   the stack pointer is {} bytes {} its value at the call",
        site.stack_depth.abs(),
        if site.stack_depth < 0 { "above" } else { "below" }
    );
}

/// The pointers that a read follows, in C syntax.
fn way(read: &Read, machine: Machine) -> String {
    let register = |number: u8| match number {
        STACK_POINTER => "sp",
        GOROUTINE => "g",
        LINK => "lr",
        _ => machine.integer_register(number).unwrap_or("?"),
    };
    let mut way = register(read.base).to_owned();
    for offset in read.offsets.iter().take(read.steps.into()) {
        way = format!("*({way} + {offset:#x})");
    }
    match read.kind {
        READ_TEXT => format!("the string at {way} + {:#x}", read.last),
        READ_TEXT_IN_REGISTERS => format!("the string at {way} of length {}", register(read.base + 1)),
        _ => way,
    }
}

#[cfg(test)]
mod tests {
    use wire::READ_WORD;

    use super::*;

    #[test]
    fn a_read_is_written_as_the_pointers_that_it_follows() {
        let mut read = Read { base: 5, steps: 2, ..Read::default() };
        (read.offsets[0], read.offsets[1]) = (0x10, 8);
        assert_eq!(way(&read, Machine::Amd64), "*(*(r8 + 0x10) + 0x8)");
        assert_eq!(way(&Read { kind: READ_TEXT_IN_REGISTERS, ..Read::default() }, Machine::Arm64), {
            "the string at x0 of length x1"
        });
        read = Read { base: STACK_POINTER, steps: 1, kind: READ_TEXT, last: 16, ..Read::default() };
        assert_eq!(way(&read, Machine::Amd64), "the string at *(sp + 0x0) + 0x10");
        read = Read { base: GOROUTINE, kind: READ_WORD, ..read };
        assert_eq!(way(&read, Machine::Arm64), "*(g + 0x0)");
    }
}
