//! Options of `cargo xtask bench`.

use std::path::PathBuf;

use clap::ValueEnum;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    /// Rounds of each way: many short ones, because other load of the machine lasts longer than a round
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Nodes of the cluster
    #[arg(long, default_value_t = 1000)]
    pub(crate) nodes: u32,
    /// Pods in a round; with `--plugins` 400 unless given, so that each round has a window
    #[arg(long, default_value_t = 150, default_value_if("plugins", "true", "400"), value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pods: u32,
    /// Pods created in a second: less than the scheduler's limit, or the figures show its saturation
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pace: u32,
    /// schedspan's level of detail: one or several, each with its own rounds
    #[arg(long, value_enum, value_delimiter = ',', default_value = "full", value_name = "LEVELS")]
    pub(crate) detail: Vec<Detail>,
    /// Without the scheduler that makes spans itself
    #[arg(long)]
    pub(crate) no_peer: bool,
    /// Measure what plugins' shares cost, instead: probes without samples, the default with them, and exact windows in one attempt of 200
    #[arg(long, conflicts_with_all = ["detail", "against", "store", "picture", "draw"])]
    pub(crate) plugins: bool,
    /// This executable of schedspan instead of the image's
    #[arg(long, value_name = "FILE")]
    pub(crate) executable: Option<PathBuf>,
    /// Another executable of schedspan, measured in turn with this one, at the highest of the levels
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    /// Store the result in docs/figures.tsv, which tests compare with what README and documents say. With all levels of detail, and the
    /// Nodes, Pods and pace of the defaults
    #[arg(long, conflicts_with_all = ["no_peer", "nodes", "pods", "pace", "draw"])]
    pub(crate) store: bool,
    /// Draw the result, as docs/cost.svg
    #[arg(long)]
    pub(crate) picture: bool,
    /// Draw an earlier result, from `--output json`, instead of measuring
    #[arg(long, value_name = "FILE", conflicts_with = "picture")]
    pub(crate) draw: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
}

/// The levels of `schedspan run --detail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Detail {
    Phases,
    Plugins,
    Full,
}

/// How the work of plugins on each Node is seen, at full detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shares {
    /// Not at all.
    No,
    /// By samples.
    Samples,
    /// By samples, and one by one in some attempts.
    Windows,
}

impl Shares {
    pub(crate) const ALL: [Self; 3] = [Self::No, Self::Samples, Self::Windows];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::No => "without-samples",
            Self::Samples => "samples",
            Self::Windows => "samples-windows",
        }
    }

    /// The arguments of `schedspan run`.
    pub(crate) const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::No => &["--sample-hz=0"],
            Self::Samples => &[],
            // With a budget that cuts nothing, but limits windows, as any budget below 100 % does.
            Self::Windows => &["--exact-windows=200", "--budget=99%"],
        }
    }
}

impl Detail {
    /// The arguments of `schedspan run`.
    pub(crate) const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Phases => &["--detail=phases"],
            Self::Plugins => &["--detail=plugins"],
            Self::Full => &["--detail=full"],
        }
    }
}
