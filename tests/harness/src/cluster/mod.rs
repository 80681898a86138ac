//! A real control plane on this machine: etcd, kube-apiserver, kube-scheduler, kube-controller-manager and an
//! OpenTelemetry Collector, all on free ports of 127.0.0.1, all state in one folder.
//!
//! # Layout
//!
//! - here: what is started, in which order, with which flags
//! - `state`: the processes, as written down in the folder, and their end
//! - `guard`: their end when xtask ends otherwise
//! - `api`, `metrics`: what tests ask the cluster
//! - `command`: `cargo xtask cluster`

mod api;
pub mod command;
pub mod guard;
mod metrics;
pub mod state;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, DirBuilder, File},
    io::Read as _,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
pub use api::{Api, NodeSize, ZONE, agent, is_bound, is_unschedulable, objects, pod};
use guard::Guard;
pub use metrics::Metrics;
use serde_json::json;
pub use state::free_ports;
use state::{Environment, Ports, Process, State};
use xtask::{
    components::{APISERVER, COLLECTOR, CONTROLLER_MANAGER, Component, ETCD, SCHEDULER},
    paths,
};

/// What lets Pods be scheduled as groups: feature gates of API server and scheduler, and the group's API.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/features/kube_features.go>
const POD_GROUP_GATES: &str = "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true";
pub const POD_GROUP_API: &str = "scheduling.k8s.io/v1alpha2";

/// The user that the webhook of the chart is.
const WEBHOOK: &str = "schedspan-webhook";
/// In the cluster's folder.
const SCHEDULER_CONFIGURATION: &str = "scheduler.json";
/// How long a component may take until it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How often other ports are tried when somebody took one meanwhile.
const PORT_TRIES: usize = 5;
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What to start.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Options {
    /// Nodes to create: node-0001 and so on, each with 32 CPUs, 128Gi of memory and room for 110 Pods
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub nodes: u32,
    /// Requests a second that the scheduler may send, and as many in a burst (unset: its default, 50 and 100, which
    /// is a ceiling of 50 Pods a second)
    #[arg(long, value_name = "QPS")]
    pub scheduler_qps: Option<u32>,
    /// How much the scheduler logs
    #[arg(long, value_name = "V")]
    pub scheduler_verbosity: Option<u32>,
    /// Another kube-scheduler to run, of whatever version, with all rights
    #[arg(long, value_name = "FILE")]
    pub scheduler: Option<PathBuf>,
    /// Feature gates of the scheduler: `A=true,B=false`
    #[arg(long, value_name = "GATES")]
    pub scheduler_feature_gates: Option<String>,
    /// Profiles of the scheduler, as its configuration has them: one of default plugins only if there are none.
    #[arg(skip)]
    pub scheduler_profiles: Vec<serde_json::Value>,
    /// Lets Pods be scheduled as groups, which is an alpha feature of 1.36
    #[arg(long)]
    pub pod_groups: bool,
    /// Lets the API server make spans, of requests that carry a sampled context
    #[arg(long)]
    pub apiserver_tracing: bool,
    /// What a scheduler that makes spans itself does with them.
    #[arg(skip)]
    pub own_spans: OwnSpans,
    /// Without kube-controller-manager: nothing makes Pods for Deployments, or binds volume claims
    #[arg(long)]
    pub no_controllers: bool,
    /// Without the OpenTelemetry Collector
    #[arg(long)]
    pub no_collector: bool,
}

/// Spans that a scheduler of `cargo xtask peer` makes itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnSpans {
    /// None.
    #[default]
    None,
    /// They go to the cluster's Collector.
    Exported,
    /// The same, with the times of `CLOCK_MONOTONIC`, and without a wait of seconds before each batch.
    Timed,
}

/// A running cluster. It is taken down when it is dropped and when xtask ends, in whatever way, unless it is detached.
pub struct Cluster {
    dir: PathBuf,
    state: State,
    guard: Option<Guard>,
}

/// The cluster's scheduler.
pub struct Scheduler {
    pub pid: i32,
    pub executable: PathBuf,
    /// What it prints, over all its restarts.
    pub log: PathBuf,
    pub metrics_url: String,
}

