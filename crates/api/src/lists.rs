//! Lists of what is remembered, and the news that they have changed.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use kube_scheduler::{
    brief::{self, Brief, Keep, Pending},
    explain::Kept,
};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use crate::{Api, json, now_unix_us, refused, traces::events};

/// Least and longest time between two events of changes. Ages and figures change even if there is no attempt.
const GAP: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_secs(5);

/// Which attempts: conditions of `--keep`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Wanted {
    keep: String,
}

/// All attempts that are remembered, or those that are wanted.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Recent {
    now_unix_us: u64,
    history: Kept,
    /// Oldest first.
    attempts: Vec<Arc<Brief>>,
}

/// `GET /api/v1/recent?keep=..`
pub(crate) async fn recent(
    State(Api { daemon, .. }): State<Api>,
    Query(Wanted { keep }): Query<Wanted>,
) -> Response {
    match keep.parse::<Keep>() {
        Ok(wanted) => {
            let attempts = wanted.of(&daemon.history.recent());
            json(&Recent { now_unix_us: now_unix_us(), history: daemon.history.kept(), attempts })
        }
        Err(why) => refused(StatusCode::BAD_REQUEST, &why),
    }
}

/// Pods whose last attempt failed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AllPending {
    now_unix_us: u64,
    history: Kept,
    /// By plugin and reason, the most frequent first.
    reasons: Vec<Pending>,
}

/// `GET /api/v1/pending`
pub(crate) async fn pending(State(Api { daemon, .. }): State<Api>) -> Response {
    let reasons = brief::pending(&daemon.history.recent());
    json(&AllPending { now_unix_us: now_unix_us(), history: daemon.history.kept(), reasons })
}

/// The window that the last minute is compared with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Before {
    /// Minutes.
    #[serde(default = "five")]
    before: u64,
}

fn five() -> u64 {
    5
}

/// `GET /api/v1/plugins?before=..`
pub(crate) async fn plugins(
    State(Api { daemon, .. }): State<Api>,
    Query(Before { before }): Query<Before>,
) -> Response {
    json(&daemon.attempts.comparison(before))
}

/// `GET /api/v1/changes`
pub(crate) async fn changes(State(Api { daemon, pages, .. }): State<Api>) -> Response {
    let Ok(seat) = pages.try_acquire_owned() else {
        let why = "as many clients as possible get changes already; try again later";
        return refused(StatusCode::SERVICE_UNAVAILABLE, why);
    };
    events(futures::stream::unfold((daemon.history.added(), seat), async |(mut added, seat)| {
        sleep(GAP).await;
        if let Ok(Err(_)) = timeout(TICK, added.changed()).await {
            return None;
        }
        let attempts = *added.borrow_and_update();
        Some((format!("data: {{\"attempts\":{attempts}}}\n\n"), (added, seat)))
    }))
}
