//! The ELF file: maps addresses to bytes, and applies relocations.

use std::borrow::Cow;

use object::{
    Endianness,
    elf::{self, Dyn64, FileHeader64},
    read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, SectionHeader as _},
};

use crate::{
    Error, bytes,
    source::{Bytes, Source},
};

/// Upper bound of user-space addresses. Sums of addresses and sizes below it cannot overflow.
pub(crate) const MAX_ADDRESS: u64 = 1 << 47;
/// Maximum number of headers. A scheduler has 10 segments and 30 sections.
const MAX_PROGRAM_HEADERS: u64 = 64;
const MAX_SECTIONS: u64 = 1 << 8;
/// Maximum number of relocations. A scheduler as PIE has 300,000.
const MAX_RELOCATIONS: u64 = 4 << 20;
/// Maximum number of matches of a word in a segment.
const MAX_PLACES: usize = 64;
/// Size of `Elf64_Rela`: offset, info, addend.
const RELA: usize = 24;

/// The supported machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// x86-64, `GOARCH=amd64`.
    Amd64,
    /// AArch64, `GOARCH=arm64`.
    Arm64,
}

impl Machine {
    /// Assembler name of the n-th register in Go's sequence for integers.
    #[must_use]
    pub fn integer_register(self, index: u8) -> Option<&'static str> {
        const AMD64: [&str; 9] = ["rax", "rbx", "rcx", "rdi", "rsi", "r8", "r9", "r10", "r11"];
        const ARM64: [&str; 16] = [
            "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14",
            "x15",
        ];
        let names: &[&str] = match self {
            Self::Amd64 => &AMD64,
            Self::Arm64 => &ARM64,
        };
        names.get(usize::from(index)).copied()
    }
}

/// A range of addresses with its bytes in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region<'a> {
    pub(crate) address: u64,
    pub(crate) data: Bytes<'a>,
}

impl<'a> Region<'a> {
    /// The bytes from an address to the region's end.
    pub(crate) fn from(&self, address: u64) -> Option<Bytes<'a>> {
        self.data.from(address.checked_sub(self.address)?)
    }
}

/// How the executable was linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMode {
    /// Loaded at the addresses in the file.
    Static,
    /// Position independent: loaded anywhere.
    Pie,
    /// Fixed addresses, but with a dynamic loader.
    Dynamic,
}

#[derive(Debug)]
struct Segment<'a> {
    region: Region<'a>,
    file_offset: u64,
    executable: bool,
    writable: bool,
}

/// Segments of an ELF file, for translating addresses. Sections are only a shortcut: a file without section names is
/// readable as well.
#[derive(Debug)]
pub(crate) struct Image<'a> {
    segments: Vec<Segment<'a>>,
    sections: Vec<(&'a [u8], Region<'a>)>,
    /// Target addresses and values of relocations, less the load bias, sorted by address. The file may have zeros
    /// there.
    relocations: Vec<(u64, u64)>,
    /// Virtual address of the first instruction.
    pub(crate) entry_point: u64,
    pub(crate) machine: Machine,
    pub(crate) link_mode: LinkMode,
    pub(crate) stripped: bool,
    pub(crate) has_debug_info: bool,
}

