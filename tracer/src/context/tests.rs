//! A scripted API server on a port of its own: what a list answers, and what a watch brings.

use std::{convert::Infallible, net::SocketAddr, sync::Mutex};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Uri, header::ACCEPT},
    routing::get,
};
use futures::stream;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle};

use super::*;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const LONG: Duration = Duration::from_secs(60);

type Line = Result<Bytes, Infallible>;

struct Script {
    listed: Vec<Value>,
    /// Hands each watch to the test as it is asked for.
    watches: mpsc::UnboundedSender<mpsc::UnboundedSender<Line>>,
}

struct ApiServer {
    address: SocketAddr,
    watches: mpsc::UnboundedReceiver<mpsc::UnboundedSender<Line>>,
    task: JoinHandle<()>,
}

impl ApiServer {
    async fn start(address: SocketAddr, listed: Vec<Value>) -> Self {
        let (sender, watches) = mpsc::unbounded_channel();
        let script = Arc::new(Mutex::new(Script { listed, watches: sender }));
        let router = Router::new().route("/api/v1/pods", get(pods)).with_state(script);
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, watches, task }
    }
}

async fn pods(State(script): State<Arc<Mutex<Script>>>, uri: Uri, headers: HeaderMap) -> Body {
    let accepted = headers[ACCEPT].to_str().unwrap();
    assert!(accepted.contains("as=PartialObjectMetadata"), "whole Pods are asked for: {accepted}");
    let parameters: Vec<_> = uri.query().unwrap().split('&').collect();
    assert!(parameters.contains(&"fieldSelector=spec.nodeName%3D"), "{uri}");
    let script = script.lock().unwrap();
    if !parameters.contains(&"watch=true") {
        let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": "1"}, "items": script.listed});
        return list.to_string().into();
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    script.watches.send(sender).unwrap();
    let lines = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    Body::from_stream(lines)
}

fn pod(uid: &str, annotations: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {
        "name": uid, "namespace": "default", "uid": uid, "resourceVersion": "2", "annotations": annotations,
        "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:metadata": {}}}]}})
}

fn event(kind: &str, pod: &Value) -> Line {
    Ok(format!("{}\n", json!({"type": kind, "object": pod})).into())
}

async fn contexts(address: SocketAddr) -> (PodContexts, Metrics) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("schedspan-test-{}-{count}.kubeconfig", std::process::id()));
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": format!("http://{address}")}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": {}}]});
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    let metrics = Metrics::default();
    let contexts = PodContexts::start(Some(path.clone()), metrics.clone()).await.unwrap();
    std::fs::remove_file(path).unwrap();
    (contexts, metrics)
}

/// Waits for a line of the metrics to show.
async fn until(metrics: &Metrics, line: &str) {
    while !metrics.encode().lines().any(|found| found == line) {
        sleep(Duration::from_millis(5)).await;
    }
}

fn any_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

#[tokio::test]
async fn a_listed_pod_has_its_context() {
    let listed = vec![pod("a", &json!({TRACEPARENT: PARENT, TRACESTATE: "rojo=1"})), pod("b", &json!({}))];
    let server = ApiServer::start(any_port(), listed).await;
    let (contexts, metrics) = contexts(server.address).await;
    let context = contexts.lookup("a", LONG).await.unwrap();
    assert_eq!(context, RemoteContext { trace_state: "rojo=1".into(), ..traceparent(PARENT).unwrap() });
    assert_eq!(contexts.lookup("b", LONG).await, None);
    assert_eq!(contexts.lookup("c", Duration::from_millis(20)).await, None);
    let text = metrics.encode();
    for result in ["found", "none", "unknown"] {
        assert!(
            text.contains(&format!("schedspan_context_lookups_total{{result=\"{result}\"}} 1\n")),
            "{text}"
        );
    }
}

#[tokio::test]
async fn after_the_first_list_its_pods_are_known_at_once() {
    let server = ApiServer::start(any_port(), vec![pod("a", &json!({TRACEPARENT: PARENT}))]).await;
    let (contexts, _) = contexts(server.address).await;
    contexts.listed(LONG).await;
    assert_eq!(contexts.lookup("a", Duration::ZERO).await, traceparent(PARENT).ok());
}

