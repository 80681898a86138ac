//! The extenders: an HTTP server that the scheduler calls. It answers, and records each request.
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/kube-scheduler/extender/v1/types.go>

use std::{
    net::TcpListener,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    body::{Bytes, to_bytes},
    extract::{Request, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use harness::api::Api;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::{net, runtime::Runtime, task};

use crate::checks::text;

/// The limit of a request. One with all Nodes of a test cluster is far smaller.
const MAX_BODY: usize = 16 << 20;

/// The extenders, each a path of the server.
pub(super) const SIEVE: &str = "sieve";
pub(super) const FLAKY: &str = "flaky";
pub(super) const BINDER: &str = "binder";
pub(super) const STRICT: &str = "strict";
/// Resources that only one extender manages.
pub(super) const WIDGET: &str = "example.com/widget";
pub(super) const STRICTNESS: &str = "example.com/strictness";
/// The strict extender's answer to each Pod.
pub(super) const REFUSAL: &str = "strict says no";
/// Nodes that the sieve rejects; the last as unresolvable by preemption.
pub(super) const REJECTED: [&str; 2] = ["node-0005", "node-0006"];
/// The weight of the sieve's scores.
pub(super) const WEIGHT: u64 = 3;

/// A recorded request.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) extender: String,
    pub(super) verb: String,
    /// The Pod's UID.
    pub(super) uid: String,
    /// `CLOCK_MONOTONIC` in nanoseconds, when the head of the request had arrived and when the answer was ready.
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// Nodes in the request, and in the answer.
    pub(super) nodes: Option<usize>,
    pub(super) passed: Option<usize>,
}

/// A running server. It ends when it is dropped.
pub(super) struct Server {
    url: String,
    requests: Requests,
    _runtime: Runtime,
}

/// The requests so far.
type Requests = Arc<Mutex<Vec<Asked>>>;

impl Server {
    /// # Errors
    ///
    /// If there is no free port.
    pub(super) fn start(api: &Api) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on 127.0.0.1")?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let requests = Requests::default();
        let router = Router::new().fallback(serve).with_state((api.clone(), Arc::clone(&requests)));
        let runtime = Runtime::new()?;
        let listener = {
            let _entered = runtime.enter();
            net::TcpListener::from_std(listener)?
        };
        drop(runtime.spawn(axum::serve(listener, router).into_future()));
        Ok(Self { url, requests, _runtime: runtime })
    }

    /// The URL of an extender.
    pub(super) fn url(&self, extender: &str) -> String {
        format!("{}/{extender}", self.url)
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The field `extenders` of the scheduler's configuration.
    pub(super) fn configuration(&self) -> Value {
        let managed = |name: &str| json!([{ "name": name, "ignoredByScheduler": true }]);
        json!([
            {
                "urlPrefix": self.url(SIEVE),
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "preemptVerb": "preempt",
                "weight": WEIGHT,
                "nodeCacheCapable": true,
            },
            // Not `nodeCacheCapable`, so requests contain complete Nodes.
            { "urlPrefix": self.url(FLAKY), "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 1, "ignorable": true },
            { "urlPrefix": self.url(BINDER), "bindVerb": "bind", "managedResources": managed(WIDGET) },
            {
                "urlPrefix": self.url(STRICT),
                "filterVerb": "filter",
                "nodeCacheCapable": true,
                "managedResources": managed(STRICTNESS),
            },
        ])
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

async fn serve(State((api, requests)): State<(Api, Requests)>, request: Request) -> Response {
    let start_ns = now();
    let path = request.uri().path().to_owned();
    let Ok(body) = to_bytes(request.into_body(), MAX_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    // An answer may take a blocking call of the API server.
    let answered = task::spawn_blocking(move || respond(start_ns, &path, &body, &api, &requests)).await;
    match answered {
        Ok(Ok(Some(answer))) => ([(CONTENT_TYPE, "application/json")], answer.to_string()).into_response(),
        Ok(Ok(None)) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Ok(Err(error)) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

/// Answers and records a request.
fn respond(
    start_ns: u64,
    path: &str,
    body: &Bytes,
    api: &Api,
    requests: &Mutex<Vec<Asked>>,
) -> Result<Option<Value>> {
    let arguments: Value = serde_json::from_slice(body)?;
    let (extender, verb) = path.trim_start_matches('/').split_once('/').context("no verb in the URL")?;
    let answer = answer(extender, verb, &arguments, api);
    let count = |value: &Value| {
        value.as_array().map(Vec::len).or_else(|| value.as_object().map(serde_json::Map::len))
    };
    let of_any = |names: &[&str]| names.iter().find_map(|name| count(&arguments[*name]));
    let uid = match text(&arguments, "/PodUID") {
        "" => text(&arguments, "/Pod/metadata/uid"),
        uid => uid,
    };
    let asked = Asked {
        extender: extender.to_owned(),
        verb: verb.to_owned(),
        uid: uid.to_owned(),
        start_ns,
        nodes: of_any(&["NodeNames", "NodeNameToVictims", "NodeNameToMetaVictims"])
            .or_else(|| count(&arguments["Nodes"]["items"])),
        passed: answer.as_ref().and_then(|answer| count(&answer["NodeNames"])),
        end_ns: now(),
    };
    requests.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
    Ok(answer)
}

/// The answer of an extender; `None` for the one that always fails.
fn answer(extender: &str, verb: &str, arguments: &Value, api: &Api) -> Option<Value> {
    let names = || arguments["NodeNames"].as_array().cloned().unwrap_or_default();
    let rejected = |name: &Value| REJECTED.iter().any(|rejected| name == rejected);
    match (extender, verb) {
        (SIEVE, "filter") => {
            let (failed, passed): (Vec<_>, Vec<_>) = names().into_iter().partition(rejected);
            let reasons = |which: &str| {
                let names = failed.iter().filter_map(Value::as_str).filter(|name| *name == which);
                names
                    .map(|name| (name.to_owned(), Value::from("too coarse")))
                    .collect::<serde_json::Map<_, _>>()
            };
            Some(json!({
                "NodeNames": passed,
                "FailedNodes": reasons(REJECTED[0]),
                "FailedAndUnresolvableNodes": reasons(REJECTED[1]),
            }))
        }
        (SIEVE, "prioritize") => {
            let score =
                |name: &Value| json!({ "Host": name, "Score": score(name.as_str().unwrap_or_default()) });
            Some(names().iter().map(score).collect())
        }
        (SIEVE, "preempt") => Some(json!({ "NodeNameToMetaVictims": arguments["NodeNameToMetaVictims"] })),
        (BINDER, "bind") => {
            let of = |name: &str| text(arguments, &format!("/{name}")).to_owned();
            let target = json!({ "apiVersion": "v1", "kind": "Node", "name": of("Node") });
            let path = format!("/api/v1/namespaces/{}/pods/{}/binding", of("PodNamespace"), of("PodName"));
            let binding =
                json!({ "metadata": { "name": of("PodName"), "uid": of("PodUID") }, "target": target });
            let error = api.post(&path, &binding).err().map(|error| error.to_string());
            Some(json!({ "Error": error.unwrap_or_default() }))
        }
        (STRICT, "filter") => Some(json!({ "Error": REFUSAL })),
        _ => None,
    }
}

/// The sieve's score of a Node, at most 10 and higher for the first Nodes.
pub(super) fn score(node: &str) -> u64 {
    let number = node.rsplit('-').next().and_then(|number| number.parse::<u64>().ok());
    10u64.saturating_sub(number.unwrap_or(10))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use harness::http::agent;

    use super::*;

    #[test]
    fn a_request_is_answered_and_recorded() {
        let agent = agent(Path::new("")).unwrap();
        let server = Server::start(&Api::new(agent.clone(), "http://127.0.0.1:1".to_owned(), "")).unwrap();
        let body = json!({ "Pod": { "metadata": { "uid": "u" } }, "NodeNames": ["node-0001", "node-0005"] });
        let post = |verb: &str| agent.post(server.url(verb)).send(body.to_string()).unwrap();

        let answer = post("sieve/filter").body_mut().read_to_string().unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["NodeNames"], json!(["node-0001"]));
        assert_eq!(answer["FailedNodes"], json!({ "node-0005": "too coarse" }));
        assert_eq!(post("flaky/filter").status(), 500);

        let asked = server.asked();
        let rows: Vec<_> = asked
            .iter()
            .map(|row| (row.extender.as_str(), row.uid.as_str(), row.nodes, row.passed))
            .collect();
        assert_eq!(rows, [("sieve", "u", Some(2), Some(1)), ("flaky", "u", Some(2), None)]);
        assert!(asked.iter().all(|row| row.start_ns <= row.end_ns));
    }
}
