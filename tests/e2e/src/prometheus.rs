//! A real Prometheus reads the daemon's metrics: each query of the dashboard has an answer, its exemplars lead to traces that the Collector
//! has, and each alert can be evaluated. The dashboard is valid by Grafana's schema.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{is_bound, is_unschedulable},
    http::agent,
    processes::{Ports, free_ports},
    schedspan::Schedspan,
    server::Server,
    spans,
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};
use xtask::{
    components::{Component, PLAIN, PROMETHEUS},
    paths,
};

use crate::{
    checks::{nothing_lost, text},
    compare::command::some_fit,
};

pub(super) const NODES: u32 = 20;
const PODS: u32 = 300;
const PACE: u32 = 30;
/// The limit for Prometheus to have what the daemon said, and for the Collector to have the traces.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What Grafana puts into the queries: the variable of the dashboard, and four scrapes or more.
const VARIABLES: [(&str, &str); 2] = [("$instance", ".*"), ("$__rate_interval", "10s")];
/// Panels that may have nothing to show here, and why.
const MAY_BE_EMPTY: [(&str, &str); 2] =
    [("Losses", "nothing is lost"), ("CPU time of plugins", "no sample may have met a plugin")];
/// Checks a dashboard against Grafana's schema: Grafana itself is in no registry of packages that the tests use.
const SCHEMA: Component =
    Component { name: "schema", version: "0.0.22", module: "tools/grafana", package: ".", ..PLAIN };
/// The alert that says that no daemon is scraped.
const ABSENT: &str = "SchedspanAbsent";

/// A query of a panel.
struct Query {
    panel: String,
    expression: String,
    exemplars: bool,
}

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let panels = valid()?;
    let queries = queries()?;
    let schedspan = stage.trace()?;
    let prometheus = Prometheus::start(&stage.cluster.dir().join("prometheus"), &schedspan)?;
    schedule(stage)?;
    nothing_lost(&schedspan.metrics()?)?;
    for query in &queries {
        prometheus.answers(query)?;
    }
    let exemplars = lead_to_traces(stage, &prometheus, &queries)?;
    let alerts = prometheus.alerts(|state| state == "inactive")?;
    schedspan.stop()?;
    wait_until(&format!("{ABSENT} to be pending"), TIMEOUT, || {
        thread::sleep(Duration::from_millis(500));
        Ok((prometheus.state(ABSENT)? == "pending").then_some(()))
    })?;
    println!(
        "         Prometheus {}: {} queries of the dashboard have an answer, {exemplars} exemplars lead to traces, {alerts} alerts are \
         evaluated; {panels} panels are as Grafana's schema {} says",
        PROMETHEUS.version,
        queries.len(),
        SCHEMA.version
    );
    Ok(())
}

fn dashboard() -> PathBuf {
    paths::repository().join("deploy/chart/schedspan/dashboard.json")
}

/// Checks the dashboard against Grafana's schema. Returns the number of its panels.
fn valid() -> Result<usize> {
    let checked = Command::new(SCHEMA.executable()?).stdin(File::open(dashboard())?).output()?;
    let output = String::from_utf8_lossy(&checked.stdout);
    let errors = String::from_utf8_lossy(&checked.stderr);
    ensure!(checked.status.success(), "the dashboard is not as Grafana's schema says: {}", errors.trim());
    output.trim().parse().with_context(|| format!("no number of panels: {output}"))
}

/// The dashboard's queries, with the variables that Grafana replaces.
fn queries() -> Result<Vec<Query>> {
    let dashboard: Value = serde_json::from_slice(&fs::read(dashboard())?)?;
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().context("the dashboard has no panels")? {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().with_context(|| format!("no query in {target}"))?;
            let expression =
                VARIABLES.iter().fold(expression.to_owned(), |text, (name, value)| text.replace(name, value));
            ensure!(!expression.contains('$'), "a variable without a value: {expression}");
            let exemplars = target["exemplar"] == true;
            queries.push(Query { panel: text(panel, "/title").to_owned(), expression, exemplars });
        }
    }
    ensure!(queries.iter().any(|query| query.exemplars), "no query asks for exemplars");
    Ok(queries)
}

fn schedule(stage: &Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    api.create_pods(PACE, (0..PODS).map(|number| some_fit("counted", number)))?;
    api.wait_for_pods("Pods to be bound or found unschedulable", |pods| {
        pods.len() == PODS as usize && pods.iter().all(|pod| is_bound(pod) || is_unschedulable(pod))
    })
}

/// Checks that each query for exemplars has some, and that the Collector has the trace of each. Returns their number.
fn lead_to_traces(stage: &Stage, prometheus: &Prometheus, queries: &[Query]) -> Result<usize> {
    let mut number = 0;
    for Query { panel, expression, .. } in queries.iter().filter(|query| query.exemplars) {
        let found = prometheus.exemplars(expression)?;
        ensure!(!found.is_empty(), "{panel}: no exemplar");
        number += found.len();
        wait_until(&format!("the traces of {panel}"), TIMEOUT, || {
            thread::sleep(Duration::from_millis(500));
            let spans = spans::read(&stage.cluster.spans_file(), 0)?;
            let stored: BTreeSet<_> = spans.into_iter().map(|span| span.trace_id).collect();
            Ok(found.is_subset(&stored).then_some(()))
        })?;
    }
    Ok(number)
}

