//! `cargo xtask release`: everything that a release publishes, as files in a folder. Publishing is copying them.
//!
//! Each file follows from the commit and the tools alone: no time, path or name of this machine is in it.
#![forbid(unsafe_code)]

pub mod chart;
mod compare;
mod image;
mod krew;
pub mod layout;
mod sbom;
mod signature;
mod version;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use xtask::{image::archive, paths, process};

/// The checksums of all other files, as `sha256sum --check` reads them.
const CHECKSUMS: &str = "SHA256SUMS";
/// The ending of a signature's file.
const SIGNATURE: &str = "sig";

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Arguments {
    /// Make everything that a release publishes, as files
    ///
    /// The image for both architectures and the chart as OCI layouts, the chart as an archive, static executables for Linux, lists of
    /// packages as CycloneDX and SPDX, the notes of this version, checksums, and with a key their signature. Needs no container engine, no
    /// registry and no root. The same commit and tools result in the same bytes: --check builds twice, from two clones, and compares.
    Release(Options),
}

#[derive(clap::Args)]
struct Options {
    /// The version, which must be that of the workspace, the chart and CHANGELOG.md [default: the workspace's]
    #[arg(long)]
    version: Option<String>,
    /// A private key of Ed25519, PKCS #8 in PEM, as `openssl genpkey -algorithm ed25519` makes it: signs the checksums
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The folder for the files, which is made
    #[arg(long, value_name = "DIR", required_unless_present = "check")]
    output: Option<PathBuf>,
    /// Also with changes that are not committed
    #[arg(long)]
    uncommitted: bool,
    /// Build twice, from two clones of this commit in cargo's target folder, and fail if a byte differs
    #[arg(long, conflicts_with_all = ["key", "output", "uncommitted"])]
    check: bool,
}

/// A file of the release.
struct Product {
    name: String,
    content: Vec<u8>,
}

/// Runs the command.
#[must_use]
pub fn main() -> ExitCode {
    let Arguments::Release(options) = Arguments::parse();
    xtask::exit_code(run(&options).map(|()| ExitCode::SUCCESS))
}

fn run(Options { version, key, output, uncommitted, check }: &Options) -> Result<()> {
    if *check {
        return compare::twice();
    }
    let output = output.as_deref().context("give --output")?;
    let changes = process::output(
        Command::new("git").args(["status", "--porcelain"]).current_dir(paths::repository()),
    )?;
    ensure!(*uncommitted || changes.is_empty(), "there are changes that are not committed:\n{changes}");
    // Before the build, which takes minutes.
    let key = key.as_deref().map(signature::Key::read).transpose()?;
    let version = version::agreed(version.as_deref())?;
    let products = products(&version)?;
    fs::create_dir_all(output).with_context(|| format!("cannot make `{}`", output.display()))?;
    for Product { name, content } in signed(products, key.as_ref())? {
        write(&output.join(&name), &content)?;
        println!("{}", output.join(&name).display());
    }
    Ok(())
}

/// All files but checksums and signature.
fn products(version: &str) -> Result<Vec<Product>> {
    let named =
        |what: &str, content: Vec<u8>| Product { name: format!("schedspan-{version}{what}"), content };
    let chart = chart::Chart::read(version)?;
    let (chart_layout, chart_digest) = chart.layout()?;
    let mut products = vec![
        named("-notes.md", version::notes(version)?.into_bytes()),
        named("-chart.tgz", chart.archive.clone()),
        named("-chart.oci.tar", chart_layout),
    ];
    let image::Built { index, digest, machines } = image::build(version)?;
    products.push(named("-image.oci.tar", index));
    for image::OfMachine { platform, program, packages } in machines {
        products.push(named(&format!("-linux-{platform}.tar.gz"), program));
        let bom = sbom::cyclonedx(&packages, version)?;
        products.push(named(&format!("-linux-{platform}.cdx.json"), pretty(&bom)?));
        products.push(named(&format!("-linux-{platform}.spdx.json"), pretty(&packages)?));
    }
    let is_program = |product: &&Product| product.name.ends_with(".tar.gz");
    let programs =
        products.iter().filter(is_program).map(|product| (product.name.clone(), product.content.as_slice()));
    let manifest = krew::manifest(version, &programs.collect::<Vec<_>>())?;
    products.push(named("-krew.yaml", manifest.into_bytes()));
    // What a registry is asked for after a push.
    let digests = format!("image {digest}\nchart {chart_digest}\n");
    products.push(named("-digests.txt", digests.into_bytes()));
    Ok(products)
}

/// The files with their checksums, and the signature of these.
fn signed(mut products: Vec<Product>, key: Option<&signature::Key>) -> Result<Vec<Product>> {
    products.sort_by(|one, other| one.name.cmp(&other.name));
    let line = |Product { name, content }: &Product| {
        let digest = archive::digest(content);
        format!("{}  {name}\n", digest.trim_start_matches("sha256:"))
    };
    let checksums: String = products.iter().map(line).collect();
    if let Some(key) = key {
        let signature = key.sign(checksums.as_bytes());
        products.push(Product { name: format!("{CHECKSUMS}.{SIGNATURE}"), content: signature });
        products.push(Product { name: format!("{CHECKSUMS}.pub"), content: key.public_pem().into_bytes() });
    }
    products.push(Product { name: CHECKSUMS.to_owned(), content: checksums.into_bytes() });
    Ok(products)
}

fn pretty(value: &serde_json::Value) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content).with_context(|| format!("cannot write `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(name: &str, content: &str) -> Product {
        Product { name: name.to_owned(), content: content.as_bytes().to_vec() }
    }

    #[test]
    fn checksums_are_sorted_and_as_sha256sum_reads_them() {
        let products = signed(vec![product("b", "two"), product("a", "one")], None).unwrap();
        let checksums = String::from_utf8(products.last().unwrap().content.clone()).unwrap();
        let expected = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed  a\n\
                        3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3  b\n";
        assert_eq!(checksums, expected);
        assert_eq!(products.len(), 3);
    }

    #[test]
    fn the_command_line_is_sound() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
    }
}
