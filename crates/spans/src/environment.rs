//! Variables of the environment that OpenTelemetry defines.

use std::env;

/// A variable has an invalid value.
#[derive(Debug, thiserror::Error)]
#[error("{variable} is `{value}`; set it to {expected}")]
pub struct Error {
    /// Name of the variable.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// Valid values.
    pub expected: &'static str,
}

/// The value of a variable; `None` if it is unset or empty.
/// <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/#parsing-empty-value>
#[must_use]
pub fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// A number above 0; `default` where the variable has no value.
pub(crate) fn number(variable: &'static str, value: Option<String>, default: u64) -> Result<u64, Error> {
    let Some(value) = value else { return Ok(default) };
    let number = value.parse().ok().filter(|number| *number > 0);
    number.ok_or(Error { variable, value, expected: "a whole number above 0" })
}
