//! Collectors that decode what arrives and answer as a test says: one speaks HTTP, one gRPC.

mod environment;
mod exporter;
pub(super) mod log;
mod tls;

use std::{
    collections::{HashMap, VecDeque},
    io::Read as _,
    net::SocketAddr,
    time::SystemTime,
};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, HeaderName, Response, StatusCode},
    routing::post,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
    },
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use prost::Message as _;
use telemetry::Registry;
use tokio::{
    net::TcpListener,
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::{sleep, timeout},
};

use super::{answer::tests::details, *};
use crate::{
    Source,
    export::{
        Resource, Sink as AnySink, Sinks,
        otlp::spool::tests::Directory,
        tests::{lost, sinks},
    },
    fixtures::{scheduled, unschedulable},
};

/// How a Collector answers: the code of HTTP or gRPC, headers, and the body or message.
#[derive(Clone, Default)]
struct Reply {
    code: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

/// A Collector that gives these answers, and takes everything after them.
struct Collector {
    endpoint: String,
    /// What it takes.
    requests: UnboundedReceiver<(HeaderMap, ExportTraceServiceRequest)>,
}

struct Script {
    replies: Mutex<VecDeque<Reply>>,
    /// It refuses more spans than that in a request as too large.
    most_spans: usize,
    accepted: u16,
    too_large: Reply,
    sender: UnboundedSender<(HeaderMap, ExportTraceServiceRequest)>,
}

impl Script {
    fn reply(&self, headers: HeaderMap, body: &[u8]) -> Reply {
        let encoding = ["content-encoding", "grpc-encoding"].iter().find_map(|name| headers.get(*name));
        let plain = match encoding.map(|encoding| encoding.to_str().unwrap()) {
            None => body.to_vec(),
            Some("gzip") => {
                let mut plain = Vec::new();
                flate2::read::GzDecoder::new(body).read_to_end(&mut plain).unwrap();
                plain
            }
            Some("zstd") => {
                let mut plain = Vec::new();
                ruzstd::decoding::StreamingDecoder::new(body).unwrap().read_to_end(&mut plain).unwrap();
                plain
            }
            Some(other) => panic!("{other}"),
        };
        let request = ExportTraceServiceRequest::decode(&*plain).unwrap();
        if spans(&request).len() > self.most_spans {
            return self.too_large.clone();
        }
        let reply = self.replies.lock().unwrap().pop_front();
        let reply = reply.unwrap_or(Reply { code: self.accepted, ..Reply::default() });
        if reply.code == self.accepted {
            // The test may have ended.
            let _ = self.sender.send((headers, request));
        }
        reply
    }
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn http_collector(listener: TcpListener, replies: Vec<Reply>, most_spans: usize) -> Collector {
    let (sender, requests) = mpsc::unbounded_channel();
    let too_large = Reply { code: 413, ..Reply::default() };
    let script = Script { replies: Mutex::new(replies.into()), most_spans, accepted: 200, too_large, sender };
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let script = Arc::new(script);
    let traces = async move |headers: HeaderMap, body: Bytes| {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        let Reply { code, headers, body } = script.reply(headers, &body);
        let mut response = Response::builder().status(StatusCode::from_u16(code).unwrap());
        for (name, value) in headers {
            response = response.header(name, value);
        }
        response.body(axum::body::Body::from(body)).unwrap()
    };
    let router = Router::new().route("/v1/traces", post(traces));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Collector { endpoint, requests }
}

fn grpc_collector(listener: TcpListener, replies: Vec<Reply>, most_spans: usize) -> Collector {
    let (sender, requests) = mpsc::unbounded_channel();
    let message = "grpc: received message larger than max (5 vs. 4)".to_owned();
    let too_large = Reply { code: 8, headers: vec![("grpc-message", message)], body: Vec::new() };
    let script = Script { replies: Mutex::new(replies.into()), most_spans, accepted: 0, too_large, sender };
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let script = Arc::new(script);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(grpc_connection(stream, Arc::clone(&script)));
        }
    });
    Collector { endpoint, requests }
}

