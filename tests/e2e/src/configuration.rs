//! Configurations of the scheduler: after a start with another configuration, a span has the differences, and later attempts are
//! linked to it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{is_bound, pod},
    schedspan::Schedspan,
    spans::{self, CONFIGURATION, Span},
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};

use crate::checks;

/// The limit from the end of an attempt to the Collector's file.
const ARRIVAL: Duration = Duration::from_secs(20);

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let schedspan = Schedspan::start(&stage.options()?)?;
    let before = scheduled(stage, "before")?;
    ensure!(before.configuration.is_none(), "the scheduler ran already: {:?}", before.configuration);
    ensure!(
        before.configuration_hash.len() == 64,
        "the resource has no hash: `{}`",
        before.configuration_hash
    );

    let change = |configuration: &mut Value| {
        configuration["parallelism"] = 8.into();
        configuration["profiles"] = json!([{
            "schedulerName": "default-scheduler",
            "plugins": { "score": { "enabled": [{ "name": "ImageLocality", "weight": 7 }] } },
        }]);
    };
    stage.cluster.configure_scheduler(change)?;
    checks::is_traced(stage, &schedspan)?;
    let changed = scheduled(stage, "changed")?;
    let described = span_of(stage, &changed)?;
    let attribute = |key: &str| described.attribute(&format!("k8s.scheduler.{key}"));
    ensure!(attribute("config.changed") == "true", "it is not said to have changed");
    ensure!(attribute("config.hash") == changed.configuration_hash, "the resource has another hash");
    ensure!(
        attribute("config.previous_hash") == before.configuration_hash,
        "it is compared with another one"
    );
    ensure!(
        attribute("previous_pid") == before.pid,
        "it is compared with process {}",
        attribute("previous_pid")
    );
    ensure!(attribute("config.outdated").is_empty(), "the file was written before the start");
    let difference = described.list("k8s.scheduler.config.difference");
    let expected = [
        "+parallelism=8",
        "+profiles[default-scheduler].plugins.score.enabled[ImageLocality].weight=7",
        "+profiles[default-scheduler].plugins.score.enabled[ImageLocality].name=ImageLocality",
        "+profiles[default-scheduler].schedulerName=default-scheduler",
    ];
    ensure!(
        difference.len() == expected.len()
            && expected.iter().all(|line| difference.iter().any(|found| found == line)),
        "the difference is {difference:?}"
    );
    ensure!(
        described.start_time_unix_nano < described.end_time_unix_nano
            && described.end_time_unix_nano == changed.start_time_unix_nano,
        "it does not end with the first attempt"
    );
    let next = scheduled(stage, "next")?;
    ensure!(
        next.configuration == changed.configuration,
        "the next attempt has the link {:?}",
        next.configuration
    );

    // The same configuration in another process.
    stage.cluster.restart_scheduler()?;
    checks::is_traced(stage, &schedspan)?;
    let same = scheduled(stage, "same")?;
    let again = span_of(stage, &same)?;
    ensure!(again.attribute("k8s.scheduler.config.changed") == "false", "it is said to have changed");
    ensure!(again.configuration == changed.configuration, "it is linked to {:?}", again.configuration);
    ensure!(same.configuration_hash == changed.configuration_hash, "the same configuration has another hash");

    checks::nothing_lost(&schedspan.metrics()?)?;
    println!("         {} differences reported, and none after a restart", difference.len());
    schedspan.stop()
}

/// Schedules a Pod, and waits for its root.
fn scheduled(stage: &Stage, name: &str) -> Result<Span> {
    let api = stage.cluster.api()?;
    api.create_pod("default", &pod(name, "10m"))?;
    api.wait_for_pods("the Pod to be bound", |pods| pods.iter().all(is_bound))?;
    span(stage, &format!("the attempt of {name}"), |span| span.is_root() && span.pod() == name)
}

/// The span of the configuration that an attempt is linked to.
fn span_of(stage: &Stage, attempt: &Span) -> Result<Span> {
    let link = attempt.configuration.as_ref().with_context(|| format!("{} is not linked", attempt.pod()))?;
    span(stage, "the span of the configuration", |span| {
        span.name == CONFIGURATION && span.span_id == link.span_id && span.trace_id == link.trace_id
    })
}

fn span(stage: &Stage, what: &str, is: impl Fn(&Span) -> bool) -> Result<Span> {
    wait_until(what, ARRIVAL, || Ok(spans::read(&stage.cluster.spans_file(), 0)?.into_iter().find(&is)))
}
