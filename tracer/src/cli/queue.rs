//! `schedspan queue`: where Pods without a Node wait, and why they are not tried.

use anyhow::{Context as _, Result};
use kube_scheduler::queue::{self, Answer};
use reach::{Output, Reach};
use spans::{export::Style, screen, text::clean};

/// Path of the daemon's answer.
const PATH: &str = "/api/v1/queue";
/// Maximum line length of the text about one Pod.
const MAX_WIDTH: usize = 120;

/// Options of `queue`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Namespace of the Pods [default: that of the kubeconfig's context, or `default`]
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Pods of all namespaces
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
    /// One Pod, in detail
    #[arg(value_name = "POD")]
    pod: Option<String>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    reach: reach::Options,
}

/// Runs the command. Returns whether the Pod waits, if one is named.
///
/// # Errors
///
/// When no daemon can be asked.
pub async fn run(options: Options) -> Result<bool> {
    let Options { namespace, all_namespaces, pod, output, reach } = options;
    let mut reach = Reach::of(&reach, super::is_plugin()).await?;
    let within = namespace.unwrap_or_else(|| reach.namespace().to_owned());
    let mut question = Vec::new();
    if !all_namespaces {
        question.push(("namespace", within.as_str()));
    }
    question.extend(pod.as_ref().map(|pod| ("pod", pod.as_str())));
    let answers = reach.ask(PATH, &question, |_: &Answer| true).await?;
    let answer = Answer::merged(answers).context("no daemon answers")?;
    let width = output.width(Style::of_stdout().width, MAX_WIDTH);
    let text = || match pod {
        None => queue::table(&answer),
        Some(_) => {
            let stalls = queue::stalls(&answer).into_iter().map(|stall| clean(&stall) + "\n\n");
            let pods = answer.pods.iter().map(|pod| queue::one(pod, answer.now_unix_us, width));
            stalls.chain(pods).collect()
        }
    };
    let names: Vec<_> = answer.pods.iter().map(|waiting| format!("pod/{}", waiting.pod)).collect();
    output.print(&answer, text, &names)?;
    if let (Some(pod), []) = (&pod, answer.pods.as_slice()) {
        screen::complain(&format!(
            "schedspan: no Pod `{}` waits: is the name right, and has it no Node? `schedspan explain` knows its attempts",
            clean(pod)
        ));
        return Ok(false);
    }
    Ok(true)
}
