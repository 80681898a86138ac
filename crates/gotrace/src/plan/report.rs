//! Serializable form of a plan, for `schedspan inspect`.

use goexe::{Class, Source};
use serde::Serialize;

use super::{CrossCheck, Error, FunctionSignature, Identity, Layout, Missing, Plan, Role, name};
use crate::program::{Detail, Named, Program};

/// A plan of any program.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Name of the program in the executable.
    pub program: &'static str,
    /// Whether no function is missing.
    pub complete: bool,
    /// What cannot be traced, and why.
    pub missing: Vec<Missing>,
    /// Functions that this version does not have yet.
    pub not_in_this_version: Vec<String>,
    /// The executable.
    pub identity: Identity,
    /// The sites to probe.
    pub sites: Vec<Site>,
    /// All fields of the structs on the paths of reads.
    pub layouts: Vec<Layout>,
    /// Comparison with debug information.
    pub dwarf: Option<CrossCheck>,
    /// The implementations whose names can appear in events.
    #[serde(rename = "plugins")]
    pub names: Vec<Named>,
    /// Signatures in the executable's type descriptors.
    pub signatures: Vec<FunctionSignature>,
}

/// A probe site.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Site {
    /// Serialized name of the function that a hit refers to.
    pub function: String,
    /// The lowest level of detail at which it is probed; those of `windows` are probed in windows only.
    pub detail: Detail,
    /// Meaning of a hit.
    pub role: Role,
    /// Cost class of a hit: `emulated` or `single-stepped`.
    pub class: &'static str,
    /// Virtual address, in hex.
    pub address: String,
    /// Offset in the file.
    pub file_offset: u64,
    /// Symbol of the function that contains the instruction.
    pub symbol: String,
    /// Names of the values that are read.
    pub reads: Vec<String>,
}

impl Report {
    /// Plans a file and compares the plan with its debug information.
    ///
    /// # Errors
    ///
    /// Those of [`Plan::of`].
    pub fn of<P: Program>(source: Source<'_>) -> Result<Self, Error> {
        let plan = Plan::<P>::checked(source)?;
        let complete = plan.complete();
        let Plan {
            identity,
            sites,
            most: _,
            missing,
            not_yet,
            names,
            layouts,
            signatures,
            debug_info,
            errors: _,
            alike: _,
        } = plan;
        let site = |site: super::PlannedSite<P>| Site {
            function: name(site.function),
            detail: site.detail,
            role: site.role,
            class: match site.class {
                Class::Emulated => "emulated",
                Class::SingleStepped => "single-stepped",
            },
            address: format!("{:#x}", site.address),
            file_offset: site.file_offset,
            symbol: site.symbol,
            reads: site
                .values
                .iter()
                .map(|(reading, _)| reading.name())
                .chain(site.list.iter().map(name))
                .collect(),
        };
        Ok(Self {
            program: P::NAME,
            complete,
            missing,
            not_in_this_version: not_yet.into_iter().map(name).collect(),
            identity,
            sites: sites.into_iter().map(site).collect(),
            layouts,
            dwarf: debug_info,
            names,
            signatures,
        })
    }
}
