//! The export to a real Collector: what is sent is stored or a counted loss, by both protocols, with TLS, compression, certificates
//! that are rotated, tokens, proxies, limits, a Collector that is away for a while, and a daemon that is killed or has a full disk
//! meanwhile.
//!
//! # Layout
//!
//! - `outage`: the Collector is away while Pods come, for ten minutes if asked
//! - `collector`, `certificates`, `between`: Collectors, their certificates, and what is between them and schedspan
//! - here: everything else

mod between;
pub(crate) mod certificates;
pub(crate) mod collector;
mod outage;

use std::{collections::BTreeMap, fs, net::TcpListener, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::pod,
    metrics::Metrics,
    schedspan::{Options, Schedspan},
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};
use xtask::paths;

pub(super) use self::outage::run as outage;
use self::{
    between::{Asks, Limit, Proxy},
    certificates::{Files, LATER, OVER, Server},
    collector::{Place, Security},
};
use crate::mounts::Mount;

/// Causes of loss between a span and the Collector.
const CAUSES: [&str; 6] =
    ["export_queue_full", "export_failed", "export_rejected", "spool_full", "spool_damaged", "shutdown"];
const PROTOCOLS: [&str; 2] = ["grpc", "http/protobuf"];
const STREAM: &str = "tests/streams/1.37.jsonl";
const GOOD: Server = Server { name: "localhost", ends: LATER };
/// The limit from an event to what the daemon reports of it.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let place = Place::new(stage.cluster.dir().join("export"))?;
    let files = Files::in_dir(place.dir());
    let test = Test { stage, place, files };
    test.all_arrives_in_every_way().context("ways of transport")?;
    test.bad_certificates_are_explained().context("certificates")?;
    test.other_faults_are_explained().context("faults")?;
    test.a_token_is_sent_and_a_wrong_one_is_explained().context("tokens")?;
    test.a_proxy_of_the_environment_is_used().context("proxies")?;
    test.large_requests_are_split().context("large requests")?;
    test.pauses_are_as_long_as_a_limit_asks().context("limits")?;
    test.no_span_is_lost_to_an_outage_with_a_rotation().context("an outage")?;
    test.a_killed_daemon_finds_its_spans_in_the_spool().context("a spool")?;
    test.a_full_disk_costs_no_span().context("a full disk")
}

struct Test<'a> {
    stage: &'a Stage,
    place: Place,
    files: Files,
}

/// What a replay says of itself.
struct Replayed {
    spans: u64,
    /// By cause.
    lost: BTreeMap<String, u64>,
}

