//! From a kubeconfig, or a URL, to an HTTP connection with the right daemon.
//!
//! # Layout
//!
//! * [`Cluster`]: a kubeconfig's context, as a client of its API server.
//! * [`find`]: which Pods are daemons, and on which Node the leading scheduler runs. Pure, but for two reads.
//! * [`forward`]: a connection to a port of a Pod, through the API server.
//! * [`Daemon`]: HTTP to one daemon, by its URL or through its Pod.
//! * [`ui`]: a port of this host that leads to the page of the leader's daemon.
//! * [`events`]: server-sent events of a daemon.
//! * [`Reach`]: the daemon of a URL, or all daemons of a cluster, the leader's first.
//!
//! # Design constraints
//!
//! * Only the API server is spoken to: what a user may see is decided by their rights there.
//! * What the API server and daemons answer is bounded in bytes and time.
//! * An error names the step that failed and the next one.

#![forbid(unsafe_code)]

mod cluster;
mod daemon;
mod events;
pub mod find;
mod fleet;
pub mod forward;
mod options;
mod output;
pub mod ui;

pub use self::{
    cluster::{Cluster, Error},
    daemon::{Body, Daemon},
    events::{Event, events},
    fleet::{Fleet, Reach},
    options::Options,
    output::Output,
};
