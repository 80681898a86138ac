//! `cargo xtask bench webhook`: the latency of the webhook's answers, and of the creation of a Pod with it.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};
use harness::{
    api::{Api, pod},
    cluster,
    http::agent,
    stage::Stage,
    wait::wait_until,
    webhook::{Webhook, bundle, register},
};
use serde_json::{Value, json};
use ureq::Agent;
use xtask::process;

use crate::deployed;

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// The limit of an answer's 99th percentile in milliseconds.
const LIMIT_MS: f64 = 2.0;
/// Concurrent connections in the second round: API servers keep several open to each replica.
const CONNECTIONS: usize = 8;
/// Reviews on each connection before the measured ones.
const WARM_UP: usize = 100;
/// Creations of a Pod, with and without the webhook.
const CREATIONS: usize = 1000;
/// The limit for the API server to see the configuration.
const SEEN: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub(super) struct Options {
    /// Reviews in each round
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    reviews: u32,
    /// Store the result in docs/figures.tsv, which tests compare with what the documents say
    #[arg(long, conflicts_with = "reviews")]
    store: bool,
}

pub(super) fn main(Options { reviews, store }: &Options) -> Result<()> {
    let executable = deployed()?;
    let options = cluster::Options { no_controllers: true, ..cluster::Options::default() };
    Stage::play(&options, &executable, |stage| measure(stage, *reviews as usize, *store))
}

fn measure(stage: &mut Stage, reviews: usize, store: bool) -> Result<()> {
    let api = stage.cluster.api()?.with("traceparent", TRACEPARENT);
    let without = creations(&api)?;
    let mut webhook = Webhook::start(stage, "webhook", &[])?;
    register(&api, &webhook, &[])?;
    webhook.wait()?;
    let certificates = stage.cluster.dir().join("webhook.crt");
    std::fs::write(&certificates, bundle(&api)?)?;
    let review = review();

    println!("{} bytes a review, TLS with keep-alive, milliseconds", review.len());
    println!("{:44} {:>7} {:>7} {:>7} {:>7} {:>9}", "", "p50", "p99", "p99.9", "longest", "a second");
    let mut alone = [0.0; 3];
    for connections in [1, CONNECTIONS] {
        let start = Instant::now();
        let each = reviews / connections;
        let threads = (0..connections).map(|_| {
            let (agent, url, review) = (agent(&certificates), webhook.url(), review.clone());
            thread::spawn(move || ask(&agent?, &url, &review, each))
        });
        // All threads start before the first is joined.
        let threads: Vec<_> = threads.collect();
        let mut took = Vec::new();
        for thread in threads {
            took.extend(thread.join().map_err(|_| anyhow!("a client has panicked"))??);
        }
        let rate = (took.len() + connections * WARM_UP) as f64 / start.elapsed().as_secs_f64();
        let name = format!("{} reviews over {connections} connections", took.len());
        let shown = show(&name, &mut took, Some(rate));
        if connections == 1 {
            alone = shown;
        }
    }
    // The webhook's own metric, without client and TLS.
    let metrics = webhook.metrics()?;
    let name = "schedspan_webhook_answer_seconds";
    let sum = |what: &str| metrics.sum(&format!("{name}_{what}"), &[]);
    let within = metrics.sum(&format!("{name}_bucket"), &[("le", "0.001")]);
    println!(
        "the webhook itself: {:.3} on average, {:.2} % within 1; {:.1} MiB resident",
        sum("sum") / sum("count") * 1e3,
        within / sum("count") * 100.0,
        process::resident(webhook.pid()).unwrap_or_default() as f64 / f64::from(1 << 20),
    );
    ensure!(webhook.reviews("injected")? >= reviews as f64, "not all reviews were answered with a context");

    wait_until("the API server to call the webhook", SEEN, || {
        let pod = api.post("/api/v1/namespaces/default/pods?dryRun=All", &pod("trial", "1"))?;
        Ok(pod["metadata"]["annotations"].is_object().then_some(()))
    })?;
    let with = creations(&api)?;
    for (name, mut took) in [("without the webhook", without), ("with it", with)] {
        show(&format!("{CREATIONS} Pods by the API server, {name}"), &mut took, None);
    }
    webhook.stop()?;
    let [p50, worst, longest] = alone;
    if store {
        let text = |milliseconds: f64| format!("{milliseconds:.2}");
        facts::store(&[
            ("webhook.p50", text(p50)),
            ("webhook.p99", text(worst)),
            ("webhook.p99.9", text(longest)),
        ])?;
    }
    ensure!(worst < LIMIT_MS, "the 99th percentile is {worst:.3} ms, which is not below {LIMIT_MS} ms");
    Ok(())
}

