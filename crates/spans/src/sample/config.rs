//! Samplers of foreign configuration: OpenTelemetry's variables, and Kubernetes' TracingConfiguration.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use serde::Deserialize;
use tracing::warn;

use super::{MAX_RULES, Rule};
use crate::environment;

/// Most bytes of a configuration: a scheduler's has some hundred lines.
const MAX_BYTES: u64 = 1 << 20;
/// Denominator of a rate.
const MILLION: u32 = 1_000_000;
/// Kinds that contain a TracingConfiguration, and their API groups.
const KINDS: [(&str, &str); 2] = [
    ("TracingConfiguration", "apiserver.config.k8s.io/"),
    ("KubeSchedulerConfiguration", "kubescheduler.config.k8s.io/"),
];

/// Why a sampler cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable of the environment has an invalid value.
    #[error(transparent)]
    Variable(#[from] environment::Error),
    /// A file cannot be read.
    #[error("cannot read `{}`: {reason}; give the path of a TracingConfiguration", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// A file is not a configuration.
    #[error("`{}`: {reason}", path.display())]
    Invalid {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong, and what is expected.
        reason: String,
    },
    /// There are too many rules or selectors.
    #[error("{0} rules are too many; give {MAX_RULES} at most, with 64 labels and priority classes at most")]
    TooMany(usize),
}

/// The sampler of `OTEL_TRACES_SAMPLER`.
/// <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>
pub(super) fn environment(
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Rule>, environment::Error> {
    const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
    const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
    let Some(name) = variable(SAMPLER) else { return Ok(None) };
    let stem = name.strip_prefix("parentbased_").unwrap_or(&name);
    let rule = match stem {
        "always_on" | "always_off" => name.parse(),
        "traceidratio" => {
            let argument = variable(ARGUMENT).unwrap_or_else(|| "1.0".to_owned());
            let rule = format!("{name}={argument}").parse();
            let expected = "a number from 0 to 1";
            return rule.map(Some).map_err(|_| environment::Error {
                variable: ARGUMENT,
                value: argument,
                expected,
            });
        }
        _ => Err(String::new()),
    };
    let expected = "always_on, always_off or traceidratio, or one of these with parentbased_ before";
    rule.map(Some).map_err(|_| environment::Error { variable: SAMPLER, value: name, expected })
}

/// The sampler of a file, the same that `component-base/tracing` makes of it.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/component-base/tracing/utils.go>
pub(super) fn file(path: &Path) -> Result<Rule, Error> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text))
        .map_err(|reason| Error::Unreadable { path: path.to_owned(), reason })?;
    let (rule, endpoint) =
        configuration(&text).map_err(|reason| Error::Invalid { path: path.to_owned(), reason })?;
    if let Some(endpoint) = endpoint {
        let path = path.display();
        warn!(
            "`{path}` names the endpoint {endpoint}, which is not used: spans go where OTEL_EXPORTER_OTLP_ENDPOINT says"
        );
    }
    Ok(rule)
}

/// The rule, and the endpoint, which is not used.
pub(super) fn configuration(text: &str) -> Result<(Rule, Option<String>), String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Tracing {
        endpoint: Option<String>,
        sampling_rate_per_million: Option<i64>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Configuration {
        api_version: String,
        kind: String,
        tracing: Option<Tracing>,
        endpoint: Option<String>,
        sampling_rate_per_million: Option<i64>,
    }
    let Configuration { api_version, kind, tracing, endpoint, sampling_rate_per_million } =
        serde_saphyr::from_str(text).map_err(|error| format!("{error}; give a TracingConfiguration"))?;
    if !KINDS.iter().any(|(known, group)| kind == *known && api_version.starts_with(group)) {
        let known = KINDS.map(|(kind, group)| format!("{kind} of {group}"));
        return Err(format!("it is a {kind} of {api_version}; give a {}", known.join(" or a ")));
    }
    let Tracing { endpoint, sampling_rate_per_million: rate } = match (kind == KINDS[0].0, tracing) {
        (true, _) => Tracing { endpoint, sampling_rate_per_million },
        (false, Some(tracing)) => tracing,
        (false, None) => {
            return Err("it has no `tracing:`; give one with `samplingRatePerMillion`".to_owned());
        }
    };
    let rate = rate.unwrap_or_default();
    let rate = u32::try_from(rate).ok().filter(|rate| *rate <= MILLION);
    let rate = rate.ok_or_else(|| format!("samplingRatePerMillion must be from 0 to {MILLION}"))?;
    let rule = match rate {
        0 => "parentbased_always_off".to_owned(),
        _ => format!("parentbased_traceidratio={}", f64::from(rate) / f64::from(MILLION)),
    };
    Ok((rule.parse()?, endpoint))
}
