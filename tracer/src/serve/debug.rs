//! Handlers of `schedspan explain` and `schedspan top`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::{
    extract::{Query, State},
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use kube_scheduler::{
    attempt_log::AttemptLog,
    explain::{Account, Report},
};

use crate::metrics::Metrics;

/// Longest `wait` of a request.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(3600);
/// Longest name that Kubernetes allows.
const MAX_NAME: usize = 253;

/// Query of `/debug/attempts`: a Pod.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    namespace: String,
    pod: String,
    /// Seconds to wait for the Pod's next attempt.
    #[serde(default)]
    wait: u64,
}

/// `GET /debug/attempts?namespace=..&pod=..&wait=..`
pub(super) async fn attempts(
    State(history): State<AttemptLog>,
    Query(Question { namespace, pod, wait }): Query<Question>,
) -> Response {
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
    let mut report = history.report(&namespace, &pod, now_unix_us());
    if let Some(account) = next {
        if !report.attempts.contains(&account) {
            // The history is switched off, or other attempts have displaced this one.
            report.attempts.push(account);
            report = Report::new(namespace, pod, report.now_unix_us, report.history, report.attempts);
        }
        report.waited_for_it = true;
    }
    json(&report)
}

/// `GET /debug/top`
pub(super) async fn top(State(metrics): State<Metrics>) -> Response {
    json(&metrics.last_minute())
}

/// Whether all characters are allowed in a Kubernetes name. The first one is not checked separately.
fn is_name(name: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-.".contains(&c);
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(allowed)
}

fn now_unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn refused(status: StatusCode, why: &str) -> Response {
    (status, format!("{why}\n")).into_response()
}

fn json(answer: &impl Serialize) -> Response {
    match serde_json::to_vec(answer) {
        Ok(body) => ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response(),
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use spans::fixtures::{scheduled, unschedulable};

    use super::*;
    use kube_scheduler::last_minute::LastMinute;

    use crate::serve::tests::{get, serving};

    fn report(response: &str) -> Report {
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("application/json"), "{response}");
        serde_json::from_str(body).unwrap()
    }

    #[tokio::test]
    async fn attempts_of_a_pod_are_reported() {
        let history = AttemptLog::new(10);
        history.add(&unschedulable());
        history.add(&scheduled());
        let address = serving(&history, &Metrics::default()).await;
        let big = report(&get(address, "/debug/attempts?namespace=default&pod=big").await);
        assert_eq!((big.attempts.len(), big.history.attempts, big.schema_version), (1, 2, 1));
        assert_eq!(big.attempts[0], Account::of(&unschedulable()));
        assert!(big.conclusion.starts_with("default/big is still Pending"), "{}", big.conclusion);
        let nobody = report(&get(address, "/debug/attempts?namespace=shop&pod=big").await);
        assert_eq!((nobody.attempts.len(), nobody.also_in), (0, vec!["default".to_owned()]));
    }

    #[tokio::test]
    async fn waiting_returns_the_next_attempt_even_without_a_history() {
        let history = AttemptLog::new(0);
        let address = serving(&history, &Metrics::default()).await;
        let adding = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                history.add(&scheduled());
            }
        });
        let told = report(&get(address, "/debug/attempts?namespace=default&pod=web-0&wait=30").await);
        adding.abort();
        assert_eq!((told.attempts.len(), told.waited_for_it), (1, true));
        assert!(told.conclusion.contains("node-3"), "{}", told.conclusion);
        let told = report(&get(address, "/debug/attempts?namespace=default&pod=other&wait=1").await);
        assert_eq!((told.attempts.len(), told.waited_for_it), (0, false));
    }

    #[tokio::test]
    async fn an_invalid_query_is_refused() {
        let address = serving(&AttemptLog::new(1), &Metrics::default()).await;
        let long = "x".repeat(MAX_NAME + 1);
        for question in [
            "",
            "?namespace=default",
            "?namespace=&pod=a",
            "?namespace=a&pod=A%1b",
            "?namespace=a&pod=../../etc",
            &format!("?namespace=a&pod={long}"),
            "?namespace=a&pod=b&wait=3601",
            "?namespace=a&pod=b&wait=-1",
            "?namespace=a&pod=b&more=c",
        ] {
            let response = get(address, &format!("/debug/attempts{question}")).await;
            assert!(response.starts_with("HTTP/1.1 400"), "{question} gives {response}");
        }
    }

    #[tokio::test]
    async fn the_figures_of_the_last_minute_are_served() {
        let metrics = Metrics::default();
        metrics.trace(&scheduled());
        let address = serving(&AttemptLog::new(1), &metrics).await;
        let response = get(address, "/debug/top").await;
        let recent: LastMinute = serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(recent.attempts.iter().map(|count| count.count).sum::<u64>(), 1);
    }
}
