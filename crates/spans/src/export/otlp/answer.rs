//! What a Collector answers, and whether the same request may succeed later:
//! <https://opentelemetry.io/docs/specs/otlp/#failures>.

use std::time::{Duration, SystemTime};

use base64::{
    Engine as _,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use hyper::{HeaderMap, StatusCode, header::RETRY_AFTER};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use percent_encoding::percent_decode;
use prost::Message as _;

use crate::text::clean;

/// Longest pause that a Collector can ask for.
const MAX_PAUSE: Duration = Duration::from_secs(300);
/// Most characters of a message from a Collector.
const MAX_MESSAGE: usize = 300;

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The spans are accepted, all but some.
    Accepted { rejected: u64, message: String },
    /// The request may be accepted later: after this pause, if the Collector names one.
    Later { pause: Option<Duration>, reason: String },
    /// A smaller request may be accepted.
    TooLarge(String),
    /// The request will never be accepted.
    Refused(String),
}

/// `google.rpc.Status`, the body of an error.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Detail>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
struct Detail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    delay: Option<Seconds>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, prost::Message)]
struct Seconds {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanoseconds: i32,
}

/// Status codes of gRPC by number: name, and whether the request may succeed later.
const CODES: [(&str, bool); 17] = [
    ("OK", false),
    ("CANCELLED", true),
    ("UNKNOWN", false),
    ("INVALID_ARGUMENT", false),
    ("DEADLINE_EXCEEDED", true),
    ("NOT_FOUND", false),
    ("ALREADY_EXISTS", false),
    ("PERMISSION_DENIED", false),
    // Only with RetryInfo.
    ("RESOURCE_EXHAUSTED", false),
    ("FAILED_PRECONDITION", false),
    ("ABORTED", true),
    ("OUT_OF_RANGE", true),
    ("UNIMPLEMENTED", false),
    ("INTERNAL", false),
    ("UNAVAILABLE", true),
    ("DATA_LOSS", true),
    ("UNAUTHENTICATED", false),
];

/// Next step where the Collector does not know this client.
const CREDENTIALS: &str = "check OTEL_EXPORTER_OTLP_HEADERS or SCHEDSPAN_OTLP_TOKEN_FILE";

impl Answer {
    /// Of a response by HTTP.
    pub(super) fn of_http(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        if status.is_success() {
            return accepted(body);
        }
        let message = RpcStatus::decode(body).map(|status| status.message).unwrap_or_default();
        let mut reason = status.to_string();
        if !message.is_empty() {
            reason = format!("{reason}: {}", short(&message));
        }
        match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Self::Later { pause: retry_after(headers), reason },
            StatusCode::PAYLOAD_TOO_LARGE => too_large(&reason, "max_request_body_size"),
            // As a Collector says it.
            StatusCode::BAD_REQUEST if message.contains("request body too large") => {
                too_large(&reason, "max_request_body_size")
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Self::Refused(format!("{reason}; {CREDENTIALS}"))
            }
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                Self::Refused(format!(
                    "{reason}; set OTEL_EXPORTER_OTLP_ENDPOINT to the Collector's for HTTP, usually port 4318"
                ))
            }
            _ => Self::Refused(reason),
        }
    }

    /// Of a response by gRPC. The status is in the trailers or, without a message, in the headers.
    pub(super) fn of_grpc(
        status: StatusCode,
        headers: &HeaderMap,
        trailers: Option<&HeaderMap>,
        body: &[u8],
    ) -> Self {
        let fields = trailers.filter(|trailers| trailers.contains_key("grpc-status")).unwrap_or(headers);
        let text = |name: &str| Some(fields.get(name)?.as_bytes());
        let code = text("grpc-status").and_then(|code| str::from_utf8(code).ok()?.parse::<usize>().ok());
        let Some(code) = code else {
            // Something in between has answered, or the server does not speak gRPC.
            return match Self::of_http(status, headers, &[]) {
                Self::Accepted { .. } | Self::Refused(_) => Self::Refused(format!(
                    "its answer is not gRPC ({status}); set OTEL_EXPORTER_OTLP_ENDPOINT to the Collector's for gRPC, usually port \
                     4317, or OTEL_EXPORTER_OTLP_PROTOCOL"
                )),
                other @ (Self::Later { .. } | Self::TooLarge(_)) => other,
            };
        };
        if code == 0 {
            // Behind a byte for compression and four for the length.
            return accepted(body.get(5..).unwrap_or_default());
        }
        let (name, retriable) = CODES.get(code).copied().unwrap_or(("an unknown code", false));
        let message = percent_decode(text("grpc-message").unwrap_or_default()).decode_utf8_lossy();
        let reason =
            if message.is_empty() { name.to_owned() } else { format!("{name}: {}", short(&message)) };
        let pause = text("grpc-status-details-bin").and_then(retry_info);
        match name {
            "RESOURCE_EXHAUSTED" if pause.is_some() => Self::Later { pause, reason },
            // As grpc-go says it.
            "RESOURCE_EXHAUSTED" if message.contains("larger than max") => {
                too_large(&reason, "max_recv_msg_size_mib")
            }
            "UNAUTHENTICATED" | "PERMISSION_DENIED" => Self::Refused(format!("{reason}; {CREDENTIALS}")),
            _ if retriable => Self::Later { pause, reason },
            _ => Self::Refused(reason),
        }
    }
}

