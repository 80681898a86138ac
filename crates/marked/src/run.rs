//! kubectl, marked.

use std::{
    ffi::OsString,
    path::PathBuf,
    process::ExitStatus,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use reach::Cluster;
use spans::{
    export::{Style, waterfall},
    figures::parse_duration,
    screen,
};
use tokio::process::Command;

use crate::{
    attempts::Attempts,
    context::Context,
    follow::{Outcome, follow},
    home::Home,
    proxy::{Proxy, Sent, Written},
    waterfall::Drawn,
};

/// Flags of kubectl that name another API server or user than the proxy's.
const OF_THE_SERVER: [&str; 10] = [
    "--kubeconfig",
    "--context",
    "--cluster",
    "--user",
    "--server",
    "--token",
    "--certificate-authority",
    "--client-certificate",
    "--client-key",
    "-s",
];

/// Options of `traced`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Baggage of the requests; may be given several times
    #[arg(long, value_delimiter = ',', value_name = "KEY=VALUE")]
    baggage: Vec<String>,
    /// How long to follow the Pods; 0s ends after kubectl
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = parse_duration)]
    timeout: Duration,
    /// The kubectl to run
    #[arg(long, env = "SCHEDSPAN_KUBECTL", default_value = "kubectl", value_name = "FILE")]
    kubectl: PathBuf,
    /// Arguments of kubectl, such as `apply -f web.yaml`
    #[arg(last = true, required = true, value_name = "KUBECTL ARGUMENTS")]
    arguments: Vec<OsString>,
    #[command(flatten)]
    reach: reach::Options,
}

/// How it ended.
#[derive(Debug)]
pub enum End {
    /// kubectl has failed.
    Kubectl(ExitStatus),
    /// Whether all Pods are Ready, or there are none.
    Followed(bool),
}

/// Runs kubectl with marked requests, and follows the Pods that come of them.
///
/// # Errors
///
/// When there is no cluster, kubectl cannot be started, or Pods cannot be listed.
pub async fn run(options: Options) -> Result<End> {
    let Options { baggage, timeout, kubectl, arguments, reach } = options;
    if let Some(flag) = arguments.iter().find_map(|argument| of_the_server(&argument.to_string_lossy())) {
        anyhow::bail!(
            "kubectl's {flag} would go past the trace: give --context or --kubeconfig before `--` instead"
        );
    }
    let cluster = Cluster::of(&reach).await?;
    let context = Context::new(&baggage)?;
    let proxy =
        Proxy::start(cluster.client.clone(), context.clone()).await.context("cannot listen on 127.0.0.1")?;
    let home = Home::new(proxy.url(), &cluster.namespace).context("cannot write a kubeconfig for kubectl")?;
    let attempts = if timeout.is_zero() { Attempts::default() } else { Attempts::watch(&reach).await };
    screen::complain(&format!("trace {}", context.trace_id));
    let begin = SystemTime::now();
    let mut command = Command::new(&kubectl);
    command
        .args(&arguments)
        .env("KUBECONFIG", home.kubeconfig())
        .env("KUBECACHEDIR", home.cache())
        .kill_on_drop(true);
    let status = tokio::select! {
        status = command.status() => status,
        // kubectl gets it as well. What is here is cleaned up.
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
    };
    let status = status.with_context(|| {
        format!("cannot run `{}`: install kubectl, or say where it is with --kubectl", kubectl.display())
    })?;
    let end = SystemTime::now();
    drop(home);
    if !status.success() {
        return Ok(End::Kubectl(status));
    }
    let written = proxy.written();
    drop(proxy);
    ensure!(written.requests > 0, "kubectl has sent no request through the trace");
    if written.objects.is_empty() || timeout.is_zero() {
        screen::complain(&format!("{} requests were marked; nothing is followed", written.requests));
        return Ok(End::Followed(true));
    }
    let outcome = tokio::select! {
        outcome = follow(&cluster.client, &written, &context.trace_id, &attempts, timeout) => outcome.context("cannot follow the Pods")?,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
    };
    let command = Ran { trace_id: context.id, arguments: &arguments, time: (begin, end), written: &written };
    show(&command, &outcome, &attempts, timeout)?;
    Ok(End::Followed(outcome.ready || !outcome.makes_pods))
}

