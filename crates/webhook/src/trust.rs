//! The API server's trust: each replica writes its certificates into the bundle of the webhook's own configuration, and checks
//! regularly that they are still there.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use pods::api::FIELD_MANAGER;
use serde_json::{Value, json};
use spans::text::sentence;
use status::Health;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::certificate::{Certificate, Served, bundle_with};
use crate::{Metrics, Patched};

/// Fraction of its validity after which a certificate is replaced.
const REPLACED_AT: f64 = 2.0 / 3.0;
/// Checks of the bundle per validity, at least one per minute.
const LOOKS: u32 = 40;
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(2);
/// Timeout of all requests of one check: a request without an answer must not delay the replacement of a certificate.
const ANSWER: Duration = Duration::from_secs(30);
/// Most conflicts with other replicas in one check.
const TRIES: usize = 10;

/// Replaces certificates in time, and keeps them trusted.
pub(super) struct Keeper {
    pub(super) api: Api<MutatingWebhookConfiguration>,
    /// Name of the configuration.
    pub(super) name: String,
    /// Names and addresses of a certificate.
    pub(super) hosts: Vec<String>,
    pub(super) lifetime: Duration,
    pub(super) served: Served,
    pub(super) metrics: Metrics,
    pub(super) health: Health,
}

impl Keeper {
    /// Runs until it is dropped.
    ///
    /// # Errors
    ///
    /// When a certificate cannot be made.
    pub(super) async fn keep(self, mut current: Certificate) -> Result<()> {
        let pause = (self.lifetime / LOOKS).min(LONGEST_PAUSE);
        // The next certificate, and when it was added to the bundle.
        let mut next: Option<(Certificate, Option<Instant>)> = None;
        let (mut ready, mut said) = (false, String::new());
        loop {
            if next.is_none() && current.made.elapsed() >= self.lifetime.mul_f64(REPLACED_AT) {
                next = Some((Certificate::new(&self.hosts, self.lifetime)?, None));
            }
            let own: Vec<&str> = [Some(&current), next.as_ref().map(|(next, _)| next)]
                .into_iter()
                .flatten()
                .map(|own| &*own.pem)
                .collect();
            let trusted = timeout(ANSWER, self.ensure(&own)).await.unwrap_or_else(|_| {
                self.metrics.wrote(Patched::Failed);
                Err(anyhow!("the API server has not answered in {ANSWER:?}; check that it runs"))
            });
            match &trusted {
                Ok(()) => {
                    if !said.is_empty() {
                        info!("the API server takes the certificate again");
                        said.clear();
                    }
                    ready = true;
                    self.health.set_ready(Ok(()));
                    if let Some((_, since)) = &mut next {
                        since.get_or_insert_with(Instant::now);
                    }
                }
                Err(error) => {
                    let error = error.to_string();
                    if error != said {
                        warn!(
                            "{error}; until then no context is injected where the certificate is not trusted yet"
                        );
                        said = error.clone();
                    }
                    // A trusted certificate is trusted until it expires.
                    if !ready || current.made.elapsed() >= self.lifetime {
                        self.health.set_ready(Err(error));
                    }
                }
            }
            // API servers see a change of the bundle quickly; they have the pause between two checks for it.
            let seen = |since: &Option<Instant>| since.is_some_and(|since| since.elapsed() >= pause);
            if let Some((fresh, _)) = next.take_if(|(_, since)| seen(since)) {
                self.served.set(&fresh.key);
                self.metrics.set_validity(fresh.validity);
                info!("another certificate is served");
                current = fresh;
            }
            sleep(if trusted.is_ok() { pause } else { pause.min(RETRY) }).await;
        }
    }

    /// Adds these certificates to the bundle if they are missing.
    async fn ensure(&self, own: &[&str]) -> Result<()> {
        let Self { api, name, metrics, .. } = self;
        for _ in 0..TRIES {
            let configuration = api.get(name).await.map_err(|error| self.refused("read", &error))?;
            let webhooks = configuration.webhooks.unwrap_or_default();
            let changes: Vec<Value> = webhooks
                .iter()
                .filter_map(|webhook| {
                    let bundle =
                        webhook.client_config.ca_bundle.as_ref().map(|bundle| &*bundle.0).unwrap_or_default();
                    let bundle = bundle_with(&String::from_utf8_lossy(bundle), own)?;
                    let bundle = k8s_openapi::ByteString(bundle.into_bytes());
                    Some(json!({ "name": webhook.name, "clientConfig": { "caBundle": bundle } }))
                })
                .collect();
            if webhooks.is_empty() {
                bail!(
                    "the MutatingWebhookConfiguration `{name}` has no webhooks; install the chart with webhook.enabled"
                );
            }
            if changes.is_empty() {
                return Ok(());
            }
            // The resource version protects concurrent changes of other clients.
            let version = configuration.metadata.resource_version;
            let patch = json!({ "metadata": { "resourceVersion": version }, "webhooks": changes });
            let parameters =
                PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            match api.patch(name, &parameters, &Patch::Strategic(patch)).await {
                Ok(_) => {
                    metrics.wrote(Patched::Written);
                    return Ok(());
                }
                Err(kube::Error::Api(status)) if status.is_conflict() => metrics.wrote(Patched::Conflict),
                Err(error) => return Err(self.refused("write", &error)),
            }
        }
        bail!("others keep changing the MutatingWebhookConfiguration `{name}`; look who does")
    }

    /// Counts a failed write, and returns what to do about it.
    fn refused(&self, what: &str, error: &kube::Error) -> anyhow::Error {
        let name = &self.name;
        let (result, why, next) = match error {
            kube::Error::Api(status) if status.is_forbidden() => (
                Patched::Forbidden,
                status.message.clone(),
                format!(
                    "grant `get` and `patch` of mutatingwebhookconfigurations with the resourceName {name}, as `rbac.create` \
                     of the chart does"
                ),
            ),
            kube::Error::Api(status) if status.is_not_found() => (
                Patched::Failed,
                status.message.clone(),
                "install the chart with webhook.enabled, or give --configuration".to_owned(),
            ),
            error => (Patched::Failed, sentence(error), "check that the API server runs".to_owned()),
        };
        self.metrics.wrote(result);
        anyhow!("cannot {what} the MutatingWebhookConfiguration `{name}`: {why}; {next}")
    }
}
