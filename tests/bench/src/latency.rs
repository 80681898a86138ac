//! `cargo xtask bench latency`: the time from the end of an attempt until its spans are at a Collector.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use anyhow::{Result, ensure};
use axum::{Router, body::Bytes, routing::post};
use harness::{
    api::pod,
    cluster,
    schedspan::{self, Schedspan},
    stage::Stage,
    wait::wait_until,
};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use tokio::{net::TcpListener, runtime::Runtime};

use crate::deployed;

/// The name of an attempt's root.
const ROOT: &str = "SchedulePod";
/// The limit for all attempts to arrive.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Requests a second that the scheduler may send: more than it makes.
const QPS: u32 = 5000;
/// Nodes of the cluster, so that there is room for all Pods of a rate.
const NODES: u32 = 100;

#[derive(clap::Args)]
pub(super) struct Options {
    /// Pods a second, in turn
    #[arg(long, value_delimiter = ',', default_value = "1,10,50,100", value_parser = clap::value_parser!(u32).range(1..=200))]
    rates: Vec<u32>,
    /// Seconds of each rate
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=20))]
    seconds: u32,
}

/// Seconds from the end of each attempt that has arrived.
type Arrivals = Arc<Mutex<Vec<f64>>>;

pub(super) fn main(options: &Options) -> Result<()> {
    let executable = deployed()?;
    let cluster = cluster::Options {
        nodes: NODES,
        scheduler_qps: Some(QPS),
        no_controllers: true,
        ..cluster::Options::default()
    };
    Stage::play(&cluster, &executable, |stage| measure(stage, options))
}

fn measure(stage: &Stage, Options { rates, seconds }: &Options) -> Result<()> {
    let runtime = Runtime::new()?;
    let arrivals = Arrivals::default();
    let endpoint = collector(&runtime, Arc::clone(&arrivals))?;
    let options = schedspan::Options { endpoint, protocol: "http/protobuf", ..stage.options()? };
    let schedspan = Schedspan::start(&options)?;
    let api = stage.cluster.api()?;
    println!("seconds from the end of an attempt until its spans are at a Collector");
    println!("{:>10} {:>10} {:>7} {:>7} {:>7}", "Pods/s", "attempts", "p50", "p99", "longest");
    for rate in rates {
        let pods = rate * seconds;
        api.create_pods(*rate, (0..pods).map(|number| pod(&format!("latency-{number}"), "10m")))?;
        wait_until("all attempts to arrive", TIMEOUT, || {
            let arrived = arrivals.lock().unwrap_or_else(PoisonError::into_inner).len();
            Ok((arrived >= pods as usize).then_some(()))
        })?;
        let mut took = std::mem::take(&mut *arrivals.lock().unwrap_or_else(PoisonError::into_inner));
        took.sort_by(f64::total_cmp);
        let at = |share: f64| took[((took.len() as f64 * share).ceil() as usize).clamp(1, took.len()) - 1];
        println!("{rate:>10} {:>10} {:7.3} {:7.3} {:7.3}", took.len(), at(0.5), at(0.99), at(1.0));
        api.delete_pods("latency-")?;
    }
    let lost = schedspan.metrics()?.sum("schedspan_losses_total", &[]);
    ensure!(lost == 0.0, "{lost} things were lost");
    schedspan.stop()
}

/// A Collector that only notes when attempts arrive. Returns its endpoint.
fn collector(runtime: &Runtime, arrivals: Arrivals) -> Result<String> {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    let traces = async move |body: Bytes| {
        let now = SystemTime::now();
        let Ok(request) = ExportTraceServiceRequest::decode(body) else { return };
        let scopes = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
        let roots = scopes.flat_map(|scope| &scope.spans).filter(|span| span.name == ROOT);
        let took = roots.map(|root| {
            let end = SystemTime::UNIX_EPOCH + Duration::from_nanos(root.end_time_unix_nano);
            now.duration_since(end).unwrap_or_default().as_secs_f64()
        });
        arrivals.lock().unwrap_or_else(PoisonError::into_inner).extend(took);
    };
    let router = Router::new().route("/v1/traces", post(traces));
    runtime.spawn(async move { axum::serve(listener, router).await });
    Ok(endpoint)
}
