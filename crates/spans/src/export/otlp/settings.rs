//! The variables of OTLP exporters:
//! <https://opentelemetry.io/docs/specs/otel/protocol/exporter/#configuration-options>.

use std::{path::PathBuf, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hyper::{
    Uri,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
};
use percent_encoding::percent_decode_str;

use super::queue::{Batching, Capacity};
use crate::environment::{self, Error, number};

/// Most bytes of a request before compression, unless one trace has more. gRPC servers accept 4 MiB.
const MAX_REQUEST_BYTES: u64 = 3 << 20;

/// Path of the service's only method.
const GRPC_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// What follows the endpoint of all signals.
const HTTP_PATH: &str = "/v1/traces";

/// Where traces go, and how.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) protocol: Protocol,
    /// Where requests go, without credentials.
    pub(super) url: Uri,
    /// The endpoint for people, without credentials.
    pub(super) endpoint: String,
    pub(super) headers: HeaderMap,
    /// Holds a bearer token.
    pub(super) token_file: Option<PathBuf>,
    pub(super) compression: Option<Compression>,
    /// Of a request, including the connection.
    pub(super) timeout: Duration,
    pub(super) tls: TlsFiles,
    pub(super) capacity: Capacity,
    pub(super) batching: Batching,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Grpc,
    Http,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    Gzip,
    Zstd,
}

/// PEM files.
#[derive(Clone, Debug, Default)]
pub(super) struct TlsFiles {
    /// The authorities that may sign the Collector's certificate; the system's without it.
    pub(super) authorities: Option<PathBuf>,
    /// The certificate and the key that the Collector knows this client by.
    pub(super) client: Option<(PathBuf, PathBuf)>,
}

/// A variable of all signals, or the one of traces, which takes precedence.
struct Found {
    variable: &'static str,
    value: String,
    of_traces: bool,
}

impl Found {
    fn invalid(self, expected: &'static str) -> Error {
        let Self { variable, value, of_traces: _ } = self;
        Error { variable, value, expected }
    }
}

/// Reads variables; a function, so that tests need no environment.
struct Reader<F>(F);

impl<F: Fn(&str) -> Option<String>> Reader<F> {
    fn find(&self, [of_traces, of_all]: [&'static str; 2]) -> Option<Found> {
        let found = |variable, of_traces| Some(Found { variable, value: (self.0)(variable)?, of_traces });
        found(of_traces, true).or_else(|| found(of_all, false))
    }

    fn path(&self, names: [&'static str; 2]) -> Option<PathBuf> {
        self.find(names).map(|found| found.value.into())
    }

    fn number(&self, variable: &'static str, default: u64) -> Result<u64, Error> {
        number(variable, (self.0)(variable), default)
    }
}

/// The names of a variable for traces and for all signals.
macro_rules! names {
    ($name:literal) => {
        [concat!("OTEL_EXPORTER_OTLP_TRACES_", $name), concat!("OTEL_EXPORTER_OTLP_", $name)]
    };
}

impl Settings {
    /// The settings of the environment.
    ///
    /// # Errors
    ///
    /// When a variable has an invalid value.
    pub(super) fn from_env() -> Result<Self, Error> {
        Self::read(environment::variable)
    }

    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let reader = Reader(variable);
        let protocol = match reader.find(names!("PROTOCOL")) {
            None => Protocol::Grpc,
            Some(found) if found.value == "grpc" => Protocol::Grpc,
            Some(found) if found.value == "http/protobuf" => Protocol::Http,
            Some(found) => return Err(found.invalid("`grpc` or `http/protobuf`")),
        };
        let compression = match reader.find(names!("COMPRESSION")) {
            None => None,
            Some(found) if found.value == "none" => None,
            Some(found) if found.value == "gzip" => Some(Compression::Gzip),
            Some(found) if found.value == "zstd" => Some(Compression::Zstd),
            Some(found) => return Err(found.invalid("`gzip`, `zstd` or `none`")),
        };
        let insecure =
            reader.find(names!("INSECURE")).is_some_and(|found| found.value.eq_ignore_ascii_case("true"));
        let mut headers = reader.find(names!("HEADERS")).map(headers).transpose()?.unwrap_or_default();
        let (url, endpoint) = endpoint(protocol, insecure, reader.find(names!("ENDPOINT")), &mut headers)?;
        let timeout = match reader.find(names!("TIMEOUT")) {
            None => 10_000,
            Some(Found { variable, value, .. }) => number(variable, Some(value), 0)?,
        };
        let certificate = reader.path(names!("CLIENT_CERTIFICATE"));
        let client = match (certificate, reader.path(names!("CLIENT_KEY"))) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(certificate), None) => {
                return Err(Error {
                    variable: "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
                    value: certificate.display().to_string(),
                    expected: "nothing, or OTEL_EXPORTER_OTLP_CLIENT_KEY to the file of its key",
                });
            }
            (None, Some(key)) => {
                return Err(Error {
                    variable: "OTEL_EXPORTER_OTLP_CLIENT_KEY",
                    value: key.display().to_string(),
                    expected: "nothing, or OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE to the file of its certificate",
                });
            }
        };
        Ok(Self {
            protocol,
            url,
            endpoint,
            headers,
            token_file: (reader.0)("SCHEDSPAN_OTLP_TOKEN_FILE").map(PathBuf::from),
            compression,
            timeout: Duration::from_millis(timeout),
            tls: TlsFiles { authorities: reader.path(names!("CERTIFICATE")), client },
            capacity: Capacity {
                spans: reader.number("OTEL_BSP_MAX_QUEUE_SIZE", 65_536)?,
                bytes: reader.number("SCHEDSPAN_OTLP_QUEUE_BYTES", 32 << 20)?,
            },
            batching: Batching {
                spans: reader.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 2048)?,
                bytes: MAX_REQUEST_BYTES,
                // Less than the time between two wake-ups: a batch goes at the one after its first trace.
                delay: Duration::from_millis(reader.number("OTEL_BSP_SCHEDULE_DELAY", 400)?),
            },
        })
    }
}

