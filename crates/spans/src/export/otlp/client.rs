//! Requests to a Collector: gRPC is a POST by HTTP/2 with a frame around the message, and a status in the trailers.

use std::{
    error::Error as StdError,
    fs::File,
    io::{self, Read},
    iter,
    pin::Pin,
    task::{Context, Poll},
};

use bytes_utils::SegmentedBuf;
use flate2::{Compression as Level, write::GzEncoder};
use http_body_util::{BodyExt as _, Collected, Full, Limited};
use hyper::{
    Request, Uri,
    body::{Buf as _, Bytes},
    header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, TE, USER_AGENT},
};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::{
    client::{
        legacy::{
            Client as Pool,
            connect::{HttpConnector, proxy::Tunnel},
        },
        proxy::matcher::Matcher,
    },
    rt::{TokioExecutor, TokioIo},
};
use rustls::{AlertDescription, CertificateError, pki_types::ServerName};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;
use tower::Service;

use super::{
    answer::Answer,
    encode::{Encoded, request},
    settings::{Compression, Protocol, Settings, secret},
    tls,
};
use crate::text::{clean, sentence};

/// Most bytes of an answer.
const MAX_ANSWER: usize = 256 << 10;
/// Most bytes of a token.
const MAX_TOKEN: u64 = 64 << 10;

type BoxError = Box<dyn StdError + Send + Sync>;
/// The body of a request: in parts, of which the traces' are shared with those that wait.
type Body = Full<SegmentedBuf<Bytes>>;

/// A connection to a Collector, made when it is needed.
pub(super) struct Client {
    settings: Settings,
    pool: Pool<Connector, Body>,
}

impl Client {
    /// # Errors
    ///
    /// When a file that the settings name cannot be used: what to do.
    pub(super) fn new(settings: Settings) -> Result<Self, String> {
        if settings.url.scheme_str() == Some("https") {
            tls::configuration(&settings.tls, settings.protocol).map_err(|error| error.to_string())?;
        }
        let client = Self { pool: pool(&settings), settings };
        client.token()?;
        Ok(client)
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.settings.endpoint
    }

