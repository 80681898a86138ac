//! Requests that are marked: `kubectl schedspan traced -- apply -f web.yaml`.
//!
//! # Layout
//!
//! * [`context`]: the trace context, as the header of each request.
//! * [`proxy`]: an HTTP server on 127.0.0.1 that adds the header, and forwards with the user's credentials.
//! * [`written`]: what the API server answers, as the objects that were written. Pure.
//! * [`follow`]: their Pods until they are Ready.
//! * [`attempts`]: the attempts to schedule them, of the cluster's daemons.
//! * [`clock`]: the API server's time. Pure.
//! * [`waterfall`]: all of these as one trace. Pure.
//! * [`run`]: kubectl between them.
//!
//! # Design constraints
//!
//! * The proxy has the user's rights: it is on 127.0.0.1 only, behind a secret in its path, which is in a file of the user alone, and it ends
//!   with kubectl.
//! * kubectl is unmodified, and needs no flag: it gets another kubeconfig.

#![forbid(unsafe_code)]

pub mod attempts;
pub mod clock;
pub mod context;
pub mod follow;
mod home;
pub mod proxy;
mod run;
pub mod waterfall;
pub mod written;

pub use self::run::{End, Options, run};
