//! Sampling after the fact: a trace is kept or dropped when it is complete, by what happened.
//!
//! Samplers are rules, and any of them keeps a trace. An attribute of the root names those rules; a dropped trace is counted by
//! reason. Metrics of attempts count all traces, before sampling. Pure but for the counters: the only clock is that of the traces.

mod config;
mod rule;

use std::path::PathBuf;

pub use self::{config::Error, rule::Rule};
use crate::{AttributeValue, Metrics, Trace, attributes, environment};

/// Most selectors: each is a bit of [`Trace::selected`].
pub const MAX_SELECTORS: usize = u64::BITS as usize;
/// Most rules.
const MAX_RULES: usize = 32;

/// Which traces are exported
#[derive(clap::Args, Clone, Debug, Default)]
// A command flattens several structs of this name.
#[group(skip)]
pub struct Options {
    /// Export only traces that a rule keeps; may be given several times, and any of them keeps
    #[arg(
        long,
        value_name = "RULE",
        long_help = concat!(
            "Export only traces that a rule keeps; may be given several times, and any of them keeps. A rule is one condition \
             or several with commas between, all of which must hold:\n\n",
            "  failed                   the attempt did not succeed\n",
            "  slower-than=500ms        it took longer (us, ms, s)\n",
            "  slower-than=p99          it took longer than this percentile of the 1,000 attempts before\n",
            "  preempting               it makes others go\n",
            "  first-attempt            it is the Pod's first\n",
            "  namespace=NAME           the Pod's namespace\n",
            "  label=KEY[=VALUE]        a label of the Pod\n",
            "  priority-class=NAME      the Pod's priorityClassName; for this one whole Pods are read from the API\n",
            "  link-sampled             a linked trace, or the parent, is sampled\n",
            "  at-most=N                of those that end in one second, N at most\n",
            "  traceidratio=0.1         by the trace id, as OpenTelemetry's SDK for Go decides\n",
            "  always_on, always_off    as OTEL_TRACES_SAMPLER has them; with parentbased_ before, as traceidratio can be"
        )
    )]
    pub keep: Vec<Rule>,
    /// Keep what this TracingConfiguration samples: the API server's file, or a KubeSchedulerConfiguration with `tracing:`
    #[arg(long, value_name = "FILE")]
    pub tracing_config_file: Option<PathBuf>,
}

/// What a rule selects Pods by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// The Pod has this label, with this value if one is given.
    Label(String, Option<String>),
    /// The Pod has this `spec.priorityClassName`. It needs whole Pods from the API server, not only metadata.
    PriorityClass(String),
}

/// The rules of a daemon.
#[derive(Debug, Default)]
pub struct Sampler {
    rules: Vec<Rule>,
    selectors: Vec<Selector>,
}

impl Sampler {
    /// The rules of the command line, of `OTEL_TRACES_SAMPLER`, and of a file. Without any all traces are kept.
    ///
    /// # Errors
    ///
    /// When the variable or the file is not valid, or when there are too many rules.
    pub fn new(options: &Options) -> Result<Self, Error> {
        let further = [
            config::environment(environment::variable)?,
            options.tracing_config_file.as_deref().map(config::file).transpose()?,
        ];
        Self::of(options.keep.iter().cloned().chain(further.into_iter().flatten()))
    }

    fn of(rules: impl Iterator<Item = Rule>) -> Result<Self, Error> {
        let mut sampler = Self { rules: rules.collect(), selectors: Vec::new() };
        for rule in &mut sampler.rules {
            rule.number(&mut sampler.selectors);
        }
        if sampler.rules.len() > MAX_RULES || sampler.selectors.len() > MAX_SELECTORS {
            return Err(Error::TooMany(sampler.rules.len()));
        }
        Ok(sampler)
    }

    /// The selectors of all rules, in the order of the bits of [`Trace::selected`].
    #[must_use]
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// Whether a trace is kept; then an attribute of its root names the rules. Call it once per trace, in the order of their ends.
    pub fn keep(&mut self, trace: &mut Trace, metrics: &Metrics) -> bool {
        if self.rules.is_empty() {
            return true;
        }
        let (mut kept_by, mut reasons) = (Vec::new(), Vec::new());
        for rule in &mut self.rules {
            match rule.judge(trace) {
                Ok(()) => {
                    metrics.kept(rule.text());
                    kept_by.push(rule.text().to_owned());
                }
                Err(reason) => reasons.push(reason),
            }
        }
        if kept_by.is_empty() {
            // The reason of the closest rule.
            metrics.dropped(reasons.into_iter().max().unwrap_or_default());
            return false;
        }
        trace.spans[0].attributes.push((attributes::KEPT_BY, AttributeValue::Strings(kept_by)));
        true
    }
}

#[cfg(test)]
mod tests;
