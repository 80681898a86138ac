//! An extender that the scheduler asks over HTTP: it answers, and writes down what it was asked.
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/kube-scheduler/extender/v1/types.go>

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::{Context as _, Result};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::super::text;
use harness::cluster::Api;

/// A request of all Nodes of a test cluster is far smaller.
const MAX_BODY: usize = 16 << 20;

/// The scheduler's configuration of all extenders: each is a folder of one server.
pub(super) const SIEVE: &str = "sieve";
pub(super) const FLAKY: &str = "flaky";
pub(super) const BINDER: &str = "binder";
pub(super) const STRICT: &str = "strict";
/// What Pods ask for that only one extender is interested in.
pub(super) const WIDGET: &str = "example.com/widget";
pub(super) const STRICTNESS: &str = "example.com/strictness";
/// What the strict one says to each Pod.
pub(super) const REFUSAL: &str = "strict says no";
/// Nodes that the sieve does not let pass: the last is no Node on which preemption would help either.
pub(super) const REJECTED: [&str; 2] = ["node-0005", "node-0006"];
/// What the sieve's scores are multiplied by.
pub(super) const WEIGHT: u64 = 3;

/// What it was asked.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The folder.
    pub(super) extender: String,
    pub(super) verb: String,
    /// The Pod's UID.
    pub(super) uid: String,
    /// `CLOCK_MONOTONIC` when the request's first line had come, and when the answer was ready, nanoseconds.
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// How many Nodes it was told about, and how many it let pass.
    pub(super) nodes: Option<usize>,
    pub(super) passed: Option<usize>,
}

/// A running server. It runs until xtask ends.
pub(super) struct Server {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// # Errors
    ///
    /// If there is no free port.
    pub(super) fn start(api: &Api) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on 127.0.0.1")?;
        let url = format!("http://{}", listener.local_addr()?);
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let (api, list) = (api.clone(), Arc::clone(&asked));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (api, list) = (api.clone(), Arc::clone(&list));
                thread::spawn(move || {
                    // Whoever breaks the connection off has no answer, which is what the test would see.
                    let _gone = serve(&stream, &api, &list);
                });
            }
        });
        Ok(Self { url, asked })
    }

    /// The URL of an extender, by which the scheduler calls it.
    pub(super) fn url(&self, extender: &str) -> String {
        format!("{}/{extender}", self.url)
    }

    /// What was asked so far.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The member `extenders` of the scheduler's configuration.
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
            // Without its Nodes' names alone, whole Nodes are sent.
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

/// Answers one request.
fn serve(stream: &TcpStream, api: &Api, list: &Mutex<Vec<Asked>>) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let start_ns = now();
    let path = line.split(' ').nth(1).context("not a request of HTTP")?.to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse::<usize>()?.min(MAX_BODY);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let arguments: Value = serde_json::from_slice(&body)?;
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
    list.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
    let (status, body) = match answer {
        Some(answer) => ("200 OK", answer.to_string()),
        None => ("500 Internal Server Error", String::new()),
    };
    let length = body.len();
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    Ok(())
}

/// `None`: it fails.
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

/// The sieve's score of a Node, of 10 at most: it likes the first Nodes.
pub(super) fn score(node: &str) -> u64 {
    let number = node.rsplit('-').next().and_then(|number| number.parse::<u64>().ok());
    10u64.saturating_sub(number.unwrap_or(10))
}
