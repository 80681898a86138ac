//! What produced a trace, as OpenTelemetry's resource.

use std::path::Path;

use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::resource::EnvResourceDetector;

use super::sdk::attribute;
use crate::{AttributeValue, TARGET, environment::variable};

/// A scheduler process, by OpenTelemetry's semantic conventions.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// The number that its traces carry: [`Trace::target`](crate::Trace::target).
    pub target: u32,
    /// Attributes by key.
    pub attributes: Vec<(&'static str, Value)>,
}

impl Resource {
    /// What can be said of any scheduler on this machine.
    #[must_use]
    pub fn unknown(target: u32) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let attributes = vec![
            ("service.name", "kube-scheduler".into()),
            ("host.name", host.into()),
            ("telemetry.distro.name", "schedspan".into()),
            ("telemetry.distro.version", env!("CARGO_PKG_VERSION").into()),
        ];
        Self { target, attributes }
    }

    /// What tells the lives of Pods: no scheduler, but schedspan itself.
    #[must_use]
    pub fn of_lives() -> Self {
        let mut resource = Self::unknown(TARGET);
        for (key, value) in &mut resource.attributes {
            if *key == "service.name" {
                *value = "schedspan".into();
            }
        }
        resource.attributes.push(("service.version", env!("CARGO_PKG_VERSION").into()));
        resource
    }

    /// What can be said of a process: its id, its executable as it names it itself, and what its build says
    /// of Go and Kubernetes.
    #[must_use]
    pub fn of_process(target: u32, pid: u32, executable: &Path, go: &str, kubernetes: Option<&str>) -> Self {
        let mut resource = Self::unknown(target);
        let name = executable.file_name().unwrap_or_default().to_string_lossy().into_owned();
        resource.attributes.extend([
            ("process.pid", i64::from(pid).into()),
            ("process.executable.name", name.into()),
            ("process.executable.path", executable.to_string_lossy().into_owned().into()),
            ("process.runtime.name", "go".into()),
            ("process.runtime.version", go.to_owned().into()),
        ]);
        if let Some(version) = kubernetes {
            for key in ["service.version", "k8s.scheduler.version"] {
                resource.attributes.push((key, version.to_owned().into()));
            }
        }
        resource
    }

    /// With further attributes.
    #[must_use]
    pub fn with(mut self, further: Vec<(&'static str, AttributeValue)>) -> Self {
        self.attributes.extend(further.into_iter().map(|(key, value)| (key, attribute(value))));
        self
    }

    /// The attributes; over them what `OTEL_RESOURCE_ATTRIBUTES` says, and over that `OTEL_SERVICE_NAME`.
    pub(super) fn to_sdk(&self) -> opentelemetry_sdk::Resource {
        let attributes = self.attributes.iter().map(|(key, value)| KeyValue::new(*key, value.clone()));
        let name = variable("OTEL_SERVICE_NAME").map(|name| KeyValue::new("service.name", name));
        opentelemetry_sdk::Resource::builder_empty()
            .with_attributes(attributes)
            .with_detector(Box::new(EnvResourceDetector::new()))
            .with_attributes(name)
            .build()
    }
}
