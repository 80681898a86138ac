//! `cargo xtask manifests`: renders the plain manifests under `deploy/kustomize` from the Helm chart, with Helm.
//!
//! The base is the chart with its default values. Each overlay corresponds to a values file under `variants`, and is written by
//! hand, because readers want to see a patch of a few lines. A check compares the two in kustomize's normal form.

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

/// The namespace of the base and the overlays.
const NAMESPACE: &str = "kube-system";
/// The names of values files in the chart and of overlays.
const VARIANTS: [&str; 5] = ["endpoint", "privileged", "least-privilege", "openshift", "webhook"];
/// The files that are rendered and committed, each with its template and variant.
const RENDERED: [(&str, &str, Option<&str>); 7] = [
    ("base/rbac.yaml", "rbac.yaml", None),
    ("base/daemonset.yaml", "daemonset.yaml", None),
    ("base/service.yaml", "service.yaml", None),
    ("overlays/least-privilege/networkpolicy.yaml", "networkpolicy.yaml", Some("least-privilege")),
    ("overlays/openshift/scc.yaml", "scc.yaml", Some("openshift")),
    ("overlays/webhook/webhook.yaml", "webhook.yaml", Some("webhook")),
    ("overlays/webhook/policies.yaml", "webhook-policies.yaml", Some("webhook")),
];
/// Values that turn on everything that is off by default, for checks.
const EVERYTHING: &str = "serviceMonitor.enabled=true,podMonitor.enabled=true,fullnameOverride=spans,nameOverride=spans,prometheusRule.enabled=true,dashboard.enabled=true,\
    networkPolicy.enabled=true,collector.enabled=true,openshift.enabled=true,queueSpans=true,lifecycle=true,hostNetwork=true,\
    context.annotations={traceparent},context.mode=parent,context.baggage={user},context.owners=true,reinject.enabled=true,webhook.enabled=true,webhook.templates=true,\
    webhook.unsampled=true,webhook.hostNetwork=true,\
    webhook.certificateSecret=tls,webhook.annotations.a=b,webhook.clientCASecret.name=clients,keep={failed},trust.namespaces={kube-system,other},\
    rbac.users.subjects[0].kind=Group,rbac.users.subjects[0].name=platform,rbac.users.subjects[0].apiGroup=rbac.authorization.k8s.io,\
    rights=sysAdmin,otlp.headersSecret.name=token,otlp.resourceAttributes.a=b,otlp.tls.caSecret.name=ca,otlp.tls.clientSecret.name=client,\
    extraVolumes[0].name=token,extraVolumeMounts[0].name=token,extraVolumeMounts[0].mountPath=/token,imagePullSecrets[0].name=registry,\
    extraObjects[0].apiVersion=v1,extraObjects[0].kind=ConfigMap,extraObjects[0].metadata.name=extra";

/// Values, and lines that the chart then has, or with `!` does not have: each anywhere in what is rendered.
const CASES: [(&str, &[&str]); 19] = [
    (
        "otlp.endpoint=http://c:4317",
        &[
            "{name: OTEL_EXPORTER_OTLP_ENDPOINT, value: \"http://c:4317\"}",
            "!{name: OTEL_TRACES_EXPORTER, value: none}",
        ],
    ),
    (
        "detail=phases",
        &[
            "- --detail=phases",
            "{name: OTEL_TRACES_EXPORTER, value: none}",
            "!kind: PodMonitor",
            "!kind: NetworkPolicy",
        ],
    ),
    (
        "fullnameOverride=spans",
        &[
            "name: spans",
            "name: spans-doctor",
            "app.kubernetes.io/name: schedspan-doctor",
            "app.kubernetes.io/name: schedspan",
        ],
    ),
    (
        "nameOverride=spans",
        &[
            "name: schedspan-spans",
            "app.kubernetes.io/name: spans",
            "!app.kubernetes.io/name: schedspan",
            // What `kubectl schedspan` looks for.
            "app.kubernetes.io/component: daemon",
            "app.kubernetes.io/part-of: schedspan",
        ],
    ),
    (
        "namespaceOverride=other,webhook.enabled=true,podMonitor.enabled=true,collector.enabled=true",
        &[
            "namespace: other",
            "- --host=schedspan-webhook.other.svc",
            "service: {name: schedspan-webhook, namespace: other, path: /inject, port: 443}",
        ],
    ),
    (
        "podLabels.team=platform,podAnnotations.a=b,priorityClassName=high,hostNetwork=true",
        &["team: platform", "a: b", "priorityClassName: high", "hostNetwork: true"],
    ),
    (
        "rbac.create=false,serviceAccount.create=false,serviceAccount.name=mine",
        &["serviceAccountName: mine", "!kind: ClusterRole", "!kind: ServiceAccount"],
    ),
    (
        "reinject.enabled=true,context.owners=true",
        &["verbs: [patch]", "resources: [cronjobs, jobs]", "- --reinject"],
    ),
    ("nodes=workers", &["operator: DoesNotExist", "{name: SCHEDSPAN_PROGRAM, value: \"kubelet\"}"]),
    ("nodes=all", &["{name: SCHEDSPAN_PROGRAM, value: \"kube-scheduler,kubelet\"}", "!affinity:"]),
    (
        "nodes=workers,affinity.podAffinity.a=b",
        &["{name: SCHEDSPAN_PROGRAM, value: \"kubelet\"}", "podAffinity:", "!nodeAffinity:"],
    ),
    ("rights=sysAdmin", &["add: [\"BPF\",\"PERFMON\",\"SYS_PTRACE\",\"SYS_ADMIN\"]", "!privileged: true"]),
    ("rights=privileged", &["privileged: true", "!allowPrivilegeEscalation: false"]),
    (
        "podMonitor.enabled=true,webhook.enabled=true",
        &[
            "kind: PodMonitor",
            "name: schedspan-webhook",
            "kind: PodDisruptionBudget",
            "!kind: ServiceMonitor",
        ],
    ),
    ("networkPolicy.enabled=true,webhook.enabled=true", &["kind: NetworkPolicy", "- {port: https}"]),
    (
        "webhook.enabled=true,webhook.podDisruptionBudget.enabled=false",
        &["kind: Deployment", "!kind: PodDisruptionBudget"],
    ),
    (
        "extraObjects[0].kind=ConfigMap,extraObjects[0].metadata.name=x-{{ .Release.Name }}",
        &["name: x-schedspan"],
    ),
    (
        "extraVolumes[0].name=a,extraVolumeMounts[0].name=b,extraVolumeMounts[0].mountPath=/b",
        &["- name: a", "mountPath: /b"],
    ),
    (
        "prometheusRule.enabled=true",
        &["expr: absent(schedspan_schedulers)", "!expr: absent(schedspan_build_info)"],
    ),
];

