/// Why an executable, or a part of it, cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read, or changed while it was.
    #[error("it cannot be read: {0}")]
    Read(String),
    /// Not an ELF file, or one whose own tables are broken.
    #[error("not a readable ELF file: {0}")]
    Elf(String),
    /// An ELF file for an unsupported machine.
    #[error("unsupported machine `{0}`: x86-64 and AArch64 are supported")]
    Machine(String),
    /// An executable that was not made by the Go linker.
    #[error("not a Go executable: {0}")]
    NotGo(String),
    /// A Go version that is not supported.
    #[error("unsupported Go version `{version}`: {reason}")]
    GoVersion {
        /// Version in the build information, for example `go1.17.13`.
        version: String,
        /// What is not supported.
        reason: String,
    },
    /// A table points outside the file or contradicts itself.
    #[error("{what} at {at:#x} is malformed: {why}")]
    Malformed {
        /// Name of the table or structure.
        what: &'static str,
        /// Address of the read; the file offset if there is no address yet.
        at: u64,
        /// Description of the fault.
        why: String,
    },
    /// Malformed debug information.
    #[error("the debug information is malformed: {0}")]
    Dwarf(String),
    /// A type or field without a descriptor in the executable.
    #[error("no {0} in the executable's type descriptors")]
    NoType(String),
    /// Machine code of an unexpected shape.
    #[error("no probe site in `{function}`: {why}")]
    Code {
        /// The function's full symbol name.
        function: String,
        /// Description of what was found.
        why: String,
    },
}

impl Error {
    pub(crate) fn malformed(what: &'static str, at: u64, why: impl Into<String>) -> Self {
        Self::Malformed { what, at, why: why.into() }
    }
}
