//! Durations for people, written and read.

use std::time::Duration;

/// Nanoseconds as three digits and a unit.
#[must_use]
pub fn duration(ns: u64) -> String {
    let ns = ns as f64;
    let (scale, unit) = match ns {
        ..999.5 => return format!("{ns} ns"),
        ..999.5e3 => (1e3, "us"),
        ..999.5e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let number = ns / scale;
    let decimals = if number < 9.995 { 2 } else { usize::from(number < 99.95) };
    format!("{number:.decimals$} {unit}")
}

/// Milliseconds as three digits and a unit.
#[must_use]
pub fn milliseconds(milliseconds: f64) -> String {
    duration((milliseconds * 1e6) as u64)
}

/// Reads a duration with a unit: `500us`, `10ms`, `1.5s`.
///
/// # Errors
///
/// When the number or the unit is missing, or the duration is negative or too large.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("give a number with the unit us, ms, s, m or h".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| format!("`{number}` is not a number"))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}

/// Reads a number of bytes, with or without a unit: `100000`, `64KiB`, `256MiB`, `1GiB`. `None` if it is no number or too large.
///
/// # Errors
///
/// When the unit is another one.
pub fn parse_bytes(text: &str) -> Result<Option<u64>, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "" => 1,
        "KiB" | "Ki" => 1 << 10,
        "MiB" | "Mi" => 1 << 20,
        "GiB" | "Gi" => 1 << 30,
        _ => return Err(format!("`{unit}` is not a unit: use KiB, MiB or GiB")),
    };
    Ok(number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_and_a_unit() {
        for (ns, expected) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (9_994, "9.99 us"),
            (9_995, "10.0 us"),
            (9_996, "10.0 us"),
            (99_950, "100 us"),
            (143_200, "143 us"),
            (999_600, "1.00 ms"),
            (5_110_000, "5.11 ms"),
            (61_500_000_000, "61.5 s"),
            (1_234_000_000_000, "1234 s"),
        ] {
            assert_eq!(duration(ns), expected);
        }
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse_duration("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(parse_duration("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(
            (parse_duration("5m"), parse_duration("24h")),
            (Ok(Duration::from_secs(300)), Ok(Duration::from_secs(86_400)))
        );
        for wrong in ["", "10", "ms", "1.2.3s", "-1s", "5d", "99999999999999999999999s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_may_have_a_unit() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("100000", Some(100_000)),
            ("64KiB", Some(64 << 10)),
            ("64Ki", Some(64 << 10)),
            ("256MiB", Some(256 << 20)),
            ("1GiB", Some(1 << 30)),
            ("", None),
            ("MiB", None),
            ("99999999999GiB", None),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse_bytes("5MB"), Err("`MB` is not a unit: use KiB, MiB or GiB".to_owned()));
    }

    #[test]
    fn milliseconds_are_durations() {
        assert_eq!(milliseconds(12.25), "12.2 ms");
    }
}
