//! Plans the probes of executables: `cargo run -p client-go --example plan -- PATH...`.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Result, ensure};
use client_go::ClientGo;
use gotrace::Plan;

/// Larger files are not executables of Kubernetes.
const MAX_SIZE: u64 = 1 << 30;

fn main() -> Result<()> {
    for path in std::env::args().skip(1) {
        let plan = Plan::<ClientGo>::of(&goexe::File::open(Path::new(&path), MAX_SIZE)?)?;
        println!(
            "{path}: {} {}",
            plan.identity.kubernetes_version.unwrap_or_default(),
            plan.identity.go_version
        );
        let mut sites: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for site in &plan.sites {
            let values: Vec<_> = site.values.iter().map(|(reading, _)| reading.name()).collect();
            let read = format!("{:?} {} {}", site.class, site.symbol, values.join(", "));
            sites.entry(format!("{:?}", site.function)).or_default().push(read);
        }
        for (function, sites) in sites {
            println!("  {function}: {}", sites.len());
            sites.iter().for_each(|site| println!("    {site}"));
        }
        plan.missing.iter().for_each(|missing| println!("  missing: {missing:?}"));
        ensure!(plan.missing.is_empty(), "not all can be traced");
    }
    Ok(())
}
