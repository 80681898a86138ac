//! The ELF file: maps addresses to bytes, and applies relocations.

use object::{
    Architecture, Endianness, Object as _, ObjectKind, ObjectSection as _, ObjectSegment as _, SectionFlags,
    SegmentFlags, elf,
    read::elf::{Dyn as _, ElfFile64, ProgramHeader as _},
};

use crate::{Error, bytes};

/// Upper bound of user-space addresses. Sums of addresses and sizes below it cannot overflow.
pub(crate) const MAX_ADDRESS: u64 = 1 << 47;
/// Maximum number of headers. A scheduler has 10 segments and 30 sections.
const MAX_PROGRAM_HEADERS: usize = 64;
const MAX_SECTIONS: usize = 1 << 10;
/// Maximum size of all section names.
const MAX_SECTION_NAMES: u64 = 1 << 16;
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
    pub(crate) data: &'a [u8],
}

impl<'a> Region<'a> {
    /// The bytes from an address to the region's end.
    pub(crate) fn from(&self, address: u64) -> Option<&'a [u8]> {
        self.data.get(usize::try_from(address.checked_sub(self.address)?).ok()?..)
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
}

impl<'a> Image<'a> {
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self, Error> {
        let broken = |error: object::Error| Error::Elf(error.to_string());
        let file = ElfFile64::<Endianness>::parse(data).map_err(broken)?;
        let machine = match file.architecture() {
            Architecture::X86_64 if file.is_little_endian() => Machine::Amd64,
            Architecture::Aarch64 if file.is_little_endian() => Machine::Arm64,
            other => return Err(Error::Machine(format!("{other:?}"))),
        };
        if !matches!(file.kind(), ObjectKind::Executable | ObjectKind::Dynamic) {
            return Err(Error::Elf(format!("a file of kind {:?}, not an executable", file.kind())));
        }
        check_counts(&file)?;
        let segments: Vec<_> = file
            .segments()
            .map(|segment| {
                let region = Region { address: segment.address(), data: segment.data().map_err(broken)? };
                if segment.address().saturating_add(region.data.len() as u64) > MAX_ADDRESS {
                    return Err(Error::malformed(
                        "segment",
                        region.address,
                        "its p_vaddr is not a user-space address",
                    ));
                }
                let executable = matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. }
                    if p_flags.contains(elf::PF_X));
                Ok(Segment { region, file_offset: segment.file_range().0, executable })
            })
            .collect::<Result<_, Error>>()?;
        // Overlapping segments could claim any number of bytes, which the searches through all segments would read.
        let claimed: usize = segments.iter().map(|Segment { region, .. }| region.data.len()).sum();
        if claimed > data.len() {
            let (at, why) = (file.elf_header().e_phoff.get(Endianness::Little), "p_filesz of the segments");
            return Err(Error::malformed(
                "program headers",
                at,
                format!("{why} is {claimed} bytes together, of a file of {}: they overlap", data.len()),
            ));
        }
        let sections = file
            .sections()
            .filter_map(|section| {
                let loaded = matches!(section.flags(), SectionFlags::Elf { sh_flags, .. }
                    if sh_flags.contains(elf::SHF_ALLOC));
                let region = Region { address: section.address(), data: section.data().ok()? };
                let usable = loaded && !region.data.is_empty() && region.address <= MAX_ADDRESS;
                usable.then_some((section.name_bytes().ok()?, region))
            })
            .collect();
        let headers = file.elf_program_headers();
        let interpreter = headers.iter().any(|header| header.p_type(Endianness::Little) == elf::PT_INTERP);
        let link_mode = match (file.kind(), interpreter) {
            (ObjectKind::Dynamic, _) => LinkMode::Pie,
            (_, true) => LinkMode::Dynamic,
            (_, false) => LinkMode::Static,
        };
        let stripped = file.section_by_name(".symtab").is_none();
        let entry_point = file.entry();
        let mut image =
            Self { segments, sections, relocations: Vec::new(), entry_point, machine, link_mode, stripped };
        if link_mode == LinkMode::Pie {
            image.relocations = image.read_relocations(&file)?;
        }
        Ok(image)
    }

    /// The relative relocations of a position-independent executable. Those of `DT_RELR` are applied in the file.
    fn read_relocations(&self, file: &ElfFile64<'a, Endianness>) -> Result<Vec<(u64, u64)>, Error> {
        const WHAT: &str = "relocation table";
        let endian = Endianness::Little;
        let (mut address, mut size) = (0, 0);
        let headers = file.elf_program_headers().iter();
        let dynamic = headers.filter_map(|header| header.dynamic(endian, file.data()).transpose()).next();
        let entries = dynamic.transpose().map_err(|error| Error::Elf(error.to_string()))?;
        for entry in entries.unwrap_or_default() {
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
            for entry in self.bytes(WHAT, address, size)?.chunks_exact(RELA) {
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

    /// All segments that are not code.
    pub(crate) fn data_segments(&self) -> impl Iterator<Item = Region<'a>> {
        self.segments.iter().filter(|segment| !segment.executable).map(|segment| segment.region)
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
            let found: Vec<_> = memchr::memmem::find_iter(segment.data, &needle)
                .map(|at| segment.address + at as u64)
                .filter(|address| address % 8 == 0)
                .take(MAX_PLACES)
                .collect();
            found
        });
        let relocated = self.relocations.iter().filter(move |(_, addend)| *addend == value);
        relocated.map(|(address, _)| *address).chain(in_file)
    }

    /// The bytes from an address to the end of its segment.
    pub(crate) fn from(&self, what: &'static str, address: u64) -> Result<&'a [u8], Error> {
        self.segments
            .iter()
            .find_map(|segment| segment.region.from(address).filter(|data| !data.is_empty()))
            .ok_or_else(|| Error::malformed(what, address, "the address is outside the file's segments"))
    }

    pub(crate) fn bytes(&self, what: &'static str, address: u64, length: u64) -> Result<&'a [u8], Error> {
        usize::try_from(length)
            .ok()
            .and_then(|length| self.from(what, address).ok()?.get(..length))
            .ok_or_else(|| {
                Error::malformed(what, address, format!("{length} bytes reach outside the file's segments"))
            })
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
            (within < segment.region.data.len() as u64).then(|| segment.file_offset + within)
        })
    }
}

/// Refuses implausibly long tables of headers, which most queries iterate over.
fn check_counts(file: &ElfFile64<'_, Endianness>) -> Result<(), Error> {
    let endian = Endianness::Little;
    let header = file.elf_header();
    let check = |what, at: u64, field: &str, count: u64, most: u64| {
        if count <= most {
            return Ok(());
        }
        Err(Error::malformed(what, at, format!("{field} is {count}, the limit is {most}")))
    };
    let segments = file.elf_program_headers().len() as u64;
    check(
        "program headers",
        header.e_phoff.get(endian),
        "their number, e_phnum,",
        segments,
        MAX_PROGRAM_HEADERS as u64,
    )?;
    let table = file.elf_section_table();
    let at = header.e_shoff.get(endian);
    check("section headers", at, "their number, e_shnum,", table.len() as u64, MAX_SECTIONS as u64)?;
    let names = table.section(object::SectionIndex(header.e_shstrndx.get(endian).0.into()));
    let size = names.map_or(0, |names| names.sh_size.get(endian));
    check("section headers", at, "sh_size of their names", size, MAX_SECTION_NAMES)
}
