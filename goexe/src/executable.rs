use crate::{
    BuildInfo, Call, Class, Error, Function, Functions, LinkMode, Site, Types,
    code::{self, class},
    image::Image,
    module_data::ModuleData,
};

/// `push %rbp`, the first thing that a Go function with a frame does after its stack check.
const PUSH_RBP: u8 = 0x55;

/// The largest functions, those that initialise tables, have some hundred kilobytes.
const MAX_FUNCTION: u64 = 4 << 20;

/// A Go executable.
///
/// ```no_run
/// let data = std::fs::read("/usr/local/bin/kube-scheduler")?;
/// let image = goexe::Executable::parse(&data)?;
/// println!("{}", image.build_info().go_version);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Executable<'a> {
    image: Image<'a>,
    build_info: BuildInfo,
    module: ModuleData,
}

impl<'a> Executable<'a> {
    /// Reads the headers: ELF, build information, the runtime's directory.
    ///
    /// # Errors
    ///
    /// When `data` is not an ELF executable for x86-64, or the Go linker did not make it, or a Go version did whose
    /// tables are not read.
    pub fn parse(data: &'a [u8]) -> Result<Self, Error> {
        let image = Image::parse(data)?;
        let build_info = BuildInfo::parse(&image)?;
        let module = ModuleData::find(&image, &build_info)?;
        Ok(Self { image, build_info, module })
    }

    /// The Go version and the modules.
    #[must_use]
    pub fn build_info(&self) -> &BuildInfo {
        &self.build_info
    }

    /// How the file was linked.
    #[must_use]
    pub fn link_mode(&self) -> LinkMode {
        self.image.link_mode
    }

    /// Whether the symbol table is gone.
    #[must_use]
    pub fn stripped(&self) -> bool {
        self.image.stripped
    }

    /// The GNU build id, in hex, where there is one.
    #[must_use]
    pub fn build_id(&self) -> Option<String> {
        // A note: name size, descriptor size, type, `GNU\0`, descriptor.
        let note = self.image.section(&[".note.gnu.build-id"])?.data.get(16..)?;
        Some(note.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The function table.
    pub fn functions(&self) -> Result<Functions<'a>, Error> {
        Functions::parse(&self.image, &self.module)
    }

    /// The type descriptors.
    pub fn types(&self) -> Result<Types<'_>, Error> {
        Types::parse(&self.image, &self.module)
    }

    /// Where an address lies in the file: what a uprobe is placed by.
    #[must_use]
    pub fn file_offset(&self, address: u64) -> Option<u64> {
        self.image.file_offset(address)
    }

    /// Where to see each call of a function exactly once: after the stack check, which Go repeats when the stack
    /// grows. Parameters are still in their registers there.
    ///
    /// The first step of the function's stack table ends right after the instruction that moves the stack pointer
    /// first; where that is `push %rbp`, it is the site. A function without a frame never grows its stack: its
    /// first instruction is the site.
    pub fn entry_site(&self, functions: &Functions<'_>, function: &Function<'_>) -> Result<Site, Error> {
        let code = self.code(function)?;
        let address = match functions.first_stack_change(function) {
            None => function.range.start,
            Some(changed) => {
                let before = changed - 1 - function.range.start;
                if code.get(before as usize) != Some(&PUSH_RBP) {
                    return Err(self.no_site(function, "its frame is not set up by `push %rbp`".into()));
                }
                changed - 1
            }
        };
        let instruction = code
            .get((address - function.range.start) as usize..)
            .and_then(|code| code::first(code, address))
            .ok_or_else(|| self.no_site(function, format!("the bytes at {address:#x} are no instruction")))?;
        Ok(Site { address, class: class(&instruction) })
    }

    /// The function's `ret` instructions. Each is single-stepped: the last resort.
    pub fn return_instructions(&self, function: &Function<'_>) -> Result<Vec<Site>, Error> {
        let returns = code::returns(self.code(function)?, function.range.start)
            .map_err(|at| self.no_site(function, format!("the bytes at {at:#x} are no instruction")))?;
        Ok(returns.into_iter().map(|address| Site { address, class: Class::SingleStepped }).collect())
    }

    /// The calls that a function makes, with where each one's return can be seen.
    pub fn calls(&self, function: &Function<'_>) -> Result<Vec<Call>, Error> {
        code::calls(self.code(function)?, function.range.start)
            .map_err(|at| self.no_site(function, format!("the bytes at {at:#x} are no instruction")))
    }

    fn code(&self, function: &Function<'_>) -> Result<&'a [u8], Error> {
        let range = &function.range;
        let length = range.end.saturating_sub(range.start);
        if length > MAX_FUNCTION {
            return Err(self.no_site(function, format!("it claims {length} bytes")));
        }
        self.image.bytes("function", range.start, length)
    }

    fn no_site(&self, function: &Function<'_>, why: String) -> Error {
        Error::Code { function: function.name.to_owned(), why }
    }
}
