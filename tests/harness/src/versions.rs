//! The component of a version that a person names.

use anyhow::{Context as _, Result};
use xtask::components::Component;

/// The component of a version such as `1.33` or `1.33.13`.
///
/// # Errors
///
/// If there is none of that version.
pub(crate) fn find(all: &[Component], version: &str) -> Result<Component> {
    all.iter().find(|component| names(version, component)).copied().with_context(|| {
        let versions: Vec<_> = all.iter().map(|component| component.version).collect();
        let name = all.first().map_or("component", |component| component.name);
        format!("no {name} of version `{version}`: there are {}", versions.join(", "))
    })
}

/// Whether a minor or full version is that of this component.
pub(crate) fn names(version: &str, component: &Component) -> bool {
    let rest = component.version.strip_prefix(version);
    version.contains('.') && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Fails unless each has a module that asks for its version of Kubernetes, and a Go whose hash is known.
#[cfg(test)]
pub(crate) fn assert_pinned(all: &[Component]) {
    for Component { version, module, go, .. } in all {
        assert!(go.is_pinned(), "{module}: no hash of its Go is known");
        let path = xtask::paths::repository().join("tests").join(module).join("go.mod");
        let text = std::fs::read_to_string(&path).expect(module);
        assert!(text.contains(&format!("k8s.io/kubernetes v{version}\n")), "{module}");
    }
}
