//! x
use clap::Parser;
#[derive(Parser)]
enum C { Inspect(tracer::cli::inspect::Options) }
fn main() -> anyhow::Result<()> { match C::parse() { C::Inspect(o) => tracer::cli::inspect::run(&o) } }
