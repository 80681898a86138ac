//! OpenTelemetry resources of traces.

use std::{borrow::Cow, path::Path, sync::Arc};

use percent_encoding::percent_decode_str;

use super::otlp::encode;
use crate::{AttributeValue, Source, environment::variable};

/// The resource of a source, by OpenTelemetry's semantic conventions.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// The source of its traces.
    pub source: Source,
    /// Attributes by key.
    pub attributes: Vec<(&'static str, AttributeValue)>,
}

impl Resource {
    /// The resource of a source of which nothing else is known.
    #[must_use]
    pub fn unknown(source: Source) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let service = match source {
            Source::Process(_) => "kube-scheduler",
            Source::OtherProgram(_) => "unknown_service",
            Source::Schedspan => "schedspan",
        };
        let attributes = vec![
            ("service.name", service.into()),
            ("host.name", host.as_str().into()),
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

    /// The resource of a scheduler's process: its number, its process id, its executable in its own mount namespace, and the
    /// versions of Go and Kubernetes that it was built with.
    #[must_use]
    pub fn of_process(number: u32, pid: u32, executable: &Path, go: &str, kubernetes: Option<&str>) -> Self {
        let mut resource = Self::unknown(Source::Process(number));
        let name = executable.file_name().unwrap_or_default().to_string_lossy();
        resource.attributes.extend([
            ("process.pid", u64::from(pid).into()),
            ("process.executable.name", (&*name).into()),
            ("process.executable.path", (&*executable.to_string_lossy()).into()),
            ("process.runtime.name", "go".into()),
            ("process.runtime.version", go.into()),
        ]);
        if let Some(version) = kubernetes {
            for key in ["service.version", "k8s.scheduler.version"] {
                resource.attributes.push((key, version.into()));
            }
        }
        resource
    }

    /// That of whatever else the process runs: the service is named after the executable.
    #[must_use]
    pub fn of_other_program(mut self) -> Self {
        if let Source::Process(number) = self.source {
            self.source = Source::OtherProgram(number);
        }
        let executable = self.attributes.iter().find(|(key, _)| *key == "process.executable.name");
        let name = executable.map(|(_, name)| name.clone());
        self.attributes.retain(|(key, _)| *key != "k8s.scheduler.version");
        let service = self.attributes.iter_mut().find(|(key, _)| *key == "service.name");
        if let (Some((_, service)), Some(name)) = (service, name) {
            *service = name;
        }
        self
    }

    /// With further attributes.
    #[must_use]
    pub fn with(mut self, further: Vec<(&'static str, AttributeValue)>) -> Self {
        self.attributes.extend(further);
        self
    }

    /// Its bytes for export. `OTEL_RESOURCE_ATTRIBUTES` overrides the attributes, and `OTEL_SERVICE_NAME` both.
    #[must_use]
    pub fn encode(&self) -> Arc<[u8]> {
        self.encode_with(variable("OTEL_RESOURCE_ATTRIBUTES"), variable("OTEL_SERVICE_NAME"))
    }

    fn encode_with(&self, further: Option<String>, name: Option<String>) -> Arc<[u8]> {
        let mut all: Vec<(&str, Cow<'_, AttributeValue>)> = Vec::new();
        let own = self.attributes.iter().map(|(key, value)| (*key, Cow::Borrowed(value)));
        let further = further.unwrap_or_default();
        let of_environment =
            further.split(',').filter_map(|entry| entry.split_once('=')).map(|(key, value)| {
                let value = percent_decode_str(value.trim()).decode_utf8_lossy();
                (key.trim(), Cow::Owned(AttributeValue::from(&*value)))
            });
        let name = name.map(|name| ("service.name", Cow::Owned(AttributeValue::from(&*name))));
        for (key, value) in own.chain(of_environment).chain(name) {
            match all.iter_mut().find(|(known, _)| *known == key) {
                Some(known) => known.1 = value,
                None => all.push((key, value)),
            }
        }
        encode::resource(all.iter().map(|(key, value)| (*key, &**value)))
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::{common::v1::any_value::Value, trace::v1::ResourceSpans};
    use prost::Message as _;

    use super::*;

    fn attributes(further: Option<&str>, name: Option<&str>) -> Vec<(String, String)> {
        let resource =
            Resource::of_process(7, 42, "/usr/bin/kube-scheduler".as_ref(), "go1.26.4", Some("v1.36.4"));
        let bytes = resource.encode_with(further.map(str::to_owned), name.map(str::to_owned));
        let resource = ResourceSpans::decode(&*bytes).unwrap().resource.unwrap();
        let text = |value| match value {
            Value::StringValue(text) => text,
            Value::IntValue(number) => number.to_string(),
            other => panic!("{other:?}"),
        };
        let pair = |pair: opentelemetry_proto::tonic::common::v1::KeyValue| {
            (pair.key, text(pair.value.unwrap().value.unwrap()))
        };
        resource.attributes.into_iter().map(pair).filter(|(key, _)| key != "host.name").collect()
    }

    #[test]
    fn a_resource_identifies_its_process() {
        let expected = [
            ("service.name", "kube-scheduler"),
            ("telemetry.distro.name", "schedspan"),
            ("telemetry.distro.version", env!("CARGO_PKG_VERSION")),
            ("process.pid", "42"),
            ("process.executable.name", "kube-scheduler"),
            ("process.executable.path", "/usr/bin/kube-scheduler"),
            ("process.runtime.name", "go"),
            ("process.runtime.version", "go1.26.4"),
            ("service.version", "v1.36.4"),
            ("k8s.scheduler.version", "v1.36.4"),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(attributes(None, None), expected);
    }

    #[test]
    fn another_program_is_named_after_its_executable() {
        let scheduler = Resource::of_process(7, 42, "/usr/bin/kubelet".as_ref(), "go1.26.4", Some("v1.36.4"));
        let has = |resource: &Resource, key| resource.attributes.iter().any(|(known, _)| *known == key);
        let kubelet = scheduler.clone().of_other_program();
        assert_eq!((scheduler.source, kubelet.source), (Source::Process(7), Source::OtherProgram(7)));
        let services: Vec<_> = kubelet
            .attributes
            .iter()
            .filter(|(key, _)| *key == "service.name")
            .map(|(_, name)| name)
            .collect();
        assert_eq!(services, [&AttributeValue::from("kubelet")]);
        assert!(has(&kubelet, "service.version") && !has(&kubelet, "k8s.scheduler.version"));
        assert_eq!(kubelet.attributes.len() + 1, scheduler.attributes.len());
    }

    #[test]
    fn the_environment_overrides_attributes_and_adds_others() {
        let further = "service.name=a, k8s.cluster.name = prod%2C%20east ,nonsense,process.pid=43";
        for (name, expected) in [(None, "a"), (Some("b"), "b")] {
            let all = attributes(Some(further), name);
            for (key, expected) in
                [("service.name", expected), ("k8s.cluster.name", "prod, east"), ("process.pid", "43")]
            {
                let values: Vec<_> =
                    all.iter().filter(|(known, _)| known == key).map(|(_, value)| value).collect();
                assert_eq!(values, [expected], "{key}");
            }
        }
    }
}
