/// Why an executable, or one thing in it, could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not an ELF file, or one whose own tables are broken.
    #[error("not a readable ELF file: {0}")]
    Elf(String),
    /// An ELF file for a machine whose code and calling convention this crate does not know.
    #[error("unsupported machine `{0}`: x86-64 and AArch64 are supported")]
    Machine(String),
    /// An executable that the Go linker did not make.
    #[error("not a Go executable: {0}")]
    NotGo(String),
    /// A Go executable older or newer than what this crate reads.
    #[error("unsupported Go version `{version}`: {reason}")]
    GoVersion {
        /// As in the build information, for example `go1.17.13`.
        version: String,
        /// What is not supported about it.
        reason: String,
    },
    /// A table points outside the file or contradicts itself.
    #[error("{what} at {at:#x} is malformed: {why}")]
    Malformed {
        /// The table or structure.
        what: &'static str,
        /// The address (or, where there is no address yet, the file offset) that was read.
        at: u64,
        /// What is wrong with it.
        why: String,
    },
    /// Debug information that contradicts its own format.
    #[error("the debug information is malformed: {0}")]
    Dwarf(String),
    /// A type or field that the executable has no descriptor of.
    #[error("no {0} in the executable's type descriptors")]
    NoType(String),
    /// Machine code that does not have the expected shape.
    #[error("no probe site in `{function}`: {why}")]
    Code {
        /// The function's full symbol name.
        function: String,
        /// What was found instead.
        why: String,
    },
}

impl Error {
    pub(crate) fn malformed(what: &'static str, at: u64, why: impl Into<String>) -> Self {
        Self::Malformed { what, at, why: why.into() }
    }
}
