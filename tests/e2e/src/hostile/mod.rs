//! Attacks on schedspan, and what becomes of them.

mod fakes;
pub(crate) mod files;
mod fuse;
pub(crate) mod secrets;
pub(crate) mod servers;
pub(crate) mod trust;
pub(crate) mod webhook;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Lets this process hold as many connections as it may.
fn many_descriptors() -> anyhow::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, rustix::process::Rlimit { current: maximum, maximum })?)
}