/// As much of gRPC as one method needs: a length before the message, and the status in the trailers.
async fn grpc_connection(stream: tokio::net::TcpStream, script: Arc<Script>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let script = Arc::clone(&script);
        tokio::spawn(async move {
            let (head, mut body) = request.into_parts();
            assert_eq!(head.uri.path(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
            assert_eq!(head.headers["content-type"], "application/grpc");
            assert_eq!(head.headers["te"], "trailers");
            let mut message = Vec::new();
            while let Some(data) = body.data().await {
                let data = data.unwrap();
                body.flow_control().release_capacity(data.len()).unwrap();
                message.extend_from_slice(&data);
            }
            assert_eq!(message[0] == 1, head.headers.contains_key("grpc-encoding"));
            assert_eq!(message[1..5], u32::try_from(message.len() - 5).unwrap().to_be_bytes());
            let Reply { code, headers, body } = script.reply(head.headers, &message[5..]);
            let response = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
            let mut stream = respond.send_response(response, false).unwrap();
            let length = u32::try_from(body.len()).unwrap().to_be_bytes();
            stream.send_data(Bytes::from([&[0], &length[..], &body].concat()), false).unwrap();
            let mut trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), code.into())]);
            for (name, value) in headers {
                trailers.insert(name, value.parse().unwrap());
            }
            stream.send_trailers(trailers).unwrap();
        });
    }
}

/// Starts a Collector with these replies, which takes at most so many spans in a request.
type Start = fn(TcpListener, Vec<Reply>, usize) -> Collector;

/// Both protocols, as their variable names them.
const PROTOCOLS: [(&str, Start); 2] = [("http/protobuf", http_collector), ("grpc", grpc_collector)];

fn settings(protocol: &str, endpoint: &str, further: &[(&str, &str)]) -> Settings {
    let mut variables = HashMap::from([
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_BSP_SCHEDULE_DELAY", "10"),
    ]);
    variables.extend(further.iter().copied());
    Settings::read(|name| variables.get(name).map(|value| (*value).to_owned())).unwrap()
}

fn exporting(settings: Settings) -> (Sinks, Registry) {
    spooling(settings, &spool::Options::default())
}

fn spooling(settings: Settings, spool: &spool::Options) -> (Sinks, Registry) {
    let (sinks, registry) = sinks(|metrics| AnySink::Otlp(Sink::start(settings, spool, metrics).unwrap()));
    sinks.register(&Resource::of_process(7, 42, "/kube-scheduler".as_ref(), "go1.26.4", Some("v1.36.4")));
    (sinks, registry)
}

const ENOUGH: Duration = Duration::from_secs(60);

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    match attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

fn spans(request: &ExportTraceServiceRequest) -> Vec<&Span> {
    request.resource_spans.iter().flat_map(|resource| &resource.scope_spans[0].spans).collect()
}