impl<'a> Image<'a> {
    pub(crate) fn parse(source: Source<'a>) -> Result<Self, Error> {
        const ENDIAN: Endianness = Endianness::Little;
        let broken = |error: object::Error| Error::Elf(error.to_string());
        let header = FileHeader64::<Endianness>::parse(source).map_err(broken)?;
        let machine = match header.e_machine(ENDIAN) {
            _ if header.is_big_endian() => return Err(Error::Machine("big-endian".into())),
            elf::EM_X86_64 => Machine::Amd64,
            elf::EM_AARCH64 => Machine::Arm64,
            other => return Err(Error::Machine(format!("{other:?}"))),
        };
        let is_dynamic = match header.e_type(ENDIAN) {
            elf::ET_EXEC => false,
            elf::ET_DYN => true,
            other => return Err(Error::Elf(format!("a file of type {other:?}, not an executable"))),
        };
        check_counts(header, source)?;
        let headers = header.program_headers(ENDIAN, source).map_err(broken)?;
        let loaded = headers.iter().filter(|header| header.p_type(ENDIAN) == elf::PT_LOAD);
        let segments: Vec<_> = loaded
            .map(|header| {
                let (file_offset, length) = header.file_range(ENDIAN);
                let address = header.p_vaddr(ENDIAN);
                let data = source.all().part(file_offset, length).ok_or_else(|| {
                    Error::Elf(format!("the segment at {address:#x} ends behind the end of the file"))
                })?;
                if address.saturating_add(length) > MAX_ADDRESS {
                    return Err(Error::malformed(
                        "segment",
                        address,
                        "its p_vaddr is not a user-space address",
                    ));
                }
                let is = |flag| header.p_flags(ENDIAN).contains(flag);
                let (executable, writable) = (is(elf::PF_X), is(elf::PF_W));
                Ok(Segment { region: Region { address, data }, file_offset, executable, writable })
            })
            .collect::<Result<_, Error>>()?;
        // Overlapping segments could claim any number of bytes, which the searches through all segments would read.
        let claimed: u64 = segments.iter().map(|Segment { region, .. }| region.data.len()).sum();
        if claimed > source.len() {
            let (at, why) = (header.e_phoff(ENDIAN), "p_filesz of the segments");
            return Err(Error::malformed(
                "program headers",
                at,
                format!("{why} is {claimed} bytes together, of a file of {}: they overlap", source.len()),
            ));
        }
        let section_headers = header.sections(ENDIAN, source).map_err(broken)?;
        let (mut sections, mut stripped, mut has_debug_info) = (Vec::new(), true, false);
        for section in section_headers.iter() {
            stripped &= section.sh_type(ENDIAN) != elf::SHT_SYMTAB;
            let Ok(name) = section_headers.section_name(ENDIAN, section) else { continue };
            has_debug_info |= [&b".debug_info"[..], b".zdebug_info"].contains(&name);
            let loaded = section.sh_flags(ENDIAN).contains(elf::SHF_ALLOC);
            let range = section.file_range(ENDIAN);
            let data = range.and_then(|(offset, length)| source.all().part(offset, length));
            let Some(data) = data.filter(|data| loaded && !data.is_empty()) else { continue };
            let address = section.sh_addr(ENDIAN);
            if address <= MAX_ADDRESS {
                sections.push((name, Region { address, data }));
            }
        }
        let interpreter = headers.iter().any(|header| header.p_type(ENDIAN) == elf::PT_INTERP);
        let link_mode = match (is_dynamic, interpreter) {
            (true, _) => LinkMode::Pie,
            (false, true) => LinkMode::Dynamic,
            (false, false) => LinkMode::Static,
        };
        let entry_point = header.e_entry(ENDIAN);
        let relocations = Vec::new();
        let mut image = Self {
            segments,
            sections,
            relocations,
            entry_point,
            machine,
            link_mode,
            stripped,
            has_debug_info,
        };
        if link_mode == LinkMode::Pie {
            let dynamic =
                headers.iter().filter_map(|header| header.dynamic(ENDIAN, source).transpose()).next();
            let dynamic = dynamic.transpose().map_err(broken)?.unwrap_or_default();
            image.relocations = image.read_relocations(dynamic)?;
        }
        Ok(image)
    }

    /// The relative relocations of a position-independent executable. Those of `DT_RELR` are applied in the file.
    fn read_relocations(&self, dynamic: &[Dyn64<Endianness>]) -> Result<Vec<(u64, u64)>, Error> {
        const WHAT: &str = "relocation table";
        let endian = Endianness::Little;
        let (mut address, mut size) = (0, 0);
        for entry in dynamic {
            match entry.tag(endian) {
                elf::DT_RELA => address = entry.d_val(endian),
                elf::DT_RELASZ => size = entry.d_val(endian),
                _ => {}
            }
        }
        if size / RELA as u64 > MAX_RELOCATIONS {
            return Err(Error::malformed(WHAT, address, format!("its DT_RELASZ claims {size} bytes")));
        }
        let relative = match self.machine {
            Machine::Amd64 => elf::R_X86_64_RELATIVE.0,
            Machine::Arm64 => elf::R_AARCH64_RELATIVE.0,
        };
        let mut relocations = Vec::new();
        if size > 0 {
            for entry in self.read(WHAT, address, size)?.chunks_exact(RELA) {
                let word = |at| bytes::u64_at(entry, at).unwrap_or_default();
                if word(8) as u32 == relative {
                    relocations.push((word(0), word(16)));
                }
            }
        }
        if !relocations.is_sorted() {
            relocations.sort_unstable();
        }
        Ok(relocations)
    }

