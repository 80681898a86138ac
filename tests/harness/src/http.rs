//! The HTTP client of the harness.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use ureq::{
    Agent,
    tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem},
};

/// The limit for one request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A client that trusts only the certificates in this file. Without the file it trusts none.
///
/// # Errors
///
/// If the file does not hold certificates.
pub fn agent(certificates: &Path) -> Result<Agent> {
    let pem = fs::read(certificates).unwrap_or_default();
    let mut roots = Vec::<Certificate<'static>>::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) =
            item.with_context(|| format!("cannot read the certificates in {}", certificates.display()))?
        {
            roots.push(certificate);
        }
    }
    let tls = TlsConfig::builder().root_certs(RootCerts::from(roots.into_iter())).build();
    let config = Agent::config_builder().tls_config(tls).proxy(None).timeout_global(Some(TIMEOUT));
    Ok(config.http_status_as_error(false).build().into())
}
