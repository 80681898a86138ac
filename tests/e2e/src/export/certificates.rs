//! Certificates of authorities of a test's own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};

/// Files in PEM format.
pub(crate) struct Files {
    /// The authority that signs both certificates.
    pub(crate) authority: PathBuf,
    pub(crate) server: PathBuf,
    pub(crate) server_key: PathBuf,
    pub(crate) client: PathBuf,
    pub(crate) client_key: PathBuf,
}

/// A year in which certificates are still valid.
pub(crate) const LATER: i32 = 2100;
/// A year in which they are not any more.
pub(crate) const OVER: i32 = 2020;

/// A certificate of a server to be made.
#[derive(Clone, Copy)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    /// The year at whose beginning it ends.
    pub(crate) ends: i32,
}

impl Files {
    /// The files in a folder, which [`Files::renew`] writes.
    pub(crate) fn in_dir(dir: &Path) -> Self {
        let file = |name: &str| dir.join(name);
        Self {
            authority: file("authority.pem"),
            server: file("server.pem"),
            server_key: file("server-key.pem"),
            client: file("client.pem"),
            client_key: file("client-key.pem"),
        }
    }

    /// Makes a new authority, and certificates that it signs.
    pub(crate) fn renew(&self, server: Server) -> Result<()> {
        let Self { authority, server: server_file, server_key, client, client_key } = self;
        let mut parameters = CertificateParams::new(Vec::new())?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, "the test's authority");
        let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)?;
        fs::write(authority, issuer.pem())?;
        for (name, ends, file, key_file) in
            [(server.name, server.ends, server_file, server_key), ("schedspan", LATER, client, client_key)]
        {
            let key = KeyPair::generate()?;
            let mut parameters = CertificateParams::new(vec![name.to_owned()])?;
            parameters.distinguished_name.push(DnType::CommonName, name);
            parameters.not_after = date_time_ymd(ends, 1, 1);
            fs::write(file, parameters.signed_by(&key, &issuer)?.pem())?;
            fs::write(key_file, key.serialize_pem())?;
        }
        Ok(())
    }
}
