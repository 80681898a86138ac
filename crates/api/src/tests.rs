use std::borrow::Cow;

use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use gotrace::pipeline::{Found, Sites};
use gotrace::{Role, plan::Missing, recording::Line};
use kube_scheduler::{
    Event, Values,
    explain::{Account, Report},
    table::Function,
};
use serde_json::{Value, json};
use spans::{
    NameList, Names, Trace,
    export::{Output, Sinks, SpoolOptions},
    fixtures::{scheduled, unschedulable},
    terms::{Term, Terms},
};
use tower::ServiceExt as _;

use super::*;

/// A daemon with these attempts in a history of ten, and where its traces are shown.
fn daemon() -> (Daemon, Sinks) {
    let registry = Registry::default();
    let outputs: [Output; 0] = [];
    let metrics = spans::Metrics::new(&registry);
    let sinks = Sinks::start(&outputs, false, &SpoolOptions::default(), metrics).unwrap();
    let daemon = Daemon {
        history: AttemptLog::new(10),
        board: Board::default(),
        attempts: kube_scheduler::metrics::Metrics::new(&registry),
        lost: registry.losses(),
        live: sinks.live().clone(),
        targets: Targets::default(),
        health: Health::default(),
        registry,
    };
    let missing =
        vec![Missing { function: "filter".into(), why: "it is not there".into(), without: "it".into() }];
    let sites = Sites { emulated: 40, single_stepped: 2, missing };
    daemon.targets.found(&Found {
        target: 7,
        pid: 42,
        executable: "/kube-scheduler".into(),
        sites,
        ..Found::default()
    });
    let mut demanding = Trace { selected: Some(0), ..scheduled() };
    demanding.spans[0].attributes.extend(Terms::from(Term::HostPorts).attribute());
    for trace in [unschedulable(), demanding] {
        daemon.history.add(&trace);
        daemon.attempts.attempt(&trace);
    }
    (daemon, sinks)
}

async fn ask(daemon: &Daemon, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = router(daemon).oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn answer(daemon: &Daemon, path: &str) -> Value {
    let (status, body) = ask(daemon, path).await;
    assert_eq!(status, StatusCode::OK, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

async fn report(daemon: &Daemon, query: &str) -> Report {
    serde_json::from_value(answer(daemon, &format!("/api/v1/attempts?{query}")).await).unwrap()
}

#[tokio::test]
async fn attempts_of_a_pod_are_reported() {
    let (daemon, _sinks) = daemon();
    let big = report(&daemon, "namespace=default&pod=big").await;
    assert_eq!((big.attempts.len(), big.history.attempts, big.schema_version), (1, 2, 1));
    assert_eq!(big.attempts[0], Account::of(&unschedulable()));
    assert!(big.conclusion.starts_with("default/big is still Pending"), "{}", big.conclusion);
    let other = report(&daemon, "namespace=shop&pod=big").await;
    assert_eq!((other.attempts.len(), other.also_in), (0, vec!["default".to_owned()]));
}

#[tokio::test]
async fn rejected_nodes_are_named_on_request() {
    let (daemon, _sinks) = daemon();
    let reasons = vec!["Insufficient cpu".into()];
    let list = NameList {
        by: Some("NodeResourcesFit".into()),
        result: "Unschedulable".into(),
        reasons,
        names: vec!["node-1".into(), "node-2".into()],
    };
    let names = Some(Box::new(Names { total: 5, lists: vec![list] }));
    daemon.history.add(&Trace { trace_id: [1; 16], names, ..unschedulable() });
    let named = |nodes| {
        let daemon = &daemon;
        async move { answer(daemon, &format!("/api/v1/attempts?namespace=default&pod=big&nodes={nodes}")).await }
    };
    assert!(named(false).await["attempts"][1].get("rejectedNodes").is_none());
    let report = named(true).await;
    let nodes = &report["attempts"][1]["rejectedNodes"];
    assert_eq!((&nodes["leftOut"], &nodes["groups"][0]["nodes"]), (&json!(3), &json!(["node-1", "node-2"])));
    let document = answer(&daemon, "/api/v1/openapi.json").await;
    assert_eq!(wrong(&document, &json!({ "$ref": "#/components/schemas/Report" }), &report), None);
}

#[tokio::test]
async fn waiting_returns_the_next_attempt_even_without_a_history() {
    let daemon = Daemon { history: AttemptLog::new(0), ..daemon().0 };
    let history = daemon.history.clone();
    let adding = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            history.add(&scheduled());
        }
    });
    let told = report(&daemon, "namespace=default&pod=web-0&wait=30").await;
    adding.abort();
    assert_eq!((told.attempts.len(), told.waited_for_it), (1, true));
    assert!(told.conclusion.contains("node-3"), "{}", told.conclusion);
    let told = report(&daemon, "namespace=default&pod=other&wait=1").await;
    assert_eq!((told.attempts.len(), told.waited_for_it), (0, false));
}

