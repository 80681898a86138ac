//! kubelets of several versions: what they ask before they admit a Pod, and the parameters of other functions, differ.

use anyhow::Result;
use xtask::{
    components::{Component, KUBELET},
    go::Go::{self, Machine, Release},
};

use crate::versions;

/// Each is built with the Go that the scheduler of its version is built with.
pub const ALL: [Component; 4] = [
    of("1.29.15", "kubelets/1.29.15", Release("1.23.9")),
    of("1.33.13", "kubelets/1.33.13", Release("1.25.5")),
    KUBELET,
    of("1.37.1", "kubelets/1.37.1", Machine),
];

const fn of(version: &'static str, module: &'static str, go: Go) -> Component {
    Component { version, module, go, ..KUBELET }
}

/// The kubelet of a version such as `1.33` or `1.33.13`.
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
    fn every_kubelet_has_a_module_that_asks_for_its_version_and_a_pinned_go() {
        versions::assert_pinned(&ALL);
    }

    #[test]
    fn a_version_is_found_by_its_minor() {
        assert_eq!(of_version("1.37").unwrap().version, "1.37.1");
        let error = of_version("1.3").err().expect("it is no minor version").to_string();
        assert_eq!(error, "no kubelet of version `1.3`: there are 1.29.15, 1.33.13, 1.36.4, 1.37.1");
    }
}