#[tokio::test]
async fn an_api_server_that_refuses_connections_is_not_waited_for() {
    let server = ApiServer::start(any_port(), vec![]).await;
    server.task.abort();
    let _cancelled = server.task.await;
    let (contexts, _) = contexts(server.address).await;
    contexts.listed(Duration::MAX).await;
}

#[tokio::test]
async fn a_lookup_waits_for_the_watch_to_bring_the_pod() {
    let mut server = ApiServer::start(any_port(), vec![]).await;
    let (contexts, _) = contexts(server.address).await;
    let watch = server.watches.recv().await.unwrap();
    let lookup = tokio::spawn({
        let contexts = contexts.clone();
        async move { contexts.lookup("a", LONG).await }
    });
    watch.send(event("ADDED", &pod("b", &json!({})))).unwrap();
    watch.send(event("ADDED", &pod("a", &json!({TRACEPARENT: PARENT})))).unwrap();
    assert_eq!(lookup.await.unwrap(), traceparent(PARENT).ok());
    // Bound at once: to the selector the Pod is gone.
    watch.send(event("DELETED", &pod("c", &json!({TRACEPARENT: PARENT})))).unwrap();
    assert_eq!(contexts.lookup("c", LONG).await, traceparent(PARENT).ok());
}

#[tokio::test]
async fn a_refused_annotation_is_counted_once_a_pod() {
    let mut server = ApiServer::start(any_port(), vec![pod("a", &json!({TRACEPARENT: "junk"}))]).await;
    let (contexts, metrics) = contexts(server.address).await;
    assert_eq!(contexts.lookup("a", LONG).await, None);
    let watch = server.watches.recv().await.unwrap();
    watch.send(event("MODIFIED", &pod("a", &json!({TRACEPARENT: "junk"})))).unwrap();
    watch.send(event("ADDED", &pod("b", &json!({TRACEPARENT: PARENT, TRACESTATE: "junk"})))).unwrap();
    assert_eq!(
        contexts.lookup("b", LONG).await,
        traceparent(PARENT).ok(),
        "the link stays without its tracestate"
    );
    until(&metrics, "schedspan_annotations_refused_total{reason=\"tracestate_syntax\"} 1").await;
    until(&metrics, "schedspan_annotations_refused_total{reason=\"syntax\"} 1").await;
}

#[tokio::test]
async fn an_api_server_that_is_down_keeps_nobody_waiting_and_is_found_when_it_is_back() {
    let server = ApiServer::start(any_port(), vec![]).await;
    let address = server.address;
    server.task.abort();
    let _cancelled = server.task.await;
    let (contexts, metrics) = contexts(address).await;
    // Answers although nothing ever comes: the second refused connection ends the wait.
    assert_eq!(contexts.lookup("a", Duration::MAX).await, None);
    until(&metrics, "schedspan_context_watch_up 0").await;
    let _server = ApiServer::start(address, vec![pod("a", &json!({TRACEPARENT: PARENT}))]).await;
    until(&metrics, "schedspan_context_watch_up 1").await;
    assert_eq!(contexts.lookup("a", LONG).await, traceparent(PARENT).ok());
}

#[tokio::test]
async fn a_broken_watch_is_resumed() {
    let mut server = ApiServer::start(any_port(), vec![]).await;
    let (contexts, metrics) = contexts(server.address).await;
    let watch = server.watches.recv().await.unwrap();
    watch.send(Ok("this is no event\n".into())).unwrap();
    until(&metrics, "schedspan_context_watch_up 0").await;
    drop(watch);
    let watch = server.watches.recv().await.unwrap();
    until(&metrics, "schedspan_context_watch_up 1").await;
    watch.send(event("ADDED", &pod("a", &json!({TRACEPARENT: PARENT})))).unwrap();
    assert_eq!(contexts.lookup("a", LONG).await, traceparent(PARENT).ok());
}

/// With two cryptography providers in the build, rustls knows no default, and a client by TLS panics.
#[tokio::test]
async fn the_build_has_one_cryptography_provider() {
    let (contexts, _) = contexts(any_port()).await;
    let _maybe_without_system_certificates =
        client(Config::new("https://127.0.0.1".parse().unwrap()), &contexts.0);
}

#[tokio::test]
async fn a_kubeconfig_that_is_not_there_is_named() {
    let error =
        PodContexts::start(Some("/nowhere/config".into()), Metrics::default()).await.unwrap_err().to_string();
    assert!(error.contains("`/nowhere/config`") && error.contains("give the path"), "{error}");
}
