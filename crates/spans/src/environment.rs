//! Variables of the environment that OpenTelemetry defines.

use std::env;

/// One makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{variable} is `{value}`; set it to {expected}")]
pub struct Error {
    /// Its name.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// What it may be.
    pub expected: &'static str,
}

/// Its value; an empty one is none.
/// <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/#parsing-empty-value>
#[must_use]
pub fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