/// The URL of requests, and the endpoint for people. Credentials in the endpoint become a header.
fn endpoint(
    protocol: Protocol,
    insecure: bool,
    found: Option<Found>,
    headers: &mut HeaderMap,
) -> Result<(Uri, String), Error> {
    let found = found.unwrap_or_else(|| Found {
        variable: names!("ENDPOINT")[1],
        value: match protocol {
            Protocol::Grpc => "http://localhost:4317".to_owned(),
            Protocol::Http => "http://localhost:4318".to_owned(),
        },
        of_traces: false,
    });
    // Without a scheme it is a name and a port.
    let default = if insecure { "http" } else { "https" };
    let (scheme, rest) = found.value.split_once("://").unwrap_or((default, found.value.as_str()));
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    let (credentials, host) = match authority.rsplit_once('@') {
        Some((credentials, host)) => {
            (Some(percent_decode_str(credentials).decode_utf8_lossy().into_owned()), host)
        }
        None => (None, authority),
    };
    let shown = format!("{scheme}://{host}{path}");
    let path = match (protocol, found.of_traces) {
        (Protocol::Grpc, _) => GRPC_PATH.to_owned(),
        (Protocol::Http, true) => path.to_owned(),
        (Protocol::Http, false) => format!("{}{HTTP_PATH}", path.trim_end_matches('/')),
    };
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    let url = format!("{scheme}://{host}{path}").parse::<Uri>();
    let url = url.ok().filter(|url| {
        url.host().is_some_and(|host| !host.is_empty())
            && (!has_port || url.port_u16().is_some())
            && matches!(url.scheme_str(), Some("http" | "https"))
    });
    let Some(url) = url else {
        // It may hold credentials.
        return Err(Error {
            variable: found.variable,
            value: shown,
            expected: "a URL such as `http://localhost:4317` or `https://collector:4317`",
        });
    };
    if let Some(credentials) = credentials {
        let value = format!("Basic {}", BASE64_STANDARD.encode(credentials));
        headers.entry(AUTHORIZATION).or_insert(secret(&value).expect("base64 is a valid header"));
    }
    Ok((url, shown))
}

/// `key=value,...`, with percent-encoded values.
fn headers(found: Found) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    for member in found.value.split(',').map(str::trim).filter(|member| !member.is_empty()) {
        let header = member.split_once('=').and_then(|(key, value)| {
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            Some((key.trim().parse::<HeaderName>().ok()?, secret(&value)?))
        });
        let Some((name, value)) = header else {
            // It may hold a token.
            let expected = "`name=value,...`, with values percent-encoded where they have commas or spaces";
            return Err(Error { value: "(not shown)".to_owned(), ..found.invalid(expected) });
        };
        headers.append(name, value);
    }
    Ok(headers)
}

