//! Lists the plugins of a kube-scheduler: `cargo run --example plugins -- /usr/local/bin/kube-scheduler`.
//!
//! Nothing here knows a version: the types that implement the framework's `Plugin` interface are in the executable, and
//! their `Name` methods hold the names.

use std::{env, error::Error, path::Path};

use goexe::{Executable, File, Kind};

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("give the path of a kube-scheduler")?;
    let file = File::open(Path::new(&path), 1 << 30)?;
    let executable = Executable::parse(&file)?;
    let (functions, types) = (executable.functions()?, executable.types());
    // The package moved with Kubernetes 1.34.
    let plugin = types
        .find("k8s.io/kube-scheduler/framework", "Plugin")
        .or_else(|_| types.find("k8s.io/kubernetes/pkg/scheduler/framework", "Plugin"))?;
    for itab in types.itabs()?.into_iter().filter(|itab| itab.interface == plugin) {
        let named =
            if itab.concrete.kind == Kind::Pointer { types.element(&itab.concrete)? } else { itab.concrete };
        let package = types.package(&named)?.unwrap_or_default();
        let methods = types.methods(&itab.concrete)?;
        let code = methods.iter().find(|method| method.name == "Name").and_then(|method| method.code);
        let name = code
            .and_then(|code| functions.at(code))
            .and_then(|function| Some(executable.constant_string(&function)?.1))
            .unwrap_or("(made at run time)");
        println!("{name:<32} {package}");
    }
    Ok(())
}
