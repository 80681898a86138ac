//! `runtime.moduledata`: the addresses of the runtime's tables.

use crate::{
    BuildInfo, Error, Machine, bytes,
    image::{Image, MAX_ADDRESS},
};

/// Offsets that have not moved since Go 1.16; see
/// <https://github.com/golang/go/blob/go1.26.5/src/runtime/symtab.go#L405-L466>.
const MIN_PC: u64 = 160;
const MAX_PC: u64 = 168;
const TEXT: u64 = 176;

/// Maximum number of types, and of lists of them. A scheduler has 50,000.
const MAX_TYPES: u64 = 1 << 20;
/// Maximum number of candidates for the function table and for the structure.
const MAX_CANDIDATES: usize = 16;

/// Magics of Go 1.20 to 1.27, and of Go 1.18 to 1.19, which have the same layout.
/// <https://github.com/golang/go/blob/go1.26.5/src/internal/abi/symtab.go#L9-L28>
const MAGICS: [u32; 2] = [0xffff_fff1, 0xffff_fff0];

/// Offsets that moved between Go minor versions. They are verified against the executable.
struct Layout {
    minors: std::ops::RangeInclusive<u32>,
    types: u64,
    etypes: u64,
    gofunc: u64,
    lists: Lists,
}

/// Offsets of the fields that locate the lists of types and itabs.
enum Lists {
    /// Offsets of the slices `typelinks` and `itablinks`.
    Links(u64, u64),
    /// Offsets of `typedesclen`, `itaboffset` and `itabsize`: from Go 1.27 on, descriptors and itabs are contiguous
    /// (<https://github.com/golang/go/blob/go1.27.3/src/runtime/symtab.go>).
    Ranges(u64, u64, u64),
}

const LAYOUTS: [Layout; 4] = [
    Layout { minors: 27..=27, types: 296, etypes: 312, gofunc: 344, lists: Lists::Ranges(304, 320, 328) },
    Layout { minors: 26..=26, types: 296, etypes: 304, gofunc: 320, lists: Lists::Links(360, 384) },
    Layout { minors: 20..=25, types: 296, etypes: 304, gofunc: 320, lists: Lists::Links(352, 376) },
    Layout { minors: 18..=19, types: 280, etypes: 288, gofunc: 304, lists: Lists::Links(336, 360) },
];

/// A list of type descriptors or itabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// Address and length of a slice of references to them.
    Links(u64, u64),
    /// Start and end of the addresses that they occupy.
    Range(u64, u64),
}

/// The runtime's module data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModuleData {
    /// Address of the function table's header.
    pub(crate) pclntab: u64,
    /// Base of function addresses. Not always the address of `.text`.
    pub(crate) text: u64,
    /// Base of type and name offsets, and their end.
    pub(crate) types: u64,
    pub(crate) etypes: u64,
    /// Base of the function table's FUNCDATA offsets.
    pub(crate) gofunc: u64,
    /// The unnamed types, sorted by their string; from Go 1.27 on all types, unsorted.
    pub(crate) type_list: List,
    pub(crate) itab_list: List,
}

impl ModuleData {
    pub(crate) fn find(image: &Image<'_>, build_info: &BuildInfo) -> Result<Self, Error> {
        // A development build has no version. Then the newest layout that fits the executable is used.
        let minor = build_info.go_minor();
        let layouts: Vec<_> = LAYOUTS
            .iter()
            .filter(|layout| minor.is_none_or(|minor| layout.minors.contains(&minor)))
            .collect();
        if layouts.is_empty() {
            return Err(Error::GoVersion {
                version: build_info.go_version.clone(),
                reason: "Go 1.18 to 1.27 are supported".into(),
            });
        }
        let mut last = Error::NotGo("it has no function table".into());
        for pclntab in function_tables(image).into_iter().take(MAX_CANDIDATES) {
            last = Error::NotGo("no runtime.moduledata points to its function table".into());
            // From Go 1.26 on the structure has its own section. Before, it is found by its first word.
            let section =
                image.section(&[".go.module", ".data.rel.ro.go.module"]).map(|section| section.address);
            for at in section.into_iter().chain(image.words_of(pclntab).take(MAX_CANDIDATES)) {
                for layout in &layouts {
                    match Self::read(image, at, layout, pclntab) {
                        Ok(module) => return Ok(module),
                        Err(error) if section == Some(at) => last = error,
                        Err(_) => {}
                    }
                }
            }
        }
        Err(last)
    }

