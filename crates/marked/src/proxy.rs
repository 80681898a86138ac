//! An HTTP server on 127.0.0.1 that marks requests and forwards them to the API server with the user's credentials.

use std::{
    future::pending,
    net::Ipv4Addr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
    header::{
        ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST,
        TRANSFER_ENCODING, UPGRADE,
    },
};
use kube::Client;
use serde_json::json;
use spans::text::sentence;
use status::{Limits, Server};
use telemetry::Registry;
use tokio::{net::TcpListener, task::JoinHandle, time::timeout};

use crate::{
    clock::Skew,
    context::{Context, random},
    written::{Object, object},
};

/// Largest body of a request, and of an answer to a write: etcd takes 1.5 MiB.
const MAX_BYTES: usize = 16 << 20;
/// Requests that are drawn.
const MAX_SENT: usize = 512;
/// Objects that are followed.
const MAX_OBJECTS: usize = 256;
/// Time until an answer begins.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Of its server: one kubectl asks, and others of this machine may reach the address, but learn nothing.
const LIMITS: Limits = Limits {
    connections: 256,
    per_peer: 256,
    header_bytes: 64 << 10,
    // kubectl keeps connections for later.
    header_time: Duration::from_secs(120),
    // A watch has no end.
    connection_time: Duration::from_secs(24 * 3600),
    answer_bytes: 256 << 20,
};
/// Headers of one connection.
const OF_A_CONNECTION: [HeaderName; 6] =
    [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE, HeaderName::from_static("keep-alive")];

/// What was written through the proxy.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Objects, each once.
    pub objects: Vec<Object>,
    /// Number of requests that were marked.
    pub requests: u64,
    /// When the first write was answered, by this host's clock.
    pub since: Option<Instant>,
    /// The same, by the API server's: Pods of before are none of these.
    pub server_time: Option<SystemTime>,
    /// How far that clock is from this host's.
    pub skew: Skew,
    /// The requests, up to a limit.
    pub sent: Vec<Sent>,
}

/// A request. Times are nanoseconds since the Unix epoch, by this host's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Method and path.
    pub name: String,
    /// Whether it may have changed an object.
    pub writes: bool,
    /// When it was forwarded.
    pub start_ns: u64,
    /// When its answer began, or for a write ended.
    pub end_ns: u64,
    /// The status of its answer, if that is an error.
    pub failed: Option<String>,
}

/// A running proxy. It ends when it is dropped.
pub struct Proxy {
    url: String,
    written: Arc<Mutex<Written>>,
    task: JoinHandle<()>,
}

struct Shared {
    client: Client,
    context: Context,
    /// First part of the path.
    secret: String,
    written: Arc<Mutex<Written>>,
}

