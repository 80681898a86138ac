//! kube-controller-managers of several versions: their work queues are generic from 1.32 on, and the types of keys differ. And one
//! in one process with a scheduler.

use anyhow::Result;
use xtask::{
    components::{CGO, CONTROLLER_MANAGER, Component},
    go::Go::{self, Machine, Release},
};

use crate::versions;

/// Each is built with the Go that the scheduler of its version is built with.
pub const ALL: [Component; 4] = [
    of("1.29.15", "controllers/1.29.15", Release("1.23.9")),
    of("1.33.13", "controllers/1.33.13", Release("1.25.5")),
    CONTROLLER_MANAGER,
    of("1.37.1", "controllers/1.37.1", Machine),
];

/// Scheduler and kube-controller-manager as goroutines of one process, built like k3s: with C code, stripped, not
/// position-independent, and static, which its source asks for. k3s has musl, and this one the C library of the machine.
/// <https://github.com/k3s-io/k3s/blob/015c032b4552d14998f9c1a6e3001f4fc7bff391/scripts/build>
pub const ONE_PROCESS: Component = Component {
    name: "k3s-like",
    shared: &["cluster/one-process"],
    package: ".",
    kind: CGO,
    ..CONTROLLER_MANAGER
};

const fn of(version: &'static str, module: &'static str, go: Go) -> Component {
    Component { version, module, go, ..CONTROLLER_MANAGER }
}

/// The kube-controller-manager of a version such as `1.33` or `1.33.13`.
///
/// # Errors
///
/// If there is none of that version.
pub fn of_version(version: &str) -> Result<Component> {
    versions::find(&ALL, version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_controller_manager_has_a_module_that_asks_for_its_version_and_a_pinned_go() {
        versions::assert_pinned(&ALL);
    }

    #[test]
    fn a_version_is_found_by_its_minor() {
        assert_eq!(of_version("1.33").unwrap().version, "1.33.13");
        assert_eq!(of_version("1.36.4").unwrap().version, "1.36.4");
        assert!(of_version("1.3").is_err() && of_version("1").is_err());
    }
}
