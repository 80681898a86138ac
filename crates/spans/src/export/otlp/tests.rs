//! Collectors that decode what arrives: one speaks HTTP, one gRPC.

use std::net::SocketAddr;

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, Response, StatusCode},
    routing::post,
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind, status::StatusCode as SpanStatus},
};
use prost::Message as _;
use tokio::{
    net::TcpListener,
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
};

use telemetry::Registry;

use super::*;
use crate::{
    Source, Trace,
    export::{
        Resource, Sinks,
        tests::{lost, queue},
    },
    fixtures::{scheduled, unschedulable},
};

type Requests = UnboundedReceiver<ExportTraceServiceRequest>;

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

async fn http_collector() -> (String, Requests) {
    let (sender, requests) = mpsc::unbounded_channel();
    let (listener, address) = listen().await;
    let traces = async move |headers: HeaderMap, body: Bytes| {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        sender.send(ExportTraceServiceRequest::decode(body).unwrap()).unwrap();
        StatusCode::OK
    };
    let router = Router::new().route("/v1/traces", post(traces));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (format!("http://{address}/v1/traces"), requests)
}

async fn grpc_collector() -> (String, Requests) {
    let (sender, requests) = mpsc::unbounded_channel();
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(grpc_connection(stream, sender.clone()));
        }
    });
    (format!("http://{address}"), requests)
}

/// As much of gRPC as one method needs: a length before the message, and the status in the trailers.
async fn grpc_connection(stream: tokio::net::TcpStream, sender: UnboundedSender<ExportTraceServiceRequest>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let sender = sender.clone();
        tokio::spawn(async move {
            assert_eq!(request.uri().path(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
            let mut body = request.into_body();
            let mut message = Vec::new();
            while let Some(data) = body.data().await {
                let data = data.unwrap();
                body.flow_control().release_capacity(data.len()).unwrap();
                message.extend_from_slice(&data);
            }
            sender.send(ExportTraceServiceRequest::decode(&message[5..]).unwrap()).unwrap();
            let response = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
            let mut stream = respond.send_response(response, false).unwrap();
            stream.send_data(Bytes::from_static(&[0; 5]), false).unwrap();
            stream
                .send_trailers(HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]))
                .unwrap();
        });
    }
}

