//! Finds the scheduling plugins in an executable: in-tree and out-of-tree, enabled in a profile or not.

use std::collections::BTreeSet;

use goexe::{BuildInfo, Executable, Functions, Kind, Type, Types};
use gotrace::program::Named;

/// Packages that declare the plugin interfaces: from Kubernetes 1.34 on, and before.
const FRAMEWORKS: [&str; 2] =
    ["k8s.io/kube-scheduler/framework", "k8s.io/kubernetes/pkg/scheduler/framework"];
/// Extension points in the order of an attempt; the interface's name is the extension point's followed by
/// `Plugin`
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/kube-scheduler/framework/interface.go#L435-L780>).
const EXTENSION_POINTS: [&str; 16] = [
    "PreEnqueue",
    "QueueSort",
    "PreFilter",
    "Filter",
    "PostFilter",
    "PreScore",
    "Score",
    "Reserve",
    "Permit",
    "PreBind",
    "Bind",
    "PostBind",
    // For Pod groups, from 1.36 and 1.37 on.
    "PlacementGenerate",
    "PlacementFeasible",
    "PlacementScore",
    "PodGroupPostFilter",
];

/// Finds all plugins and returns their names.
///
/// # Errors
///
/// When the list of implementations is broken, or contains no plugin.
pub(crate) fn find(
    executable: &Executable<'_>,
    functions: &Functions<'_>,
    types: &Types<'_>,
) -> Result<Vec<Named>, goexe::Error> {
    let framework =
        FRAMEWORKS.iter().find_map(|package| Some((package, types.find(package, "Plugin").ok()?)));
    let Some((package, plugin)) = framework else {
        return Err(goexe::Error::NoType(format!("`{}.Plugin`", FRAMEWORKS[0])));
    };
    // Methods of each extension point; an older Kubernetes lacks some of the interfaces.
    let mut points = Vec::new();
    for point in EXTENSION_POINTS {
        if let Ok(interface) = types.find(package, &format!("{point}Plugin")) {
            let methods = types.interface_methods(&interface)?;
            points.push((point, methods.into_iter().map(|(name, _)| name).collect::<Vec<_>>()));
        }
    }
    let mut found = BTreeSet::new();
    for itab in types.itabs()? {
        if itab.interface != plugin {
            continue;
        }
        let methods = types.methods(&itab.concrete)?;
        let named =
            if itab.concrete.kind == Kind::Pointer { types.element(&itab.concrete)? } else { itab.concrete };
        let has = |wanted: &&str| methods.iter().any(|method| method.name == *wanted);
        let constant = || {
            let method = methods.iter().find(|method| method.name == "Name")?;
            executable.constant_string(&functions.at(method.code?)?)
        };
        let (typ, short) = type_name(types, &named)?;
        let constant = constant();
        found.insert(Named {
            name: constant.map_or(short, |(_, name)| name.to_owned()),
            constant: constant.map(|(address, _)| address),
            extension_points: points
                .iter()
                .filter(|(_, wanted)| wanted.iter().all(has))
                .map(|(point, _)| *point)
                .collect(),
            module: module(executable.build_info(), &typ),
            descriptor: itab.concrete.address(),
            typ,
        });
    }
    Ok(found.into_iter().collect())
}

/// Type name with the package's path, and the bare name.
fn type_name(types: &Types<'_>, typ: &Type) -> Result<(String, String), goexe::Error> {
    let string = types.string(typ)?;
    let short = string.rsplit('.').next().unwrap_or(string);
    let package = types.package(typ)?.unwrap_or_default();
    Ok((format!("{package}.{short}"), short.to_owned()))
}

/// The module whose path is the longest prefix of the type's.
fn module(info: &BuildInfo, typ: &str) -> Option<String> {
    info.main
        .iter()
        .chain(&info.dependencies)
        .filter(|module| {
            typ.strip_prefix(module.path.as_str()).is_some_and(|rest| rest.starts_with(['/', '.']))
        })
        .max_by_key(|module| module.path.len())
        .map(|module| format!("{} {}", module.path, module.version).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use goexe::Module;

    use super::*;

    #[test]
    fn type_belongs_to_the_module_with_the_longest_path() {
        let module_of = |path: &str, version: &str| Module { path: path.into(), version: version.into() };
        let info = BuildInfo {
            main: Some(module_of("example.com/scheduler", "(devel)")),
            dependencies: vec![module_of("k8s.io/kubernetes", "v1.36.4"), module_of("k8s.io/kube", "v1")],
            ..BuildInfo::default()
        };
        let fit = "k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources.Fit";
        assert_eq!(module(&info, fit).as_deref(), Some("k8s.io/kubernetes v1.36.4"));
        assert_eq!(
            module(&info, "example.com/scheduler.Mine").as_deref(),
            Some("example.com/scheduler (devel)")
        );
        assert_eq!(module(&info, "example.org/other.Type"), None);
    }
}