fn exported(registry: &Registry, result: &str) -> u64 {
    let text = registry.encode();
    let name = format!("schedspan_export_spans_total{{result=\"{result}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap().parse().unwrap()
}

const EACH: usize = 13;

#[tokio::test]
async fn a_trace_arrives_with_its_resource() {
    for (protocol, collector) in PROTOCOLS {
        for compression in ["none", "gzip", "zstd"] {
            let Collector { endpoint, mut requests } = collector(listen().await.0, vec![], usize::MAX);
            let compression = [("OTEL_EXPORTER_OTLP_COMPRESSION", compression)];
            let (sinks, registry) = exporting(settings(protocol, &endpoint, &compression));
            sinks.send(scheduled());
            let (_, request) = requests.recv().await.unwrap();
            let resource = &request.resource_spans[0].resource.as_ref().unwrap().attributes;
            assert_eq!(text(resource, "service.name"), Some("kube-scheduler"));
            assert_eq!(text(resource, "process.runtime.version"), Some("go1.26.4"));
            let names =
                |trace: &Trace| trace.spans.iter().map(|span| span.name.to_string()).collect::<Vec<_>>();
            let arrived: Vec<_> = spans(&request).into_iter().map(|span| span.name.clone()).collect();
            assert_eq!(arrived, names(&scheduled()));

            // The same connection serves the next request.
            sinks.send(unschedulable());
            let (_, request) = requests.recv().await.unwrap();
            assert_eq!(spans(&request).len(), unschedulable().spans.len());
            sinks.shutdown(ENOUGH).await;
            assert_eq!(lost(&registry), []);
            let count = scheduled().spans.len() + unschedulable().spans.len();
            assert_eq!(exported(&registry, "success"), count as u64);
            assert!(registry.encode().contains("schedspan_export_queue_bytes 0\n"));
            assert!(registry.encode().contains("schedspan_export_queue_spans 0\n"));
        }
    }
}

#[tokio::test]
async fn a_shutdown_sends_what_is_queued_in_batches_that_have_each_resource_once() {
    let Collector { endpoint, mut requests } = http_collector(listen().await.0, vec![], usize::MAX);
    let size = (3 * EACH + 1).to_string();
    let batches = [("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", &*size), ("OTEL_BSP_SCHEDULE_DELAY", "60000")];
    let (sinks, registry) = exporting(settings("http/protobuf", &endpoint, &batches));
    for process in [7, 8, 7, 7] {
        sinks.send(Trace { source: Source::Process(process), ..scheduled() });
    }
    sinks.shutdown(ENOUGH).await;
    let mut sizes = Vec::new();
    while let Ok((_, request)) = requests.try_recv() {
        let size = |resource: &opentelemetry_proto::tonic::trace::v1::ResourceSpans| {
            let own =
                resource.resource.as_ref().unwrap().attributes.iter().any(|pair| pair.key == "process.pid");
            (own, resource.scope_spans[0].spans.len() / EACH)
        };
        sizes.push(request.resource_spans.iter().map(size).collect::<Vec<_>>());
    }
    assert_eq!(sizes, [vec![(true, 2), (false, 1)], vec![(true, 1)]]);
    assert_eq!(lost(&registry), []);
}

#[tokio::test]
async fn spans_that_the_collector_rejects_are_lost_and_the_others_are_not() {
    let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message: "too old".to_owned() };
    let body = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    for (protocol, collector) in PROTOCOLS {
        let code = if protocol == "grpc" { 0 } else { 200 };
        let reply = Reply { code, body: body.clone(), ..Reply::default() };
        let Collector { endpoint, .. } = collector(listen().await.0, vec![reply], usize::MAX);
        let (sinks, registry) = exporting(settings(protocol, &endpoint, &[]));
        sinks.send(scheduled());
        sinks.shutdown(ENOUGH).await;
        assert_eq!(lost(&registry), [("export_rejected", 3)]);
        assert_eq!((exported(&registry, "success"), exported(&registry, "error")), (EACH as u64 - 3, 3));
    }
}

#[tokio::test]
async fn a_request_that_is_refused_for_good_is_lost_and_not_sent_again() {
    for (protocol, collector, code) in [("http/protobuf", PROTOCOLS[0].1, 400), ("grpc", PROTOCOLS[1].1, 3)] {
        let reply = Reply { code, ..Reply::default() };
        let Collector { endpoint, mut requests } = collector(listen().await.0, vec![reply], usize::MAX);
        let (sinks, registry) = exporting(settings(protocol, &endpoint, &[]));
        sinks.send(scheduled());
        while exported(&registry, "error") == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        sinks.send(unschedulable());
        sinks.shutdown(ENOUGH).await;
        assert_eq!(lost(&registry), [("export_failed", EACH as u64)]);
        assert_eq!(spans(&requests.recv().await.unwrap().1).len(), unschedulable().spans.len());
    }
}

#[tokio::test]
async fn a_request_that_may_succeed_later_is_sent_again_until_it_does() {
    let retry_after = || vec![("retry-after", "0".to_owned())];
    let http = vec![
        Reply { code: 429, headers: retry_after(), ..Reply::default() },
        Reply { code: 503, headers: retry_after(), ..Reply::default() },
    ];
    let grpc = vec![Reply { code: 14, ..Reply::default() }];
    for ((protocol, collector), replies) in PROTOCOLS.into_iter().zip([http, grpc]) {
        let retries = replies.len();
        let Collector { endpoint, mut requests } = collector(listen().await.0, replies, usize::MAX);
        let (sinks, registry) = exporting(settings(protocol, &endpoint, &[]));
        sinks.send(scheduled());
        assert_eq!(spans(&requests.recv().await.unwrap().1).len(), EACH);
        sinks.shutdown(ENOUGH).await;
        assert_eq!(lost(&registry), []);
        assert!(registry.encode().contains(&format!("schedspan_export_retries_total {retries}\n")));
    }
}

