//! `schedspan trace`: shows attempts as they end.

use std::env;

use anyhow::{Context as _, Error, Result, bail, ensure};
use futures::{StreamExt as _, stream::select_all};
use reach::{Daemon, Event, Reach, events};
use spans::{
    export::{Filter, Output, Style, chart, waterfall},
    screen,
    text::{clean, sentence},
};

use super::run::Common;
use crate::daemon;

/// Path of the daemon's traces.
const TRACES: &str = "/api/v1/traces";

/// Options of `trace`.
#[derive(clap::Args, Debug)]
pub struct Options {
    #[command(flatten)]
    filter: Filter,
    /// Show Pod lifecycles until Ready instead of attempts
    #[arg(long)]
    lifecycle: bool,
    /// Output format; may be given several times
    #[arg(long, short, value_enum, value_delimiter = ',', default_value = "terminal")]
    output: Vec<Output>,
    /// Show what the daemon at this address has, as in its --debug-listen, instead of probing schedulers
    #[arg(long, short, env = "SCHEDSPAN_SERVER", value_name = "URL", conflicts_with = "context")]
    server: Option<String>,
    /// Show what the daemons of this context's cluster have
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Namespace of their Pods [default: all]
    #[arg(long, env = "SCHEDSPAN_NAMESPACE", value_name = "NAMESPACE")]
    daemon_namespace: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
///
/// # Errors
///
/// Those of [`daemon::run`]; when no daemon can be asked, or all have ended.
pub async fn run(options: Options) -> Result<()> {
    let Options { filter, lifecycle, output, server, context, daemon_namespace, common } = options;
    let filter = if lifecycle { filter } else { filter.of_attempts().map_err(Error::msg)? };
    if server.is_none() && context.is_none() && !super::is_plugin() {
        let filter = Filter { lifecycles: lifecycle, ..filter };
        return daemon::run(daemon::Options { lifecycle, ..common.daemon(output, filter) }).await;
    }
    ensure!(
        !lifecycle,
        "a daemon does not show lifecycles: run `schedspan trace --lifecycle` beside the scheduler"
    );
    // KUBECONFIG may name several files.
    let variable = env::var_os("KUBECONFIG");
    let kubeconfig = common.context.kubeconfig.filter(|path| variable.as_deref() != Some(path.as_os_str()));
    let reach =
        Reach::of(&reach::Options { server, context, kubeconfig, daemon_namespace }, super::is_plugin())
            .await?;
    shown(&reach, &filter, &output, common.wide).await
}

/// Shows the traces of all daemons: whichever scheduler leads.
async fn shown(reach: &Reach, filter: &Filter, output: &[Output], wide: bool) -> Result<()> {
    let question = question(filter);
    let question: Vec<_> = question.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let mut open = Vec::new();
    for daemon in reach.daemons() {
        match daemon.stream(TRACES, &question).await {
            Ok(body) => open.push(whole(daemon, events(body))),
            Err(error) if reach.daemons().len() == 1 => return Err(error),
            Err(error) => screen::complain(&format!("schedspan: {}", sentence(error.as_ref()))),
        }
    }
    ensure!(!open.is_empty(), "no daemon shows its traces");
    let style = Style { plugins: wide, ..Style::of_stdout() };
    let mut all = select_all(open);
    while let Some((place, event)) = all.next().await {
        match event {
            Some(Ok(Event { name, data })) if name.is_empty() => {
                if !show(&data, output, &style)? {
                    return Ok(());
                }
            }
            Some(Ok(Event { name, data })) if name == "lost" => {
                screen::complain(&format!(
                    "schedspan: {place} has left out traces, this terminal is too slow: {}",
                    clean(&data)
                ));
            }
            // A later daemon's.
            Some(Ok(_)) => {}
            Some(Err(error)) => screen::complain(&format!("schedspan: {}", sentence(error.as_ref()))),
            None => screen::complain(&format!("schedspan: the daemon at {place} has ended")),
        }
    }
    bail!("no daemon shows traces any more")
}

/// The events of a daemon, and `None` at their end.
fn whole(
    daemon: &Daemon,
    events: impl futures::Stream<Item = Result<Event>> + Send + 'static,
) -> futures::stream::BoxStream<'static, (String, Option<Result<Event>>)> {
    let place = daemon.place();
    events.map(Some).chain(futures::stream::iter([None])).map(move |event| (place.clone(), event)).boxed()
}

fn question(filter: &Filter) -> Vec<(&'static str, String)> {
    let Filter { namespace, pod, failed, slower_than, lifecycles: _ } = filter;
    let mut question = Vec::new();
    question.extend(namespace.clone().map(|namespace| ("namespace", namespace)));
    question.extend(pod.as_ref().map(|pod| ("pod", pod.to_string())));
    question.extend(failed.then(|| ("failed", "true".to_owned())));
    question.extend(slower_than.map(|limit| ("slower-than", format!("{}us", limit.as_micros()))));
    question
}

/// Prints a trace. Returns whether there is still a reader.
fn show(json: &str, output: &[Output], style: &Style) -> Result<bool> {
    let mut text = String::new();
    let mut read = true;
    for output in output {
        match output {
            Output::Json => {
                read &= screen::stream_json(&format!("{json}\n")).context("cannot write to stdout")?;
            }
            Output::Terminal => {
                let traces = spandiff::whole::traces(json).context("a trace of the daemon cannot be read")?;
                text.extend(traces.iter().map(|trace| format!("{}\n", waterfall(trace, style))));
            }
            Output::Mermaid => {
                let traces = spandiff::whole::traces(json).context("a trace of the daemon cannot be read")?;
                text.extend(traces.iter().map(chart));
            }
            Output::Otlp | Output::Perfetto | Output::Chrome => bail!(
                "--output takes terminal, json and mermaid here: a daemon exports by OTLP itself, and `schedspan replay` writes files of Perfetto and Chrome"
            ),
        }
    }
    Ok(read && screen::stream_coloured(&text).context("cannot write to stdout")?)
}
