//! OpenTelemetry resources of traces.

use std::path::Path;

use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::resource::EnvResourceDetector;

use super::sdk::attribute;
use crate::{AttributeValue, Source, environment::variable};

/// The resource of a source, by OpenTelemetry's semantic conventions.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// The source of its traces.
    pub source: Source,
    /// Attributes by key.
    pub attributes: Vec<(&'static str, Value)>,
}

impl Resource {
    /// The resource of a source of which nothing else is known.
    #[must_use]
    pub fn unknown(source: Source) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let service = match source {
            Source::Process(_) => "kube-scheduler",
            Source::Schedspan => "schedspan",
        };
        let attributes = vec![
            ("service.name", service.into()),
            ("host.name", host.into()),
            ("telemetry.distro.name", "schedspan".into()),
            ("telemetry.distro.version", env!("CARGO_PKG_VERSION").into()),
        ];
        Self { source, attributes }
    }

    /// The resource of schedspan itself.
    #[must_use]
    pub fn of_schedspan() -> Self {
        let mut resource = Self::unknown(Source::Schedspan);
        resource.attributes.push(("service.version", env!("CARGO_PKG_VERSION").into()));
        resource
    }

    /// The resource of a traced process: its number, its process id, its executable in its own mount namespace, and the
    /// versions of Go and Kubernetes that it was built with.
    #[must_use]
    pub fn of_process(number: u32, pid: u32, executable: &Path, go: &str, kubernetes: Option<&str>) -> Self {
        let mut resource = Self::unknown(Source::Process(number));
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

    /// The resource for export. `OTEL_RESOURCE_ATTRIBUTES` overrides the attributes, and `OTEL_SERVICE_NAME` both.
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
