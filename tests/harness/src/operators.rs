//! One operator, built with an old and the newest controller-runtime: controllers are generic from 0.19 on.

use xtask::{
    components::{Component, PLAIN},
    go::Go::{self, Machine, Release},
};

/// The old one is built with a Go that is as old.
pub const ALL: [Component; 2] =
    [of("0.15.3", "operators/0.15.3", Release("1.23.9")), of("0.25.2", "operators/0.25.2", Machine)];

const fn of(version: &'static str, module: &'static str, go: Go) -> Component {
    Component {
        name: "operator",
        version,
        module,
        shared: &["operators/operator"],
        package: ".",
        go,
        ..PLAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_has_a_module_that_asks_for_its_version_and_a_pinned_go() {
        for Component { version, module, go, .. } in ALL {
            assert!(go.is_pinned(), "{module}: no hash of its Go is known");
            let path = xtask::paths::repository().join("tests").join(module).join("go.mod");
            let text = std::fs::read_to_string(&path).expect(module);
            assert!(text.contains(&format!("sigs.k8s.io/controller-runtime v{version}\n")), "{module}");
        }
    }
}