    /// Sends traces in one request.
    pub(super) async fn send(&mut self, traces: &mut [Encoded]) -> Answer {
        let later = |reason| Answer::Later { pause: None, reason };
        let token = match self.token() {
            Ok(token) => token,
            Err(reason) => return later(reason),
        };
        let request = self.request(self.body(traces), token);
        match timeout(self.settings.timeout, self.exchange(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => later(explain(&*error, self.settings.url.scheme_str() == Some("https"))),
            Err(_) => {
                // Its connection may be dead.
                self.pool = pool(&self.settings);
                let timeout = self.settings.timeout.as_millis();
                later(format!("no answer within {timeout} ms; check OTEL_EXPORTER_OTLP_ENDPOINT"))
            }
        }
    }

    async fn exchange(&self, request: Request<Body>) -> Result<Answer, BoxError> {
        let (head, body) = self.pool.request(request).await?.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        Ok(match self.settings.protocol {
            // The status decides, even if the rest does not arrive.
            Protocol::Http => {
                let body = body.map(Collected::to_bytes).unwrap_or_default();
                Answer::of_http(head.status, &head.headers, &body)
            }
            Protocol::Grpc => {
                let body = body?;
                let trailers = body.trailers().cloned();
                Answer::of_grpc(head.status, &head.headers, trailers.as_ref(), &body.to_bytes())
            }
        })
    }

    fn request(&self, body: Body, token: Option<HeaderValue>) -> Request<Body> {
        let Settings { protocol, url, headers, compression, .. } = &self.settings;
        let mut request = Request::post(url).body(body).expect("the settings have a valid URL");
        let all = request.headers_mut();
        let agent = concat!("schedspan/", env!("CARGO_PKG_VERSION"));
        all.insert(USER_AGENT, HeaderValue::from_static(agent));
        let (kind, encoding) = match protocol {
            Protocol::Grpc => ("application/grpc", HeaderName::from_static("grpc-encoding")),
            Protocol::Http => ("application/x-protobuf", CONTENT_ENCODING),
        };
        all.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if *protocol == Protocol::Grpc {
            all.insert(TE, HeaderValue::from_static("trailers"));
        }
        match compression {
            None => {}
            Some(Compression::Gzip) => drop(all.insert(encoding, HeaderValue::from_static("gzip"))),
            Some(Compression::Zstd) => drop(all.insert(encoding, HeaderValue::from_static("zstd"))),
        }
        all.extend(headers.clone());
        if let Some(token) = token {
            all.insert(AUTHORIZATION, token);
        }
        request
    }

    fn body(&self, traces: &mut [Encoded]) -> Body {
        let mut message = request(traces);
        if let Some(compression) = self.settings.compression {
            let compressed = compress(compression, message.reader());
            message = SegmentedBuf::from(vec![compressed.into()]);
        }
        if self.settings.protocol == Protocol::Http {
            return Full::new(message);
        }
        // A message of gRPC has before it whether it is compressed, and its length:
        // <https://github.com/grpc/grpc/blob/v1.76.0/doc/PROTOCOL-HTTP2.md>
        let length = u32::try_from(message.remaining()).unwrap_or(u32::MAX);
        let mut head = vec![u8::from(self.settings.compression.is_some())];
        head.extend_from_slice(&length.to_be_bytes());
        let mut body = message.into_inner();
        body.push_front(head.into());
        Full::new(body.into())
    }

    /// The token in the file, which may be rotated.
    fn token(&self) -> Result<Option<HeaderValue>, String> {
        let Some(path) = &self.settings.token_file else { return Ok(None) };
        let unusable = |reason: &str| {
            format!(
                "`{}` of SCHEDSPAN_OTLP_TOKEN_FILE: {reason}; set it to a file with a token",
                path.display()
            )
        };
        let mut token = String::new();
        File::open(path)
            .and_then(|file| file.take(MAX_TOKEN).read_to_string(&mut token))
            .map_err(|error| unusable(&error.to_string()))?;
        match secret(&format!("Bearer {}", token.trim())) {
            Some(header) if !token.trim().is_empty() => Ok(Some(header)),
            _ => Err(unusable("it has no token")),
        }
    }
}

fn pool(settings: &Settings) -> Pool<Connector, Body> {
    Pool::builder(TokioExecutor::new())
        .http2_only(settings.protocol == Protocol::Grpc)
        .build(Connector(settings.clone()))
}

fn compress(compression: Compression, mut message: impl Read) -> Vec<u8> {
    match compression {
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Level::fast());
            io::copy(&mut message, &mut encoder).and_then(|_| encoder.finish()).expect("memory can be read")
        }
        Compression::Zstd => compress_to_vec(message, CompressionLevel::Fastest),
    }
}

/// Makes connections: through a proxy if the environment says so, and with TLS.
#[derive(Clone)]
struct Connector(Settings);

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let Self(settings) = self.clone();
        Box::pin(async move {
            let mut tcp = HttpConnector::new();
            tcp.enforce_http(false);
            tcp.set_nodelay(true);
            let stream = match Matcher::from_env().intercept(&url) {
                None => tcp.call(url.clone()).await?,
                Some(proxy) => {
                    let failed = |reason| ProxyError { proxy: proxy.uri().clone(), reason };
                    if proxy.uri().scheme_str() != Some("http") {
                        return Err(failed("only `http://` is supported".to_owned()).into());
                    }
                    let mut tunnel = Tunnel::new(proxy.uri().clone(), tcp);
                    if let Some(credentials) = proxy.basic_auth() {
                        tunnel = tunnel.with_auth(credentials.clone());
                    }
                    let connected = tunnel.call(url.clone()).await;
                    connected.map_err(|error| failed(clean(&sentence(&error))))?
                }
            };
            if url.scheme_str() != Some("https") {
                return Ok(MaybeHttpsStream::Http(stream));
            }
            let configuration = tls::configuration(&settings.tls, settings.protocol)?;
            let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let tls =
                TlsConnector::from(configuration).connect(ServerName::try_from(host)?, TokioIo::new(stream));
            Ok(MaybeHttpsStream::Https(TokioIo::new(tls.await?)))
        })
    }
}

