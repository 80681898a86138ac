//! What Jaeger shows of each span against what a Collector stores of it, field by field: of recorded streams, and of a real scheduler.

mod shown;

use std::{collections::BTreeSet, net::TcpListener, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use harness::{
    api::{is_bound, is_unschedulable, pod},
    http::agent,
    processes::{Ports, free_ports},
    schedspan::{Options, Schedspan},
    server::Server,
    spans,
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};
use tokio::{net, runtime::Runtime, task};
use xtask::{components::JAEGER, paths, process};

use self::shown::{Spans, differences, of_collector, of_jaeger};
use crate::{
    checks::{nothing_lost, text},
    export::{
        certificates::Files,
        collector::{Place, Security},
    },
};

const STREAMS: [&str; 5] = ["1.29", "1.33", "1.34", "1.36", "1.37"];
/// Pods with a context of their own, which is the parent of their attempts, and without.
const FITS: usize = 10;
const TOO_BIG: usize = 3;
/// The limit from a span's export to Jaeger's answer.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Differences that an error has.
const EXAMPLES: usize = 5;
/// What must be among the spans, or the test proves less than it says: a part of an object, and its words there.
const COVERED: [(&str, &str); 9] = [
    ("references", "CHILD_OF"),
    ("references", "FOLLOWS_FROM"),
    ("tags", r#""type":"bool""#),
    ("tags", r#""type":"float64""#),
    ("tags", r#""type":"int64""#),
    ("tags", r#""value":"[\""#),
    ("tags", "otel.status_description"),
    ("tags", "w3c.tracestate"),
    ("logs", r#""key":"event""#),
];

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let place = Place::new(stage.cluster.dir().join("jaeger"))?;
    let collector = place.start(Security::Plain, &Files::in_dir(place.dir()))?;
    let jaeger = Jaeger::start(place.dir())?;
    for (version, protocol) in STREAMS.into_iter().zip(["grpc", "http/protobuf"].into_iter().cycle()) {
        for endpoint in [place.endpoint(protocol, "127.0.0.1", Security::Plain), jaeger.endpoint(protocol)] {
            replay(stage, version, protocol, &endpoint)?;
        }
    }
    trace(stage, [place.endpoint("http", "127.0.0.1", Security::Plain), jaeger.endpoint("http")])?;
    collector.stop()?;
    compare(&of_collector(spans::stored(&place.file(), 0)?)?, &jaeger)
}

/// Replays a stream to an endpoint.
fn replay(stage: &Stage, version: &str, protocol: &str, endpoint: &str) -> Result<()> {
    let stream = paths::repository().join("tests/streams").join(format!("{version}.jsonl"));
    let mut replay = Command::new(&stage.executable);
    replay.arg("replay").arg(stream).args(["--queue-spans", "--output", "otlp"]);
    replay.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
    process::output(&mut replay).with_context(|| format!("{version} to {endpoint}")).map(drop)
}

/// Traces Pods, with each export to both.
fn trace(stage: &Stage, endpoints: [String; 2]) -> Result<()> {
    let tee = Tee::start(endpoints)?;
    let options = Options {
        endpoint: tee.url.clone(),
        protocol: "http/protobuf",
        arguments: &["--queue-spans", "--lifecycle", "--context-mode", "parent"],
        ..stage.options()?
    };
    let mut schedspan = Schedspan::start(&options)?;
    let api = stage.cluster.api()?;
    for number in 1..=FITS {
        let mut pod = pod(&format!("fits-{number}"), "10m");
        pod["metadata"]["annotations"] = json!({
            "tracing.k8s.io/traceparent": format!("00-a{number:031x}-a{number:015x}-01"),
            "tracing.k8s.io/tracestate": "vendor=value",
        });
        api.create_pod("default", &pod)?;
    }
    for number in 0..TOO_BIG {
        api.create_pod("default", &pod(&format!("big-{number}"), "1000"))?;
    }
    api.wait_for_pods("Pods to be bound or found unschedulable", |pods| {
        pods.iter().filter(|pod| is_bound(pod)).count() == FITS
            && pods.iter().filter(|pod| is_unschedulable(pod)).count() == TOO_BIG
    })?;
    schedspan.wait_for("all attempts to be exported", TIMEOUT, |metrics| {
        metrics.sum("schedspan_attempts_total", &[]) >= (FITS + TOO_BIG) as f64
            && metrics.sum("schedspan_export_queue_spans", &[]) == 0.0
    })?;
    nothing_lost(&schedspan.metrics()?)?;
    schedspan.stop()
}

fn compare(stored: &Spans, jaeger: &Jaeger) -> Result<()> {
    for (field, words) in COVERED {
        let covered = stored.values().any(|span| span[field].to_string().contains(words));
        ensure!(covered, "no span has {words} in its {field}: the test proves nothing of it");
    }
    let services: BTreeSet<&str> = stored.values().map(|span| text(span, "/process/serviceName")).collect();
    // Jaeger answers before it has stored all that it has accepted.
    let mut shown = Spans::new();
    let complete = wait_until("Jaeger to show every span", TIMEOUT, || {
        shown = jaeger.spans(&services)?;
        Ok((shown.len() >= stored.len()).then_some(()))
    });
    let differences = differences(stored, &shown);
    let examples = differences.iter().take(EXAMPLES).map(String::as_str).collect::<Vec<_>>().join("\n");
    ensure!(
        differences.is_empty(),
        "{} differences of {} spans:\n{examples}",
        differences.len(),
        stored.len()
    );
    complete?;
    let traces: BTreeSet<&str> = stored.keys().map(|[trace, _]| trace.as_str()).collect();
    println!(
        "         Jaeger {} shows {} spans of {} traces as the Collector stores them, down to microseconds",
        JAEGER.version,
        stored.len(),
        traces.len()
    );
    Ok(())
}

/// Jaeger with all its parts in one process, and its memory as store.
struct Jaeger {
    ports: Ports,
    _server: Server,
}

impl Jaeger {
    fn start(dir: &Path) -> Result<Self> {
        // Each of its servers has an address, or it takes a well-known one.
        let servers = [
            "admin.http",
            "collector.grpc-server",
            "collector.http-server",
            "collector.otlp.grpc",
            "collector.otlp.http",
            "query.grpc-server",
            "query.http-server",
        ];
        let ports = free_ports(&servers)?;
        let mut arguments: Vec<_> =
            ports.iter().map(|(name, port)| format!("--{name}.host-port=127.0.0.1:{port}")).collect();
        // It counts what its queue does not take, and answers that it has accepted it.
        arguments.push("--collector.queue-size=100000".to_owned());
        // It would send spans of its own to a well-known port.
        let environment = [("OTEL_TRACES_SAMPLER", "always_off")];
        let server = Server::start(JAEGER, &arguments, &environment, &ports, &dir.join("jaeger.log"))?;
        Ok(Self { ports, _server: server })
    }

    fn endpoint(&self, protocol: &str) -> String {
        let name = if protocol == "grpc" { "collector.otlp.grpc" } else { "collector.otlp.http" };
        format!("http://127.0.0.1:{}", self.ports[name])
    }

    /// All spans of its services, which must be these.
    fn spans(&self, services: &BTreeSet<&str>) -> Result<Spans> {
        let known = self.ask("services")?;
        let known: BTreeSet<&str> =
            known["data"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        ensure!(known.is_subset(services), "Jaeger has the services {known:?} instead of {services:?}");
        let mut spans = Spans::new();
        for service in known {
            // Without a beginning and an end it looks at two days.
            let query = format!("traces?service={service}&limit=100000&start=1&end={}", i64::MAX / 1000);
            spans.append(&mut of_jaeger(&self.ask(&query)?)?);
        }
        Ok(spans)
    }

    fn ask(&self, query: &str) -> Result<Value> {
        let url = format!("http://127.0.0.1:{}/api/{query}", self.ports["query.http-server"]);
        let mut answer =
            agent(Path::new(""))?.get(&url).call().with_context(|| format!("cannot read {url}"))?;
        let answer: Value = answer.body_mut().with_config().limit(u64::MAX).read_json()?;
        ensure!(answer["errors"].is_null(), "{url}: {}", answer["errors"]);
        Ok(answer)
    }
}

/// Passes each export on to two receivers. It ends when it is dropped.
struct Tee {
    url: String,
    _runtime: Runtime,
}

impl Tee {
    fn start(endpoints: [String; 2]) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on 127.0.0.1")?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = Router::new().route("/v1/traces", post(pass_on)).with_state(endpoints);
        let runtime = Runtime::new()?;
        let listener = {
            let _entered = runtime.enter();
            net::TcpListener::from_std(listener)?
        };
        drop(runtime.spawn(axum::serve(listener, router).into_future()));
        Ok(Self { url, _runtime: runtime })
    }
}

/// Answers with the higher of both statuses: the daemon does not send again, and the test sees the loss.
async fn pass_on(State(endpoints): State<[String; 2]>, body: Bytes) -> StatusCode {
    let send = move |endpoint: String| {
        let request = agent(Path::new(""))?.post(format!("{endpoint}/v1/traces"));
        let answer = request.header("content-type", "application/x-protobuf").send(&body[..])?;
        anyhow::Ok(answer.status())
    };
    let sent =
        task::spawn_blocking(move || endpoints.map(send).into_iter().collect::<Result<Vec<_>>>()).await;
    let statuses = sent.map_err(anyhow::Error::from).flatten();
    statuses.ok().and_then(|statuses| statuses.into_iter().max()).unwrap_or(StatusCode::BAD_REQUEST)
}