impl Test<'_> {
    fn all_arrives_in_every_way(&self) -> Result<()> {
        self.files.renew(GOOD)?;
        for security in [Security::Plain, Security::Tls, Security::Mutual] {
            for protocol in PROTOCOLS {
                for compression in ["none", "gzip", "zstd"] {
                    let way = format!("{security:?}, {protocol}, {compression}");
                    self.place.clear()?;
                    let collector = self.place.start(security, &self.files)?;
                    let mut variables = self.variables(protocol, security);
                    variables.push(("OTEL_EXPORTER_OTLP_COMPRESSION", compression.to_owned()));
                    let replayed = self.replay(&paths::repository().join(STREAM), &variables)?;
                    collector.stop()?;
                    self.all_is_stored(&replayed).context(way)?;
                }
            }
        }
        Ok(())
    }

    /// `doctor` names the cause and the next step, and a replay counts its spans as lost.
    fn bad_certificates_are_explained(&self) -> Result<()> {
        let elsewhere = Server { name: "elsewhere.example", ..GOOD };
        let expired = Server { ends: OVER, ..GOOD };
        for (server, security, without, says) in [
            (GOOD, Security::Tls, "OTEL_EXPORTER_OTLP_CERTIFICATE", "unknown authority"),
            (elsewhere, Security::Tls, "", "use a name of its certificate"),
            (expired, Security::Tls, "", "renew it"),
            (GOOD, Security::Mutual, "OTEL_EXPORTER_OTLP_CLIENT", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"),
        ] {
            self.files.renew(server)?;
            let _collector = self.place.start(security, &self.files)?;
            for protocol in PROTOCOLS {
                let mut variables = self.variables(protocol, security);
                variables.retain(|(name, _)| without.is_empty() || !name.starts_with(without));
                self.doctor_says(says, &variables).context(protocol)?;
            }
        }
        let replayed =
            self.replay(&paths::repository().join(STREAM), &self.variables("grpc", Security::Tls))?;
        let lost = replayed.lost.get("shutdown").copied().unwrap_or_default();
        ensure!(lost == replayed.spans, "{lost} of {} spans are counted as lost", replayed.spans);
        Ok(())
    }

    fn other_faults_are_explained(&self) -> Result<()> {
        let silent = TcpListener::bind("127.0.0.1:0")?;
        let silent = format!("http://{}", silent.local_addr()?);
        for protocol in PROTOCOLS {
            for (endpoint, says) in [
                (
                    &*self.place.endpoint(protocol, "localhost", Security::Plain),
                    "connection refused; start a Collector",
                ),
                (&*silent, "no answer within 300 ms; check OTEL_EXPORTER_OTLP_ENDPOINT"),
                ("http://collector.invalid:4317", "does not resolve"),
            ] {
                let variables = [
                    ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.to_owned()),
                    ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned()),
                    ("OTEL_EXPORTER_OTLP_TIMEOUT", "300".to_owned()),
                ];
                self.doctor_says(says, &variables).context(protocol)?;
            }
        }
        Ok(())
    }

    /// The token of a file, which changes, and the one of a header.
    fn a_token_is_sent_and_a_wrong_one_is_explained(&self) -> Result<()> {
        const TOKEN: &str = "a-token";
        let asks = json!({ "auth": { "authenticator": "bearertokenauth" } });
        let settings = json!({
            "extensions": { "bearertokenauth": { "token": TOKEN } },
            "receivers": { "otlp": { "protocols": { "grpc": asks, "http": asks } } },
            "service": { "extensions": ["bearertokenauth"] },
        });
        let (recording, file) = (paths::repository().join(STREAM), self.place.dir().join("token"));
        for protocol in PROTOCOLS {
            self.place.clear()?;
            let collector = self.place.start_with(Security::Plain, &self.files, &settings)?;
            let without = self.variables(protocol, Security::Plain);
            let with = |name, value: &str| [&*without, &[(name, value.to_owned())]].concat();
            let of_file = with("SCHEDSPAN_OTLP_TOKEN_FILE", &file.display().to_string());
            fs::write(&file, "another token")?;
            self.doctor_says("check OTEL_EXPORTER_OTLP_HEADERS or SCHEDSPAN_OTLP_TOKEN_FILE", &of_file)?;
            let refused = self.replay(&recording, &of_file)?;
            ensure!(
                refused.lost == BTreeMap::from([("export_failed".to_owned(), refused.spans)]),
                "{protocol}: of {} refused spans are lost: {:?}",
                refused.spans,
                refused.lost
            );
            fs::write(&file, TOKEN)?;
            self.doctor_says("takes spans", &of_file)?;
            let mut sent = 0;
            for variables in
                [of_file, with("OTEL_EXPORTER_OTLP_HEADERS", &format!("authorization=Bearer%20{TOKEN}"))]
            {
                let replayed = self.replay(&recording, &variables)?;
                ensure!(replayed.lost.is_empty(), "{protocol}: spans are lost: {:?}", replayed.lost);
                sent += replayed.spans;
            }
            collector.stop()?;
            let stored = self.place.stored()?;
            ensure!(stored == sent, "{protocol}: {stored} spans are stored of {sent}");
        }
        Ok(())
    }

    /// A proxy that alone knows the Collector's name, and one that is not to be used.
    fn a_proxy_of_the_environment_is_used(&self) -> Result<()> {
        const NAME: &str = "collector.schedspan.test";
        let proxy = Proxy::start()?;
        self.files.renew(Server { name: NAME, ..GOOD })?;
        for (security, variable) in [(Security::Plain, "HTTP_PROXY"), (Security::Tls, "HTTPS_PROXY")] {
            for protocol in PROTOCOLS {
                let way = format!("{variable}, {protocol}");
                self.place.clear()?;
                let collector = self.place.start(security, &self.files)?;
                let by_proxy = |credentials: &str, host| {
                    let mut variables = self.variables(protocol, security);
                    variables
                        .push(("OTEL_EXPORTER_OTLP_ENDPOINT", self.place.endpoint(protocol, host, security)));
                    variables.push((variable, proxy.url(credentials)));
                    variables.push(("NO_PROXY", "localhost".to_owned()));
                    variables
                };
                self.doctor_says("check HTTPS_PROXY, HTTP_PROXY and NO_PROXY", &by_proxy("me:wrong", NAME))?;
                ensure!(proxy.asked().is_empty(), "{way}: the proxy takes wrong credentials");
                let replayed =
                    self.replay(&paths::repository().join(STREAM), &by_proxy("me:se%20cret", NAME))?;
                let asked = proxy.asked();
                let expected = format!("{NAME}:{}", self.place.port(protocol));
                ensure!(asked.first() == Some(&expected), "{way}: the proxy is asked for {asked:?}");
                if security == Security::Plain {
                    self.doctor_says("takes spans", &by_proxy("me:se%20cret", "localhost"))?;
                    ensure!(proxy.asked().is_empty(), "{way}: the proxy is used in spite of NO_PROXY");
                }
                collector.stop()?;
                self.all_is_stored(&replayed).context(way)?;
            }
        }
        Ok(())
    }

    /// A request of 2 MiB to a Collector that takes one.
    fn large_requests_are_split(&self) -> Result<()> {
        let recording = self.place.dir().join("large.jsonl");
        fs::write(&recording, repeated(&fs::read_to_string(paths::repository().join(STREAM))?, 30)?)?;
        let limits = json!({
            "receivers": { "otlp": { "protocols": {
                "grpc": { "max_recv_msg_size_mib": 1 }, "http": { "max_request_body_size": 1 << 20 },
            } } },
        });
        for protocol in PROTOCOLS {
            self.place.clear()?;
            let collector = self.place.start_with(Security::Plain, &self.files, &limits)?;
            let mut variables = self.variables(protocol, Security::Plain);
            variables.push(("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "65536".to_owned()));
            let replayed = self.replay(&recording, &variables)?;
            collector.stop()?;
            let log = fs::read_to_string(self.place.dir().join("schedspan.log"))?;
            ensure!(replayed.spans > 6_000, "{} spans are too few for this test", replayed.spans);
            ensure!(
                !log.contains("cannot export"),
                "{protocol}: a split request is not worth a warning: {log}"
            );
            self.all_is_stored(&replayed).context(protocol)?;
        }
        Ok(())
    }

    /// A limit refuses the first two requests, and says for how long.
    fn pauses_are_as_long_as_a_limit_asks(&self) -> Result<()> {
        const PAUSE: Duration = Duration::from_secs(2);
        const OF_GRPC: &[Asks] = &[Asks::RetryInfo; 2];
        const OF_HTTP: &[Asks] = &[Asks::Seconds, Asks::Date];
        for (protocol, asks) in PROTOCOLS.into_iter().zip([OF_GRPC, OF_HTTP]) {
            self.place.clear()?;
            let collector = self.place.start(Security::Plain, &self.files)?;
            let limit = Limit::start(self.place.port(protocol), asks, PAUSE)?;
            let mut variables = self.variables(protocol, Security::Plain);
            variables.push(("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{}", limit.port)));
            let replayed = self.replay(&paths::repository().join(STREAM), &variables)?;
            collector.stop()?;
            limit.was_respected(asks.len()).context(protocol)?;
            self.all_is_stored(&replayed).context(protocol)?;
        }
        Ok(())
    }

    /// The Collector has no memory left, goes away, and comes back with certificates of another authority.
    fn no_span_is_lost_to_an_outage_with_a_rotation(&self) -> Result<()> {
        let api = self.stage.cluster.api()?;
        // It needs more memory than this to start.
        let exhausted = json!({
            "processors": { "memory_limiter": { "check_interval": "10ms", "limit_mib": 1 } },
            "service": { "pipelines": { "traces": { "processors": ["memory_limiter"] } } },
        });
        for protocol in PROTOCOLS {
            self.place.clear()?;
            self.files.renew(GOOD)?;
            let collector = self.place.start(Security::Mutual, &self.files)?;
            let variables = self.variables(protocol, Security::Mutual);
            let environment: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let endpoint = self.place.endpoint(protocol, "localhost", Security::Mutual);
            let log = self.place.dir().join("daemon.log");
            let options =
                Options { endpoint, protocol, log, environment: &environment, ..self.stage.options()? };
            let mut schedspan = Schedspan::start(&options)?;
            let name = |what: &str| format!("{what}-{}", &protocol[..4]);
            api.create_pod("default", &pod(&name("before"), "10m"))?;
            schedspan.wait_for("the first spans to arrive", TIMEOUT, |metrics| sent(metrics) > 10.0)?;
            collector.stop()?;
            let collector = self.place.start_with(Security::Mutual, &self.files, &exhausted)?;
            for round in 1..=3 {
                api.create_pod("default", &pod(&name(&format!("away-{round}")), "10m"))?;
            }
            wait_until("the Collector to refuse spans", TIMEOUT, || {
                Ok(schedspan.log()?.contains("data refused due to high memory usage").then_some(()))
            })?;
            collector.stop()?;
            schedspan.wait_for("spans to wait for the Collector", TIMEOUT, |metrics| {
                metrics.sum("schedspan_export_queue_spans", &[]) > 30.0
                    && metrics.sum("schedspan_export_retries_total", &[]) > 2.0
            })?;
            self.files.renew(GOOD)?;
            let collector = self.place.start(Security::Mutual, &self.files)?;
            schedspan.wait_for("the queue to drain", TIMEOUT, |metrics| {
                metrics.sum("schedspan_export_queue_spans", &[]) == 0.0
            })?;
            let metrics = schedspan.metrics()?;
            let made = metrics.sum("schedspan_spans_total", &[]);
            let lost = lost(&metrics);
            schedspan.stop()?;
            collector.stop()?;
            let stored = self.place.stored()?;
            ensure!(lost == 0.0, "{protocol}: {lost} spans are lost");
            ensure!(stored as f64 == made, "{protocol}: {stored} spans are stored of {made}");
        }
        Ok(())
    }

    /// The daemon is killed while the Collector is away, and a byte on the disk changes.
    fn a_killed_daemon_finds_its_spans_in_the_spool(&self) -> Result<()> {
        const PROTOCOL: &str = "grpc";
        self.place.clear()?;
        let api = self.stage.cluster.api()?;
        let directory = self.place.dir().join("spool");
        let arguments = ["--spool", directory.to_str().context("a directory's name is not UTF-8")?];
        let options = Options {
            endpoint: self.place.endpoint(PROTOCOL, "localhost", Security::Plain),
            protocol: PROTOCOL,
            log: self.place.dir().join("spooling.log"),
            arguments: &arguments,
            ..self.stage.options()?
        };
        let collector = self.place.start(Security::Plain, &self.files)?;
        let mut schedspan = Schedspan::start(&options)?;
        api.create_pod("default", &pod("spool-before", "10m"))?;
        schedspan.wait_for("the first spans to arrive", TIMEOUT, |metrics| sent(metrics) > 10.0)?;
        collector.stop()?;
        for round in 1..=3 {
            api.create_pod("default", &pod(&format!("spool-away-{round}"), "10m"))?;
        }
        schedspan.wait_for("all other spans to be in the spool", TIMEOUT, |metrics| {
            let spooled = metrics.sum("schedspan_export_spool_spans", &[]);
            spooled > 50.0 && sent(metrics) + spooled == metrics.sum("schedspan_spans_total", &[])
        })?;
        let metrics = schedspan.metrics()?;
        let (made, lost_before) = (metrics.sum("schedspan_spans_total", &[]), lost(&metrics));
        ensure!(lost_before == 0.0, "{lost_before} spans are lost before the daemon is killed");
        // With SIGKILL.
        drop(schedspan);
        change_last_byte(&directory)?;

        let collector = self.place.start(Security::Plain, &self.files)?;
        let mut schedspan = Schedspan::start(&options)?;
        schedspan.wait_for("the spool to drain", TIMEOUT, |metrics| {
            metrics.sum("schedspan_export_spool_spans", &[]) == 0.0
        })?;
        let metrics = schedspan.metrics()?;
        let made = made + metrics.sum("schedspan_spans_total", &[]);
        let damaged = metrics.sum("schedspan_losses_total", &[("cause", "spool_damaged")]);
        schedspan.stop()?;
        collector.stop()?;
        let stored = self.place.stored()? as f64;
        ensure!(damaged > 0.0 && lost(&metrics) == damaged, "the changed byte is not noticed: {damaged}");
        ensure!(stored + damaged == made, "{stored} spans are stored and {damaged} damaged of {made}");
        Ok(())
    }

    /// The Collector is away for longer than the disk of the spool lasts.
    fn a_full_disk_costs_no_span(&self) -> Result<()> {
        const PODS: u32 = 40;
        self.place.clear()?;
        let api = self.stage.cluster.api()?;
        let disk = Mount::tmpfs(self.place.dir(), "disk", c"size=64k,mode=700")?;
        let arguments = ["--spool", disk.0.to_str().context("a directory's name is not UTF-8")?];
        let options = Options {
            endpoint: self.place.endpoint("grpc", "localhost", Security::Plain),
            log: self.place.dir().join("full.log"),
            arguments: &arguments,
            ..self.stage.options()?
        };
        let mut schedspan = Schedspan::start(&options)?;
        let waiting = |metrics: &Metrics| {
            ["spool", "queue"].map(|place| metrics.sum(&format!("schedspan_export_{place}_spans"), &[]))
        };
        api.create_pod("default", &pod("full-0", "10m"))?;
        schedspan.wait_for("spans to wait on the disk", TIMEOUT, |metrics| waiting(metrics)[0] > 0.0)?;
        for round in 1..=PODS {
            api.create_pod("default", &pod(&format!("full-{round}"), "10m"))?;
        }
        wait_until("the full disk to be logged", TIMEOUT, || {
            Ok(schedspan.log()?.contains("the spool cannot be used: No space left").then_some(()))
        })?;
        schedspan.wait_for("further spans to wait in memory", TIMEOUT, |metrics| {
            let [disk, memory] = waiting(metrics);
            metrics.sum("schedspan_attempts_total", &[]) > f64::from(PODS) && disk > 0.0 && memory > 0.0
        })?;
        ensure!(schedspan.says("readyz")?.contains("ok"), "a full disk makes schedspan unready");
        let collector = self.place.start(Security::Plain, &self.files)?;
        schedspan.wait_for("all spans to arrive", TIMEOUT, |metrics| waiting(metrics) == [0.0, 0.0])?;
        let metrics = schedspan.metrics()?;
        let (made, lost) = (metrics.sum("schedspan_spans_total", &[]), lost(&metrics));
        schedspan.stop()?;
        collector.stop()?;
        let stored = self.place.stored()? as f64;
        ensure!(lost == 0.0 && stored == made, "{stored} spans are stored and {lost} lost of {made}");
        Ok(())
    }

    fn variables(&self, protocol: &str, security: Security) -> Vec<(&'static str, String)> {
        let Files { authority, client, client_key, .. } = &self.files;
        let mut variables = vec![
            ("OTEL_EXPORTER_OTLP_ENDPOINT", self.place.endpoint(protocol, "localhost", security)),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned()),
        ];
        let text = |path: &Path| path.display().to_string();
        if security != Security::Plain {
            variables.push(("OTEL_EXPORTER_OTLP_CERTIFICATE", text(authority)));
        }
        if security == Security::Mutual {
            variables.push(("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", text(client)));
            variables.push(("OTEL_EXPORTER_OTLP_CLIENT_KEY", text(client_key)));
        }
        variables
    }

    fn replay(&self, recording: &Path, variables: &[(&str, String)]) -> Result<Replayed> {
        let file = recording.display().to_string();
        let said = self.schedspan(&["replay", &file, "--output", "otlp"], variables)?;
        fs::write(self.place.dir().join("schedspan.log"), &said)?;
        let spans =
            said.lines().find_map(|line| line.strip_suffix(" spans")?.rsplit(' ').next()?.parse().ok());
        let lost = said.lines().filter_map(|line| line.strip_prefix("lost: ")?.split_once(' '));
        Ok(Replayed {
            spans: spans.with_context(|| format!("a replay does not say how many spans it made: {said}"))?,
            lost: lost.map(|(count, cause)| Ok((cause.to_owned(), count.parse()?))).collect::<Result<_>>()?,
        })
    }

    /// What schedspan prints.
    fn schedspan(&self, arguments: &[&str], variables: &[(&str, String)]) -> Result<String> {
        let mut command = Command::new(&self.stage.executable);
        command.args(arguments).envs(variables.iter().map(|(name, value)| (name, value)));
        let output = command.output()?;
        Ok([output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat())
    }

    fn doctor_says(&self, says: &str, variables: &[(&str, String)]) -> Result<()> {
        let said = self.schedspan(&["doctor"], variables)?;
        let line = said.lines().find(|line| line.contains("Collector")).unwrap_or_default();
        ensure!(line.contains(says), "doctor does not say `{says}`: {said}");
        Ok(())
    }

    fn all_is_stored(&self, replayed: &Replayed) -> Result<()> {
        let stored = self.place.stored()?;
        ensure!(stored == replayed.spans, "{stored} spans are stored of {}", replayed.spans);
        ensure!(
            CAUSES.iter().all(|cause| !replayed.lost.contains_key(*cause)),
            "spans are stored and lost: {:?}",
            replayed.lost
        );
        Ok(())
    }
}