    /// A section by any of its names. PIE builds prefix some of them.
    pub(crate) fn section(&self, names: &[&str]) -> Option<Region<'a>> {
        self.sections
            .iter()
            .find(|(name, _)| names.iter().any(|wanted| wanted.as_bytes() == *name))
            .map(|(_, region)| *region)
    }

    /// All segments that are not code. Those that the program writes come first: they are small, and have what is searched.
    pub(crate) fn data_segments(&self) -> impl Iterator<Item = Region<'a>> {
        let (written, constant): (Vec<_>, Vec<_>) =
            self.segments.iter().filter(|segment| !segment.executable).partition(|segment| segment.writable);
        written.into_iter().chain(constant).map(|segment| segment.region)
    }

    /// Whether an address is in code.
    pub(crate) fn is_code(&self, address: u64) -> bool {
        self.segments.iter().any(|segment| {
            segment.executable && segment.region.from(address).is_some_and(|data| !data.is_empty())
        })
    }

    /// Addresses of words that have this value after loading: the first few of each segment.
    pub(crate) fn words_of(&self, value: u64) -> impl Iterator<Item = u64> {
        let needle = value.to_le_bytes();
        let in_file = self.data_segments().flat_map(move |segment| {
            let aligned = |at: u64| (segment.address + at).is_multiple_of(8);
            let places = segment.data.places(&needle, MAX_PLACES, aligned);
            places.into_iter().map(move |at| segment.address + at)
        });
        let relocated = self.relocations.iter().filter(move |(_, addend)| *addend == value);
        relocated.map(|(address, _)| *address).chain(in_file)
    }

    /// What stands from an address to the end of its segment.
    pub(crate) fn from(&self, what: &'static str, address: u64) -> Result<Bytes<'a>, Error> {
        self.segments
            .iter()
            .find_map(|segment| segment.region.from(address).filter(|data| !data.is_empty()))
            .ok_or_else(|| Error::malformed(what, address, "the address is outside the file's segments"))
    }

    /// A range of addresses, of which nothing is read yet.
    pub(crate) fn part(&self, what: &'static str, address: u64, length: u64) -> Result<Bytes<'a>, Error> {
        let part = self.from(what, address).ok().and_then(|data| data.part(0, length));
        part.ok_or_else(|| outside(what, address, length))
    }

    /// Reads a few bytes: at most [`MAX_PIECE`](crate::source::MAX_PIECE).
    pub(crate) fn bytes(&self, what: &'static str, address: u64, length: u64) -> Result<&'a [u8], Error> {
        self.part(what, address, length)?.get(0, length).ok_or_else(|| outside(what, address, length))
    }

    /// Reads any number of bytes, again each time.
    pub(crate) fn read(&self, what: &'static str, address: u64, length: u64) -> Result<Cow<'a, [u8]>, Error> {
        self.part(what, address, length)?.read(0, length).ok_or_else(|| outside(what, address, length))
    }

    /// Reads a word that is a number, not an address.
    pub(crate) fn u64(&self, what: &'static str, address: u64) -> Result<u64, Error> {
        self.bytes(what, address, 8).map(|data| bytes::u64_at(data, 0).unwrap_or_default())
    }

    /// Reads a word that is an address, with its relocation, less the load bias.
    pub(crate) fn pointer(&self, what: &'static str, address: u64) -> Result<u64, Error> {
        match self.relocations.binary_search_by_key(&address, |(at, _)| *at) {
            Ok(index) => Ok(self.relocations[index].1),
            Err(_) => self.u64(what, address),
        }
    }

    /// File offset of an address, which a uprobe needs.
    pub(crate) fn file_offset(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let within = address.checked_sub(segment.region.address)?;
            (within < segment.region.data.len()).then(|| segment.file_offset + within)
        })
    }
}

fn outside(what: &'static str, address: u64, length: u64) -> Error {
    Error::malformed(what, address, format!("{length} bytes reach outside the file's segments"))
}

/// Refuses implausibly long tables of headers, which most queries iterate over.
fn check_counts(header: &FileHeader64<Endianness>, source: Source<'_>) -> Result<(), Error> {
    let endian = Endianness::Little;
    let broken = |error: object::Error| Error::Elf(error.to_string());
    let check = |what, at: u64, field: &str, count: u64, most: u64| {
        if count <= most {
            return Ok(());
        }
        Err(Error::malformed(what, at, format!("{field} is {count}, the limit is {most}")))
    };
    let segments = u64::from(header.phnum(endian, source).map_err(broken)?);
    check(
        "program headers",
        header.e_phoff(endian),
        "their number, e_phnum,",
        segments,
        MAX_PROGRAM_HEADERS,
    )?;
    let sections = u64::from(header.shnum(endian, source).map_err(broken)?);
    check("section headers", header.e_shoff(endian), "their number, e_shnum,", sections, MAX_SECTIONS)
}
