//! `runtime.moduledata`: where the runtime's tables are.

use crate::{BuildInfo, Error, bytes, image::Image};

/// Offsets that have not moved since Go 1.16 (`text`) and 1.20 (`types`); see
/// <https://github.com/golang/go/blob/go1.26.5/src/runtime/symtab.go#L405-L466>.
const MIN_PC: usize = 160;
const MAX_PC: usize = 168;
const TEXT: usize = 176;
const TYPES: usize = 296;

/// No user-space address lies above; sums of addresses and sizes below it cannot overflow.
const MAX_ADDRESS: u64 = 1 << 47;

/// What follows `types` differs by Go minor.
struct Tail {
    etypes: usize,
    typelinks: usize,
}

/// The runtime's own directory of the executable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModuleData {
    /// Address of the function table's header.
    pub(crate) pclntab: u64,
    /// What function addresses count from. Not always the address of `.text`.
    pub(crate) text: u64,
    pub(crate) min_pc: u64,
    pub(crate) max_pc: u64,
    /// What type and name offsets count from, and where they end.
    pub(crate) types: u64,
    pub(crate) etypes: u64,
    /// Address and length of the sorted list of unnamed types.
    pub(crate) typelinks: (u64, u64),
}

impl ModuleData {
    pub(crate) fn find(image: &Image<'_>, build_info: &BuildInfo) -> Result<Self, Error> {
        let tail = match build_info.go_minor() {
            Some(20..=25) => Tail { etypes: 304, typelinks: 352 },
            Some(26) => Tail { etypes: 304, typelinks: 360 },
            _ => {
                return Err(Error::GoVersion {
                    version: build_info.go_version.clone(),
                    reason: "the runtime's tables of Go 1.20 to 1.26 are read".into(),
                });
            }
        };
        let pclntab = image
            .section(&[".gopclntab", ".data.rel.ro.gopclntab"])
            .ok_or_else(|| Error::NotGo("it has no section `.gopclntab`".into()))?
            .address;
        // From Go 1.26 the structure has a section of its own; before, it is found by its first word.
        if let Some(section) = image.section(&[".go.module", ".data.rel.ro.go.module"]) {
            return Self::read(section.data, section.address, &tail, pclntab);
        }
        let needle = pclntab.to_le_bytes();
        for section in image.writable_sections() {
            for at in memchr::memmem::find_iter(section.data, &needle).filter(|at| at % 8 == 0) {
                let address = section.address + at as u64;
                if let Ok(module) = Self::read(&section.data[at..], address, &tail, pclntab) {
                    return Ok(module);
                }
            }
        }
        Err(Error::NotGo("no runtime.moduledata points to its function table".into()))
    }

    fn read(data: &[u8], at: u64, tail: &Tail, pclntab: u64) -> Result<Self, Error> {
        let word = |offset| {
            bytes::u64_at(data, offset)
                .ok_or_else(|| Error::malformed("moduledata", at, format!("it ends before offset {offset}")))
        };
        let module = Self {
            pclntab: word(0)?,
            text: word(TEXT)?,
            min_pc: word(MIN_PC)?,
            max_pc: word(MAX_PC)?,
            types: word(TYPES)?,
            etypes: word(tail.etypes)?,
            typelinks: (word(tail.typelinks)?, word(tail.typelinks + 8)?),
        };
        if module.pclntab != pclntab {
            return Err(Error::malformed(
                "moduledata",
                at,
                "its first word is not the function table's address",
            ));
        }
        let ordered =
            module.text <= module.min_pc && module.min_pc < module.max_pc && module.types < module.etypes;
        if !ordered || module.max_pc > MAX_ADDRESS || module.etypes > MAX_ADDRESS {
            return Err(Error::malformed("moduledata", at, "its address ranges contradict each other"));
        }
        Ok(module)
    }
}
