//! A real cluster: `cargo test -p harness -- --ignored`.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::wait::wait_until;

#[test]
#[ignore = "starts a real cluster, whose components take minutes to build"]
fn a_cluster_schedules_pods_and_its_scheduler_can_be_restarted() {
    let dir = std::env::temp_dir().join(format!("schedspan-cluster-{}", std::process::id()));
    let options = Options {
        nodes: 2,
        scheduler_qps: Some(1000),
        no_controllers: true,
        no_collector: true,
        ..Options::default()
    };
    let mut cluster = Cluster::up(&dir, &options).unwrap();
    let api = cluster.api().unwrap();
    let pod = |name: &str| {
        json!({
            "metadata": { "name": name, "annotations": { "a": "b" } },
            "spec": { "containers": [{ "name": "main", "image": "none" }] },
        })
    };
    let bound = |number: usize| {
        wait_until("all Pods to be bound", Duration::from_secs(60), || {
            let pods = api.pods("default")?;
            Ok((pods.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count() == number)
                .then_some(()))
        })
    };

    api.create_pod("default", &pod("one")).unwrap();
    bound(1).unwrap();
    let attempts = [("profile", "default-scheduler"), ("result", "scheduled")];
    let metrics = cluster.scheduler_metrics().unwrap();
    assert_eq!(metrics.sum("scheduler_schedule_attempts_total", &attempts), 1.0);
    assert_eq!(metrics.sum("scheduler_schedule_attempts_total", &attempts[1..]), 1.0);

    let before = cluster.scheduler().unwrap();
    cluster.restart_scheduler().unwrap();
    let after = cluster.scheduler().unwrap();
    assert_ne!(before.pid, after.pid);
    assert_eq!(before.metrics_url, after.metrics_url);
    assert!(after.executable.exists() && after.log.exists());
    api.create_pod("default", &pod("two")).unwrap();
    bound(2).unwrap();

    let path = "/api/v1/namespaces/default/pods/two";
    api.delete_pod("default", "two").unwrap();
    let error = api.delete(path).unwrap_err().to_string();
    assert!(error.contains("404") && error.contains("\"two\" not found"), "{error}");
    assert_eq!(api.count("/api/v1/nodes").unwrap(), 2);
    cluster.check().unwrap();
    cluster.down().unwrap();
    assert!(!dir.exists());
}
