use std::io::Write as _;

use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use flate2::{Compression, write::GzEncoder};
use kube_scheduler::{
    attempt_log::AttemptLog,
    brief::Brief,
    explain::{
        Account, Kept, Move, Phase, Plugin, Preemption, Queue, RejectedGroup, RejectedNodes, Rejection,
        Report,
    },
};
use proptest::{collection::vec, prelude::*};
use spans::{
    Status, Trace,
    fixtures::{scheduled, unschedulable},
    terms::{Term, Terms},
};
use tower::ServiceExt as _;

use super::*;

/// An attempt whose status is as a scheduler's: the code, and the message of the Pod's condition.
fn failed() -> Trace {
    let mut trace = unschedulable();
    let message = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims";
    trace.spans[0].status = Status::Error(format!("Unschedulable: {message} found for incoming pod."));
    trace
}

fn daemon() -> Daemon {
    let registry = telemetry::Registry::default();
    let daemon = Daemon {
        board: api::queue::Board::default(),
        history: AttemptLog::new(10),
        attempts: kube_scheduler::metrics::Metrics::new(&registry),
        lost: registry.losses(),
        live: spans::export::Live::default(),
        targets: api::health::Targets::default(),
        health: status::Health::default(),
        registry,
    };
    let mut demanding = Trace { selected: Some(0), ..scheduled() };
    demanding.spans[0].attributes.extend(Terms::from(Term::HostPorts).attribute());
    for trace in [failed(), demanding] {
        daemon.history.add(&trace);
        daemon.attempts.attempt(&trace);
    }
    daemon
}

async fn ask(method: &str, path: &str) -> (StatusCode, Response<String>) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let (head, body) = router(&daemon()).oneshot(request).await.unwrap().into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    (head.status, Response::from_parts(head, String::from_utf8(body.to_vec()).unwrap()))
}

async fn get_page(path: &str) -> String {
    let (status, response) = ask("GET", path).await;
    assert_eq!(status, StatusCode::OK, "{path}");
    response.into_body()
}

#[tokio::test]
async fn each_view_has_its_url_and_says_what_there_is_to_say() {
    for (path, words) in [
        (
            "/",
            &[
                "1 Pod could not be scheduled",
                "Insufficient cpu",
                "NodeResourcesFit",
                "What would help: room on a Node",
                "/pod/default/big",
            ][..],
        ),
        ("/attempts", &["2 attempts, 1 without success", "web-0", "node-3", "circle"]),
        ("/attempts?keep=failed", &["1 attempt of 2", "Insufficient cpu"]),
        ("/attempts?keep=label=a", &["role=\"alert\"", "is not one of"]),
        ("/pod", &["Tried last", "/pod/default/web-0"]),
        ("/pod/default/web-0", &["default/web-0 is on node-3", "preFilter", "5.11 ms", "host ports"]),
        ("/pod/default/big", &["default/big is still Pending", "what would help"]),
        ("/pod/shop/big", &["/pod/default/big"]),
        ("/plugins", &["2 attempts in the last", "filter", "Terms of Pods", "host ports"]),
        ("/health", &["Not ready", "2 possible causes"]),
    ] {
        let page = get_page(path).await;
        for word in words {
            assert!(page.contains(word), "{path} does not say {word}: {page}");
        }
        assert_eq!(page.matches("aria-current=\"page\"").count(), 1, "{path}");
    }
}

