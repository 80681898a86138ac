//! schedspan is stopped for a minute: the scheduler goes on, and what was not read is counted.

use std::{thread, time::Duration};

use anyhow::{Result, ensure};
use harness::{api::is_bound, metrics::Metrics, stage::Stage};
use rustix::process::Signal;

use super::{TIMEOUT, load};
use crate::checks::Hits;

/// Long enough for the ring buffer to fill.
const PAUSE: Duration = Duration::from_secs(60);

pub(crate) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    let mut schedspan = stage.trace()?;
    let attempts = |metrics: &Metrics| metrics.sum("schedspan_attempts_total", &[]);
    let bound = || Ok::<_, anyhow::Error>(api.pods("default")?.iter().filter(|pod| is_bound(pod)).count());
    let (meanwhile, created) = load::during(stage, "pause", || {
        schedspan.wait_for("schedspan to trace attempts", TIMEOUT, |metrics| attempts(metrics) > 0.0)?;
        let before = bound()?;
        schedspan.signal(Signal::STOP)?;
        thread::sleep(PAUSE);
        let meanwhile = bound()? - before;
        schedspan.signal(Signal::CONT)?;
        let resumed = attempts(&schedspan.metrics()?);
        schedspan.wait_for("schedspan to go on", TIMEOUT, |metrics| attempts(metrics) > resumed)?;
        Ok(meanwhile)
    })?;
    schedspan.wait_for("all hits to be records or losses", TIMEOUT, |metrics| {
        let Hits { hits, records, lost } = Hits::of(metrics);
        hits == records + lost
    })?;
    let metrics = schedspan.metrics()?;
    let (Hits { hits, records, lost }, traced) = (Hits::of(&metrics), attempts(&metrics));
    schedspan.stop()?;
    // A scheduler that waited for schedspan would bind none.
    ensure!(meanwhile > 1000, "only {meanwhile} Pods were bound in {PAUSE:?} of pause");
    println!(
        "         {meanwhile} of {created} Pods bound while schedspan was stopped; {traced} attempts traced; \
         {hits} hits = {records} records + {lost} lost"
    );
    Ok(())
}
