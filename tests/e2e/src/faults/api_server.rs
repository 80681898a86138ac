//! The API server gives answers that are old, broken or of another kind, and its certificates and tokens are renewed: attempts are
//! traced all the time, and get links again when it answers as it should.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use harness::{
    schedspan::{Options, Schedspan},
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};

use super::{
    TIMEOUT,
    interceptor::{Interceptor, answer, kubeconfig},
    scheduled,
};
use crate::export::certificates::{Files, LATER, Server};

const GOOD: Server = Server { name: "localhost", ends: LATER };
const TOKENS: [&str; 2] = ["first-token", "second-token"];
/// Bad answers after which schedspan is asked to trace.
const ANSWERS: usize = 2;
/// The limit for schedspan to read its configuration again, and to try once more.
const RENEWAL: Duration = Duration::from_secs(60);

pub(crate) fn run(stage: &mut Stage) -> Result<()> {
    let of: Value = serde_json::from_slice(&fs::read(stage.cluster.schedspan_kubeconfig())?)?;
    let dir = stage.cluster.dir().join("interceptor");
    fs::create_dir_all(&dir)?;
    let (files, token) = (Files::in_dir(&dir), dir.join("token"));
    files.renew(GOOD)?;
    fs::write(&token, TOKENS[0])?;
    let interceptor = Interceptor::start(&of, &files, TOKENS[0])?;
    let path = dir.join("kubeconfig");
    kubeconfig(&of, &interceptor.address, &files, &token, &path)?;
    let options = || {
        Ok::<_, anyhow::Error>(Options {
            kubeconfig: path.clone(),
            arguments: &["--lifecycle"],
            ..stage.options()?
        })
    };

    for (number, (what, answer)) in forged().into_iter().enumerate() {
        let traced = || {
            interceptor.forge(Some(answer));
            let mut schedspan = Schedspan::start(&options()?)?;
            wait_until("schedspan to watch Pods again", TIMEOUT, || {
                Ok((interceptor.counts().forged >= ANSWERS).then_some(()))
            })?;
            scheduled(stage, &format!("meanwhile-{number}"), true)?;
            ensure!(schedspan.says("healthz")?.contains("ok"), "it does not say that it is healthy");
            interceptor.forge(None);
            linked(stage, &mut schedspan, &interceptor, &format!("after-{number}"))?;
            schedspan.stop()
        };
        traced().with_context(|| what)?;
    }

    let mut schedspan = Schedspan::start(&options()?)?;
    linked(stage, &mut schedspan, &interceptor, "first-token")?;
    fs::write(&token, TOKENS[1])?;
    interceptor.accept(TOKENS[1]);
    linked(stage, &mut schedspan, &interceptor, "second-token").context("a renewed token")?;
    ensure!(interceptor.counts().refused > 0, "the first token was not used any more");
    files.renew(GOOD)?;
    interceptor.serve(&files)?;
    linked(stage, &mut schedspan, &interceptor, "second-authority").context("a renewed authority")?;
    schedspan.stop()?;
    println!("         {} bad answers to watches; a token and an authority were renewed", forged().len());
    Ok(())
}

/// Waits until Pods are watched, and checks that the next one gets its link.
fn linked(stage: &Stage, schedspan: &mut Schedspan, interceptor: &Interceptor, name: &str) -> Result<()> {
    wait_until("schedspan to watch Pods as before", RENEWAL, || {
        Ok((interceptor.counts().passed > 0).then_some(()))
    })?;
    schedspan.wait_for("the API server to have answered", TIMEOUT, |metrics| {
        metrics.sum("schedspan_context_watch_up", &[]) == 1.0
    })?;
    let links = scheduled(stage, name, true)?.links.len();
    ensure!(links == 1, "{name} has {links} links instead of one");
    Ok(())
}

/// Answers to a watch, with their names.
fn forged() -> Vec<(&'static str, String)> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version: 1 (2)", "reason": "Expired", "code": 410,
    });
    let pod = json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "name": 7, "uid": [], "annotations": "none" } });
    let event = |event: &Value| answer("200 OK", &format!("{event}\n"));
    vec![
        ("410 Gone", answer("410 Gone", &status.to_string())),
        ("an event with 410 Gone", event(&json!({ "type": "ERROR", "object": status }))),
        ("an event that is cut", answer("200 OK", r#"{"type":"ADDED","object":{"kind":"Po"#)),
        ("an event without an object", event(&json!({ "type": "ADDED" }))),
        ("an event of no known type", event(&json!({ "type": "SHRUGGED", "object": {} }))),
        ("values of other types", event(&json!({ "type": "MODIFIED", "object": pod }))),
        ("lists in lists without end", answer("200 OK", &format!("{}\n", "[".repeat(100_000)))),
        ("a page of a proxy", answer("200 OK", "<!DOCTYPE html><title>Sign in</title>\n")),
        ("429 Too Many Requests", answer("429 Too Many Requests", "slow down")),
    ]
}