#[tokio::test]
async fn a_pause_that_the_collector_asks_for_is_kept_even_after_the_shutdown() {
    let half = Duration::from_millis(500);
    let now = SystemTime::now();
    let date = httpdate::HttpDate::from(now + 4 * half);
    let details = BASE64_STANDARD.encode(details(1));
    let mut cases = Vec::new();
    for (protocol, code, (name, value), over) in [
        (PROTOCOLS[0], 429, ("retry-after", "1".to_owned()), now + 2 * half),
        (PROTOCOLS[0], 503, ("retry-after", date.to_string()), SystemTime::from(date)),
        (PROTOCOLS[1], 8, ("grpc-status-details-bin", details.clone()), now + 3 * half),
        (PROTOCOLS[1], 14, ("grpc-status-details-bin", details), now + 3 * half),
    ] {
        let (protocol, collector) = protocol;
        cases.push(tokio::spawn(async move {
            let reply = Reply { code, headers: vec![(name, value)], ..Reply::default() };
            let Collector { endpoint, mut requests } = collector(listen().await.0, vec![reply], usize::MAX);
            let (sinks, registry) = exporting(settings(protocol, &endpoint, &[]));
            sinks.send(scheduled());
            sinks.shutdown(ENOUGH).await;
            assert!(SystemTime::now() >= over, "{protocol}, {code}: it is sent again too early");
            assert_eq!(spans(&requests.recv().await.unwrap().1).len(), EACH);
            assert_eq!(lost(&registry), []);
        }));
    }
    for case in cases {
        case.await.unwrap();
    }
}

#[tokio::test]
async fn a_pause_that_outlasts_the_shutdown_is_a_loss_and_not_cut_short() {
    let reply = Reply { code: 429, headers: vec![("retry-after", "60".to_owned())], ..Reply::default() };
    let Collector { endpoint, mut requests } = http_collector(listen().await.0, vec![reply], usize::MAX);
    let (sinks, registry) = exporting(settings("http/protobuf", &endpoint, &[]));
    sinks.send(scheduled());
    sinks.shutdown(ENOUGH).await;
    assert_eq!(lost(&registry), [("shutdown", EACH as u64)]);
    assert!(requests.try_recv().is_err(), "it was sent again");
}

/// Ten minutes at fifty Pods a second, as fast as they can be made.
#[tokio::test]
async fn ten_minutes_without_a_collector_cost_what_the_queue_cannot_hold_and_nothing_with_a_spool() {
    const TRACES: usize = 10 * 60 * 50;
    const QUEUE: usize = 65_536;
    let directory = Directory::new();
    for spool in [None, Some(directory.0.clone())] {
        let (listener, address) = listen().await;
        drop(listener);
        let options = spool::Options { spool, spool_size: 256 << 20 };
        let (sinks, registry) = spooling(settings("grpc", &format!("http://{address}"), &[]), &options);
        for _ in 0..TRACES {
            if options.spool.is_some() {
                // At this speed it needs a moment now and then.
                sinks.room().await;
            }
            sinks.send(scheduled());
        }
        let Collector { mut requests, .. } =
            grpc_collector(TcpListener::bind(address).await.unwrap(), vec![], usize::MAX);
        let held = if options.spool.is_some() { TRACES } else { QUEUE / EACH } * EACH;
        let mut arrived = 0;
        while arrived < held {
            arrived += spans(&requests.recv().await.unwrap().1).len();
        }
        sinks.shutdown(ENOUGH).await;
        assert!(requests.try_recv().is_err(), "more arrives than the queue holds");
        let not_held = (TRACES * EACH - held) as u64;
        let expected = if not_held > 0 { vec![("export_queue_full", not_held)] } else { vec![] };
        assert_eq!((arrived, lost(&registry)), (held, expected));
    }
}