/// The flag of kubectl that an argument is, if it names a server.
fn of_the_server(argument: &str) -> Option<&'static str> {
    let name = argument.split_once('=').map_or(argument, |(name, _)| name);
    OF_THE_SERVER.into_iter().find(|flag| *flag == name)
}

/// A command that ran.
struct Ran<'a> {
    trace_id: [u8; 16],
    arguments: &'a [OsString],
    time: (SystemTime, SystemTime),
    written: &'a Written,
}

fn show(command: &Ran<'_>, outcome: &Outcome, attempts: &Attempts, time: Duration) -> Result<()> {
    let requests = command.written.requests;
    if !outcome.makes_pods {
        screen::complain(&format!("{requests} requests were marked; nothing that makes Pods was written"));
        return Ok(());
    }
    if outcome.pods.is_empty() {
        screen::complain(&format!("{requests} requests were marked; no Pod has come of them"));
        return Ok(());
    }
    screen::print_coloured(&drawn(command, outcome, attempts)).context("cannot write to stdout")?;
    let (all, linked) = (outcome.pods.len(), outcome.pods.values().filter(|life| life.carries).count());
    screen::complain(&match linked {
        0 => format!(
            "none of {all} Pods carries the trace: without the webhook (docs/install.md) their attempts are not linked to it"
        ),
        linked => format!("{linked} of {all} Pods carry the trace: their attempts are linked to it"),
    });
    if outcome.too_many {
        screen::complain("there are more Pods than are followed");
    }
    if let Some((name, life)) = outcome.pods.iter().find(|(_, life)| !life.state.is_reached()) {
        let (namespace, pod) = name.split_once('/').unwrap_or_default();
        screen::complain(&format!(
            "{} is {} after {} s: `kubectl schedspan explain -n {namespace} {pod}` says why",
            name,
            life.state.word(),
            time.as_secs()
        ));
    }
    Ok(())
}

/// The waterfall of the command, by the API server's clock.
fn drawn(command: &Ran<'_>, outcome: &Outcome, attempts: &Attempts) -> String {
    let Ran { trace_id, arguments, time: (begin, end), written } = command;
    let skew = written.skew;
    let shifted = |sent: &Sent| Sent {
        start_ns: skew.shifted(sent.start_ns),
        end_ns: skew.shifted(sent.end_ns),
        ..sent.clone()
    };
    let requests: Vec<_> = written.sent.iter().map(shifted).collect();
    let attempts = attempts.all();
    let mut followed = outcome.followed.clone();
    attempts.iter().for_each(|attempt| followed.attempt(attempt));
    let arguments: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    let waits = outcome.pods.iter().find(|(_, life)| !life.state.is_reached());
    let reason = waits.map(|(name, life)| {
        let why = life.message.as_deref().map(|message| format!(": {message}")).unwrap_or_default();
        format!("{name} is {}{why}", life.state.word())
    });
    let trace = Drawn {
        trace_id: *trace_id,
        arguments: &arguments.join(" "),
        start_ns: skew.unix_ns(*begin),
        end_ns: skew.unix_ns(*end),
        requests: &requests,
        lifecycles: &followed.traces(skew.unix_ns(SystemTime::now())),
        attempts: &attempts,
        result: outcome.result(),
        reason: reason.unwrap_or_default(),
    };
    waterfall(&trace.trace(), &Style::of_stdout())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_name_a_server_are_found() {
        assert_eq!(of_the_server("--context=a"), Some("--context"));
        assert_eq!(of_the_server("-s"), Some("-s"));
        assert_eq!(of_the_server("--selector=app=a"), None);
        assert_eq!(of_the_server("--server-side"), None);
    }
}
