//! Which daemon is asked, as command-line options.

use std::path::PathBuf;

/// Address of a daemon on the same host.
const LOCAL: &str = "http://127.0.0.1:9091";

/// Where the daemon is: at a URL, or in a cluster.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Options {
    /// Ask the daemon at this address, as in its --debug-listen, instead of those of a cluster
    ///
    /// The default of `schedspan` is http://127.0.0.1:9091. `kubectl schedspan` asks the cluster, and so does `schedspan` with --context
    /// or --kubeconfig.
    #[arg(
        long,
        short,
        env = "SCHEDSPAN_SERVER",
        value_name = "URL",
        conflicts_with_all = ["context", "kubeconfig"],
        help_heading = "Where the daemon is"
    )]
    pub server: Option<String>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME", help_heading = "Where the daemon is")]
    pub context: Option<String>,
    /// Path of the kubeconfig [default: KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE", help_heading = "Where the daemon is")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of schedspan's Pods [default: all, or kube-system for users who may not list Pods of all]
    #[arg(long, env = "SCHEDSPAN_NAMESPACE", value_name = "NAMESPACE", help_heading = "Where the daemon is")]
    pub daemon_namespace: Option<String>,
}

impl Options {
    /// The URL to ask, or `None` for the daemons of a cluster. `is_plugin`: the program is called as a plugin of kubectl.
    #[must_use]
    pub fn url(&self, is_plugin: bool) -> Option<&str> {
        let in_cluster = is_plugin || self.context.is_some() || self.kubeconfig.is_some();
        self.server.as_deref().or((!in_cluster).then_some(LOCAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_and_a_context_mean_a_cluster_and_a_server_means_itself() {
        let options = Options::default();
        assert_eq!((options.url(false), options.url(true)), (Some(LOCAL), None));
        let options = Options { context: Some("kind-a".to_owned()), ..Options::default() };
        assert_eq!(options.url(false), None);
        let options = Options { server: Some("http://h:1".to_owned()), ..Options::default() };
        assert_eq!(options.url(true), Some("http://h:1"));
    }
}
