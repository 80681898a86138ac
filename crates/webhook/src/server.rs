//! The webhook's own web server: TLS, and reviews.

use std::{sync::Arc, time::Duration};

use admission_review::{Verdict, answer, context};
use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
    routing::post,
};
use futures::StreamExt as _;
use rustls::{ServerConfig, crypto::CryptoProvider};
use spans::text::sentence;
use status::{Limits, Server};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout},
};
use tracing::debug;

use super::{certificate::Served, files::Clients};
use crate::Metrics;

/// Where reviews are sent.
pub(super) const PATH: &str = "/inject";
/// Most bytes of a review. An API server accepts objects of up to 3 MiB.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/server/config.go>
const MAX_BODY: usize = 4 << 20;
/// Most bytes of all reviews in flight. Only received bytes count, so a large announced length blocks no other client.
const ROOM: usize = 16 * MAX_BODY;
/// Timeout of a request: the API server itself waits for one second.
const ARRIVAL: Duration = Duration::from_secs(2);
const LIMITS: Limits = Limits {
    connections: 512,
    // An API server has some 25.
    per_peer: 128,
    // Reviews are read in such parts.
    header_bytes: 32 << 10,
    // An API server whose connection was idle for so long makes another one.
    header_time: Duration::from_secs(10),
    connection_time: Duration::from_secs(600),
    // An answer has a patch of a few hundred bytes.
    answer_bytes: 1 << 20,
};

#[derive(Clone)]
struct Webhook {
    /// Whether unsampled contexts are injected as well.
    unsampled: bool,
    /// A permit per byte.
    room: Arc<Semaphore>,
    metrics: Metrics,
}

/// The routes of the server for reviews.
pub(super) fn router(unsampled: bool, metrics: Metrics) -> Router {
    let webhook = Webhook { unsampled, room: Arc::new(Semaphore::new(ROOM)), metrics };
    Router::new().route(PATH, post(review)).with_state(webhook)
}

/// Answers until `stop` completes, and then the requests in flight. With authorities of clients, only to these.
pub(super) async fn serve(
    listener: TcpListener,
    served: Served,
    router: Router,
    clients: Option<Arc<Clients>>,
    provider: Arc<CryptoProvider>,
    metrics: &Metrics,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let tls = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let tls = match clients {
        Some(clients) => tls.with_client_cert_verifier(clients),
        None => tls.with_no_client_auth(),
    };
    let mut tls = tls.with_cert_resolver(Arc::new(served));
    // HTTP/1.1 is what API servers use with webhooks, so that their requests spread over replicas.
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let server = Server { limits: LIMITS, tls: Some(Arc::new(tls).into()), refused: metrics.refused() };
    server.serve(listener, router, stop).await;
    Ok(())
}

async fn review(State(webhook): State<Webhook>, request: Request) -> Response {
    let start = Instant::now();
    let answer = webhook.answer(request).await;
    let (verdict, response) = match answer {
        Ok((text, verdict)) => (verdict, ([(CONTENT_TYPE, "application/json")], text).into_response()),
        Err((status, reason)) => {
            debug!("{status}: {reason}");
            (Verdict::InvalidReview, (status, format!("{reason}\n")).into_response())
        }
    };
    webhook.metrics.answered(verdict, start.elapsed());
    response
}

impl Webhook {
    async fn answer(&self, request: Request) -> Result<(String, Verdict), (StatusCode, String)> {
        let kind =
            request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().map(str::trim) != Some("application/json") {
            let reason = format!("`{kind}` is not JSON; send application/json");
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
        }
        let context = context(request.headers(), self.unsampled);
        let (review, _room) = self.receive(request).await?;
        answer(&review, &context).map_err(|refused| (StatusCode::BAD_REQUEST, refused.to_string()))
    }

    /// A received review, with the permits of its bytes.
    async fn receive(
        &self,
        request: Request,
    ) -> Result<(Vec<u8>, Vec<SemaphorePermit<'_>>), (StatusCode, String)> {
        let whole = async {
            let (mut review, mut room) = (Vec::new(), Vec::new());
            let mut chunks = request.into_body().into_data_stream();
            while let Some(chunk) = chunks.next().await {
                let chunk = chunk.map_err(|error| {
                    (StatusCode::BAD_REQUEST, format!("{}; send all of a review", sentence(&error)))
                })?;
                if review.len() + chunk.len() > MAX_BODY {
                    let reason = format!("a review has {MAX_BODY} bytes at most");
                    return Err((StatusCode::PAYLOAD_TOO_LARGE, reason));
                }
                // The semaphore is never closed, and a chunk has some kilobytes.
                let bytes = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
                room.extend(self.room.acquire_many(bytes).await);
                review.extend_from_slice(&chunk);
            }
            Ok((review, room))
        };
        timeout(ARRIVAL, whole).await.unwrap_or_else(|_| {
            let reason = format!("the review has not come within {ARRIVAL:?}; be quicker");
            Err((StatusCode::REQUEST_TIMEOUT, reason))
        })
    }
}