impl Cluster {
    /// Builds what is not built yet and starts a cluster, with a line per step on stderr. All its state lies in `dir`,
    /// which must not exist yet, or be empty.
    ///
    /// # Errors
    ///
    /// If a component cannot be built or does not get ready, with the last lines of its log; if there is a cluster or
    /// something else in `dir`. What was started is taken down again.
    pub fn up(dir: &Path, options: &Options) -> Result<Self> {
        // All built first: a build takes minutes, in which nothing has to run.
        for component in [ETCD, APISERVER, SCHEDULER, CONTROLLER_MANAGER, COLLECTOR] {
            component.executable()?;
        }
        let dir = std::path::absolute(dir)?;
        prepare(&dir)?;
        let guard = Guard::start(&["guard".as_ref(), "--dir".as_ref(), dir.as_os_str()])?;
        let mut cluster = Self { guard: Some(guard), state: State::default(), dir };
        cluster.start_all(options)?;
        Ok(cluster)
    }

    /// Starts a cluster in a folder of its own, below the cache folder: as many xtasks as like can run at once.
    ///
    /// # Errors
    ///
    /// Those of [`up`](Self::up).
    pub fn fresh(options: &Options) -> Result<Self> {
        Self::up(&paths::cache()?.join(format!("run-{}", std::process::id())), options)
    }