/// A proxy does not connect to the Collector.
#[derive(Debug, thiserror::Error)]
#[error("the proxy {proxy} does not connect to it: {reason}; check HTTPS_PROXY, HTTP_PROXY and NO_PROXY")]
struct ProxyError {
    /// Without credentials.
    proxy: Uri,
    reason: String,
}

/// Why a request fails, and what to do.
fn explain(error: &(dyn StdError + 'static), with_tls: bool) -> String {
    // The source of an I/O error is that of the error within it, not the error within it.
    let causes = iter::successors(Some(error), |&error| match error.downcast_ref::<io::Error>() {
        Some(io) => io.get_ref().map(|inner| inner as &(dyn StdError + 'static)),
        None => error.source(),
    });
    for cause in causes {
        if let Some(error) = cause.downcast_ref::<rustls::Error>() {
            return explain_tls(error);
        }
        if cause.is::<tls::Error>() || cause.is::<ProxyError>() {
            return cause.to_string();
        }
        // With TLS 1.3 the handshake is over for the client when the server looks at its certificate.
        // HTTP/2 hides the kind of its I/O error, but not its text: that of an alert, or of a pipe that the server has closed.
        let is_canceled = cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled);
        let text = cause.to_string();
        if with_tls && (is_canceled || text.ends_with("broken pipe") || text.contains("received fatal alert"))
        {
            return "the Collector closes the connection; if it wants a certificate of its clients, check \
                    OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY"
                .to_owned();
        }
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            match error.kind() {
                io::ErrorKind::ConnectionRefused => {
                    return "connection refused; start a Collector there, or set OTEL_EXPORTER_OTLP_ENDPOINT to one"
                        .to_owned();
                }
                io::ErrorKind::TimedOut => {
                    return "the connection timed out; check OTEL_EXPORTER_OTLP_ENDPOINT, and what is between".to_owned();
                }
                _ => {}
            }
        }
    }
    // Text of a server may be in it.
    let text = clean(&sentence(error));
    if text.contains("dns error") {
        return format!("its name does not resolve ({text}); check OTEL_EXPORTER_OTLP_ENDPOINT");
    }
    format!(
        "{text}; check OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_PROTOCOL: 4317 is usually the port of gRPC, 4318 that of \
         HTTP"
    )
}

fn explain_tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "its certificate is signed by an unknown authority; set OTEL_EXPORTER_OTLP_CERTIFICATE to a file with the \
             authority's certificate"
                .to_owned()
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("{error}; use a name of its certificate in OTEL_EXPORTER_OTLP_ENDPOINT"),
        rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => format!("{error}; renew it, and compare the clocks"),
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied,
        ) => format!(
            "it refuses this client's certificate ({error}); check OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and \
             OTEL_EXPORTER_OTLP_CLIENT_KEY"
        ),
        rustls::Error::InvalidMessage(_) => {
            "it does not speak TLS; use http:// in OTEL_EXPORTER_OTLP_ENDPOINT".to_owned()
        }
        other => format!("{other}; check the certificates of both sides"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_closed_is_about_certificates_of_clients_only_with_tls() {
        let alert = io::Error::other("received fatal alert: CertificateRequired");
        for error in [io::ErrorKind::BrokenPipe.into(), alert] {
            for with_tls in [true, false] {
                let reason = explain(&error, with_tls);
                assert_eq!(reason.contains("OTEL_EXPORTER_OTLP_CLIENT_KEY"), with_tls, "{reason}");
            }
        }
    }

    #[test]
    fn a_connection_that_times_out_is_not_about_ports() {
        let timed_out = || io::Error::from(io::ErrorKind::TimedOut);
        for error in [timed_out(), io::Error::other(timed_out())] {
            let reason = explain(&error, false);
            assert!(reason.starts_with("the connection timed out; check"), "{reason}");
        }
    }
}
