//! Pods that come at an even pace while a fault happens.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
use harness::{
    api::{is_bound, pod},
    stage::Stage,
};

/// Interval of the Pods.
const PACE: Duration = Duration::from_millis(15);
/// Most Pods at once: fewer than the Nodes of these tests take.
const MAX_PODS: usize = 5_000;

/// Creates Pods, whose names begin with `prefix`, until `fault` is over, and deletes the oldest, which must be bound, where there are too
/// many; then waits until all are bound. Returns the result of `fault`, and the number of Pods.
pub(crate) fn during<T>(
    stage: &Stage,
    prefix: &str,
    fault: impl FnOnce() -> Result<T>,
) -> Result<(T, usize)> {
    let api = stage.cluster.api()?;
    let over = AtomicBool::new(false);
    let created = AtomicUsize::new(0);
    let result = thread::scope(|scope| {
        let creator = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let number = created.fetch_add(1, Ordering::Relaxed);
                api.create_pod("default", &pod(&format!("{prefix}-{number}"), "10m"))?;
                if let Some(oldest) = number.checked_sub(MAX_PODS) {
                    let deleted = api.delete_pod("default", &format!("{prefix}-{oldest}"))?;
                    ensure!(is_bound(&deleted), "{prefix}-{oldest} was not bound");
                }
                thread::sleep(PACE);
            }
            anyhow::Ok(())
        });
        let result = fault();
        over.store(true, Ordering::Relaxed);
        creator.join().expect("the creating thread does not panic")?;
        result
    })?;
    let created = created.into_inner();
    let left = created.min(MAX_PODS);
    api.wait_for_pods("all Pods to be bound", |pods| pods.len() >= left && pods.iter().all(is_bound))?;
    Ok((result, created))
}