fn sinks(protocol: Protocol, endpoint: String, size: u64) -> (Sinks, Registry) {
    let batching = Batching { size, delay: Duration::from_millis(10) };
    let exporter = Exporter::new(protocol, Some(endpoint), batching).unwrap();
    let (sinks, registry) = queue(1000, CAUSES, |queue| tokio::spawn(exporter.run(queue)));
    sinks.register(&Resource::of_process(7, 42, "/kube-scheduler".as_ref(), "go1.26.4", Some("v1.36.4")));
    (sinks, registry)
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    match attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

fn spans(request: &ExportTraceServiceRequest) -> &[Span] {
    &request.resource_spans[0].scope_spans[0].spans
}

async fn a_trace_arrives_as_it_was_sent(protocol: Protocol, (endpoint, mut requests): (String, Requests)) {
    let (sinks, registry) = sinks(protocol, endpoint, 512);
    let sent = scheduled();
    sinks.send(sent.clone());
    let request = requests.recv().await.unwrap();

    let resource = &request.resource_spans[0].resource.as_ref().unwrap().attributes;
    assert_eq!(text(resource, "service.name"), Some("kube-scheduler"));
    assert_eq!(text(resource, "process.runtime.version"), Some("go1.26.4"));
    let scope = request.resource_spans[0].scope_spans[0].scope.as_ref().unwrap();
    assert_eq!((&*scope.name, &*scope.version), ("schedspan", env!("CARGO_PKG_VERSION")));

    assert_eq!(spans(&request).len(), sent.spans.len());
    for (span, sent_span) in spans(&request).iter().zip(&sent.spans) {
        assert_eq!(span.trace_id, sent.trace_id);
        assert_eq!(span.span_id, sent_span.span_id);
        assert_eq!(span.parent_span_id, sent_span.parent_id.map_or(Vec::new(), Vec::from));
        assert_eq!(span.name, sent_span.name);
        assert_eq!(span.start_time_unix_nano, sent_span.start_unix_ns);
        assert_eq!(span.end_time_unix_nano, sent_span.end_unix_ns);
        assert_eq!(span.attributes.len(), sent_span.attributes.len());
        assert_eq!(span.flags & 1, 1, "the span is sampled");
    }
    let root = &spans(&request)[0];
    assert_eq!(root.kind, SpanKind::Consumer as i32);
    assert_eq!(spans(&request)[1].kind, SpanKind::Internal as i32);
    assert_eq!(text(&root.attributes, "k8s.pod.name"), Some("web-0"));
    let numbers: Vec<_> =
        root.attributes[5..7].iter().map(|pair| pair.value.clone().unwrap().value.unwrap()).collect();
    assert_eq!(numbers, [Value::IntValue(1), Value::DoubleValue(12.25)]);
    let link = &root.links[0];
    assert_eq!((&*link.trace_id, &*link.span_id), (&[0xcd; 16][..], &[0xef; 8][..]));
    assert_eq!((&*link.trace_state, link.flags & 0xff), ("rojo=1,congo=2", 1));

    sinks.send(unschedulable());
    let request = requests.recv().await.unwrap();
    let status = spans(&request)[0].status.as_ref().unwrap();
    assert_eq!(status.code, SpanStatus::Error as i32);
    assert!(status.message.starts_with("0/3 nodes are available"), "{}", status.message);

    sinks.shutdown(Duration::from_secs(60)).await;
    assert_eq!(lost(&registry), []);
    let count = sent.spans.len() + unschedulable().spans.len();
    let line = format!("schedspan_export_spans_total{{result=\"success\"}} {count}\n");
    assert!(registry.encode().contains(&line));
}

#[tokio::test]
async fn a_trace_arrives_by_http() {
    a_trace_arrives_as_it_was_sent(Protocol::HttpBinary, http_collector().await).await;
}

#[tokio::test]
async fn a_trace_arrives_by_grpc() {
    a_trace_arrives_as_it_was_sent(Protocol::Grpc, grpc_collector().await).await;
}

#[tokio::test]
async fn a_shutdown_sends_what_is_queued_in_batches_and_by_source() {
    let (endpoint, mut requests) = http_collector().await;
    let each = scheduled().spans.len();
    let (sinks, registry) = sinks(Protocol::HttpBinary, endpoint, 2 * each as u64 + 1);
    for process in [7, 8, 7, 7, 7] {
        sinks.send(Trace { source: Source::Process(process), ..scheduled() });
    }
    sinks.shutdown(Duration::from_secs(60)).await;
    drop(sinks);
    let mut sizes = Vec::new();
    while let Ok(request) = requests.try_recv() {
        let pid = request.resource_spans[0]
            .resource
            .as_ref()
            .unwrap()
            .attributes
            .iter()
            .any(|pair| pair.key == "process.pid");
        sizes.push((pid, spans(&request).len() / each));
    }
    // The first two, of two processes; the next two; the last.
    assert_eq!(sizes, [(true, 1), (false, 1), (true, 2), (true, 1)]);
    assert_eq!(lost(&registry), []);
}

#[tokio::test]
async fn spans_that_no_collector_takes_are_lost_and_counted() {
    let (listener, address) = listen().await;
    drop(listener);
    let (sinks, registry) = sinks(Protocol::Grpc, format!("http://{address}"), 512);
    sinks.send(scheduled());
    sinks.shutdown(Duration::from_secs(60)).await;
    let spans = scheduled().spans.len();
    assert_eq!(lost(&registry), [("export_failed", spans as u64)]);
    assert!(
        registry.encode().contains(&format!("schedspan_export_spans_total{{result=\"error\"}} {spans}\n"))
    );
}

#[test]
fn credentials_in_an_endpoint_are_not_shown() {
    assert_eq!(without_credentials("https://me:secret@collector:4317"), "https://collector:4317");
    assert_eq!(without_credentials("me:secret@collector:4317"), "collector:4317");
    assert_eq!(without_credentials("http://localhost:4317"), "http://localhost:4317");
}
