//! Operators: the spans of their reconciles equal the metrics of controller-runtime, controller by controller and result by result.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::Api,
    http::agent,
    metrics::Metrics,
    operators::ALL,
    processes::Environment,
    schedspan::{Options, Schedspan},
    spans::{self, Span},
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};
use xtask::components::Component;

use crate::{
    controllers::{is_traced, nothing_lost},
    requests,
};

/// ConfigMaps of each operator for each outcome, and how often they have it.
const OBJECTS: usize = 4;
const TIMES: usize = 3;
/// The outcomes that a ConfigMap can ask for, the result that controller-runtime counts, and the error's message.
const OUTCOMES: [(&str, &str, &str); 7] = [
    ("success", "success", ""),
    ("requeue", "requeue", ""),
    ("requeue-after", "requeue_after", ""),
    ("error", "error", "refused as asked for"),
    ("wrapped-error", "error", "wrapped: refused"),
    ("api-error", "error", "configmaps \"absent\" not found"),
    ("panic", "error", PANIC),
];
const PANIC: &str = "panic: as asked for [recovered]";
/// What a ConfigMap with `requeue-after` asks for, milliseconds.
const PAUSE_MS: &str = "50";
/// The operator's controllers.
const CONTROLLER: &str = "outcomes";
/// One whose requests are not namespace and name: only controllers that are generic can have it.
const OF_NAMES: &str = "names";

/// Longer than any pause of the operator's.
const IDLE: Duration = Duration::from_millis(500);
const DONE_TIMEOUT: Duration = Duration::from_secs(60);
/// The limit from the end of a reconcile to the Collector's file.
const ARRIVAL: Duration = Duration::from_secs(30);

/// A running operator.
struct Operator {
    name: String,
    pid: i32,
    metrics_url: String,
    is_generic: bool,
}

/// Reconciles by controller and result.
type Results = BTreeMap<[String; 2], f64>;

impl Operator {
    /// Starts it, for the ConfigMaps in the namespace of its name.
    fn start(stage: &mut Stage, component: &Component) -> Result<Self> {
        let name = format!("operator-{}", component.version.replace('.', "-"));
        // Probes are in all processes of a file: those of other daemons on this machine must not be in this one.
        let copy = stage.cluster.dir().join(&name);
        fs::copy(component.executable()?, &copy)?;
        let kubeconfig = stage.cluster.kubeconfig();
        stage.cluster.launch_executable(&name, &copy, &Environment::new(), &["metrics"], |ports| {
            let address = format!("127.0.0.1:{}", ports["metrics"]);
            let arguments = [
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--metrics={address}"),
                format!("--namespace={name}"),
            ];
            (arguments.into(), format!("http://{address}/metrics"))
        })?;
        let process = stage.cluster.processes().iter().find(|process| process.name == name);
        let pid = process.context("the operator was started")?.pid;
        let metrics_url = format!("http://127.0.0.1:{}/metrics", stage.cluster.port(&name, "metrics")?);
        Ok(Self { pid, metrics_url, is_generic: component.version != ALL[0].version, name })
    }

    fn metrics(&self) -> Result<Metrics> {
        Metrics::read(&agent(Path::new(""))?, &self.metrics_url)
    }

    /// Its metrics once nothing is queued or worked on.
    fn idle(&self) -> Result<Metrics> {
        let mut last = self.metrics()?;
        wait_until(&format!("{} to be idle", self.name), DONE_TIMEOUT, || {
            thread::sleep(IDLE);
            let now = self.metrics()?;
            let at_work = ["workqueue_depth", "controller_runtime_active_workers"];
            let is_idle = at_work.iter().all(|name| now.sum(name, &[]) == 0.0)
                && results(&now, TOTAL) == results(&last, TOTAL);
            last = now;
            Ok(is_idle.then(|| last.clone()))
        })
    }

