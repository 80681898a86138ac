//! Debug information, in builds that keep it: a second source beside the type descriptors and the function table, and
//! the only one for the parameters of functions that no type descriptor describes.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry, EndianSlice, LittleEndian, Unit, UnitHeader,
    constants,
};
use object::{Endianness, Object as _, ObjectSection as _, read::elf::ElfFile64};

use crate::Error;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Maximum number of a struct's members.
const MAX_MEMBERS: usize = 1 << 14;
/// Maximum number of parameters of all functions together.
const MAX_PARAMETERS: usize = 1 << 14;
/// Maximum uncompressed size of a section, in bytes. A scheduler's has 40 MB.
const MAX_SECTION: u64 = 128 << 20;

/// Debug information about the requested structs and functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugInfo {
    /// Offsets of fields, in bytes, by struct type (with its package's path) and field.
    pub fields: BTreeMap<(String, String), u64>,
    /// Functions by their full symbol names.
    pub functions: BTreeMap<String, DebugFunction>,
}

/// Debug information about a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugFunction {
    /// Address of its first instruction.
    pub address: u64,
    /// Types of its parameters in order, receiver first, with the package's path, as in `*k8s.io/api/core/v1.Pod`.
    /// `None` for an unnamed type.
    pub parameters: Vec<Option<String>>,
}

impl DebugInfo {
    /// Reads the debug information; `None` if the file has none.
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
        let mut parameters = Vec::new();
        let mut headers = Vec::new();
        let mut units = dwarf.units();
        while let Some(header) = units.next()? {
            found.unit(&dwarf, &dwarf.unit(header)?, structs, functions, &mut parameters)?;
            headers.push(header);
        }
        for (function, typ) in parameters {
            let name = type_name(&dwarf, &headers, typ)?;
            if let Some(function) = found.functions.get_mut(&function) {
                function.parameters.push(name);
            }
        }
        Ok(Some(found))
    }

    fn unit(
        &mut self,
        dwarf: &gimli::Dwarf<Bytes<'_>>,
        unit: &Unit<Bytes<'_>>,
        structs: &BTreeSet<&str>,
        functions: &BTreeSet<&str>,
        parameters: &mut Vec<(String, DebugInfoOffset)>,
    ) -> Result<(), Error> {
        let text = |entry: &DebuggingInformationEntry<Bytes<'_>>| -> Result<Option<String>, gimli::Error> {
            let Some(name) = entry.attr_value(constants::DW_AT_name) else { return Ok(None) };
            Ok(Some(dwarf.attr_string(unit, name)?.to_string_lossy().into_owned()))
        };
        let mut entries = unit.entries();
        // The struct whose members follow, and its depth.
        let mut owner: Option<(String, isize)> = None;
        let mut members = 0;
        // The function whose parameters follow, and its depth.
        let mut function: Option<(String, isize)> = None;
        while let Some(entry) = entries.next_dfs()? {
            if owner.as_ref().is_some_and(|(_, depth)| entry.depth() <= *depth) {
                owner = None;
            }
            if function.as_ref().is_some_and(|(_, depth)| entry.depth() <= *depth) {
                function = None;
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
                    if let Some(address) = address {
                        function = Some((name.clone(), entry.depth()));
                        self.functions.insert(name, DebugFunction { address, parameters: Vec::new() });
                    }
                }
                constants::DW_TAG_formal_parameter => {
                    // Parameters of inlined functions have a greater depth.
                    let own = function.as_ref().filter(|(_, depth)| entry.depth() == depth + 1);
                    let Some((name, _)) = own.filter(|_| parameters.len() < MAX_PARAMETERS) else { continue };
                    let is_result = entry.attr_value(constants::DW_AT_variable_parameter);
                    if matches!(is_result, Some(AttributeValue::Flag(true))) {
                        continue;
                    }
                    let typ = match entry.attr_value(constants::DW_AT_type) {
                        Some(AttributeValue::DebugInfoRef(offset)) => Some(offset),
                        Some(AttributeValue::UnitRef(offset)) => offset.to_debug_info_offset(&unit.header),
                        _ => None,
                    };
                    parameters.extend(typ.map(|typ| (name.clone(), typ)));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Name of the type at an offset.
fn type_name<'a>(
    dwarf: &gimli::Dwarf<Bytes<'a>>,
    headers: &[UnitHeader<Bytes<'a>>],
    typ: DebugInfoOffset,
) -> Result<Option<String>, Error> {
    let start = |header: &UnitHeader<Bytes<'a>>| header.debug_info_offset();
    let place = headers.partition_point(|header| start(header).is_some_and(|start| start <= typ));
    let Some(header) = place.checked_sub(1).and_then(|place| headers.get(place)) else { return Ok(None) };
    let Some(offset) = typ.to_unit_offset(header) else { return Ok(None) };
    let unit = dwarf.unit(*header)?;
    let entry = unit.entry(offset)?;
    let Some(name) = entry.attr_value(constants::DW_AT_name) else { return Ok(None) };
    Ok(Some(dwarf.attr_string(&unit, name)?.to_string_lossy().into_owned()))
}

impl From<gimli::Error> for Error {
    fn from(error: gimli::Error) -> Self {
        Self::Dwarf(error.to_string())
    }
}