#[tokio::test]
async fn a_pod_is_found_by_its_name() {
    for (asked, place) in
        [("shop/web-0", "/pod/shop/web-0"), ("web-0", "/pod/default/web-0"), ("%20a/b%20", "/pod/a/b")]
    {
        let (status, response) = ask("GET", &format!("/pod?pod={asked}")).await;
        assert_eq!((status, response.headers()[LOCATION].to_str().unwrap()), (StatusCode::SEE_OTHER, place));
    }
    for bad in ["a/b/c", "%3Cscript%3E", "a/%0d%0aX:1"] {
        let (status, response) = ask("GET", &format!("/pod?pod={bad}")).await;
        assert_eq!(status, StatusCode::OK, "{bad}");
        assert!(
            response.body().contains("is not the name of a Pod") && !response.body().contains("<script>"),
            "{bad}"
        );
    }
    assert_eq!(ask("GET", "/pod/a/%3Cb%3E").await.0, StatusCode::NOT_FOUND);
    assert_eq!(ask("GET", "/nowhere").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn every_answer_forbids_what_is_not_from_here_and_nothing_is_written() {
    let paths = routes().map(|(path, _)| path.replace("{namespace}/{name}", "default/web-0"));
    for path in paths.iter().map(String::as_str).chain(ASSETS.map(|(path, ..)| path)).chain(["/nowhere"]) {
        let (_, response) = ask("GET", path).await;
        for (name, value) in HEADERS {
            assert_eq!(response.headers()[&name], value, "{path}");
        }
        let body = response.body();
        for forbidden in ["style=", "onclick", "<style", "javascript:", "http://", "https://", "//cdn"] {
            let allowed = forbidden.starts_with("http") && path.ends_with(".svg");
            assert!(allowed || !body.contains(forbidden), "{path} has {forbidden}");
        }
        if path != "/nowhere" {
            for method in ["POST", "PUT", "PATCH", "DELETE"] {
                assert_eq!(ask(method, path).await.0, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
            }
        }
    }
}

#[tokio::test]
async fn the_page_is_small() {
    let mut bytes = Vec::new();
    for path in ["/attempts"].into_iter().chain(ASSETS.map(|(path, ..)| path)) {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(get_page(path).await.as_bytes()).unwrap();
        bytes.push(gzip.finish().unwrap().len());
    }
    assert!(bytes.iter().sum::<usize>() < 150 << 10, "{bytes:?}");
}

/// The names of elements and attributes of a document, without any text of others.
fn skeleton(html: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find([' ', '>', '\n']).unwrap();
        names.push(rest[..end].to_owned());
        rest = &rest[end..];
        while let Some(attribute) = rest.strip_prefix(' ') {
            let end = attribute.find(['=', ' ', '>']).unwrap();
            names.push(format!("@{}", &attribute[..end]));
            rest = &attribute[end..];
            if let Some(value) = rest.strip_prefix("=\"") {
                rest = &value[value.find('"').unwrap() + 1..];
            }
        }
        rest = rest
            .strip_prefix('>')
            .unwrap_or_else(|| panic!("an element does not end: {}", &rest[..rest.len().min(80)]));
    }
    names
}

/// An account whose texts are these, over and over.
fn account(texts: &[String]) -> Account {
    let mut texts = texts.iter().cycle().cloned();
    let mut text = || texts.next().unwrap_or_default();
    Account {
        trace_id: text(),
        namespace: text(),
        pod: text(),
        uid: text(),
        profile: text(),
        terms: vec![text()],
        attempt: Some(2),
        result: Some("Unschedulable".into()),
        duration_ns: 1_000_000,
        message: format!("x{}", text()),
        node: Some(text()),
        evaluated_nodes: Some(3),
        feasible_nodes: Some(0),
        candidates: vec![format!("n{}: 12 (Fit 1, Taint 2)", text()), "no candidate".into()],
        preemption: Some(Preemption { node: text(), victims: 2, names: vec![text(), text()] }),
        queue: Queue {
            active_ns: Some(5),
            gated_ns: Some(7),
            gated_by: vec![text()],
            moves: vec![Move { queue: text(), event: text() }],
            ..Queue::default()
        },
        rejected_by: vec![Rejection {
            plugin: text(),
            extension_point: Some("permit".into()),
            message: format!("x{}", text()),
        }],
        rejected_nodes: Some(RejectedNodes {
            groups: vec![RejectedGroup {
                plugin: Some(text().into()),
                result: text(),
                reasons: vec![text().into()],
                nodes: vec![text().into()],
            }],
            left_out: 1,
            others: Some(text()),
        }),
        phases: vec![Phase {
            name: text(),
            plugins: vec![Plugin {
                name: text(),
                result: Some(format!("x{}", text())),
                message: text(),
                ..Plugin::default()
            }],
            ..Phase::default()
        }],
        ..Account::default()
    }
}

/// All of what is rendered from foreign text.
fn rendered(texts: &[String]) -> String {
    let account = account(texts);
    let brief = std::sync::Arc::new(Brief::of(&account));
    let keep = format!("x{}", texts[0]);
    let (namespace, pod) = (account.namespace.clone(), account.pod.clone());
    let mut report = Report::new(namespace, pod, 0, Kept::default(), vec![account.clone(), account]);
    let attempts = [brief];
    let of_pod = views::pod::view(&report).into_string();
    report.attempts.clear();
    report.also_in = vec![texts[0].clone()];
    [
        of_pod,
        views::pod::view(&report).into_string(),
        views::pod::ask(&attempts, &keep, 0).into_string(),
        views::pending::view(&attempts, 0).into_string(),
        views::attempts::view(&attempts, "", 0).into_string(),
        views::attempts::view(&attempts, &keep, 0).into_string(),
        page(View::Pod, &keep, &daemon(), &views::missing()).into_string(),
    ]
    .concat()
}

/// Texts that want to be more than text.
fn hostile() -> impl Strategy<Value = String> {
    const PARTS: [&str; 14] = [
        "<script>",
        "</script>",
        "\"",
        "'",
        "&lt;",
        "<img src=x onerror=alert(1)>",
        "-->",
        "<!--",
        "javascript:",
        "\u{202e}",
        "\0",
        " ",
        "a",
        "</title>",
    ];
    prop_oneof![vec(prop::sample::select(&PARTS[..]), 1..6).prop_map(|parts| parts.concat()), ".{1,40}"]
}

proptest! {
    #[test]
    fn no_text_becomes_markup(texts in vec(hostile(), 1..8)) {
        let html = rendered(&texts);
        prop_assert_eq!(skeleton(&html), skeleton(&rendered(&["a".to_owned()])));
        let hidden = html.contains(['\0', '\u{202e}']);
        prop_assert!(!hidden);
    }
}
