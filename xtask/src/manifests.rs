//! `cargo xtask manifests`: the plain manifests under `deploy/kustomize`, rendered from the Helm chart by Helm itself.
//!
//! The base is what the chart makes of its own values. An overlay changes what a file of values under `variants` changes,
//! and is written by hand, because a patch of a few lines is what a reader wants to see. That both come to the same is
//! checked: kustomize puts them in one form.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{self as system, Command},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    components::{HELM, KUSTOMIZE, SCHEDULER},
    paths, process,
};

/// Where the base and the overlays go, whatever namespace a release of the chart has.
const NAMESPACE: &str = "kube-system";
/// Files of values in the chart, and overlays.
const VARIANTS: [&str; 4] = ["privileged", "least-privilege", "openshift", "webhook"];
/// What is rendered to be committed: the file, the chart's template, and the variant.
const RENDERED: [(&str, &str, Option<&str>); 6] = [
    ("base/rbac.yaml", "rbac.yaml", None),
    ("base/daemonset.yaml", "daemonset.yaml", None),
    ("base/service.yaml", "service.yaml", None),
    ("overlays/least-privilege/networkpolicy.yaml", "networkpolicy.yaml", Some("least-privilege")),
    ("overlays/openshift/scc.yaml", "scc.yaml", Some("openshift")),
    ("overlays/webhook/webhook.yaml", "webhook.yaml", Some("webhook")),
];
/// Everything that is off by default, on: for checks.
const EVERYTHING: &str = "serviceMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true,\
    networkPolicy.enabled=true,collector.enabled=true,openshift.enabled=true,queueSpans=true,lifecycle=true,hostNetwork=true,\
    context.annotations={traceparent},context.mode=parent,context.baggage={user},context.owners=true,reinject.enabled=true,webhook.enabled=true,webhook.templates=true,\
    webhook.unsampled=true,webhook.hostNetwork=true,keep={failed},\
    rights=sysAdmin,otlp.headersSecret.name=token,otlp.resourceAttributes.a=b,imagePullSecrets[0].name=registry";

#[derive(clap::Args)]
pub struct Options {
    /// Change nothing; fail if a file is not what the chart makes
    #[arg(long)]
    pub check: bool,
}

pub fn main(options: &Options) -> Result<()> {
    let helm = Helm::new()?;
    let mut differing = Vec::new();
    for (file, template, variant) in RENDERED {
        let path = folder().join(file);
        let rendered = helm.template(&["--show-only", &format!("templates/{template}")], variant)?;
        if fs::read_to_string(&path).is_ok_and(|committed| committed == rendered) {
            continue;
        }
        if options.check {
            differing.push(path.display().to_string());
        } else {
            fs::write(&path, rendered).with_context(|| format!("cannot write `{}`", path.display()))?;
            println!("{}", path.display());
        }
    }
    ensure!(
        differing.is_empty(),
        "not what the chart makes: {}; `cargo xtask manifests` makes them anew",
        differing.join(", ")
    );
    helm.lint()?;
    for variant in [None].into_iter().chain(VARIANTS.map(Some)) {
        check_overlay(&helm, variant)?;
    }
    Ok(())
}

/// What the chart makes of its own values, of each variant, and with everything on, by name.
///
/// # Errors
///
/// If Helm cannot be built, or refuses.
pub fn all() -> Result<Vec<(&'static str, String)>> {
    let helm = Helm::new()?;
    let mut all = vec![("the default", helm.template(&[], None)?)];
    for variant in VARIANTS {
        all.push((variant, helm.template(&[], Some(variant))?));
    }
    all.push(("everything on", helm.template(&["--set", EVERYTHING], None)?));
    Ok(all)
}

/// What the chart makes with these values.
///
/// # Errors
///
/// If Helm cannot be built, or refuses.
pub fn with(values: &[&str]) -> Result<String> {
    Helm::new()?.template(&["--set", &values.join(",")], None)
}

/// Fails if the base, or an overlay, is something else than the chart with the same values.
fn check_overlay(helm: &Helm, variant: Option<&str>) -> Result<()> {
    let kustomize = KUSTOMIZE.executable()?;
    let build = |folder: &Path| process::output(Command::new(&kustomize).arg("build").arg(folder));
    let overlay = variant.map_or_else(|| "base".to_owned(), |variant| format!("overlays/{variant}"));
    let chart = env::temp_dir().join(format!("schedspan-manifests-{}", system::id()));
    fs::create_dir_all(&chart)?;
    fs::write(chart.join("chart.yaml"), helm.template(&[], variant)?)?;
    fs::write(chart.join("kustomization.yaml"), "resources: [chart.yaml]\n")?;
    let of_the_chart = build(&chart);
    fs::remove_dir_all(&chart)?;
    let (built, of_the_chart) = (build(&folder().join(&overlay))?, of_the_chart?);
    let difference = built.lines().zip(of_the_chart.lines()).find(|(ours, chart)| ours != chart);
    ensure!(
        built == of_the_chart,
        "deploy/kustomize/{overlay} is not what the chart makes of the same values: {difference:?}"
    );
    Ok(())
}

/// Helm, and the chart.
struct Helm {
    executable: PathBuf,
    chart: PathBuf,
}

impl Helm {
    fn new() -> Result<Self> {
        let chart = paths::repository().join("deploy/chart/schedspan");
        Ok(Self { executable: HELM.executable()?, chart })
    }

    /// What the chart makes.
    fn template(&self, args: &[&str], variant: Option<&str>) -> Result<String> {
        let mut helm = Command::new(&self.executable);
        helm.args(["template", "schedspan", "--namespace", NAMESPACE]).args(self.version());
        helm.arg(&self.chart).args(args);
        if let Some(values) = variant.map(|variant| self.values(variant)) {
            helm.arg("--values").arg(values);
        }
        let rendered = process::output(&mut helm)?;
        // Where conditions leave gaps.
        let lines = rendered.lines().map(str::trim_end).filter(|line| !line.is_empty());
        Ok(lines.map(|line| format!("{line}\n")).collect())
    }

    fn lint(&self) -> Result<()> {
        let lint = |args: &[&str]| {
            let mut helm = Command::new(&self.executable);
            helm.args(["lint", "--strict", "--quiet"]).args(self.version()).arg(&self.chart).args(args);
            process::output(&mut helm).map(drop)
        };
        lint(&[])?;
        lint(&["--set", EVERYTHING])?;
        VARIANTS.iter().try_for_each(|variant| lint(&["--values", &self.values(variant).to_string_lossy()]))
    }

    /// Helm takes the cluster's version for an old one where it asks none.
    fn version(&self) -> [&'static str; 2] {
        ["--kube-version", SCHEDULER.version]
    }

    fn values(&self, variant: &str) -> PathBuf {
        self.chart.join(format!("variants/{variant}.yaml"))
    }
}

fn folder() -> PathBuf {
    paths::repository().join("deploy/kustomize")
}