    /// The running cluster in `dir`, for a look at it: dropping this one does not end it.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn open(dir: &Path) -> Result<Self> {
        let dir = std::path::absolute(dir)?;
        let state = State::load(&dir)?;
        let state = state.with_context(|| {
            format!("no cluster in {}: `cargo xtask cluster up` starts one", dir.display())
        })?;
        Ok(Self { dir, state, guard: None })
    }

    /// Takes the cluster down and says what went wrong with that, which a mere drop cannot.
    ///
    /// # Errors
    ///
    /// If a process does not end or the folder cannot be removed.
    pub fn down(mut self) -> Result<()> {
        let _guard = self.guard.take();
        state::down(&self.dir)
    }

    /// Lets the cluster run on after xtask: [`state::down`] ends it.
    ///
    /// # Errors
    ///
    /// If its guard is gone.
    pub fn detach(mut self) -> Result<()> {
        self.guard.take().map_or(Ok(()), Guard::release)
    }

    /// The folder of all its state: what is put there ends with the cluster.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        kubeconfig_path(&self.dir, "admin")
    }

    /// The kubeconfig of schedspan, with the rights that its manifest gives it.
    pub fn schedspan_kubeconfig(&self) -> PathBuf {
        kubeconfig_path(&self.dir, "schedspan")
    }

    /// The kubeconfig of the webhook, with the rights that its manifest gives it.
    pub fn webhook_kubeconfig(&self) -> PathBuf {
        kubeconfig_path(&self.dir, WEBHOOK)
    }

    /// Where the Collector takes OTLP over gRPC: `http://127.0.0.1:PORT`.
    ///
    /// # Errors
    ///
    /// If the cluster runs without Collector; so for [`otlp_http`](Self::otlp_http).
    pub fn otlp_grpc(&self) -> Result<String> {
        Ok(format!("http://127.0.0.1:{}", self.state.process(COLLECTOR.name)?.ports["grpc"]))
    }

    /// Where the Collector takes OTLP over HTTP: the base, without `/v1/traces`.
    pub fn otlp_http(&self) -> Result<String> {
        Ok(format!("http://127.0.0.1:{}", self.state.process(COLLECTOR.name)?.ports["http"]))
    }

    /// What the Collector received: a request in OTLP's JSON per line, 0.4 s later at most.
    pub fn spans_file(&self) -> PathBuf {
        self.dir.join("spans.jsonl")
    }

    /// The scheduler that runs now.
    ///
    /// # Errors
    ///
    /// If the cluster's state does not name it.
    pub fn scheduler(&self) -> Result<Scheduler> {
        self.scheduler_named(SCHEDULER.name)
    }

    /// The same of one that [`scheduler_beside`](Self::scheduler_beside) has started.
    ///
    /// # Errors
    ///
    /// If there is none of that name.
    pub fn scheduler_named(&self, name: &str) -> Result<Scheduler> {
        let Process { pid, argv, ports, log, .. } = self.state.process(name)?;
        Ok(Scheduler {
            pid: *pid,
            executable: PathBuf::from(&argv[0]),
            log: log.clone(),
            metrics_url: format!("https://127.0.0.1:{}/metrics", ports["https"]),
        })
    }

    /// A port that a process of the cluster listens on, by what it is for.
    ///
    /// # Errors
    ///
    /// If there is no such process or port.
    pub fn port(&self, process: &str, port: &str) -> Result<u16> {
        let port = self.state.process(process)?.ports.get(port);
        port.copied().with_context(|| format!("{process} has no such port"))
    }

    /// The cluster's etcd.
    ///
    /// # Errors
    ///
    /// If the cluster's state does not name it.
    pub fn etcd_pid(&self) -> Result<i32> {
        Ok(self.state.process(ETCD.name)?.pid)
    }

    /// Ends the scheduler and starts another one, with the same configuration and port.
    ///
    /// # Errors
    ///
    /// If the first does not end or the second does not get ready.
    pub fn restart_scheduler(&mut self) -> Result<()> {
        let Process { argv, environment, .. } = self.state.process(SCHEDULER.name)?;
        let (argv, environment) = (argv.clone(), environment.clone());
        self.start_another(argv, environment)
    }

    /// The same with another configuration.
    ///
    /// # Errors
    ///
    /// Those of [`restart_scheduler`](Self::restart_scheduler); if the configuration cannot be read or written.
    pub fn configure_scheduler(&mut self, change: impl FnOnce(&mut serde_json::Value)) -> Result<()> {
        self.write_configuration(SCHEDULER_CONFIGURATION, change)?;
        self.restart_scheduler()
    }

    /// The scheduler's configuration, changed, in a file of this name.
    fn write_configuration(
        &self,
        name: &str,
        change: impl FnOnce(&mut serde_json::Value),
    ) -> Result<PathBuf> {
        let mut configuration = serde_json::from_slice(&fs::read(self.dir.join(SCHEDULER_CONFIGURATION))?)?;
        change(&mut configuration);
        let path = self.dir.join(name);
        fs::write(&path, serde_json::to_vec_pretty(&configuration)?)?;
        Ok(path)
    }

    fn start_another(&mut self, argv: Vec<String>, environment: Environment) -> Result<()> {
        let position = self.state.processes.iter().position(|process| process.name == SCHEDULER.name);
        let Process { name, ports, health, .. } = {
            let position = position.context("this cluster runs no scheduler")?;
            self.state.processes[position].stop(state::GRACE)?;
            self.state.processes.remove(position)
        };
        self.start(&name, argv, environment, ports, health)
    }

    /// Starts another scheduler beside the cluster's own, for the Pods whose `schedulerName` is this name.
    ///
    /// # Errors
    ///
    /// If it does not get ready.
    pub fn scheduler_beside(&mut self, name: &str, executable: &Path, own_spans: OwnSpans) -> Result<()> {
        let configuration = self.configuration_beside(name)?;
        let own = self.state.process(SCHEDULER.name)?.argv.clone();
        let environment = self.environment(own_spans)?;
        self.launch_executable(name, executable, &environment, &["https"], |ports| {
            let port = ports["https"];
            let changed = [("--config", configuration.clone()), ("--secure-port", port.to_string())];
            (arguments(&own, &changed), format!("https://127.0.0.1:{port}/healthz"))
        })
    }

    /// The arguments of the cluster's own scheduler for one that runs elsewhere, for the Pods whose `schedulerName` is this
    /// name, on this port of all addresses. The files that they name are in the cluster's folder.
    ///
    /// # Errors
    ///
    /// If its configuration cannot be read or written.
    pub fn arguments_elsewhere(&self, name: &str, port: u16) -> Result<Vec<String>> {
        let changed = [
            ("--config", self.configuration_beside(name)?),
            ("--secure-port", port.to_string()),
            ("--bind-address", "0.0.0.0".to_owned()),
        ];
        Ok(arguments(&self.state.process(SCHEDULER.name)?.argv, &changed))
    }

    /// Writes the configuration of a scheduler for the Pods whose `schedulerName` is this name, and says where it is.
    fn configuration_beside(&self, name: &str) -> Result<String> {
        let only = |configuration: &mut serde_json::Value| {
            configuration["profiles"] = json!([{ "schedulerName": name }]);
        };
        Ok(self.write_configuration(&format!("{name}.json"), only)?.display().to_string())
    }

    /// What a scheduler that makes spans itself finds in its environment.
    fn environment(&self, own_spans: OwnSpans) -> Result<Environment> {
        if own_spans == OwnSpans::None {
            return Ok(Environment::new());
        }
        let endpoint = self.otlp_grpc()?;
        let mut list = vec![
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
            ("OTEL_SERVICE_NAME", SCHEDULER.name),
            // Its default of 2,048 loses most of what a burst makes, without a word.
            ("OTEL_BSP_MAX_QUEUE_SIZE", "65536"),
        ];
        if own_spans == OwnSpans::Timed {
            list.extend([("PEER_MONOTONIC", "true"), ("OTEL_BSP_SCHEDULE_DELAY", "500")]);
        }
        Ok(list.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// What the scheduler counts.
    ///
    /// # Errors
    ///
    /// If the scheduler does not answer, or with something else.
    pub fn scheduler_metrics(&self) -> Result<Metrics> {
        self.metrics_of(&self.scheduler()?)
    }

    /// What this one counts.
    ///
    /// # Errors
    ///
    /// Those of [`scheduler_metrics`](Self::scheduler_metrics).
    pub fn metrics_of(&self, scheduler: &Scheduler) -> Result<Metrics> {
        Metrics::read(&agent(&self.certificates())?, &scheduler.metrics_url)
    }

    /// The same as the scheduler writes it.
    ///
    /// # Errors
    ///
    /// If the scheduler does not answer.
    pub fn scheduler_metrics_text(&self) -> Result<String> {
        Metrics::text(&agent(&self.certificates())?, &self.scheduler()?.metrics_url)
    }

    /// A client of the API server.
    ///
    /// # Errors
    ///
    /// If the certificates or the token in the cluster's folder cannot be read.
    pub fn api(&self) -> Result<Api> {
        self.api_as(&self.kubeconfig())
    }

    /// The same with the rights of whom this kubeconfig is for.
    ///
    /// # Errors
    ///
    /// Those of [`api`](Self::api).
    pub fn api_as(&self, kubeconfig: &Path) -> Result<Api> {
        let kubeconfig: serde_json::Value = serde_json::from_slice(&fs::read(kubeconfig)?)?;
        let token = kubeconfig["users"][0]["user"]["token"].as_str().context("no token in the kubeconfig")?;
        Ok(Api::new(agent(&self.certificates())?, self.server()?, token))
    }

    /// Checks that every process still runs.
    ///
    /// # Errors
    ///
    /// If one does not: its name and the last lines of its log.
    pub fn check(&self) -> Result<()> {
        match self.state.processes.iter().find(|process| !process.alive()) {
            Some(process) => bail!("{} ended by itself; {}", process.name, process.log_tail()),
            None => Ok(()),
        }
    }

    fn start_all(&mut self, options: &Options) -> Result<()> {
        let dir = self.dir.clone();
        let path = |name: &str| dir.join(name).display().to_string();
        let url = |ports: &Ports, name: &str| format!("http://127.0.0.1:{}", ports[name]);

        // Before all those that may send spans there itself.
        if !options.no_collector {
            let spans = self.spans_file();
            self.launch(COLLECTOR, &["grpc", "http"], |ports| {
                let endpoint = |name: &str| json!({ "endpoint": format!("127.0.0.1:{}", ports[name]) });
                let configuration = json!({
                    "receivers": { "otlp": { "protocols": { "grpc": endpoint("grpc"), "http": endpoint("http") } } },
                    "processors": { "batch": { "timeout": "200ms" } },
                    "exporters": { "file": { "path": spans, "flush_interval": "200ms" } },
                    "service": {
                        "telemetry": { "metrics": { "level": "none" } },
                        "pipelines": {
                            "traces": { "receivers": ["otlp"], "processors": ["batch"], "exporters": ["file"] },
                        },
                    },
                });
                (vec![format!("--config=yaml:{configuration}")], url(ports, "http"))
            })?;
        }

        self.launch(ETCD, &["client", "peer"], |ports| {
            let (client, peer) = (url(ports, "client"), url(ports, "peer"));
            let args = vec![
                format!("--data-dir={}", path("etcd")),
                "--unsafe-no-fsync".into(),
                "--log-level=warn".into(),
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=default={peer}"),
            ];
            (args, format!("{client}/health"))
        })?;

        let etcd = url(&self.state.process(ETCD.name)?.ports, "client");
        let users = [
            ("admin", "admin", "system:masters"),
            // A newer scheduler watches more than the API server's own role lets it.
            (
                SCHEDULER.name,
                "system:kube-scheduler",
                if options.scheduler.is_some() { "system:masters" } else { "" },
            ),
            (CONTROLLER_MANAGER.name, "system:kube-controller-manager", ""),
            // What the manifest in deploy/ grants, and nothing else.
            ("schedspan", "system:serviceaccount:kube-system:schedspan", ""),
            (WEBHOOK, "system:serviceaccount:kube-system:schedspan-webhook", ""),
        ];
        let tokens = users.map(|_| random_token()).into_iter().collect::<Result<Vec<_>>>()?;
        let rows = users.iter().zip(&tokens).map(|((name, user, group), token)| match *group {
            "" => format!("{token},{user},{name}\n"),
            group => format!("{token},{user},{name},{group}\n"),
        });
        fs::write(dir.join("tokens.csv"), rows.collect::<String>())?;
        // The API server makes this key and its certificate by itself; nothing speaks against signing tokens with it.
        let key = path("apiserver.key");
        let tracing = if options.apiserver_tracing {
            let endpoint = self.otlp_grpc()?;
            let configuration = json!({
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "TracingConfiguration",
                "endpoint": endpoint.trim_start_matches("http://"),
                "samplingRatePerMillion": 0,
            });
            fs::write(path("tracing.json"), serde_json::to_vec_pretty(&configuration)?)?;
            Some(format!("--tracing-config-file={}", path("tracing.json")))
        } else {
            None
        };
        self.launch(APISERVER, &["https"], |ports| {
            let mut args = vec![
                format!("--etcd-servers={etcd}"),
                "--bind-address=127.0.0.1".into(),
                "--advertise-address=127.0.0.1".into(),
                format!("--secure-port={}", ports["https"]),
                format!("--cert-dir={}", dir.display()),
                format!("--token-auth-file={}", path("tokens.csv")),
                "--authorization-mode=RBAC".into(),
                // As every installation has it.
                "--allow-privileged".into(),
                "--service-account-issuer=https://kubernetes.default.svc".into(),
                format!("--service-account-key-file={key}"),
                format!("--service-account-signing-key-file={key}"),
                "--service-cluster-ip-range=10.96.0.0/16".into(),
                // Without the controllers for these no Pod would be admitted and every new node would be tainted.
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".into(),
                "--endpoint-reconciler-type=none".into(),
                // Under load it must not be the one that holds back.
                "--enable-priority-and-fairness=false".into(),
                "--max-requests-inflight=0".into(),
                "--max-mutating-requests-inflight=0".into(),
            ];
            args.extend(tracing.clone());
            if options.pod_groups {
                args.push(format!("--feature-gates={POD_GROUP_GATES}"));
                args.push(format!("--runtime-config={POD_GROUP_API}=true"));
            }
            (args, format!("https://127.0.0.1:{}/readyz", ports["https"]))
        })?;
        let server = self.server()?;
        for ((name, ..), token) in users.iter().zip(&tokens) {
            write_kubeconfig(&dir, name, &server, token, &self.certificates())?;
        }
        let api = self.api()?;
        // An administrator's answer: nobody else gets one before the built-in roles are there, which the others need.
        wait_until("the API server's own objects", READY_TIMEOUT, || {
            let objects = ["/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"]
                .map(|path| api.get(path));
            Ok(objects.iter().all(Result::is_ok).then_some(()))
        })?;
        let rbac = objects(include_str!("../../../../deploy/kustomize/base/rbac.yaml"));
        rbac.iter().try_for_each(|object| api.apply(object, false))?;

        // Both serve with the API server's certificate: whoever trusts that one trusts them.
        let serve = |ports: &Ports| {
            vec![
                "--bind-address=127.0.0.1".into(),
                format!("--secure-port={}", ports["https"]),
                format!("--tls-cert-file={}", path("apiserver.crt")),
                format!("--tls-private-key-file={key}"),
                "--authentication-skip-lookup".into(),
                "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics".into(),
            ]
        };
        let health = |ports: &Ports| format!("https://127.0.0.1:{}/healthz", ports["https"]);
        let mut connection = json!({ "kubeconfig": kubeconfig_path(&dir, SCHEDULER.name) });
        if let Some(qps) = options.scheduler_qps {
            connection["qps"] = qps.into();
            connection["burst"] = qps.into();
        }
        let configuration = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": connection,
            "profiles": options.scheduler_profiles,
            "leaderElection": { "leaderElect": false },
        });
        fs::write(dir.join(SCHEDULER_CONFIGURATION), serde_json::to_vec_pretty(&configuration)?)?;
        let mut own = vec![format!("--config={}", path(SCHEDULER_CONFIGURATION))];
        own.extend(options.scheduler_verbosity.iter().map(|verbosity| format!("--v={verbosity}")));
        let groups = options.pod_groups.then_some(POD_GROUP_GATES);
        let gates = options.scheduler_feature_gates.as_deref().into_iter().chain(groups);
        own.extend(gates.map(|gates| format!("--feature-gates={gates}")));
        let executable = match &options.scheduler {
            Some(executable) => executable.clone(),
            None => SCHEDULER.executable()?,
        };
        let environment = self.environment(options.own_spans)?;
        self.launch_executable(SCHEDULER.name, &executable, &environment, &["https"], |ports| {
            ([own.clone(), serve(ports)].concat(), health(ports))
        })?;

        if !options.no_controllers {
            let kubeconfig = kubeconfig_path(&dir, CONTROLLER_MANAGER.name);
            let own = vec![
                format!("--kubeconfig={}", kubeconfig.display()),
                "--leader-elect=false".into(),
                format!("--service-account-private-key-file={key}"),
                "--use-service-account-credentials=true".into(),
                "--controllers=deployment-controller,replicaset-controller,job-controller,garbage-collector-controller,\
                 namespace-controller,persistentvolume-binder-controller"
                    .into(),
            ];
            self.launch(CONTROLLER_MANAGER, &["https"], |ports| {
                ([own.clone(), serve(ports)].concat(), health(ports))
            })?;
        }

        for number in 1..=options.nodes {
            api.create_node(&format!("node-{number:04}"), NodeSize::default())?;
        }
        if options.nodes > 0 {
            eprintln!("created  {} nodes", options.nodes);
        }
        Ok(())
    }

    /// Starts a component on free ports, on others if one is taken meanwhile. `arguments` gives its arguments and the
    /// URL that answers once it is ready.
    fn launch(
        &mut self,
        component: Component,
        ports: &[&str],
        arguments: impl Fn(&Ports) -> (Vec<String>, String),
    ) -> Result<()> {
        self.launch_executable(
            component.name,
            &component.executable()?,
            &Environment::new(),
            ports,
            arguments,
        )
    }

    /// The same with any executable, under this name.
    pub fn launch_executable(
        &mut self,
        name: &str,
        executable: &Path,
        environment: &Environment,
        ports: &[&str],
        arguments: impl Fn(&Ports) -> (Vec<String>, String),
    ) -> Result<()> {
        let executable = executable.display().to_string();
        for tries in 1.. {
            let ports = free_ports(ports)?;
            let (arguments, health) = arguments(&ports);
            let argv = [vec![executable.clone()], arguments].concat();
            let Err(error) = self.start(name, argv, environment.clone(), ports, health) else { break };
            if tries == PORT_TRIES || !error.to_string().contains("address already in use") {
                return Err(error);
            }
            if let Some(process) = self.state.processes.pop() {
                process.stop(state::GRACE)?;
                fs::remove_file(process.log)?;
            }
        }
        Ok(())
    }

    /// Starts a process, writes it down and waits until it is ready.
    fn start(
        &mut self,
        name: &str,
        argv: Vec<String>,
        environment: Environment,
        ports: Ports,
        health: String,
    ) -> Result<()> {
        let start = Instant::now();
        self.state.processes.push(Process::start(&self.dir, name, argv, environment, ports, health)?);
        self.state.save(&self.dir)?;
        let process = self.state.process(name)?;
        let ask = |health: &str| agent(&self.certificates()).map(|agent| agent.get(health));
        wait_until(&format!("an answer of {name} at {}", process.health), READY_TIMEOUT, || {
            ensure!(process.alive(), "{name} ended by itself");
            // Not ready is 5xx. The Collector answers 404: it is not a page that is asked for, but whether it listens.
            let answer = ask(&process.health)?.call();
            Ok(answer.ok().filter(|answer| !answer.status().is_server_error()))
        })
        .map_err(|error| anyhow!("{error:#}; {}", process.log_tail()))?;
        let ports: Vec<_> = process.ports.values().map(ToString::to_string).collect();
        let ready = start.elapsed().as_secs_f32();
        eprintln!("started  {name}, pid {}, port {}, ready in {ready:.1} s", process.pid, ports.join(", "));
        Ok(())
    }

    /// The certificate that the API server made for itself, together with the authority it made for that.
    pub fn certificates(&self) -> PathBuf {
        self.dir.join("apiserver.crt")
    }

    fn server(&self) -> Result<String> {
        Ok(format!("https://127.0.0.1:{}", self.state.process(APISERVER.name)?.ports["https"]))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.guard.is_some()
            && let Err(error) = state::down(&self.dir)
        {
            eprintln!("the cluster in {} is not down: {error:#}", self.dir.display());
        }
    }
}

