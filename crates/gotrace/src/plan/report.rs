//! A plan as people and other programs read it.

use goexe::Class;
use serde::Serialize;

use super::{CrossCheck, Error, FunctionSignature, Identity, Layout, Missing, Plan, Role, name};
use crate::program::{Named, Program};

/// A plan, whatever the program.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The program that was found.
    pub program: &'static str,
    /// Whether everything can be traced.
    pub complete: bool,
    /// What cannot be traced, and why.
    pub missing: Vec<Missing>,
    /// Functions that this version does not have yet.
    pub not_in_this_version: Vec<String>,
    /// Which executable.
    pub identity: Identity,
    /// Where probes go.
    pub sites: Vec<Site>,
    /// The structs that are gone through.
    pub layouts: Vec<Layout>,
    /// Whether debug information says the same.
    pub dwarf: Option<CrossCheck>,
    /// The implementations whose names events may say.
    #[serde(rename = "plugins")]
    pub names: Vec<Named>,
    /// The signatures that the executable spells out.
    pub signatures: Vec<FunctionSignature>,
}

/// A probe site.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Site {
    /// The function that a hit is about.
    pub function: String,
    /// What a hit means.
    pub role: Role,
    /// What a hit costs: `emulated` or `single-stepped`.
    pub class: &'static str,
    /// Virtual address, in hex.
    pub address: String,
    /// Offset in the file.
    pub file_offset: u64,
    /// The function that the instruction is in.
    pub symbol: String,
    /// What is read.
    pub reads: Vec<String>,
}

impl Report {
    /// The plan for a file, checked against its debug information.
    ///
    /// # Errors
    ///
    /// Those of [`Plan::of`].
    pub fn of<P: Program>(data: &[u8]) -> Result<Self, Error> {
        let plan = Plan::<P>::checked(data)?;
        let complete = plan.complete();
        let Plan { identity, sites, missing, not_yet, names, layouts, signatures, debug_info, errors: _ } =
            plan;
        let site = |site: super::PlannedSite<P>| Site {
            function: name(site.function),
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
