//! The parts of an executable that are read, found without goexe's own idea of them where that is easy.

use std::{collections::BTreeMap, ops::Range};

use goexe::{Executable, Function};

/// Functions and types of the program itself that are places, of each.
const MAX_OF_EACH: usize = 16;
const ELF_HEADER: Range<usize> = 0..64;
/// Bytes of a place whose length is not known.
const LENGTH: usize = 96;

/// Small sections that are read, or tables whose beginning matters most: name, bytes.
const SECTIONS: [(&str, usize); 12] = [
    (".go.buildinfo", 512),
    (".data.rel.ro.go.buildinfo", 512),
    (".go.module", 512),
    (".data.rel.ro.go.module", 512),
    (".gopclntab", 72),
    (".data.rel.ro.gopclntab", 72),
    (".typelink", 256),
    (".itablink", 256),
    (".dynamic", 512),
    (".note.gnu.build-id", 64),
    (".note.go.buildid", 64),
    (".rela.dyn", 256),
];

/// Types of the seeds, by the strings that they or pointers to them have.
const TYPES: [&str; 14] = [
    "*main.Outer",
    "*main.Inner",
    "*main.Meta",
    "*main.impl",
    "*main.Worker",
    "*func(*main.Outer, string) (int, error)",
    "*fmt.Stringer",
    "*error",
    "*string",
    "*runtime.g",
    "*scheduler.Scheduler",
    "*framework.Framework",
    "*framework.Plugin",
    "*framework.QueuedPodInfo",
];

fn u16_at(data: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_le_bytes(data.get(at..at + 2)?.try_into().ok()?).into())
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?))
}

/// Offsets of headers: where the table begins, bytes of each, how many.
fn headers(data: &[u8], (start, size, count): (usize, usize, usize)) -> Vec<usize> {
    let table = || Some((u64_at(data, start)? as usize, u16_at(data, size)?, u16_at(data, count)?));
    let (start, size, count) = table().unwrap_or_default();
    (0..count).map(|index| start + index * size).collect()
}

fn program_headers(data: &[u8]) -> Vec<usize> {
    headers(data, (0x20, 0x36, 0x38))
}

/// Name, type and range of each section.
fn sections(data: &[u8]) -> Vec<(String, u32, Range<usize>)> {
    let all = headers(data, (0x28, 0x3a, 0x3c));
    let range = |header: usize| {
        let (start, size) = (u64_at(data, header + 24)? as usize, u64_at(data, header + 32)? as usize);
        Some(start..start.checked_add(size).filter(|end| *end <= data.len())?)
    };
    let names = u16_at(data, 0x3e).and_then(|index| range(*all.get(index)?)).unwrap_or_default();
    let section = |header: usize| {
        let name = data[names.clone()].get(u32_at(data, header)? as usize..)?;
        let name = name.split(|byte| *byte == 0).next()?;
        Some((String::from_utf8_lossy(name).into_owned(), u32_at(data, header + 4)?, range(header)?))
    };
    all.into_iter().filter_map(section).collect()
}

/// The loaded parts of the file with their addresses.
pub(super) fn segments(data: &[u8]) -> Vec<(Range<usize>, u64)> {
    const LOAD: u32 = 1;
    let segment = |header: usize| {
        let (start, size) = (u64_at(data, header + 8)? as usize, u64_at(data, header + 32)? as usize);
        (u32_at(data, header)? == LOAD).then_some((start..start + size, u64_at(data, header + 16)?))
    };
    program_headers(data).into_iter().filter_map(segment).collect()
}

/// The address of a byte of the file.
pub(super) fn address(segments: &[(Range<usize>, u64)], offset: usize) -> Option<u64> {
    let (range, address) = segments.iter().find(|(range, _)| range.contains(&offset))?;
    Some(address + (offset - range.start) as u64)
}

/// By the offset that the loader writes to, the offset of what it writes.
pub(super) fn relocations(data: &[u8], segments: &[(Range<usize>, u64)]) -> BTreeMap<usize, usize> {
    const RELA: u32 = 4;
    const ENTRY: usize = 24;
    let offset = |address: u64| {
        segments.iter().find_map(|(range, start)| {
            Some(range.start + address.checked_sub(*start)? as usize).filter(|at| range.contains(at))
        })
    };
    let tables = sections(data).into_iter().filter(|(_, kind, _)| *kind == RELA);
    tables
        .flat_map(|(_, _, range)| range.step_by(ENTRY))
        .filter_map(|entry| Some((offset(u64_at(data, entry)?)?, entry + 16)))
        .collect()
}

/// A word of `runtime.moduledata`, as the loader leaves it.
fn module_word(data: &[u8], word: usize) -> Option<u64> {
    let all = sections(data);
    let (_, _, module) = all.iter().find(|(name, _, _)| name.ends_with(".go.module"))?;
    let at = module.start + word;
    let relocated = relocations(data, &segments(data)).get(&at).copied();
    u64_at(data, relocated.unwrap_or(at))
}

