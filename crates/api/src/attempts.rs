//! The attempts of a Pod: what `schedspan explain` asks for.

use std::time::Duration;

use axum::{
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use kube_scheduler::explain::{Account, Report};
use serde::Deserialize;
use tokio::time::timeout;

use crate::{Api, json, now_unix_us, refused};

/// Longest `wait` of a request.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(3600);
/// Longest name that Kubernetes allows.
const MAX_NAME: usize = 253;

/// A Pod.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    namespace: String,
    pod: String,
    /// Seconds to wait for the Pod's next attempt.
    #[serde(default)]
    wait: u64,
    /// Whether rejected Nodes are named.
    #[serde(default)]
    nodes: bool,
}

/// `GET /api/v1/attempts?namespace=..&pod=..&wait=..&nodes=..`
pub(crate) async fn of_pod(
    State(Api { daemon, .. }): State<Api>,
    Query(Question { namespace, pod, wait, nodes }): Query<Question>,
) -> Response {
    let history = daemon.history;
    if let Some(wrong) = [&namespace, &pod].into_iter().find(|name| !is_name(name)) {
        return refused(
            StatusCode::BAD_REQUEST,
            &format!("`{}` is not a Kubernetes name", wrong.escape_default()),
        );
    }
    let wait = Duration::from_secs(wait);
    if wait > MAX_WAIT {
        return refused(StatusCode::BAD_REQUEST, &format!("`wait` may be {} s at most", MAX_WAIT.as_secs()));
    }
    let mut next: Option<Account> = None;
    if !wait.is_zero() {
        match history.next(&namespace, &pod) {
            // A timeout and a dropped sender are the same to the client: no attempt.
            Ok(receiver) => next = timeout(wait, receiver).await.ok().and_then(Result::ok),
            Err(error) => return refused(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        }
    }
    let mut report = history.report(&namespace, &pod, nodes, now_unix_us());
    if let Some(mut account) = next {
        if !report.attempts.iter().any(|known| known.trace_id == account.trace_id) {
            // The history is switched off, or other attempts have displaced this one.
            account.rejected_nodes.take_if(|_| !nodes);
            report.attempts.push(account);
            report = Report::new(namespace, pod, report.now_unix_us, report.history, report.attempts);
        }
        report.waited_for_it = true;
    }
    json(&report.with(daemon.board.answer()))
}

/// Whether all characters are allowed in a Kubernetes name. The first one is not checked separately.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-.".contains(&c);
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(allowed)
}
