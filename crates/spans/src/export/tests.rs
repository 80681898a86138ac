use telemetry::Registry;

use super::*;
use crate::fixtures::scheduled;

pub(super) fn item(trace: Trace) -> Item {
    let resource =
        Resource::of_process(7, 42, "/usr/local/bin/kube-scheduler".as_ref(), "go1.26.4", Some("v1.36.4"));
    Item { resource: resource.to_sdk(), trace: Arc::new(trace) }
}

/// A queue, with what is sent into it.
pub(super) fn queue(
    capacity: u64,
    causes: Causes,
    run: impl FnOnce(Queue) -> JoinHandle<()>,
) -> (Sinks, Registry) {
    let registry = Registry::default();
    let metrics = Metrics::new(&registry);
    let sink = Sink::open(capacity, causes, &metrics, run);
    let sinks = Sinks { sinks: RwLock::new(Some(vec![sink])), resources: RwLock::default(), metrics };
    (sinks, registry)
}

pub(super) fn lost(registry: &Registry) -> Vec<(&'static str, u64)> {
    registry.lost().into_iter().filter(|(_, lost)| *lost > 0).collect()
}

#[tokio::test]
async fn what_a_full_queue_cannot_hold_is_lost_and_so_is_what_is_left_at_the_end() {
    let spans = scheduled().spans.len() as u64;
    let (sinks, registry) = queue(2 * spans + 1, otlp::CAUSES, |queue| {
        tokio::spawn(async move {
            let _queue = queue;
            std::future::pending::<()>().await;
        })
    });
    for _ in 0..5 {
        sinks.send(scheduled());
    }
    assert_eq!(lost(&registry), [("export_queue_full", 3 * spans)]);
    sinks.shutdown(Duration::ZERO).await;
    sinks.send(scheduled());
    assert_eq!(lost(&registry), [("export_queue_full", 3 * spans), ("shutdown", 3 * spans)]);
}

#[test]
fn a_resource_identifies_its_process() {
    let Item { resource, .. } = item(scheduled());
    for (key, value) in [
        ("service.name", "kube-scheduler"),
        ("service.version", "v1.36.4"),
        ("process.pid", "42"),
        ("process.executable.name", "kube-scheduler"),
        ("process.executable.path", "/usr/local/bin/kube-scheduler"),
        ("process.runtime.name", "go"),
        ("process.runtime.version", "go1.26.4"),
        ("k8s.scheduler.version", "v1.36.4"),
    ] {
        assert_eq!(resource.get(&key.into()).unwrap().to_string(), value, "{key}");
    }
}