/// Spans that the Collector has accepted.
fn sent(metrics: &Metrics) -> f64 {
    metrics.sum("schedspan_export_spans_total", &[("result", "success")])
}

fn lost(metrics: &Metrics) -> f64 {
    CAUSES.iter().map(|cause| metrics.sum("schedspan_losses_total", &[("cause", cause)])).sum()
}

/// Changes the last byte of a spool's newest segment.
fn change_last_byte(spool: &Path) -> Result<()> {
    let files = fs::read_dir(spool)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let segments = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "spool"));
    let newest = segments.max().context("the spool has no segment")?;
    let mut bytes = fs::read(&newest)?;
    *bytes.last_mut().context("the newest segment is empty")? ^= 1;
    Ok(fs::write(newest, bytes)?)
}

/// A recording of as many processes that do the same.
fn repeated(recording: &str, times: u64) -> Result<String> {
    let lines = recording.lines().map(serde_json::from_str).collect::<serde_json::Result<Vec<Value>>>()?;
    let [header, body @ .., end] = &*lines else { anyhow::bail!("the recording is empty") };
    let mut all = vec![header.to_string()];
    for target in 0..times {
        for line in body {
            let mut line = line.clone();
            for kind in ["found", "event", "gone"] {
                if let Some(number) = line.get_mut(kind).and_then(|line| line.get_mut("target")) {
                    *number = target.into();
                }
            }
            all.push(line.to_string());
        }
        if !body.iter().any(|line| line.get("gone").is_some()) {
            all.push(json!({ "gone": { "target": target } }).to_string());
        }
    }
    all.push(end.to_string());
    Ok(all.join("\n") + "\n")
}
