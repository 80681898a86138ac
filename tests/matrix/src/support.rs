//! `cargo xtask matrix support`: the page that says what is supported, from the tables that the matrix tests.

use std::{collections::BTreeMap, fmt::Write as _, fs};

use anyhow::{Context as _, Result};
use harness::schedulers;
use xtask::{components::SCHEDULER, paths};

use crate::kernels;

/// The page's file, from the root of the repository.
const FILE: &str = "docs/support.md";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write docs/support.md instead of printing it
    #[arg(long)]
    store: bool,
}

pub(crate) fn main(Options { store }: &Options) -> Result<()> {
    let page = page();
    if *store {
        fs::write(paths::repository().join(FILE), page).with_context(|| format!("cannot write `{FILE}`"))?;
    } else {
        print!("{page}");
    }
    Ok(())
}

/// The patch versions of a minor version that are read, those that are traced, and those that are traced with failures.
#[derive(Default)]
struct Versions {
    read: Vec<&'static str>,
    traced: Vec<&'static str>,
    failing: Vec<&'static str>,
}

fn page() -> String {
    let mut page = "\
# What is supported

Made by `cargo xtask matrix support --store` from the tables that `cargo xtask matrix schedulers`, `cargo xtask e2e` and
`cargo xtask matrix kernels` test; a test fails if this page differs from them. [VERSIONING.md](../VERSIONING.md) says what a new version may
change.

## Kubernetes

*Read*: `schedspan inspect` finds every function, and registers and offsets agree with what is known ([schedulers.md](schedulers.md)). *Traced*: the
attempts of a running scheduler of this version are compared with the API server's objects and its own metrics (`cargo xtask e2e version`). *With failures*: it has a
plugin that fails on request, and every count and duration is compared with its metrics (`cargo xtask e2e truth`).

| Kubernetes | read | traced | with failures |
|---|---|---|---|
"
    .to_owned();
    let mut rows: BTreeMap<(u32, &str), Versions> = BTreeMap::new();
    let own = schedulers::ALL.iter().filter(|component| component.name == SCHEDULER.name);
    for component in own {
        let versions = &mut rows.entry(minor(component.version)).or_default().read;
        if !versions.contains(&component.version) {
            versions.push(component.version);
        }
    }
    for version in schedulers::plain_versions() {
        rows.entry(minor(version)).or_default().traced.push(version);
    }
    for version in schedulers::troubled_versions() {
        rows.entry(minor(version)).or_default().failing.push(version);
    }
    let list = |versions: &[&str]| if versions.is_empty() { "-".to_owned() } else { versions.join(", ") };
    let mut put = |line: std::fmt::Arguments<'_>| page.write_fmt(line).unwrap_or_default();
    for ((_, minor), Versions { read, traced, failing }) in rows {
        put(format_args!("| {minor} | {} | {} | {} |\n", list(&read), list(&traced), list(&failing)));
    }
    for other in schedulers::ALL.iter().filter(|component| component.name != SCHEDULER.name) {
        put(format_args!("| {} | {} | - | - |\n", other.name, other.version));
    }
    put(format_args!(
        "
## Kernels

Linux 5.15 with BTF is the oldest that has what the probes need; before 6.6 the daemon also needs `CAP_SYS_ADMIN`. These kernels of Debian are booted in an emulated
machine, and what schedspan traces there is compared with the API server's objects and the scheduler's metrics.

| kernel | Debian | architecture | what it is there for |
|---|---|---|---|
"
    ));
    for [name, suite, architecture, has] in kernels::rows() {
        put(format_args!("| {name} | {suite} | {architecture} | {has} |\n"));
    }
    page
}

/// The minor version, such as `1.29` of `1.29.15`, after its number for sorting.
fn minor(version: &str) -> (u32, &str) {
    let end = version.rfind('.').unwrap_or(version.len());
    let minor = &version[..end];
    let number = minor.rsplit('.').next().and_then(|number| number.parse().ok());
    (number.unwrap_or_default(), minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_the_tree_is_that_of_the_tables() {
        let stored = fs::read_to_string(paths::repository().join(FILE)).unwrap();
        assert!(stored == page(), "`cargo xtask matrix support --store` writes {FILE}");
    }

    #[test]
    fn every_version_is_in_a_row_of_its_minor_version() {
        assert_eq!(minor("1.29.15"), (29, "1.29"));
        let page = page();
        for row in [
            "| 1.30 | 1.30.14 | 1.30.14 | - |",
            "| 1.36 | 1.36.3, 1.36.4 | 1.36.4 | 1.36.4 |",
            "| 6.12-arm64 | trixie | arm64 |",
        ] {
            assert!(page.contains(row), "{page}");
        }
    }
}
