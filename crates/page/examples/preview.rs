//! Serves the page with the attempts of a recording, as if they had just ended, to look at it without a cluster:
//! `cargo run -p page --example preview tests/streams/1.36.jsonl 127.0.0.1:9099`.

use std::{
    env,
    error::Error,
    fs::File,
    io::BufReader,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use api::{Daemon, health::Targets};
use gotrace::recording::{Replay, Step};
use kube_scheduler::{KubeScheduler, attempt_log::AttemptLog};
use spans::{Anchor, Gatherer, Origin, Story as _, export::Live, story::Extras};
use status::Health;
use telemetry::Registry;
use tokio::{net::TcpListener, time::sleep};

/// Attempts that come after the start, one each second.
const LATER: usize = 30;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(file), Some(address)) = (arguments.next().map(PathBuf::from), arguments.next()) else {
        return Err("give a recording, and an address to listen on".into());
    };
    let replay =
        || Ok::<_, Box<dyn Error>>(Replay::<_, KubeScheduler>::new(BufReader::new(File::open(&file)?))?);
    let mut end_ns = 0;
    for step in replay()? {
        if let Step::Finished(_, clocks) = step? {
            end_ns = clocks.monotonic_ns;
        }
    }
    let now_ns = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?;
    let anchor = Anchor { unix_ns_at_zero: now_ns.saturating_sub(end_ns) };
    let registry = Registry::default();
    let daemon = Daemon {
        history: AttemptLog::new(1024),
        board: api::queue::Board::default(),
        attempts: kube_scheduler::metrics::Metrics::new(&registry),
        lost: registry.losses(),
        live: Live::default(),
        targets: Targets::default(),
        health: Health::default(),
        registry,
    };
    daemon.health.set_ready(Ok(()));
    let (mut gatherer, mut traces) = (Gatherer::default(), Vec::new());
    for step in replay()? {
        match step? {
            Step::Finished(attempt, _) => {
                traces.extend(gatherer.take(attempt.trace(anchor, Origin::default(), Extras::default())));
            }
            Step::Found(found) => daemon.targets.found(&found),
            Step::Gone(target) => daemon.targets.gone(target),
        }
    }
    let listener = TcpListener::bind(&address).await?;
    let refused = status::refused(&Registry::default());
    let routes = page::router(&daemon).merge(api::router(&daemon));
    status::spawn(listener, status::only_by_address(routes), Duration::from_secs(3600), refused);
    let later = traces.len().saturating_sub(LATER);
    for (number, trace) in traces.iter().enumerate() {
        if number >= later {
            sleep(Duration::from_secs(1)).await;
        }
        daemon.attempts.attempt(trace);
        daemon.history.add(trace);
        daemon.health.alive();
    }
    loop {
        daemon.health.alive();
        sleep(Duration::from_secs(1)).await;
    }
}
