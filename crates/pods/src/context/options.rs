//! Options of the lookup of contexts.

use std::{path::PathBuf, time::Duration};

use spans::figures::parse_duration;
use tracecontext::annotations::{Carriers, KEYS};

/// Which contexts of Pods are read, and how
#[derive(clap::Args, Clone, Debug)]
// A command flattens several structs of this name.
#[group(skip)]
pub struct Options {
    /// Kubeconfig of the cluster whose Pods carry trace contexts [default: the ServiceAccount's, or ~/.kube/config]
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// How long a finished attempt waits for the watch of Pods to bring its context
    #[arg(long, default_value = "2s", value_name = "DURATION", value_parser = parse_duration)]
    pub context_wait: Duration,
    /// Annotations of Pods that hold trace contexts, in order of preference
    ///
    /// A key that ends in `traceparent` is read with its `tracestate` and `baggage`, and with `.0`, `.1` and so on behind all
    /// three. Any other may hold a `traceparent`, a JSON object with one, or what `trace.kubernetes.io/context` ever held.
    #[arg(
        long,
        env = "SCHEDSPAN_CONTEXT_ANNOTATIONS",
        value_name = "KEY",
        value_delimiter = ',',
        default_values = KEYS
    )]
    pub context_annotations: Vec<String>,
    /// How an attempt belongs to the trace that created its Pod
    #[arg(long, env = "SCHEDSPAN_CONTEXT_MODE", value_enum, default_value_t, value_name = "MODE")]
    pub context_mode: Mode,
    /// Members of the Pod's baggage that become attributes of the root, by their own names
    #[arg(long, env = "SCHEDSPAN_CONTEXT_BAGGAGE", value_name = "MEMBER", value_delimiter = ',')]
    pub context_baggage: Vec<String>,
    /// Where a Pod has no context, take that of its ReplicaSet, Deployment, Job or other owner: needs `get` of these
    #[arg(long, env = "SCHEDSPAN_CONTEXT_OWNERS")]
    pub context_owners: bool,
}

/// How an attempt belongs to the trace that created its Pod.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A trace of its own, with a link to each context: KEP-5927's way
    #[default]
    Link,
    /// A part of the trace of the first context, with links to the others; a Pod of a group keeps its links
    Parent,
}

impl Options {
    /// # Errors
    ///
    /// When a key or a member is not valid.
    pub(super) fn carriers(&self) -> Result<Carriers, String> {
        Carriers::new(self.context_annotations.clone(), self.context_baggage.clone())
    }
}