    fn configmaps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.name)
    }

    /// Makes ConfigMaps of all outcomes, and waits until each is done.
    fn work(&self, api: &Api) -> Result<()> {
        for (outcome, ..) in OUTCOMES {
            for number in 0..OBJECTS {
                let data = json!({ "outcome": outcome, "times": TIMES.to_string() });
                let name = format!("{outcome}-{number}");
                api.post(&self.configmaps(), &json!({ "metadata": { "name": name }, "data": data }))?;
            }
        }
        wait_until(&format!("the ConfigMaps of {} to be done", self.name), DONE_TIMEOUT, || {
            let list = api.get(&self.configmaps())?;
            let done = |item: &&Value| item["data"]["done"] == "true";
            let count = list["items"].as_array().map_or(0, |items| items.iter().filter(done).count());
            Ok((count == OBJECTS * OUTCOMES.len()).then_some(()))
        })
    }

    /// Compares the writes of its reconciles with all that it counted: it writes nothing else.
    fn check_writes(&self, metrics: &Metrics, requests: &[Span]) -> Result<()> {
        let counted = requests::counted(metrics);
        let writes: Vec<_> = requests.iter().filter_map(requests::write).collect();
        let seen = requests::by_code(writes.iter());
        println!("         {:<18} writes {seen:?}", self.name);
        ensure!(
            !seen.is_empty() && seen == counted,
            "spans have {seen:?}, and {} counted {counted:?}",
            self.name
        );
        for request in requests {
            let (uid, code) =
                (request.attribute("k8s.object.uid"), request.attribute("http.response.status_code"));
            ensure!(
                uid.is_empty() == (code != "200"),
                "{} with code {code} has the UID {uid:?}",
                request.name
            );
        }
        Ok(())
    }

    /// Compares its spans with what it counted.
    fn check(&self, metrics: &Metrics, spans: &[Span]) -> Result<()> {
        let counted = results(metrics, TOTAL);
        let seen = by_spans(spans.iter());
        println!(
            "         {:<18} {:<10} {:<14} {:>6} {:>6}",
            "OPERATOR", "CONTROLLER", "RESULT", "SPANS", "METRIC"
        );
        for key in counted.keys().chain(seen.keys()).collect::<BTreeSet<_>>() {
            let [spans, metric] = [&seen, &counted].map(|side| side.get(key).copied().unwrap_or_default());
            let [controller, result] = key;
            println!("         {:<18} {controller:<10} {result:<14} {spans:>6} {metric:>6}", self.name);
        }
        ensure!(counted == seen, "spans and metrics of {} differ", self.name);
        let has = |controller: &str| counted.keys().any(|[name, _]| name == controller);
        ensure!(has(CONTROLLER) && has(OF_NAMES) == self.is_generic, "its controllers are {counted:?}");

        let failed = || spans.iter().filter(|span| span.attribute("k8s.controller.result") == "error");
        let errors = metrics.sum("controller_runtime_reconcile_errors_total", &[]);
        ensure!(
            failed().count() as f64 == errors,
            "{} spans with an error, and {errors} counted",
            failed().count()
        );
        let panicked = failed().filter(|span| span.attribute("k8s.controller.panicked") == "true");
        let panicked = panicked.map(|span| span.status_message.as_str()).collect::<Vec<_>>();
        ensure!(panicked == [PANIC; OBJECTS * TIMES], "the panics are {panicked:?}");
        // An old controller-runtime does not count them.
        const PANICS: &str = "controller_runtime_reconcile_panics_total";
        ensure!(metrics.has(PANICS) == self.is_generic);
        if self.is_generic {
            let counted = metrics.sum(PANICS, &[]);
            ensure!(counted == panicked.len() as f64, "{} panics, and {counted} counted", panicked.len());
        }
        for (outcome, result, message) in OUTCOMES {
            self.check_outcome(spans, outcome, result, message)?;
        }
        Ok(())
    }

    /// Checks what the spans of the ConfigMaps with an outcome say.
    fn check_outcome(&self, spans: &[Span], outcome: &str, result: &str, message: &str) -> Result<()> {
        for number in 0..OBJECTS {
            let request = format!("{}/{outcome}-{number}", self.name);
            let of_request = |span: &&Span| span.attribute("k8s.controller.request") == request;
            let as_asked = |span: &&Span| {
                let attribute = |key: &str| span.attribute(key);
                let after = if result == "requeue_after" { PAUSE_MS } else { "" };
                attribute("k8s.controller.result") == result
                    && attribute("k8s.controller.requeue_after_ms") == after
                    && span.status_message == message
            };
            let count = spans.iter().filter(of_request).filter(as_asked).count();
            // One that succeeds is seen again when it is done.
            let is_right = if result == "success" { count > 0 } else { count == TIMES };
            ensure!(is_right, "{count} reconciles of {request} with the result {result}: {message}");
        }
        Ok(())
    }
}

