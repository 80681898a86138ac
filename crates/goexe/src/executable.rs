use std::{borrow::Cow, collections::BTreeSet};

use crate::{
    BuildInfo, Call, DebugInfo, Error, Function, Functions, Instruction, LinkMode, Machine, Site, Types,
    bytes, code, functions::MAX_FUNCTION, image::Image, module_data::ModuleData, source::Source,
};

/// Maximum length of a string constant that is taken for a name.
const MAX_NAME: u64 = 256;

/// Maximum length of a build id. Linkers write 8 to 32 bytes.
const MAX_BUILD_ID: u32 = 64;

/// A Go executable.
///
/// ```no_run
/// let file = goexe::File::open("/usr/local/bin/kube-scheduler".as_ref(), 1 << 30)?;
/// let executable = goexe::Executable::parse(&file)?;
/// println!("{}", executable.build_info().go_version);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Executable<'a> {
    source: Source<'a>,
    image: Image<'a>,
    build_info: BuildInfo,
    module: ModuleData,
}

impl<'a> Executable<'a> {
    /// Reads the headers: ELF, build information, and the runtime's module data.
    ///
    /// # Errors
    ///
    /// When it cannot be read, is not an ELF executable for x86-64 or AArch64, or was not made by the Go linker, or by an
    /// unsupported Go version.
    pub fn parse(source: impl Into<Source<'a>>) -> Result<Self, Error> {
        let source = source.into();
        let parsed = || {
            let image = Image::parse(source)?;
            let build_info = BuildInfo::parse(&image)?;
            let module = ModuleData::find(&image, &build_info)?;
            Ok(Self { source, image, build_info, module })
        };
        source.unless_it_failed(parsed())
    }

    /// # Errors
    ///
    /// When a read has failed since: whatever was found is incomplete. Always `Ok` for bytes in memory.
    pub fn intact(&self) -> Result<(), Error> {
        self.source.intact()
    }

    /// Go version and modules.
    #[must_use]
    pub fn build_info(&self) -> &BuildInfo {
        &self.build_info
    }

    /// Machine of the code.
    #[must_use]
    pub fn machine(&self) -> Machine {
        self.image.machine
    }

    /// How the file was linked.
    #[must_use]
    pub fn link_mode(&self) -> LinkMode {
        self.image.link_mode
    }

    /// Virtual address of the first instruction. Its address in a process, less this one, is the load bias.
    #[must_use]
    pub fn entry_point(&self) -> u64 {
        self.image.entry_point
    }

    /// Whether the symbol table is removed.
    #[must_use]
    pub fn stripped(&self) -> bool {
        self.image.stripped
    }

    /// The GNU build id, in hex, if there is one.
    #[must_use]
    pub fn build_id(&self) -> Option<String> {
        // Layout of a note: name size, descriptor size, type, `GNU\0`, descriptor.
        let note = self.image.section(&[".note.gnu.build-id"])?.data.begin(16 + u64::from(MAX_BUILD_ID))?;
        let length = bytes::u32_at(note, 4).filter(|length| *length <= MAX_BUILD_ID)?;
        let id = note.get(16..)?.get(..length as usize)?;
        Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The function table.
    pub fn functions(&self) -> Result<Functions<'_>, Error> {
        self.source.unless_it_failed(Functions::parse(&self.image, &self.module))
    }