#[cfg(test)]
mod tests {
    use axum::{
        body::{Body, to_bytes},
        http::Method,
    };
    use proptest::{collection::vec, prelude::*, sample::Index};
    use telemetry::Registry;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
        runtime::Builder,
    };
    use tower::ServiceExt as _;

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const REVIEW: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"group":"",
        "version":"v1","kind":"Pod"},"operation":"CREATE","object":{"metadata":{}}}}"#;

    async fn ask(router: &Router, method: Method, path: &str, kind: &str, body: Body) -> (u16, String) {
        let request = Request::builder().method(method).uri(path).header("traceparent", PARENT);
        let request = request.header(CONTENT_TYPE, kind).body(body).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let text = to_bytes(response.into_body(), MAX_BODY).await.unwrap();
        (status, String::from_utf8(text.into()).unwrap())
    }

    #[tokio::test]
    async fn a_review_is_answered_and_other_requests_are_refused_with_a_reason() {
        let registry = Registry::default();
        let metrics = Metrics::new(&registry);
        let router = router(false, metrics.clone());
        let ask = |method, path, kind, body| ask(&router, method, path, kind, body);
        let json = "application/json";
        let (status, text) = ask(Method::POST, PATH, json, REVIEW.into()).await;
        assert!(status == 200 && text.contains("\"patch\""), "{status}: {text}");
        let (status, _) = ask(Method::POST, PATH, "application/json; charset=utf-8", REVIEW.into()).await;
        assert_eq!(status, 200);

        let endless = || {
            Body::from_stream(futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b' '; 1 << 16])))
        };
        let broken = || {
            Body::from_stream(futures::stream::once(async {
                Err::<Vec<u8>, _>(std::io::Error::other("broken"))
            }))
        };
        for (method, path, kind, body, expected, reason) in [
            (Method::GET, PATH, json, Body::empty(), 405, ""),
            (Method::POST, "/", json, REVIEW.into(), 404, ""),
            (Method::POST, PATH, "text/plain", REVIEW.into(), 415, "send application/json"),
            (Method::POST, PATH, json, Body::empty(), 400, "not a review"),
            (Method::POST, PATH, json, "{}".into(), 400, "not a review"),
            (Method::POST, PATH, json, REVIEW.replace("\"u\"", "\"\"").into(), 400, "no uid"),
            (Method::POST, PATH, json, " ".repeat(MAX_BODY + 1).into(), 413, "bytes at most"),
            (Method::POST, PATH, json, endless(), 413, "bytes at most"),
            (Method::POST, PATH, json, broken(), 400, "send all of a review"),
        ] {
            let (status, text) = ask(method, path, kind, body).await;
            assert_eq!(status, expected, "{text}");
            assert!(text.contains(reason) && text.len() < 300, "{text} does not say {reason}");
        }
        let text = registry.encode();
        for line in [
            "schedspan_webhook_reviews_total{result=\"injected\"} 2",
            "schedspan_webhook_reviews_total{result=\"invalid_review\"} 7",
            "schedspan_webhook_reviews_total{result=\"no_context\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }

    #[test]
    fn no_bytes_of_a_request_make_the_webhook_fail() {
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\ntraceparent: {PARENT}\r\ntracestate: a=b\r\n\
             baggage: c=d\r\nContent-Length: {}\r\n\r\n",
            REVIEW.len()
        );
        let request = [head.as_bytes(), REVIEW.as_bytes()].concat();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let address = runtime.block_on(async {
            let metrics = Metrics::new(&Registry::default());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = Server { limits: LIMITS, tls: None, refused: metrics.refused() };
            tokio::spawn(server.serve(listener, router(false, metrics), std::future::pending()));
            address
        });
        let send = async |request: &[u8]| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            // A server that has refused the first bytes need not take the rest.
            let _ = stream.write_all(request).await;
            let _ = stream.shutdown().await;
            let mut response = Vec::new();
            let _ = stream.read_to_end(&mut response).await;
            String::from_utf8(response).unwrap()
        };
        proptest!(|(damage in vec((any::<Index>(), any::<u8>()), 0..6))| {
            let mut damaged = request.clone();
            for (at, byte) in damage {
                let at = at.index(request.len());
                damaged[at] = byte;
            }
            runtime.block_on(async {
                let response = send(&damaged).await;
                let status = response.split(' ').nth(1);
                // A request that is cut gets no answer.
                prop_assert!(response.is_empty() || status.is_some_and(|status| status < "500"), "{response}");
                prop_assert!(send(&request).await.starts_with("HTTP/1.1 200"));
                Ok(())
            })?;
        });
    }

    #[tokio::test]
    async fn connections_without_a_review_do_not_block_others() {
        let router = router(false, Metrics::new(&Registry::default()));
        let pending = || Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
        let json = "application/json";
        let slow = (0..LIMITS.connections).map(|_| ask(&router, Method::POST, PATH, json, pending()));
        let slow = futures::future::join_all(slow);
        let quick = async {
            tokio::task::yield_now().await;
            ask(&router, Method::POST, PATH, json, REVIEW.into()).await
        };
        let quick = futures::future::select(Box::pin(quick), Box::pin(slow)).await;
        let futures::future::Either::Left(((200, _), slow)) = quick else { panic!("not answered at once") };
        assert!(slow.await.iter().all(|(status, _)| *status == 408));
    }

    #[tokio::test]
    async fn reviews_wait_for_room() {
        let router = router(false, Metrics::new(&Registry::default()));
        let json = "application/json";
        let padded = || Body::from(format!("{REVIEW}{}", " ".repeat(MAX_BODY - REVIEW.len())));
        let many = (0..2 * ROOM / MAX_BODY).map(|_| ask(&router, Method::POST, PATH, json, padded()));
        let answers = futures::future::join_all(many).await;
        assert!(answers.iter().all(|(status, _)| *status == 200), "{answers:?}");
    }
}