/// What type and name offsets count from.
pub(super) fn types(data: &[u8], executable: &Executable<'_>) -> Option<u64> {
    const TYPES: usize = 296;
    executable.build_info().go_minor().filter(|minor| *minor >= 26).and_then(|_| module_word(data, TYPES))
}

/// All places, in an order that does not depend on addresses. None is empty.
pub(super) fn all(data: &[u8], executable: &Executable<'_>, types: u64) -> Vec<Range<usize>> {
    let mut places = vec![ELF_HEADER];
    places.extend(program_headers(data).into_iter().map(|header| header..header + 56));
    places.extend(headers(data, (0x28, 0x3a, 0x3c)).into_iter().map(|header| header..header + 64));
    let sections = sections(data);
    for (wanted, length) in SECTIONS {
        let found = sections.iter().filter(|(name, _, _)| name == wanted);
        places.extend(found.map(|(_, _, range)| range.start..range.end.min(range.start + length)));
    }
    places.extend(TYPES.into_iter().flat_map(|name| descriptors(data, executable, types, name)));
    places.extend(itabs(executable));
    let table = sections.iter().find(|(name, _, _)| name.ends_with("gopclntab"));
    if let Some((_, _, table)) = table {
        for function in chosen(executable) {
            places.extend(of_function(data, executable, table.start, &function));
        }
    }
    places.retain(|range| !range.is_empty() && range.end <= data.len());
    places
}

/// Descriptors of types with this string, and the string.
fn descriptors(data: &[u8], executable: &Executable<'_>, types: u64, name: &str) -> Vec<Range<usize>> {
    const KIND: usize = 23;
    const STRING: usize = 40;
    const KINDS: Range<u8> = 1..27;
    let text: Vec<u8> = [name.len() as u8].into_iter().chain(name.bytes()).collect();
    let Some(start) = executable.file_offset(types).map(|start| start as usize) else { return Vec::new() };
    let names = memchr::memmem::find_iter(&data[start..], &text).map(|at| at - 1);
    let mut places = Vec::new();
    for name in names.take(MAX_OF_EACH) {
        let wanted = (name as u32).to_le_bytes();
        let found = memchr::memmem::find_iter(&data[start..], &wanted)
            .filter_map(|at| start.checked_add(at)?.checked_sub(STRING))
            .filter(|at| *at >= start && (at - start).is_multiple_of(8))
            .filter(|at| KINDS.contains(&(data[at + KIND] & 31)));
        let found: Vec<_> = found.take(MAX_OF_EACH).map(|at| at..at + 2 * LENGTH).collect();
        if !found.is_empty() {
            places.extend(found);
            places.push(start + name..start + name + text.len() + 1);
        }
    }
    places
}

/// The first itabs, and those of the program itself.
fn itabs(executable: &Executable<'_>) -> Vec<Range<usize>> {
    let types = executable.types();
    let itabs = types.itabs().unwrap_or_default();
    let own = itabs.iter().filter(|itab| types.package(&itab.interface) == Ok(Some("main")));
    itabs
        .iter()
        .take(2)
        .chain(own.take(MAX_OF_EACH))
        .filter_map(|itab| executable.file_offset(itab.address))
        .map(|at| at as usize..at as usize + 48)
        .collect()
}

/// The program's own functions.
fn chosen<'a>(executable: &'a Executable<'_>) -> Vec<Function<'a>> {
    let functions = executable.functions().expect("a seed has functions");
    let own = functions
        .matching(|name| name.starts_with(b"main.") || name.starts_with(b"k8s.io/kubernetes/pkg/scheduler"));
    own.into_iter().take(MAX_OF_EACH).collect()
}

/// Of a function: its entry in the table, what the table says of it, its stack, file and line tables, its code.
fn of_function(
    data: &[u8],
    executable: &Executable<'_>,
    table: usize,
    function: &Function<'_>,
) -> Vec<Range<usize>> {
    const ENTRY: usize = 8;
    let find = || {
        let count = u64_at(data, table + 8)? as usize;
        let (names, pctab) = (u64_at(data, table + 32)? as usize, u64_at(data, table + 56)? as usize);
        let funcs = table + u64_at(data, table + 64)? as usize;
        let mut entries = (0..count).map(|index| funcs + index * ENTRY);
        let (entry, record) = entries.find_map(|entry| {
            let record = funcs + u32_at(data, entry + 4)? as usize;
            let name = data.get(table + names + u32_at(data, record + 4)? as usize..)?;
            let same =
                name.starts_with(function.name.as_bytes()) && name.get(function.name.len()) == Some(&0);
            same.then_some((entry, record))
        })?;
        let mut places = vec![entry..entry + 2 * ENTRY, record..record + 64];
        for field in [16, 20, 24] {
            let start = table + pctab + u32_at(data, record + field)? as usize;
            places.push(start..start + LENGTH);
        }
        let code = executable.file_offset(function.range.start)? as usize;
        let length = (function.range.end - function.range.start) as usize;
        places.push(code..code + length.min(4 * LENGTH));
        Some(places)
    };
    find().unwrap_or_default()
}