    fn read(image: &Image<'_>, at: u64, layout: &Layout, pclntab: u64) -> Result<Self, Error> {
        const WHAT: &str = "moduledata";
        let broken = |why: &str| Error::malformed(WHAT, at, why);
        let pointer = |offset: u64| image.pointer(WHAT, at.saturating_add(offset));
        let number = |offset: u64| image.u64(WHAT, at.saturating_add(offset));
        if pointer(0)? != pclntab {
            return Err(broken("its first word is not the function table's address"));
        }
        let (text, min_pc, max_pc) = (pointer(TEXT)?, pointer(MIN_PC)?, pointer(MAX_PC)?);
        let (types, etypes) = (pointer(layout.types)?, pointer(layout.etypes)?);
        if !(text <= min_pc && min_pc < max_pc && types < etypes) || max_pc.max(etypes) > MAX_ADDRESS {
            return Err(broken("its address ranges contradict each other"));
        }
        if !image.is_code(text) {
            return Err(broken("its text is not in code"));
        }
        let links = |offset: u64, size: u64| {
            let (address, length, capacity) = (pointer(offset)?, number(offset + 8)?, number(offset + 16)?);
            if length > MAX_TYPES || length != capacity {
                return Err(Error::malformed(
                    WHAT,
                    at,
                    format!("its list at offset {offset} claims {length} types of {capacity}"),
                ));
            }
            image.part(WHAT, address, length * size)?;
            Ok(List::Links(address, length))
        };
        let (type_list, itab_list) = match layout.lists {
            Lists::Links(type_links, itab_links) => (links(type_links, 4)?, links(itab_links, 8)?),
            Lists::Ranges(types_size, itabs, itabs_size) => {
                let range = |start: u64, size: u64| {
                    let start = types.checked_add(start).filter(|start| *start <= etypes)?;
                    let end = start.checked_add(size).filter(|end| *end <= etypes)?;
                    Some(List::Range(start, end))
                };
                // The first word is not a descriptor, because no type has the offset 0.
                let type_list = number(types_size)?.checked_sub(8).and_then(|size| range(8, size));
                let itab_list = range(number(itabs)?, number(itabs_size)?);
                type_list.zip(itab_list).ok_or_else(|| broken("its lists of types lie outside the types"))?
            }
        };
        let gofunc = pointer(layout.gofunc)?;
        Ok(Self { pclntab, text, types, etypes, gofunc, type_list, itab_list })
    }
}

/// Candidate addresses of the function table: its section's, or those that match its header.
fn function_tables(image: &Image<'_>) -> Vec<u64> {
    if let Some(section) = image.section(&[".gopclntab", ".data.rel.ro.gopclntab"]) {
        return vec![section.address];
    }
    let mut found = Vec::new();
    for segment in image.data_segments() {
        for magic in MAGICS {
            let mut header = [0; 8];
            header[..4].copy_from_slice(&magic.to_le_bytes());
            (header[6], header[7]) = (pc_quantum(image.machine), 8);
            let aligned = |at: u64| (segment.address + at).is_multiple_of(8);
            let places = segment.data.places(&header, MAX_CANDIDATES, aligned);
            found.extend(places.into_iter().map(|at| segment.address + at));
        }
    }
    found
}

/// Whether these bytes begin a function table's header for this machine.
pub(crate) fn is_function_table(header: &[u8], machine: Machine) -> bool {
    bytes::u32_at(header, 0).is_some_and(|magic| MAGICS.contains(&magic))
        && header.get(6..8) == Some(&[pc_quantum(machine), 8])
}

/// Unit of the pc steps: the length of the shortest instruction.
pub(crate) fn pc_quantum(machine: Machine) -> u8 {
    match machine {
        Machine::Amd64 => 1,
        Machine::Arm64 => 4,
    }
}