/// Where one span alone is too large, the Collector's setting is the next step.
fn too_large(reason: &str, setting: &str) -> Answer {
    Answer::TooLarge(format!("{reason}; raise `{setting}` of the Collector's OTLP receiver"))
}

/// A body that is not understood rejects nothing.
fn accepted(body: &[u8]) -> Answer {
    let partial = ExportTraceServiceResponse::decode(body).ok().and_then(|response| response.partial_success);
    let partial = partial.unwrap_or_default();
    let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0);
    Answer::Accepted { rejected, message: short(&partial.error_message) }
}

/// Foreign text for the log.
fn short(message: &str) -> String {
    clean(&message.chars().take(MAX_MESSAGE).collect::<String>())
}

/// Seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = value.parse().map(Duration::from_secs).ok().or_else(|| {
        Some(httpdate::parse_http_date(value).ok()?.duration_since(SystemTime::now()).unwrap_or_default())
    })?;
    Some(pause.min(MAX_PAUSE))
}

fn retry_info(details: &[u8]) -> Option<Duration> {
    let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let bytes = GeneralPurpose::new(&base64::alphabet::STANDARD, lenient).decode(details).ok()?;
    let details = RpcStatus::decode(&*bytes).ok()?.details;
    let info = details.iter().find(|detail| detail.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let Seconds { seconds, nanoseconds } = RetryInfo::decode(&*info.value).ok()?.delay.unwrap_or_default();
    let pause = Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanoseconds).unwrap_or(0));
    Some(pause.min(MAX_PAUSE))
}

#[cfg(test)]
pub(super) mod tests {
    use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
    use hyper::header::HeaderName;

    use super::*;

    fn headers<const N: usize>(all: [(&'static str, &str); N]) -> HeaderMap {
        all.into_iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn later(answer: Answer) -> Option<Duration> {
        match answer {
            Answer::Later { pause, .. } => pause,
            other => panic!("{other:?}"),
        }
    }

    /// A status that asks for a pause of so many seconds and a half.
    pub(in super::super) fn details(seconds: i64) -> Vec<u8> {
        let info = RetryInfo { delay: Some(Seconds { seconds, nanoseconds: 500_000_000 }) };
        let type_url = "type.googleapis.com/google.rpc.RetryInfo".to_owned();
        let details = vec![Detail { type_url, value: info.encode_to_vec() }];
        RpcStatus { message: "full".to_owned(), details }.encode_to_vec()
    }

    #[test]
    fn http_errors_that_may_pass_are_retried_when_the_collector_says() {
        for (value, pause) in [
            ("7", Some(Duration::from_secs(7))),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(Duration::ZERO)),
            ("99999999999", Some(MAX_PAUSE)),
            ("soon", None),
            ("-1", None),
        ] {
            for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE] {
                let answer = Answer::of_http(status, &headers([("retry-after", value)]), &[]);
                assert_eq!(later(answer), pause, "{value}");
            }
        }
        assert_eq!(later(Answer::of_http(StatusCode::BAD_GATEWAY, &headers([]), b"<html>")), None);
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(60));
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        let pause = later(Answer::of_http(unavailable, &headers([("retry-after", &date)]), &[])).unwrap();
        // A date has no fractions of a second.
        assert!((Duration::from_secs(30)..=Duration::from_secs(60)).contains(&pause), "{pause:?}");
    }