#[tokio::test]
async fn a_request_that_is_too_large_is_split_down_to_its_spans() {
    for (protocol, collector) in PROTOCOLS {
        for most_spans in [1, 4, EACH, 2 * EACH + 1] {
            let Collector { endpoint, mut requests } = collector(listen().await.0, vec![], most_spans);
            let (sinks, registry) = exporting(settings(protocol, &endpoint, &[]));
            for _ in 0..3 {
                sinks.send(scheduled());
            }
            sinks.shutdown(ENOUGH).await;
            assert_eq!(lost(&registry), []);
            let mut names = Vec::new();
            while let Ok((_, request)) = requests.try_recv() {
                names.extend(spans(&request).into_iter().map(|span| span.name.clone()));
            }
            let expected = (0..3).flat_map(|_| scheduled().spans).map(|span| span.name.to_string());
            assert_eq!(names, expected.collect::<Vec<_>>());
        }
        let Collector { endpoint, .. } = collector(listen().await.0, vec![], 0);
        let (sinks, registry) = exporting(settings(protocol, &endpoint, &[]));
        sinks.send(scheduled());
        sinks.shutdown(ENOUGH).await;
        assert_eq!(lost(&registry), [("export_failed", EACH as u64)]);
    }
}

/// It accepts the connection, as a Collector that hangs does.
#[tokio::test]
async fn a_collector_that_is_silent_is_named_and_tried_again_by_a_new_connection() {
    for (protocol, collector) in PROTOCOLS {
        let (listener, address) = listen().await;
        let timeout = [("OTEL_EXPORTER_OTLP_TIMEOUT", "200")];
        let settings = settings(protocol, &format!("http://{address}"), &timeout);
        let error = try_client(connect(settings.clone()).unwrap_or_else(|error| panic!("{error}"))).await;
        let error = error.unwrap_err();
        assert!(error.ends_with("no answer within 200 ms; check OTEL_EXPORTER_OTLP_ENDPOINT"), "{error}");
        let _of_the_try = listener.accept().await.unwrap();
        let (sinks, registry) = exporting(settings);
        sinks.send(scheduled());
        let _silent = listener.accept().await.unwrap();
        let Collector { mut requests, .. } = collector(listener, vec![], usize::MAX);
        assert_eq!(spans(&requests.recv().await.unwrap().1).len(), EACH);
        sinks.shutdown(ENOUGH).await;
        assert_eq!(lost(&registry), []);
    }
}

#[tokio::test]
async fn a_collector_that_comes_late_gets_what_the_queue_holds_and_the_oldest_is_lost() {
    for (protocol, collector) in PROTOCOLS {
        let (listener, address) = listen().await;
        drop(listener);
        let size = (3 * EACH).to_string();
        let endpoint = format!("http://{address}");
        let (sinks, registry) =
            exporting(settings(protocol, &endpoint, &[("OTEL_BSP_MAX_QUEUE_SIZE", &*size)]));
        sinks.send(scheduled());
        // The first is on its way.
        while !registry.encode().contains("schedspan_export_retries_total 1\n") {
            sleep(Duration::from_millis(1)).await;
        }
        for pod in 1..=3_u8 {
            sinks.send(Trace { trace_id: [pod; 16], ..scheduled() });
        }
        assert_eq!(lost(&registry), [("export_queue_full", EACH as u64)]);
        let Collector { mut requests, .. } =
            collector(TcpListener::bind(address).await.unwrap(), vec![], usize::MAX);
        let mut traces = Vec::new();
        while traces.len() < 3 {
            let (_, request) = requests.recv().await.unwrap();
            traces.extend(spans(&request).chunks(EACH).map(|spans| spans[0].trace_id[0]));
        }
        assert_eq!(traces, [0xab, 2, 3]);
        sinks.shutdown(ENOUGH).await;
        assert_eq!(lost(&registry), [("export_queue_full", EACH as u64)]);
    }
}