#[tokio::test]
async fn an_invalid_question_is_refused() {
    let (daemon, _sinks) = daemon();
    let long = "x".repeat(254);
    for question in [
        "attempts",
        "attempts?namespace=default",
        "attempts?namespace=&pod=a",
        "attempts?namespace=a&pod=A%1b",
        "attempts?namespace=a&pod=../../etc",
        &format!("attempts?namespace=a&pod={long}"),
        "attempts?namespace=a&pod=b&wait=3601",
        "attempts?namespace=a&pod=b&wait=-1",
        "attempts?namespace=a&pod=b&more=c",
        "queue?pod=A",
        "queue?namespace=",
        "queue?more=c",
        "traces?failed=perhaps",
        "traces?slower-than=fast",
        "traces?more=c",
        "recent?keep=label=a",
        "plugins?before=-1",
    ] {
        let (status, body) = ask(&daemon, &format!("/api/v1/{question}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{question}: {body}");
    }
}

#[tokio::test]
async fn nothing_but_reading_is_allowed() {
    let (daemon, _sinks) = daemon();
    for (path, _) in routes() {
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let request = Request::builder().method(method).uri(format!("{PREFIX}/{path}"));
            let response = router(&daemon).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn the_figures_are_those_of_the_daemon() {
    let (daemon, _sinks) = daemon();
    let top: LastMinute = serde_json::from_value(answer(&daemon, "/api/v1/top").await).unwrap();
    assert_eq!(top.attempts.iter().map(|count| count.count).sum::<u64>(), 2);
    assert_eq!(top.schedulers, 1);
    let terms: Vec<_> = top.terms.iter().map(|cost| (cost.term.as_str(), cost.with.attempts)).collect();
    assert_eq!(terms, [("host ports", 1)]);
    assert_eq!(report(&daemon, "namespace=default&pod=web-0").await.attempts[0].terms, ["host ports"]);
    daemon.health.set_ready(Ok(()));
    let health = answer(&daemon, "/api/v1/health").await;
    assert_eq!(health["ready"], true);
    assert_eq!(
        (&health["targets"][0]["pid"], &health["targets"][0]["emulatedSites"]),
        (&json!(42), &json!(40))
    );
    daemon.targets.gone(7);
    assert_eq!(answer(&daemon, "/api/v1/health").await["targets"], json!([]));
}

#[tokio::test]
async fn where_pods_wait_is_said_for_all_and_for_one() {
    let (daemon, _sinks) = daemon();
    daemon.board.queues.take(&Line::Found(Cow::Owned(Found { target: 7, pid: 42, ..Found::default() })));
    for (uid, name) in [("u-1", "a"), ("u-2", "b")] {
        let values = Values::default()
            .with(kube_scheduler::values::Value::QueuedPodInfo, 1)
            .with(kube_scheduler::values::Value::PodUid, uid)
            .with(kube_scheduler::values::Value::PodName, name)
            .with(kube_scheduler::values::Value::PodNamespace, "shop");
        let (function, role) = (Function::Enqueue, Role::Entry);
        let event = Event {
            target: 7,
            time_ns: 1,
            took_ns: 0,
            goroutine: 1,
            depth: 0,
            function,
            role,
            last_loss: 0,
            values,
        };
        daemon.board.queues.take(&Line::Event(Cow::Owned(event)));
    }
    let names = async |query: &str| {
        let answer = answer(&daemon, &format!("/api/v1/queue{query}")).await;
        let names =
            answer["pods"].as_array().unwrap().iter().map(|pod| pod["pod"].clone()).collect::<Vec<_>>();
        (names, answer["api"].clone(), answer["schedulers"][0]["pid"].clone())
    };
    assert_eq!(names("").await, (vec![json!("a"), json!("b")], json!(false), json!(42)));
    assert_eq!(names("?namespace=shop&pod=b").await.0, [json!("b")]);
    assert!(names("?namespace=other").await.0.is_empty());
    let report = report(&daemon, "namespace=shop&pod=a").await;
    assert_eq!(report.waiting.map(|waiting| waiting.uid), Some("u-1".to_owned()));
    let document = answer(&daemon, "/api/v1/openapi.json").await;
    let schema = json!({ "$ref": "#/components/schemas/Answer" });
    assert_eq!(wrong(&document, &schema, &answer(&daemon, "/api/v1/queue").await), None);
}

/// The next chunk of a stream.
async fn chunk(body: &mut Body) -> String {
    let next =
        std::future::poll_fn(|context| axum::body::HttpBody::poll_frame(std::pin::Pin::new(body), context));
    let frame = tokio::time::timeout(Duration::from_secs(10), next).await.unwrap().unwrap().unwrap();
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}

async fn stream(router: &Router, query: &str) -> (StatusCode, Body) {
    let request = Request::get(format!("/api/v1/traces{query}")).body(Body::empty()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    (response.status(), response.into_body())
}

#[tokio::test]
async fn traces_are_streamed_as_they_end() {
    let (daemon, sinks) = daemon();
    let router = router(&daemon);
    let (_, mut failed) = stream(&router, "?failed&namespace=default").await;
    let (_, mut web) = stream(&router, "?pod=web-*&slower-than=1ms").await;
    assert_eq!((chunk(&mut failed).await, chunk(&mut web).await), (": open\n\n".into(), ": open\n\n".into()));
    sinks.show(&unschedulable());
    sinks.show(&scheduled());
    for (body, pod) in [(&mut failed, "big"), (&mut web, "web-0")] {
        let event = chunk(body).await;
        let json = event.strip_prefix("data: ").and_then(|event| event.strip_suffix("\n\n")).unwrap();
        let value: Value = serde_json::from_str(json).unwrap();
        assert_eq!(value.as_object().unwrap().keys().collect::<Vec<_>>(), ["resourceSpans"]);
        let root = &value["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert!(
            root["attributes"].as_array().unwrap().iter().any(|of| of["value"]["stringValue"] == pod),
            "{root}"
        );
    }
}

#[tokio::test]
async fn a_change_is_an_event() {
    let (daemon, _sinks) = daemon();
    let request = Request::get("/api/v1/changes").body(Body::empty()).unwrap();
    let mut body = router(&daemon).oneshot(request).await.unwrap().into_body();
    assert_eq!(chunk(&mut body).await, ": open\n\n");
    daemon.history.add(&scheduled());
    assert_eq!(chunk(&mut body).await, "data: {\"attempts\":3}\n\n");
}

#[tokio::test]
async fn a_slow_client_loses_and_is_told() {
    let (daemon, sinks) = daemon();
    let (_, mut slow) = stream(&router(&daemon), "").await;
    for _ in 0..300 {
        sinks.show(&scheduled());
    }
    assert_eq!(chunk(&mut slow).await, ": open\n\n");
    let event = chunk(&mut slow).await;
    let lost = event.strip_prefix("event: lost\ndata: ").unwrap_or_else(|| panic!("{event}"));
    let lost = serde_json::from_str::<Value>(lost).unwrap()["lost"].as_u64().unwrap();
    assert_eq!(daemon.lost.get(Loss::StreamLagged), lost);
    assert!((1..300).contains(&lost), "{lost}");
    assert!(chunk(&mut slow).await.starts_with("data: "));
}

#[tokio::test]
async fn clients_are_bounded_and_make_room() {
    let (daemon, _sinks) = daemon();
    let router = router(&daemon);
    let mut streams = Vec::new();
    for _ in 0..MAX_STREAMS {
        let (status, body) = stream(&router, "").await;
        assert_eq!(status, StatusCode::OK);
        streams.push(body);
    }
    assert_eq!(stream(&router, "").await.0, StatusCode::SERVICE_UNAVAILABLE);
    drop(streams.pop());
    assert_eq!(stream(&router, "").await.0, StatusCode::OK);
}

#[tokio::test]
async fn every_route_is_in_the_document_and_every_answer_satisfies_it() {
    let (daemon, _sinks) = daemon();
    let document = answer(&daemon, "/api/v1/openapi.json").await;
    let paths = document["paths"].as_object().unwrap();
    let mut documented: Vec<_> = paths.keys().cloned().collect();
    let mut served: Vec<_> = routes().iter().map(|(path, _)| format!("{PREFIX}/{path}")).collect();
    documented.sort();
    served.sort();
    assert_eq!(documented, served);
    for (path, of) in paths {
        let content = &of["get"]["responses"]["200"]["content"];
        let Some(schema) = content.get("application/json").map(|content| &content["schema"]) else {
            continue;
        };
        let questions: &[&str] = if path.ends_with("/recent") {
            &["", "?keep=failed,slower-than=1us"]
        } else if path.ends_with("/attempts") {
            &["?namespace=default&pod=big", "?namespace=default&pod=web-0", "?namespace=a&pod=b"]
        } else {
            &[""]
        };
        for question in questions {
            let value = answer(&daemon, &format!("{path}{question}")).await;
            assert_eq!(wrong(&document, schema, &value), None, "{path}{question}: {value}");
        }
    }
    let lost: Value =
        serde_json::from_str(traces::lost(3).lines().nth(1).unwrap().strip_prefix("data: ").unwrap())
            .unwrap();
    assert_eq!(wrong(&document, &json!({ "$ref": "#/components/schemas/Lost" }), &lost), None);
}

/// What does not satisfy a schema of the document, which uses these keywords only.
fn wrong(document: &Value, schema: &Value, value: &Value) -> Option<String> {
    let unsatisfied = |what: &str| Some(format!("{what}: {value} against {schema}"));
    for (keyword, of) in schema.as_object().unwrap() {
        let found = match keyword.as_str() {
            "description" => None,
            "$ref" => {
                let pointer = of.as_str().unwrap().strip_prefix('#').unwrap();
                wrong(
                    document,
                    document.pointer(pointer).unwrap_or_else(|| panic!("{pointer} is not there")),
                    value,
                )
            }
            "anyOf" => {
                let any = of.as_array().unwrap().iter().any(|one| wrong(document, one, value).is_none());
                if any { None } else { unsatisfied("none of these") }
            }
            "type" => {
                let is = |name: &Value| match name.as_str().unwrap() {
                    "string" => value.is_string(),
                    "integer" => value.is_u64() || value.is_i64(),
                    "boolean" => value.is_boolean(),
                    "array" => value.is_array(),
                    "object" => value.is_object(),
                    "null" => value.is_null(),
                    other => panic!("the type {other} is not known"),
                };
                let right = of.as_array().map_or_else(|| is(of), |names| names.iter().any(is));
                if right { None } else { unsatisfied("another type") }
            }
            "minimum" => value
                .as_i64()
                .filter(|number| *number < of.as_i64().unwrap())
                .and_then(|_| unsatisfied("too small")),
            "items" => value.as_array().into_iter().flatten().find_map(|item| wrong(document, of, item)),
            "required" => {
                let missing =
                    of.as_array().unwrap().iter().find(|name| value.get(name.as_str().unwrap()).is_none());
                missing.and_then(|name| unsatisfied(&format!("{name} is missing")))
            }
            "properties" => {
                of.as_object().unwrap().iter().find_map(|(name, schema)| {
                    value.get(name).and_then(|value| wrong(document, schema, value))
                })
            }
            "additionalProperties" => {
                let unknown = |(name, _): &(&String, &Value)| schema["properties"].get(name).is_none();
                let other = value.as_object().into_iter().flatten().find(unknown);
                other.and_then(|(name, _)| unsatisfied(&format!("{name} is not documented")))
            }
            other => panic!("the keyword {other} is not known"),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

#[test]
fn what_does_not_satisfy_a_schema_is_found() {
    let schema = json!({
        "type": "object", "required": ["a"], "additionalProperties": false,
        "properties": { "a": { "type": ["integer", "null"], "minimum": 0 }, "b": { "type": "array", "items": { "type": "string" } } },
    });
    let of = |value: Value| wrong(&Value::Null, &schema, &value);
    assert_eq!((of(json!({ "a": null })), of(json!({ "a": 1, "b": ["x"] }))), (None, None));
    for bad in [
        json!([]),
        json!({}),
        json!({ "a": -1 }),
        json!({ "a": "1" }),
        json!({ "a": 1, "b": [1] }),
        json!({ "a": 1, "c": 2 }),
    ] {
        assert!(of(bad.clone()).is_some(), "{bad}");
    }
}