/// Prometheus with the alerts of the chart.
struct Prometheus {
    ports: Ports,
    _server: Server,
}

impl Prometheus {
    fn start(dir: &Path, schedspan: &Schedspan) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let alerts = fs::read_to_string(paths::repository().join("deploy/chart/schedspan/alerts.yaml"))?;
        let rules: String = alerts.lines().map(|line| format!("    {line}\n")).collect();
        fs::write(dir.join("alerts.yaml"), format!("groups:\n- name: schedspan\n  rules:\n{rules}"))?;
        let configuration = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": [dir.join("alerts.yaml")],
            "scrape_configs": [{
                "job_name": "schedspan",
                "static_configs": [{ "targets": [schedspan.address("metrics")] }],
            }],
        });
        fs::write(dir.join("prometheus.yaml"), configuration.to_string())?;
        let ports = free_ports(&["web"])?;
        let arguments = [
            format!("--config.file={}", dir.join("prometheus.yaml").display()),
            format!("--storage.tsdb.path={}", dir.join("data").display()),
            format!("--web.listen-address=127.0.0.1:{}", ports["web"]),
            "--enable-feature=exemplar-storage".to_owned(),
        ];
        let server = Server::start(PROMETHEUS, &arguments, &[], &ports, &dir.join("prometheus.log"))?;
        Ok(Self { ports, _server: server })
    }

    /// Waits until a query has a series with a number.
    fn answers(&self, Query { panel, expression, .. }: &Query) -> Result<()> {
        let query = || self.ask("query", &[("query", expression)]);
        if MAY_BE_EMPTY.iter().any(|(empty, _)| empty == panel) {
            return query().map(drop);
        }
        wait_until(&format!("{panel}, {expression}"), TIMEOUT, || {
            let answer = query()?;
            let series = answer["result"].as_array().into_iter().flatten();
            let numbers = series.filter_map(|series| series["value"][1].as_str()?.parse::<f64>().ok());
            let found = numbers.filter(|number| number.is_finite()).count() > 0;
            if !found {
                thread::sleep(Duration::from_millis(250));
            }
            Ok(found.then_some(()))
        })
    }

    /// The traces of a query's exemplars.
    fn exemplars(&self, expression: &str) -> Result<BTreeSet<String>> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
        let (start, end) = ((now - 300).to_string(), (now + 1).to_string());
        let answer =
            self.ask("query_exemplars", &[("query", expression), ("start", &start), ("end", &end)])?;
        let series = answer.as_array().into_iter().flatten();
        let exemplars = series.flat_map(|series| series["exemplars"].as_array().into_iter().flatten());
        Ok(exemplars.map(|exemplar| text(exemplar, "/labels/trace_id").to_owned()).collect())
    }

    /// Waits until each alert is evaluated and in such a state. Returns their number.
    fn alerts(&self, expected: impl Fn(&str) -> bool) -> Result<usize> {
        let mut rules = Vec::new();
        let found = wait_until("all alerts to be evaluated", TIMEOUT, || {
            thread::sleep(Duration::from_millis(250));
            rules = self.rules()?;
            let known = rules.iter().all(|rule| rule["health"] != "unknown");
            Ok((!rules.is_empty() && known).then_some(()))
        });
        found.with_context(|| format!("{rules:?}"))?;
        for rule in &rules {
            let (name, state) = (text(rule, "/name"), text(rule, "/state"));
            ensure!(rule["health"] == "ok", "{name} cannot be evaluated: {}", rule["lastError"]);
            ensure!(expected(state), "{name} is {state}");
        }
        Ok(rules.len())
    }

    /// The state of an alert.
    fn state(&self, alert: &str) -> Result<String> {
        let rules = self.rules()?;
        let rule = rules.iter().find(|rule| rule["name"] == alert);
        Ok(text(rule.with_context(|| format!("no alert {alert}"))?, "/state").to_owned())
    }

    fn rules(&self) -> Result<Vec<Value>> {
        let mut answer = self.ask("rules", &[("type", "alert")])?;
        Ok(answer["groups"][0]["rules"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    fn ask(&self, path: &str, query: &[(&str, &str)]) -> Result<Value> {
        let url = format!("http://127.0.0.1:{}/api/v1/{path}", self.ports["web"]);
        let request = agent(Path::new(""))?.get(&url).query_pairs(query.iter().copied());
        let mut answer = request.call().with_context(|| format!("cannot read {url}"))?;
        let mut answer: Value = answer.body_mut().with_config().limit(u64::MAX).read_json()?;
        ensure!(answer["status"] == "success", "{query:?}: {answer}");
        Ok(answer["data"].take())
    }
}