#[tokio::test]
async fn a_queue_is_bounded_in_bytes() {
    let bytes = [("SCHEDSPAN_OTLP_QUEUE_BYTES", "8192"), ("OTEL_BSP_SCHEDULE_DELAY", "60000")];
    let (listener, address) = listen().await;
    drop(listener);
    let (sinks, registry) = exporting(settings("grpc", &format!("http://{address}"), &bytes));
    for sent in 1..100_u64 {
        sinks.send(scheduled());
        let text = registry.encode();
        let gauge = |name: &str| -> u64 {
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap()
        };
        assert!(gauge("schedspan_export_queue_bytes") <= 8192);
        let lost = lost(&registry).first().map_or(0, |(_, lost)| *lost);
        assert_eq!(gauge("schedspan_export_queue_spans") + lost, sent * EACH as u64);
    }
    assert!(lost(&registry)[0].1 > 0, "the test does not test");
    sinks.shutdown(Duration::ZERO).await;
    assert_eq!(registry.lost().iter().map(|(_, lost)| lost).sum::<u64>(), 99 * EACH as u64);
}

#[tokio::test]
async fn headers_and_the_token_of_a_file_are_sent() {
    let file = std::env::temp_dir().join(format!("schedspan-token-{}", std::process::id()));
    std::fs::write(&file, "first\n").unwrap();
    for (protocol, collector) in PROTOCOLS {
        let Collector { endpoint, mut requests } = collector(listen().await.0, vec![], usize::MAX);
        let further = [
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=one"),
            ("SCHEDSPAN_OTLP_TOKEN_FILE", file.to_str().unwrap()),
        ];
        std::fs::write(&file, "first\n").unwrap();
        let (sinks, _) = exporting(settings(protocol, &endpoint, &further));
        for token in ["first", "second"] {
            std::fs::write(&file, token).unwrap();
            sinks.send(scheduled());
            let (headers, _) = requests.recv().await.unwrap();
            assert_eq!(headers["x-tenant"], "one");
            assert_eq!(headers["authorization"], format!("Bearer {token}"));
        }
        sinks.shutdown(ENOUGH).await;
    }
    std::fs::remove_file(&file).unwrap();
    let missing = settings("grpc", "http://localhost:4317", &[("SCHEDSPAN_OTLP_TOKEN_FILE", "/missing")]);
    let error = connect(missing).err().unwrap().to_string();
    assert!(error.contains("`/missing` of SCHEDSPAN_OTLP_TOKEN_FILE"), "{error}");
}

#[test]
fn a_token_file_without_a_token_is_refused() {
    let file = std::env::temp_dir().join(format!("schedspan-no-token-{}", std::process::id()));
    std::fs::write(&file, " \n").unwrap();
    let empty =
        settings("grpc", "http://localhost:4317", &[("SCHEDSPAN_OTLP_TOKEN_FILE", file.to_str().unwrap())]);
    let error = connect(empty).err().unwrap().to_string();
    assert!(error.contains("of SCHEDSPAN_OTLP_TOKEN_FILE: it has no token"), "{error}");
    std::fs::remove_file(&file).unwrap();
}

#[tokio::test]
async fn a_try_says_where_it_arrived_or_what_to_do() {
    for (protocol, collector, code) in [("http/protobuf", PROTOCOLS[0].1, 401), ("grpc", PROTOCOLS[1].1, 16)]
    {
        let refuses = Reply { code, ..Reply::default() };
        let Collector { endpoint, mut requests } = collector(listen().await.0, vec![refuses], usize::MAX);
        let client = || connect(settings(protocol, &endpoint, &[])).unwrap_or_else(|error| panic!("{error}"));
        let error = try_client(client()).await.unwrap_err();
        assert!(error.starts_with(&format!("cannot export to {endpoint}")), "{error}");
        let reached = try_client(client()).await.unwrap();
        assert!(reached.starts_with(&endpoint), "{reached}");
        assert_eq!(spans(&requests.recv().await.unwrap().1).len(), 0);
    }
}

