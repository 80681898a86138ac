//! A certificate from files, such as those that cert-manager keeps in a Secret. The API server's trust in it is set up elsewhere.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use anyhow::{Context as _, Result};
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, ring::sign::any_supported_type},
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};
use tokio::time::sleep;
use tracing::{info, warn};

use super::{certificate::Served, metrics::Metrics, validity::Validity};

/// Interval at which changes of the files are looked for. The kubelet takes about a minute to bring them.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Files in PEM.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// What the files hold.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) validity: Validity,
}

impl Files {
    /// Reads both.
    ///
    /// # Errors
    ///
    /// When one cannot be read, they do not belong together, or the certificate's end is not known.
    pub(super) fn read(&self) -> Result<Own> {
        let Self { certificate, key } = self;
        let pem = fs::read(certificate)
            .with_context(|| format!("cannot read `{}`; give --certificate FILE", certificate.display()))?;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<_, _>>()
            .with_context(|| format!("`{}` is not a certificate in PEM", certificate.display()))?;
        let pem = fs::read(key)
            .with_context(|| format!("cannot read `{}`; give --certificate-key FILE", key.display()))?;
        let own = PrivateKeyDer::from_pem_slice(&pem)
            .with_context(|| format!("`{}` is not a key in PEM", key.display()))?;
        let own = any_supported_type(&own).with_context(|| format!("cannot use `{}`", key.display()))?;
        let certified = CertifiedKey::new(chain, own);
        certified
            .keys_match()
            .with_context(|| format!("`{}` is not the key of `{}`", key.display(), certificate.display()))?;
        let validity = Validity::of(&certified.cert)
            .with_context(|| format!("cannot read how long `{}` is valid", certificate.display()))?;
        Ok(Own { key: Arc::new(certified), validity })
    }

    /// Serves what is in the files whenever that changes, for ever. While they cannot be used, the previous ones are served.
    pub(super) async fn follow(self, served: Served, first: Own, metrics: Metrics) {
        let mut current = first;
        let renew = || {
            let new = self.read()?;
            let changed = new.key.cert != current.key.cert;
            if changed {
                served.set(&new.key);
                metrics.set_validity(new.validity);
                current = new;
            }
            Ok(changed)
        };
        follow(renew, "another certificate is served", "the previous certificate is served").await;
    }
}

/// Demands that clients have a certificate that one of the authorities in a file has signed.
#[derive(Debug)]
pub(super) struct Clients {
    file: PathBuf,
    provider: Arc<CryptoProvider>,
    /// What the file held, and what that demands.
    current: RwLock<(Vec<u8>, Arc<dyn ClientCertVerifier>)>,
}

impl Clients {
    /// Reads the authorities.
    ///
    /// # Errors
    ///
    /// When the file holds none.
    pub(super) fn new(file: PathBuf, provider: Arc<CryptoProvider>) -> Result<Self> {
        let pem = read(&file)?;
        let demanded = verifier(&file, &pem, Arc::clone(&provider))?;
        Ok(Self { file, provider, current: RwLock::new((pem, demanded)) })
    }

    /// Demands what is in the file whenever that changes, for ever. While it cannot be used, the previous authorities count.
    pub(super) async fn follow(&self) {
        let (new, old) = ("other authorities of clients count", "the previous authorities of clients count");
        follow(|| self.renew(), new, old).await;
    }

    /// Reads the file again, and returns whether it has changed.
    fn renew(&self) -> Result<bool> {
        let pem = read(&self.file)?;
        if pem == self.current.read().unwrap_or_else(PoisonError::into_inner).0 {
            return Ok(false);
        }
        let demanded = verifier(&self.file, &pem, Arc::clone(&self.provider))?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (pem, demanded);
        Ok(true)
    }

    fn demanded(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).1)
    }
}

impl ClientCertVerifier for Clients {
    /// None: a hint only, and it would be that of authorities that may have been replaced.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.demanded().verify_client_cert(own, between, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.demanded().verify_tls12_signature(message, own, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.demanded().verify_tls13_signature(message, own, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.demanded().supported_verify_schemes()
    }
}

/// Renews regularly, for ever, what files hold. `renew` returns whether they have changed. Logs `new` then, and `old` once with each error
/// that differs from the one before it.
async fn follow(mut renew: impl FnMut() -> Result<bool>, new: &str, old: &str) {
    let mut said = String::new();
    loop {
        sleep(LOOK_INTERVAL).await;
        match renew() {
            Ok(changed) => {
                said.clear();
                if changed {
                    info!("{new}");
                }
            }
            Err(error) => {
                let error = format!("{error:#}");
                if error != said {
                    warn!("{error}; {old}");
                    said = error;
                }
            }
        }
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read `{}`; give --client-ca FILE", file.display()))
}

fn verifier(file: &Path, pem: &[u8], provider: Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>> {
    let name = || format!("`{}` does not hold authorities in PEM; give --client-ca FILE", file.display());
    let mut authorities = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(pem) {
        authorities.add(authority.with_context(name)?).with_context(name)?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider);
    verifier.build().with_context(name)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A certificate and its key, in files of this name.
    fn files(name: &str) -> Files {
        let path =
            |what: &str| std::env::temp_dir().join(format!("schedspan-{}-{name}.{what}", std::process::id()));
        let files = Files { certificate: path("crt"), key: path("key") };
        write(&files);
        files
    }

    fn write(files: &Files) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["a".to_owned()]).unwrap().self_signed(&key).unwrap();
        fs::write(&files.certificate, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
    }

    fn remove(files: &Files) {
        fs::remove_file(&files.certificate).unwrap();
        fs::remove_file(&files.key).unwrap();
    }

    #[test]
    fn a_certificate_is_used_with_its_own_key_only() {
        let (one, other) = (files("one"), files("other"));
        let Validity { start, end } = one.read().unwrap().validity;
        // rcgen's own limits: from 1975 until 4096.
        assert_eq!((start, end), (157_766_400, 67_090_118_400));
        let mixed = Files { certificate: one.certificate.clone(), key: other.key.clone() };
        let error = format!("{:#}", mixed.read().unwrap_err());
        assert!(error.contains("is not the key of"), "{error}");
        fs::write(&other.key, "nothing").unwrap();
        assert!(other.read().is_err());
        fs::write(&other.certificate, "nothing").unwrap();
        assert!(other.read().is_err());
        remove(&one);
        remove(&other);
    }

    #[test]
    fn authorities_of_clients_are_renewed_and_none_is_no_demand() {
        let files = files("clients");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = Clients::new(files.certificate.clone(), Arc::clone(&provider)).unwrap();
        let own = |files: &Files| {
            let demanded = clients.demanded();
            let certificate = CertificateDer::from_pem_file(&files.certificate).unwrap();
            demanded.verify_client_cert(&certificate, &[], UnixTime::now()).is_ok()
        };
        assert!(!clients.renew().unwrap(), "nothing has changed");
        assert!(own(&files));
        write(&files);
        assert!(!own(&files));
        assert!(clients.renew().unwrap());
        assert!(own(&files));
        fs::write(&files.certificate, "nothing").unwrap();
        assert!(clients.renew().is_err());
        assert!(Clients::new(files.certificate.clone(), provider).is_err());
        remove(&files);
    }
}