/// Prints a row, and returns the median and the percentiles 99 and 99.9 in milliseconds.
fn show(name: &str, took: &mut [f64], rate: Option<f64>) -> [f64; 3] {
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took[((took.len() as f64 * share).ceil() as usize).clamp(1, took.len()) - 1];
    let rate = rate.map_or_else(String::new, |rate| format!("{rate:.0}"));
    println!("{name:44} {:7.3} {:7.3} {:7.3} {:7.3} {rate:>9}", at(0.5), at(0.99), at(0.999), at(1.0));
    [0.5, 0.99, 0.999].map(at)
}

/// The latency of each answer, from the request to the last byte.
fn ask(agent: &Agent, url: &str, review: &str, reviews: usize) -> Result<Vec<f64>> {
    let mut took = Vec::with_capacity(reviews);
    for number in 0..WARM_UP + reviews {
        let start = Instant::now();
        let request =
            agent.post(url).header("traceparent", TRACEPARENT).header("content-type", "application/json");
        let mut response = request.send(review)?;
        let text = response.body_mut().read_to_string()?;
        let elapsed = start.elapsed();
        ensure!(
            response.status().is_success() && text.contains("\"patch\""),
            "{}: {text}",
            response.status()
        );
        if number >= WARM_UP {
            took.push(elapsed.as_secs_f64() * 1e3);
        }
    }
    Ok(took)
}

/// The latency of dry-run creations of Pods, in milliseconds.
fn creations(api: &Api) -> Result<Vec<f64>> {
    let create = |_| {
        let start = Instant::now();
        api.post("/api/v1/namespaces/default/pods?dryRun=All", &pod("bench", "1"))?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };
    (0..CREATIONS).map(create).collect()
}

/// A review as the API server sends it, of a typical Pod: three containers with variables, volumes and probes.
fn review() -> String {
    let variables: Vec<_> =
        (0..20).map(|n| json!({ "name": format!("VARIABLE_{n}"), "value": "a".repeat(40) })).collect();
    let probe =
        json!({ "httpGet": { "path": "/healthz", "port": 8080, "scheme": "HTTP" }, "periodSeconds": 10 });
    let containers: Vec<_> = (0..3)
        .map(|n| {
            json!({
                "name": format!("container-{n}"), "image": "registry.example/team/image:1.2.3", "env": variables,
                "readinessProbe": probe, "livenessProbe": probe,
                "resources": { "requests": { "cpu": "100m", "memory": "128Mi" } },
                "volumeMounts": [{ "name": "token", "mountPath": "/var/run/secrets", "readOnly": true }],
            })
        })
        .collect();
    let labels: Value = (0..8).map(|n| (format!("example.com/label-{n}"), "value")).collect();
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "resource": { "group": "", "version": "v1", "resource": "pods" },
            "namespace": "default", "operation": "CREATE", "dryRun": false,
            "userInfo": { "username": "system:serviceaccount:kube-system:replicaset-controller", "groups": ["system:serviceaccounts"] },
            "object": {
                "kind": "Pod", "apiVersion": "v1",
                "metadata": {
                    "generateName": "web-7c5ddbdf54-", "namespace": "default", "labels": labels,
                    "annotations": { "example.com/checksum": "0".repeat(64) },
                },
                "spec": { "containers": containers, "volumes": [{ "name": "token", "emptyDir": {} }] },
                "status": {},
            },
            "oldObject": null,
        },
    })
    .to_string()
}