#[derive(clap::Args)]
pub struct Options {
    /// Change nothing; fail if a file differs from the chart
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
        "differ from the chart: {}; `cargo xtask manifests` renders them",
        differing.join(", ")
    );
    helm.lint()?;
    CASES.iter().try_for_each(|(values, lines)| helm.check(values, lines))?;
    for variant in [None].into_iter().chain(VARIANTS.map(Some)) {
        check_overlay(&helm, variant)?;
    }
    Ok(())
}

/// The chart rendered with its default values, with each variant, and with everything on, by name.
///
/// # Errors
///
/// If Helm cannot be built or fails.
pub fn all() -> Result<Vec<(&'static str, String)>> {
    let helm = Helm::new()?;
    let mut all = vec![("the default", helm.template(&[], None)?)];
    for variant in VARIANTS {
        all.push((variant, helm.template(&[], Some(variant))?));
    }
    all.push(("everything on", helm.template(&["--set", EVERYTHING], None)?));
    Ok(all)
}

/// The chart rendered with these values.
///
/// # Errors
///
/// If Helm cannot be built or fails.
pub fn with(values: &[&str]) -> Result<String> {
    Helm::new()?.template(&["--set", &values.join(",")], None)
}

/// Fails if the base or an overlay differs from the chart with the same values.
fn check_overlay(helm: &Helm, variant: Option<&str>) -> Result<()> {
    let kustomize = KUSTOMIZE.executable()?;
    let build = |folder: &Path| process::output(Command::new(&kustomize).arg("build").arg(folder));
    let overlay = variant.map_or_else(|| "base".to_owned(), |variant| format!("overlays/{variant}"));
    let chart = env::temp_dir().join(format!("schedspan-manifests-{}", system::id()));
    fs::create_dir_all(&chart)?;
    fs::write(chart.join("chart.yaml"), helm.template(&["--skip-tests"], variant)?)?;
    fs::write(chart.join("kustomization.yaml"), "resources: [chart.yaml]\n")?;
    let of_the_chart = build(&chart);
    fs::remove_dir_all(&chart)?;
    let (built, of_the_chart) = (build(&folder().join(&overlay))?, of_the_chart?);
    let difference = built.lines().zip(of_the_chart.lines()).find(|(ours, chart)| ours != chart);
    ensure!(
        built == of_the_chart,
        "deploy/kustomize/{overlay} differs from the chart with the same values: {difference:?}"
    );
    Ok(())
}

struct Helm {
    executable: PathBuf,
    chart: PathBuf,
}

impl Helm {
    fn new() -> Result<Self> {
        let chart = paths::repository().join("deploy/chart/schedspan");
        Ok(Self { executable: HELM.executable()?, chart })
    }

    /// Renders the chart.
    fn template(&self, args: &[&str], variant: Option<&str>) -> Result<String> {
        let mut helm = Command::new(&self.executable);
        helm.args(["template", "schedspan", "--namespace", NAMESPACE]).args(self.version());
        helm.arg(&self.chart).args(args);
        if let Some(values) = variant.map(|variant| self.values(variant)) {
            helm.arg("--values").arg(values);
        }
        let rendered = process::output(&mut helm)?;
        // Conditions leave blank lines.
        let lines = rendered.lines().map(str::trim_end).filter(|line| !line.is_empty());
        Ok(lines.map(|line| format!("{line}\n")).collect())
    }

    /// Fails if the chart with these values lacks a line, or has one with `!` before it.
    fn check(&self, values: &str, lines: &[&str]) -> Result<()> {
        let rendered = self.template(&["--set", values], None)?;
        for line in lines {
            let wanted = line.strip_prefix('!').unwrap_or(line);
            let there =
                rendered.lines().any(|found| found.trim() == wanted || found.trim() == format!("- {wanted}"));
            ensure!(there != line.starts_with('!'), "with `{values}`: `{line}` does not hold");
        }
        Ok(())
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

    /// Without a cluster Helm assumes an old version.
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