    /// The type descriptors.
    #[must_use]
    pub fn types(&self) -> Types<'_> {
        Types::new(&self.image, &self.module)
    }

    /// Debug information about these structs (by their type's name with its package's path) and functions; `None` in a
    /// stripped file. Reads all of it, which is slow: for checks only.
    ///
    /// # Errors
    ///
    /// When it is malformed.
    pub fn debug_info(
        &self,
        structs: &BTreeSet<&str>,
        functions: &BTreeSet<&str>,
    ) -> Result<Option<DebugInfo>, Error> {
        if !self.image.has_debug_info {
            return Ok(None);
        }
        let all = self.source.all();
        let data = all.read(0, all.len()).unwrap_or_default();
        self.source.unless_it_failed(DebugInfo::read(&data, structs, functions))
    }

    /// The first bytes of an instruction and what follows it.
    #[must_use]
    pub fn code_at<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        self.image.bytes("code", address, N as u64).ok()?.try_into().ok()
    }

    /// File offset of an address, which a uprobe needs.
    #[must_use]
    pub fn file_offset(&self, address: u64) -> Option<u64> {
        self.image.file_offset(address)
    }

    /// The site that sees each call of a function exactly once: after the stack check, which Go repeats when the stack
    /// grows. Parameters are still in their registers there.
    ///
    /// The first step of the function's stack table ends after the first instruction that moves the stack pointer: that
    /// end is the site. A function without a frame never grows its stack: its first instruction is the site.
    pub fn entry_site(&self, functions: &Functions<'_>, function: &Function<'_>) -> Result<Site, Error> {
        let code = self.code(function)?;
        let start = function.range.start;
        let address = match functions.first_stack_change(function) {
            None => start,
            Some(changed) => {
                let until = code.get(..(changed - start) as usize).unwrap_or(&code);
                let length = code::frame_set_up(self.machine(), until)
                    .map_err(|why| self.no_site(function, why.into()))?;
                changed - length
            }
        };
        let class = code
            .get((address - start) as usize..)
            .and_then(|code| code::first(self.machine(), code, address))
            .ok_or_else(|| self.undecodable(function, address))?;
        Ok(Site { address, class })
    }

    /// The function's `ret` instructions. A last resort, because x86-64 single-steps each.
    pub fn return_instructions(&self, function: &Function<'_>) -> Result<Vec<Site>, Error> {
        code::returns(self.machine(), &self.code(function)?, function.range.start)
            .map_err(|at| self.undecodable(function, at))
    }

    /// The calls in a function, with a site for the return of each.
    pub fn calls(&self, function: &Function<'_>) -> Result<Vec<Call>, Error> {
        code::calls(self.machine(), &self.code(function)?, function.range.start)
            .map_err(|at| self.undecodable(function, at))
    }

    /// Offset in bytes from the stack pointer of the address in an integer register of Go's sequence, when a function
    /// makes this call; `None` if the preceding instructions do not show it.
    #[must_use]
    pub fn stack_argument(&self, function: &Function<'_>, call: &Call, register: usize) -> Option<u64> {
        let code = self.code(function).ok()?;
        code::stack_argument(self.machine(), &code, function.range.start, call.site.address, register)
    }

    /// Offsets in bytes from the stack pointer of the first two results of a call, which the function stores right after it and
    /// overwrites nowhere behind it; `None` if it does not.
    #[must_use]
    pub fn stored_results(&self, function: &Function<'_>, call: &Call) -> Option<[u64; 2]> {
        let code = self.code(function).ok()?;
        code::stored_results(self.machine(), &code, function.range.start, call.resume)
    }

    /// The disassembled instructions of a function, with their assembler texts.
    pub fn instructions(&self, function: &Function<'_>) -> Result<Vec<(Instruction, String)>, Error> {
        let (machine, code, address) = (self.machine(), self.code(function)?, function.range.start);
        let list = code::instructions(machine, &code, address);
        Ok(list.into_iter().zip(code::texts(machine, &code, address)).collect())
    }

    /// The string constant that a function returns, such as a plugin's `Name`, and its address; `None` if it returns
    /// anything else.
    #[must_use]
    pub fn constant_string(&self, function: &Function<'_>) -> Option<(u64, &'a str)> {
        let code = self.code(function).ok()?;
        let (address, length) = code::constant_string(self.machine(), &code, function.range.start)?;
        let bytes =
            self.image.bytes("string", address, length.min(MAX_NAME)).ok().filter(|_| length <= MAX_NAME)?;
        Some((address, str::from_utf8(bytes).ok()?))
    }

    fn code(&self, function: &Function<'_>) -> Result<Cow<'a, [u8]>, Error> {
        let range = &function.range;
        let length = range.end.saturating_sub(range.start);
        if length > MAX_FUNCTION {
            return Err(self.no_site(function, format!("it claims {length} bytes")));
        }
        self.image.read("function", range.start, length)
    }

    fn undecodable(&self, function: &Function<'_>, at: u64) -> Error {
        self.no_site(function, format!("the bytes at {at:#x} are not an instruction"))
    }

    fn no_site(&self, function: &Function<'_>, why: String) -> Error {
        Error::Code { function: function.name.to_owned(), why }
    }
}
