//! Why Pods are not tried: the queues of the traced schedulers, and what the API server says of Pods without a Node.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use kube_scheduler::{
    metrics::Metrics,
    queue::{Answer, Look, Queues, stalls},
};
use pods::context::PodContexts;
use serde::Deserialize;
use spans::Pending;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::{Api, attempts::is_name, json, now_unix_us, refused};

/// Interval of the looks for schedulers that stand still.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// What is known of all Pods that wait. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Board {
    /// What the probes see.
    pub queues: Queues,
    /// What the API server says, if it is asked.
    pub contexts: Option<PodContexts>,
}

impl Board {
    /// Where each Pod waits, now.
    #[must_use]
    pub fn answer(&self) -> Answer {
        self.queues.answer(now_unix_us(), self.pending().as_deref())
    }

    fn look(&self) -> Look {
        self.queues.look(now_unix_us(), self.pending().as_deref())
    }

    fn pending(&self) -> Option<Vec<Arc<Pending>>> {
        self.contexts.as_ref().and_then(PodContexts::pending)
    }

    /// Publishes what is known, and logs when a scheduler begins or ceases to stand still, for ever.
    pub async fn watch(self, metrics: Metrics) {
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stood = 0;
        loop {
            looks.tick().await;
            let look = self.look();
            metrics.queue(&look, self.queues.left_out());
            let stalls = stalls(&look.answer);
            if stalls.len() > stood {
                stalls.iter().for_each(|stall| warn!("{stall}"));
            } else if stalls.is_empty() && stood > 0 {
                info!("no scheduler stands still any more");
            }
            stood = stalls.len();
        }
    }
}

/// A namespace or all, a Pod or all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    namespace: Option<String>,
    pod: Option<String>,
}

/// `GET /api/v1/queue?namespace=..&pod=..`
pub(crate) async fn waiting(
    State(Api { daemon, .. }): State<Api>,
    Query(Which { namespace, pod }): Query<Which>,
) -> Response {
    if let Some(wrong) = [&namespace, &pod].into_iter().flatten().find(|name| !is_name(name)) {
        let why = format!("`{}` is not a Kubernetes name", wrong.escape_default());
        return refused(StatusCode::BAD_REQUEST, &why);
    }
    json(&daemon.board.answer().only(namespace.as_deref(), pod.as_deref()))
}