    #[test]
    fn http_errors_that_stay_are_not_retried() {
        let refused = |status: StatusCode| match Answer::of_http(status, &headers([]), &details(1)) {
            Answer::Refused(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(StatusCode::BAD_REQUEST), "400 Bad Request: full");
        assert!(refused(StatusCode::UNAUTHORIZED).contains("SCHEDSPAN_OTLP_TOKEN_FILE"));
        assert!(refused(StatusCode::NOT_FOUND).contains("4318"));
        let body = RpcStatus { message: "http: request body too large".to_owned(), ..RpcStatus::default() };
        for (status, body) in
            [(StatusCode::PAYLOAD_TOO_LARGE, vec![]), (StatusCode::BAD_REQUEST, body.encode_to_vec())]
        {
            let Answer::TooLarge(reason) = Answer::of_http(status, &headers([]), &body) else {
                panic!("{status} is not split");
            };
            assert!(reason.contains("max_request_body_size"), "{reason}");
        }
    }

    /// <https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes>
    #[test]
    fn http_statuses_are_retried_as_the_specification_says() {
        for code in (100..1000).filter(|code| !(200..300).contains(code)) {
            let answer = Answer::of_http(StatusCode::from_u16(code).unwrap(), &headers([]), &[]);
            let retried = matches!(answer, Answer::Later { .. });
            assert_eq!(retried, [429, 502, 503, 504].contains(&code), "{code}: {answer:?}");
        }
    }

    #[test]
    fn grpc_codes_are_retried_as_the_specification_says() {
        let answer =
            |code: &str| Answer::of_grpc(StatusCode::OK, &headers([("grpc-status", code)]), None, &[]);
        for code in ["1", "4", "10", "11", "14", "15"] {
            assert_eq!(later(answer(code)), None);
        }
        for code in ["2", "3", "5", "6", "7", "8", "9", "12", "13", "16", "17", "18446744073709551616", "x"] {
            assert!(matches!(answer(code), Answer::Refused(_)), "{code}");
        }
    }

    #[test]
    fn a_client_that_grpc_does_not_let_in_is_told_to_check_its_credentials() {
        for (code, checks) in [("7", true), ("16", true), ("3", false)] {
            let answer = Answer::of_grpc(StatusCode::OK, &headers([("grpc-status", code)]), None, &[]);
            let Answer::Refused(reason) = answer else { panic!("{answer:?}") };
            assert_eq!(reason.contains(CREDENTIALS), checks, "{reason}");
        }
    }

    #[test]
    fn an_exhausted_collector_is_asked_again_if_it_says_when() {
        let half = Duration::from_millis(500);
        for (seconds, pause) in [(2, Duration::from_secs(2) + half), (-1, half), (i64::MAX, MAX_PAUSE)] {
            for text in
                [BASE64_STANDARD.encode(details(seconds)), BASE64_STANDARD_NO_PAD.encode(details(seconds))]
            {
                let trailers = headers([("grpc-status", "8"), ("grpc-status-details-bin", &text)]);
                let answer = Answer::of_grpc(StatusCode::OK, &headers([]), Some(&trailers), &[]);
                assert_eq!(later(answer), Some(pause));
            }
        }
        let message = "grpc: received message larger than max (5000000 vs. 4194304)";
        for (message, too_large) in [(message, true), ("quota", false)] {
            let trailers = headers([("grpc-status", "8"), ("grpc-message", message)]);
            let answer = Answer::of_grpc(StatusCode::OK, &headers([]), Some(&trailers), &[]);
            assert_eq!(matches!(answer, Answer::TooLarge(_)), too_large, "{answer:?}");
            assert_eq!(matches!(answer, Answer::Refused(_)), !too_large, "{answer:?}");
        }
    }

    #[test]
    fn what_stands_between_and_answers_by_http_is_understood() {
        let answer = |status| Answer::of_grpc(status, &headers([]), None, b"<html>");
        assert_eq!(later(answer(StatusCode::SERVICE_UNAVAILABLE)), None);
        assert!(matches!(answer(StatusCode::NOT_FOUND), Answer::Refused(_)));
        assert!(matches!(answer(StatusCode::OK), Answer::Refused(_)));
    }

    #[test]
    fn a_partial_success_tells_how_many_are_rejected() {
        let partial = |rejected_spans| {
            let mut response = ExportTraceServiceResponse::default();
            let partial = response.partial_success.get_or_insert_default();
            (partial.rejected_spans, partial.error_message) = (rejected_spans, "too\u{1b}old".to_owned());
            response.encode_to_vec()
        };
        let accepted = |rejected, message: &str| Answer::Accepted { rejected, message: message.to_owned() };
        for (rejected_spans, rejected) in [(3, 3), (-3, 0)] {
            let body = partial(rejected_spans);
            let expected = accepted(rejected, "too?old");
            assert_eq!(Answer::of_http(StatusCode::OK, &headers([]), &body), expected);
            let framed = [&[0; 5], &*body].concat();
            let answer = Answer::of_grpc(StatusCode::OK, &headers([("grpc-status", "0")]), None, &framed);
            assert_eq!(answer, expected);
        }
        for body in [&b""[..], b"{}", b"\xff\xff"] {
            assert_eq!(Answer::of_http(StatusCode::OK, &headers([]), body), accepted(0, ""));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_answer_makes_it_panic(
            code in 100_u16..999,
            grpc in "[0-9]{0,3}",
            details in "[ -~]{0,40}",
            body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64),
        ) {
            let status = StatusCode::from_u16(code).unwrap();
            let fields = headers([
                ("grpc-status", &grpc),
                ("grpc-message", &details),
                ("grpc-status-details-bin", &details),
                ("retry-after", &details),
            ]);
            Answer::of_http(status, &fields, &body);
            Answer::of_grpc(status, &fields, Some(&fields), &body);
        }
    }
}