/// A header whose value is not printed.
pub(super) fn secret(value: &str) -> Option<HeaderValue> {
    let mut header = HeaderValue::from_str(value).ok()?;
    header.set_sensitive(true);
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, String> {
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::read(value).map_err(|error| error.to_string())
    }

    #[test]
    fn endpoints_become_urls_of_requests() {
        for (protocol, variable, endpoint, url) in [
            ("grpc", "ENDPOINT", "https://collector:4317", "https://collector:4317/opentelemetry"),
            ("grpc", "ENDPOINT", "collector:4317", "https://collector:4317/opentelemetry"),
            ("http/protobuf", "ENDPOINT", "http://collector", "http://collector/v1/traces"),
            (
                "http/protobuf",
                "ENDPOINT",
                "http://collector:4318/base/",
                "http://collector:4318/base/v1/traces",
            ),
            ("http/protobuf", "TRACES_ENDPOINT", "http://collector:4318/own", "http://collector:4318/own"),
            ("http/protobuf", "TRACES_ENDPOINT", "http://[::1]:4318", "http://[::1]:4318/"),
        ] {
            let variable = format!("OTEL_EXPORTER_OTLP_{variable}");
            let found = read(&[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), (&variable, endpoint)]).unwrap();
            assert!(found.url.to_string().starts_with(url), "{endpoint}: {}", found.url);
        }
        let insecure =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"), ("OTEL_EXPORTER_OTLP_INSECURE", "true")];
        assert_eq!(read(&insecure).unwrap().endpoint, "http://collector:4317");
        assert_eq!(read(&[]).unwrap().endpoint, "http://localhost:4317");
        assert_eq!(
            read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://me:secret@host")]).unwrap_err(),
            "OTEL_EXPORTER_OTLP_ENDPOINT is `ftp://host`; set it to a URL such as `http://localhost:4317` or \
             `https://collector:4317`"
        );
        for bad in ["https://", "http://a b", "unix:/run/otlp.sock", "http://host:99999"] {
            assert!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", bad)]).is_err(), "{bad}");
        }
    }

    #[test]
    fn credentials_in_an_endpoint_are_sent_and_not_shown() {
        let found = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://me:s%40cret@collector:4317")]).unwrap();
        assert_eq!(found.endpoint, "https://collector:4317");
        assert_eq!(found.headers["authorization"], "Basic bWU6c0BjcmV0");
        assert!(!format!("{found:?}").contains("bWU6"), "{found:?}");
    }

    #[test]
    fn the_variable_of_traces_takes_precedence() {
        let found = read(&[
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "nonsense"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "zstd"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "5000"),
        ])
        .unwrap();
        assert_eq!((found.protocol, found.compression), (Protocol::Http, Some(Compression::Zstd)));
        assert_eq!(found.timeout, Duration::from_secs(5));
    }

    #[test]
    fn headers_are_decoded_and_bad_ones_not_shown() {
        let variable = "OTEL_EXPORTER_OTLP_HEADERS";
        let found = read(&[(variable, "authorization=Bearer%20abc, x-tenant = one ,,x-empty=")]).unwrap();
        assert_eq!(found.headers["authorization"], "Bearer abc");
        assert_eq!(found.headers["x-tenant"], "one");
        assert_eq!(found.headers["x-empty"], "");
        for bad in ["secret", "a b=secret", "name=%0asecret"] {
            let error = read(&[(variable, bad)]).unwrap_err();
            assert!(error.contains(variable) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_certificate_needs_its_key() {
        let [certificate, key] = ["OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_KEY"]
            .map(|name| (name, "/file"));
        for (some, missing) in [(certificate, key.0), (key, certificate.0)] {
            let error = read(&[some]).unwrap_err();
            assert!(error.contains(missing), "{error}");
        }
        assert!(read(&[certificate, key]).unwrap().tls.client.is_some());
    }

    #[test]
    fn bad_values_are_named_with_what_is_allowed() {
        for (variable, value, says) in [
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "`http/protobuf`"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "snappy", "`zstd`"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "a whole number"),
            ("SCHEDSPAN_OTLP_QUEUE_BYTES", "0", "a whole number"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "-1", "a whole number"),
        ] {
            let error = read(&[(variable, value)]).unwrap_err();
            assert!(error.contains(variable) && error.contains(value) && error.contains(says), "{error}");
        }
    }
}
