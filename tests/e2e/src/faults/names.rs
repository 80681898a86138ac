//! The Collector's name is not known to any name server for a while: spans wait for it.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::pod,
    schedspan::{Options, Schedspan},
    spans,
    stage::Stage,
    wait::wait_until,
};

use super::{TIMEOUT, warnings, write_script};

const NAME: &str = "collector.schedspan.test";
const PODS: usize = 3;

pub(crate) fn run(stage: &mut Stage) -> Result<()> {
    let dir = stage.cluster.dir().join("names");
    fs::create_dir_all(&dir)?;
    let [hosts, resolver, script] = ["hosts", "resolv.conf", "schedspan"].map(|name| dir.join(name));
    fs::write(&hosts, "127.0.0.1 localhost\n")?;
    // Nothing listens there: each question fails at once.
    fs::write(&resolver, "nameserver 127.0.0.1\n")?;
    // Only this daemon sees these files.
    let text = format!(
        "#!/bin/sh\nexec unshare --mount sh -c 'mount --bind {} /etc/hosts && mount --bind {} /etc/resolv.conf && \
         exec {} \"$@\"' schedspan \"$@\"\n",
        hosts.display(),
        resolver.display(),
        stage.executable.display()
    );
    write_script(&script, &text)?;
    let endpoint = stage.cluster.otlp_grpc()?;
    let (_, port) = endpoint.rsplit_once(':').context("an endpoint has a port")?;
    let endpoint = format!("http://{NAME}:{port}");
    let mut schedspan = Schedspan::start(&Options { executable: &script, endpoint, ..stage.options()? })?;
    let api = stage.cluster.api()?;
    let name = |number: usize| format!("unnamed-{number}");
    for number in 0..PODS {
        api.create_pod("default", &pod(&name(number), "10m"))?;
    }
    schedspan.wait_for("spans to wait for the Collector", TIMEOUT, |metrics| {
        metrics.sum("schedspan_attempts_total", &[]) >= PODS as f64
            && metrics.sum("schedspan_export_retries_total", &[]) > 0.0
    })?;
    let warned = warnings(&schedspan, NAME)?;
    ensure!(warned.len() == 1, "not one warning that names {NAME}: {}", warned.join("\n"));
    // Written in place: the daemon has this very file.
    fs::write(&hosts, format!("127.0.0.1 localhost {NAME}\n"))?;
    wait_until("all spans of all Pods", TIMEOUT, || {
        let spans = spans::read(&stage.cluster.spans_file(), 0)?;
        let arrived = |pod: &String| spans.iter().any(|span| span.is_root() && span.pod() == *pod);
        let made = schedspan.metrics()?.sum("schedspan_spans_total", &[]);
        Ok(((0..PODS).map(name).all(|pod| arrived(&pod)) && spans.len() as f64 == made).then_some(()))
    })?;
    crate::checks::nothing_lost(&schedspan.metrics()?)?;
    schedspan.stop()
}
