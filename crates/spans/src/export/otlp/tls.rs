//! TLS to a Collector. Files are read again for each connection, so rotated certificates are used.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::settings::{Protocol, TlsFiles};

/// A file of certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("`{path}` of {variable}: {reason}; set it to a file in PEM format with {expected}")]
    File { path: String, variable: &'static str, expected: &'static str, reason: String },
    #[error(
        "there is no certificate of an authority in the system{reason}; set OTEL_EXPORTER_OTLP_CERTIFICATE to a file with that of \
         the Collector's"
    )]
    NoAuthorities { reason: String },
}

/// The configuration of a new connection.
pub(super) fn configuration(files: &TlsFiles, protocol: Protocol) -> Result<Arc<ClientConfig>, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring supports the default versions of TLS")
        .with_root_certificates(authorities(files)?);
    let mut configuration = match &files.client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE")?;
            let of_key = |reason: String| Error::File {
                path: key.display().to_string(),
                variable: "OTEL_EXPORTER_OTLP_CLIENT_KEY",
                expected: "the key of the certificate in OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
                reason,
            };
            let private = PrivateKeyDer::from_pem_file(key).map_err(|error| of_key(error.to_string()))?;
            builder.with_client_auth_cert(chain, private).map_err(|error| of_key(error.to_string()))?
        }
    };
    configuration.alpn_protocols = match protocol {
        Protocol::Grpc => vec![b"h2".to_vec()],
        Protocol::Http => vec![b"http/1.1".to_vec()],
    };
    Ok(Arc::new(configuration))
}

/// The authorities of the file or, without one, the system's: `SSL_CERT_FILE` and `SSL_CERT_DIR` name others.
fn authorities(files: &TlsFiles) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    if let Some(path) = &files.authorities {
        let variable = "OTEL_EXPORTER_OTLP_CERTIFICATE";
        for certificate in certificates(path, variable)? {
            store.add(certificate).map_err(|error| not_certificates(path, variable, &error.to_string()))?;
        }
        return Ok(store);
    }
    let found = rustls_native_certs::load_native_certs();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let reason = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(Error::NoAuthorities { reason });
    }
    Ok(store)
}

/// The certificates in a file: at least one.
fn certificates(path: &Path, variable: &'static str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => Err(not_certificates(path, variable, "it has none")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(not_certificates(path, variable, &error.to_string())),
    }
}

fn not_certificates(path: &Path, variable: &'static str, reason: &str) -> Error {
    let (path, reason) = (path.display().to_string(), reason.to_owned());
    Error::File { path, variable, expected: "certificates", reason }
}