/// Asks `probe` until it has an answer.
///
/// # Errors
///
/// If `probe` fails, or has no answer within `timeout`: then the error says that it waited for `what`.
pub fn wait_until<T>(
    what: &str,
    timeout: Duration,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = probe()? {
            return Ok(answer);
        }
        ensure!(start.elapsed() < timeout, "waited {} s in vain for {what}", timeout.as_secs());
        thread::sleep(POLL_INTERVAL);
    }
}

/// The arguments of a command line, with these flags' values in the place of their own.
fn arguments(argv: &[String], changed: &[(&str, String)]) -> Vec<String> {
    let argument = |argument: &String| {
        let flag = argument.split_once('=').map_or(argument.as_str(), |(flag, _)| flag);
        let value = changed.iter().find(|(name, _)| *name == flag);
        value.map_or_else(|| argument.clone(), |(_, value)| format!("{flag}={value}"))
    };
    argv[1..].iter().map(argument).collect()
}

/// Makes the cluster's folder, readable for its user only, in the place of one whose cluster has ended.
fn prepare(dir: &Path) -> Result<()> {
    if let Some(state) = State::load(dir)? {
        if state.processes.iter().any(Process::alive) {
            bail!("a cluster runs in {}: `cargo xtask cluster down` ends it", dir.display());
        }
        state::down(dir)?;
    }
    let shown = dir.display();
    let empty = !dir.exists() || fs::read_dir(dir)?.next().is_none();
    ensure!(empty, "{shown} is not empty and holds no cluster: give another --dir");
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot create {shown}"))?;
    // From here on the folder is ours to remove.
    State::default().save(dir)
}

fn kubeconfig_path(dir: &Path, user: &str) -> PathBuf {
    dir.join(format!("{user}.kubeconfig"))
}

fn write_kubeconfig(dir: &Path, user: &str, server: &str, token: &str, certificates: &Path) -> Result<()> {
    let name = "schedspan";
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": name, "cluster": { "server": server, "certificate-authority": certificates } }],
        "users": [{ "name": user, "user": { "token": token } }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": user } }],
        "current-context": name,
    });
    fs::write(kubeconfig_path(dir, user), serde_json::to_vec_pretty(&kubeconfig)?)?;
    Ok(())
}

/// 128 random bits, in hexadecimal.
fn random_token() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}
