//! The ELF file: where the bytes of an address are.

use object::{
    Architecture, Object as _, ObjectKind, ObjectSection as _, ObjectSegment as _, SectionFlags, elf,
    read::elf::ElfFile64,
};

use crate::{Error, bytes};

/// A range of addresses with the bytes that the file has for them.
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

/// How the executable was linked, as far as it matters to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMode {
    /// Loaded at the addresses in the file.
    Static,
    /// Position independent: loaded anywhere.
    Pie,
    /// Fixed addresses, but with a dynamic loader.
    Dynamic,
}

/// Segments of an ELF file, for translating addresses.
#[derive(Debug)]
pub(crate) struct Image<'a> {
    segments: Vec<(Region<'a>, u64)>,
    sections: Vec<(&'a [u8], Region<'a>, bool)>,
    pub(crate) link_mode: LinkMode,
    pub(crate) stripped: bool,
}

impl<'a> Image<'a> {
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self, Error> {
        let file =
            ElfFile64::<object::Endianness>::parse(data).map_err(|error| Error::Elf(error.to_string()))?;
        if file.architecture() != Architecture::X86_64 {
            return Err(Error::Machine(format!("{:?}", file.architecture())));
        }
        if !matches!(file.kind(), ObjectKind::Executable | ObjectKind::Dynamic) {
            return Err(Error::Elf(format!("a file of kind {:?}, not an executable", file.kind())));
        }
        let segments = file
            .segments()
            .map(|segment| {
                let data = segment.data().map_err(|error| Error::Elf(error.to_string()))?;
                Ok((Region { address: segment.address(), data }, segment.file_range().0))
            })
            .collect::<Result<_, Error>>()?;
        let sections = file
            .sections()
            .filter_map(|section| {
                let writable = matches!(section.flags(), SectionFlags::Elf { sh_flags, .. }
                    if sh_flags.contains(elf::SHF_WRITE));
                let region = Region { address: section.address(), data: section.data().ok()? };
                Some((section.name_bytes().ok()?, region, writable))
            })
            .collect();
        let dynamic = file.section_by_name(".interp").is_some();
        let link_mode = match (file.kind(), dynamic) {
            (ObjectKind::Dynamic, _) => LinkMode::Pie,
            (_, true) => LinkMode::Dynamic,
            (_, false) => LinkMode::Static,
        };
        let stripped = file.section_by_name(".symtab").is_none();
        Ok(Self { segments, sections, link_mode, stripped })
    }

    /// A section by any of its names; PIE builds prefix some of them.
    pub(crate) fn section(&self, names: &[&str]) -> Option<Region<'a>> {
        self.sections
            .iter()
            .find(|(name, region, _)| {
                !region.data.is_empty() && names.iter().any(|wanted| wanted.as_bytes() == *name)
            })
            .map(|(_, region, _)| *region)
    }

    pub(crate) fn writable_sections(&self) -> impl Iterator<Item = Region<'a>> {
        self.sections.iter().filter(|(_, _, writable)| *writable).map(|(_, region, _)| *region)
    }

    /// The bytes from an address to the end of its segment.
    pub(crate) fn from(&self, what: &'static str, address: u64) -> Result<&'a [u8], Error> {
        self.segments
            .iter()
            .find_map(|(segment, _)| segment.from(address).filter(|data| !data.is_empty()))
            .ok_or_else(|| Error::malformed(what, address, "the address is in no segment of the file"))
    }

    pub(crate) fn bytes(&self, what: &'static str, address: u64, length: u64) -> Result<&'a [u8], Error> {
        usize::try_from(length)
            .ok()
            .and_then(|length| self.from(what, address).ok()?.get(..length))
            .ok_or_else(|| {
                Error::malformed(what, address, format!("{length} bytes reach outside the file's segments"))
            })
    }

    pub(crate) fn u64(&self, what: &'static str, address: u64) -> Result<u64, Error> {
        self.bytes(what, address, 8).map(|data| bytes::u64_at(data, 0).unwrap_or_default())
    }

    /// Where an address lies in the file, which is what a uprobe is placed by.
    pub(crate) fn file_offset(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|(segment, offset)| {
            let within = address.checked_sub(segment.address)?;
            (within < segment.data.len() as u64).then(|| offset + within)
        })
    }
}
