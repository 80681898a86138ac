use telemetry::Registry;

use super::*;
use crate::fixtures::scheduled;

pub(super) fn item(trace: Trace) -> Item {
    let resource =
        Resource::of_process(7, 42, "/usr/local/bin/kube-scheduler".as_ref(), "go1.26.4", Some("v1.36.4"));
    Item { resource: resource.encode(), trace: Arc::new(trace) }
}

/// One output, with what is sent to it.
pub(super) fn sinks(open: impl FnOnce(&Metrics) -> Sink) -> (Sinks, Registry) {
    let registry = Registry::default();
    let metrics = Metrics::new(&registry);
    let sink = open(&metrics);
    let sinks = Sinks { sinks: RwLock::new(Some(vec![sink])), resources: RwLock::default(), metrics };
    (sinks, registry)
}

pub(super) fn lost(registry: &Registry) -> Vec<(&'static str, u64)> {
    registry.lost().into_iter().filter(|(_, lost)| *lost > 0).collect()
}

#[tokio::test]
async fn spans_beyond_the_queue_and_spans_left_at_the_end_are_lost() {
    let spans = scheduled().spans.len() as u64;
    let (sinks, registry) = sinks(|metrics| {
        Sink::Text(Text::open(2 * spans + 1, stdout::CAUSES, metrics, |queue| {
            tokio::spawn(async move {
                let _queue = queue;
                std::future::pending::<()>().await;
            })
        }))
    });
    for _ in 0..5 {
        sinks.send(scheduled());
    }
    assert_eq!(lost(&registry), [("output_queue_full", 3 * spans)]);
    sinks.shutdown(Duration::ZERO).await;
    sinks.send(scheduled());
    assert_eq!(lost(&registry), [("output_queue_full", 3 * spans), ("shutdown", 3 * spans)]);
}
