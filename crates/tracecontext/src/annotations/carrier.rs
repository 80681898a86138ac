//! Values in other forms than a `traceparent`. The form follows from the value.

use std::collections::HashMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::{Deserialize, de::IgnoredAny};

use crate::{Refusal, RemoteContext, traceparent};

/// Most bytes of a value: base64 of a JSON object with the longest `traceparent`, `tracestate` and `baggage`.
const MAX_BYTES: usize = 16 << 10;
/// OpenCensus' binary: a version, and three fields, each behind its number.
/// <https://github.com/census-instrumentation/opencensus-specs/blob/master/encodings/BinaryEncoding.md>
const OPENCENSUS: usize = 29;
/// OpenTelemetry's Go structure before 1.0: KEP-1668.
const STRUCT: usize = 25;
/// Jaeger's binary without baggage: trace id, span id, parent id, flags, and the number of members.
/// <https://github.com/jaegertracing/jaeger-client-go/blob/v2.30.0/propagation.go>
const JAEGER: usize = 37;

/// What a value holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Carried {
    /// Without its `tracestate`.
    pub(super) context: RemoteContext,
    /// As found.
    pub(super) state: String,
    /// As found.
    pub(super) baggage: String,
}

/// Reads a value of whatever form: `traceparent`, a JSON object with one, or in base64 one of the four that
/// `trace.kubernetes.io/context` has had.
pub(super) fn read(value: &str) -> Result<Carried, Refusal> {
    let value = value.trim();
    if value.len() > MAX_BYTES {
        return Err(Refusal::TooLong);
    }
    // Not in the alphabet of base64.
    if value.starts_with('{') {
        return json(value.as_bytes());
    }
    if value.contains('-') {
        return traceparent(value).map(Carried::from);
    }
    let bytes = BASE64_STANDARD.decode(value).map_err(|_| Refusal::Base64)?;
    binary(&bytes)
}

/// Reads what names a trace or a request: 32 hexadecimal digits, with dashes or without.
pub(super) fn initial(value: &str) -> Result<String, Refusal> {
    let value = value.trim();
    let digits = value.bytes().filter(|byte| *byte != b'-');
    let valid = [32, 36].contains(&value.len()) && digits.clone().all(|byte| byte.is_ascii_hexdigit());
    if valid && digits.count() == 32 { Ok(value.to_owned()) } else { Err(Refusal::Syntax) }
}

fn binary(bytes: &[u8]) -> Result<Carried, Refusal> {
    match bytes.len() {
        OPENCENSUS if [0, 1, 18, 27].map(|at| bytes[at]) == [0, 0, 1, 2] => {
            context(&bytes[2..18], &bytes[19..27], bytes[28])
        }
        STRUCT => context(&bytes[..16], &bytes[16..24], bytes[24]),
        // What is before JSON: text as the number of members would be an absurd one.
        JAEGER.. if is_jaeger(bytes) => context(&bytes[..16], &bytes[16..24], bytes[32]),
        _ if bytes.first() == Some(&b'{') => json(bytes),
        _ => Err(Refusal::Encoding),
    }
}

/// The ids are big-endian in every encoding, and of the flags only the sampled bit has the same meaning.
fn context(trace_id: &[u8], span_id: &[u8], flags: u8) -> Result<Carried, Refusal> {
    let trace_id: [u8; 16] = trace_id.try_into().map_err(|_| Refusal::Encoding)?;
    let span_id: [u8; 8] = span_id.try_into().map_err(|_| Refusal::Encoding)?;
    if trace_id == [0; 16] {
        return Err(Refusal::ZeroTraceId);
    }
    if span_id == [0; 8] {
        return Err(Refusal::ZeroParentId);
    }
    Ok(Carried::from(RemoteContext { trace_id, span_id, flags: flags & 1, trace_state: String::new() }))
}

/// Whether the members behind the context end where the bytes do.
fn is_jaeger(bytes: &[u8]) -> bool {
    let take = |rest: &mut &[u8]| -> Option<usize> {
        let (length, behind) = rest.split_first_chunk()?;
        *rest = behind;
        usize::try_from(i32::from_be_bytes(*length)).ok()
    };
    let mut rest = &bytes[JAEGER - 4..];
    let Some(members) = take(&mut rest) else { return false };
    // Each has two lengths: that bounds the loop.
    if members > rest.len() / 8 {
        return false;
    }
    for _ in 0..2 * members {
        let Some(behind) = take(&mut rest).and_then(|length| rest.get(length..)) else { return false };
        rest = behind;
    }
    rest.is_empty()
}

/// A carrier as propagators fill it: an object of texts, or Go's `http.Header`, an object of lists of texts.
fn json(bytes: &[u8]) -> Result<Carried, Refusal> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Member {
        One(String),
        Many(Vec<String>),
        Other(IgnoredAny),
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Refusal::NotUtf8)?;
    let members: HashMap<String, Member> = serde_json::from_str(text).map_err(|_| Refusal::Json)?;
    let member = |name: &str| {
        let (_, member) = members.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        match member {
            Member::One(text) => Some(text.clone()),
            Member::Many(texts) => Some(texts.join(",")),
            Member::Other(IgnoredAny) => None,
        }
    };
    let context = traceparent(&member("traceparent").ok_or(Refusal::Json)?)?;
    let [state, baggage] = ["tracestate", "baggage"].map(|name| member(name).unwrap_or_default());
    Ok(Carried { context, state, baggage })
}

impl From<RemoteContext> for Carried {
    fn from(context: RemoteContext) -> Self {
        Self { context, state: String::new(), baggage: String::new() }
    }
}