#[tokio::test]
async fn a_replay_waits_for_a_collector_that_does_not_answer() {
    let (listener, address) = listen().await;
    drop(listener);
    let size = (4 * EACH).to_string();
    for variable in ["OTEL_BSP_MAX_QUEUE_SIZE", "SCHEDSPAN_OTLP_QUEUE_BYTES"] {
        let size = if variable == "SCHEDSPAN_OTLP_QUEUE_BYTES" { "8192" } else { &*size };
        let further = [(variable, size), ("OTEL_BSP_SCHEDULE_DELAY", "60000")];
        let (sinks, _) = exporting(settings("grpc", &format!("http://{address}"), &further));
        let room = async || timeout(Duration::from_millis(20), sinks.room()).await.is_ok();
        sinks.send(scheduled());
        assert!(room().await, "{variable}");
        for _ in 0..3 {
            sinks.send(scheduled());
        }
        assert!(!room().await, "{variable}");
        assert!(!sinks.ended());
        sinks.shutdown(Duration::ZERO).await;
    }
}

#[test]
fn pauses_grow_and_differ() {
    for tries in 1..100 {
        let longest = FIRST_PAUSE.saturating_mul(1 << (tries - 1).min(16)).min(LAST_PAUSE);
        let pauses: Vec<_> = (0..20).map(|_| pause(tries)).collect();
        assert!(pauses.iter().all(|pause| (longest / 2..=longest).contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
    }
}

/// When a warning was given that is due again.
pub(super) fn a_minute_ago() -> Option<Instant> {
    Some(Instant::now().checked_sub(WARN_EVERY).expect("the machine has run for a minute"))
}

/// What a metric shows.
pub(super) fn gauge(registry: &Registry, name: &str) -> u64 {
    let text = registry.encode();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("schedspan_{name} ")));
    line.unwrap().parse().unwrap()
}

#[tokio::test]
async fn spans_in_the_spool_arrive_after_a_restart_with_their_resource() {
    let directory = Directory::new();
    let options = spool::Options { spool: Some(directory.0.clone()), spool_size: 1 << 20 };
    let (listener, address) = listen().await;
    drop(listener);
    let settings = settings("http/protobuf", &format!("http://{address}"), &[]);
    let (sinks, registry) = spooling(settings.clone(), &options);
    sinks.send(scheduled());
    while gauge(&registry, "export_spool_spans") < EACH as u64 {
        sleep(Duration::from_millis(1)).await;
    }
    sinks.shutdown(Duration::ZERO).await;
    assert_eq!(lost(&registry), []);
    // The lock goes with the last task of the first one.
    while spool::Spool::open(&directory.0, 1 << 20).is_err() {
        sleep(Duration::from_millis(1)).await;
    }

    let listener = TcpListener::bind(address).await.unwrap();
    let Collector { mut requests, .. } = http_collector(listener, vec![], usize::MAX);
    let (sinks, registry) = spooling(settings, &options);
    sinks.send(unschedulable());
    let (_, request) = requests.recv().await.unwrap();
    let resource = &request.resource_spans[0].resource.as_ref().unwrap().attributes;
    assert_eq!(text(resource, "process.runtime.version"), Some("go1.26.4"));
    assert_eq!(spans(&request).len(), EACH, "the older ones are first");
    let (_, request) = requests.recv().await.unwrap();
    assert_eq!(spans(&request).len(), unschedulable().spans.len());
    sinks.shutdown(ENOUGH).await;
    assert_eq!((lost(&registry), gauge(&registry, "export_spool_spans")), (vec![], 0));
}

#[tokio::test]
async fn while_the_disk_fails_spans_go_to_the_collector_directly() {
    const TRACES: usize = 40;
    let directory = Directory::new();
    let options = spool::Options { spool: Some(directory.0.clone()), spool_size: 1 << 20 };
    let Collector { endpoint, mut requests } = http_collector(listen().await.0, vec![], usize::MAX);
    let (sinks, registry) = spooling(settings("http/protobuf", &endpoint, &[]), &options);
    // No new segment can be made.
    std::fs::remove_dir_all(&directory.0).unwrap();
    let mut arrived = 0;
    for _ in 0..TRACES {
        sinks.send(scheduled());
        arrived += spans(&requests.recv().await.unwrap().1).len();
    }
    sinks.shutdown(ENOUGH).await;
    assert_eq!((arrived, lost(&registry)), (TRACES * EACH, vec![]));
}