const TOTAL: &str = "controller_runtime_reconcile_total";

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let operators = ALL.iter().map(|component| Operator::start(stage, component));
    let operators = operators.collect::<Result<Vec<_>>>()?;
    let api = stage.cluster.api()?;
    for operator in &operators {
        api.post("/api/v1/namespaces", &json!({ "metadata": { "name": operator.name } }))?;
        ensure!(results(&operator.metrics()?, TOTAL).is_empty(), "{} has been at work", operator.name);
    }
    let arguments = &["--program", "controller-runtime", "--reconciles", "all"];
    let schedspan = Schedspan::start(&Options { arguments, ..stage.options()? })?;
    for operator in &operators {
        is_traced(&schedspan, &operator.name, operator.pid)?;
    }
    for operator in &operators {
        operator.work(&api)?;
    }
    let metrics = operators.iter().map(Operator::idle).collect::<Result<Vec<_>>>()?;

    let mut all = Results::new();
    for metrics in &metrics {
        for (key, count) in results(metrics, TOTAL) {
            *all.entry(key).or_default() += count;
        }
    }
    let spans = arrived(stage, all.values().sum())?;
    let requests = requests::of(&stage.cluster.spans_file(), &spans)?;
    let counted = schedspan.metrics()?;
    nothing_lost(&counted)?;
    schedspan.stop()?;
    for (operator, metrics) in operators.iter().zip(&metrics) {
        let pid = operator.pid.to_string();
        let own: Vec<Span> = spans.iter().filter(|span| span.pid == pid).cloned().collect();
        operator.check(metrics, &own)?;
        let made: Vec<Span> = requests.iter().filter(|span| span.pid == pid).cloned().collect();
        operator.check_writes(metrics, &made)?;
    }
    let own = results(&counted, "schedspan_controller_reconciles_total");
    ensure!(own == all, "schedspan counted {own:?}, and the operators {all:?}");
    let panics = counted.sum("schedspan_controller_panics_total", &[]);
    ensure!(panics == (operators.len() * OBJECTS * TIMES) as f64, "schedspan counted {panics} panics");
    for span in &spans {
        ensure!(!span.is_incomplete() && span.parent_span_id.is_empty(), "a reconcile is not whole");
    }
    println!("         {} reconciles of {} operators, {panics} panics", spans.len(), operators.len());
    Ok(())
}

/// What a metric counts by controller and result, as far as there is something.
fn results(metrics: &Metrics, name: &str) -> Results {
    metrics.by(name, ["controller", "result"]).into_iter().filter(|(_, count)| *count > 0.0).collect()
}

fn by_spans<'a>(spans: impl Iterator<Item = &'a Span>) -> Results {
    let mut results = Results::new();
    for span in spans {
        let key = ["k8s.controller.name", "k8s.controller.result"].map(|key| span.attribute(key));
        *results.entry(key).or_default() += 1.0;
    }
    results
}

/// The spans of reconciles, once there are as many as the operators counted.
fn arrived(stage: &Stage, wanted: f64) -> Result<Vec<Span>> {
    let read = || -> Result<Vec<Span>> {
        let mut spans = spans::read(&stage.cluster.spans_file(), 0)?;
        spans.retain(|span| span.name == "Reconcile");
        Ok(spans)
    };
    // Where they never do, the table shows the difference.
    let _ = wait_until("all spans to arrive", ARRIVAL, || Ok((read()?.len() as f64 >= wanted).then_some(())));
    read()
}
