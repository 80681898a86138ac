//! Debug information, where a build left it in: a second opinion on what the type descriptors and the function table say.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use gimli::{AttributeValue, DebuggingInformationEntry, EndianSlice, LittleEndian, Unit, constants};
use object::{Endianness, Object as _, ObjectSection as _, read::elf::ElfFile64};

use crate::Error;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The most members of a struct that are believed.
const MAX_MEMBERS: usize = 1 << 14;
/// The most bytes of a section, uncompressed, that are read: a scheduler's has 40 MB.
const MAX_SECTION: u64 = 128 << 20;

/// What debug information says about the structs and functions that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugInfo {
    /// Offsets of fields, in bytes, by struct type (with its package's path) and field.
    pub fields: BTreeMap<(String, String), u64>,
    /// Addresses of functions by their full symbol names.
    pub functions: BTreeMap<String, u64>,
}

impl DebugInfo {
    /// `None` when the file has none.
    pub(crate) fn read(
        data: &[u8],
        structs: &BTreeSet<&str>,
        functions: &BTreeSet<&str>,
    ) -> Result<Option<Self>, Error> {
        let file = ElfFile64::<Endianness>::parse(data).map_err(|error| Error::Elf(error.to_string()))?;
        if file.section_by_name(".debug_info").is_none() {
            return Ok(None);
        }
        let load = |id: gimli::SectionId| -> Result<Cow<'_, [u8]>, Error> {
            let Some(section) = file.section_by_name(id.name()) else { return Ok(Cow::Borrowed(&[])) };
            let broken = |why: String| Error::malformed("debug section", section.address(), why);
            let compressed = section.compressed_data().map_err(|error| broken(error.to_string()))?;
            if compressed.uncompressed_size > MAX_SECTION {
                return Err(broken(format!("it claims {} bytes", compressed.uncompressed_size)));
            }
            compressed.decompress().map_err(|error| broken(error.to_string()))
        };
        let sections = gimli::DwarfSections::load(load)?;
        let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
        let mut found = Self::default();
        let mut units = dwarf.units();
        while let Some(header) = units.next()? {
            found.unit(&dwarf, &dwarf.unit(header)?, structs, functions)?;
        }
        Ok(Some(found))
    }

    fn unit(
        &mut self,
        dwarf: &gimli::Dwarf<Bytes<'_>>,
        unit: &Unit<Bytes<'_>>,
        structs: &BTreeSet<&str>,
        functions: &BTreeSet<&str>,
    ) -> Result<(), Error> {
        let text = |entry: &DebuggingInformationEntry<Bytes<'_>>| -> Result<Option<String>, gimli::Error> {
            let Some(name) = entry.attr_value(constants::DW_AT_name) else { return Ok(None) };
            Ok(Some(dwarf.attr_string(unit, name)?.to_string_lossy().into_owned()))
        };
        let mut entries = unit.entries();
        // The struct whose members come next, and its depth.
        let mut owner: Option<(String, isize)> = None;
        let mut members = 0;
        while let Some(entry) = entries.next_dfs()? {
            if owner.as_ref().is_some_and(|(_, depth)| entry.depth() <= *depth) {
                owner = None;
            }
            match entry.tag() {
                constants::DW_TAG_structure_type => {
                    members = 0;
                    owner = text(entry)?
                        .filter(|name| structs.contains(name.as_str()))
                        .map(|name| (name, entry.depth()));
                }
                constants::DW_TAG_member => {
                    let Some((struct_name, _)) = owner.as_ref().filter(|_| members < MAX_MEMBERS) else {
                        continue;
                    };
                    members += 1;
                    let offset = entry.attr_value(constants::DW_AT_data_member_location);
                    if let (Some(name), Some(offset)) = (text(entry)?, offset.and_then(|at| at.udata_value()))
                    {
                        self.fields.insert((struct_name.clone(), name), offset);
                    }
                }
                constants::DW_TAG_subprogram => {
                    let Some(name) = text(entry)?.filter(|name| functions.contains(name.as_str())) else {
                        continue;
                    };
                    let address = match entry.attr_value(constants::DW_AT_low_pc) {
                        Some(AttributeValue::Addr(address)) => Some(address),
                        Some(AttributeValue::DebugAddrIndex(index)) => Some(dwarf.address(unit, index)?),
                        _ => None,
                    };
                    self.functions.extend(address.map(|address| (name, address)));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl From<gimli::Error> for Error {
    fn from(error: gimli::Error) -> Self {
        Self::Dwarf(error.to_string())
    }
}
