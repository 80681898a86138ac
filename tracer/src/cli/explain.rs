//! `schedspan explain`: why a Pod is on its Node, or still Pending.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube_scheduler::explain::{self, Report};
use reach::{Output, Reach};
use spans::{export::Style, screen, text::clean};

/// Path of the daemon's answer.
const ATTEMPTS: &str = "/api/v1/attempts";
/// Asks for names of Nodes. Daemons of 0.1 refuse it, and are not asked without need.
const NODES: (&str, &str) = ("nodes", "true");
/// Wait of one request to the daemon.
const WAIT: Duration = Duration::from_secs(600);
/// Maximum line length of the text.
const MAX_WIDTH: usize = 120;

/// Options of `explain`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Names of Pods, also as pod/NAME
    #[arg(required_unless_present = "selector", value_name = "POD")]
    pods: Vec<String>,
    /// Namespace of the Pods [default: that of the kubeconfig's context, or `default`]
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Pods of these names in all namespaces
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Pods with these labels, such as `app=web`; needs a cluster
    #[arg(long, short = 'l', conflicts_with = "pods", value_name = "SELECTOR")]
    selector: Option<String>,
    /// Wait for the Pod's next attempt
    #[arg(long, conflicts_with_all = ["selector", "all_namespaces"])]
    wait: bool,
    /// Explain the Pod, and each further attempt, until stopped
    #[arg(long, short, conflicts_with_all = ["wait", "selector", "all_namespaces"])]
    watch: bool,
    /// Name the Nodes that the Pod did not fit on, by plugin and reason
    #[arg(long)]
    nodes: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    reach: reach::Options,
}

/// Runs the command. Returns whether each Pod is known.
///
/// # Errors
///
/// When no daemon can be asked, or a Pod cannot be listed.
pub async fn run(options: Options) -> Result<bool> {
    let Options { pods, namespace, all_namespaces, selector, wait, watch, nodes, output, reach } = options;
    let mut reach = Reach::of(&reach, super::is_plugin()).await?;
    let within = namespace.unwrap_or_else(|| reach.namespace().to_owned());
    let mut named: Vec<_> = pods.iter().map(|pod| (within.clone(), name(pod).to_owned())).collect();
    if let Some(selector) = &selector {
        let Some(cluster) = reach.cluster() else {
            bail!("a selector needs a cluster: give --context or --kubeconfig instead of --server");
        };
        let within = (!all_namespaces).then_some(&*within);
        named = cluster.pods(within, selector).await?;
        if named.is_empty() {
            screen::complain(&format!("schedspan: no Pod has the labels {selector}"));
            return Ok(false);
        }
    }
    if wait || watch {
        let [(namespace, pod)] = &named[..] else { bail!("one Pod can be waited for, not {}", named.len()) };
        if watch {
            let reports = vec![report(&mut reach, namespace, pod, nodes).await?];
            show(&reports, output, nodes)?;
        }
        loop {
            let report = next(&reach, namespace, pod, nodes).await?;
            let last = show(&[report], output, nodes)?;
            if !watch {
                return Ok(last);
            }
        }
    }
    let mut reports = Vec::new();
    for (namespace, pod) in named {
        let report = report(&mut reach, &namespace, &pod, nodes).await?;
        let others = if all_namespaces && selector.is_none() { report.also_in.clone() } else { Vec::new() };
        if others.is_empty() || report.is_known() {
            reports.push(report);
        }
        for namespace in others {
            reports.push(self::report(&mut reach, &namespace, &pod, nodes).await?);
        }
    }
    show(&reports, output, nodes)
}

fn name(pod: &str) -> &str {
    let kinds = ["pod/", "pods/", "po/"];
    kinds.iter().find_map(|kind| pod.strip_prefix(kind)).unwrap_or(pod)
}

/// The report of all daemons that know a Pod, the leader's first; on request with the rejected Nodes by name.
pub(super) async fn report(reach: &mut Reach, namespace: &str, pod: &str, nodes: bool) -> Result<Report> {
    let mut question = vec![("namespace", namespace), ("pod", pod)];
    question.extend(nodes.then_some(NODES));
    let reports = reach.ask(ATTEMPTS, &question, Report::is_known).await?;
    Report::merged(reports).context("no daemon answers")
}

/// The report after the next attempt. Any daemon's: another scheduler may lead meanwhile.
async fn next(reach: &Reach, namespace: &str, pod: &str, nodes: bool) -> Result<Report> {
    let seconds = WAIT.as_secs().to_string();
    let mut question = vec![("namespace", namespace), ("pod", pod), ("wait", seconds.as_str())];
    question.extend(nodes.then_some(NODES));
    loop {
        let report = reach.first(ATTEMPTS, &question, WAIT, |report: &Report| report.waited_for_it).await?;
        if report.waited_for_it {
            return Ok(report);
        }
    }
}

/// Prints reports. Returns whether all know their Pod.
fn show(reports: &[Report], output: Output, nodes: bool) -> Result<bool> {
    let (known, unknown): (Vec<_>, Vec<_>) = reports.iter().partition(|report| report.is_known());
    let width = output.width(Style::of_stdout().width, MAX_WIDTH);
    let text = || known.iter().map(|report| explain::text(report, width)).collect::<Vec<_>>().join("\n");
    let names: Vec<_> = known.iter().map(|report| format!("pod/{}", report.pod)).collect();
    match reports {
        [report] => output.print(report, text, &names)?,
        reports => output.print(&serde_json::json!({ "items": reports }), text, &names)?,
    }
    let mut accounts = known.iter().flat_map(|report| &report.attempts);
    if nodes && !known.is_empty() && accounts.all(|account| account.rejected_nodes.is_none()) {
        screen::complain(
            "schedspan: no Node is known by name: none was rejected, or the names were left out to spare the scheduler, as in attempts right after \
             one with names",
        );
    }
    for report in &unknown {
        screen::complain(&format!("schedspan: {}", clean(&explain::unknown(report))));
    }
    Ok(unknown.is_empty())
}