impl Proxy {
    /// Starts it on a free port.
    ///
    /// # Errors
    ///
    /// When 127.0.0.1 cannot be listened on.
    pub async fn start(client: Client, context: Context) -> std::io::Result<Self> {
        let secret = random::<16>()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}/{secret}", listener.local_addr()?);
        let written = Arc::<Mutex<Written>>::default();
        let shared = Shared { client, context, secret, written: Arc::clone(&written) };
        let routes = Router::new().fallback(forward).with_state(Arc::new(shared));
        let refused = Registry::default().counter("refused", "Connections that were refused");
        let server = Server { limits: LIMITS, tls: None, refused };
        let task = tokio::spawn(server.serve(listener, routes, pending()));
        Ok(Self { url, written, task })
    }

    /// Its URL, with the secret.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What was written so far.
    #[must_use]
    pub fn written(&self) -> Written {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Written {
    fn remember(&mut self, sent: Sent) {
        if self.sent.len() < MAX_SENT {
            self.sent.push(sent);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let Some(uri) = behind(request.uri(), &shared.secret) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if request.headers().contains_key(UPGRADE) {
        let why = "`kubectl schedspan traced` does not pass on exec, attach, cp and port-forward: run these with kubectl alone";
        return failure(StatusCode::NOT_IMPLEMENTED, why);
    }
    let (head, body) = request.into_parts();
    let body = match to_bytes(body, MAX_BYTES).await {
        Ok(body) => body,
        Err(error) => return failure(StatusCode::PAYLOAD_TOO_LARGE, &sentence(&error)),
    };
    let writes = [Method::POST, Method::PUT, Method::PATCH].contains(&head.method);
    let mut request = http::Request::new(kube::client::Body::from(body));
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = uri.clone();
    *request.headers_mut() = marked(head.headers, &shared.context, writes);
    let (began, name) = (SystemTime::now(), format!("{} {}", head.method, uri.path()));
    let answer = match timeout(TIMEOUT, shared.client.send(request)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return failure(StatusCode::BAD_GATEWAY, &sentence(&error)),
        Err(_) => return failure(StatusCode::GATEWAY_TIMEOUT, "the API server does not answer"),
    };
    let (mut answer, body) = answer.into_parts();
    OF_A_CONNECTION.iter().for_each(|name| drop(answer.headers.remove(name)));
    let change = |change: &dyn Fn(&mut Written)| {
        change(&mut shared.written.lock().unwrap_or_else(PoisonError::into_inner));
    };
    let failed = (!answer.status.is_success()).then(|| answer.status.to_string());
    let sent = || Sent {
        name: name.clone(),
        writes,
        start_ns: Skew::None.unix_ns(began),
        end_ns: Skew::None.unix_ns(SystemTime::now()),
        failed: failed.clone(),
    };
    change(&|written| written.requests += 1);
    if !writes || failed.is_some() {
        change(&|written| written.remember(sent()));
        return Response::from_parts(answer, Body::new(body));
    }
    let body = match to_bytes(Body::new(body), MAX_BYTES).await {
        Ok(body) => body,
        Err(error) => return failure(StatusCode::BAD_GATEWAY, &sentence(&error)),
    };
    change(&|written| written.remember(sent()));
    if let Some(object) = object(&head.method, uri.path(), uri.query().unwrap_or_default(), &body) {
        let now = (Instant::now(), date(&answer.headers));
        change(&|written| {
            written.since.get_or_insert(now.0);
            written.server_time = written.server_time.or(now.1);
            written.skew = now.1.map_or(written.skew, |date| Skew::of(date, SystemTime::now()));
            let known = written.objects.iter().any(|known| known.path == object.path);
            if !known && written.objects.len() < MAX_OBJECTS {
                written.objects.push(object.clone());
            }
        });
    }
    Response::from_parts(answer, Body::from(body))
}

/// The path behind the secret, as the API server has it.
fn behind(uri: &Uri, secret: &str) -> Option<Uri> {
    let rest = uri.path_and_query()?.as_str().strip_prefix('/')?.strip_prefix(secret)?;
    if !rest.starts_with('/') {
        return None;
    }
    rest.parse().ok()
}

/// The headers of a request with the context. An answer to a write is read: as JSON, and not compressed.
fn marked(mut headers: HeaderMap, context: &Context, writes: bool) -> HeaderMap {
    let Context { id: _, trace_id: _, parent, baggage } = context;
    OF_A_CONNECTION.iter().for_each(|name| drop(headers.remove(name)));
    // The client has the credentials.
    headers.remove(AUTHORIZATION);
    if writes {
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.remove(ACCEPT_ENCODING);
    }
    headers.insert("traceparent", parent.clone());
    if let Some(baggage) = baggage {
        headers.insert("baggage", baggage.clone());
    }
    headers
}

/// The time of an answer, whole seconds.
fn date(headers: &HeaderMap) -> Option<SystemTime> {
    let text = headers.get(http::header::DATE)?.to_str().ok()?;
    httpdate::parse_http_date(text).ok()
}

/// An error as kubectl shows it.
fn failure(code: StatusCode, message: &str) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": code.as_u16()});
    (code, [(CONTENT_TYPE, "application/json")], Bytes::from(status.to_string())).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn only_what_is_behind_the_secret_is_forwarded() {
        let behind = |text: &str| behind(&uri(text), "s3cret").map(|uri| uri.to_string());
        assert_eq!(
            behind("/s3cret/api/v1/pods?limit=5&watch=true"),
            Some("/api/v1/pods?limit=5&watch=true".to_owned())
        );
        for text in ["/api/v1/pods", "/", "/s3cret", "/s3cretx/api", "/S3CRET/api", "/x/s3cret/api"] {
            assert_eq!(behind(text), None, "{text}");
        }
    }

    #[test]
    fn a_request_gets_the_context_and_loses_what_is_of_its_connection() {
        let context = Context::new(&["team=shop".to_owned()]).unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "127.0.0.1:1"),
            ("authorization", "Bearer x"),
            ("user-agent", "kubectl/v1"),
            ("accept", "application/vnd.kubernetes.protobuf"),
            ("impersonate-user", "jane"),
            ("traceparent", "00-1-1-00"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let read = marked(headers.clone(), &context, false);
        assert_eq!(read.get("accept").unwrap(), "application/vnd.kubernetes.protobuf");
        let marked = marked(headers, &context, true);
        assert!(!marked.contains_key("host") && !marked.contains_key("authorization"));
        assert_eq!(marked.get("impersonate-user").unwrap(), "jane");
        assert_eq!(marked.get("accept").unwrap(), "application/json");
        assert_eq!(marked.get_all("traceparent").iter().collect::<Vec<_>>(), [&context.parent]);
        assert_eq!(marked.get("baggage").unwrap(), "team=shop");
    }
}
