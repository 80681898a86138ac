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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_has_its_value_and_an_absent_one_none() {
        // Cargo sets the first one for each test.
        assert_eq!(variable("CARGO_PKG_NAME").as_deref(), Some("spans"));
        assert_eq!(variable("SCHEDSPAN_NO_SUCH_VARIABLE"), None);
    }

    #[test]
    fn a_number_is_above_zero_and_has_a_default() {
        let number = |value: Option<&str>| number("N", value.map(str::to_owned), 5);
        assert_eq!(number(None).ok(), Some(5));
        assert_eq!(number(Some("7")).ok(), Some(7));
        for text in ["0", "-1", "many"] {
            let error = number(Some(text)).map(|_| ()).unwrap_err().to_string();
            assert_eq!(error, format!("N is `{text}`; set it to a whole number above 0"));
        }
    }
}
