//! Self-signed certificates, made in memory, and trusted because they are in the API server's bundle.
//!
//! There is no certificate authority: the API server trusts the served certificates themselves. No key can sign another
//! certificate or leaves its process, and replicas share only the bundle.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use rustls::{
    crypto::ring::sign::any_supported_type,
    pki_types::PrivateKeyDer,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use time::OffsetDateTime;

use super::validity::Validity;

/// Most by which the clocks of API servers may be behind.
const SKEW: Duration = Duration::from_secs(300);
/// Most certificates of a bundle; the oldest are replaced. A replica has one, or two during a rotation.
const MAX_IN_BUNDLE: usize = 32;
/// End of a certificate in PEM.
const END: &str = "-----END CERTIFICATE-----";

/// A certificate with its key.
#[derive(Clone, Debug)]
pub(super) struct Certificate {
    /// The certificate in PEM, for the bundle.
    pub(super) pem: String,
    /// Time of its creation.
    pub(super) made: Instant,
    pub(super) validity: Validity,
    pub(super) key: Arc<CertifiedKey>,
}

impl Certificate {
    /// Makes a certificate for these names and addresses with this validity.
    ///
    /// # Errors
    ///
    /// When a name is not valid.
    pub(super) fn new(names: &[String], lifetime: Duration) -> Result<Self> {
        let mut params = CertificateParams::new(names).with_context(|| {
            format!("{names:?} cannot be names of a certificate; give --host NAME or --host ADDRESS")
        })?;
        let now = SystemTime::now();
        params.not_before = OffsetDateTime::from(now - SKEW);
        params.not_after = OffsetDateTime::from(now + lifetime);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "schedspan webhook");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().context("cannot make a key")?;
        let certificate = params.self_signed(&key).context("cannot make a certificate")?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
        let key = any_supported_type(&key).context("cannot use the key")?;
        let certified = CertifiedKey::new(vec![certificate.der().clone()], key);
        Ok(Self {
            pem: certificate.pem().replace("\r\n", "\n"),
            made: Instant::now(),
            validity: Validity::of(&certified.cert)?,
            key: Arc::new(certified),
        })
    }
}

/// The certificate for new connections. Clones are handles of the same.
#[derive(Clone)]
pub(super) struct Served(Arc<RwLock<Arc<CertifiedKey>>>);

impl Served {
    pub(super) fn new(first: &Arc<CertifiedKey>) -> Self {
        Self(Arc::new(RwLock::new(Arc::clone(first))))
    }

    pub(super) fn set(&self, key: &Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(key);
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").finish_non_exhaustive()
    }
}

/// The bundle with these certificates added, in PEM; `None` if it contains them already.
///
/// Certificates of other replicas stay: whether those replicas still run is not known, and expired certificates are harmless.
pub(super) fn bundle_with(bundle: &str, own: &[&str]) -> Option<String> {
    let mut all: Vec<&str> = Vec::new();
    for part in bundle.split_inclusive(END) {
        // Text between certificates is a comment.
        let certificate =
            part.find("-----BEGIN").map(|start| &part[start..]).filter(|part| part.ends_with(END));
        all.extend(certificate.filter(|certificate| !all.contains(certificate)));
    }
    let missing: Vec<&str> = own.iter().map(|pem| pem.trim()).filter(|pem| !all.contains(pem)).collect();
    if missing.is_empty() {
        return None;
    }
    all.extend(missing);
    let kept = &all[all.len().saturating_sub(MAX_IN_BUNDLE)..];
    Some(kept.iter().map(|certificate| format!("{certificate}\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> Certificate {
        let names = ["schedspan-webhook.kube-system.svc".to_owned(), "127.0.0.1".to_owned()];
        Certificate::new(&names, Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn a_certificate_has_a_key_of_its_own_and_an_end() {
        let (one, other) = (certificate(), certificate());
        assert!(
            one.pem.starts_with("-----BEGIN CERTIFICATE-----\n") && one.pem.trim().ends_with(END),
            "{}",
            one.pem
        );
        assert_ne!(one.pem, other.pem);
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let Validity { start, end } = one.validity;
        assert!((now + 50..=now + 60).contains(&end) && start <= now - 300, "{start} to {end} at {now}");
    }

    #[test]
    fn an_invalid_name_is_refused_and_named() {
        let error = Certificate::new(&["é".to_owned()], SKEW).unwrap_err();
        assert!(format!("{error:#}").contains('é'), "{error:#}");
    }

    #[test]
    fn a_bundle_gets_what_it_lacks_once() {
        let (one, other) = (certificate(), certificate());
        let first = bundle_with("", &[&one.pem]).unwrap();
        assert_eq!(first, one.pem);
        assert_eq!(bundle_with(&first, &[&one.pem]), None);
        let both = bundle_with(&first, &[&one.pem, &other.pem]).unwrap();
        assert_eq!(both, format!("{}{}", one.pem, other.pem));
        let commented = format!("words\n{}words{}", one.pem, other.pem.trim());
        assert_eq!(bundle_with(&commented, &[&other.pem, &one.pem]), None);
        let third = certificate();
        let all = bundle_with(&commented, &[&third.pem]).unwrap();
        assert_eq!(all, format!("{}{}{}", one.pem, other.pem, third.pem));
    }

    #[test]
    fn a_bundle_has_an_end_and_the_oldest_leave_it() {
        let mut bundle = String::new();
        let all: Vec<_> = (0..MAX_IN_BUNDLE + 2).map(|_| certificate().pem).collect();
        for pem in &all {
            bundle = bundle_with(&bundle, &[pem]).unwrap();
        }
        assert_eq!(bundle, all[2..].concat());
    }

    #[test]
    fn text_without_a_certificate_is_removed() {
        let one = certificate();
        for junk in ["junk", END, "-----BEGIN CERTIFICATE-----\n", "é-----END"] {
            assert_eq!(bundle_with(junk, &[&one.pem]).unwrap(), one.pem, "{junk}");
        }
    }
}
