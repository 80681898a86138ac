//! The W3C trace context in a Pod's annotations: <https://www.w3.org/TR/trace-context-2/>.

use std::str::FromStr as _;

use opentelemetry::trace::TraceState;

use crate::{Refusal, RemoteContext};

/// The specification's minimum that must be propagated; no more is.
const MAX_TRACESTATE_BYTES: usize = 512;
const MAX_TRACESTATE_MEMBERS: usize = 32;
/// Most bytes of a `traceparent`: ten times version 00, for additions of later versions.
const MAX_TRACEPARENT_BYTES: usize = 550;

/// Reads a `traceparent`. The trace state of what it returns is empty.
///
/// Surrounding whitespace is ignored. Versions above 00 may continue after the flags, as the specification allows.
///
/// # Errors
///
/// Why the value is refused.
pub fn traceparent(value: &str) -> Result<RemoteContext, Refusal> {
    let value = value.trim();
    if value.len() > MAX_TRACEPARENT_BYTES {
        return Err(Refusal::TooLong);
    }
    let mut parts = value.splitn(5, '-');
    let [version] = hex(parts.next())?;
    let trace_id = hex(parts.next())?;
    let span_id = hex(parts.next())?;
    let [flags] = hex(parts.next())?;
    match version {
        0xff => Err(Refusal::Version),
        0 if parts.next().is_some() => Err(Refusal::Syntax),
        _ if trace_id == [0; 16] => Err(Refusal::ZeroTraceId),
        _ if span_id == [0; 8] => Err(Refusal::ZeroParentId),
        _ => Ok(RemoteContext { trace_id, span_id, flags, trace_state: String::new() }),
    }
}

/// Reads a `tracestate`; what it returns is as the value was found, without spaces around it.
///
/// # Errors
///
/// Why the value is refused.
pub fn tracestate(value: &str) -> Result<String, Refusal> {
    let value = value.trim();
    if value.len() > MAX_TRACESTATE_BYTES || value.split(',').count() > MAX_TRACESTATE_MEMBERS {
        return Err(Refusal::TraceStateTooLarge);
    }
    match TraceState::from_str(value) {
        Ok(_) if value.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) => Ok(value.to_owned()),
        _ => Err(Refusal::TraceStateSyntax),
    }
}

/// Exactly `N` bytes in lower-case hexadecimal digits: the specification allows no others.
fn hex<const N: usize>(part: Option<&str>) -> Result<[u8; N], Refusal> {
    let digits = part.unwrap_or_default().as_bytes();
    if digits.len() != 2 * N {
        return Err(Refusal::Syntax);
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(bytes)
}

fn digit(digit: u8) -> Result<u8, Refusal> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(Refusal::Syntax),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_oneof, proptest};

    use super::*;

    const TRACE_ID: [u8; 16] = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();
    const SPAN_ID: [u8; 8] = 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes();

    #[test]
    fn a_traceparent_is_accepted_or_refused_by_the_specification() {
        let context =
            |flags| RemoteContext { trace_id: TRACE_ID, span_id: SPAN_ID, flags, trace_state: String::new() };
        for (value, expected) in [
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Ok(context(1))),
            (" 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00\n", Ok(context(0))),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff", Ok(context(0xff))),
            ("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Ok(context(1))),
            (
                "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-the-future-will-be",
                Ok(context(1)),
            ),
            (
                &format!("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-{}", "f".repeat(500)),
                Err(Refusal::TooLong),
            ),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what", Err(Refusal::Syntax)),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", Err(Refusal::Syntax)),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-", Err(Refusal::Syntax)),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", Err(Refusal::Syntax)),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", Err(Refusal::Syntax)),
            ("00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01", Err(Refusal::Syntax)),
            ("00-4bf92f3577b34da6a3ce929d0e0e47366-00f067aa0ba902b7-01", Err(Refusal::Syntax)),
            ("00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01", Err(Refusal::Syntax)),
            ("00-4bf92f3577b34da6a3ce929d0e0e47é-00f067aa0ba902b7-01", Err(Refusal::Syntax)),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1", Err(Refusal::Syntax)),
            ("0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Err(Refusal::Syntax)),
            ("00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01", Err(Refusal::Syntax)),
            ("", Err(Refusal::Syntax)),
            ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Err(Refusal::Version)),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", Err(Refusal::ZeroTraceId)),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", Err(Refusal::ZeroParentId)),
        ] {
            assert_eq!(traceparent(value), expected, "{value:?}");
        }
    }

    #[test]
    fn a_tracestate_is_accepted_or_refused_by_the_specification() {
        let members = |count: usize| vec!["a=1"; count].join(",");
        for (value, expected) in [
            ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", Ok("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")),
            (" a=1 ", Ok("a=1")),
            ("", Ok("")),
            (&members(32), Ok(&*members(32))),
            (&members(33), Err(Refusal::TraceStateTooLarge)),
            (&format!("a={},b={}", "x".repeat(254), "y".repeat(254)), Err(Refusal::TraceStateTooLarge)),
            ("no equals sign", Err(Refusal::TraceStateSyntax)),
            ("Upper=1", Err(Refusal::TraceStateSyntax)),
            ("a=\u{1b}[31m", Err(Refusal::TraceStateSyntax)),
            ("a=é", Err(Refusal::TraceStateSyntax)),
        ] {
            assert_eq!(tracestate(value), expected.map(str::to_owned), "{value:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(trace_id in 1..=u128::MAX, span_id in 1..=u64::MAX, flags in any::<u8>()) {
            let context = traceparent(&format!("00-{trace_id:032x}-{span_id:016x}-{flags:02x}"));
            assert_eq!(context, Ok(RemoteContext {
                trace_id: trace_id.to_be_bytes(),
                span_id: span_id.to_be_bytes(),
                flags,
                trace_state: String::new(),
            }));
        }

        #[test]
        fn what_is_read_is_written_as_version_00(version in 0..0xff_u8, trace_id in 1..=u128::MAX, span_id in 1..=u64::MAX, flags in any::<u8>()) {
            let ids = format!("{trace_id:032x}-{span_id:016x}");
            let context = traceparent(&format!("{version:02x}-{ids}-{flags:02x}")).unwrap();
            assert_eq!(context.traceparent(), format!("00-{ids}-{:02x}", flags & 3));
        }

        #[test]
        fn no_text_makes_it_panic_or_take_a_zero_id(text in prop_oneof![".{0,80}", "[0-9a-f-]{50,60}"]) {
            if let Ok(context) = traceparent(&text) {
                assert!(context.trace_id != [0; 16] && context.span_id != [0; 8]);
            }
            let _ = tracestate(&text);
        }
    }
}
